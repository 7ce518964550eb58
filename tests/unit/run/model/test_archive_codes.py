"""Codes of an archive in a file: those of the encoder, for items that have the modality, by the model that was named."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from silohash.base.errors import ModalityNeeded
from silohash.data.formats.folder import read_folder
from silohash.index.codes import Codes, from_bytes
from silohash.run.folder import Run
from silohash.run.model import archive_codes
from tests import runs

pytestmark = pytest.mark.whole_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("encode")
    archive = runs.write_archive(folder / "archive", text="words")
    return runs.train(archive, folder / "run", federated={"rounds": 1})


def other_archive(folder: Path, *, features: bool = True) -> Path:
    """Writes items without labels; with features for the pictures, every fourth has no text."""
    folder.mkdir()
    texts = ["" if features and n % 4 == 0 else f"parrot {n}" for n in range(10)]
    runs.write_metadata(folder, [{"id": f"new-{n}", "text": text} for n, text in enumerate(texts)])
    if features:
        np.save(folder / "image.npy", runs.views_of(runs.labels_of(10), seed=3))
    return folder


def test_blocks_give_the_codes_of_the_whole(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_codes, "BLOCK_ROWS", 7)
    encoder = run.model.encoder()
    codes = archive_codes.encode_archive(encoder, run.archive, "image")
    whole = encoder.codes(run.archive, np.arange(len(run.archive)), "image")
    np.testing.assert_array_equal(codes.words, whole.words)
    assert codes.ids.tolist() == run.archive.ids.tolist()
    assert codes.model_digest == encoder.digest


def test_the_file_holds_ids_and_codes_of_an_archive_without_labels(run: Run, tmp_path: Path) -> None:
    archive = other_archive(tmp_path / "new")
    said = runs.silohash("encode", run.folder, archive, "--modality", "text", "--out", tmp_path / "codes.npz", "--json")
    assert said.code == 0, said.err
    about = said.document()
    assert (about["modality"], about["items_without"], about["bits"]) == ("text", 3, runs.BITS)
    with np.load(tmp_path / "codes.npz", allow_pickle=False) as stored:
        found = Codes(stored["words"], int(stored["bits"]), stored["ids"], "text", str(stored["model_digest"]))
    assert found.ids.tolist() == [f"new-{n}" for n in range(10) if n % 4]
    expected = run.model.encoder().codes(read_folder(archive), np.array([1]), "text")
    np.testing.assert_array_equal(found.words[:1], expected.words)
    assert found.model_digest == expected.model_digest
    unpacked = np.unpackbits(found.words.view(np.uint8), axis=1, bitorder="little", count=found.bits)
    np.testing.assert_array_equal(unpacked, found.signs() > 0)


def test_a_table_holds_the_same_codes_as_hexadecimal_digits(run: Run, tmp_path: Path) -> None:
    said = runs.silohash("encode", run.folder, "--modality", "image", "--out", tmp_path / "codes.csv")
    assert said.code == 0, said.err
    assert f"{len(run.archive)} codes of {runs.BITS} bits" in said.out
    with (tmp_path / "codes.csv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    packed = np.array([list(bytes.fromhex(row["code"])) for row in rows], np.uint8)
    expected = archive_codes.encode_archive(run.model.encoder(), run.archive, "image")
    np.testing.assert_array_equal(from_bytes(packed, runs.BITS), expected.words)
    assert [row["id"] for row in rows] == expected.ids.tolist()


def test_a_silos_own_model_must_be_named(tmp_path: Path) -> None:
    archive = runs.write_archive(tmp_path / "archive")
    run = runs.train(archive, tmp_path / "run", federated={"name": "local", "rounds": 1})
    ask = ("encode", run.folder, archive, "--modality", "text", "--out")
    refused = runs.silohash(*ask, tmp_path / "codes.npz")
    assert refused.code == 2
    assert "Name one with --model: " in refused.err
    assert not (tmp_path / "codes.npz").exists()
    silos = [silo.name for silo in run.partition.silos]
    for silo in silos[:2]:
        assert runs.silohash(*ask, tmp_path / f"{silo}.npz", "--model", silo).code == 0
    first, second = (np.load(tmp_path / f"{silo}.npz", allow_pickle=False) for silo in silos[:2])
    assert str(first["model_digest"]) != str(second["model_digest"])
    assert (first["words"] != second["words"]).any()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--out", "codes.txt"), ".npz, .csv"),
        (("--out", "codes.npz"), "Set --modality"),
        (("--out", "codes.npz", "--modality", "sound"), "is not a modality"),
        (("--out", "codes.npz", "--model", "nobody"), 'no model "nobody"'),
    ],
)
def test_a_question_that_cannot_be_answered_says_so(
    run: Run, arguments: tuple[str, ...], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said = runs.silohash("encode", run.folder, *arguments)
    assert said.code == 2
    assert says in said.err
    assert list(tmp_path.iterdir()) == []


def test_an_archive_without_the_modality_is_refused(run: Run, tmp_path: Path) -> None:
    archive = read_folder(other_archive(tmp_path / "new", features=False))
    encoder = run.model.encoder()
    assert archive_codes.only_modality(archive, encoder) == "text"
    with pytest.raises(ModalityNeeded):
        archive_codes.encode_archive(encoder, archive, "image")
