"""The central data type refuses what does not belong together, and answers what it holds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from silohash.base.errors import InvalidArchive, ModalityNeeded, UnknownName
from silohash.data.archive import Archive, ArchiveCard, Pictures, as_texts, is_features, longest_text, multi_hot
from silohash.data.catalogue import open_archive

CARD = ArchiveCard(name="toy", source="this test", license="CC0")


class Squares:
    """Four gray squares that are made when they are asked for."""

    def __len__(self) -> int:
        return 4

    def picture(self, row: int) -> Image.Image:
        return Image.new("L", (2, 2), row)

    def digest(self) -> str:
        return "squares"


def archive(**changes: Any) -> Archive:
    values: dict[str, Any] = {
        "ids": np.array(["a", "b", "c", "d"]),
        "image": Squares(),
        "text": np.array(["one", "two", "", "four"]),
        "labels": np.array([[1, 0], [1, 1], [0, 0], [0, 1]], np.uint8),
        "label_names": ("cat", "dog"),
        "splits": {"query": np.array([0]), "database": np.array([1, 2, 3]), "train": np.array([1, 2])},
        "card": CARD,
    }
    return Archive(**(values | changes))


def test_queries_stand_in_the_database_only_where_that_is_said() -> None:
    splits = {"query": np.array([0]), "database": np.array([0, 1]), "train": np.array([1])}
    with pytest.raises(InvalidArchive):
        archive(splits=splits)
    assert archive(splits=splits, query_in_database=True).split("database").tolist() == [0, 1]


def test_an_archive_prints_as_two_lines() -> None:
    made = archive(card=replace(CARD, name="t\x1boy", skipped=("row 7: bad",) * 1000, notes={"relevant": "x" * 1000}))
    assert repr(made) == (
        'Archive("t⟨U+001B⟩oy": 4 items, 4 with an image, 4 with a text, 2 labels,\n'
        "  splits: query 1, database 3, train 2)"
    )
    assert "1 with a text" in repr(archive(has_text=np.array([True, False, False, False])))
    assert "splits: none" in repr(archive(splits={}))
    assert len(repr(made.card)) < 200


def test_archive_answers_what_it_holds() -> None:
    toy = archive()
    assert len(toy) == 4
    assert toy.split("train").tolist() == [1, 2]
    assert toy.values("text") is toy.text
    assert toy.values("image") is toy.image
    assert toy.caption(1) == "two"
    assert [toy.labels_of(row) for row in range(4)] == [["cat"], ["cat", "dog"], [], ["dog"]]
    assert isinstance(toy.image, Pictures)
    assert toy.pictures() is toy.image


def test_without_labels_no_item_has_any() -> None:
    assert archive(labels=None, label_names=()).labels_of(0) == []


def test_a_modality_is_there_for_all_items_or_none_unless_it_is_said() -> None:
    assert archive().has("image").tolist() == [True] * 4
    assert archive(text=None).has("text").tolist() == [False] * 4
    some = np.array([True, False, True, True])
    assert archive(has_text=some).has("text").tolist() == some.tolist()
    assert archive(has_text=some).has("image").tolist() == [True] * 4


def test_captions_and_previews_stand_for_features() -> None:
    features = np.zeros((4, 3), np.float32)
    bare = archive(image=features, text=features)
    assert bare.caption(0) == ""
    assert bare.pictures() is None
    shown = archive(image=features, text=features, captions=np.array(["w", "x", "y", "z"]), preview=Squares())
    assert shown.caption(3) == "z"
    assert isinstance(shown.pictures(), Squares)


@pytest.mark.parametrize(
    ("column", "expected"),
    [(np.zeros((2, 3), np.float32), True), (np.array(["a"]), False), (Squares(), False), (None, False)],
)
def test_features_are_told_from_strings_and_pictures(column: object, expected: bool) -> None:
    assert is_features(column) is expected


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"text": np.array(["one"])}, r"text.*1.*4"),
        ({"image": np.zeros((5, 2), np.float32)}, "5"),
        ({"labels": np.zeros((3, 2), np.uint8)}, "3"),
        ({"has_image": np.array([True])}, "has_image"),
        ({"captions": np.array(["x"])}, "captions"),
        ({"columns": {"script": np.array(["x"])}}, "script"),
        ({"ids": np.array(["a", "b", "b", "d"])}, None),
        ({"label_names": ("cat",)}, r"2.*1"),
        ({"splits": {"query": np.array([4])}}, r"query.*3"),
        ({"splits": {"train": np.array([-1])}}, r"train.*3"),
        ({"splits": {"query": np.array([0, 2]), "database": np.array([2, 0])}}, "1"),
    ],
)
def test_what_does_not_belong_together_is_named(changes: dict[str, Any], words: str | None) -> None:
    with pytest.raises(InvalidArchive, match=words) as error:
        archive(**changes)
    assert str(error.value).startswith('Archive "toy": ')


def test_every_column_of_an_empty_archive_may_be_empty() -> None:
    empty = archive(
        ids=np.array([], np.str_),
        image=None,
        text=np.array([], np.str_),
        labels=np.zeros((0, 2), np.uint8),
        splits={"query": np.array([], np.int64), "database": np.array([], np.int64)},
    )
    assert len(empty) == 0
    assert empty.has("image").shape == (0,)


def test_unknown_split_says_which_there_are() -> None:
    with pytest.raises(UnknownName, match='has no split "test"; it has: query, database, train'):
        archive().split("test")


def test_one_modality_is_kept_and_both_are_shown() -> None:
    toy = archive()
    pictures, texts = toy.of_modality("image"), toy.of_modality("text")
    assert pictures.text is None
    assert not pictures.has_text.any()
    assert pictures.has_image.all()
    assert [pictures.caption(row) for row in range(4)] == ["one", "two", "", "four"]
    assert texts.image is None
    assert texts.pictures() is toy.pictures()
    assert len({toy.with_digest().card.digest, pictures.card.digest, texts.card.digest}) == 3
    with pytest.raises(ModalityNeeded, match="image"):
        texts.of_modality("image")


def test_one_very_long_text_does_not_widen_every_row(monkeypatch):
    monkeypatch.setattr("silohash.data.archive.TEXT_CELLS", 3000)
    texts, cut = as_texts(["x" * 5000, "short", "y" * 900])
    assert cut == 1
    assert [len(text) for text in texts] == [1000, 5, 900]
    untouched, none = as_texts(["a", ""])
    assert (untouched.tolist(), none) == (["a", ""], 0)


def test_an_archives_digest_follows_its_content():
    archive = open_archive("glyphs", options={"faces": 1, "limit": 40})
    assert archive.with_digest().card.digest == archive.card.digest
    rows = archive.split("database")
    others = replace(archive, splits={"query": rows[:1], "database": rows[1:], "train": rows[2:]}).with_digest()
    assert others.card.digest != archive.card.digest


def test_rows_that_do_not_exist_are_named_before_rows_in_both_splits() -> None:
    with pytest.raises(InvalidArchive, match=r"query.*3"):
        archive(splits={"query": np.array([9]), "database": np.array([9])})


def test_traits_that_an_archive_lacks_unless_they_are_given() -> None:
    toy = archive()
    assert (toy.query_in_database, toy.automatic_splits, toy.folder) == (False, False, None)
    card = ArchiveCard("a", "b", "c", warnings=("x",), skipped=("y", "z"))
    assert card.remarks() == ["warning: x", "skipped: y", "skipped: z"]


def test_queries_that_are_not_searched() -> None:
    splits = {"query": np.array([2, 0]), "database": np.array([0, 1])}
    assert archive(splits=splits, query_in_database=True).held_out().tolist() == [2]
    assert archive(splits={"query": np.array([3, 1])}).held_out().tolist() == [1, 3]
    assert archive(splits={}).held_out().tolist() == []


@pytest.mark.parametrize(("count", "longest"), [(0, 1 << 29), (2, 1 << 28), (1 << 20, 512), (1 << 22, 256)])
def test_texts_may_be_as_long_as_memory_allows(count: int, longest: int) -> None:
    assert longest_text(count) == longest


def test_texts_of_the_longest_length_are_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("silohash.data.archive.TEXT_CELLS", 600)
    texts, cut = as_texts(["x" * 300, "y" * 301])
    assert ([len(text) for text in texts], cut) == ([300, 300], 1)


def test_labels_as_a_table() -> None:
    table = multi_hot([["b"], [], ["a", "b"]], ("a", "b"))
    assert (table.tolist(), table.dtype) == ([[0, 1], [0, 0], [1, 1]], np.uint8)
    with pytest.raises(KeyError):
        multi_hot([["c"]], ("a",))


def test_digests_of_columns_held_in_arrays_and_in_files() -> None:
    toy = archive().with_digest()
    for changed in (
        archive(text=np.array(["one", "two", "", "five"])),
        archive(labels=np.zeros((4, 2), np.uint8)),
        archive(label_names=("cat", "cow")),
        archive(ids=np.array(["a", "b", "c", "e"])),
        archive(image=None),
    ):
        assert changed.with_digest().card.digest != toy.card.digest
    assert archive(columns={"place": np.array(list("wxyz"))}).with_digest().card.digest == toy.card.digest
