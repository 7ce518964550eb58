"""Regions of pictures: rows, padding, boxes and digests."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from silohash.base.errors import LengthsDiffer, OutOfRange, UserError, WrongShape
from silohash.data.archive import Pictures
from silohash.data.formats.folder import read_folder
from silohash.data.pairs import picture_numbers
from silohash.data.regions import Regions, relative_boxes


def regions(picture: list[int]) -> Regions:
    """Return two pictures with up to three regions of width 2. The second picture has one region."""
    features = np.arange(12, dtype=np.float16).reshape(2, 3, 2) + 1
    boxes = np.tile(np.array([0.1, 0.2, 0.5, 0.6], np.float32), (2, 3, 1))
    boxes[1, 1:] = 0.0
    return Regions(features, boxes, np.array(picture))


def test_items_of_one_picture_share_its_regions() -> None:
    held = regions([0, 1, 0])
    assert (len(held), held.shape) == (3, (3, 2))
    found = held.of(np.array([2, 0]))
    assert (found.shape, found.dtype) == ((2, 3, 6), np.float32)
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_allclose(found[0, 1], [3, 4, 0.1, 0.2, 0.5, 0.6], rtol=1e-6)


def test_regions_are_not_pictures() -> None:
    assert not isinstance(regions([0, 1, 0]), Pictures)


def test_padding_and_items_without_a_picture_are_zero() -> None:
    found = regions([1, -1]).of(np.arange(2))
    assert found[0, 0, 0] == 7
    assert not found[0, 1:].any()
    assert not found[1].any()


def test_digest_depends_on_regions_and_items() -> None:
    assert regions([0, 1]).digest() == regions([0, 1]).digest() != regions([1, 0]).digest()


def test_boxes_are_shares_of_the_picture() -> None:
    found = relative_boxes(np.array([[[10.0, 5.0, 30.0, 80.0]]]), np.array([[20, 40]]))
    np.testing.assert_allclose(found, [[[0.5, 0.125, 1.0, 1.0]]])
    assert found.dtype == np.float32


@pytest.mark.parametrize(
    ("features", "boxes"),
    [
        (np.zeros((2, 3), np.float32), np.zeros((2, 3, 4), np.float32)),
        (np.zeros((2, 3, 5), np.int64), np.zeros((2, 3, 4), np.float32)),
        (np.zeros((2, 3, 5), np.float32), np.zeros((2, 2, 4), np.float32)),
    ],
)
def test_other_shapes_are_refused(features: np.ndarray, boxes: np.ndarray) -> None:
    with pytest.raises(WrongShape):
        Regions(features, boxes, np.zeros(1, np.int64))


FEATURES = np.random.default_rng(0).normal(size=(3, 4, 5)).astype(np.float32)


def written(folder: Path, rows: list[str], features: np.ndarray = FEATURES, **files: np.ndarray) -> Path:
    """Write a folder whose rows name pictures, with one text each; an empty name is left out."""
    named = any(rows)
    texts = [f"{name},text {number}" if named else f"text {number}" for number, name in enumerate(rows)]
    lines = ["file_name,text" if named else "text", *texts]
    (folder / "metadata.csv").write_text("\n".join(lines) + "\n")
    for name, values in {"image": features, **files}.items():
        np.save(folder / f"{name}.npy", values)
    return folder


def entries(folder: Path) -> list[int]:
    """Return the entry whose features each row has."""
    archive = read_folder(folder)
    assert isinstance(archive.image, Regions)
    assert isinstance(archive.image.features, np.memmap)
    held = archive.image.of(np.arange(len(archive)))[:, 0, 0]
    return [int(np.argmin(abs(FEATURES[:, 0, 0] - value))) for value in held]


def test_rows_that_name_a_picture_have_its_regions(tmp_path: Path) -> None:
    folder = written(tmp_path, ["b.jpg", "a.jpg", "b.jpg", "c.jpg", "a.jpg"])
    assert entries(folder) == [0, 1, 0, 2, 1]
    assert picture_numbers(read_folder(folder)).tolist() == [0, 1, 0, 2, 1]


def test_there_can_be_one_entry_per_row_or_per_group_of_rows(tmp_path: Path) -> None:
    for name in ("rows", "groups"):
        (tmp_path / name).mkdir()
    assert entries(written(tmp_path / "rows", ["", "", ""])) == [0, 1, 2]
    grouped = written(tmp_path / "groups", [""] * 6)
    assert entries(grouped) == [0, 0, 1, 1, 2, 2]
    assert picture_numbers(read_folder(grouped)).tolist() == [0, 0, 1, 1, 2, 2]


def test_texts_of_one_picture_are_in_the_same_split(tmp_path: Path) -> None:
    features = np.repeat(FEATURES, 20, axis=0)
    archive = read_folder(written(tmp_path, [""] * 180, features))
    pictures = picture_numbers(archive)
    queries = set(pictures[archive.split("query")].tolist())
    assert queries
    assert queries.isdisjoint(pictures[archive.split("train")].tolist())


def test_rows_that_are_left_out_take_their_regions_along(tmp_path: Path) -> None:
    folder = written(tmp_path, ["", "", ""])
    (folder / "metadata.csv").write_text("id,text\nx,one\nx,two\ny,three\n")
    assert entries(folder) == [0, 2]


def test_boxes_are_shares_or_pixels_with_sizes(tmp_path: Path) -> None:
    shares = np.tile(np.array([0.1, 0.2, 0.5, 0.8], np.float32), (3, 4, 1))
    sizes = np.array([[200, 100]] * 3)
    folder = written(tmp_path, ["", "", ""], boxes=shares)
    np.testing.assert_allclose(read_folder(folder).image.boxes, shares)
    written(tmp_path, ["", "", ""], boxes=shares * np.array([200, 100, 200, 100]), sizes=sizes)
    np.testing.assert_allclose(read_folder(folder).image.boxes, shares, rtol=1e-6)
    (folder / "sizes.npy").unlink()
    with pytest.raises(OutOfRange, match="100"):
        read_folder(folder)
    (folder / "boxes.npy").unlink()
    assert (read_folder(folder).image.boxes == [0, 0, 1, 1]).all()


@pytest.mark.parametrize(
    ("rows", "files", "kind", "message"),
    [
        (["a.jpg", "b.jpg"], {}, LengthsDiffer, r"3.*2.*2"),
        ([""] * 4, {}, LengthsDiffer, r"3.*4.*1"),
        ([""] * 3, {"boxes": np.zeros((3, 4, 2))}, WrongShape, r"3.*4.*4"),
        ([""] * 3, {"boxes": np.full((3, 4, 4), np.nan)}, WrongShape, None),
    ],
)
def test_what_does_not_fit_is_refused(
    tmp_path: Path, rows: list[str], files: dict[str, np.ndarray], kind: type[UserError], message: str | None
) -> None:
    with pytest.raises(kind, match=message):
        read_folder(written(tmp_path, rows, **files))
