"""Arrays of pictures and features: what was written is read back equal."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest
import scipy.sparse

from silohash.base.types import UserError
from silohash.data.benchmarks.layouts.matlab_arrays import ArrayFiles, read_with_last_queries
from silohash.data.benchmarks.layouts.matlab_files import Named
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
    with pytest.raises(UserError, match=r"1 of 6 queries occur in the database as well \(first: row 27\)"):
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
    with pytest.raises(UserError, match="differ in their columns"):
        read(tmp_path, "pascal-sentence", "dscmr")
    save(tmp_path / "test_img_lab.mat", test_img_lab=some.labels[22:])
    assert np.array_equal(read(tmp_path, "pascal-sentence", "dscmr").labels, some.labels)
    for value, sentence in ((np.nan, "NaN or infinity among the class numbers"), (1.5, "holds 1.5 in row 22")):
        dscmr(tmp_path, some, train=22)
        numbers = some.labels[22:].argmax(axis=1)[:, None].astype(float)
        numbers[0] = value
        save(tmp_path / "test_img_lab.mat", test_img_lab=numbers)
        with pytest.raises(UserError, match=sentence):
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
