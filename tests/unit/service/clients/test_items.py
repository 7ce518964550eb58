from __future__ import annotations

from pathlib import Path

import pytest

from silohash.base.errors import UserError
from silohash.service.clients.items import Items
from tests.ports import free_port


def test_addresses_and_files_are_checked(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r'"127\.0\.0\.1:8766" is not the address of an items API'):
        Items("127.0.0.1:8766", "token")
    items = Items(f"http://127.0.0.1:{free_port()}/", "token")
    with pytest.raises(UserError, match=r"cannot be reached .*Check that the silo is running"):
        items.state("a")
    with pytest.raises(UserError, match=r"none\.png\" cannot be read"):
        items.put("a", tmp_path / "none.png")
