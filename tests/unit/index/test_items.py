"""The rows of items: checks before they are written, previews, labels, and damage."""

from __future__ import annotations

import json
import sqlite3

import numpy as np
import pytest

from silohash.base.errors import DamagedFile, RepeatedValue, UserError, WrongType
from silohash.index import items
from silohash.index.base import IndexManifest
from silohash.index.items import KeptRows, _as_key, check_items
from silohash.index.store import Store

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
    with Store(fill(path)) as store:
        found = store.label_keys()
        assert {label: keys.tolist() for label, keys in found.items()} == {"red": [0, 1, 2], "blue": [1]}
        store.remove(["a"])
        assert store.label_keys()["red"].tolist() == [1, 2]


def test_first_payloads(path):
    with Store(fill(path)) as store:
        assert store.first_payloads(2) == [{"labels": ["red"]}, {"labels": ["red", "blue", "red"]}]
        store.add(["e"], np.array([[9]], np.uint16))
        assert len(store.first_payloads(99)) == 4, "an item without a payload is left out"
    change(path, "UPDATE items SET payload = '{}' WHERE id = 'b'")
    with Store(path) as store, pytest.raises(DamagedFile, match="1"):
        store.first_payloads(2)


def test_a_file_without_previews_has_no_table_for_them(path):
    fill(path)
    assert "previews" not in tables(path)
    with Store(path) as store:
        assert store.previews(list("abcd")) == {}
        store.add(["e"], np.array([[9]], np.uint16), None, [PNG + b"e"])
        assert store.previews(list("abcde")) == {"e": PNG + b"e"}


def test_previews_follow_their_items(path):
    with Store(fill(path, [PNG + b"a", None, PNG + b"c", PNG + b"d"])) as store:
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
    with Store(path) as store:
        assert set(store.previews(["a", "b"])) == {"a", "b"}
        with pytest.raises(DamagedFile, match="2"):
            store.previews(["c"])


@pytest.mark.parametrize("statement", ["UPDATE items SET payload = '{}'", "UPDATE items SET id = id || 'x'"])
def test_a_damaged_row_is_refused(path, statement):
    change(fill(path), f"{statement} WHERE key = 1")
    with Store(path) as store:
        for read in (lambda: store.payloads(np.array([1])), lambda: store.item_ids(np.array([1])), store.label_keys):
            with pytest.raises(DamagedFile, match="1"):
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
    with Store(fill(path)) as store:
        assert store._rows.find(list("dxbca")).tolist() == [3, -1, 1, 2, 0]
        assert store._rows.find([]).tolist() == []


def test_an_id_of_the_same_call_is_given_twice(path):
    with Store(fill(path)) as store:
        assert store._rows.replaced(["c", "a", "x"], 4).tolist() == [0, 2]
        assert store._rows.replaced(["d"], 4).tolist() == [3]
        with pytest.raises(RepeatedValue):
            store._rows.replaced(["d"], 3)


def test_long_payloads_are_cut_in_the_message():
    with pytest.raises(WrongType, match=f"'{'x' * 40}'"):
        check_items(1, None, ["x" * 50], None)


def test_rows_of_a_file_without_ids(path):
    with Store.create(path, IndexManifest("m", 16, "image")) as store:
        store.add(None, np.arange(3, dtype=np.uint16)[:, None])
        store.remove(["1"])
        assert store._rows.find(["0", "1", "2", "3", "-1", "00"]).tolist() == [0, -1, 2, -1, -1, -1]
        assert store.payloads(np.array([2, 0])) == [{}, {}]


def rows_of(*names):
    """Return rows with the keys 0, 1, ...; every second item has labels."""
    payloads = [{"caption": f"über {name}", "labels": [name, "all"][: key % 2 * 2]} for key, name in enumerate(names)]
    texts = [json.dumps(payload, ensure_ascii=False) for payload in payloads]
    return [(key, name, None if name == "none" else texts[key]) for key, name in enumerate(names)]


def test_kept_rows_are_those_of_the_file(path):
    names = ["a", "b", "none", "ö", "c d", "e"]
    rows = rows_of(*names)
    with Store.create(path, IndexManifest("m", 16, "image")) as store:
        store.add(names[:2], np.arange(2, dtype=np.uint16)[:, None], [text for *_, text in rows[:2]])
        store.add(names[2:3], np.array([[2]], np.uint16))
        store.add(names[3:], np.arange(3, 6, dtype=np.uint16)[:, None], [text for *_, text in rows[3:]])
        kept = store.kept_rows(np.arange(6))
        for keys in ([], [4], [5, 0, 2, 3], [1, 1]):
            assert kept.read(keys) == store.rows(keys)
        assert kept.read([2]) == [("none", {})]
        assert kept.read([3]) == [("ö", {"caption": "über ö", "labels": ["ö", "all"]})]
        found = kept.label_keys(np.arange(6))
        assert {name: keys.tolist() for name, keys in found.items()} == {
            name: keys.tolist() for name, keys in store.label_keys().items()
        }
        assert found["all"].tolist() == [1, 3, 5]
        for absent in ([6], [-1], [0, 99]):
            with pytest.raises(KeyError, match=str(absent[-1])):
                kept.read(absent)


@pytest.mark.parametrize("at_once", [1, 2, 3, 100])
def test_kept_rows_follow_changes(monkeypatch, at_once):
    monkeypatch.setattr(items, "ENTRY_ROWS", at_once)
    rows = rows_of(*"abcdefgh")
    kept = KeptRows().changed(rows[:5], np.arange(5), 10_000)
    assert (KeptRows().last_key, kept.last_key) == (-1, 4)
    live = np.array([0, 3, 4, 5, 7])
    after = kept.changed(rows[5:], live, 10_000)
    assert [name for name, _ in after.read([7, 0, 3])] == ["h", "a", "d"]
    assert after.read([5]) == [("f", {"caption": "über f", "labels": ["f", "all"]})]
    assert after.label_keys(live)["all"].tolist() == [3, 5, 7]
    assert "b" not in after.label_keys(live)
    assert after.last_key == 7
    for removed in (1, 2):
        with pytest.raises(KeyError):
            after.read([removed])
        assert kept.read([removed]), "queries that began before the change still find it"
    contents = b"".join(part.content for part in after._parts)
    assert "über d".encode() in contents
    assert "über b".encode() not in contents, "a removed item leaves the memory"


def test_many_small_changes_are_joined(monkeypatch):
    monkeypatch.setattr(items, "ENTRY_ROWS", 4)
    rows, kept = rows_of(*"abcdefgh"), KeptRows()
    for count, sizes in enumerate(([1], [2], [2, 1], [4], [4, 1], [4, 2], [4, 2, 1], [4, 4]), 1):
        kept = kept.changed(rows[count - 1 : count], np.arange(count), 10_000)
        assert [len(part.keys) for part in kept._parts] == sizes
        assert [name for name, _ in kept.read(range(count))] == list("abcdefgh"[:count])
    assert kept.label_keys(np.arange(8))["all"].tolist() == [1, 3, 5, 7]


def test_the_memory_of_kept_rows_is_limited(path):
    rows = rows_of(*"abcdef")
    kept = KeptRows().changed(rows, np.arange(6), 10_000)
    text = sum(len(name) + len(payload.encode()) for _, name, payload in rows)
    assert kept.memory_bytes == text + 6 * 20 + 8 * 6, "two labels for each of three items"
    assert KeptRows().changed(rows, np.arange(6), kept.memory_bytes) is not None
    assert KeptRows().changed(rows, np.arange(6), kept.memory_bytes - 1) is None
    with Store(fill(path)) as store:
        assert store.kept_rows(np.arange(4), most_bytes=10) is None


def test_items_without_ids_are_not_kept(path):
    with Store.create(path, IndexManifest("m", 16, "image")) as store:
        store.add(None, np.arange(3, dtype=np.uint16)[:, None])
        assert store.kept_rows(np.arange(3)) is None


def test_damaged_rows_are_not_kept(path):
    fill(path)
    change(path, "UPDATE items SET payload = '{}' WHERE id = 'b'")
    with Store(path) as store, pytest.raises(DamagedFile, match="1"):
        store.kept_rows(np.arange(4))
