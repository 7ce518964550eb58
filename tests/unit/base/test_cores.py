"""The number of processor cores that this process may use."""

from __future__ import annotations

import os

import pytest

from silohash.base.cores import available_cores


def test_available_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {1, 3, 5} if process == 0 else {1}, raising=False)
    assert available_cores() == 3
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert available_cores() == 1
