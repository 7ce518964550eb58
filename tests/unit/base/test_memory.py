"""The peak memory of a process: what is measured, what is kept, and systems that do not measure it."""

from __future__ import annotations

from pathlib import Path

import pytest

from silohash.base import memory
from silohash.base.errors import DamagedFile

HUNDRED_MEGABYTES = 100_000_000


def test_peak_grows_with_use_and_starts_again() -> None:
    if not memory.start_measuring():
        pytest.skip("this system does not measure the peak")
    before = memory.peak_bytes()
    used = bytearray(HUNDRED_MEGABYTES)
    used[::4096] = bytes(len(used[::4096])).replace(b"\0", b"x")
    during = memory.peak_bytes()
    del used
    assert memory.start_measuring()
    after = memory.peak_bytes()
    assert before is not None
    assert during is not None
    assert after is not None
    assert during - before > 0.9 * HUNDRED_MEGABYTES
    assert during - after > 0.9 * HUNDRED_MEGABYTES


def test_unit_is_that_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    status = tmp_path / "status"
    status.write_text("Name:\tpython\nVmPeak:\t 900 kB\nVmHWM:\t    123 kB\nVmRSS:\t 7 kB\n", encoding="ascii")
    monkeypatch.setattr(memory, "STATUS", status)
    assert memory.peak_bytes() == 123 * 1024
    monkeypatch.setattr(memory, "RESET", tmp_path / "clear_refs")
    assert memory.start_measuring()
    assert (tmp_path / "clear_refs").read_text(encoding="ascii") == "5"
    status.write_text("Name:\tpython\n", encoding="ascii")
    assert memory.peak_bytes() is None
    assert not memory.start_measuring()


def test_system_without_these_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "STATUS", tmp_path / "none" / "status")
    monkeypatch.setattr(memory, "RESET", tmp_path / "none" / "clear_refs")
    assert memory.peak_bytes() is None
    assert not memory.start_measuring()


def test_c_library_without_trimming(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[object] = []
    monkeypatch.setattr(memory.ctypes, "CDLL", lambda name: opened.append(name) or object())
    memory.return_unused()
    assert len(opened) == 1


def test_file_keeps_the_largest_peak(tmp_path: Path) -> None:
    path = tmp_path / "memory.json"
    assert memory.read_peak(path) is None
    for peak, kept in ((5, 5), (3, 5), (7, 7)):
        memory.write_peak(path, peak)
        assert memory.read_peak(path) == kept
    path.write_text('{"peak_bytes": "much"}', encoding="utf-8")
    with pytest.raises(DamagedFile, match=r"memory\.json"):
        memory.read_peak(path)
