"""The reader of packed sets, on a small made-up set; and sets that are missing or damaged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from silohash.base.errors import DamagedFile, MissingContent, MissingFile, WrongChoice, WrongKindOfPath
from silohash.data.catalogue import open_archive
from silohash.data.packed import reader
from silohash.data.packed.reader import MOBILENET_STEP, Labeling, PackedSet, data_root, read_regions
from silohash.data.pictures.reading import read_array

TOY = PackedSet(
    name="toy",
    summary="Four items.",
    source="this test",
    license="CC0",
    options={
        "image": ("mobilenet", "png"),
        "text": ("caption", "bow", "words"),
        "labels": ("kind", "both"),
        "database": ("all", "unseen"),
    },
    rows="items.csv",
    id="toy-{number}",
    protocol="{sizes}/{labels}",
    caption="{words}",
    pictures="images",
    labelings={"kind": Labeling("{kind}", "same kind"), "both": Labeling("{kind}|{place}", "any")},
    split_names={"test": "query"},
    columns={"where": "{place} ({number})"},
    notes={"seen": "by hand"},
)


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("SILOHASH_DATA", str(tmp_path))
    made = tmp_path / "toy"
    (made / "features").mkdir(parents=True)
    (made / "images").mkdir()
    (made / "items.csv").write_text(
        "number,words,kind,place,split,file\n"
        "7,a cat,cat,in,test,0.png\n8,a dog,dog,out,train,1.png\n9,a cat,cat,,database,2.png\n5,?,,out,none,0.png\n"
    )
    np.save(made / "features/image_mobilenetv2.npy", np.arange(8, dtype=np.uint8).reshape(4, 2) * 30)
    np.savez(made / "features/text_bow.npz", bow=np.eye(4, 3, dtype=np.uint8))
    for shade in range(3):
        Image.new("RGB", (2, 2), (shade, 0, 0)).save(made / f"images/{shade}.png")
    return made


def test_a_row_becomes_an_item_as_the_descriptor_states(folder: Path) -> None:
    archive = TOY(image="png")
    assert archive.ids.tolist() == ["toy-7", "toy-8", "toy-9", "toy-5"]
    assert archive.text.tolist() == ["a cat", "a dog", "a cat", "?"]
    assert archive.label_names == ("cat", "dog")
    assert archive.labels.tolist() == [[1, 0], [0, 1], [1, 0], [0, 0]]
    assert archive.columns["where"].tolist() == ["in (7)", "out (8)", " (9)", "out (5)"]
    assert archive.image.picture(2).getpixel((0, 0)) == (2, 0, 0)
    assert (archive.captions, archive.preview) == (None, None)
    assert archive.card.protocol == "toy/1-2/kind"
    assert archive.card.notes == {"relevant": "same kind", "seen": "by hand"}


def test_splits_follow_the_column_and_the_option_database(folder: Path) -> None:
    every, unseen = TOY(), TOY(database="unseen")
    assert {name: rows.tolist() for name, rows in every.splits.items()} == {
        "query": [0],
        "database": [1, 2],
        "train": [1],
    }
    assert unseen.split("database").tolist() == [2]
    assert unseen.card.protocol == "toy/1-1-unseen/kind"


def test_features_stand_in_for_pictures_and_words_which_can_still_be_looked_at(folder: Path) -> None:
    archive = TOY(text="bow")
    np.testing.assert_allclose(archive.image, np.arange(8).reshape(4, 2) * 30 * MOBILENET_STEP, rtol=1e-6)
    assert archive.image.dtype == archive.text.dtype == np.float32
    assert archive.text.tolist() == np.eye(4, 3).tolist()
    assert archive.captions.tolist() == ["a cat", "a dog", "a cat", "?"]
    assert archive.preview.picture(1).getpixel((0, 0)) == (1, 0, 0)
    assert archive.has("image").all()


def test_words_are_counted_once(folder: Path) -> None:
    counts = np.array([[0, 3, 1], [0, 0, 0], [255, 1, 0]], np.uint8)
    np.savez(folder / "features/text_bow.npz", bow=counts)
    assert TOY(text="bow").text[:3].tolist() == counts.tolist()
    archive = TOY(text="words")
    assert archive.text[:3].tolist() == [[0, 1, 1], [0, 0, 0], [1, 1, 0]]
    assert archive.text.dtype == np.float32
    assert np.isnan(archive.text[3]).all()


def test_an_item_may_have_several_labels_and_names_may_be_given(folder: Path) -> None:
    assert TOY(labels="both").label_names == ("cat", "dog", "in", "out")
    assert TOY(labels="both").labels_of(1) == ["dog", "out"]
    named = replace(TOY, label_names=("dog", "fish", "cat"))()
    assert named.label_names == ("dog", "fish", "cat")
    assert named.labels_of(0) == ["cat"]
    (folder / "names.csv").write_text("number,name\n0,dog\n1,cat\n")
    assert replace(TOY, label_names="names.csv")().label_names == ("dog", "cat")


def test_rows_may_point_into_the_features_and_may_outnumber_them(folder: Path) -> None:
    places = [3, 0, 4, 1]

    def rows(packed: PackedSet, chosen: object) -> list[dict[str, object]]:
        return [{**row, "image_row": place} for row, place in zip(packed.table("items.csv"), places, strict=True)]

    archive = replace(TOY, rows=rows)()
    assert np.isnan(archive.image[2]).all()
    assert archive.has("image").tolist() == [True, True, False, True]
    np.testing.assert_allclose(archive.image[0], np.array([180, 210]) * MOBILENET_STEP, rtol=1e-6)


def test_given_features_are_joined_from_their_parts(folder: Path) -> None:
    np.savez(folder / "a.npz", x=np.ones((3, 2)), y=np.zeros((2, 2)))
    archive = replace(TOY, given={"text": [("a.npz", "x"), ("a.npz", "y")]})()
    assert archive.text.tolist() == [[1, 1]] * 3 + [[0, 0]]


def test_without_a_column_split_the_default_splits_keep_a_key_together(folder: Path) -> None:
    table = (folder / "items.csv").read_text().replace("split", "part")
    (folder / "items.csv").write_text(table)
    splits = replace(TOY, split_key="{kind}", protocol="default")().splits
    assert sorted([*splits["query"], *splits["database"]]) == [0, 1, 2, 3]
    cats = {name for name, rows in splits.items() if name != "train" and {0, 2} & set(rows.tolist())}
    assert len(cats) == 1


def test_a_missing_column_or_a_damaged_file_is_named(folder: Path) -> None:
    with pytest.raises(MissingContent, match=r"toy.*weight"):
        replace(TOY, id="{weight}")()
    (folder / "items.jsonl").write_text('{"a": 1}\n\n{"a": 2}\n')
    assert TOY.table("items.jsonl") == [{"a": 1}, {"a": 2}]
    (folder / "items.jsonl").write_text('{"a": \n')
    with pytest.raises(DamagedFile, match=r"items\.jsonl"):
        TOY.table("items.jsonl")
    (folder / "items.csv").write_bytes(b"number\n\xff\xfe\n")
    with pytest.raises(DamagedFile, match=r"items\.csv"):
        TOY.table("items.csv")
    (folder / "features/image_mobilenetv2.npy").write_bytes(b"nothing")
    with pytest.raises(DamagedFile, match=r"image_mobilenetv2\.npy"):
        read_array(TOY.file("features/image_mobilenetv2.npy"))
    with pytest.raises(MissingFile, match=r"gone\.npy.*toy.*SILOHASH_DATA"):
        TOY.file("gone.npy")


def test_an_unknown_value_is_answered_with_the_nearest(folder: Path) -> None:
    with pytest.raises(
        WrongChoice, match=r'toy: text cannot be "bwo" .did you mean "bow".*; it can be: caption, bow, words'
    ):
        TOY(text="bwo")


def test_without_the_folder_of_data_sets_the_error_says_where_it_goes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SILOHASH_DATA", str(tmp_path))
    with pytest.raises(MissingFile, match=r"coco18.pairs\.csv.*SILOHASH_DATA"):
        open_archive("coco18")
    monkeypatch.setenv("SILOHASH_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(WrongKindOfPath, match="nowhere"):
        open_archive("coco18")


def test_the_folder_of_data_sets_may_stand_beside_the_current_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("SILOHASH_DATA", raising=False)
    (tmp_path / "shared/data").mkdir(parents=True)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert data_root() == tmp_path / "shared/data"


def test_without_shared_sets_those_that_were_built_are_opened(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SILOHASH_DATA", raising=False)
    monkeypatch.setattr(reader, "__file__", str(tmp_path / "a/b/c/d/e/reader.py"))
    (tmp_path / "data").mkdir()
    monkeypatch.chdir(tmp_path)
    assert data_root() == Path("data")
    (tmp_path / "data").rmdir()
    with pytest.raises(MissingFile, match="SILOHASH_DATA"):
        data_root()


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
