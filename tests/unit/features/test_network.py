"""Vectors of pretrained networks: encoded once, standardised, and never silently those of another network."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from silohash.base.errors import (
    ArchiveUnsuitable,
    DeviceUnavailable,
    MissingFile,
    NetworkChanged,
    NetworkUnavailable,
    NoEffect,
    OutOfRange,
    QueryUnsuitable,
    SettingNeeded,
    UnknownOption,
    UnreadablePicture,
    UnsuitableFeatures,
    UserError,
    WrongType,
)

pytest.importorskip("transformers")


from silohash.data.pictures.reading import PictureFiles
from silohash.features import featurizer, load, save
from silohash.features.base import add_statistics
from silohash.features.loading import loader_threads
from silohash.features.network import Network, NetworkFeatures, Source
from tests import backbones
from tests.archives import drawn_pictures, made_up_archive

COUNT = 40
ROWS = np.arange(COUNT)


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SILOHASH_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def encoded(monkeypatch) -> list[int]:
    """How many items each pass of the network took."""
    counts: list[int] = []
    embed = Network.embed

    def counting(self, batch, device, *, half):
        counts.append(len(next(iter(batch.values()))))
        return embed(self, batch, device, half=half)

    monkeypatch.setattr(Network, "embed", counting)
    return counts


def made(folder, column, modality="image", **options):
    return featurizer(modality, column, {"kind": "huggingface", "model": str(folder), **options})


def fitted(features, column, rows=ROWS):
    return features.fitted(features.statistics(column, rows))


@pytest.mark.parametrize("name", ["vit", "clip"])
def test_round_of_pictures(tmp_path, name):
    folder, column = backbones.IMAGE_MODELS[name](tmp_path / name), backbones.jpegs(tmp_path / "pictures", COUNT)
    features = made(folder, column)
    parts = [features.statistics(column, ROWS[start::3]) for start in range(3)]
    federated = features.fitted(add_statistics(parts))
    found = federated.transform(column, ROWS)
    assert found.shape == (COUNT, *federated.shape)
    np.testing.assert_allclose(found.mean(0), 0, atol=1e-4)
    np.testing.assert_allclose(found.std(0), 1, atol=1e-3)
    save(federated, tmp_path / "state.safetensors")
    restored = load(tmp_path / "state.safetensors")
    np.testing.assert_array_equal(restored.transform(column, ROWS), found)
    np.testing.assert_allclose(restored.encode_one(column.picture(3))[0], found[3], atol=2e-3)
    assert restored.state()[1] == federated.state()[1]


@pytest.mark.parametrize("name", ["bert", "sentence_encoder", "clip"])
def test_round_of_texts(tmp_path, name):
    folder, column = backbones.TEXT_MODELS[name](tmp_path / name), backbones.sentences(COUNT)
    features = fitted(made(folder, column, "text", batch=7), column)
    found = features.transform(column, ROWS)
    np.testing.assert_allclose(found.mean(0), 0, atol=1e-4)
    np.testing.assert_allclose(features.encode_one(str(column[5]))[0], found[5], atol=2e-3)
    with pytest.raises(QueryUnsuitable, match="texts"):
        features.encode_one(np.zeros(3))


@pytest.mark.parametrize("modality", ["image", "text"])
def test_round_of_tokens(tmp_path, modality):
    column = backbones.jpegs(tmp_path / "pictures", COUNT) if modality == "image" else backbones.sentences(COUNT)
    features = made(backbones.clip(tmp_path / "clip"), column, modality, pooling="tokens", batch=7)
    parts = [features.statistics(column, ROWS[start::3]) for start in range(3)]
    federated = features.fitted(add_statistics(parts))
    found = federated.transform(column, ROWS)
    assert found.shape == (COUNT, *federated.shape) == (COUNT, 17 if modality == "image" else 13, 10)
    np.testing.assert_allclose(found[:, 0].mean(0), 0, atol=1e-4)
    present = found[:, 1:].any(2)
    assert present.all() == (modality == "image")
    np.testing.assert_allclose(found[:, 1:][present].mean(0), 0, atol=1e-4)
    np.testing.assert_allclose(found[:, 1:][present].std(0), 1, atol=1e-3)
    save(federated, tmp_path / "state.safetensors")
    restored = load(tmp_path / "state.safetensors")
    np.testing.assert_array_equal(restored.transform(column, ROWS), found)
    query = column.picture(3) if modality == "image" else str(column[3])
    np.testing.assert_allclose(restored.encode_one(query)[0], found[3], atol=2e-3)
    assert restored.state()[1] == federated.state()[1]


def test_tokens_are_not_whitened(tmp_path):
    whitened = {"whiten": True, "reveal_items": True, "pooling": "tokens"}
    with pytest.raises(NoEffect):
        made(backbones.clip(tmp_path / "clip"), backbones.sentences(3), "text", **whitened)


def test_an_item_is_encoded_once_wherever_it_stands(tmp_path, encoded):
    folder, column = backbones.vit(tmp_path / "vit"), backbones.jpegs(tmp_path / "pictures", COUNT)
    features = made(folder, column, batch=8)
    first = fitted(features, column, ROWS[:30]).transform(column, ROWS[:30])
    assert (sum(encoded), max(encoded)) == (30, 8)
    assert np.isfinite(first).all()
    encoded.clear()
    grown = PictureFiles(column.folder, [*column.names[::-1], column.names[0]])
    again = made(folder, grown, batch=8)
    assert again.network_vectors(grown, np.arange(COUNT + 1)).shape == (COUNT + 1, backbones.WIDTH)
    assert sum(encoded) == COUNT - 30
    np.testing.assert_array_equal(
        again.network_vectors(grown, np.array([COUNT])), features.network_vectors(column, np.array([0]))
    )


def test_a_run_that_is_cut_off_goes_on(tmp_path, encoded, monkeypatch):
    folder, column = backbones.vit(tmp_path / "vit"), backbones.jpegs(tmp_path / "pictures", COUNT)
    counting, left = Network.embed, [3]

    def stopping(self, batch, device, *, half):
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        return counting(self, batch, device, half=half)

    monkeypatch.setattr(Network, "embed", stopping)
    with pytest.raises(KeyboardInterrupt):
        made(folder, column, batch=5).network_vectors(column, ROWS)
    monkeypatch.setattr(Network, "embed", counting)
    assert sum(encoded) == 15
    made(folder, column, batch=5).network_vectors(column, ROWS)
    assert sum(encoded) == COUNT


def test_memory_stays_flat(tmp_path, monkeypatch):
    folder, column = backbones.vit(tmp_path / "vit"), backbones.jpegs(tmp_path / "pictures", 30)
    decoded, embedded, most = [0], [0], [0]
    picture, embed = PictureFiles.picture, Network.embed

    def opening(self, row):
        decoded[0] += 1
        most[0] = max(most[0], decoded[0] - embedded[0])
        return picture(self, row)

    def embedding(self, batch, device, *, half):
        embedded[0] += len(batch["pixels"])
        return embed(self, batch, device, half=half)

    features = made(folder, column, batch=1)
    monkeypatch.setattr(PictureFiles, "picture", opening)
    monkeypatch.setattr(Network, "embed", embedding)
    features.network_vectors(column, np.arange(30))
    assert most[0] <= loader_threads() + 4


def test_a_changed_network_is_never_used_silently(tmp_path):
    folder, column = backbones.vit(tmp_path / "vit"), backbones.jpegs(tmp_path / "pictures", COUNT)
    features = fitted(made(folder, column), column)
    expected = features.transform(column, ROWS)
    save(features, tmp_path / "state.safetensors")
    backbones.vit(folder, seed=1)
    changed = load(tmp_path / "state.safetensors")
    np.testing.assert_array_equal(changed.transform(column, ROWS), expected)
    with pytest.raises(NetworkChanged):
        changed.encode_one(column.picture(0))
    shutil.rmtree(folder)
    gone = load(tmp_path / "state.safetensors")
    with pytest.raises(MissingFile, match=r"the folder .* does not exist"):
        gone.encode_one(column.picture(0))


def test_pictures_that_are_not_files(tmp_path):
    column = drawn_pictures(5)
    found = made(backbones.vit(tmp_path / "vit"), column).network_vectors(column, np.arange(5))
    assert len(np.unique(found.round(6), axis=0)) == 5


def test_half_and_draft_are_other_vectors(tmp_path, encoded):
    folder, column = backbones.vit(tmp_path / "vit"), backbones.jpegs(tmp_path / "pictures", 5)
    rows = np.arange(5)
    exact, half = (made(folder, column, half=half).network_vectors(column, rows) for half in (False, True))
    assert sum(encoded) == 10
    np.testing.assert_allclose(half, exact, rtol=2e-2, atol=2e-2)
    assert np.array_equal(half, np.float32(np.float16(half)))
    large = PictureFiles(column.folder, ["large.jpg"])
    column.picture(0).resize((300, 200)).save(column.folder / "large.jpg")
    exact, draft = (made(folder, large, draft=draft).network_vectors(large, rows[:1]) for draft in (False, True))
    assert not np.array_equal(exact, draft)
    np.testing.assert_allclose(exact, draft, atol=0.3)


def test_damaged_pictures_are_named(tmp_path):
    column = backbones.jpegs(tmp_path / "pictures", 4)
    (column.folder / column.names[2]).write_bytes(b"no picture")
    with pytest.raises(UnreadablePicture, match=r"0002\.jpg"):
        made(backbones.vit(tmp_path / "vit"), column).network_vectors(column, np.arange(4))


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({}, SettingNeeded, None),
        ({"model": "./nowhere"}, MissingFile, r"\./nowhere"),
        ({"model": "no-one/nothing-of-this-name"}, NetworkUnavailable, "nothing is downloaded by default"),
        ({"modle": "x"}, UnknownOption, "modle"),
        ({"batch": 0}, OutOfRange, "0"),
        ({"half": 1}, WrongType, None),
        ({"device": "abacus"}, DeviceUnavailable, r"features\.image\.device.*abacus"),
    ],
)
def test_options_that_do_not_fit(options, kind: type[UserError], message: str | None, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(kind, match=message):
        featurizer("image", drawn_pictures(2), {"kind": "huggingface", **options})


def test_columns_that_do_not_fit(tmp_path):
    archive, folder = made_up_archive(30), backbones.vit(tmp_path / "vit")
    with pytest.raises(UnsuitableFeatures):
        made(folder, archive.image)
    features = made(folder, drawn_pictures(2))
    with pytest.raises(ArchiveUnsuitable, match="this archive does not hold any"):
        features.network_vectors(archive.image, np.arange(2))
    texts = made(backbones.bert(tmp_path / "bert"), archive.text, "text")
    with pytest.raises(ArchiveUnsuitable):
        texts.network_vectors(archive.image, np.arange(2))


def test_a_folder_with_pickled_weights_is_refused(tmp_path):
    folder = backbones.vit(tmp_path / "vit")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(MissingFile, match="does not hold weights in the safetensors format"):
        made(folder, drawn_pictures(2))


@pytest.mark.parametrize(("count", "lines"), [(63, 0), (64, 1)])
def test_a_long_encoding_is_reported(tmp_path, count, lines):
    column = np.array([f"red parrot {number}" for number in range(count)])
    features, said = made(backbones.bert(tmp_path / "bert"), column, "text"), []
    features.vectors.notify = said.append
    features.network_vectors(column, np.arange(count))
    assert len(said) == lines
    assert all(line.startswith("Encoding 64 texts with ") for line in said)


def test_options_of_every_kind():
    whitening = {"whiten": False, "reveal_items": False}
    assert NetworkFeatures.options == {"batch": 32, "device": "auto", "half": False, "draft": False, **whitening}
    known = NetworkFeatures.options_of("huggingface")
    assert known.items() >= {"model": "", "batch": 32, "download": False}.items()


@pytest.mark.parametrize("options", [{"batch": 2.0}, {"batch": True}, {"draft": 0}])
def test_options_of_another_type(tmp_path, options):
    with pytest.raises((OutOfRange, WrongType), match=r"\[features\] (batch|draft) is"):
        made(backbones.vit(tmp_path / "vit"), drawn_pictures(2), **options)


def test_paths_of_the_users_files_are_stored_in_full(tmp_path, monkeypatch):
    folder = backbones.vit(tmp_path / "vit")
    monkeypatch.chdir(tmp_path)
    assert Source("huggingface", "image", {"model": "vit", "pooling": "vit"}).options == {
        "model": str(folder.resolve()), "pooling": "vit",
    }  # fmt: skip
    assert Source("huggingface", "image", {"model": "google/vit"}).options == {"model": "google/vit"}
