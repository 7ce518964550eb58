"""MATLAB and HDF5 files: the kind follows from the content, and what was written is read back equal."""

from __future__ import annotations

import h5py
import numpy as np
import pytest

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
from silohash.data.formats.matlab import find_kind, open_mat
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
