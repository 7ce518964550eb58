"""Region arrays with captions: mapped, averaged where asked, once a picture or once a caption."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from silohash.base.errors import BadLine, DamagedFile, FilesDiffer, MissingFile, WrongShape
from silohash.data.benchmarks.layouts.region_arrays import REGION_ARRAYS
from tests.unit.data.benchmarks.drawing import write


def write_split(root: Path, name: str, pictures: int, *, repeated: bool = False, captions: int = 5) -> np.ndarray:
    features = np.random.default_rng(pictures).normal(size=(pictures, 4, 6)).astype(np.float32)
    np.save(root / f"{name}_ims.npy", np.repeat(features, 5, axis=0) if repeated else features)
    write(root, f"{name}_caps.txt", *(f"{name} {row} caption {k}" for row in range(pictures) for k in range(captions)))
    return features


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


def test_regions_stay_on_the_disk_unless_asked(tmp_path: Path) -> None:
    write_split(tmp_path, "test", 2)
    raw = REGION_ARRAYS.read(tmp_path, parts="test", captions="each")
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
