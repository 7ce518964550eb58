"""The folder of files that can be computed again. SECURITY.md lists what it holds, and who may read it."""

import os
from contextlib import suppress
from pathlib import Path


def cache_folder() -> Path:
    """Return the folder that ``SILOHASH_CACHE`` names, or ``silohash`` in the user's cache folder."""
    named = os.environ.get("SILOHASH_CACHE")
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "silohash"


def private_cache(kind: str) -> Path:
    """Return a subfolder of the cache that holds names or contents of a user's files, so only the user may enter it.

    It is created if possible. If an earlier version created it for everyone to enter, it is closed.
    """
    folder = cache_folder() / kind
    with suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
    return folder
