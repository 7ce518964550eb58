"""The file of an index: damage, full disks, killed writers and foreign files."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from silohash.base import sqlite_files
from silohash.base.errors import AlreadyExists, DamagedFile, DiskFull, InUse, NotIndexed, UserError, WrongKindOfFile
from silohash.index import database
from silohash.index.base import FORMAT_VERSION, IndexManifest
from silohash.index.database import checksum_of, row_checksum
from silohash.index.digests import item_digests
from silohash.index.store import Store
from tests.read_only import python_on_read_only
from tests.unit.index.stores import MANIFEST, filled, magnitudes, names, words


def test_missing_foreign_and_existing_files(path, tmp_path):
    with pytest.raises(NotIndexed):
        Store(path)
    filled(path)
    with pytest.raises(AlreadyExists, match="already"):
        Store.create(path, MANIFEST)
    other = tmp_path / "other.sqlite"
    connection = sqlite3.connect(other)
    connection.execute("CREATE TABLE t (x)")
    connection.close()
    for content in (None, b"", b"just some text" * 100):
        if content is not None:
            other.write_bytes(content)
        with pytest.raises(UserError, match=r"not a silohash index|damaged"):
            Store(other)


@pytest.mark.parametrize("version", [FORMAT_VERSION - 1, FORMAT_VERSION + 1])
def test_another_format_is_refused(path, version):
    connection = sqlite3.connect(filled(path))
    connection.execute(f"PRAGMA user_version = {version}")
    connection.close()
    message = f"has format version {version}, but this silohash reads version {FORMAT_VERSION}"
    with pytest.raises(UserError, match=message):
        Store(path)
    with pytest.raises(UserError, match=message):
        IndexManifest("d", 64, "image", format_version=version)


def test_a_head_of_another_form_is_refused(path):
    with sqlite3.connect(filled(path)) as connection:
        [(content,)] = connection.execute("SELECT content FROM head").fetchall()
        changed = content.replace('"bits"', '"color": 1, "bits"')
        connection.execute("UPDATE head SET content = ?, checksum = ?", (changed, checksum_of(changed)))
    with pytest.raises(DamagedFile):
        Store(path)


def everything(path):
    with Store(path) as store:
        keys = store.load().keys
        previews = store.previews(names(3))
        codes = [packed.tolist() for _, packed in store._database.live()]
        return codes, store.item_ids(keys), store.payloads(keys), previews, store.manifest


@pytest.mark.parametrize("share", [0.02, 0.3, 0.6, 0.9])
def test_a_truncated_file_is_refused(path, share):
    filled(path, 400)
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    with pytest.raises(UserError):
        everything(path)


def test_a_flipped_bit_never_changes_an_answer(path):
    """Any bit of the file: the answer is the same, or the file is refused in a sentence."""
    filled(path)
    whole, expected = path.read_bytes(), everything(path)
    generator, refused = np.random.default_rng(5), 0
    for place in generator.integers(0, len(whole), 150):
        content = bytearray(whole)
        content[place] ^= 1 << int(generator.integers(8))
        path.write_bytes(bytes(content))
        try:
            assert everything(path) == expected
        except UserError:
            refused += 1
    assert refused > 5


def test_a_removed_entry_of_the_log_is_noticed(path):
    with Store(filled(path)) as store:
        store.remove(["item-0"])
    for entry in (1, 2):
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute("BEGIN")
        connection.execute("DELETE FROM log WHERE entry = ?", (entry,))
        connection.execute("COMMIT")
        connection.close()
        with Store(path) as store, pytest.raises(DamagedFile, match="damaged"):
            store.load()


def test_a_full_disk_leaves_the_old_state(path):
    with Store(filled(path)) as store:
        pages = store._database.connection.execute("PRAGMA page_count").fetchone()[0]
        store._database.connection.execute(f"PRAGMA max_page_count = {pages}").fetchall()
        with pytest.raises(DiskFull):
            store.add(names(30_000, "more"), words(30_000))
        assert len(store) == len(store.load()) == 50
    assert len(everything(path)[1]) == 50


@pytest.mark.whole_run
def test_a_killed_writer_leaves_the_old_state(path):
    filled(path)
    program = f"""
import os, numpy as np
from pathlib import Path
from silohash.index.store import Store
store = Store(Path({str(path)!r}))
with store._database.change():
    store._database.append(np.array([50]), np.zeros((1, 8), np.uint8))
    os._exit(9)
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 9
    assert len(everything(path)[1]) == 50
    with Store(path) as store:
        assert store.add(["later"], words(1)).tolist() == [50]


def test_creation_that_fails_leaves_nothing(path, monkeypatch):
    monkeypatch.setattr(database, "SCHEMA", "CREATE TABLE head (content TEXT); NONSENSE;")
    with pytest.raises(UserError):
        Store.create(path, MANIFEST)
    assert list(path.parent.iterdir()) == []


def test_the_head_shows_changes_by_other_programs(path):
    with Store(filled(path)) as store, Store(path) as other:
        before = store.version()
        assert store.version() == before
        other.remove(["item-1"])
        after = store.version()
        assert after != before
        other.compact()
        assert store.version() != after
        assert len(store.load()) == 49


def test_a_file_that_is_being_changed_is_named(path, monkeypatch):
    monkeypatch.setattr(sqlite_files, "WAIT_SECONDS", 0.01)
    with Store(filled(path)) as store, Store(path) as other, store._database.change():
        with pytest.raises(InUse):
            other.remove(["item-1"])
        store._database.head = store._database.current_head()
    with Store(path) as store:
        assert len(store.load()) == 50


def test_an_index_on_a_read_only_mount_is_read(path):
    filled(path)
    program = """
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
import numpy as np
from silohash.index.store import Store
from silohash.base.errors import UserError
with Store(Path(sys.argv[1])) as store:
    print(len(store.load()), store.item_ids(np.array([3])), store.version() == store.version())
    try:
        store.remove(["item-1"])
    except UserError as error:
        print(error)
"""
    done = python_on_read_only([path.parent], program, path)
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first == "50 ['item-3'] True"
    assert "cannot be read or written" in second
    assert [other.name for other in path.parent.iterdir()] == [path.name]


def test_changes_that_were_not_merged_are_not_left_out_on_a_read_only_mount(path):
    """A program that was killed leaves its last changes beside the file, where SQLite must be able to write."""
    with Store(filled(path)) as store:
        store.add(["later"], words(1), ["{}"])
        copy = path.parent / "copy"
        copy.mkdir()
        for name in (path.name, f"{path.name}-wal"):
            (copy / name).write_bytes((path.parent / name).read_bytes())
    program = """
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from silohash.index.store import Store
from silohash.base.errors import UserError
try:
    Store(Path(sys.argv[1]))
except UserError as error:
    print(error)
"""
    done = python_on_read_only([copy], program, copy / path.name)
    assert f"has changes in {path.name}-wal that cannot be read" in done.stdout, done.stderr
    with Store(copy / path.name) as store:
        assert len(store.load()) == 51


def test_a_file_that_was_opened_as_unchanging_is_opened_again_after_a_change(path, monkeypatch):
    def refusing(place, *, mode="rw", immutable=False):
        if not immutable:
            place = place.parent / "none" / place.name
        return connect(place, mode=mode, immutable=immutable)

    connect = sqlite_files.connect
    filled(path)
    with monkeypatch.context() as patched:
        patched.setattr(sqlite_files, "connect", refusing)
        store = Store(path)
        before = store.version()
        assert store.version() == before
    with Store(path) as other:
        other.remove(["item-1"])
    assert store.version() != before
    assert len(store.load()) == 49
    store.close()


def test_the_kind_and_the_version_of_a_file_stay(path):
    connection = sqlite3.connect(filled(path))
    assert connection.execute("PRAGMA application_id").fetchone() == (0x51105A54,)
    assert connection.execute("PRAGMA user_version").fetchone() == (FORMAT_VERSION,)
    connection.execute("PRAGMA application_id = 7")
    connection.close()
    with pytest.raises(WrongKindOfFile):
        Store(path)


def test_a_new_head_is_empty():
    head = database.Head(MANIFEST)
    assert (head.next_key, head.entries, head.named) == (0, 0, None)


def test_keys_of_live_items(path):
    with Store.create(path, MANIFEST) as store:
        store.add(None, words(5))
        store.remove(["2", "0"])
        found = store._database.is_live(np.array([-1, 0, 1, 2, 4, 5]))
        assert found.tolist() == [False, False, True, False, True, False]
        assert store._database.removed().tolist() == [0, 2]


def test_compaction_writes_entries_of_limited_size(path, monkeypatch):
    monkeypatch.setattr(database, "ENTRY_ROWS", 20)
    with Store(filled(path)) as store:
        store.remove(["item-49"])
        before = store.load().keys.tolist()
        store.compact()
        assert store._database.head.entries == 3
        assert store.load().keys.tolist() == before == list(range(49))


def test_a_wrong_count_is_damage(path):
    with Store(filled(path)) as store:
        head = store._database.head
        store._database.head = database.replace(head, manifest=database.replace(head.manifest, count=49))
        with pytest.raises(DamagedFile, match=r"50.*49"):
            list(store._database.live())


def test_a_file_may_be_read_from_another_thread(path):
    with Store(filled(path)) as store, ThreadPoolExecutor(1) as pool:
        assert len(pool.submit(store.load).result()) == 50


def digest_rows(path):
    connection = sqlite3.connect(path)
    rows = connection.execute("SELECT entry, digests FROM digests ORDER BY entry").fetchall()
    connection.close()
    return [(entry, np.frombuffer(content, "<u8").tolist()) for entry, content in rows]


def with_digests(path, ids):
    with Store.create(path, replace(MANIFEST, silo="north")) as store:
        store.add(ids[:3], words(3))
        store.add(ids[3:], words(len(ids) - 3, seed=1))
    return path


def test_digests_are_stored_per_entry_and_follow_their_items(path):
    ids = list("abcde")
    expected = item_digests(["north"] * 5, ids).tolist()
    assert digest_rows(with_digests(path, ids)) == [(1, expected[:3]), (2, expected[3:])]
    with Store(path) as store:
        assert [part.tolist() for part in store.digests()] == [[0, 1, 2, 3, 4], expected]
        store.remove(["b"])
        assert [part.tolist() for part in store.digests()] == [[0, 1, 2, 3, 4], expected]
        store.compact()
        kept = [expected[0], *expected[2:]]
        assert [part.tolist() for part in store.digests()] == [[0, 2, 3, 4], kept]
        store.remove(list("acde"))
        store.compact()
        assert [part.tolist() for part in store.digests()] == [[], []]
    assert digest_rows(path) == []


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE digests SET checksum = checksum + 1 WHERE entry = 1",
        "UPDATE digests SET digests = x'00' WHERE entry = 1",
        "UPDATE digests SET digests = 7 WHERE entry = 1",
        "DELETE FROM digests WHERE entry = 1",
    ],
)
def test_digests_that_do_not_belong_to_their_entry_are_left_out(path, damage):
    expected = item_digests(["north"] * 2, "de").tolist()
    connection = sqlite3.connect(with_digests(path, list("abcde")))
    connection.execute(damage)
    connection.commit()
    connection.close()
    with Store(path) as store:
        assert [part.tolist() for part in store.digests()] == [[3, 4], expected]
        store.remove(["e"])
        store.compact()
        assert [part.tolist() for part in store.digests()] == [[], []]
        assert len(store.load()) == 4


def test_items_without_ids_or_without_a_silo_have_no_digests(path):
    with Store(filled(path)) as store:
        assert not store._database.has_table("digests")
        assert [part.tolist() for part in store.digests()] == [[], []]


def test_magnitudes_follow_their_items(path):
    with Store(filled(path, 3, outputs=True)) as store:
        store.add(["item-1", "new"], words(2, seed=1), magnitudes=magnitudes(2, seed=1))
        expected = [*magnitudes(3).tolist(), *magnitudes(2, seed=1).tolist()]
        assert [part.tolist() for part in store.magnitudes()] == [[0, 1, 2, 3, 4], expected]
        assert [part.tolist() for part in store.magnitudes(after_entry=1)] == [[3, 4], expected[3:]]
        store.remove(["item-0"])
        store.compact()
        kept = [expected[2], *expected[3:]]
        assert [part.tolist() for part in store.magnitudes()] == [[2, 3, 4], kept]


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE magnitudes SET checksum = checksum + 1",
        "UPDATE magnitudes SET magnitudes = x'00'",
        "UPDATE magnitudes SET magnitudes = 7",
    ],
)
def test_damaged_magnitudes_are_refused(path, damage):
    connection = sqlite3.connect(filled(path, 3, outputs=True))
    connection.execute(damage)
    connection.commit()
    connection.close()
    with Store(path) as store:
        with pytest.raises(DamagedFile):
            store.magnitudes()
        with pytest.raises(DamagedFile):
            store.compact()
        assert len(store.load()) == 3


def test_the_stamp_differs_after_every_change(path):
    with Store(filled(path)) as store, Store(path) as other:
        seen = [store.stamp()]
        assert store.stamp() == seen[0]
        other.remove(["item-1"])
        seen.append(store.stamp())
        store.remove(["item-2"])
        seen.append(store.stamp())
        other.compact()
        seen.append(store.stamp())
        store.compact()
        seen.append(store.stamp())
        assert len(set(seen)) == 5
        assert store.stamp() == seen[-1]


@pytest.mark.parametrize("payload", [None, "", '{"caption": "é"}', "\ud800"])
def test_the_checksum_of_a_row_is_that_of_its_values(payload):
    assert row_checksum(7, "name", payload) == checksum_of(7, "name", payload)


def test_changes_are_read_from_the_end_of_the_log(path):
    codes = words(8)
    with Store(filled(path, 5)) as store:
        before = store.version()
        nothing = store.changes_since(before)
        assert (len(nothing.keys), nothing.packed.shape, len(nothing.removed), nothing.total) == (0, (0, 8), 0, 5)
        store.add(["a", "item-2"], codes[:2])
        store.remove(["item-0", "a"])
        changes = store.changes_since(before)
        assert (changes.keys.tolist(), sorted(changes.removed.tolist()), changes.total) == ([5, 6], [0, 2, 5], 4)
        assert changes.packed.view("<u8").tolist() == codes[:2].tolist()
        between = store.version()
        assert store.changes_since(between).keys.tolist() == []


def test_a_rewritten_log_does_not_tell_what_has_changed(path):
    with Store(filled(path, 5)) as store:
        store.add(["a"], words(1))
        store.remove(["a"])
        before = store.version()
        store.compact()
        assert store.changes_since(before).keys.tolist() == [], "no item has changed"
        store.remove(["item-0"])
        store.add(["b"], words(1))
        store.add(["c"], words(1))
        assert store.version()[1] == before[1] + 1 == 4, "the new log is longer"
        assert store.changes_since(before) is None, "an addition and a removal are missing"


def test_a_log_in_which_a_removal_is_missing_does_not_tell_what_has_changed(path):
    with Store(filled(path, 5)) as store:
        before = store.version()
        store.remove(["item-0"])
        store.compact()
        assert store.changes_since(before) is None
