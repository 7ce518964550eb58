"""SQLite files: connections, changes, and what errors say."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from silohash.base import sqlite_files
from silohash.base.errors import DamagedFile, DiskFull, InUse, UnreadableFile, UserError


@pytest.mark.parametrize(
    ("code", "kind", "message"),
    [
        ("SQLITE_BUSY_SNAPSHOT", InUse, None),
        ("SQLITE_READONLY_DBMOVED", UnreadableFile, None),
        ("SQLITE_CANTOPEN", UnreadableFile, None),
        ("SQLITE_PERM", UnreadableFile, None),
        ("SQLITE_IOERR_READ", UnreadableFile, None),
        ("SQLITE_FULL", DiskFull, None),
        ("SQLITE_CORRUPT_VTAB", DamagedFile, None),
        (None, DamagedFile, None),
    ],
)
def test_errors_of_the_database_are_translated(tmp_path, code, kind: type[UserError], message: str | None):
    error = sqlite3.DatabaseError("something")
    if code:
        error.sqlite_errorcode = getattr(sqlite3, code)
    with pytest.raises(kind, match=message), sqlite_files.explaining_database_errors(tmp_path / "x.sqlite"):
        raise error


def test_a_programming_error_is_not_an_error_of_the_user(tmp_path):
    with pytest.raises(sqlite3.ProgrammingError), sqlite_files.explaining_database_errors(tmp_path / "x.sqlite"):
        raise sqlite3.ProgrammingError


def written(path):
    """Write a database with one row."""
    with closing(sqlite_files.connect(path, mode="rwc")) as connection:
        connection.executescript("CREATE TABLE t (x); INSERT INTO t VALUES (7)")
    return path


def test_the_signature_changes_with_the_file(tmp_path):
    path = written(tmp_path / "a.sqlite")
    before = sqlite_files.signature(path)
    assert sqlite_files.signature(path) == before
    with closing(sqlite_files.connect_and_read(path)) as connection:
        connection.executemany("INSERT INTO t VALUES (?)", [(number,) for number in range(5_000)])
    changed = sqlite_files.signature(path)
    assert changed[0] == before[0]
    assert changed[1] > before[1]
    path.with_name("copy").write_bytes(path.read_bytes())
    assert sqlite_files.signature(path.with_name("copy"))[0] != changed[0]


def test_a_file_is_not_created_unless_that_is_wanted(tmp_path):
    path = tmp_path / "a.sqlite"
    with pytest.raises(sqlite3.OperationalError):
        sqlite_files.connect_and_read(path)
    assert not path.exists()
    assert written(path).exists()


def test_a_connection_does_not_write_if_it_only_reads(tmp_path):
    path = written(tmp_path / "a.sqlite")
    for immutable in (False, True):
        with closing(sqlite_files.connect(path, mode="ro", immutable=immutable)) as connection:
            assert connection.execute("SELECT x FROM t").fetchall() == [(7,)]
            with pytest.raises(sqlite3.OperationalError, match="readonly"):
                connection.execute("DELETE FROM t")


def test_a_transaction_is_applied_as_a_whole_or_not_at_all(tmp_path):
    with closing(sqlite_files.connect(tmp_path / "a.sqlite", mode="rwc")) as connection:
        connection.execute("CREATE TABLE numbers (number INTEGER UNIQUE)")
        with sqlite_files.transaction(connection):
            connection.execute("INSERT INTO numbers VALUES (1)")
        with pytest.raises(sqlite3.IntegrityError), sqlite_files.transaction(connection):
            connection.executemany("INSERT INTO numbers VALUES (?)", [(2,), (2,)])
        assert connection.execute("SELECT number FROM numbers").fetchall() == [(1,)]
        assert not connection.in_transaction
