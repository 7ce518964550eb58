"""Archives are found by name or path, and a mistyped name, option or value is answered with the nearest."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pytest

from silohash.data.archive import as_texts
from silohash.data.catalogue import ARCHIVES, FOLDER, open_archive
from silohash.data.splits import default_splits
from silohash.types import UserError


@pytest.mark.parametrize("target", [*ARCHIVES.values(), FOLDER])
def test_every_name_leads_to_a_function(target):
    module, _, attribute = target.partition(":")
    assert callable(getattr(importlib.import_module(module), attribute))


def test_by_name_with_options():
    archive = open_archive("glyphs", options={"faces": 1, "limit": 50})
    assert archive.card.name == "glyphs"
    assert 0 < len(archive) <= 50


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"name": "glyph"}, 'no archive "glyph" .did you mean "glyphs".'),
        ({"name": "glyphs", "options": {"face": 1}}, 'no option "face" .did you mean "faces".'),
        ({"name": "wiki-sift-lda", "options": {"image": "jpeg"}}, "its options are: database"),
        ({"name": None}, "neither is set"),
        ({"name": "glyphs", "path": Path("x")}, 'both name = "glyphs" and path = "x" are set'),
        ({"name": "coco18", "options": {"text": "minlm"}}, 'text cannot be "minlm" .did you mean "minilm".'),
        ({"name": None, "path": Path("x"), "options": {"labls": ()}}, 'A folder has no option "labls"'),
    ],
)
def test_mistakes_are_named(arguments, words):
    with pytest.raises(UserError, match=words):
        open_archive(**arguments)


def test_without_the_shared_data_one_is_told_where_it_goes(monkeypatch, tmp_path):
    monkeypatch.setenv("SILOHASH_DATA", str(tmp_path))
    with pytest.raises(UserError, match=r"coco18.pairs\.csv is missing.*SILOHASH_DATA"):
        open_archive("coco18")
    monkeypatch.setenv("SILOHASH_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(UserError, match="nowhere, which is not a folder"):
        open_archive("coco18")


def test_damaged_shared_tables_are_named(monkeypatch, tmp_path):
    monkeypatch.setenv("SILOHASH_DATA", str(tmp_path))
    (tmp_path / "fashion").mkdir()
    (tmp_path / "fashion" / "pairs.csv").write_bytes(b"row,title\n0,\xff\xfe\n")
    with pytest.raises(UserError, match=r"pairs\.csv is damaged"):
        open_archive("fashion")


@pytest.mark.parametrize(("count", "queries"), [(2, 1), (20, 2), (1000, 100), (30_000, 2000)])
def test_default_splits_ask_with_a_tenth(count, queries):
    splits = default_splits([f"item {number}" for number in range(count)])
    assert len(splits["query"]) == queries
    assert np.array_equal(splits["train"], splits["database"])
    assert sorted([*splits["query"], *splits["database"]]) == list(range(count))


def test_default_splits_follow_the_keys_and_not_their_order():
    keys = [f"item {number}" for number in range(200)]
    first = {keys[row] for row in default_splits(keys)["query"]}
    turned = keys[::-1]
    assert {turned[row] for row in default_splits(turned)["query"]} == first


def test_items_of_one_picture_stay_on_one_side():
    keys = [f"picture {number // 5}" for number in range(500)]
    splits = default_splits(keys)
    asked = {keys[row] for row in splits["query"]}
    assert asked.isdisjoint(keys[row] for row in splits["database"])
    assert len(splits["query"]) == 50


def test_items_with_both_modalities_ask_first():
    whole = np.arange(100) % 2 == 0
    splits = default_splits([str(number) for number in range(100)], whole)
    assert whole[splits["query"]].all()


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
    others = archive.with_splits({"query": rows[:1], "database": rows[1:], "train": rows[2:]})
    assert others.card.digest != archive.card.digest
