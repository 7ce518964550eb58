"""Start commands that a test interrupts with Ctrl-C."""

from __future__ import annotations

import os
import subprocess
import sys

PROGRAM = """
import signal
from silohash.cli import main

signal.signal(signal.SIGINT, signal.default_int_handler)
main()
"""
"""A test may itself run where Ctrl-C is ignored, which processes inherit."""


def start(*words: str) -> subprocess.Popen[str]:
    """Starts a command that Ctrl-C interrupts.

    Its coverage is not measured: coverage 7.17 acquires its lock in Python code, and a process that is interrupted in there
    waits for the lock forever.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**environment, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
