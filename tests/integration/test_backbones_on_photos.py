"""Real photos from their JPEG files through a frozen backbone in a folder: `silohash train`, and a second run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("transformers")

from silohash.data.catalogue import open_archive
from silohash.data.pictures.reading import PackedPictures
from silohash.report.tables import read_results
from silohash.run.folder import Run
from tests import backbones
from tests.runs import Said, silohash, write_config, write_metadata

COUNT = 96


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SILOHASH_CACHE", str(tmp_path / "cache"))


def some_photos(shared_data: Path, folder: Path) -> Path:
    """Writes the first photos of coco18 into a folder of one's own."""
    archive, packed = open_archive("coco18"), PackedPictures(shared_data / "coco18")
    folder.mkdir()
    rows = []
    for row in range(COUNT):
        (folder / f"{row}.jpg").write_bytes(packed.content(row))
        rows.append(
            {
                "file_name": f"{row}.jpg",
                "text": archive.caption(row),
                "labels": "|".join(archive.labels_of(row)),
                "split": "query" if row % 6 == 0 else "train",
            }
        )
    write_metadata(folder, rows)
    return folder


def trained(*arguments: object) -> Said:
    said = silohash("train", *arguments)
    assert said.code == 0, said.err
    return said


def figures(run: Path) -> list[float]:
    return [row.value for row in read_results(Run(run).results_path)]


def test_photos_through_a_backbone_are_encoded_once(shared_data, tmp_path):
    archive, folder = some_photos(shared_data, tmp_path / "photos"), backbones.clip(tmp_path / "clip")

    def config(**options: object) -> Path:
        """Writes a config whose pictures go through the folder's network."""
        return write_config(
            tmp_path / "run.toml", archive,
            features={"image": {"kind": "huggingface", "model": str(folder), **options}},
            federated={"rounds": 1, "local_epochs": 1}, partition={"silos": 1},
            evaluate={"evaluations": ["GG"], "measures": ["mAP@all"], "validation": 0.0},
        )  # fmt: skip

    first = trained(config(), "--out", tmp_path / "first")
    assert f"Encoding 80 pictures with {folder}; the result is kept" in first.err
    second = trained(config(), "--out", tmp_path / "second")
    assert "Encoding" not in second.err
    assert figures(tmp_path / "first") == figures(tmp_path / "second")


@pytest.mark.slow
def test_the_recipe_over_all_of_coco18(shared_data, repository, tmp_path):
    folder = backbones.vit(tmp_path / "vit")
    recipe, model = repository / "recipes" / "coco18-backbone.toml", f"features.image.model={folder}"
    options = ("--smoke", "--set", model, "--set", "federated.fraction=0.4")
    first = trained(recipe, *options, "--out", tmp_path / "first")
    assert first.err.count("Encoding") >= 5
    blocks = list((tmp_path / "cache" / "vectors").glob("*/*.safetensors"))
    before = {block: block.stat().st_mtime_ns for block in blocks}
    second = trained(recipe, *options, "--out", tmp_path / "second")
    assert "Encoding" not in second.err
    assert {block: block.stat().st_mtime_ns for block in before} == before
    assert np.isfinite(figures(tmp_path / "first")).any()
    assert figures(tmp_path / "first") == figures(tmp_path / "second")
