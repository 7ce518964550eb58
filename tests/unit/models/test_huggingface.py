from __future__ import annotations

import json
import sys
import types
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from silohash.base.errors import (
    DamagedFile,
    DependencyMissing,
    MissingFile,
    NetworkChanged,
    NoEffect,
    OutOfRange,
    QueryUnsuitable,
    UnsuitableFeatures,
    UnsupportedNetwork,
    UserError,
    WrongChoice,
)

pytest.importorskip("transformers")


from silohash.features import featurizer
from silohash.features.network import make_network
from silohash.features.word_pieces import read_word_pieces
from silohash.models import huggingface
from silohash.models.huggingface import CHUNK_ITEMS, Backbone, frozen, pooled, read_backbone
from tests import backbones

TEXTS = ["two red parrots", "a violin", "the blue harbour on the red tree"]


@pytest.fixture
def pictures(tmp_path):
    return [backbones.jpegs(tmp_path / "pictures", 3).picture(row) for row in range(3)]


def embedded(network, values) -> np.ndarray:
    return network.embed(network.prepare(iter(values)), "cpu", half=False)


def seen(folder, pictures) -> torch.Tensor:
    """What the folder's published processor makes of pictures."""
    import transformers

    name = "ViTImageProcessorPil"  # without Pil before version 5
    made = getattr(transformers, name, None) or getattr(transformers, name.removesuffix("Pil"))
    return made.from_pretrained(folder)(pictures, return_tensors="pt")["pixel_values"]


def summary(output):
    """What version 5 of transformers returns within an object, and earlier ones as it is."""
    return getattr(output, "pooler_output", output)


def published(folder):
    from transformers import AutoModel

    return AutoModel.from_pretrained(folder).eval()


@torch.no_grad()
def test_clip_gives_its_projections(tmp_path, pictures):
    folder = backbones.clip(tmp_path / "clip")
    model = published(folder)
    image = make_network("huggingface", "image", {"model": str(folder)})
    expected = summary(model.get_image_features(pixel_values=seen(folder, pictures)))
    np.testing.assert_allclose(embedded(image, pictures), expected, atol=1e-5)
    text = make_network("huggingface", "text", {"model": str(folder)})
    from transformers import AutoTokenizer

    tokens = AutoTokenizer.from_pretrained(folder)(TEXTS, padding=True, return_tensors="pt")
    expected = summary(model.get_text_features(input_ids=tokens["input_ids"], attention_mask=tokens["attention_mask"]))
    np.testing.assert_allclose(embedded(text, TEXTS), expected, atol=1e-5)
    assert image.width == text.width == 10
    assert image.key != text.key


@torch.no_grad()
def test_clip_gives_the_projections_of_its_patches(tmp_path, pictures):
    folder = backbones.clip(tmp_path / "clip")
    model = published(folder)
    network = make_network("huggingface", "image", {"model": str(folder), "pooling": "tokens"})
    assert (network.tokens, network.width) == (16, 170)
    found = embedded(network, pictures).reshape(3, 17, 10)
    expected = summary(model.get_image_features(pixel_values=seen(folder, pictures)))
    np.testing.assert_allclose(found[:, 0], expected, atol=1e-5)
    vision = model.vision_model
    hidden = vision(pixel_values=seen(folder, pictures)).last_hidden_state
    for patch in range(1, 17):
        projected = model.visual_projection(vision.post_layernorm(hidden[:, patch]))
        np.testing.assert_allclose(found[:, patch], projected, atol=1e-5)


@torch.no_grad()
def test_clip_gives_the_projections_of_its_word_pieces(tmp_path):
    folder = backbones.clip(tmp_path / "clip")
    model = published(folder)
    network = make_network("huggingface", "text", {"model": str(folder), "pooling": "tokens", "length": 10})
    assert (network.tokens, network.width) == (10, 110)
    found = embedded(network, TEXTS).reshape(3, 11, 10)
    for text, rows in zip(TEXTS, found, strict=True):
        pieces = network.prepare([text])["ids"]
        assert pieces.shape == (1, 10)
        count = int((pieces >= 0).sum())
        ids = torch.from_numpy(pieces[:, :count]).long()
        np.testing.assert_allclose(rows[0], summary(model.get_text_features(input_ids=ids))[0], atol=1e-5)
        hidden = model.text_model(input_ids=ids).last_hidden_state[0]
        np.testing.assert_allclose(rows[1:count], model.text_projection(hidden[:-1]), atol=1e-5)
        assert not rows[count:].any()


def test_the_length_of_texts_is_part_of_the_key(tmp_path):
    folder = str(backbones.clip(tmp_path / "clip"))
    options = ({}, {"length": 5}, {"pooling": "tokens"}, {"pooling": "tokens", "length": 5})
    networks = [make_network("huggingface", "text", {"model": folder, **given}) for given in options]
    assert [network.pieces.most for network in networks] == [12, 5, 12, 5]  # the model reads 12
    assert len({network.key for network in networks}) == 4
    assert networks[0].key == make_network("huggingface", "text", {"model": folder, "length": 0}).key
    assert [network.tokens for network in networks] == [0, 0, 12, 5]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("vit", lambda output: output.last_hidden_state[:, 0]),
        ("dinov2", lambda output: output.pooler_output),
        ("resnet", lambda output: output.last_hidden_state.mean(dim=(2, 3))),
    ],
)
@torch.no_grad()
def test_backbones_of_pictures(tmp_path, pictures, name, expected):
    folder = backbones.IMAGE_MODELS[name](tmp_path / name)
    network = make_network("huggingface", "image", {"model": str(folder)})
    found = embedded(network, pictures)
    np.testing.assert_allclose(found, expected(published(folder)(seen(folder, pictures))), atol=1e-5)
    assert found.shape == (3, backbones.WIDTH) == (3, network.width)
    assert network.smallest_pixels == backbones.SIDE


@torch.no_grad()
def test_texts_are_means_over_their_own_pieces(tmp_path):
    folder = backbones.bert(tmp_path / "bert")
    network = make_network("huggingface", "text", {"model": str(folder)})
    found = embedded(network, TEXTS)
    model, pieces = published(folder), read_word_pieces(folder)
    for text, vector in zip(TEXTS, found, strict=True):
        ids = torch.from_numpy(pieces.ids([text])).long()
        np.testing.assert_allclose(vector, model(ids).last_hidden_state[0].mean(0), atol=1e-5)
    first = make_network("huggingface", "text", {"model": str(folder), "pooling": "cls"})
    assert first.key != network.key
    ids = torch.from_numpy(pieces.ids(TEXTS[:1])).long()
    np.testing.assert_allclose(embedded(first, TEXTS)[0], model(ids).last_hidden_state[0, 0], atol=1e-5)


def test_a_sentence_encoder_is_used_as_its_folder_says(tmp_path):
    folder = backbones.sentence_encoder(tmp_path / "encoder")
    network = make_network("huggingface", "text", {"model": str(folder)})
    found = embedded(network, TEXTS)
    plain = embedded(make_network("huggingface", "text", {"model": str(folder), "pooling": "mean"}), TEXTS)
    np.testing.assert_allclose(found[:2], (plain / np.linalg.norm(plain, axis=1, keepdims=True))[:2], atol=1e-5)
    assert network.prepare(TEXTS)["ids"].shape == (3, 6)
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_lasttoken": true}', encoding="utf-8")
    with pytest.raises(UnsupportedNetwork, match="pooling_mode_lasttoken"):
        make_network("huggingface", "text", {"model": str(folder)})


@pytest.mark.parametrize("name", ["vit", "dinov2", "resnet", "clip"])
def test_a_network_is_built_of_its_config_alone(tmp_path, name):
    folder = backbones.IMAGE_MODELS[name](tmp_path / name)
    sample = torch.rand(CHUNK_ITEMS + 3, 3, backbones.SIDE, backbones.SIDE)
    backbone, _ = read_backbone(folder, sample[:1], "image", "auto")
    twin = Backbone(backbone.config, "image", backbone.pooling).eval()
    assert twin.state_dict().keys() == backbone.state_dict().keys()
    twin.load_state_dict(backbone.state_dict())
    with torch.no_grad():
        torch.testing.assert_close(twin(sample), backbone(sample))
        torch.testing.assert_close(backbone(sample)[-1:], backbone(sample[-1:]))


def test_only_what_is_used_is_kept(tmp_path):
    vit, _ = read_backbone(backbones.vit(tmp_path / "vit"), torch.zeros(1, 3, 32, 32), "image", "auto")
    assert not [name for name in vit.state_dict() if "pooler" in name]
    clip, _ = read_backbone(backbones.clip(tmp_path / "clip"), torch.zeros(1, 3, dtype=torch.int32), "text", "auto")
    assert {name.split(".")[1] for name in clip.state_dict()} == {"text_model", "text_projection"}


def test_weights_that_are_not_there_are_never_random(tmp_path):
    from safetensors.numpy import load_file, save_file

    folder = backbones.vit(tmp_path / "vit")
    arrays = load_file(folder / "model.safetensors")
    without = {name: array for name, array in arrays.items() if not name.startswith("pooler.")}
    save_file(without, folder / "model.safetensors", metadata={"format": "pt"})
    options = {"model": str(folder)}
    assert make_network("huggingface", "image", options).width == backbones.WIDTH
    with pytest.raises(UnsupportedNetwork, match="pooler"):
        make_network("huggingface", "image", {**options, "pooling": "pooler"})
    cut = {name: array for name, array in without.items() if "layernorm" not in name}
    save_file(cut, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UnsupportedNetwork):
        make_network("huggingface", "image", options)
    (folder / "model.safetensors").write_bytes(b"damaged")
    with pytest.raises(DamagedFile):
        make_network("huggingface", "image", options)


@pytest.mark.parametrize(
    ("name", "modality", "options", "kind", "message"),
    [
        ("vit", "image", {"pooling": "projection"}, UnsupportedNetwork, "not a model of both pictures and texts"),
        ("vit", "image", {"pooling": "sum"}, WrongChoice, "sum"),
        (
            "clip",
            "image",
            {"pooling": "cls"},
            UnsupportedNetwork,
            "only the projection is supported, or the tokens of CLIP",
        ),
        (
            "vit",
            "image",
            {"pooling": "tokens"},
            UnsupportedNetwork,
            "is not a CLIP model, so it does not project tokens",
        ),
        ("clip", "image", {"length": 5}, NoEffect, "5"),
        ("clip", "text", {"length": 2}, OutOfRange, "2"),
        ("clip", "text", {"length": -1}, OutOfRange, "-1"),
        ("clip", "text", {"length": "5"}, OutOfRange, "5"),
        ("resnet", "image", {"pooling": "cls"}, UnsupportedNetwork, "do not have a first token"),
        ("bert", "image", {}, MissingFile, r"preprocessor_config\.json"),
        ("vit", "text", {}, DamagedFile, None),
    ],
)
def test_what_a_model_does_not_do(tmp_path, name, modality, options, kind: type[UserError], message: str | None):
    folder = (backbones.IMAGE_MODELS | backbones.TEXT_MODELS)[name](tmp_path / name)
    with pytest.raises(kind, match=message):
        make_network("huggingface", modality, {"model": str(folder), **options})


def test_weights_change_the_key_and_notes_do_not(tmp_path):
    def key() -> str:
        return make_network("huggingface", "image", {"model": str(tmp_path / "vit")}).key

    folder = backbones.vit(tmp_path / "vit")
    first = key()
    (folder / "README.md").write_text("notes", encoding="utf-8")
    assert key() == first
    backbones.vit(folder, seed=1)
    assert key() != first


@pytest.mark.parametrize("package", ["transformers", "tokenizers"])
def test_what_to_install_is_said(tmp_path, monkeypatch, package):
    folder = backbones.bert(tmp_path / "bert")
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(DependencyMissing, match=r"silohash\[backbones\]"):
        embedded(make_network("huggingface", "text", {"model": str(folder)}), TEXTS)


def test_pooling_of_networks_without_a_summary():
    class Output:
        last_hidden_state = torch.arange(12.0).reshape(1, 3, 4)

    assert pooled(Output, "mean", torch.tensor([[1, 1, 0]])).tolist() == [[2, 3, 4, 5]]
    assert pooled(Output, "cls").tolist() == [[0, 1, 2, 3]]
    with pytest.raises(UnsupportedNetwork, match="does not have a pooler"):
        pooled(Output, "pooler")


def output(hidden: torch.Tensor, summary: torch.Tensor | None = None) -> types.SimpleNamespace:
    return types.SimpleNamespace(last_hidden_state=hidden, pooler_output=summary)


def test_pooling_by_hand():
    tokens = torch.arange(12.0).reshape(1, 3, 4)
    assert pooled(output(tokens), "mean").tolist() == [[4, 5, 6, 7]]
    assert pooled(output(tokens), "mean", torch.tensor([[0, 0, 0]])).tolist() == [[0, 0, 0, 0]]
    assert pooled(output(tokens), "mean", torch.tensor([[0, 1, 1]])).tolist() == [[6, 7, 8, 9]]
    maps = torch.arange(16.0).reshape(1, 4, 2, 2)
    assert pooled(output(maps), "mean").tolist() == [[1.5, 5.5, 9.5, 13.5]]
    assert pooled(output(maps, torch.ones(2, 3, 1, 1)), "pooler").shape == (2, 3)
    with pytest.raises(UnsupportedNetwork, match="do not have a first token"):
        pooled(output(maps), "cls")


def test_a_backbone_keeps_vectors_and_padding_as_they_are_by_default(tmp_path):
    read, width = read_backbone(backbones.bert(tmp_path / "bert"), torch.zeros(1, 3, dtype=torch.int32), "text", "auto")
    assert (read.unit_length, read.padding, read.pooling, width) == (False, 0, "mean", backbones.WIDTH)
    assert not read.training
    unit = Backbone(read.config, "text", "mean", unit_length=True, network=read.network).eval()
    with torch.no_grad():
        found = unit(torch.tensor([[2, 5, 3, -1]], dtype=torch.int32))
    torch.testing.assert_close(found.norm(dim=1), torch.ones(1))


def test_inputs_that_a_network_does_not_support_are_named(tmp_path):
    with pytest.raises(UnsupportedNetwork, match=r"support.*24.*40"):
        read_backbone(backbones.vit(tmp_path / "vit"), torch.zeros(1, 3, 40, 24), "image", "cls")
    with pytest.raises(UnsupportedNetwork, match="support"):
        read_backbone(backbones.bert(tmp_path / "bert"), torch.full((1, 3), 10**6, dtype=torch.int32), "text", "auto")


def test_transformers_is_as_loud_after_reading_as_before(tmp_path):
    from transformers.utils import logging

    level = logging.get_verbosity()
    for before in (logging.INFO, logging.ERROR):
        logging.set_verbosity(before)
        read_backbone(backbones.vit(tmp_path / "vit"), torch.zeros(1, 3, 32, 32), "image", "auto")
        assert logging.get_verbosity() == before
    logging.set_verbosity(level)


def test_pictures_are_prepared_as_the_folder_says(tmp_path: Path) -> None:
    network = frozen("image", model=str(backbones.vit(tmp_path / "vit")))
    assert (network.modality, network.width, network.smallest_pixels) == ("image", backbones.WIDTH, backbones.SIDE)
    batch = network.prepare([Image.new("RGB", (50, 40), "red"), Image.new("L", (32, 32), 7)])
    assert list(batch) == ["pixels"]
    assert (batch["pixels"].shape, batch["pixels"].dtype) == ((2, 3, backbones.SIDE, backbones.SIDE), np.uint8)
    assert (batch["pixels"][0, 0] == 255).all()
    assert (batch["pixels"][1] == 7).all()
    vectors = network.embed(batch, "cpu", half=False)
    assert (vectors.shape, vectors.dtype) == ((2, backbones.WIDTH), np.float32)
    alone = network.embed({"pixels": batch["pixels"][1:]}, "cpu", half=False)
    np.testing.assert_allclose(alone[0], vectors[1], rtol=1e-4, atol=1e-5)


def test_padding_changes_no_vector(tmp_path: Path) -> None:
    network = frozen("text", model=str(backbones.bert(tmp_path / "bert")))
    assert (network.modality, network.smallest_pixels) == ("text", 0)
    both = network.prepare(["two parrots", "the red tree on a violin"])
    assert both["ids"].shape == (2, 8)
    vectors = network.embed(both, "cpu", half=False)
    alone = network.embed(network.prepare(["two parrots"]), "cpu", half=False)
    assert network.prepare(["two parrots"])["ids"].shape == (1, 4)
    np.testing.assert_allclose(vectors[0], alone[0], rtol=1e-4, atol=1e-5)


def test_a_sentence_encoder_has_unit_length_and_its_limit(tmp_path: Path) -> None:
    network = frozen("text", model=str(backbones.sentence_encoder(tmp_path / "sentences")))
    batch = network.prepare(["two parrots on the red tree on a violin"])
    assert batch["ids"].shape == (1, 6)
    assert np.linalg.norm(network.embed(batch, "cpu", half=False)) == pytest.approx(1.0, rel=1e-5)


def test_the_key_tells_networks_apart(tmp_path: Path) -> None:
    folder = str(backbones.clip(tmp_path / "clip"))
    other = str(backbones.clip(tmp_path / "other", seed=1))
    keys = [frozen(modality, model=path).key for modality in ("image", "text") for path in (folder, other)]
    vit = str(backbones.vit(tmp_path / "vit"))
    keys += [frozen("image", model=vit, pooling=pooling).key for pooling in ("cls", "mean")]
    assert len(set(keys)) == 6
    assert frozen("image", model=folder).key == keys[0]


def test_a_value_of_the_other_modality(tmp_path: Path) -> None:
    network = frozen("image", model=str(backbones.vit(tmp_path / "vit")))
    with pytest.raises(QueryUnsuitable, match="text"):
        network.prepare(["a parrot"])
    with pytest.raises(QueryUnsuitable, match="not a picture"):
        network.prepare([np.zeros(3)])


def pixels(folder: Path, **options: object):
    column = backbones.jpegs(folder / "pictures", 2)
    return featurizer("image", column, {"kind": "pixels", "size": backbones.SIDE, "channels": 3, **options})


def tokens(model: Path, length: int = 8):
    return featurizer("text", backbones.sentences(4), {"kind": "tokens", "model": str(model), "length": length})


def test_settings_of_pictures(tmp_path: Path) -> None:
    folder = backbones.vit(tmp_path / "vit")
    about = huggingface.settings("image", pixels(tmp_path), model=str(folder))
    assert json.loads(json.dumps(about)) == about
    assert (about["modality"], about["width"], about["pooling"]) == ("image", backbones.WIDTH, about["pooling"])
    assert (about["padding"], about["unit_length"]) == (0, False)
    # The tiny preprocessor has mean (0.5, 0.4, 0.3) and deviation (0.5, 0.25, 0.2) of pixels divided by 255.
    np.testing.assert_allclose(about["factor"], [1 / 255 / 0.5, 1 / 255 / 0.25, 1 / 255 / 0.2], rtol=1e-6)
    np.testing.assert_allclose(about["offset"], [-1.0, -1.6, -1.5], rtol=1e-6)


def test_settings_of_texts_follow_the_folder(tmp_path: Path) -> None:
    folder = backbones.sentence_encoder(tmp_path / "sentences")
    about = huggingface.settings("text", tokens(folder), model=str(folder))
    assert (about["pooling"], about["unit_length"], about["padding"]) == ("mean", True, 0)
    named = huggingface.settings("text", tokens(folder), model=str(folder), pooling="cls")
    assert (named["pooling"], named["unit_length"]) == ("cls", False)
    assert "factor" not in about


def test_the_network_is_built_from_its_settings_and_filled_with_its_weights(tmp_path: Path) -> None:
    folder = backbones.bert(tmp_path / "bert")
    about = huggingface.settings("text", tokens(folder), model=str(folder))
    network = huggingface.build(about)
    weights = huggingface.weights(about)
    assert set(weights) == set(network.state_dict())
    network.load_state_dict({name: torch.from_numpy(array) for name, array in weights.items()})
    network.eval()
    with torch.no_grad():
        vectors = network(torch.tensor([[2, 5, 3, -1]], dtype=torch.int32))
    assert vectors.shape == (1, about["width"])


@pytest.mark.parametrize("options", [{"channels": 1}, None])
def test_pictures_that_do_not_fit(tmp_path: Path, options: dict[str, object] | None) -> None:
    folder = backbones.vit(tmp_path / "vit")
    given = pixels(tmp_path, **options) if options else tokens(backbones.bert(tmp_path / "bert"))
    with pytest.raises(UnsuitableFeatures, match=r"\[model\.image\] a backbone needs color pictures"):
        huggingface.settings("image", given, model=str(folder))


def test_texts_that_do_not_fit(tmp_path: Path) -> None:
    bert, clip = backbones.bert(tmp_path / "bert"), backbones.clip(tmp_path / "clip")
    for given in (pixels(tmp_path), tokens(clip)):
        with pytest.raises(
            UnsuitableFeatures, match=r"\[model\.text\] a backbone needs the word pieces of its tokenizer"
        ):
            huggingface.settings("text", given, model=str(bert))


def test_tokens_are_for_frozen_features(tmp_path: Path) -> None:
    with pytest.raises(NoEffect, match=r"model\.image"):
        huggingface.settings("image", pixels(tmp_path), model=str(tmp_path / "clip"), pooling="tokens")


def test_weights_that_changed_are_refused(tmp_path: Path) -> None:
    folder = backbones.vit(tmp_path / "vit")
    about = huggingface.settings("image", pixels(tmp_path), model=str(folder))
    assert huggingface.weights(about)
    backbones.vit(folder, seed=1)
    with pytest.raises(NetworkChanged):
        huggingface.weights(about)
