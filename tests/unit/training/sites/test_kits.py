"""Kits: what a silo sets itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from silohash.training.sites import kits as module
from silohash.training.sites.kits import LOCAL, SITE_FILE, new_silo_key, write_site
from silohash.training.sites.settings import read_site_settings
from silohash.training.updates.encryption import KEY


def test_what_a_silo_sets_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_site(tmp_path, "north", None)
    settings = read_site_settings(tmp_path / LOCAL / SITE_FILE)
    assert (settings.silo, settings.device, settings.downloads) == ("north", "auto", False)
    assert settings.state.resolve() == (tmp_path / "state").resolve()
    assert not (tmp_path / LOCAL / KEY).exists()
    monkeypatch.setattr(module, "installed", lambda package: False)
    assert new_silo_key() is None
