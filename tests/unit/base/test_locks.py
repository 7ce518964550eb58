"""One process at a time holds the lock of a folder, until it ends, in whatever way."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from silohash.base import locks
from silohash.base.errors import InUse, UnwritableFile, UserError
from silohash.base.locks import HOLDER, LOCK, holder, locked, locked_run

HOLD = """
import sys
from pathlib import Path
from silohash.base.locks import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""
HOLD_AS_OLDER_VERSIONS_DID = """
import fcntl, pathlib, sys
stream = open(pathlib.Path(sys.argv[1]) / ".lock", "ab")
fcntl.flock(stream, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""
DEAD = 2**22 + 1
"""A process number above the largest of Linux."""


@contextmanager
def held_elsewhere(folder: Path, code: str = HOLD) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lock of a folder."""
    command = [sys.executable, "-c", code, str(folder), "a\x1b[31mb"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


def test_the_second_is_told_who_holds_the_lock_until_that_process_is_killed(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    with held_elsewhere(folder) as process:
        since = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d [+-]\d{4}"
        who = rf"process {process.pid} on {re.escape(socket.gethostname())} since {since} \(-c .*a⟨U\+001B⟩\[31mb.*\)"
        with pytest.raises(InUse, match=rf"folder is in use by {who}\. Try later\.$"), locked(folder, "Try later."):
            pass
        process.kill()
        process.wait()
        assert (folder / HOLDER).exists()
        with locked(folder):
            assert f"process {os.getpid()} on" in holder(folder)
    assert not (folder / HOLDER).exists()


def test_waits_for_the_first_to_end(tmp_path: Path) -> None:
    lines: list[str] = []
    with held_elsewhere(tmp_path) as process:

        def let_go(line: str) -> None:
            lines.append(line)
            assert process.stdin is not None
            process.stdin.close()

        with locked(tmp_path, wait_seconds=60, notify=let_go):
            pass
    assert len(lines) == 1
    assert re.match(rf"Waiting for process {process.pid} on .*, which uses {tmp_path} \.\.\.$", lines[0])


def test_a_lock_is_released_after_an_error(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), locked(tmp_path):
        raise ZeroDivisionError
    with locked(tmp_path) as taken:
        assert taken


def test_the_lock_of_an_older_version_is_respected(tmp_path: Path) -> None:
    with (
        held_elsewhere(tmp_path, HOLD_AS_OLDER_VERSIONS_DID),
        pytest.raises(UserError, match=r"is in use by another process\. Wait until it has finished"),
        locked(tmp_path, wait_seconds=0.1),
    ):
        pass


def test_a_folder_that_cannot_be_written_is_explained(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UnwritableFile), locked(tmp_path / "file" / "folder"):
        pass


def test_a_thread_enters_again_and_another_thread_does_not(tmp_path: Path) -> None:
    outcomes: list[str] = []

    def compete() -> None:
        try:
            with locked(tmp_path):
                outcomes.append("taken")
        except UserError as error:
            outcomes.append(str(error))

    with locked(tmp_path) as first:
        with locked(tmp_path / "." / "..") as other, locked(tmp_path) as second:
            assert (first, second, other) == (True, False, True)
        thread = threading.Thread(target=compete)
        thread.start()
        thread.join()
        assert outcomes[0].startswith(f"{tmp_path} is in use by process {os.getpid()} on ")
    compete()
    assert outcomes[1] == "taken"


def test_a_folder_made_for_the_lock_alone_is_removed(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "mine"
    with pytest.raises(UserError, match="wrong config"), locked(folder):
        raise UserError("wrong config")
    assert list(tmp_path.iterdir()) == []
    with locked(folder):
        (folder / "result").touch()
    assert {path.name for path in folder.iterdir()} == {"result", LOCK}


def test_an_empty_folder_of_the_user_stays_empty(tmp_path: Path) -> None:
    with locked(tmp_path):
        assert {path.name for path in tmp_path.iterdir()} == {LOCK, HOLDER}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"process": 1}', "null"])
def test_a_damaged_description_of_the_holder_is_left_out(tmp_path: Path, content: str) -> None:
    (tmp_path / HOLDER).write_text(content)
    assert holder(tmp_path) == "another process"


def test_a_long_command_is_cut(tmp_path: Path) -> None:
    about = {"process": 7, "host": "box", "since": "today", "command": "x" * 1000}
    (tmp_path / HOLDER).write_text(json.dumps(about))
    assert holder(tmp_path) == f"process 7 on box since today ({'x' * locks.COMMAND_LENGTH}…)"


def test_the_command_is_named_as_it_is_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/usr/lib/silohash/cli/__main__.py", "train", "my run.toml"])
    with locked(tmp_path):
        assert holder(tmp_path).endswith("(silohash train 'my run.toml')")
    monkeypatch.setattr(sys, "argv", ["/home/me/notebook.py"])
    with locked(tmp_path):
        assert holder(tmp_path).endswith("(notebook.py)")


def test_a_run_is_cleaned_when_its_lock_is_taken(tmp_path: Path) -> None:
    left = [
        tmp_path / ".inputs" / "a",
        *(tmp_path / name / f".a.{DEAD}.0ff1ce-1f.7.part" for name in ("index", "model")),
    ]
    other = tmp_path / "another-run" / f".a.{DEAD}.0ff1ce-1f.7.part"
    for path in (*left, other):
        path.parent.mkdir(parents=True)
        path.touch()
    with locked_run(tmp_path):
        assert not any(path.exists() for path in left)
        assert other.exists()  # written on another machine, into a folder that has its own lock
    with (
        held_elsewhere(tmp_path),
        pytest.raises(UserError, match="Wait until it has finished, or use another folder"),
        locked_run(tmp_path),
    ):
        pass
