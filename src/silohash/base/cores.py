"""The processor cores that this process may use."""

import os


def available_cores() -> int:
    """Return the number of processor cores that this process may use, at least 1."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
