"""MATLAB and HDF5 files: the kind follows from the content, and what was written is read back equal."""

from __future__ import annotations

import struct
from pathlib import Path

import h5py
import numpy as np
import pytest
import scipy.sparse

from silohash.base.errors import (
    AmbiguousForm,
    ChoiceNeeded,
    DamagedFile,
    FilesDiffer,
    MissingContent,
    MissingFile,
    WrongKindOfFile,
    WrongType,
)
from silohash.data.formats.matlab import find_kind, joined, open_mat
from tests.unit.data.formats.matlab_files import cell, write_mat

pytestmark = pytest.mark.usefixtures("private_cache")
TAGS = np.arange(15.0).reshape(5, 3)
NAMES = ["im1.jpg", "im22.jpg", "im3.jpg", "im4.jpg", "im5.jpg"]


@pytest.mark.parametrize("kind", ["v5", "v7.3", "hdf5"])
@pytest.mark.parametrize("name", ["a.mat", "a.h5py", "a"])
def test_content_and_not_the_name_tells_the_kind(tmp_path, kind, name):
    file = write_mat(kind, tmp_path / name, {"YAll": TAGS})
    assert (file.kind, tuple(file.variables)) == (kind, ("YAll",))
    assert np.array_equal(file.variable("YAll").array(5), TAGS)
    assert np.array_equal(file.variable("YAll").array(), TAGS)


def test_matlab_wrote_it_though_its_header_is_gone(tmp_path):
    path = tmp_path / "a.mat"
    with h5py.File(path, "w") as file:
        file["YAll"] = TAGS.T
        file["YAll"].attrs["MATLAB_class"] = np.bytes_("double")
    assert find_kind(path) == "v7.3"
    assert np.array_equal(open_mat(path).variable("YAll").array(), TAGS)


@pytest.mark.parametrize("kind", ["v5", "v7.3", "hdf5"])
def test_items_on_the_second_axis_come_first(tmp_path, kind):
    file = write_mat(kind, tmp_path / "a.mat", {"YAll": TAGS.T.copy()})
    assert file.variable("YAll").row_axis(5) == 1
    assert np.array_equal(file.variable("YAll").array(5), TAGS)


@pytest.mark.parametrize("kind", ["v5", "v7.3", "hdf5"])
def test_the_axis_of_items_is_never_guessed(tmp_path, kind):
    file = write_mat(kind, tmp_path / "a.mat", {"LAll": np.zeros((4, 4)), "YAll": TAGS})
    with pytest.raises(AmbiguousForm, match=r"2.*LAll.*4.*4.*4"):
        file.variable("LAll").array(4)
    with pytest.raises(FilesDiffer, match=r"YAll.*5.*3.*7"):
        file.variable("YAll").array(7)


@pytest.mark.parametrize("kind", ["v5", "v7.3"])
def test_fields_of_structs_are_found_by_their_name(tmp_path, kind):
    file = write_mat(
        kind, tmp_path / "a.mat", {"tags": {"YAll": TAGS}, "names": {"FAll": cell(NAMES)}, "labels": TAGS[:, :2]}
    )
    assert set(file.variables) == {"tags/YAll", "names/FAll", "labels"}
    assert (
        file.variable("tags").name == file.variable("YAll").name == file.variable("nothing", "yall").name == "tags/YAll"
    )
    assert np.array_equal(file.variable("YAll").array(5), TAGS)
    assert file.variable("FAll").strings(5).tolist() == NAMES


def test_what_is_missing_or_of_another_kind_is_named(tmp_path):
    file = write_mat("v5", tmp_path / "a.mat", {"YAll": TAGS, "param": {"x": TAGS, "y": TAGS}, "FAll": cell(NAMES)})
    with pytest.raises(MissingContent, match=r"variable.*IAll.*YAll.*3"):
        file.variable("IAll", "images")
    with pytest.raises(ChoiceNeeded, match=r"param.*param/x.*param/y"):
        file.variable("param")
    with pytest.raises(WrongType, match=r"FAll.*strings.*numbers"):
        file.variable("FAll").array()
    with pytest.raises(WrongType, match=r"YAll.*numbers.*strings"):
        file.variable("YAll").strings()
    assert file.has("IAll", "YAll")
    assert not file.has("IAll")


def test_files_that_cannot_be_read_become_sentences(tmp_path):
    path = tmp_path / "a.mat"
    with pytest.raises(MissingFile):
        open_mat(path)
    path.write_bytes(b"<!DOCTYPE html><title>Log in</title>")
    with pytest.raises(WrongKindOfFile, match="is a web page"):
        open_mat(path)
    path.write_bytes(b"version https://git-lfs")
    with pytest.raises(WrongKindOfFile, match="neither a MATLAB file"):
        open_mat(path)
    for kind, keep in (("v7.3", 700), ("hdf5", 100), ("v5", 150)):
        write_mat(kind, path, {"YAll": np.random.default_rng(0).random((50, 40))})
        path.write_bytes(path.read_bytes()[:keep])
        with pytest.raises(DamagedFile):
            open_mat(path).variable("YAll").array()


@pytest.mark.parametrize("kind", ["v5", "v7.3"])
def test_sparse_matrices_are_filled_up(tmp_path, kind):
    dense = np.zeros((6, 4))
    dense[[0, 2, 5], [3, 0, 3]] = 1, 2, 3
    empty = scipy.sparse.csc_matrix((6, 4))
    file = write_mat(kind, tmp_path / "a.mat", {"YAll": scipy.sparse.csc_matrix(dense), "LAll": empty})
    assert file.variable("YAll").shape == (6, 4)
    assert np.array_equal(file.variable("YAll").array(6), dense)
    assert np.array_equal(file.variable("LAll").array(6), np.zeros((6, 4)))


@pytest.mark.parametrize("kind", ["v5", "v7.3"])
@pytest.mark.parametrize("turned", [False, True])
def test_cells_of_strings(tmp_path, kind, turned):
    cells = cell([*NAMES[:2], "x", " padded.jpg ", ""])
    file = write_mat(kind, tmp_path / "a.mat", {"FAll": cells.T if turned else cells})
    assert file.variable("FAll").strings(5).tolist() == [*NAMES[:2], "x", "padded.jpg", ""]
    assert file.variable("FAll").strings().shape == (5,)


@pytest.mark.parametrize("kind", ["v5", "v7.3"])
def test_cells_with_several_strings_an_item(tmp_path, kind):
    file = write_mat(
        kind, tmp_path / "a.mat", {"imgs": cell([("actor", "1.jpg"), ("adult", "2.jpg"), ("sea", "3.jpg")])}
    )
    assert file.variable("imgs").strings(3).tolist() == [["actor", "1.jpg"], ["adult", "2.jpg"], ["sea", "3.jpg"]]


def test_nested_cells_matrices_of_characters_and_names_that_python_wrote(tmp_path):
    nested = np.empty((2, 1), dtype=object)
    nested[0, 0], nested[1, 0] = cell(["im1.jpg"]), cell(["im2.jpg"])
    old = write_mat("v5", tmp_path / "old.mat", {"FAll": nested, "imgs": np.array(["a/1.jpg", "b/22.jpg"])})
    assert old.variable("FAll").strings(2).tolist() == ["im1.jpg", "im2.jpg"]
    assert old.variable("imgs").strings(2).tolist() == ["a/1.jpg", "b/22.jpg"]
    new = write_mat("hdf5", tmp_path / "new.h5", {"FAll": np.array([b"im1.jpg", b"im2.jpg"]), "imgs": NAMES})
    assert new.variable("FAll").strings(2).tolist() == ["im1.jpg", "im2.jpg"]
    assert new.variable("imgs").strings(5).tolist() == NAMES


def test_a_matrix_of_characters_of_matlab(tmp_path):
    path = tmp_path / "a.mat"
    lines = np.array([[ord(letter) for letter in text.ljust(8)] for text in NAMES], dtype=np.uint16)
    with h5py.File(path, "w") as file:
        file["imgs"] = lines.T
        file["imgs"].attrs["MATLAB_class"] = np.bytes_("char")
    assert open_mat(path).variable("imgs").strings(5).tolist() == NAMES


def test_characters_of_two_units_in_hdf5(tmp_path):
    path = tmp_path / "a.mat"
    units = [np.frombuffer(text.encode("utf-16-le", "surrogatepass"), "<u2") for text in ("a \U0001f600", "\ud83d b ")]
    with h5py.File(path, "w") as file:
        cells = file.create_dataset("cells", (1, 2), h5py.ref_dtype)
        for place, unit in enumerate(units):
            dataset = file.create_dataset(f"#refs#/{place}", data=unit[:, None])
            dataset.attrs["MATLAB_class"] = np.bytes_("char")
            cells[0, place] = dataset.ref
        cells.attrs["MATLAB_class"] = np.bytes_("cell")
        file.create_dataset("matrix", data=np.stack(units).T).attrs["MATLAB_class"] = np.bytes_("char")
    for name in ("cells", "matrix"):
        assert open_mat(path).variable(name).strings(2).tolist() == ["a \U0001f600", "\ufffd b"]


TEXTS = ("a \U0001f600 dog", "na\u00efve \u674e", "\ud83d lone", "plain")
READ = ["a \U0001f600 dog", "na\u00efve \u674e", "\ufffd lone", "plain"]


def units(text: str) -> bytes:
    return text.encode("utf-16-le", "surrogatepass")


def element(order: str, kind: int, content: bytes) -> bytes:
    return struct.pack(f"{order}II", kind, len(content)) + content + bytes(-len(content) % 8)


def matrix(order: str, kind: int, shape: tuple[int, ...], name: bytes, content: bytes) -> bytes:
    flags, dims = struct.pack(f"{order}II", kind, 0), struct.pack(f"{order}{len(shape)}i", *shape)
    head = element(order, 6, flags) + element(order, 5, dims) + element(order, 1, name)
    return element(order, 14, head + content)


def characters(order: str, kind: int, rows: np.ndarray, name: bytes = b"") -> bytes:
    """An array of characters as MATLAB writes it: one unit per character, column by column."""
    content = np.ascontiguousarray(rows.T).astype(f"{order}u2").tobytes()
    return matrix(order, 4, rows.shape, name, element(order, kind, content))


def written(path: Path, order: str, content: bytes) -> Path:
    mark = b"IM" if order == "<" else b"MI"
    path.write_bytes(b"MATLAB 5.0 MAT-file".ljust(124) + struct.pack(f"{order}H", 0x0100) + mark + content)
    return path


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("kind", [4, 17], ids=["numbers", "utf-16"])
def test_strings_in_cells_and_in_a_matrix(tmp_path: Path, order: str, kind: int) -> None:
    rows = [np.frombuffer(units(text), "<u2")[None] for text in TEXTS]
    cells = b"".join(characters(order, kind, row) for row in rows)
    file = open_mat(written(tmp_path / "a.mat", order, matrix(order, 1, (4, 1), b"texts", cells)))
    assert file.variable("texts").strings(4).tolist() == READ
    width = max(row.size for row in rows)
    table = np.concatenate([np.pad(row, ((0, 0), (0, width - row.size)), constant_values=32) for row in rows])
    file = open_mat(written(tmp_path / "b.mat", order, characters(order, kind, table, b"texts")))
    assert file.variable("texts").strings(4).tolist() == READ


def test_what_was_read_can_be_written_as_utf8() -> None:
    assert [joined(text).encode() for text in TEXTS] == [text.encode() for text in READ]
