"""A folder in silohash's format gives the same archive again, and every change to it is noticed."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from silohash.base.errors import (
    DamagedFile,
    ForeignFiles,
    InvalidName,
    NotPermitted,
    OtherVersion,
    UserError,
    WrongKindOfFile,
)
from silohash.data.archive import Archive, ArchiveCard, Column, Pictures
from silohash.data.catalogue import named_or_folder, open_archive
from silohash.data.formats import native
from silohash.data.formats.native import is_native, read_native, write_native
from silohash.data.glyphs.archive import glyphs
from silohash.data.pairs import picture_numbers
from silohash.data.pictures.reading import PackedPictures, PictureFiles
from tests.unit.data.benchmarks.drawing import draw, write
from tests.unit.data.formats.user_folders import draw as draw_pictures


class Shades:
    """Pictures that are made when they are asked for, as those of an array in a file."""

    def __len__(self) -> int:
        return 5

    def picture(self, row: int) -> Image.Image:
        return Image.fromarray(np.random.default_rng(row).integers(0, 256, (5, 7, 3)).astype(np.uint8))

    def digest(self) -> str:
        return "shades"


def archive(image: Pictures | None = None) -> Archive:
    features = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    features[2] = np.nan
    return Archive(
        ids=np.array(["a", "b/2.jpg", " c ", "d e", "é\u2028"]),
        image=features if image is None else image,
        text=np.array(["one", "", "three\nlines\n", 'a "quoted" one', "日本"], dtype="<U40"),
        labels=np.eye(5, 4, dtype=np.uint8),
        label_names=("z", "a", "m", "b"),
        splits={
            "query": np.array([1]),
            "database": np.array([0, 3, 4]),
            "train": np.array([0]),
            "odd": np.array([], int),
        },
        card=ArchiveCard("small", "made", "free", "native/protocol", "", ("row 3: left out",), {"z": "1", "a": "2"}),
        columns={"zone": np.array(["n", "s", "n", "", "w|e"]), "kind": np.array(["1", "22", "333", "4", "5"])},
        has_image=np.array([True, True, False, True, True]),
        has_text=np.array([True, False, True, True, True]),
    ).with_digest()


def same(first: Column | None, second: Column | None) -> bool:
    if isinstance(first, np.ndarray) and isinstance(second, np.ndarray):
        return first.dtype == second.dtype and np.array_equal(first, second, equal_nan=first.dtype.kind == "f")
    return first is None and second is None


def assert_same(first: Archive, second: Archive) -> None:
    for name in ("ids", "text", "labels", "has_image", "has_text", "captions"):
        assert same(getattr(first, name), getattr(second, name)), name
    assert first.label_names == second.label_names
    assert first.card == second.card
    assert list(first.splits) == list(second.splits)
    assert all(np.array_equal(rows, second.splits[name]) for name, rows in first.splits.items())
    assert list(first.columns) == list(second.columns)
    assert all(same(column, second.columns[name]) for name, column in first.columns.items())
    assert second.with_digest().card.digest == first.card.digest


def test_an_archive_of_features_comes_back_equal(tmp_path: Path) -> None:
    written = archive()
    write_native(tmp_path / "native", written)
    read = read_native(tmp_path / "native", check=True)
    assert_same(written, read)
    assert same(written.image, np.asarray(read.image))
    manifest = json.loads((tmp_path / "native/manifest.json").read_text())
    assert manifest["items"] == 5
    assert manifest["image"] == {"kind": "features", "shape": [5, 3], "dtype": "<f4"}
    assert (tmp_path / "native/split.txt").read_text() == "database|train\nquery\n\ndatabase\ndatabase\n"
    assert sorted(manifest["files"]) == [
        "columns.jsonl",
        "ids.txt",
        "image.npy",
        "label.npy",
        "present.npy",
        "split.txt",
        "text.jsonl",
    ]


def test_pictures_without_a_file_lose_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "SHARD_BYTES", 200)
    written = archive(Shades())
    write_native(tmp_path / "native", written)
    read = read_native(tmp_path / "native")
    assert_same(written, read)
    assert isinstance(read.image, PackedPictures)
    assert len(list((tmp_path / "native/image").iterdir())) > 1
    for row in (0, 1, 3, 4):
        assert np.array_equal(np.asarray(Shades().picture(row)), np.asarray(read.image.picture(row)))


def test_picture_files_are_copied_as_they_are(tmp_path: Path) -> None:
    draw(tmp_path, "in/0.jpg", "in/1.png", "in/3.jpg", "in/4.jpg")
    files = PictureFiles(tmp_path / "in", ["0.jpg", "1.png", "", "3.jpg", "4.jpg"])
    write_native(tmp_path / "native", archive(files))
    read = read_native(tmp_path / "native")
    assert isinstance(read.image, PackedPictures)
    assert read.image.content(1) == (tmp_path / "in/1.png").read_bytes()
    assert read.image.content(2) == b""
    assert read.image.digest() == files.digest()
    write_native(tmp_path / "again", read)
    assert_same(read, read_native(tmp_path / "again"))
    assert read_native(tmp_path / "again").image.content(4) == (tmp_path / "in/4.jpg").read_bytes()  # type: ignore[union-attr]


def test_features_with_pictures_and_captions_to_look_at(tmp_path: Path) -> None:
    features = np.ones((5, 2), np.float32)
    written = replace(archive(), text=features, captions=archive().text, preview=Shades()).with_digest()
    write_native(tmp_path / "native", written)
    read = read_native(tmp_path / "native")
    assert_same(written, read.with_digest())
    assert read.caption(3) == 'a "quoted" one'
    assert np.array_equal(np.asarray(read.pictures().picture(2)), np.asarray(Shades().picture(2)))  # type: ignore[union-attr]


def test_the_embedded_archive_comes_back_equal(tmp_path: Path) -> None:
    written = glyphs(faces=1)
    write_native(tmp_path / "native", written)
    read = open_archive(None, tmp_path / "native", options={"check": True})
    assert_same(written, read)
    assert np.array_equal(np.asarray(written.pictures().picture(7)), np.asarray(read.pictures().picture(7)))  # type: ignore[union-attr]
    assert named_or_folder(str(tmp_path / "native")).card == written.card


def test_an_archive_without_labels_texts_or_columns(tmp_path: Path) -> None:
    plain = replace(
        archive(), labels=None, label_names=(), text=None, columns={}, has_text=np.zeros(5, bool)
    ).with_digest()
    write_native(tmp_path / "native", plain)
    assert_same(plain, read_native(tmp_path / "native"))


def shorten(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(bytes(content))


@pytest.mark.parametrize("name", ["ids.txt", "split.txt", "label.npy", "image.npy", "text.jsonl", "columns.jsonl"])
@pytest.mark.parametrize(
    ("change", "words"),
    [(Path.unlink, "is missing"), (shorten, "bytes and the manifest states"), (flip, "was changed")],
)
def test_a_changed_file_is_named(tmp_path: Path, name: str, change: Callable[[Path], None], words: str) -> None:
    write_native(tmp_path / "native", archive())
    change(tmp_path / "native" / name)
    with pytest.raises(UserError, match=rf"{name}.*{words}"):
        read_native(tmp_path / "native")


def test_large_files_are_read_again_if_their_time_has_changed_or_when_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "CHECKED_BYTES", 10)
    write_native(tmp_path / "native", archive())
    path = tmp_path / "native/image.npy"
    os.utime(path, (1_700_000_000, 1_700_000_000))
    assert len(read_native(tmp_path / "native")) == 5
    flip(path)
    os.utime(path, (1_700_000_000, 1_700_000_000))
    assert len(read_native(tmp_path / "native")) == 5
    with pytest.raises(DamagedFile, match=r"image\.npy"):
        read_native(tmp_path / "native", check=True)
    os.utime(path)
    with pytest.raises(DamagedFile, match=r"image\.npy"):
        read_native(tmp_path / "native")


def test_manifests_of_others_and_of_other_versions(tmp_path: Path) -> None:
    write_native(tmp_path / "native", archive())
    manifest = tmp_path / "native/manifest.json"
    about = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({**about, "version": 2}))
    with pytest.raises(OtherVersion, match="2"):
        open_archive(None, tmp_path / "native")
    manifest.write_text(json.dumps({name: value for name, value in about.items() if name != "card"}))
    with pytest.raises(DamagedFile, match="card"):
        read_native(tmp_path / "native")
    manifest.write_text("{")
    assert is_native(tmp_path / "native")
    with pytest.raises(DamagedFile, match=r"manifest\.json"):
        open_archive(None, tmp_path / "native")


def test_a_manifest_of_something_else_does_not_hide_metadata(tmp_path: Path) -> None:
    write(tmp_path, "manifest.json", '{"name": "an app"}')
    write(tmp_path, "metadata.csv", "text,labels", "a dog,dog", "a cat,cat")
    assert not is_native(tmp_path)
    assert len(open_archive(None, tmp_path)) == 2
    with pytest.raises(WrongKindOfFile):
        read_native(tmp_path)


def test_a_folder_of_others_is_not_replaced(tmp_path: Path) -> None:
    write(tmp_path / "mine", "notes.txt", "precious")
    with pytest.raises(ForeignFiles):
        write_native(tmp_path / "mine", archive())
    assert (tmp_path / "mine/notes.txt").read_text() == "precious\n"
    write_native(tmp_path / "native", archive())
    write_native(tmp_path / "native", archive(Shades()))
    assert isinstance(read_native(tmp_path / "native").image, PackedPictures)


def test_an_id_that_cannot_stand_in_a_line_is_named_and_nothing_is_left(tmp_path: Path) -> None:
    broken = replace(archive(), ids=np.array(["a", "b", "c\nd", "e", "f"]))
    with pytest.raises(InvalidName):
        write_native(tmp_path / "native", broken)
    assert list(tmp_path.iterdir()) == []


def test_queries_in_the_database_stay_there(tmp_path: Path) -> None:
    splits = {"query": np.array([1]), "database": np.array([0, 1, 3]), "train": np.array([0])}
    written = replace(archive(), splits=splits, query_in_database=True).with_digest()
    write_native(tmp_path / "native", written)
    assert_same(written, read_native(tmp_path / "native"))
    assert read_native(tmp_path / "native").query_in_database


def test_warnings_and_automatic_splits_come_back(tmp_path: Path) -> None:
    made = archive()
    warned = replace(made, card=replace(made.card, warnings=("The column x.",)), automatic_splits=True)
    write_native(tmp_path / "native", warned)
    read = read_native(tmp_path / "native")
    assert (read.card.warnings, read.automatic_splits, read.folder) == (("The column x.",), True, tmp_path / "native")


def read_manifest(folder: Path) -> dict:
    return json.loads((folder / "manifest.json").read_text(encoding="utf-8"))


def write_manifest(folder: Path, manifest: dict) -> None:
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")


@pytest.mark.parametrize("name", ["manifest.json", "ids.txt", "image.npy"])
def test_files_behind_links_out_of_the_folder_are_refused(tmp_path: Path, name: str) -> None:
    write_native(tmp_path / "native", archive())
    (tmp_path / "native" / name).rename(tmp_path / name)
    (tmp_path / "native" / name).symlink_to(tmp_path / name)
    with pytest.raises(NotPermitted, match=str(name)):
        read_native(tmp_path / "native")
    assert len(read_native(tmp_path / "native", follow_links=True)) == 5


@pytest.mark.parametrize("place", ["image", "preview"])
def test_items_that_share_a_picture_still_do(tmp_path, place):
    names = ["b.png", "a.png", "b.png", "a.png", "c.png"]
    draw_pictures(tmp_path / "pictures", *names)
    stored = replace(archive(), **{place: PictureFiles(tmp_path / "pictures", names)})
    for first, second in ((stored, tmp_path / "one"), (None, tmp_path / "two")):
        write_native(second, first or read_native(tmp_path / "one"))
        found = read_native(second)
        assert getattr(found, place).names == tuple(names)
        assert picture_numbers(found).tolist() == picture_numbers(stored).tolist() == [1, 0, 1, 0, 2]
        assert getattr(found, place).content(4) == (tmp_path / "pictures" / "c.png").read_bytes()


def test_names_of_pictures_are_written_only_if_items_share_one(tmp_path):
    names = ["b.png", "a.png", "", "", "c.png"]
    draw_pictures(tmp_path / "pictures", *filter(None, names))
    pictures = PictureFiles(tmp_path / "pictures", names)
    write_native(tmp_path / "one", replace(archive(pictures), has_image=np.array(names) != ""))
    assert not list((tmp_path / "one").rglob("names.jsonl"))
    found = read_native(tmp_path / "one")
    assert found.image.names is None
    assert len(set(picture_numbers(found).tolist())) == 5
