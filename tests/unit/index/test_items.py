"""The rows of items: checks before they are written, previews, labels, and damage."""

from __future__ import annotations

import json
import sqlite3

import numpy as np
import pytest

from silohash.index.base import IndexManifest
from silohash.index.items import _as_key, check_items
from silohash.index.store import Store
from silohash.types import UserError

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "image.sqlite"


def fill(path, previews=None):
    """Write four items: "a" and "c" are red, "b" is red and blue, "d" has no payload to speak of."""
    labels = (["red"], ["red", "blue", "red"], ["red"], None)
    payloads = [json.dumps({} if names is None else {"labels": names}) for names in labels]
    with Store.create(path, IndexManifest("m", 16, "image")) as store:
        store.add(list("abcd"), np.arange(4, dtype=np.uint16)[:, None], payloads, previews)
    return path


def tables(path):
    connection = sqlite3.connect(path)
    names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    connection.close()
    return names


def change(path, statement):
    connection = sqlite3.connect(path)
    connection.execute(statement)
    connection.commit()
    connection.close()


def test_keys_by_label(path):
    with Store.open(fill(path)) as store:
        found = store.label_keys()
        assert {label: keys.tolist() for label, keys in found.items()} == {"red": [0, 1, 2], "blue": [1]}
        store.remove(["a"])
        assert store.label_keys()["red"].tolist() == [1, 2]


def test_first_payloads(path):
    with Store.open(fill(path)) as store:
        assert store.first_payloads(2) == [{"labels": ["red"]}, {"labels": ["red", "blue", "red"]}]
        store.add(["e"], np.array([[9]], np.uint16))
        assert len(store.first_payloads(99)) == 4, "an item without a payload is left out"
    change(path, "UPDATE items SET payload = '{}' WHERE id = 'b'")
    with Store.open(path) as store, pytest.raises(UserError, match="checksum of item 1 is wrong"):
        store.first_payloads(2)


def test_a_file_without_previews_has_no_table_for_them(path):
    fill(path)
    assert tables(path) == {"head", "log", "items"}
    with Store.open(path) as store:
        assert store.previews(list("abcd")) == {}
        store.add(["e"], np.array([[9]], np.uint16), None, [PNG + b"e"])
        assert store.previews(list("abcde")) == {"e": PNG + b"e"}


def test_previews_follow_their_items(path):
    with Store.open(fill(path, [PNG + b"a", None, PNG + b"c", PNG + b"d"])) as store:
        assert store.previews(["c", "b", "nobody", "a"]) == {"a": PNG + b"a", "c": PNG + b"c"}
        store.add(["c"], np.array([[7]], np.uint16), None, [PNG + b"new"])
        assert store.previews(["c"]) == {"c": PNG + b"new"}
        store.add(["a"], np.array([[7]], np.uint16))
        assert store.previews(["a"]) == {}
        store.remove(["d"])
        store.compact()
        assert store.previews(list("abcd")) == {"c": PNG + b"new"}
    assert PNG + b"d" not in path.read_bytes(), "what was removed is erased from the file"


def test_a_damaged_preview_is_refused(path):
    fill(path, [PNG] * 4)
    change(path, "UPDATE previews SET picture = x'00' WHERE key = 2")
    with Store.open(path) as store:
        assert set(store.previews(["a", "b"])) == {"a", "b"}
        with pytest.raises(UserError, match="checksum of item 2"):
            store.previews(["c"])


@pytest.mark.parametrize("statement", ["UPDATE items SET payload = '{}'", "UPDATE items SET id = id || 'x'"])
def test_a_damaged_row_is_refused(path, statement):
    change(fill(path), f"{statement} WHERE key = 1")
    with Store.open(path) as store:
        for read in (lambda: store.payloads(np.array([1])), lambda: store.item_ids(np.array([1])), store.label_keys):
            with pytest.raises(UserError, match="checksum of item 1"):
                read()


@pytest.mark.parametrize(
    ("ids", "payloads", "previews", "message"),
    [
        (["a"], None, None, "2 codes but 1 ids"),
        (None, ["{}"], None, "2 codes but 1 payloads"),
        (None, None, [None] * 3, "2 codes but 3 previews"),
        (["a", ""], None, None, "cannot be the id"),
        (["a", "b\0"], None, None, "cannot be the id"),
        (["a", "b\ud800"], None, None, "cannot be the id"),
        (None, ["{}", "[1]"], None, "item 1 is not a JSON object"),
        (None, ["{", "{}"], None, "item 0 is not a JSON object"),
    ],
)
def test_items_that_are_refused(ids, payloads, previews, message):
    with pytest.raises(UserError, match=message):
        check_items(2, ids, payloads, previews)


def test_items_that_are_accepted():
    check_items(2, None, None, None)
    check_items(2, ["a", "日本"], ["{}", '{"a": [1]}'], [None, PNG])
    check_items(0, [], [], [])


@pytest.mark.parametrize(
    ("name", "key"), [("0", 0), ("7", 7), ("1" * 18, int("1" * 18)), ("07", -1), ("x", -1), ("٣", -1), ("9" * 19, -1)]
)
def test_only_plain_numbers_spell_keys(name: str, key: int) -> None:
    assert _as_key(name) == key


def test_ids_are_found_in_parts(path, monkeypatch):
    monkeypatch.setattr("silohash.index.items.ENTRY_ROWS", 2)
    with Store.open(fill(path)) as store:
        assert store._rows.find(list("dxbca")).tolist() == [3, -1, 1, 2, 0]
        assert store._rows.find([]).tolist() == []


def test_an_id_of_the_same_call_is_given_twice(path):
    with Store.open(fill(path)) as store:
        assert store._rows.replaced(["c", "a", "x"], 4).tolist() == [0, 2]
        assert store._rows.replaced(["d"], 4).tolist() == [3]
        with pytest.raises(UserError, match="given twice"):
            store._rows.replaced(["d"], 3)


def test_long_payloads_are_cut_in_the_message():
    with pytest.raises(UserError, match=f"'{'x' * 40}'"):
        check_items(1, None, ["x" * 50], None)


def test_rows_of_a_file_without_ids(path):
    with Store.create(path, IndexManifest("m", 16, "image")) as store:
        store.add(None, np.arange(3, dtype=np.uint16)[:, None])
        store.remove(["1"])
        assert store._rows.find(["0", "1", "2", "3", "-1", "00"]).tolist() == [0, -1, 2, -1, -1, -1]
        assert store.payloads(np.array([2, 0])) == [{}, {}]
