"""The memory of this process: its peak, which Linux measures, and what it returns to the system."""

import ctypes
import gc
from contextlib import suppress
from pathlib import Path

from silohash.base.files import read_json, write_json

STATUS = Path("/proc/self/status")
RESET = Path("/proc/self/clear_refs")
PEAK, BYTES_PER_UNIT = "VmHWM:", 1024
RESET_PEAK = "5"
"""What Linux expects in the file `RESET` to start a new measurement of the peak."""


def return_unused() -> None:
    """Return the memory to the system that the allocator of the C library keeps for later. Only glibc can do so."""
    with suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


def start_measuring() -> bool:
    """Release unused memory, start a new measurement of the peak, and return whether this system measures it."""
    gc.collect()
    return_unused()
    try:
        RESET.write_text(RESET_PEAK, encoding="ascii")
    except OSError:
        return False
    return peak_bytes() is not None


def peak_bytes() -> int | None:
    """Return the largest memory that this process has occupied since `start_measuring`, in bytes; None if it is not known.

    It includes the program and its libraries, and what the process has mapped from files and read.
    """
    try:
        lines = STATUS.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return None
    found = [line.split()[1] for line in lines if line.startswith(PEAK)]
    return int(found[0]) * BYTES_PER_UNIT if found else None


def write_peak(path: Path, peak: int) -> None:
    """Write the peak memory of a run, in bytes. The file keeps the largest of several measurements of a resumed run."""
    before = read_peak(path)
    write_json(path, {"peak_bytes": max(peak, before or 0)})


def read_peak(path: Path) -> int | None:
    """Read the peak memory of a run, in bytes; None if it was not measured."""
    if not path.exists():
        return None
    return read_json(path, dict[str, int], remedy="Remove it.").get("peak_bytes")
