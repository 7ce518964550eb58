from __future__ import annotations

from pathlib import Path

import pytest

from silohash.base.errors import ServerUnreachable, UnreadableFile, WrongAddress
from silohash.service.clients.items import Items
from tests.ports import free_port


def test_addresses_and_files_are_checked(tmp_path: Path) -> None:
    with pytest.raises(WrongAddress, match=r"127\.0\.0\.1:8766.*items"):
        Items("127.0.0.1:8766", "token")
    items = Items(f"http://127.0.0.1:{free_port()}/", "token")
    with pytest.raises(ServerUnreachable, match=r"cannot.*reached"):
        items.state("a")
    with pytest.raises(UnreadableFile, match=r"none\.png"):
        items.put("a", tmp_path / "none.png")
