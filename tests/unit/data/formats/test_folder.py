"""A user's folder: which rows become items, and the reasons why others are left out."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from PIL import Image

from silohash.base.errors import (
    DamagedFile,
    LengthsDiffer,
    MissingFile,
    NotPermitted,
    OutOfRange,
    UserError,
    WrongShape,
)
from silohash.data.catalogue import open_archive
from silohash.data.formats.folder import read_folder
from silohash.data.formats.native import read_native, write_native
from silohash.data.pairs import picture_numbers
from tests.unit.data.formats.user_folders import draw, pictures, reasons, write_csv

pytestmark = pytest.mark.usefixtures("private_cache")


def test_pictures_texts_labels_and_further_columns(tmp_path):
    rows = pictures(tmp_path, 3, museum="east")
    rows[0] |= {"labels": "sea | boat|sea", "museum": "west"}
    rows[2] |= {"labels": "tree"}
    write_csv(tmp_path, [{"labels": ""} | row for row in rows])
    archive = open_archive(None, tmp_path)
    assert archive.ids.tolist() == [row["file_name"] for row in rows]
    assert archive.text.tolist() == ["picture 0", "picture 1", "picture 2"]
    assert archive.label_names == ("boat", "sea", "tree")
    assert [archive.labels_of(row) for row in range(3)] == [["boat", "sea"], [], ["tree"]]
    assert archive.columns["museum"].tolist() == ["west", "east", "east"]
    assert set(archive.columns) == {"museum"}
    assert archive.image.picture(2).getpixel((0, 0)) == (2, 0, 0)
    assert archive.card.skipped == ()


def test_each_bad_row_is_named_and_left_out(tmp_path):
    draw(tmp_path, "1.png", "2.png", "folder/3.png")
    noise = np.random.default_rng(0).integers(0, 256, (50, 60, 3), dtype=np.uint8)
    for name in ("cut.jpg", "cut.png"):
        Image.fromarray(noise).save(tmp_path / name)
        content = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(content[: int(0.8 * len(content))])
    (tmp_path / "word.jpg").write_text("no picture")
    write_csv(
        tmp_path,
        [
            {"id": "a", "file_name": "1.png", "text": "good", "split": "train"},
            {"id": "b", "file_name": "none.png", "text": "missing", "split": "train"},
            {"id": "c", "file_name": "cut.jpg", "text": "truncated", "split": "train"},
            {"id": "d", "file_name": "cut.png", "text": "truncated", "split": "train"},
            {"id": "e", "file_name": "word.jpg", "text": "no picture", "split": "train"},
            {"id": "f", "file_name": "", "text": "  ", "split": "train"},
            {"id": "a", "file_name": "2.png", "text": "the id again", "split": "train"},
            {"id": "g", "file_name": "2.png", "text": "a split", "split": "trian"},
            {"id": "h", "file_name": "../1.png", "text": "outside", "split": "train"},
            {"id": "i", "file_name": str(tmp_path / "1.png"), "text": "absolute", "split": "train"},
            {"id": "j", "file_name": "folder", "text": "a folder", "split": "train"},
            {"id": "k", "file_name": "2.png", "text": "good", "split": "Test"},
        ],
    )
    archive = read_folder(tmp_path)
    assert archive.ids.tolist() == ["a", "k"]
    found = reasons(archive)
    expected = {
        3: '"none.png" is missing',
        4: '"cut.jpg" cannot be decoded',
        5: '"cut.png" cannot be decoded',
        6: "is not a picture of a known format",
        7: "neither a picture nor a text",
        8: 'the id "a" occurs in an earlier row',
        9: 'the split "trian" is not one of query, test',
        10: "lies outside the folder",
        11: "lies outside the folder",
        12: "is not a file",
    }
    assert set(found) == set(expected)
    for number, words in expected.items():
        assert words in found[number]
    assert [archive.split(name).tolist() for name in ("query", "database", "train")] == [[1], [0], [0]]


def test_a_row_with_one_modality_is_kept(tmp_path):
    draw(tmp_path, "1.png", "2.png")
    write_csv(
        tmp_path,
        [
            {"file_name": "1.png", "text": "both"},
            {"file_name": "2.png", "text": ""},
            {"file_name": "", "text": "words alone"},
        ],
    )
    archive = read_folder(tmp_path)
    assert archive.has("image").tolist() == [True, True, False]
    assert archive.has("text").tolist() == [True, False, True]
    assert archive.card.notes == {"items without a picture": "1", "items without a text": "1"}


def test_without_any_text_or_picture_the_column_is_absent(tmp_path):
    write_csv(tmp_path, [{"text": "a parrot"}, {"text": "a ship"}])
    assert read_folder(tmp_path).image is None
    write_csv(tmp_path, [{"file_name": row["file_name"]} for row in pictures(tmp_path, 2)])
    assert read_folder(tmp_path).text is None


def test_twenty_pictures_are_enough_for_every_split(tmp_path):
    write_csv(tmp_path, pictures(tmp_path, 20))
    archive = read_folder(tmp_path)
    assert {name: len(rows) for name, rows in archive.splits.items()} == {"query": 2, "database": 18, "train": 18}
    assert archive.card.protocol == "folder/default-splits"
    assert archive.card.digest == read_folder(tmp_path).card.digest


def test_captions_of_one_picture_are_items_that_stay_together(tmp_path):
    rows = [row for row in pictures(tmp_path, 6) for _ in range(3)]
    write_csv(tmp_path, rows)
    archive = read_folder(tmp_path)
    assert len(archive) == 18
    assert archive.ids[:3].tolist() == ["pictures/0.png", "pictures/0.png#2", "pictures/0.png#3"]
    of_picture = np.arange(18) // 3
    assert set(of_picture[archive.split("query")]).isdisjoint(of_picture[archive.split("database")])


def test_items_to_train_on_need_not_be_searched(tmp_path):
    parts = ("query", "database", "train", "train")
    write_csv(tmp_path, [row | {"split": part} for row, part in zip(pictures(tmp_path, 4), parts, strict=True)])
    found = [read_folder(tmp_path, search_training=searched).splits for searched in (True, False)]
    assert [splits["train"].tolist() for splits in found] == [[2, 3], [2, 3]]
    assert [splits["database"].tolist() for splits in found] == [[1, 2, 3], [1]]


def test_labels_that_are_not_in_the_list(tmp_path):
    write_csv(tmp_path, [{"text": "x", "labels": "tree|boat"}, {"text": "y", "labels": "boot"}])
    (tmp_path / "labels.txt").write_text("tree\n\nboat\nhouse\n")
    archive = read_folder(tmp_path)
    assert archive.label_names == ("tree", "boat", "house")
    assert reasons(archive) == {3: 'the label "boot" is not allowed'}
    assert read_folder(tmp_path, labels=("boot", "boat", "tree")).label_names == ("boot", "boat", "tree")


def test_a_text_that_was_taken_for_labels(tmp_path):
    write_csv(tmp_path, [{"text": "x", "labels": f"sentence {number}"} for number in range(5000)])
    with pytest.raises(OutOfRange, match=r"5,000.*4,096"):
        read_folder(tmp_path)


def test_given_features_in_the_order_of_the_rows(tmp_path):
    rows = pictures(tmp_path, 4)
    write_csv(tmp_path, rows)
    image = np.arange(12, dtype=np.float64).reshape(4, 3)
    image[1] = np.nan
    image[2, 1] = np.inf
    np.save(tmp_path / "image.npy", image)
    np.save(tmp_path / "words.npy", np.ones((4, 2), dtype=np.uint8))
    archive = read_folder(tmp_path, text="words.npy")
    assert archive.image.dtype == archive.text.dtype == np.float32
    assert archive.image[[0, 2]].tolist() == [[0, 1, 2], [9, 10, 11]]
    assert archive.has("image").tolist() == [True, False, True]
    assert reasons(archive) == {4: "image.npy holds NaN or infinity in some of its features"}
    assert archive.caption(2) == "picture 3"
    assert archive.pictures().picture(2).getpixel((0, 0)) == (3, 0, 0)


def test_features_without_all_pictures_have_no_preview(tmp_path):
    write_csv(tmp_path, [{"file_name": "gone.png", "text": "x"}, {"file_name": "", "text": "y"}])
    np.save(tmp_path / "image.npy", np.ones((2, 3)))
    archive = read_folder(tmp_path)
    assert archive.pictures() is None
    assert archive.card.skipped == ()


@pytest.mark.parametrize(
    ("array", "kind", "words"),
    [
        (np.ones((3, 4)), LengthsDiffer, r"image\.npy.*3.*metadata\.csv"),
        (np.ones(2), WrongShape, "2"),
        (np.array([["a"], ["b"]]), WrongShape, None),
        (np.array([{}, {}], dtype=object), DamagedFile, None),
    ],
)
def test_features_that_do_not_fit_are_named(tmp_path, array, kind: type[UserError], words: str | None):
    write_csv(tmp_path, [{"text": "x"}, {"text": "y"}])
    np.save(tmp_path / "image.npy", array)
    with pytest.raises(kind, match=words):
        read_folder(tmp_path)


def test_a_named_file_of_features_must_be_there(tmp_path):
    write_csv(tmp_path, [{"text": "x"}])
    with pytest.raises(MissingFile, match=r"vgg\.npy"):
        read_folder(tmp_path, image="vgg.npy")


def test_a_complete_folder_has_no_warnings(tmp_path):
    write_csv(tmp_path, pictures(tmp_path, 3, labels="a", place="here"))
    assert read_folder(tmp_path).card.warnings == ()
    assert read_folder(tmp_path).folder == tmp_path


def test_absent_pictures_and_texts_are_warned_of(tmp_path):
    write_csv(tmp_path, [{"text": "a parrot", "filename": "1.png"}])
    assert read_folder(tmp_path).card.warnings == (
        'The column "filename" is not used (did you mean "file_name"?).',
        'No item has a picture: metadata.csv does not have the column "file_name", and there is no image.npy.',
    )
    rows = [{"file_name": row["file_name"], "Caption": "x"} for row in pictures(tmp_path, 2)]
    write_csv(tmp_path, rows)
    assert read_folder(tmp_path).card.warnings == (
        'The column "Caption" is not used (did you mean "text"?).',
        'No item has a text: metadata.csv does not have the column "text", and there is no text.npy.',
    )
    write_csv(tmp_path, [{**row, "text": ""} for row in rows])
    assert read_folder(tmp_path).card.warnings == ('No item has a text: the column "text" is empty.',)
    np.save(tmp_path / "text.npy", np.full((2, 3), np.nan))
    assert read_folder(tmp_path).card.warnings == ("No item has a text: text.npy does not contain values.",)


def test_texts_that_are_cut_are_named(tmp_path, monkeypatch):
    monkeypatch.setattr("silohash.data.archive.TEXT_CELLS", 1)
    write_csv(tmp_path, [{"text": "x" * length, "note": "n" * (513 - length)} for length in (256, 257, 300)])
    archive = read_folder(tmp_path)
    assert [len(text) for text in archive.text] == [256, 256, 256]
    assert [warning for warning in archive.card.warnings if "No item" not in warning] == [
        'metadata.csv, column "text": only the first 256 characters of row 3, 4 are used.',
        'metadata.csv, column "note": only the first 256 characters of row 2 are used.',
    ]
    write_csv(tmp_path, [{"text": "x" * 300} for _ in range(8)])
    assert "of row 2, 3, 4, 5, 6 and 3 more are used." in read_folder(tmp_path).card.warnings[-1]


def test_pictures_that_cannot_be_shown_beside_features_are_warned_of(tmp_path):
    write_csv(tmp_path, [{"file_name": "gone.png", "text": "x"}, {"file_name": "", "text": "y"}])
    np.save(tmp_path / "image.npy", np.ones((2, 3)))
    assert read_folder(tmp_path).card.warnings == (
        'No pictures are shown beside the given features: the picture "gone.png" is missing.',
    )
    draw(tmp_path, "gone.png")
    assert read_folder(tmp_path).card.warnings == (
        "No pictures are shown beside the given features: some rows do not name a picture.",
    )
    write_csv(tmp_path, [{"file_name": "", "text": "x"}, {"file_name": "", "text": "y"}])
    assert read_folder(tmp_path).card.warnings == ()


def test_pictures_behind_links_out_of_the_folder_are_left_out(tmp_path):
    folder = tmp_path / "folder"
    draw(tmp_path, "outside/1.png", "outside/2.png", "folder/3.png")
    (folder / "1.png").symlink_to(tmp_path / "outside" / "1.png")
    (folder / "linked").symlink_to(tmp_path / "outside")
    (folder / "within.png").symlink_to("3.png")
    write_csv(folder, [{"file_name": name, "text": "x"} for name in ("1.png", "linked/2.png", "3.png", "within.png")])
    archive = read_folder(folder)
    assert archive.ids.tolist() == ["3.png", "within.png"]
    assert reasons(archive) == {
        2: 'the picture "1.png" is a link that leads out of the folder, and follow_links is not set',
        3: 'the picture "linked/2.png" is a link that leads out of the folder, and follow_links is not set',
    }
    assert len(read_folder(folder, follow_links=True)) == 4


@pytest.mark.parametrize("name", ["image.npy", "text.npy", "labels.txt"])
def test_other_files_behind_links_are_refused(tmp_path, name):
    folder = tmp_path / "folder"
    folder.mkdir()
    write_csv(folder, [{"text": "x", "labels": "a"}])
    np.save(tmp_path / "values.npy", np.ones((1, 3)))
    (tmp_path / "values.txt").write_text("a\n")
    (folder / name).symlink_to(tmp_path / f"values{name[-4:]}")
    with pytest.raises(NotPermitted, match=f"{name}.*values"):
        read_folder(folder)
    assert len(read_folder(folder, follow_links=True)) == 1


def captioned(folder, count=40, captions=3):
    """Returns rows of the metadata with several texts per picture."""
    return [row | {"text": f"text {number}"} for row in pictures(folder, count) for number in range(captions)]


def test_texts_of_a_picture_are_in_the_same_split(tmp_path):
    write_csv(tmp_path, captioned(tmp_path))
    archive = read_folder(tmp_path)
    of_item = picture_numbers(archive)
    assert len(set(of_item.tolist())) == 40
    assert len(set(of_item[archive.split("query")].tolist())) == 4
    assert not set(of_item[archive.split("query")].tolist()) & set(of_item[archive.split("database")].tolist())


@pytest.mark.parametrize("named", ["file_name", "picture"])
def test_features_without_pictures_to_show_keep_which_items_share_one(tmp_path, named):
    rows = [{named: row["file_name"], "text": row["text"]} for row in captioned(tmp_path)]
    if named == "file_name":
        (tmp_path / rows[0]["file_name"]).unlink()
    write_csv(tmp_path, rows)
    np.save(tmp_path / "image.npy", np.random.default_rng(0).normal(size=(120, 4)))
    archive = read_folder(tmp_path)
    assert archive.preview is None
    assert archive.columns["picture"].tolist() == [row[named] for row in rows]
    of_item = picture_numbers(archive)
    assert of_item[:6].tolist() == [of_item[0]] * 3 + [of_item[3]] * 3
    assert not set(of_item[archive.split("query")].tolist()) & set(of_item[archive.split("database")].tolist())
    write_native(tmp_path / "native", archive)
    assert picture_numbers(read_native(tmp_path / "native")).tolist() == of_item.tolist()


def test_labels_and_ids_of_two_systems_are_one(tmp_path):
    spelled = ["d\u00e4nemark", "da\u0308nemark", "boat", "boat\u200b", "bo\u200dat", "\u00a0boat", "2", "2.0", "2.0"]
    write_csv(tmp_path, [{"id": f"i{place}", "text": "x", "labels": label} for place, label in enumerate(spelled)])
    archive = read_folder(tmp_path)
    assert archive.label_names == ("2.0", "boat", "d\u00e4nemark")
    assert archive.labels.sum(axis=0).tolist() == [3, 4, 2]
    assert archive.card.warnings[1:] == ()
    (tmp_path / "labels.txt").write_text("2\nda\u0308nemark\nboat\nboat\u200b\n")
    archive = read_folder(tmp_path)
    assert (archive.label_names, archive.labels.sum(axis=0).tolist()) == (("2", "d\u00e4nemark", "boat"), [3, 2, 4])
    assert archive.card.skipped == ()
    write_csv(tmp_path, [{"id": name, "text": "x"} for name in ("a", "a\u200b", "2", "2.0", "A")])
    archive = read_folder(tmp_path)
    assert archive.ids.tolist() == ["a", "2", "A"]
    assert reasons(archive) == {
        3: 'the id "a" occurs in an earlier row',
        5: 'the id "2.0" occurs in an earlier row, written as "2"',
    }


def test_labels_that_are_probably_not_meant_are_warned_of(tmp_path):
    write_csv(tmp_path, [{"text": "nan", "labels": label} for label in ("bird; tree", "tree", "Tree", "N/A")])
    warnings = read_folder(tmp_path).card.warnings
    for words in ('"Tree" and "tree"', 'contain ";"', '"N/A"', "row 2, 3, 4, 5. Leave"):
        assert any(words in warning for warning in warnings)


def test_files_of_another_system_are_found_or_suggested(tmp_path):
    draw(tmp_path, "market/U\u0308.png", "IMG.JPG", "other.png")
    rows = [
        {"file_name": name, "text": "x"}
        for name in ("market\\\u00dc.png", "./market//\u00dc.png", "img.jpg", "other.png")
    ]
    write_csv(tmp_path, rows)
    archive = read_folder(tmp_path)
    assert archive.ids.tolist() == ["market/\u00dc.png", "market/\u00dc.png#2", "other.png"]
    assert archive.image.names == ("market/U\u0308.png", "market/U\u0308.png", "other.png")
    assert reasons(archive) == {4: 'the picture "img.jpg" is missing (did you mean "IMG.JPG"?)'}


@pytest.mark.parametrize("how", ["copy", "link", "hard link", "spelling"])
def test_a_picture_and_its_copies_stay_in_one_split(tmp_path, how):
    rows = []
    for number, row in enumerate(pictures(tmp_path, 40)):
        file, other = tmp_path / row["file_name"], tmp_path / "pictures" / f"copy {number}.png"
        if how == "copy":
            shutil.copy(file, other)
        elif how == "link":
            other.symlink_to(file)
        elif how == "hard link":
            other.hardlink_to(file)
        else:
            other = tmp_path / "." / "pictures" / ".." / file.relative_to(tmp_path)
        second = f"pictures/../{row['file_name']}" if how == "spelling" else str(other.relative_to(tmp_path))
        rows += [row, row | {"file_name": second}]
    write_csv(tmp_path, rows)
    archive = read_folder(tmp_path)
    assert len(archive) == 80
    of_picture = np.arange(80) // 2
    assert set(of_picture[archive.split("query")]).isdisjoint(of_picture[archive.split("database")])
    assert len(archive.split("query")) == 8
    assert len(set(picture_numbers(archive).tolist())) == 40
    named = [warning for warning in archive.card.warnings if warning.startswith("40 picture files are copies")]
    assert bool(named) == (how != "spelling")


def test_a_copy_is_shown_as_its_own_file(tmp_path):
    (row,) = pictures(tmp_path, 1)
    shutil.copy(tmp_path / row["file_name"], tmp_path / "copy.png")
    write_csv(tmp_path, [row, row | {"file_name": "copy.png"}])
    found = read_folder(tmp_path).image
    assert found.files == (row["file_name"], "copy.png")
    assert found.names[0] == found.names[1]


def test_queries_whose_picture_is_in_the_database_are_left_out(tmp_path):
    rows = pictures(tmp_path, 5)
    shutil.copy(tmp_path / "pictures" / "0.png", tmp_path / "copy.png")
    rows.append({"file_name": "copy.png", "text": "copied"})
    rows.append({"file_name": "./pictures/1.png", "text": "again"})
    rows.append({"file_name": "", "text": "picture 0"})
    parts = ("train", "database", "train", "query", "query", "test", "query", "query")
    write_csv(tmp_path, [row | {"split": part} for row, part in zip(rows, parts, strict=True)])
    archive = read_folder(tmp_path)
    assert [archive.split(name).tolist() for name in ("query", "database", "train")] == [[3, 4, 7], [0, 1, 2], [0, 2]]
    assert archive.card.notes["queries left out because their pictures are in the database"] == "2"
    assert any(
        '(2) are in the database as well: "copy.png", "pictures/1.png#2"' in one for one in archive.card.warnings
    )
    kept = read_folder(tmp_path, keep_shared_queries=True)
    assert kept.split("query").tolist() == [3, 4, 5, 6, 7]
    assert any("(2) are in the database as well" in one for one in kept.card.warnings)


def test_equal_features_in_query_and_database_are_warned_of(tmp_path):
    write_csv(tmp_path, [{"text": "x", "split": part} for part in ("query", "query", "train")])
    np.save(tmp_path / "image.npy", np.array([[1, 2], [3, 4], [3, 4]], np.float32))
    archive = read_folder(tmp_path)
    assert archive.split("query").tolist() == [0, 1]
    assert any('queries (1) equal those of an item of the database: "row-3"' in one for one in archive.card.warnings)


@pytest.mark.parametrize("column", ["file_name", "picture"])
def test_rows_of_given_features_belong_to_one_picture_however_it_is_written(tmp_path, column):
    spellings = ("x/{}.png", "x\\{}.png", "./x//{}.png\u200b")
    rows = [{column: spelling.format(number), "text": "x"} for number in range(20) for spelling in spellings]
    write_csv(tmp_path, rows)
    np.save(tmp_path / "image.npy", np.random.default_rng(0).normal(size=(60, 4)))
    archive = read_folder(tmp_path)
    of_picture = np.arange(60) // 3
    assert set(of_picture[archive.split("query")]).isdisjoint(of_picture[archive.split("database")])
    assert picture_numbers(archive).tolist() == picture_numbers(archive)[of_picture * 3].tolist()
    assert len(set(picture_numbers(archive).tolist())) == 20


def test_copies_beside_given_features_are_one_picture(tmp_path):
    rows = pictures(tmp_path, 3)
    shutil.copy(tmp_path / "pictures" / "0.png", tmp_path / "pictures" / "2.png")
    write_csv(tmp_path, [row | {"split": part} for row, part in zip(rows, ("train", "query", "query"), strict=True)])
    np.save(tmp_path / "image.npy", np.eye(3))
    archive = read_folder(tmp_path)
    assert archive.split("query").tolist() == [1]
    assert any(warning.startswith("1 picture file is a copy") for warning in archive.card.warnings)
    (tmp_path / "pictures" / "0.png").write_bytes(b"damaged")
    assert len(read_folder(tmp_path)) == 3


def test_columns_of_embedded_pictures_are_warned_of(tmp_path):
    (tmp_path / "metadata.jsonl").write_text('{"text": "x", "image": "data:image/png;base64,iVBOR"}\n')
    assert any('The column "image" holds pictures themselves' in one for one in read_folder(tmp_path).card.warnings)
