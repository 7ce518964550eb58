"""Which file and which variable are read when several could be meant, and what the notes tell about them."""

from __future__ import annotations

import numpy as np
import pytest

from silohash.base.types import UserError
from silohash.data.benchmarks.layouts.matlab_files import MatFolder, Named, axis_notes, find_file, need_file
from tests.unit.data.benchmarks.arrays import check, dcmh, items, read, save, ucch


def test_files_of_one_name_in_two_folders_are_not_chosen_between(tmp_path):
    some = items()
    dcmh(tmp_path / "a", some)
    dcmh(tmp_path / "b", some)
    with pytest.raises(UserError, match=r"more than once: a/mirflickr25k-iall\.mat, b/mirflickr25k-iall\.mat"):
        read(tmp_path, "mirflickr25k", "dcmh-mat")
    check(read(tmp_path / "a", "mirflickr25k", "dcmh-mat"), some)


def test_companions_come_from_the_folder_of_the_features(tmp_path):
    some = items()
    ucch(tmp_path / "ucch", some)
    dcmh(tmp_path / "dcmh", some)
    (tmp_path / "ucch" / "mirflickr25k-yall.mat").unlink()
    with pytest.raises(
        UserError, match=r"mirflickr25k-yall.mat is missing in .*ucch\. It must come from the same folder"
    ):
        read(tmp_path, "mirflickr25k", "ucch-mat")


def test_shuffled_and_plain_files_are_not_mixed(tmp_path):
    some = items()
    ucch(tmp_path, some, "-rand")
    (tmp_path / "mirflickr25k-lall-rand.mat").rename(tmp_path / "mirflickr25k-lall.mat")
    with pytest.raises(
        UserError, match=r"iall-vgg-rand.mat and mirflickr25k-lall.mat have their rows in different orders"
    ):
        read(tmp_path, "mirflickr25k", "ucch-mat")
    ucch(tmp_path, some)
    with pytest.raises(UserError, match=r"the same items in different orders\. Set rand = no"):
        read(tmp_path, "mirflickr25k", "ucch-mat")
    check(read(tmp_path, "mirflickr25k", "ucch-mat", rand="no"), some, features=True)


def test_the_first_of_several_names_is_found_anywhere_in_the_folder(tmp_path):
    assert find_file(tmp_path, "a.mat") is None
    (tmp_path / "a.mat").mkdir()
    assert find_file(tmp_path, "a.mat") is None  # a folder of that name is not a file
    for name in ("b.mat", "c.mat"):
        save(tmp_path / "deep" / "er" / name, x=np.arange(3.0))
    assert find_file(tmp_path, "a.mat", "c.mat", "b.mat") == tmp_path / "deep" / "er" / "c.mat"
    with pytest.raises(UserError, match=r"^d\.mat or e\.mat is missing in .*\. Add it beside the other files\.$"):
        need_file(tmp_path, "d.mat", "e.mat")


def test_of_two_files_the_one_beside_another_is_read(tmp_path):
    for folder in ("one", "two"):
        save(tmp_path / folder / "tags.mat", tags=np.arange(3.0))
    near = tmp_path / "two" / "images.mat"
    assert find_file(tmp_path, "tags.mat", near=near) == tmp_path / "two" / "tags.mat"
    with pytest.raises(UserError, match=r"holds tags\.mat more than once: one/tags\.mat, two/tags\.mat"):
        find_file(tmp_path, "tags.mat", near=tmp_path / "images.mat")
    (tmp_path / "one" / "tags.mat").unlink()
    assert find_file(tmp_path, "tags.mat", near=tmp_path / "images.mat") == tmp_path / "two" / "tags.mat"


def test_an_optional_variable_may_lack_its_file_or_stand_in_the_first_file(tmp_path):
    near, folder = tmp_path / "all.mat", MatFolder(tmp_path)
    save(near, images=np.arange(3.0), names=np.arange(3.0))
    assert folder.optional(Named("names.mat", ("names",)), near=near) is None
    assert folder.optional(Named("all.mat", ("FAll",)), near=near) is None
    assert str(folder.optional(Named("all.mat", ("FAll", "names")), near=near)) == "all.mat: names"
    save(tmp_path / "names.mat", other=np.arange(3.0))
    with pytest.raises(UserError, match=r"names\.mat has no variable names; it has: other"):
        folder.optional(Named("names.mat", ("names",)), near=near)
    save(tmp_path / "files.mat", FAll=np.arange(3.0))
    assert str(folder.optional(Named("files.mat", ("FAll",)), near=near)) == "files.mat: FAll"


@pytest.mark.parametrize(
    ("name", "stored", "notes"),
    [
        ("upright", np.zeros((5, 3)), {}),
        ("turned", np.zeros((3, 5)), {"x: axes": "all.mat: turned holds the items along its second axis; transposed"}),
        ("pictures", np.zeros((4, 4, 3, 5)), {}),
        ("vector", np.zeros((5, 1)), {}),
        (
            "inner",
            {"inner": np.zeros((5, 3))},
            {"x: variable": "all.mat: outer/inner, a field of a struct"},
        ),
    ],
)
def test_notes_on_axes_and_fields(tmp_path, name, stored, notes):
    path = tmp_path / "all.mat"
    save(path, **{"outer" if isinstance(stored, dict) else name: stored})
    variable = MatFolder(tmp_path).variable_in(path, (name,))
    assert axis_notes({"x": variable}, 5) == notes
