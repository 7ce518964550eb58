"""The cache of compiled loops, which is moved to a temporary folder if numba cannot write its usual folders."""

import atexit
import shutil
import tempfile
from functools import cache

import numba


def _sample() -> None:
    """Do nothing. numba looks for a writable cache when it is given this function."""


@cache
def provide_cache() -> None:
    """Let numba cache compiled loops in a temporary folder of this process if it cannot write its usual folders.

    Without a cache, numba refuses to compile. The folder is new and belongs to the user alone, because cached files are
    executed when they are loaded. Set ``NUMBA_CACHE_DIR`` to a writable folder to keep them for the next process.
    """
    try:
        numba.njit(cache=True)(_sample)
    except RuntimeError:
        folder = tempfile.mkdtemp(prefix="silohash-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        # numba declares its settings at run time, so that type checkers do not know this one.
        setattr(numba.config, "CACHE_DIR", folder)  # noqa: B010
