"""The list of methods."""

from __future__ import annotations

import pytest

from silohash.api.methods import list_methods
from silohash.base.errors import UnknownName
from silohash.methods.federated import FEDERATED_METHODS
from silohash.methods.local import LOCAL_METHODS


def test_every_method_has_a_card() -> None:
    local, federated = list_methods("local"), list_methods("federated")
    assert [card.key for card in local] == LOCAL_METHODS.names()
    assert [card.key for card in federated] == FEDERATED_METHODS.names()
    assert list_methods() == [*local, *federated]
    assert "dcmh" in {card.key for card in local}
    with pytest.raises(UnknownName, match='did you mean "local"'):
        list_methods("lokal")  # type: ignore[arg-type]
