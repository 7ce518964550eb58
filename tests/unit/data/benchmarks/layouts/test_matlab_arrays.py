"""Arrays of pictures and features: what was written is read back equal."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest
import scipy.sparse

from silohash.base.errors import (
    ChoiceNeeded,
    FilesDiffer,
    MissingContent,
    MissingFile,
    NotFinite,
    OrderDiffers,
    OutOfRange,
    ProtocolUnmet,
)
from silohash.data.benchmarks.layouts.matlab_arrays import (
    ArrayFiles,
    MatFolder,
    Named,
    axis_notes,
    find_file,
    need_file,
    read_with_last_queries,
)
from tests.unit.data.benchmarks.arrays import Items, check, dcmh, dscmr, items, read, save, ucch
from tests.unit.data.formats.matlab_files import write_hdf5, write_v73

WHAT = ("image", "text", "labels")


def test_dcmh(tmp_path):
    some = items()
    dcmh(tmp_path, some)
    raw = read(tmp_path, "mirflickr25k", "dcmh-mat")
    check(raw, some)
    assert raw.ids.tolist() == some.names
    assert raw.notes["items differ from the published number"] == "30, not 20,015"
    assert raw.notes["classes differ from the published number"] == "4, not 24"
    assert "N3WH in a file of kind v7.3" in raw.notes["image: axes"]


@pytest.mark.parametrize("classes", ["21", "10"])
def test_dcmh_nus_wide_in_folders_of_their_own_and_without_names(tmp_path, classes):
    some = items(classes=int(classes))
    dcmh(tmp_path, some, f"nus-wide-tc{classes}", names=False)
    (tmp_path / "IAll").mkdir()
    (tmp_path / f"nus-wide-tc{classes}-iall.mat").rename(tmp_path / "IAll" / f"nus-wide-tc{classes}-iall.mat")
    raw = read(tmp_path, "nus-wide", f"dcmh-mat-{classes}")
    check(raw, some)
    assert raw.ids[:2].tolist() == ["row-000000", "row-000001"]
    assert "ids" in raw.notes
    assert "classes differ from the published number" not in raw.notes


def test_sparse_tags_of_version_73_and_labels_on_the_second_axis(tmp_path):
    some = items()
    dcmh(tmp_path, some)
    write_v73(tmp_path / "mirflickr25k-yall.mat", {"YAll": scipy.sparse.csc_matrix(some.tags)})
    save(tmp_path / "mirflickr25k-lall.mat", LAll=some.labels.T)
    raw = read(tmp_path, "mirflickr25k", "dcmh-mat")
    check(raw, some)
    assert "transposed" in raw.notes["labels: axes"]


@pytest.mark.parametrize("form", ["matlab", "python", "struct"])
def test_the_three_layouts_of_the_merged_file(tmp_path, form):
    some = items()
    path = tmp_path / "FLICKR-25K.mat"
    stacked = some.pictures.transpose(1, 2, 3, 0)
    if form == "matlab":
        write_v73(path, {"images": stacked, "YAll": some.tags, "LAll": some.labels})
    elif form == "python":
        natural = some.pictures.transpose(0, 3, 1, 2)
        write_hdf5(path, {"images": natural, "YAll": some.tags, "LAll": some.labels})
    else:
        write_v73(path, {"images": {"IAll": stacked}, "YAll": {"YAll": some.tags}, "LAll": {"LAll": some.labels}})
    raw = read(tmp_path, "mirflickr25k", "dcmh-merged")
    check(raw, some)
    if form == "struct":
        assert raw.notes["image: variable"] == "FLICKR-25K.mat: images/IAll, a field of a struct"


@pytest.mark.parametrize("end", ["", "-rand"])
def test_ucch(tmp_path, end):
    some = items(count=220)
    ucch(tmp_path / "MIRFLICKR25K", some, end)
    raw = read(tmp_path, "mirflickr25k", "ucch-mat")
    check(raw, some, features=True)
    assert "agree in the 220 rows" in raw.notes["order of rows"]


@pytest.mark.parametrize(("part", "classes"), [("xall-vgg", "10"), ("xall", "10"), ("xall", "21")])
def test_features_of_nus_wide(tmp_path, part, classes):
    some = items(classes=int(classes))
    ucch(tmp_path, some, stem=f"nus-wide-tc{classes}", part=part)
    check(read(tmp_path, "nus-wide", f"features-mat-{classes}"), some, features=True)


def iapr(path: Path, some: Items, queries: int) -> None:
    parts = {"Database": slice(len(some.tags) - queries), "Test": slice(len(some.tags) - queries, None)}
    variables = {f"V{part}": some.features[rows] for part, rows in parts.items()}
    variables |= {f"Y{part}": some.tags[rows] for part, rows in parts.items()}
    variables |= {"databaseL": some.labels[parts["Database"]], "testL": some.labels[parts["Test"]]}
    save(path, **variables)


def test_iapr(tmp_path):
    some = items()
    iapr(tmp_path / "iapr-tc12-rand.mat", some, queries=6)
    raw = read(tmp_path, "iapr-tc12", "ucch-mat")
    check(raw, some, features=True)
    assert raw.stated["query"].tolist() == list(range(24, 30))
    assert raw.stated["database"].tolist() == raw.stated["train"].tolist() == list(range(24))
    assert raw.notes["queries differ from the published number"] == "6, not 2,000"


def test_stated_splits_that_overlap_are_named(tmp_path):
    some = items()
    for part in (some.features, some.tags):
        part[27] = part[3]
    iapr(tmp_path / "iapr-tc12-rand.mat", some, queries=6)
    with pytest.raises(ProtocolUnmet, match=r"1.*6.*27"):
        read(tmp_path, "iapr-tc12", "ucch-mat")
    raw = read(tmp_path, "iapr-tc12", "ucch-mat", overlap="accept")
    assert raw.notes["queries repeated in the database"] == "1: rows 27"


@pytest.mark.parametrize("of", ["wikipedia", "pascal-sentence", "nus-wide"])
@pytest.mark.parametrize("first", [0, 1])
def test_dscmr(tmp_path, of, first):
    some = items()
    labels = dscmr(tmp_path, some, train=22, first=first)
    raw = read(tmp_path, of, "dscmr")
    check(raw, some._replace(labels=labels), features=True)
    assert raw.stated["train"].tolist() == list(range(22))
    assert raw.stated["query"].tolist() == list(range(22, 30))
    assert ("class numbers" in raw.notes) == bool(first)


def test_dscmr_with_labels_in_columns_and_broken_ones(tmp_path):
    some = items()
    dscmr(tmp_path, some, train=22)
    save(tmp_path / "train_img_lab.mat", train_img_lab=some.labels[:22])
    with pytest.raises(FilesDiffer):
        read(tmp_path, "pascal-sentence", "dscmr")
    save(tmp_path / "test_img_lab.mat", test_img_lab=some.labels[22:])
    assert np.array_equal(read(tmp_path, "pascal-sentence", "dscmr").labels, some.labels)
    for value, kind, sentence in ((np.nan, NotFinite, None), (1.5, OutOfRange, r"1.5.*22")):
        dscmr(tmp_path, some, train=22)
        numbers = some.labels[22:].argmax(axis=1)[:, None].astype(float)
        numbers[0] = value
        save(tmp_path / "test_img_lab.mat", test_img_lab=numbers)
        with pytest.raises(kind, match=sentence):
            read(tmp_path, "pascal-sentence", "dscmr")


def test_pictures_of_a_large_file_are_not_read_through(tmp_path):
    some = items(count=60)
    dcmh(tmp_path, some, "nus-wide-tc21", names=False)
    with h5py.File(tmp_path / "nus-wide-tc21-iall.mat", "w") as file:
        stored = file.create_dataset("IAll", (60_000, 3, 224, 224), np.uint8, chunks=(1, 3, 224, 224))
        stored.attrs["MATLAB_class"] = np.bytes_("uint8")
    save(tmp_path / "nus-wide-tc21-yall.mat", YAll=scipy.sparse.csc_matrix(np.tile(some.tags, (1000, 1))))
    save(tmp_path / "nus-wide-tc21-lall.mat", LAll=np.tile(some.labels, (1000, 1)))
    raw = read(tmp_path, "nus-wide", "dcmh-mat-21")
    assert len(raw) == len(raw.image) == 60_000
    assert np.asarray(raw.image.picture(59_999)).shape == (224, 224, 3)


def test_the_last_rows_of_one_file_are_the_queries(tmp_path):
    some = items(classes=8)
    arrays = {"XAll": some.features.astype(np.float32), "YAll": some.tags, "LAll": some.labels.astype(np.int64)}
    write_hdf5(tmp_path / "MSCOCO_deep_doc2vec_data_rand.h5py", arrays)
    raw = read(tmp_path, "coco", "ucch-h5py")
    check(raw, some, features=True)
    assert raw.stated == {}
    named = {
        what: Named("MSCOCO_deep_doc2vec_data_rand.h5py", (name,)) for what, name in zip(WHAT, arrays, strict=True)
    }
    stated = read_with_last_queries(ArrayFiles(**named), 5, tmp_path).stated
    assert stated["query"].tolist() == list(range(25, 30))
    assert stated["database"].tolist() == stated["train"].tolist() == list(range(25))


def test_files_of_one_name_in_two_folders_are_not_chosen_between(tmp_path):
    some = items()
    dcmh(tmp_path / "a", some)
    dcmh(tmp_path / "b", some)
    with pytest.raises(ChoiceNeeded, match=r"a/mirflickr25k-iall\.mat.*b/mirflickr25k-iall\.mat"):
        read(tmp_path, "mirflickr25k", "dcmh-mat")
    check(read(tmp_path / "a", "mirflickr25k", "dcmh-mat"), some)


def test_companions_come_from_the_folder_of_the_features(tmp_path):
    some = items()
    ucch(tmp_path / "ucch", some)
    dcmh(tmp_path / "dcmh", some)
    (tmp_path / "ucch" / "mirflickr25k-yall.mat").unlink()
    with pytest.raises(MissingFile, match=r"mirflickr25k-yall.mat.*ucch"):
        read(tmp_path, "mirflickr25k", "ucch-mat")


def test_shuffled_and_plain_files_are_not_mixed(tmp_path):
    some = items()
    ucch(tmp_path, some, "-rand")
    (tmp_path / "mirflickr25k-lall-rand.mat").rename(tmp_path / "mirflickr25k-lall.mat")
    with pytest.raises(OrderDiffers, match=r"iall-vgg-rand.mat.*mirflickr25k-lall.mat"):
        read(tmp_path, "mirflickr25k", "ucch-mat")
    ucch(tmp_path, some)
    with pytest.raises(ChoiceNeeded):
        read(tmp_path, "mirflickr25k", "ucch-mat")
    check(read(tmp_path, "mirflickr25k", "ucch-mat", rand="no"), some, features=True)


def test_the_first_of_several_names_is_found_anywhere_in_the_folder(tmp_path):
    assert find_file(tmp_path, "a.mat") is None
    (tmp_path / "a.mat").mkdir()
    assert find_file(tmp_path, "a.mat") is None  # a folder of that name is not a file
    for name in ("b.mat", "c.mat"):
        save(tmp_path / "deep" / "er" / name, x=np.arange(3.0))
    assert find_file(tmp_path, "a.mat", "c.mat", "b.mat") == tmp_path / "deep" / "er" / "c.mat"
    with pytest.raises(MissingFile, match=r"d\.mat.*e\.mat"):
        need_file(tmp_path, "d.mat", "e.mat")


def test_of_two_files_the_one_beside_another_is_read(tmp_path):
    for folder in ("one", "two"):
        save(tmp_path / folder / "tags.mat", tags=np.arange(3.0))
    near = tmp_path / "two" / "images.mat"
    assert find_file(tmp_path, "tags.mat", near=near) == tmp_path / "two" / "tags.mat"
    with pytest.raises(ChoiceNeeded, match=r"tags\.mat.*one/tags\.mat.*two/tags\.mat"):
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
    with pytest.raises(MissingContent, match=r"names\.mat has no variable names; it has: other"):
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
