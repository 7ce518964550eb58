"""A folder is one process's at a time, and nobody's once that has ended, however it ended."""

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
