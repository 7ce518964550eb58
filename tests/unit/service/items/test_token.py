from __future__ import annotations

from pathlib import Path

import pytest

from silohash.base.types import UserError
from silohash.service.items.token import read_token


def test_a_token_is_made_once_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "secrets" / "items.token"
    token = read_token(path)
    assert len(token) >= 32
    assert path.stat().st_mode & 0o777 == 0o600
    assert read_token(path) == token
    assert read_token(tmp_path / "other.token") != token


def test_a_token_that_is_not_secret_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "items.token"
    read_token(path)
    for mode in (0o640, 0o604):
        path.chmod(mode)
        with pytest.raises(UserError, match=r"can be read by others .*chmod 600"):
            read_token(path)
    path.chmod(0o600)
    path.write_text("x" * 31)
    with pytest.raises(UserError, match="has 31 characters, and at least 32 are needed"):
        read_token(path)
