"""Twenty pictures and a table, from the folder to an answer, by the commands that a user types."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import PIL
import pytest
from PIL import Image, ImageDraw, ImageOps

from silohash.features import image as pixel_features
from silohash.features import network
from silohash.report.tables import read_results
from tests.pictures import COLORS, small_config
from tests.runs import silohash, write_metadata

pytestmark = pytest.mark.whole_run

SHAPES = ("circle", "square")


def draw(path: Path, color: str, shape: str, seed: int) -> None:
    """Draws a shape of a color somewhere on gray noise."""
    generator = np.random.default_rng(seed)
    picture = Image.fromarray(generator.integers(90, 130, (40, 40, 3), dtype=np.uint8))
    x, y = (int(value) for value in generator.integers(0, 12, 2))
    pen = ImageDraw.Draw(picture)
    (pen.ellipse if shape == "circle" else pen.rectangle)([x, y, x + 26, y + 26], fill=COLORS[color])
    picture.save(path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("own")
    (folder / "pictures" / "files").mkdir(parents=True)
    rows = []
    for number in range(20):
        color, shape = list(COLORS)[number % 4], SHAPES[(number // 4) % 2]
        name = f"files/{number}.png"
        draw(folder / "pictures" / name, color, shape, number)
        rows.append({"file_name": name, "text": f"one {color} {shape}", "labels": f"{color}|{shape}"})
    write_metadata(folder / "pictures", rows)
    config = small_config("pictures", rounds=15, local_epochs=6)
    (folder / "run.toml").write_text(config, encoding="utf-8")
    draw(folder / "asked.png", "red", "circle", 99)
    return folder


@pytest.fixture(scope="module")
def run(folder: Path) -> Path:
    """The trained and indexed run's folder."""
    checked = silohash("data", "check", folder / "pictures")
    assert "pictures: 20 items; query 2, database 18, train 18" in checked.out
    assert "pictures 20, texts 20, labels 6" in checked.out
    trained = silohash("train", folder / "run.toml", "--out", folder / "out")
    assert trained.code == 0, trained.err
    assert "mAP@all" in trained.out
    assert f"Report: {folder / 'out' / 'report.html'}" in trained.out
    return folder / "out"


def test_words_find_pictures(run: Path) -> None:
    found = silohash("search", run, "one blue square", "-k", 4, "--json")
    assert found.code == 0, found.err
    hits = found.document()["hits"]
    assert len(hits) == 4
    assert "blue" in hits[0]["labels"]
    assert hits[0]["caption"].startswith("one blue")
    assert found.document()["missing_silos"] == {}
    assert {hit["silo"] for hit in hits} <= {"silo-1", "silo-2"}


def test_a_picture_finds_words(run: Path, folder: Path) -> None:
    found = silohash("search", run, "--image", folder / "asked.png", "-k", 3, "--json")
    assert found.code == 0, found.err
    hits = found.document()["hits"]
    assert len(hits) == 3
    assert "red" in hits[0]["labels"]


def test_answers_for_people(run: Path) -> None:
    found = silohash("search", run, "one green circle", "-k", 2)
    assert found.code == 0
    lines = found.out.splitlines()
    assert len(lines) == 2
    distance, silo, name, caption, _, path, _, _ = lines[0].split("\t")
    assert int(distance) >= 0
    assert silo in {"silo-1", "silo-2"}
    assert "green" in caption
    assert path.endswith(f"/pictures/{name}")


def test_a_radius_limits_the_answer(run: Path) -> None:
    everything = silohash("search", run, "one blue square", "-k", 20, "--json").document()["hits"]
    limit = everything[3]["distance_bits"]
    near = silohash("search", run, "one blue square", "-k", 20, "--radius", limit, "--json").document()["hits"]
    assert len(everything) == 18
    assert [hit["id"] for hit in near] == [hit["id"] for hit in everything if hit["distance_bits"] <= limit]


def test_another_pillow_with_other_pixels_does_not_refuse_the_run(
    run: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert json.loads((run / "environment.json").read_text())["packages"]["pillow"] == PIL.__version__
    later = Path(shutil.copytree(run, tmp_path / "run"))
    monkeypatch.setenv("SILOHASH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(PIL, "__version__", "99.0.0")
    for module in (pixel_features, network):
        monkeypatch.setattr(module, "pillow_version", "99.0.0")
    decoded = Image.Image.convert
    monkeypatch.setattr(Image.Image, "convert", lambda *given: ImageOps.posterize(decoded(*given), 7))
    for command in (["evaluate", later], ["index", later], ["search", later, "--image", folder / "asked.png"]):
        done = silohash(*command)
        assert done.code == 0, done.err


def test_figures_and_report(run: Path) -> None:
    rows = read_results(run / "results.csv")
    assert {(row.evaluation, row.task) for row in rows} == {
        (kind, task) for kind in ("GG", "XS") for task in ("i2t", "t2i")
    }
    before = (run / "results.csv").read_bytes()
    again = silohash("evaluate", run)
    assert again.code == 0, again.err
    assert (run / "results.csv").read_bytes() == before
    report = silohash("report", run)
    assert report.code == 0, report.err
    assert report.out.strip() == str(run / "report.html")
    page = (run / "report.html").read_text(encoding="utf-8")
    assert "<script" not in page
    assert "dcmh" in page
    assert "fedavg" in page


def test_more_pictures_become_one_more_silo(run: Path, folder: Path) -> None:
    more = folder / "more"
    more.mkdir()
    for number in range(4):
        draw(more / f"{number}.png", "yellow", SHAPES[number % 2], 200 + number)
    write_metadata(more, [{"file_name": f"{n}.png", "text": f"extra {n}", "split": "database"} for n in range(4)])
    indexed = silohash("index", run, more, "--json")
    assert indexed.code == 0, indexed.err
    assert indexed.document()["items"] == {"more": 4}
    hits = silohash("search", run, "one yellow circle", "-k", 22, "--json").document()["hits"]
    assert {hit["silo"] for hit in hits} == {"silo-1", "silo-2", "more"}
    assert len(hits) == 22
