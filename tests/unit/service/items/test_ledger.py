from __future__ import annotations

from pathlib import Path

import pytest

from silohash.base.errors import DamagedFile
from silohash.service.items.ledger import Entry, Ledger


def test_entries_outlive_the_process(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "items.sqlite")
    entries = [
        Entry("a", "1", "indexed"),
        Entry("b", "2", "pending", replaced=True),
        Entry("c", "3", "skipped", "it is damaged"),
        Entry("d", "4", "removed", replaced=True),
    ]
    ledger.write(entries)
    ledger.close()
    ledger = Ledger(tmp_path / "items.sqlite")
    assert [ledger.entry(entry.id) for entry in entries] == entries
    assert ledger.entry("e") is None
    assert ledger.stamps() == {"a": "1", "b": "", "c": "3", "d": "4"}
    assert ledger.stamps(again=True) == {"a": "1", "b": "", "c": "", "d": "4"}
    assert ledger.indexed_ids() == {"a", "b"}
    assert ledger.counts() == {"indexed": 1, "pending": 1, "skipped": 1, "removed": 1}
    ledger.write([Entry("a", "9", "skipped")])
    ledger.forget(["b", "none"])
    assert ledger.stamps() == {"a": "9", "c": "3", "d": "4"}
    ledger.close()


def test_pages_follow_each_other(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "items.sqlite")
    ledger.write(Entry(name, "", "removed" if name in "bef" else "indexed") for name in "dgbcfeah")
    assert [entry.id for entry in ledger.page("", 3)] == ["a", "c", "d"], "removed items take no place of a page"
    assert [entry.id for entry in ledger.page("d", 3)] == ["g", "h"]
    ledger.close()


def test_a_failed_write_changes_nothing(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "items.sqlite")

    def entries():
        yield Entry("a", "1", "indexed")
        raise RuntimeError

    with pytest.raises(RuntimeError):
        ledger.write(entries())
    with pytest.raises(TypeError):
        ledger.write([Entry("a", "1", "indexed"), None])  # type: ignore[list-item]
    assert ledger.stamps() == {}
    ledger.close()


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "items.sqlite").write_bytes(b"not a database " * 100)
    with pytest.raises(DamagedFile, match=r"items\.sqlite"):
        Ledger(tmp_path / "items.sqlite")
