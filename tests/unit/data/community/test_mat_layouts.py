"""The layouts of Matlab and HDF5 files: what was written is read back equal, and files that do not fit are named."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import h5py
import numpy as np
import pytest
import scipy.io
import scipy.sparse
from PIL import Image

from silohash.data.benchmarks import mat_layouts
from silohash.data.benchmarks.raw import Layout, Raw
from silohash.types import UserError
from tests.unit.data.matlab_files import cell, photographs, write_hdf5, write_v73

ALL = {
    name: layouts
    for name, layouts in vars(mat_layouts).items()
    if name.isupper() and isinstance(layouts, tuple) and all(isinstance(one, Layout) for one in layouts)
}


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    monkeypatch.setenv("SILOHASH_CACHE", str(tmp_path_factory.mktemp("cache")))


class Items(NamedTuple):
    """Pictures, their features, tags and labels that belong together, and names."""

    pictures: np.ndarray
    features: np.ndarray
    tags: np.ndarray
    labels: np.ndarray
    names: list[str]


def items(count: int = 30, classes: int = 4, size: int = 16) -> Items:
    """Returns items whose kind shows in the picture's colour, in the features and in the tags."""
    draws = np.random.default_rng(count)
    kinds = draws.integers(0, classes, count)
    labels = np.eye(classes, dtype=np.uint8)[kinds]
    labels[np.arange(count), draws.integers(0, classes, count)] = 1
    pictures = photographs(count, size, size)
    pictures[..., 0] = (pictures[..., 0] // 4 + 40 * kinds[:, None, None]).astype(np.uint8)
    features = labels @ draws.normal(size=(classes, 10)) + draws.normal(size=(count, 10)) / 4
    tags = (labels @ draws.random((classes, 14)) + draws.random((count, 14)) > 1).astype(np.float64)
    numbers = draws.permutation(count)
    return Items(pictures, features, tags, labels, [f"im{number}.jpg" for number in numbers])


def save(path: Path, **variables: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    scipy.io.savemat(path, variables, appendmat=False)


def layout(name: str, of: str) -> Layout:
    return next(one for one in ALL[of] if one.name == name)


def read(root: Path, of: str, name: str, **options: object) -> Raw:
    assert not layout(name, of).missing(root)
    return layout(name, of).read(root, **options)


def pixels(raw: Raw) -> np.ndarray:
    return np.stack([np.asarray(raw.image.picture(row)) for row in range(len(raw))])


def check(raw: Raw, some: Items, *, features: bool = False) -> None:
    if features:
        assert np.array_equal(raw.image, some.features.astype(np.float32))
    else:
        assert np.array_equal(pixels(raw), some.pictures)
    assert np.array_equal(raw.text, some.tags.astype(np.float32))
    assert np.array_equal(raw.labels, some.labels)
    assert raw.label_names == tuple(f"class {number}" for number in range(some.labels.shape[1]))
    assert raw.text.dtype == np.float32
    assert raw.labels.dtype == np.uint8


def test_every_layout_names_its_reader_and_the_options_it_takes():
    assert set(ALL) == {"MIRFLICKR", "NUS_WIDE", "IAPR", "COCO", "WIKIPEDIA", "FASHIONVC", "SSENSE", "PASCAL"}
    for layouts in ALL.values():
        assert len({one.name for one in layouts}) == len(layouts)
        for one in layouts:
            module, _, attribute = one.reader.partition(":")
            reader = getattr(__import__(module, fromlist=[attribute]), attribute)
            assert set(reader.__kwdefaults__) == set(one.options), one.reader


def dcmh(root: Path, some: Items, stem: str = "mirflickr25k", names: bool = True) -> None:
    root.mkdir(exist_ok=True)
    write_v73(root / f"{stem}-iall.mat", {"IAll": some.pictures.transpose(1, 2, 3, 0)})
    save(root / f"{stem}-yall.mat", YAll=some.tags)
    save(root / f"{stem}-lall.mat", LAll=some.labels)
    if names:
        save(root / f"{stem}-fall.mat", FAll=cell(some.names))


def test_dcmh(tmp_path):
    some = items()
    dcmh(tmp_path, some)
    raw = read(tmp_path, "MIRFLICKR", "dcmh-mat")
    check(raw, some)
    assert raw.ids.tolist() == some.names
    assert raw.notes["items differ from the published number"] == "30, not 20,015"
    assert raw.notes["classes differ from the published number"] == "4, not 24"
    assert "N3WH in a file of kind v7.3" in raw.notes["pictures: axes"]


@pytest.mark.parametrize("classes", ["21", "10"])
def test_dcmh_nus_wide_in_folders_of_their_own_and_without_names(tmp_path, classes):
    some = items(classes=int(classes))
    dcmh(tmp_path, some, f"nus-wide-tc{classes}", names=False)
    (tmp_path / "IAll").mkdir()
    (tmp_path / f"nus-wide-tc{classes}-iall.mat").rename(tmp_path / "IAll" / f"nus-wide-tc{classes}-iall.mat")
    raw = read(tmp_path, "NUS_WIDE", f"dcmh-mat-{classes}")
    check(raw, some)
    assert raw.ids[:2].tolist() == ["row-000000", "row-000001"]
    assert "ids" in raw.notes
    assert "classes differ from the published number" not in raw.notes


def test_sparse_tags_of_version_73_and_labels_on_the_second_axis(tmp_path):
    some = items()
    dcmh(tmp_path, some)
    write_v73(tmp_path / "mirflickr25k-yall.mat", {"YAll": scipy.sparse.csc_matrix(some.tags)})
    save(tmp_path / "mirflickr25k-lall.mat", LAll=some.labels.T)
    raw = read(tmp_path, "MIRFLICKR", "dcmh-mat")
    check(raw, some)
    assert "exchanged" in raw.notes["labels: axes"]


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
    raw = read(tmp_path, "MIRFLICKR", "dcmh-merged")
    check(raw, some)
    if form == "struct":
        assert raw.notes["pictures: variable"] == "FLICKR-25K.mat: images/IAll, a field of a struct"


def test_a_file_that_python_packed_of_matlabs_order_is_turned_upright(tmp_path):
    some = items(count=450, size=8)
    lying = some.pictures.transpose(0, 3, 2, 1)
    write_hdf5(tmp_path / "FLICKR-25K.mat", {"images": lying, "YAll": some.tags, "LAll": some.labels})
    raw = read(tmp_path, "MIRFLICKR", "dcmh-merged")
    check(raw, some)
    assert "exchanged, as the pictures lay on their side" in raw.notes["pictures: orientation"]
    assert "agree in the 450 rows" in raw.notes["rows in step"]
    kept = read(tmp_path, "MIRFLICKR", "dcmh-merged", swap="no")
    assert np.array_equal(pixels(kept), some.pictures.transpose(0, 2, 1, 3))
    assert "see the option swap" in kept.notes["pictures: orientation"]


def ucch(root: Path, some: Items, end: str = "", stem: str = "mirflickr25k", part: str = "iall-vgg") -> None:
    save(root / f"{stem}-{part}{end}.mat", XAll=some.features)
    save(root / f"{stem}-yall{end}.mat", YAll=some.tags)
    save(root / f"{stem}-lall{end}.mat", LAll=some.labels)


@pytest.mark.parametrize("end", ["", "-rand"])
def test_ucch(tmp_path, end):
    some = items(count=220)
    ucch(tmp_path / "MIRFLICKR25K", some, end)
    raw = read(tmp_path, "MIRFLICKR", "ucch-mat")
    check(raw, some, features=True)
    assert "agree in the 220 rows" in raw.notes["rows in step"]


@pytest.mark.parametrize(("part", "classes"), [("xall-vgg", "10"), ("xall", "10"), ("xall", "21")])
def test_features_of_nus_wide(tmp_path, part, classes):
    some = items(classes=int(classes))
    ucch(tmp_path, some, stem=f"nus-wide-tc{classes}", part=part)
    check(read(tmp_path, "NUS_WIDE", f"features-mat-{classes}"), some, features=True)


def test_shuffled_and_plain_files_are_not_mixed(tmp_path):
    some = items()
    ucch(tmp_path, some, "-rand")
    (tmp_path / "mirflickr25k-lall-rand.mat").rename(tmp_path / "mirflickr25k-lall.mat")
    with pytest.raises(
        UserError, match=r"iall-vgg-rand.mat and mirflickr25k-lall.mat have their rows in different orders"
    ):
        read(tmp_path, "MIRFLICKR", "ucch-mat")
    ucch(tmp_path, some)
    with pytest.raises(UserError, match=r"the same items in different orders\. Set rand = no"):
        read(tmp_path, "MIRFLICKR", "ucch-mat")
    check(read(tmp_path, "MIRFLICKR", "ucch-mat", rand="no"), some, features=True)


def test_companions_come_from_the_folder_of_the_features(tmp_path):
    some = items()
    ucch(tmp_path / "ucch", some)
    dcmh(tmp_path / "dcmh", some)
    (tmp_path / "ucch" / "mirflickr25k-yall.mat").unlink()
    with pytest.raises(
        UserError, match=r"mirflickr25k-yall.mat is missing in .*ucch\. It must come from the same folder"
    ):
        read(tmp_path, "MIRFLICKR", "ucch-mat")


@pytest.mark.parametrize("which", ["features", "tags", "labels"])
def test_a_shuffled_companion_is_named(tmp_path, which):
    some = items(count=300)
    order = np.random.default_rng(5).permutation(300)
    ucch(tmp_path, some._replace(**{which: getattr(some, which)[order]}))
    file = {"features": "iall-vgg.mat: XAll", "tags": "yall.mat: YAll", "labels": "lall.mat: LAll"}[which]
    with pytest.raises(UserError, match=f"rows of mirflickr25k-{file} do not belong to those of the other files"):
        read(tmp_path, "MIRFLICKR", "ucch-mat")
    raw = read(tmp_path, "MIRFLICKR", "ucch-mat", shuffled="accept")
    assert f"mirflickr25k-{file}; accepted" in raw.notes["rows out of step"]


def test_shuffled_pictures_are_named(tmp_path):
    some = items(count=800, size=8)
    dcmh(tmp_path, some._replace(pictures=some.pictures[::-1]))
    with pytest.raises(UserError, match=r"rows of mirflickr25k-iall\.mat: IAll do not belong"):
        read(tmp_path, "MIRFLICKR", "dcmh-mat")


def test_columns_that_say_nothing_of_each_other_are_a_note_only(tmp_path):
    draws = np.random.default_rng(0)
    labels = (draws.random((300, 4)) > 0.6).astype(np.uint8)
    ucch(
        tmp_path, items(count=300)._replace(features=draws.random((300, 8)), tags=draws.random((300, 9)), labels=labels)
    )
    assert "cannot be told" in read(tmp_path, "MIRFLICKR", "ucch-mat").notes["rows in step"]


def test_row_counts_that_disagree_are_named(tmp_path):
    some = items()
    dcmh(tmp_path, some)
    save(tmp_path / "mirflickr25k-lall.mat", LAll=some.labels[1:])
    with pytest.raises(UserError, match=r"numbers of rows disagree: .*YAll is 30 x 14; .*LAll is 29 x 4"):
        read(tmp_path, "MIRFLICKR", "dcmh-mat")
    save(tmp_path / "mirflickr25k-lall.mat", LAll=some.labels)
    save(tmp_path / "mirflickr25k-fall.mat", FAll=cell(some.names[2:]))
    with pytest.raises(UserError, match=r"numbers of rows disagree: .*FAll is 28 x 1"):
        read(tmp_path, "MIRFLICKR", "dcmh-mat")


@pytest.mark.parametrize(("value", "seen"), [(2, "2"), (-1, "-1"), (np.nan, "nan")])
def test_labels_that_are_not_0_or_1_are_named(tmp_path, value, seen):
    some = items()
    wrong = some.labels.astype(np.float64)
    wrong[7, 1] = value
    ucch(tmp_path, some._replace(labels=wrong))
    with pytest.raises(UserError, match=rf"LAll holds labels that are neither 0 nor 1: {seen} \(first in row 7\)"):
        read(tmp_path, "MIRFLICKR", "ucch-mat")


def test_features_with_nan_are_named(tmp_path):
    some = items()
    broken = some.features.copy()
    broken[[3, 8], 2] = np.nan, np.inf
    ucch(tmp_path, some._replace(features=broken))
    with pytest.raises(UserError, match=r"XAll holds NaN or infinity in 2 of 30 rows \(first in row 3\)"):
        read(tmp_path, "MIRFLICKR", "ucch-mat")


def test_classes_without_items_and_items_without_classes_are_noted(tmp_path):
    some = items()
    labels = np.hstack([some.labels, np.zeros((30, 2), np.uint8)])
    labels[4] = 0
    ucch(tmp_path, some._replace(labels=labels))
    raw = read(tmp_path, "MIRFLICKR", "ucch-mat")
    assert raw.notes["classes without an item"] == "2: columns 4, 5"
    assert raw.notes["items without a label"] == "1"


def iapr(path: Path, some: Items, queries: int) -> None:
    parts = {"Database": slice(len(some.tags) - queries), "Test": slice(len(some.tags) - queries, None)}
    variables = {f"V{part}": some.features[rows] for part, rows in parts.items()}
    variables |= {f"Y{part}": some.tags[rows] for part, rows in parts.items()}
    variables |= {"databaseL": some.labels[parts["Database"]], "testL": some.labels[parts["Test"]]}
    save(path, **variables)


def test_iapr(tmp_path):
    some = items()
    iapr(tmp_path / "iapr-tc12-rand.mat", some, queries=6)
    raw = read(tmp_path, "IAPR", "ucch-mat")
    check(raw, some, features=True)
    assert raw.stated["query"].tolist() == list(range(24, 30))
    assert raw.stated["database"].tolist() == raw.stated["train"].tolist() == list(range(24))
    assert raw.notes["queries differ from the published number"] == "6, not 2,000"


def test_stated_splits_that_overlap_are_named(tmp_path):
    some = items()
    for part in (some.features, some.tags):
        part[27] = part[3]
    iapr(tmp_path / "iapr-tc12-rand.mat", some, queries=6)
    with pytest.raises(UserError, match=r"1 of 6 queries stand in the database again \(first: row 27\)"):
        read(tmp_path, "IAPR", "ucch-mat")
    raw = read(tmp_path, "IAPR", "ucch-mat", overlap="accept")
    assert raw.notes["queries that stand in the database again"] == "1: rows 27"


def test_coco(tmp_path, monkeypatch):
    some = items(classes=8)
    write_hdf5(
        tmp_path / "MSCOCO_deep_doc2vec_data_rand.h5py",
        {"XAll": some.features.astype(np.float32), "YAll": some.tags, "LAll": some.labels.astype(np.int64)},
    )
    raw = read(tmp_path, "COCO", "ucch-h5py")
    check(raw, some, features=True)
    assert raw.stated == {}
    monkeypatch.setattr("silohash.data.benchmarks.mat_arrays.COCO_QUERIES", 5)
    assert read(tmp_path, "COCO", "ucch-h5py").stated["query"].tolist() == list(range(25, 30))


@pytest.mark.parametrize("of", ["MIRFLICKR", "NUS_WIDE", "IAPR", "COCO"])
def test_torchcmh(tmp_path, of):
    some = items(count=8)
    folders = [f"part{row % 2}" for row in range(8)] if of == "NUS_WIDE" else [""] * 8
    paths = [f"{folder}/{name}".lstrip("/") for folder, name in zip(folders, some.names, strict=True)]
    for path, shade in zip(paths, range(8), strict=True):
        (tmp_path / "photos" / path).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (5, 4), (shade, 0, 0)).save(tmp_path / "photos" / path, format="PNG")
    end = "21" if of == "NUS_WIDE" else ""
    names = {
        "MIRFLICKR": {"FAll": cell(some.names)},
        "NUS_WIDE": {"imgs": cell(list(zip(folders, some.names, strict=True)))},
    }.get(of, {"imgs": np.array(some.names)})
    variables = ("YAll", "LAll") if of == "MIRFLICKR" else ("tags", "labels")
    save(tmp_path / f"imgList{end}.mat", **names)
    save(tmp_path / f"tagList{end}.mat", **{variables[0]: some.tags})
    save(tmp_path / f"labelList{end}.mat", **{variables[1]: some.labels})
    raw = read(tmp_path, of, "torchcmh", pictures="photos")
    assert raw.ids.tolist() == paths
    assert [raw.image.picture(row).getpixel((0, 0))[0] for row in range(8)] == list(range(8))
    assert np.array_equal(raw.labels, some.labels)
    assert np.array_equal(raw.text, some.tags.astype(np.float32))
    with pytest.raises(UserError, match="Set pictures to the folder that the names"):
        read(tmp_path, of, "torchcmh")
    (tmp_path / "photos" / paths[2]).unlink()
    assert (
        "1, the first"
        in read(tmp_path, of, "torchcmh", pictures="photos").notes["items whose picture is missing or damaged"]
    )


def fashion(root: Path, coarse: int, fine: int, kind: str, count: int = 90) -> Items:
    some = items(count=count, classes=fine, size=8)
    fines = np.random.default_rng(1).integers(0, fine, count)
    labels = np.hstack([np.eye(coarse, dtype=np.uint8)[fines % coarse], np.eye(fine, dtype=np.uint8)[fines]])
    if kind == "v5":
        save(root / "image.mat", Image=some.pictures)
    else:
        write_v73(root / "image.mat", {"Image": some.pictures})
    save(root / "tag.mat", Tag=some.tags)
    save(root / "label.mat", Label=labels)
    return some._replace(labels=labels)


@pytest.mark.parametrize(("of", "coarse", "fine", "kind"), [("FASHIONVC", 8, 27, "v5"), ("SSENSE", 4, 28, "v7.3")])
def test_shdch(tmp_path, of, coarse, fine, kind):
    some = fashion(tmp_path, coarse, fine, kind)
    raw = read(tmp_path, of, "shdch", queries=20)
    assert np.array_equal(pixels(raw), some.pictures)
    assert np.array_equal(raw.labels, some.labels[:, coarse:])
    assert raw.label_names[0] == "fine 0"
    assert raw.stated["query"].tolist() == list(range(20))
    assert raw.stated["train"].tolist() == list(range(20, 90))
    assert raw.columns["fine"][5] == f"fine {some.labels[5, coarse:].argmax()}"
    assert raw.columns["coarse"][5] == f"coarse {some.labels[5, :coarse].argmax()}"
    assert ("pictures: memory" in raw.notes) == (kind == "v5")
    assert np.array_equal(read(tmp_path, of, "shdch", labels="coarse").labels, some.labels[:, :coarse])
    both = read(tmp_path, of, "shdch", labels="both")
    assert np.array_equal(both.labels, some.labels)
    assert len(both.label_names) == coarse + fine
    assert both.stated == {}
    assert "none stated" in both.notes["splits"]
    with pytest.raises(UserError, match='labels cannot be "all"'):
        read(tmp_path, of, "shdch", labels="all")


def test_labels_of_the_other_fashion_set_are_named(tmp_path):
    some = fashion(tmp_path, 4, 28, "v5")
    with pytest.raises(UserError, match="8 coarse and 27 fine classes are 35 columns"):
        read(tmp_path, "FASHIONVC", "shdch")
    save(tmp_path / "label.mat", Label=np.roll(some.labels, 4, axis=1))
    notes = read(tmp_path, "SSENSE", "shdch").notes
    assert "items without exactly one coarse and one fine class" in notes


def dscmr(root: Path, some: Items, train: int, first: int = 0) -> np.ndarray:
    numbers = some.labels.argmax(axis=1)
    for part, rows in (("train", slice(train)), ("test", slice(train, None))):
        save(root / f"{part}_img.mat", **{f"{part}_img": some.features[rows]})
        save(root / f"{part}_txt.mat", **{f"{part}_txt": some.tags[rows]})
        save(root / f"{part}_img_lab.mat", **{f"{part}_img_lab": numbers[rows, None] + first})
    return np.eye(numbers.max() + 1, dtype=np.uint8)[numbers]


@pytest.mark.parametrize("of", ["WIKIPEDIA", "PASCAL", "NUS_WIDE"])
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
        read(tmp_path, "PASCAL", "dscmr")
    save(tmp_path / "test_img_lab.mat", test_img_lab=some.labels[22:])
    assert np.array_equal(read(tmp_path, "PASCAL", "dscmr").labels, some.labels)
    for value, sentence in ((np.nan, "NaN or infinity among the class numbers"), (1.5, "holds 1.5 in row 22")):
        dscmr(tmp_path, some, train=22)
        numbers = some.labels[22:].argmax(axis=1)[:, None].astype(float)
        numbers[0] = value
        save(tmp_path / "test_img_lab.mat", test_img_lab=numbers)
        with pytest.raises(UserError, match=sentence):
            read(tmp_path, "PASCAL", "dscmr")


def test_wikipedia_with_its_validation_part(tmp_path):
    some = items(count=723)
    dscmr(tmp_path, some, train=30)
    stated = read(tmp_path, "WIKIPEDIA", "dscmr").stated
    assert stated["validation"].tolist() == list(range(30, 261))
    assert stated["query"].tolist() == list(range(261, 723))
    assert stated["database"].tolist() == list(range(30))


def test_files_of_one_name_in_two_folders_are_not_chosen_between(tmp_path):
    some = items()
    dcmh(tmp_path / "a", some)
    dcmh(tmp_path / "b", some)
    with pytest.raises(UserError, match=r"more than once: a/mirflickr25k-iall\.mat, b/mirflickr25k-iall\.mat"):
        read(tmp_path, "MIRFLICKR", "dcmh-mat")
    check(read(tmp_path / "a", "MIRFLICKR", "dcmh-mat"), some)


def test_pictures_of_a_large_file_are_not_read_through(tmp_path):
    some = items(count=60)
    dcmh(tmp_path, some, "nus-wide-tc21", names=False)
    with h5py.File(tmp_path / "nus-wide-tc21-iall.mat", "w") as file:
        stored = file.create_dataset("IAll", (60_000, 3, 224, 224), np.uint8, chunks=(1, 3, 224, 224))
        stored.attrs["MATLAB_class"] = np.bytes_("uint8")
    save(tmp_path / "nus-wide-tc21-yall.mat", YAll=scipy.sparse.csc_matrix(np.tile(some.tags, (1000, 1))))
    save(tmp_path / "nus-wide-tc21-lall.mat", LAll=np.tile(some.labels, (1000, 1)))
    raw = read(tmp_path, "NUS_WIDE", "dcmh-mat-21")
    assert len(raw) == len(raw.image) == 60_000
    assert np.asarray(raw.image.picture(59_999)).shape == (224, 224, 3)
