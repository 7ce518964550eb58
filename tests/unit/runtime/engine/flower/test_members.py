"""The processes that Flower's kits start. None of them phones home."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest

from silohash.runtime.sites.kits import LEADER, SERVER, Training
from silohash.types import UserError

pytest.importorskip("cryptography")

from silohash.runtime.engine.flower.kits import write_flower_kits
from silohash.runtime.engine.flower.members import flower_member


def test_process_of_each_kit(tmp_path: Path) -> None:
    kits = tmp_path / "kits"
    write_flower_kits(kits, ["north"], Training())
    for name, module in ((SERVER, "superlink"), ("north", "site")):
        member = flower_member(kits / name)
        path = f"silohash.runtime.engine.flower.{module}"
        assert member.command == [sys.executable, "-u", "-m", path, str((kits / name).resolve())]
        assert importlib.util.find_spec(path) is not None
        assert member.environment == {
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_HOME": str((kits / name).resolve() / "flower"),
        }
    with pytest.raises(UserError, match="is not the kit of a server or of a silo"):
        flower_member(kits / LEADER)


def test_whoever_imports_the_engine_does_not_report_its_use() -> None:
    assert os.environ["FLWR_TELEMETRY_ENABLED"] == "0"
    assert os.environ["FLWR_DISABLE_UPDATE_CHECK"] == "1"
    telemetry = pytest.importorskip("flwr.supercore.telemetry")
    assert telemetry.FLWR_TELEMETRY_ENABLED == "0"
