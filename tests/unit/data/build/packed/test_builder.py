"""The builders of packed data sets, on official files in small, and on those that the real sets give."""

from __future__ import annotations

import json
import lzma
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from silohash.base.errors import (
    DamagedFile,
    ForeignFiles,
    MissingContent,
    MissingFile,
    NoEffect,
    SettingNeeded,
    UnreadablePicture,
)
from silohash.data.archive import Archive
from silohash.data.build import BUILDERS
from silohash.data.build.packed import builder
from silohash.data.build.packed.builder import BUILT, digest_of, facts
from silohash.data.catalogue import open_archive
from tests.packed_facts import PACKED, read_rows, store_facts
from tests.packed_sets import drawn, write_published
from tests.packed_sources import write_official

SHIPPED = builder.FACTS

OPTIONS: dict[str, dict[str, str]] = {
    "coco18": {"image": "jpeg", "text": "bow"},
    "fashion": {"image": "jpeg", "text": "words"},
    "flickr8k-1k": {"image": "jpeg", "text": "bow"},
    "clothing10": {"image": "jpeg"},
    "wiki-sift-lda": {},
    "coco-mini": {"image": "jpeg", "text": "bow"},
    "nlvr-graphs": {"image": "scene", "text": "bow", "labels": "objects"},
}
"""Options with which a built set opens: without features of networks."""

TEXTS = ("caption", "title", "sentence")
"""Columns of facts that must hold digests only."""

KEYS = {
    *("row", "source_id", "split", "file", "id", "group", "caption_no", "text_id", "image_id", "photo", "source_split"),
    *("width", "height", "original_width", "original_height", "licence", "flickr_url", "has_regions"),
    *("label", "labels", "class", "column", "coco_category_id", "name", "count", "category_id", "supercategory"),
    *("train", "test"),
}
"""Columns of facts that say which items a set has, where they are and whose they are, and names of classes."""

Build = Callable[..., tuple[dict[str, Any], list[str]]]


@pytest.fixture
def published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Small published sets, of which the builders have the facts."""
    write_published(tmp_path / "published")
    monkeypatch.setattr(builder, "FACTS", tmp_path / "facts")
    store_facts(tmp_path / "published", tmp_path / "facts")
    return tmp_path / "published"


@pytest.fixture
def build(published: Path, tmp_path: Path) -> Build:
    """Builds a set from the official files in ``official``, which are written before the first time."""

    def built(name: str, **options: Any) -> tuple[dict[str, Any], list[str]]:
        if not (tmp_path / "official").is_dir():
            write_official(name, published, tmp_path / "official")
        lines: list[str] = []
        given = {"source": tmp_path / "official", "registry": "", "cap": 0, **options}
        return BUILDERS.resolve(name)(tmp_path / "built" / name, said=lines.append, **given), lines

    return built


def opened(name: str, root: Path, monkeypatch: pytest.MonkeyPatch) -> Archive:
    monkeypatch.setenv("SILOHASH_DATA", str(root))
    return open_archive(name, options=OPTIONS[name])


@pytest.mark.parametrize("name", PACKED)
def test_a_built_set_opens_like_the_published_one(
    name: str, build: Build, published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    about, lines = build(name)
    found, expected = opened(name, tmp_path / "built", monkeypatch), opened(name, published, monkeypatch)
    assert not [line for line in lines if line.startswith("warning")]
    assert found.ids.tolist() == expected.ids.tolist()
    assert about["items"] == len(found)
    assert {part: rows.tolist() for part, rows in found.splits.items()} == {
        part: rows.tolist() for part, rows in expected.splits.items()
    }
    assert (found.card.protocol, found.label_names) == (expected.card.protocol, expected.label_names)
    if expected.labels is not None:
        np.testing.assert_array_equal(found.labels, expected.labels)
    if expected.text is not None:
        np.testing.assert_array_equal(found.text, expected.text)
    if (pictures := expected.pictures()) is not None:
        for row in range(len(expected)):
            held, wanted = found.pictures().picture(row), pictures.picture(row)
            assert held.size == wanted.size
            assert np.abs(np.asarray(held, np.int16) - np.asarray(wanted, np.int16)).mean() < 9


@pytest.mark.parametrize("name", PACKED)
def test_tables_are_equal_and_digests_are_noted(name: str, build: Build, published: Path, tmp_path: Path) -> None:
    about, _ = build(name)
    folder = tmp_path / "built" / name
    for table in (published / name).glob("*.[cj]s*"):
        assert (folder / table.name).read_bytes() == table.read_bytes()
    noted = json.loads((folder / BUILT).read_text())
    assert noted == json.loads((tmp_path / "facts" / name / "facts.json").read_text())["sha256"]
    assert noted == {key.removeprefix("SHA-256 of "): value for key, value in about.items() if "SHA" in key}


def test_what_is_not_built_is_named_with_its_network_and_digest(build: Build) -> None:
    about, _ = build("coco18")
    said = about["not built: features/image_mobilenetv2.npy"]
    assert "MobileNetV2" in said
    assert re.search("SHA-256 [0-9a-f]{64}$", said)


def test_every_array_that_no_builder_makes_is_explained() -> None:
    for path in SHIPPED.glob("*/facts.json"):
        assert json.loads(path.read_text())["absent"].keys() <= builder.PLANS["absent"].keys()


def test_a_built_set_is_replaced_and_other_files_are_not(build: Build, tmp_path: Path) -> None:
    build("clothing10")
    assert build("clothing10")[0]["items"] == 4
    (tmp_path / "built/clothing10" / BUILT).unlink()
    with pytest.raises(ForeignFiles):
        build("clothing10")


def test_options_of_other_builders_are_refused(build: Build) -> None:
    with pytest.raises(SettingNeeded):
        build("fashion", source=None)
    with pytest.raises(NoEffect):
        build("fashion", cap=9)
    with pytest.raises(NoEffect):
        build("fashion", registry="https://registry.example")


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("coco18", "annotations/captions_val2017.json"),
        ("coco-mini", "annotations/instances_train2017.json"),
        ("fashion", "styles.csv"),
        ("flickr8k-1k", "captions.txt"),
        ("nlvr-graphs", "dev/dev.json"),
        ("wiki-sift-lda", "raw_features.mat"),
        ("wiki-sift-lda", "lists/testset_txt_img_cat.list"),
    ],
)
def test_a_missing_file_is_named(name: str, file: str, build: Build, published: Path, tmp_path: Path) -> None:
    (write_official(name, published, tmp_path / "official") / file).unlink()
    with pytest.raises(MissingFile, match=Path(file).name):
        build(name)
    assert not list((tmp_path / "built").glob("*"))


@pytest.mark.parametrize("name", [name for name in PACKED if name != "wiki-sift-lda"])
def test_a_missing_picture_is_named_and_a_damaged_one_too(
    name: str, build: Build, published: Path, tmp_path: Path
) -> None:
    official = write_official(name, published, tmp_path / "official")
    gone = max(official.glob({"coco18": "val2017/*.jpg", "coco-mini": "train2017/*.jpg"}.get(name, "**/*.[jp][pn]g")))
    gone.write_bytes(b"no picture")
    with pytest.raises(UnreadablePicture, match=gone.name):
        build(name)
    gone.unlink()
    with pytest.raises(MissingContent, match=r"lacks [12] parts"):
        build(name)
    assert not list((tmp_path / "built").glob("*"))


@pytest.mark.parametrize(
    ("name", "file", "text", "other", "error"),
    [
        ("coco18", "annotations/captions_val2017.json", "One train", "Two trains", MissingContent),
        ("coco18", "annotations/captions_val2017.json", '"caption"', '"text"', DamagedFile),
        ("coco-mini", "annotations/captions_train2017.json", "helmet", "hat", MissingContent),
        ("coco-mini", "annotations/instances_train2017.json", '"category_id": 1,', '"category_id": 3,', DamagedFile),
        ("fashion", "styles.csv", "Guess, Watch", "Guess Clock", MissingContent),
        ("flickr8k-1k", "captions.txt", "2 balls", "3 balls", MissingContent),
        ("nlvr-graphs", "dev/dev.json", "touches", "near", MissingContent),
        ("nlvr-graphs", "dev/dev.json", "structured_rep", "scene", DamagedFile),
        ("nlvr-graphs", "dev/dev.json", "{", "", DamagedFile),
    ],
)
def test_another_text_and_another_form_are_refused(
    name: str, file: str, text: str, other: str, error: type[Exception], build: Build, published: Path, tmp_path: Path
) -> None:
    path = write_official(name, published, tmp_path / "official") / file
    assert text in path.read_text()
    path.write_text(path.read_text().replace(text, other))
    with pytest.raises(error):
        build(name)


def test_other_features_and_other_labels_are_built_with_a_warning(
    build: Build, published: Path, tmp_path: Path
) -> None:
    path = write_official("fashion", published, tmp_path / "official") / "styles.csv"
    path.write_text(path.read_text().replace("Casual", "Sports"))
    assert any(line.startswith("warning") and "pairs.csv" in line for line in build("fashion")[1])
    assert (tmp_path / "built/fashion/pairs.csv").read_text().count("Sports") == 4


def test_photos_of_equal_captions_are_told_by_their_look(build: Build, published: Path, tmp_path: Path) -> None:
    official = write_official("coco18", published, tmp_path / "official")
    third, fourth = sorted(official.glob("val2017/*.jpg"))[-4:-2]
    content = third.read_bytes()
    third.write_bytes(fourth.read_bytes())
    fourth.write_bytes(content)
    build("coco18")
    with (
        np.load(tmp_path / "built/coco18/images-000.npz") as held,
        np.load(published / "coco18/images-000.npz") as given,
    ):
        assert abs(np.diff(held["offsets"]) - np.diff(given["offsets"])).max() < 900
    third.write_bytes(drawn(77, (44, 48)))
    with pytest.raises(MissingContent, match="lacks 2 parts: photo of"):
        build("coco18")


def test_case_and_punctuation_of_texts_may_differ(build: Build, published: Path, tmp_path: Path) -> None:
    path = write_official("flickr8k-1k", published, tmp_path / "official") / "captions.txt"
    path.write_text(path.read_text().replace("Two , three", "TWO, three."))
    assert any("captions.csv" in line for line in build("flickr8k-1k")[1])
    assert "TWO, three." in (tmp_path / "built/flickr8k-1k/captions.csv").read_text()


def test_the_collectors_files_of_flickr8k_are_read(build: Build, published: Path, tmp_path: Path) -> None:
    official = write_official("flickr8k-1k", published, tmp_path / "official")
    (official / "captions.txt").unlink()
    (official / "Images").rename(official / "Flicker8k_Dataset")
    rows = read_rows(published / "flickr8k-1k/captions.csv")
    lines = [f"{row['file']}#{row['caption_no']}\t{row['caption']}\n" for row in rows]
    (official / "Flickr8k.token.txt").write_text("".join(lines))
    _, said = build("flickr8k-1k")
    assert not [line for line in said if line.startswith("warning")]


def test_titles_with_commas_need_no_quotation_marks(build: Build, published: Path, tmp_path: Path) -> None:
    path = write_official("fashion", published, tmp_path / "official") / "styles.csv"
    path.write_text(path.read_text().replace('"Guess, Watch for Women"', "Guess, Watch for Women"))
    assert not [line for line in build("fashion")[1] if line.startswith("warning")]


def test_facts_hold_neither_texts_nor_pictures() -> None:
    tables = sorted(SHIPPED.glob("*/*.xz"))
    assert {path.parent.name for path in tables} == {*PACKED} - {"wiki-sift-lda"}
    emptied = set()
    for path in tables:
        rows = facts(f"{path.parent.name}/{path.stem}")
        for column in rows[0]:
            values = {row[column] for row in rows}
            if column in TEXTS:
                assert all(re.fullmatch("[0-9a-f]{10}", value) for value in values)
            elif column not in KEYS:
                assert values == {""}
                emptied.add(column)
    assert "article_type" in emptied
    files = [path for path in SHIPPED.rglob("*") if path.is_file()]
    assert {path.suffix for path in files} == {".xz", ".json", ".md"}
    assert sum(path.stat().st_size for path in files) < 700_000


def test_digests_do_not_depend_on_case_or_marks() -> None:
    assert digest_of("A dog's bowl .") == digest_of("a dog’s bowl")
    assert digest_of("a.jpg", "one") != digest_of("b.jpg", "one")


def test_shipped_facts_are_those_of_the_real_sets(shared_data: Path, tmp_path: Path) -> None:
    store_facts(shared_data, tmp_path)
    for path in tmp_path.rglob("facts.json"):
        assert json.loads(path.read_text()) == json.loads((SHIPPED / path.relative_to(tmp_path)).read_text())
    for path in tmp_path.rglob("*.xz"):
        shipped = SHIPPED / path.relative_to(tmp_path)
        assert lzma.decompress(path.read_bytes()) == lzma.decompress(shipped.read_bytes())


@pytest.mark.parametrize(
    "name", ["wiki-sift-lda", "flickr8k-1k", *(pytest.param(n, marks=pytest.mark.slow) for n in PACKED)]
)
def test_official_files_of_the_real_sets_give_them(name: str, shared_data: Path, tmp_path: Path) -> None:
    source, lines = write_official(name, shared_data, tmp_path / "official"), []
    BUILDERS.resolve(name)(tmp_path / "built", source=source, registry="", cap=0, said=lines.append)
    assert not [line for line in lines if line.startswith("warning")]
