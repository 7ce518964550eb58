"""The token that programs send to the items API of a silo, in a file that only its owner can read."""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path

from silohash.base.files import explaining_disk_errors
from silohash.base.forms import reading
from silohash.base.types import UserError

LEAST_CHARACTERS = 32


def read_token(path: Path) -> str:
    """Return the token in a file. A file that does not exist is created with a new token.

    Raises:
        UserError: If the file cannot be read or written, others can read it, or its token is too short.
    """
    if not path.exists():
        _create(path)
    with reading(path, remedy="Remove it, and start the silo again.", missing="Start the silo again."):
        token = path.read_text("ascii").strip()
        mode = path.stat().st_mode
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise UserError(f"{path} can be read by others (mode {stat.filemode(mode)}). Run: chmod 600 {path}")
    if len(token) < LEAST_CHARACTERS:
        raise UserError(
            f"The token in {path} has {len(token)} characters, and at least {LEAST_CHARACTERS} are needed. Remove the file "
            "to get a new one."
        )
    return token


def _create(path: Path) -> None:
    with explaining_disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
            file.write(secrets.token_urlsafe(32) + "\n")
