"""The processes that FLARE's kits start."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from silohash.runtime.sites.kits import Training
from silohash.types import UserError

pytest.importorskip("nvflare")

from silohash.runtime.engine.flare.kits import write_kits
from silohash.runtime.engine.flare.members import member_of, place_storage


@pytest.fixture(scope="module")
def kits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("members") / "kits"
    write_kits(folder, ["north"], Training())
    return folder


def test_command_of_each_kit(kits: Path) -> None:
    server, silo = member_of(kits / "server").command, member_of(kits / "north").command
    assert server[:4] == [sys.executable, "-u", "-m", "nvflare.private.fed.app.server.server_train"]
    assert silo[3] == "nvflare.private.fed.app.client.client_train"
    assert "uid=north" in silo
    assert "secure_train=true" in server
    with pytest.raises(UserError, match="is not the kit of a server or of a silo"):
        member_of(kits / "leader")


def test_what_is_on_its_way_is_not_sent_again_too_soon(kits: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for kit in ("server", "north"):
        found = member_of(kits / kit).environment
        window, wait = (float(found[f"NVFLARE_STREAMING_{name}"]) for name in ("WINDOW_SIZE", "RETRY_WAIT"))
        assert window / wait <= 150_000
    monkeypatch.setenv("NVFLARE_STREAMING_RETRY_WAIT", "7")
    assert member_of(kits / "north").environment["NVFLARE_STREAMING_RETRY_WAIT"] == "7"


def test_server_stores_jobs_in_its_own_folder(kits: Path) -> None:
    place_storage(kits / "server")
    text = (kits / "server/local/resources.json").read_text(encoding="utf-8")
    snapshots = json.loads(text)["snapshot_persistor"]["args"]["storage"]["args"]["root_dir"]
    assert snapshots == str((kits / "server").resolve() / "storage" / "snapshots")
    jobs = next(one for one in json.loads(text)["components"] if one["id"] == "job_manager")
    assert jobs["args"]["uri_root"] == str((kits / "server").resolve() / "storage" / "jobs")
