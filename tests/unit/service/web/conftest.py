from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from silohash.service.accounts import Accounts
from tests.accounts import PASSWORD, quick_accounts


@pytest.fixture
def accounts(tmp_path: Path) -> Iterator[Accounts]:
    """Accounts of ada and of the administrator root."""
    with quick_accounts(tmp_path) as opened:
        opened.add("ada", PASSWORD)
        opened.add("root", PASSWORD, admin=True)
        yield opened
