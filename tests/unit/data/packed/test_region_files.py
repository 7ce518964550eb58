"""Files with regions of pictures: cells of a grid, and boxes that people drew."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from silohash.data.catalogue import open_archive
from silohash.data.packed.region_files import read_regions


@pytest.fixture
def file(tmp_path: Path) -> Callable[[str], Path]:
    (tmp_path / "features").mkdir()
    arrays = {
        "image_sizes": np.array([[10, 20], [40, 20]], np.int32),
        "regions_grid36": np.arange(8, dtype=np.float16).reshape(2, 2, 2),
        "regions_grid36_boxes": np.array(
            [[[0, 0, 5, 20], [5, 0, 10, 20]], [[0, 0, 20, 20], [20, 0, 40, 20]]], np.float32
        ),
        "regions_human": np.array([[9, 8], [7, 6], [5, 4]], np.float16),
        "regions_human_boxes": np.array([[0, 0, 4, 2], [4, 2, 40, 20], [8, 0, 16, 10]], np.float32),
        "regions_human_index": np.array([[1, 0, 3, 0], [1, 1, 3, 0], [1, 2, 5, 0]], np.int32),
    }
    for name, array in arrays.items():
        np.save(tmp_path / "features" / f"{name}.npy", array)
    return lambda name: tmp_path / name


def test_a_grid_is_mapped_with_its_boxes(file: Callable[[str], Path]) -> None:
    found = read_regions(file, "regions", np.array([1, 1, 0]))
    assert isinstance(found.features, np.memmap)
    np.testing.assert_allclose(found.of(np.array([2]))[0], [[0, 1, 0, 0, 0.5, 1], [2, 3, 0.5, 0, 1, 1]])


def test_drawn_boxes_replace_the_grid_where_there_are_any(file: Callable[[str], Path]) -> None:
    found = read_regions(file, "boxes", np.array([0, 1]))
    assert found.shape == (3, 2)
    without, drawn = found.of(np.arange(2))
    np.testing.assert_allclose(without, [[0, 1, 0, 0, 0.5, 1], [2, 3, 0.5, 0, 1, 1], [0, 0, 0, 0, 0, 0]])
    np.testing.assert_allclose(
        drawn, [[9, 8, 0, 0, 0.1, 0.1], [7, 6, 0.1, 0.1, 1, 1], [5, 4, 0.2, 0, 0.4, 0.5]], rtol=1e-6
    )


def test_real_regions_belong_to_the_pictures_of_the_captions(shared_data: Path) -> None:
    archive = open_archive("flickr8k-1k", options={"image": "regions"})
    assert archive.has_image.all()
    assert archive.image.shape == (36, 256)
    stored = np.load(shared_data / "flickr8k-1k/features/regions_grid36.npy", mmap_mode="r")
    np.testing.assert_array_equal(archive.image.of(np.array([12]))[0, :, :256], stored[2])


def test_real_boxes_are_padded(shared_data: Path) -> None:
    archive = open_archive("coco-mini", options={"image": "boxes"})
    regions = archive.image.of(np.arange(len(archive)))
    count = (regions[:, :, -2] > regions[:, :, -4]).sum(1)
    assert (count.min(), count.max()) == (1, 36)
    assert count[::5].sum() == 1363 + 80 * 36
