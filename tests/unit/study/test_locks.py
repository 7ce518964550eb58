"""One process at a time holds the lock of a folder, until it ends, in whatever way."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from silohash.study.locks import locked
from silohash.types import UserError

HOLD = """
import sys
from pathlib import Path
from silohash.study.locks import locked
with locked(Path(sys.argv[1]), "taken"):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_second_is_refused_until_the_first_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path / "folder")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(UserError, match="taken by another"), locked(tmp_path / "folder", "taken by another"):
            pass
        holder.kill()
        holder.wait()
    with locked(tmp_path / "folder", "taken"):
        assert (tmp_path / "folder").is_dir()


def test_waits_for_the_first_to_end(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        assert holder.stdin is not None
        holder.stdin.close()
        with locked(tmp_path, "taken", wait_seconds=60):
            pass


def test_is_let_go_after_an_error(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), locked(tmp_path, "taken"):
        raise ZeroDivisionError
    with locked(tmp_path, "taken"):
        pass


HOLD_AS_OLDER_VERSIONS_DID = """
import fcntl, sys
stream = open(sys.argv[1], "ab")
fcntl.flock(stream, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


def test_lock_of_an_older_version_is_respected(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD_AS_OLDER_VERSIONS_DID, str(tmp_path / ".lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(UserError, match="taken"), locked(tmp_path, "taken", wait_seconds=0.1):
            pass
        holder.kill()


def test_folder_that_cannot_be_written_is_explained(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="may not be written"), locked(tmp_path / "file" / "folder", "taken"):
        pass
