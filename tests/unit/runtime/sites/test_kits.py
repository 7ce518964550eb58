"""Kits: what tells which engine connects them."""

from __future__ import annotations

from pathlib import Path

import pytest

from silohash.exchange.encryption import KEY
from silohash.runtime.sites import kits as module
from silohash.runtime.sites.kits import LOCAL, SITE_FILE, Training, engine_package, new_silo_key, write_kits, write_site
from silohash.runtime.sites.settings import read_site_settings


@pytest.mark.parametrize(("flower", "package"), [(True, "flwr"), (False, "nvflare")])
def test_kits_tell_their_engine(tmp_path: Path, flower: bool, package: str) -> None:
    pytest.importorskip("cryptography" if flower else "nvflare")
    write_kits(tmp_path / "kits", ["north"], Training(), flower=flower)
    assert {engine_package(kit) for kit in (tmp_path / "kits").iterdir()} == {package}
    assert len(list((tmp_path / "kits").iterdir())) == 3


def test_folder_without_a_kit_is_taken_for_one_of_flare(tmp_path: Path) -> None:
    assert engine_package(tmp_path) == "nvflare"


def test_what_a_silo_sets_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_site(tmp_path, "north", None)
    settings = read_site_settings(tmp_path / LOCAL / SITE_FILE)
    assert (settings.silo, settings.device, settings.downloads) == ("north", "auto", False)
    assert settings.state.resolve() == (tmp_path / "state").resolve()
    assert not (tmp_path / LOCAL / KEY).exists()
    monkeypatch.setattr(module, "installed", lambda package: False)
    assert new_silo_key() is None
