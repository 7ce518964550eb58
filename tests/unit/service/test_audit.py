"""The audit log: its lines, its chain of digests, files that are full, cut lines, and what is logged of an answer."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import numpy as np
import pytest

from silohash.base.errors import AuditLogBroken, MissingFile, UnwritableFile
from silohash.search.policy import Policy
from silohash.search.requests import CodeRequest, ItemRequest, StatusRequest
from silohash.search.wire import encode_request, respond
from silohash.service.audit import AuditLog, Tail, entry_of, verify_log
from tests.silos import made_up_codes, made_up_node, query_of

WORDS = made_up_codes(20, 16, 1)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "audit" / "north.jsonl"


def filled(path, count=5, **options):
    log = AuditLog(path, **options)
    for number in range(count):
        log.append({"request": "search", "value": number})
    log.close()
    return path.read_bytes().splitlines()


def test_each_line_holds_the_digest_of_the_line_before(path):
    lines = filled(path)
    entries = [json.loads(line) for line in lines]
    assert [entry["number"] for entry in entries] == [1, 2, 3, 4, 5]
    assert [entry["value"] for entry in entries] == [0, 1, 2, 3, 4]
    digests = ["", *(hashlib.sha256(line).hexdigest() for line in lines)]
    assert [entry["before"] for entry in entries] == digests[:-1]
    assert verify_log(path) == Tail(5, digests[-1])
    assert path.stat().st_mode & 0o077 == 0
    assert all(entry["time"].endswith("+00:00") for entry in entries)


@pytest.mark.parametrize("change", ["change", "remove", "swap", "add", "first", "cut", "garbage"])
def test_every_change_of_a_line_is_noticed(path, change):
    lines = filled(path)
    if change == "change":
        lines[2] = lines[2].replace(b'"value":2', b'"value":7')
    elif change == "remove":
        del lines[2]
    elif change == "swap":
        lines[1], lines[2] = lines[2], lines[1]
    elif change == "add":
        lines.insert(3, lines[2])
    elif change == "first":
        del lines[0]
    elif change == "cut":
        lines[4] = lines[4][:-3]
    else:
        lines[0] = b"7"
    path.write_bytes(b"\n".join(lines) + b"\n")
    with pytest.raises(AuditLogBroken, match="The log was changed after it was written"):
        verify_log(path)


def test_the_log_continues_after_it_was_closed_and_beside_another_process(path):
    filled(path, 2)
    one, two = AuditLog(path), AuditLog(path)
    for log in (one, two, two, one):
        log.append({"request": "search"})
    for log in (one, two):
        log.close()
    assert verify_log(path).number == 6


def test_processes_that_write_at_the_same_time_keep_one_chain_over_all_files(path):
    def write(name):
        with closing(AuditLog(path, sync_seconds=60, most_bytes=2_000)) as log:
            for number in range(40):
                log.append({"writer": name, "value": number})

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(write, ("one", "two", "three")))
    assert verify_log(path).number == 120
    files = [*sorted(path.parent.glob("north.0*.jsonl")), path]
    entries = [json.loads(line) for file in files for line in file.read_bytes().splitlines()]
    for name in ("one", "two", "three"):
        assert [entry["value"] for entry in entries if entry["writer"] == name] == list(range(40))


def test_a_file_that_was_moved_away_is_not_written_to_any_more(path, tmp_path):
    with closing(AuditLog(path)) as log:
        log.append({"value": 1})
        path.rename(tmp_path / "moved.jsonl")
        log.append({"value": 2})
    assert len((tmp_path / "moved.jsonl").read_bytes().splitlines()) == 1
    [line] = path.read_bytes().splitlines()
    assert (json.loads(line)["value"], json.loads(line)["number"]) == (2, 1)


def test_a_line_that_cannot_be_written_whole_leaves_no_part_behind(path, monkeypatch):
    write, parts = os.write, []

    def full(number, content):
        parts.append(len(content))
        if len(parts) == 3:
            raise OSError(28, "No space left on device")
        return write(number, bytes(content)[:20])

    with closing(AuditLog(path)) as log, closing(AuditLog(path)) as other:
        log.append({"value": 1})
        monkeypatch.setattr(os, "write", full)
        with pytest.raises(UnwritableFile, match="No space left on device"):
            log.append({"value": 2})
        assert parts[1] == parts[0] - 20, "the rest of a line is written after a part of it"
        monkeypatch.setattr(os, "write", write)
        other.append({"value": 3})
        log.append({"value": 4})
    assert [json.loads(line)["value"] for line in path.read_bytes().splitlines()] == [1, 3, 4]
    assert verify_log(path).number == 3


def test_full_files_are_kept_and_the_chain_goes_on(path):
    filled(path, 10, most_bytes=300)
    closed = sorted(path.parent.glob("north.0*.jsonl"))
    assert [file.name for file in closed[:2]] == ["north.000001.jsonl", "north.000002.jsonl"]
    assert all(file.stat().st_size >= 300 for file in closed)
    assert verify_log(path).number == 10
    with closing(AuditLog(path, most_bytes=300)) as log:
        log.append({"request": "search"})
    assert verify_log(path).number == 11
    closed[0].unlink()
    with pytest.raises(AuditLogBroken, match="instead of 1"):
        verify_log(path)


@pytest.mark.parametrize("silo", ["north", "north [1]"])
def test_a_closed_file_is_never_replaced_even_if_earlier_ones_were_moved_away(tmp_path, silo):
    path = tmp_path / f"{silo}.jsonl"
    filled(path, 10, most_bytes=300)
    first, *others = sorted(each for each in tmp_path.iterdir() if each != path)
    kept = {each.name: each.read_bytes() for each in others}
    assert len(kept) >= 2
    first.unlink()
    with closing(AuditLog(path, most_bytes=300)) as log:
        for _ in range(10):
            log.append({"request": "search"})
    assert {name: (tmp_path / name).read_bytes() for name in kept} == kept
    last = path.read_bytes().splitlines()[-1]
    assert json.loads(last)["number"] == 20


def test_a_line_that_was_cut_is_removed_and_named(path):
    filled(path, 2)
    with path.open("ab") as file:
        file.write(b'{"number": 3, "ti')
    with closing(AuditLog(path)) as log:
        log.append({"request": "search"})
    entries = [json.loads(line) for line in path.read_bytes().splitlines()]
    assert entries[2]["repaired"] == "an incomplete line of 17 bytes was removed"
    assert verify_log(path).number == 4


def test_lines_reach_the_disk_at_once_or_after_a_time(path, monkeypatch):
    synced = []
    fsync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda number: synced.append(number) or fsync(number))
    log = AuditLog(path, sync_seconds=0)
    log.append({})
    log.append({})
    assert len(synced) == 2
    log.close()
    synced.clear()
    later = AuditLog(path, sync_seconds=60)
    later.append({})
    later.append({})
    assert not synced
    later.close()
    assert len(synced) == 1


def test_a_line_of_any_length_is_followed_by_the_next(path):
    filled(path, 1)
    with closing(AuditLog(path)) as log:
        log.append({"released": ["Ж" * 20] * 40_000})
    assert len(path.read_bytes().splitlines()[-1]) > 1 << 20
    with closing(AuditLog(path)) as log:
        log.append({})
    assert verify_log(path).number == 3
    with path.open("ab") as file:
        file.write(b"x" * 300_000)
    with closing(AuditLog(path)):
        assert "an incomplete line of 300000 bytes" in path.read_text().splitlines()[3]
    assert verify_log(path).number == 4


def test_nothing_is_written_while_lines_cannot_reach_the_disk(path, monkeypatch):
    def failing(number):
        raise OSError(errno.EIO, "Input/output error")

    log = AuditLog(path, sync_seconds=0.001)
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", failing)
        log.append({})
        while log._not_on_disk is None:
            time.sleep(0.001)
        for _ in range(2):
            with pytest.raises(UnwritableFile, match=r"Input/output.*error"):
                log.append({})
    log.append({})
    log.close()
    assert verify_log(path).number == 2


def test_logs_that_cannot_be_used_are_explained(path, tmp_path):
    with pytest.raises(MissingFile):
        verify_log(path)
    (tmp_path / "file").write_text("")
    with pytest.raises(UnwritableFile):
        AuditLog(tmp_path / "file" / "north.jsonl")
    path.parent.mkdir()
    path.write_text("something else\n")
    with closing(AuditLog(path)) as log, pytest.raises(AuditLogBroken, match="is not a line of an audit log"):
        log.append({})


def test_what_is_logged_of_requests_and_answers(tmp_path):
    node = made_up_node(tmp_path, "north", WORDS, 16, Policy(max_results=3))

    def logged(request):
        return entry_of(respond(node, encode_request(request) if not isinstance(request, bytes) else request))

    found = logged(query_of(WORDS, 16, k=4, asker="ann"))
    assert (found["request"], found["asker"], found["k"], found["by_label"]) == ("search", "ann", 4, False)
    assert found["with_content"] is False
    assert logged(query_of(WORDS, 16, content=np.full((1, 3), 77, np.int32)))["with_content"] is True
    assert len(found["released"]) == 3
    assert found["fields"] == ["caption"]
    assert "limits results to 3" in found["limits"]
    assert not {"code", "words", "label", "tie_key"} & set(found)
    refused = logged(query_of(WORDS, 16, label="secret word"))
    assert refused["by_label"] is True
    assert "secret word" not in json.dumps(refused)
    assert logged(ItemRequest("3", "bob", "7f")) == {
        "request": "item",
        "asker": "bob",
        "request_id": "7f",
        "id": "3",
        "released": ["3"],
        "fields": ["caption"],
    }
    assert logged(CodeRequest("3")) == {
        "request": "code",
        "asker": "",
        "request_id": "",
        "id": "3",
        "released": ["3"],
        "fields": ["code"],
    }
    assert logged(ItemRequest("none"))["refused"].startswith("The silo north does not have an item")
    summary = logged(StatusRequest("7f"))
    assert (summary["request"], summary["asker"], summary["request_id"]) == ("status", "", "7f")
    examples = [item.id for item in node.status().examples]
    assert len(examples) == 8
    assert (summary["released"], summary["fields"]) == (examples, ["caption"])
    assert logged(b"garbage")["request"] == "unreadable"
    closed = made_up_node(tmp_path, "south", WORDS, 16, Policy(modalities=()))
    assert "does not allow" in entry_of(respond(closed, encode_request(query_of(WORDS, 16))))["refused"]
