"""Region arrays with captions: mapped, averaged where asked, once a picture or once a caption."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from silohash.base.errors import (
    BadLine,
    ConflictingOptions,
    DamagedFile,
    FilesDiffer,
    MissingContent,
    MissingFile,
    OutOfRange,
    UserError,
    WrongShape,
)
from silohash.data.benchmarks.layouts.region_arrays import REGION_ARRAYS
from silohash.data.regions import Joined, Regions
from tests.regions import write_split
from tests.unit.data.benchmarks.drawing import write


@pytest.mark.parametrize("repeated", [False, True])
def test_means_and_captions(tmp_path: Path, repeated: bool) -> None:
    train = write_split(tmp_path, "train", 3, repeated=repeated)
    write_split(tmp_path, "dev", 1, repeated=repeated)
    test = write_split(tmp_path, "test", 2, repeated=repeated)
    assert not REGION_ARRAYS.missing(tmp_path)
    raw = REGION_ARRAYS.read(tmp_path, regions="mean")
    assert raw.ids.tolist() == ["train-0", "train-1", "train-2", "dev-0", "test-0", "test-1"]
    assert isinstance(raw.image, np.ndarray)
    assert raw.image.dtype == np.float32
    np.testing.assert_allclose(raw.image[:3], train.mean(axis=1), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(raw.image[4:], test.mean(axis=1), rtol=1e-5, atol=1e-6)
    assert raw.text is not None
    assert raw.text[5] == "test 1 caption 0"
    stated = {name: rows.tolist() for name, rows in raw.stated.items()}
    assert stated == {"train": [0, 1, 2], "validation": [3], "query": [4, 5]}
    assert ("features repeated per caption" in raw.notes) == repeated


def test_regions_can_be_left_out(tmp_path: Path) -> None:
    write_split(tmp_path, "test", 2)
    raw = REGION_ARRAYS.read(tmp_path, parts="test", captions="each", regions="none")
    assert raw.image is None
    assert raw.notes["regions"].startswith("4 x 6 per picture, not read")
    assert len(raw) == 10
    assert raw.columns["picture"].tolist() == ["test-0"] * 5 + ["test-1"] * 5
    assert REGION_ARRAYS.read(tmp_path, parts="test", captions="all").text[0].count("caption") == 5  # type: ignore[index]
    with pytest.raises(MissingFile, match=r"train_ims\.npy.*test_ims\.npy"):
        REGION_ARRAYS.read(tmp_path)


def test_features_and_captions_of_other_lengths_are_refused(tmp_path: Path) -> None:
    write_split(tmp_path, "test", 2, captions=4)
    with pytest.raises(FilesDiffer, match=r"test_caps\.txt.*8.*test_ims\.npy.*2"):
        REGION_ARRAYS.read(tmp_path, parts="test")
    write_split(tmp_path, "test", 3)
    write(tmp_path, "test_caps.txt", *["a caption"] * 10)
    with pytest.raises(FilesDiffer, match="10"):
        REGION_ARRAYS.read(tmp_path, parts="test")


def test_rows_that_should_be_one_picture_must_be_equal(tmp_path: Path) -> None:
    features = write_split(tmp_path, "test", 10)
    write(tmp_path, "test_caps.txt", *["a caption"] * 10)
    assert len(features) == 10
    with pytest.raises(FilesDiffer):
        REGION_ARRAYS.read(tmp_path, parts="test")


def test_damaged_arrays_and_empty_captions_are_named(tmp_path: Path) -> None:
    write_split(tmp_path, "test", 1)
    write(tmp_path, "test_caps.txt", "one", "", "three", "four", "five")
    with pytest.raises(BadLine, match=r"test_caps\.txt.*2"):
        REGION_ARRAYS.read(tmp_path, parts="test")
    np.save(tmp_path / "test_ims.npy", np.zeros((5, 3), np.float32))
    with pytest.raises(WrongShape, match=r"float32.*5"):
        REGION_ARRAYS.read(tmp_path, parts="test")
    (tmp_path / "test_ims.npy").write_bytes(b"nothing")
    with pytest.raises(DamagedFile, match=r"test_ims\.npy"):
        REGION_ARRAYS.read(tmp_path, parts="test")


def regions_of(root: Path, **options: str) -> Regions:
    found = REGION_ARRAYS.read(root, captions="each", **options).image
    assert isinstance(found, Regions)
    return found


@pytest.mark.parametrize("repeated", [False, True])
def test_regions_are_mapped_once_per_picture(tmp_path: Path, repeated: bool) -> None:
    train = write_split(tmp_path, "train", 3, repeated=repeated)
    test = write_split(tmp_path, "testall", 2, repeated=repeated)
    corners = np.tile(np.array([10, 0, 20, 50], np.float32), (3, 4, 1))
    corners[1, 3] = 0
    per_row = 5 if repeated else 1
    np.save(tmp_path / "train_ims_bbx.npy", np.repeat(corners, per_row, axis=0))
    np.save(tmp_path / "train_ims_size.npy", np.tile([40, 100], (3, 1)))
    regions = regions_of(tmp_path, parts="train|testall")
    assert isinstance(regions.features, Joined)
    assert all(isinstance(part.base, np.memmap) for part in regions.features.parts)
    assert regions.features.shape == (5, 4, 6)
    assert regions.pictures.tolist() == np.repeat(np.arange(5), 5).tolist()
    held = regions.of(np.array([24, 0, 7]))
    np.testing.assert_array_equal(held[:2, :, :6], [test[1], train[0]])
    assert held[1, 0, 6:].tolist() == [0.25, 0, 0.5, 0.5]
    assert held[0, 0, 6:].tolist() == [0, 0, 1, 1]
    # A box of zeros is a region that the detector did not find.
    assert not held[2, 3].any()
    assert held[2, 2].any()
    assert (
        "testall"
        in REGION_ARRAYS.read(tmp_path, parts="train|testall").notes[
            "parts without boxes, whose regions are the whole picture"
        ]
    )


def test_digests_follow_the_content_of_the_files(tmp_path: Path) -> None:
    write_split(tmp_path, "test", 2)
    before = regions_of(tmp_path, parts="test").digest()
    assert regions_of(tmp_path, parts="test").digest() == before
    np.save(tmp_path / "test_boxes.npy", np.tile(np.array([0, 0, 0.5, 1]), (2, 4, 1)))
    boxed = regions_of(tmp_path, parts="test").digest()
    write_split(tmp_path, "test", 2)
    np.save(tmp_path / "test_ims.npy", np.ones((2, 4, 6), np.float32))
    assert len({before, boxed, regions_of(tmp_path, parts="test").digest()}) == 3


def test_boxes_and_sizes_in_one_file(tmp_path: Path) -> None:
    write_split(tmp_path, "test", 2)
    corners = np.tile(np.array([0, 5, 10, 30.0]), (2, 4, 1))
    np.savez(tmp_path / "test_boxes.npz", bbox=corners, image_w=np.array([20, 20]), image_h=np.array([[20], [40]]))
    boxes = regions_of(tmp_path, parts="test").boxes
    assert boxes[:, 0].tolist() == [[0, 0.25, 0.5, 1], [0, 0.125, 0.5, 0.75]]


@pytest.mark.parametrize(
    ("files", "kind", "message"),
    [
        ({"test_boxes.npy": np.zeros((2, 3, 4))}, WrongShape, r"test_boxes.*\(2, 3, 4\).*\(2, 4, 4\)"),
        ({"test_boxes.npy": np.zeros((3, 4, 4))}, WrongShape, r"test_boxes"),
        ({"test_boxes.npy": np.full((2, 4, 4), np.nan)}, WrongShape, r"test_boxes.*finite"),
        ({"test_boxes.npy": np.full((2, 4, 4), 7.0)}, OutOfRange, r"test_boxes.*7.*test_sizes"),
        ({"test_boxes.npy": np.ones((2, 4, 4)), "test_sizes.npy": np.ones((2, 3))}, WrongShape, r"test_sizes"),
        (
            {"test_ims_bbx.npy": np.ones((2, 4, 4)), "test_ims_size.npy": np.array([{"image_w": 1}, {}])},
            DamagedFile,
            r"test_ims_size.*objects.*width and height",
        ),
    ],
)
def test_boxes_that_do_not_fit_are_named(
    tmp_path: Path, files: dict[str, np.ndarray], kind: type[UserError], message: str
) -> None:
    write_split(tmp_path, "test", 2)
    for name, array in files.items():
        np.save(tmp_path / name, array, allow_pickle=True)
    with pytest.raises(kind, match=message):
        REGION_ARRAYS.read(tmp_path, parts="test")


def test_archives_of_arrays_need_boxes(tmp_path: Path) -> None:
    write_split(tmp_path, "test", 2)
    np.savez(tmp_path / "test_boxes.npz", x=np.ones(3))
    with pytest.raises(MissingContent, match=r"bbox.*x"):
        REGION_ARRAYS.read(tmp_path, parts="test")
    (tmp_path / "test_boxes.npz").write_bytes(b"PK\x03\x04 nothing")
    with pytest.raises(DamagedFile, match=r"test_boxes\.npz"):
        REGION_ARRAYS.read(tmp_path, parts="test")


def test_the_same_pictures_are_not_read_twice(tmp_path: Path) -> None:
    with pytest.raises(ConflictingOptions):
        REGION_ARRAYS.read(tmp_path, parts="test|testall")
