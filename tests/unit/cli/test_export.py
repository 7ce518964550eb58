"""``export`` and ``encode``: what they write, print and refuse."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from silohash.cli import export as commands
from silohash.run.folder import Run
from silohash.run.model.export import ExportedTower
from silohash.run.model.onnx_graph import Parity
from tests import runs


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("commands")
    archive = runs.write_archive(folder / "archive", text="words")
    return runs.train(archive, folder / "run", federated={"rounds": 1})


def new_items(folder: Path, texts: Sequence[str]) -> Path:
    """Write items without labels. Those with an empty text have only an image vector."""
    folder.mkdir()
    runs.write_metadata(folder, [{"id": f"new-{number}", "text": text} for number, text in enumerate(texts)])
    np.save(folder / "image.npy", runs.views_of(runs.labels_of(len(texts)), seed=3))
    return folder


@pytest.fixture
def towers(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Path, str, str | None]]:
    """Replace the export by one that writes nothing, and return the list of its calls."""
    calls: list[tuple[Path, str, str | None]] = []

    def export_onnx(model: object, archive: object, folder: Path, *, run: str, name: str | None) -> list[ExportedTower]:
        calls.append((folder, run, name))
        return [
            ExportedTower("image", folder / "image.onnx", Parity(1500, 2.5e-7, 3.0, equal_codes=1500, ties=0)),
            ExportedTower("text", folder / "text.onnx", Parity(1500, 1e-6, 3.0, equal_codes=1498, ties=2)),
        ]

    monkeypatch.setattr("silohash.run.model.export.export_onnx", export_onnx)
    return calls


@pytest.mark.whole_run
def test_export_prints_one_line_per_tower(run: Run, towers: list[tuple[Path, str, str | None]]) -> None:
    done = runs.silohash("export", run.folder, "--onnx")
    assert done.code == 0, done.err
    folder = run.folder / "onnx"
    assert done.out.splitlines() == [
        f"{folder / 'image.onnx'}: 1,500 of 1,500 codes equal those of torch; outputs differ by at most 2.5e-07",
        f"{folder / 'text.onnx'}: 1,498 of 1,498 codes equal those of torch, not counting 2 with an output close to 0; "
        "outputs differ by at most 1.0e-06",
    ]
    assert towers == [(folder, run.name, None)]


@pytest.mark.whole_run
def test_export_as_json(run: Run, towers: list[tuple[Path, str, str | None]], tmp_path: Path) -> None:
    done = runs.silohash("export", run.folder, "--onnx", "--out", tmp_path / "here", "--model", "silo-1", "--json")
    assert done.code == 0, done.err
    assert [(tower["modality"], tower["parity"]["ties"]) for tower in done.document()["towers"]] == [
        ("image", 0),
        ("text", 2),
    ]
    assert done.document()["towers"][1]["path"] == str(tmp_path / "here" / "text.onnx")
    assert towers == [(tmp_path / "here", run.name, "silo-1")]


@pytest.mark.whole_run
def test_export_without_a_format(run: Run, towers: list[tuple[Path, str, str | None]]) -> None:
    refused = runs.silohash("export", run.folder)
    assert (refused.code, refused.out, towers) == (2, "", [])
    assert "No export format is selected. Add --onnx." in refused.err


@pytest.mark.parametrize("command", [("export", "--onnx"), ("encode", "--out", "codes.npz")])
def test_folders_without_a_run(command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    refused = runs.silohash(command[0], tmp_path, *command[1:])
    assert (refused.code, refused.out) == (2, "")
    assert str(tmp_path) in refused.err
    assert list(tmp_path.iterdir()) == []


def test_sentence_of_a_tower_with_different_codes() -> None:
    tower = ExportedTower("text", Path("text.onnx"), Parity(10, 0.5, 3.0, equal_codes=6, ties=3))
    assert commands._sentence(tower) == (
        "text.onnx: 6 of 7 codes equal those of torch, not counting 3 with an output close to 0; "
        "outputs differ by at most 5.0e-01"
    )


@pytest.mark.whole_run
def test_encode_counts_the_items_without_the_modality(run: Run, tmp_path: Path) -> None:
    archive = new_items(tmp_path / "new", ["parrot", "", "tram", "", "violin"])
    done = runs.silohash("encode", run.folder, archive, "--modality", "text", "--out", tmp_path / "codes.npz")
    assert done.code == 0, done.err
    sentence = f"{tmp_path / 'codes.npz'}: 3 codes of {runs.BITS} bits; 2 items without text left out"
    assert " ".join(done.out.split()) == sentence
    with np.load(tmp_path / "codes.npz", allow_pickle=False) as stored:
        assert stored["ids"].tolist() == ["new-0", "new-2", "new-4"]
    every = runs.silohash("encode", run.folder, archive, "--modality", "image", "--out", tmp_path / "images.npz")
    assert " ".join(every.out.split()) == f"{tmp_path / 'images.npz'}: 5 codes of {runs.BITS} bits"


@pytest.mark.whole_run
def test_encode_as_json(run: Run, tmp_path: Path) -> None:
    archive = new_items(tmp_path / "new", ["parrot", "", "tram"])
    out = tmp_path / "codes.csv"
    done = runs.silohash("encode", run.folder, archive, "--modality", "text", "--out", out, "--json")
    assert done.code == 0, done.err
    assert done.document() == {
        "schema": 1,
        "file": str(out),
        "items": 2,
        "items_without": 1,
        "bits": runs.BITS,
        "modality": "text",
        "model_digest": run.model.encoder().digest,
    }
    assert out.read_text(encoding="utf-8").splitlines()[0] == "id,code"


@pytest.mark.whole_run
def test_encode_reports_the_items_that_it_skips(run: Run, tmp_path: Path) -> None:
    archive = new_items(tmp_path / "new", ["parrot", "tram"])
    vectors = np.load(archive / "image.npy")
    vectors[1, 0] = np.nan
    np.save(archive / "image.npy", vectors)
    done = runs.silohash("encode", run.folder, archive, "--modality", "text", "--out", tmp_path / "codes.npz")
    assert done.code == 0, done.err
    assert "skipped: metadata.csv, row 3: image.npy holds NaN" in " ".join(done.err.split())


def test_encode_refuses_a_suffix_before_it_reads_anything(tmp_path: Path) -> None:
    refused = runs.silohash("encode", tmp_path / "nowhere", "--out", tmp_path / "codes.txt")
    assert refused.code == 2
    assert "codes.txt" in refused.err
    assert "nowhere" not in refused.err
