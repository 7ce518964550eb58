"""The list of excluded silos: changed by an administrator, and read again by a running hub."""

from __future__ import annotations

import pytest

from silohash.base.errors import NotFound, UserError
from silohash.service.config import HubConfig
from silohash.service.envelope import new_key
from silohash.service.exclusions import Exclusions


@pytest.fixture
def config(tmp_path) -> HubConfig:
    silos = {"north": "CN=north", "Musée d'Orsay": "CN=museum"}
    bus = {"servers": ["tls://127.0.0.1:4222"], "certificate": tmp_path / "hub.pem", "key": tmp_path / "hub.key"}
    keys = {silo: new_key(tmp_path / f"{number}.key") for number, silo in enumerate(silos)}
    sealing = {"key": tmp_path / "sealing.key", "silos": keys}
    return HubConfig(
        federation="f", run=tmp_path, bus=bus, sealing=sealing, silos=silos, excluded=tmp_path / "excluded.txt"
    )


def test_a_hub_follows_the_list_of_another_process(config) -> None:
    hub, command = Exclusions(config), Exclusions(config)
    assert hub.names() == frozenset()
    assert command.change("Musée d'Orsay", excluded=True) == ["Musée d'Orsay"]
    assert hub.names() == {"Musée d'Orsay"}
    assert command.change("north", excluded=True) == ["Musée d'Orsay", "north"]
    assert command.change("north", excluded=True) == ["Musée d'Orsay", "north"]
    assert Exclusions(config).names() == hub.names() == {"Musée d'Orsay", "north"}
    assert command.change("Musée d'Orsay", excluded=False) == ["north"]
    assert hub.names() == {"north"}


def test_a_silo_that_does_not_exist_cannot_be_excluded(config) -> None:
    with pytest.raises(NotFound, match="east"):
        Exclusions(config).change("east", excluded=True)
    assert not config.excluded.exists()


def test_a_silo_stays_excluded_while_the_list_cannot_be_read(config) -> None:
    exclusions = Exclusions(config)
    exclusions.change("north", excluded=True)
    assert exclusions.names() == {"north"}
    config.excluded.write_bytes(b"\xff\xfe")
    assert exclusions.names() == {"north"}
    with pytest.raises(UserError):
        exclusions.change("north", excluded=False)
    with pytest.raises(UserError):
        Exclusions(config)
