"""The folder of files that can be computed again."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """Return the folder that ``SILOHASH_CACHE`` names, or ``silohash`` in the user's cache folder."""
    named = os.environ.get("SILOHASH_CACHE")
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "silohash"
