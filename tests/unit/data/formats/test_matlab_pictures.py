"""Arrays of pictures in every order of axes, read in part."""

from __future__ import annotations

import pickle

import h5py
import numpy as np
import pytest

from silohash.base.errors import AmbiguousForm, WrongChoice, WrongShape
from silohash.data.archive import Pictures
from silohash.data.formats.matlab import open_mat
from silohash.data.formats.matlab_pictures import MatPictures, PictureAxes, find_picture_axes
from tests.unit.data.formats.matlab_files import photographs, write_mat

pytestmark = pytest.mark.usefixtures("private_cache")


PICTURES = photographs(5, height=8, width=6)


@pytest.mark.parametrize(
    ("kind", "order", "written"),
    [
        ("v7.3", "N3WH", PICTURES.transpose(1, 2, 3, 0)),  # Matlab's 224 x 224 x 3 x N, as IAll
        ("v7.3", "3WHN", PICTURES),  # Matlab's N x 224 x 224 x 3, as Image
        ("hdf5", "N3HW", PICTURES.transpose(0, 3, 1, 2)),
        ("hdf5", "NHW3", PICTURES),
        ("v5", "NHW3", PICTURES),
        ("v5", "HW3N", PICTURES.transpose(1, 2, 3, 0)),
    ],
)
@pytest.mark.parametrize("rows", [5, None])
def test_pictures_in_every_order_of_axes(tmp_path, kind, order, written, rows):
    pictures = write_mat(kind, tmp_path / "a.mat", {"IAll": written}).variable("IAll").pictures(rows)
    assert isinstance(pictures, Pictures)
    assert (len(pictures), pictures.size, pictures.axes.order) == (5, (8, 6), order)
    for row in (4, 0, 2):
        assert np.array_equal(np.asarray(pictures.picture(row)), PICTURES[row])
    assert pictures.picture(1).mode == "RGB"


def test_height_and_width_can_be_exchanged(tmp_path):
    natural = write_mat("hdf5", tmp_path / "a.h5", {"images": PICTURES.transpose(0, 3, 2, 1)})
    assert np.array_equal(natural.variable("images").pictures(swap="yes").pixels(3), PICTURES[3])
    matlab = write_mat("v7.3", tmp_path / "a.mat", {"images": PICTURES})
    assert np.array_equal(matlab.variable("images").pictures(swap="no").pixels(3), PICTURES[3].transpose(1, 0, 2))
    with pytest.raises(WrongChoice, match="maybe"):
        matlab.variable("images").pictures(swap="maybe")


def test_axes_of_pictures_are_never_guessed():
    with pytest.raises(AmbiguousForm, match=r"N3HW.*NHW3"):
        find_picture_axes((10, 3, 8, 3), 10, swapped=False, where="IAll")
    with pytest.raises(WrongShape, match=r"10.*items"):
        find_picture_axes((9, 3, 8, 8), 10, swapped=False, where="IAll")
    with pytest.raises(WrongShape):
        find_picture_axes((10, 8, 8), 10, swapped=False, where="IAll")


def test_numbers_of_other_types_become_bytes():
    axes = PictureAxes("NHW3", 0, (1, 2, 3))
    for values in (PICTURES.astype(np.float64), PICTURES.astype(np.int16), PICTURES / 255):
        assert np.array_equal(MatPictures(values, axes).pixels(2), PICTURES[2])
    assert MatPictures(np.full((1, 2, 2, 3), 300.7), axes).pixels(0).max() == 255
    for bits in (12, 16):
        deep = PICTURES.astype(np.uint16) << bits - 8
        assert np.abs(MatPictures(deep, axes).pixels(2) - PICTURES[2].astype(int)).max() <= 1


class Counting:
    """An array that counts the values that are read of it."""

    def __init__(self, values: np.ndarray, chunks: tuple[int, ...] | None) -> None:
        self.values, self.chunks, self.count = values, chunks, 0
        self.shape, self.dtype = values.shape, values.dtype

    def __getitem__(self, key):
        part = self.values[key]
        self.count += part.size
        return part


@pytest.mark.parametrize(("chunks", "rows_read"), [(None, 1), ((4, 8, 6, 3), 4), ((1, 8, 6, 3), 1)])
def test_no_more_is_read_than_the_piece_in_which_a_picture_is_stored(chunks, rows_read):
    stored = Counting(photographs(40, 8, 6), chunks)
    pictures = MatPictures(stored, PictureAxes("NHW3", 0, (1, 2, 3)))
    assert stored.count == 0
    pictures.picture(13)
    assert stored.count == rows_read * 8 * 6 * 3
    pictures.picture(13)
    assert stored.count == rows_read * 8 * 6 * 3
    with pytest.raises(IndexError):
        pictures.picture(40)


def test_the_last_block_may_be_shorter():
    pixels = photographs(10, 8, 6)
    pictures = MatPictures(Counting(pixels, (4, 8, 6, 3)), PictureAxes("NHW3", 0, (1, 2, 3)))
    assert np.array_equal(np.stack([pictures.pixels(row) for row in range(10)]), pixels)
    assert np.array_equal(np.concatenate(list(pictures.blocks())), pixels)


def test_a_file_larger_than_memory_is_opened_and_read_in_part(tmp_path):
    path = tmp_path / "nus-wide-tc21-iall.mat"
    with h5py.File(path, "w") as file:
        stored = file.create_dataset("IAll", (195834, 3, 224, 224), np.uint8, chunks=(1, 3, 224, 224))
        stored[195833] = 7
    assert path.stat().st_size < 1 << 20
    pictures = open_mat(path).variable("IAll").pictures(195834)
    assert len(pictures) == 195834
    assert pictures.pixels(195833).min() == 7
    assert not pictures.pixels(0).any()
    assert sum(len(rows) for rows, _ in pictures.sample(64)) == 64


def test_a_sample_comes_from_all_over_and_repeats_nothing():
    pixels = photographs(100, 4, 4)
    pictures = MatPictures(pixels, PictureAxes("NHW3", 0, (1, 2, 3)))
    for most in (1, 40, 96, 500):
        parts = list(pictures.sample(most))
        rows = np.concatenate([some for some, _ in parts])
        assert len(set(rows.tolist())) == len(rows) <= max(most, 1)
        assert np.array_equal(np.concatenate([found for _, found in parts]), pixels[rows])
    assert rows[-1] == 99


def test_the_digest_is_that_of_the_pixels_and_is_kept_until_the_file_changes(tmp_path, monkeypatch):
    matlab = write_mat("v7.3", tmp_path / "a.mat", {"IAll": PICTURES.transpose(1, 2, 3, 0)}).variable("IAll").pictures()
    python = write_mat("hdf5", tmp_path / "a.h5", {"IAll": PICTURES}).variable("IAll").pictures()
    other = write_mat("hdf5", tmp_path / "b.h5", {"IAll": PICTURES[::-1]}).variable("IAll").pictures()
    assert matlab.digest() == python.digest() != other.digest()
    known = python.digest()
    with monkeypatch.context() as patch:
        patch.setattr(MatPictures, "blocks", lambda self: pytest.fail("read again"))
        assert open_mat(tmp_path / "a.h5").variable("IAll").pictures().digest() == known
    assert open_mat(tmp_path / "a.h5").variable("IAll").pictures(swap="yes").digest() != known
    (tmp_path / "a.h5").unlink()
    assert write_mat("hdf5", tmp_path / "a.h5", {"IAll": PICTURES[1:]}).variable("IAll").pictures().digest() != known


@pytest.mark.parametrize("kind", ["v5", "hdf5"])
def test_pictures_travel_to_other_processes(tmp_path, kind):
    pictures = write_mat(kind, tmp_path / "a.mat", {"IAll": PICTURES}).variable("IAll").pictures()
    pictures.pixels(0)
    assert np.array_equal(pickle.loads(pickle.dumps(pictures)).pixels(3), PICTURES[3])  # noqa: S301  our own bytes
