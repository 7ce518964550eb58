"""What changed in an archive is noticed and named, and what is equal is equal wherever it lies."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import PIL
import pytest
from PIL import Image

from silohash.base.errors import DamagedFile, OtherVersion
from silohash.base.files import read_arrays, write_arrays
from silohash.data.archive import Archive
from silohash.data.formats.folder import read_folder
from silohash.data.formats.native import read_native, write_native
from silohash.data.pictures.reading import GrayPictures, PictureFiles
from silohash.features import image as pixel_features
from silohash.features import network
from silohash.run.fingerprint import changes, digests_of, read_fingerprint, write_fingerprint
from tests.runs import write_archive, write_metadata

ROWS = [
    {"id": f"p{number}", "file_name": f"{number}.png", "text": f"picture {number}", "labels": "red|round"}
    for number in range(6)
]


def photographs(folder: Path, rows: list[dict[str, str]] = ROWS) -> Path:
    """Writes a folder with a picture per row."""
    folder.mkdir(parents=True)
    for number, row in enumerate(rows):
        Image.new("RGB", (8, 8), (40 * number, 0, 0)).save(folder / row["file_name"])
    write_metadata(folder, rows)
    return folder


def changed(path: Path, archive: Archive) -> list[str]:
    return changes(read_fingerprint(path), archive)


@pytest.fixture
def before(tmp_path: Path) -> Path:
    """The fingerprint of the photographs."""
    write_fingerprint(tmp_path / "before", read_folder(photographs(tmp_path / "birds")))
    return tmp_path / "before"


def edited(tmp_path: Path, **values: str) -> list[dict[str, str]]:
    """Returns the rows with values of the third one replaced."""
    return [row if number != 2 else {**row, **values} for number, row in enumerate(ROWS)]


def test_a_fingerprint_comes_back(tmp_path: Path, before: Path) -> None:
    archive = read_folder(tmp_path / "birds")
    found = read_fingerprint(before)
    assert found.name == "birds"
    assert list(found.ids) == archive.ids.tolist()
    assert found.digests == digests_of(archive)
    assert set(found.items) == {"image", "text", "labels"}
    assert len(set(found.items["image"].tolist())) == 6
    assert len(set(found.items["labels"].tolist())) == 1


def test_an_equal_archive_has_not_changed(tmp_path: Path, before: Path) -> None:
    assert changed(before, read_folder(tmp_path / "birds")) == []
    shutil.copytree(tmp_path / "birds", tmp_path / "copies" / "birds", copy_function=shutil.copyfile)
    assert changed(before, read_folder(tmp_path / "copies" / "birds")) == []


def test_a_changed_text_is_named(tmp_path: Path, before: Path) -> None:
    write_metadata(tmp_path / "birds", edited(tmp_path, text="picture two"))
    assert changed(before, read_folder(tmp_path / "birds")) == ["1 item with another text (p2)"]


def test_changed_labels_are_named(tmp_path: Path, before: Path) -> None:
    write_metadata(tmp_path / "birds", edited(tmp_path, labels="red"))
    assert changed(before, read_folder(tmp_path / "birds")) == ["1 item with other labels (p2)"]
    write_metadata(tmp_path / "birds", edited(tmp_path, labels="red|round|blue"))
    expected = ["the names of the labels", "1 item with other labels (p2)"]
    assert changed(before, read_folder(tmp_path / "birds")) == expected


def test_a_changed_picture_is_named_with_its_file(tmp_path: Path, before: Path) -> None:
    Image.new("RGB", (8, 8), (1, 2, 3)).save(tmp_path / "birds" / "4.png")
    expected = [f"1 item with another picture (p4: {tmp_path / 'birds' / '4.png'})"]
    assert changed(before, read_folder(tmp_path / "birds")) == expected


def test_new_and_missing_items_are_counted_and_the_first_are_named(tmp_path: Path, before: Path) -> None:
    rows = [*ROWS[4:], *({**ROWS[0], "id": f"new\x1b{number}"} for number in range(3))]
    write_metadata(tmp_path / "birds", rows)
    assert changed(before, read_folder(tmp_path / "birds")) == [
        "3 items new (new⟨U+001B⟩0, new⟨U+001B⟩1, new⟨U+001B⟩2)",
        "4 items missing (p0, p1, p2, …)",
    ]


def test_another_order_is_named_alone(tmp_path: Path, before: Path) -> None:
    write_metadata(tmp_path / "birds", ROWS[::-1])
    found = changed(before, read_folder(tmp_path / "birds"))
    assert "the order of the items" in found
    assert not [phrase for phrase in found if "item with" in phrase or "items with" in phrase]


def test_other_splits_are_named(tmp_path: Path) -> None:
    folder = write_archive(tmp_path / "birds", count=30, text="words")
    archive = read_folder(folder)
    write_fingerprint(tmp_path / "before", archive)
    splits = {**archive.splits, "query": archive.splits["query"][1:]}
    assert changed(tmp_path / "before", replace(archive, splits=splits)) == ["the splits"]


@pytest.mark.parametrize("row", [0, 17, 29])
def test_given_features_and_captions_are_compared_item_by_item(tmp_path: Path, row: int) -> None:
    archive = read_folder(write_archive(tmp_path / "birds", count=30))
    write_fingerprint(tmp_path / "before", archive)
    assert isinstance(archive.image, np.ndarray)
    assert archive.captions is not None
    image, captions = archive.image.copy(), archive.captions.copy()
    image[row, -1] += 1
    captions[row] = "other"
    found = changed(tmp_path / "before", replace(archive, image=image, captions=captions))
    name = f"item-{row:03d}"
    assert found == [f"1 item with another picture ({name})", f"1 item with another caption ({name})"]


def test_another_pillow_does_not_change_an_archive(
    tmp_path: Path, before: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SILOHASH_CACHE", str(tmp_path / "cache"))  # as on another machine
    monkeypatch.setattr(PIL, "__version__", "99.0.0")
    for module in (pixel_features, network):
        monkeypatch.setattr(module, "pillow_version", "99.0.0")
    monkeypatch.setattr(Image.Image, "convert", lambda picture, mode: Image.new(mode, picture.size, 7))
    archive = read_folder(tmp_path / "birds")
    assert isinstance(archive.image, PictureFiles)
    assert archive.image.picture(3).getpixel((0, 0)) == (7, 0, 0), "it decodes to other pixels"
    assert changed(before, archive) == []


def test_pictures_in_memory_and_in_packed_files(tmp_path: Path) -> None:
    pixels = np.arange(6 * 16, dtype=np.uint8).reshape(6, 4, 4)
    archive = replace(read_folder(photographs(tmp_path / "birds")), image=GrayPictures(pixels))
    write_fingerprint(tmp_path / "gray", archive)
    other = pixels.copy()
    other[3, 3, 3] = 0
    assert changed(tmp_path / "gray", archive) == []
    assert changed(tmp_path / "gray", replace(archive, image=GrayPictures(other))) == [
        "1 item with another picture (p3)"
    ]
    write_native(tmp_path / "native", read_folder(tmp_path / "birds"))
    write_fingerprint(tmp_path / "packed", read_native(tmp_path / "native"))
    Image.new("RGB", (8, 8), (1, 2, 3)).save(tmp_path / "birds" / "4.png")
    write_native(tmp_path / "native", read_folder(tmp_path / "birds"))
    assert changed(tmp_path / "packed", read_native(tmp_path / "native")) == ["1 item with another picture (p4)"]


def test_a_column_that_is_gone_is_named(tmp_path: Path) -> None:
    archive = read_folder(write_archive(tmp_path / "birds", count=30))
    write_fingerprint(tmp_path / "before", archive)
    gone = replace(archive, labels=None, label_names=(), image=None, has_image=np.zeros(30, bool))
    assert changed(tmp_path / "before", gone) == [
        "which items have pictures and texts", "the names of the labels", "the pictures", "the labels",
    ]  # fmt: skip


def test_a_damaged_file_is_refused(tmp_path: Path, before: Path) -> None:
    arrays, about = read_arrays(before)
    damages = [
        ({**arrays, "items/text": arrays["items/text"][1:]}, about),
        ({**arrays, "ids": arrays["ids"][:5]}, about),
        ({name: array for name, array in arrays.items() if name != "ids"}, about),
        (arrays, {**about, "digests": 7}),
        (arrays, {}),
    ]
    for held, stated in damages:
        write_arrays(tmp_path / "damaged", held, stated)
        with pytest.raises(DamagedFile, match="training"):
            read_fingerprint(tmp_path / "damaged")
    for version in (0, 2):
        write_arrays(tmp_path / "other", arrays, {**about, "version": version})
        with pytest.raises(OtherVersion, match=f"{version}.*1"):
            read_fingerprint(tmp_path / "other")
