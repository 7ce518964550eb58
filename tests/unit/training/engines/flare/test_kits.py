"""Kits of a federation: what their settings permit."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from silohash.base.certificates import AUTHORITY, AUTHORITY_FOLDER, AUTHORITY_KEY, Authority, subject, subject_of
from silohash.base.errors import InvalidName
from silohash.training.sites import kits as kits_module
from silohash.training.sites.kits import SILOS_FILE, SITE_FILE, Training
from silohash.training.sites.settings import read_site_settings
from silohash.training.updates.encryption import KEY, SiloKey

pytest.importorskip("nvflare")

from silohash.training.engines.flare.controller import RoundsController
from silohash.training.engines.flare.executor import TrainerExecutor
from silohash.training.engines.flare.kits import CONTROLLER, EXECUTOR, write_kits


def of_json(path: Path):
    return json.loads(path.read_text(encoding="utf-8"))


def path_of(found: type) -> str:
    return f"{found.__module__}.{found.__qualname__}"


@pytest.fixture(scope="module")
def kits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kits") / "museums"
    write_kits(folder, ["north", "south"], Training(host="127.0.0.1", port=18002))
    return folder


def test_each_member_has_a_kit_with_a_key_of_its_own(kits: Path) -> None:
    assert sorted(path.name for path in kits.iterdir()) == ["authority", "leader", "north", "server", "south"]
    keys = [
        next((kits / name / "startup").glob("*.key")).read_bytes() for name in ("leader", "north", "server", "south")
    ]
    assert len(set(keys)) == 4
    assert of_json(kits / "north/startup/fed_client.json")["client"]["connection_security"] == "mtls"
    assert of_json(kits / "server/startup/fed_server.json")["servers"][0]["service"]["target"] == "127.0.0.1:18002"


def test_the_authority_of_the_kits_can_admit_others(kits: Path, tmp_path: Path) -> None:
    authority = Authority.load(kits / AUTHORITY_FOLDER)
    authority.write_member(tmp_path / "west.pem", tmp_path / "west.key", "west")
    roots = {(kits / name / "startup" / "rootCA.pem").read_bytes() for name in ("north", "server", "leader")}
    assert roots == {(tmp_path / AUTHORITY).read_bytes()}
    assert subject_of(kits / "north/startup/client.crt") == subject("north"), "the same identity as in the search"
    assert stat.S_IMODE((kits / AUTHORITY_FOLDER / AUTHORITY_KEY).stat().st_mode) == 0o600
    assert of_json(kits / "leader" / SILOS_FILE) == ["north", "south"]


@pytest.mark.parametrize("name", ["server", "Leader", "authority", "hub"])
def test_names_of_other_folders_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidName):
        write_kits(tmp_path / "new", [name], Training())


@pytest.mark.parametrize(("name", "classes"), [("server", [CONTROLLER, EXECUTOR]), ("north", [EXECUTOR])])
def test_only_our_classes_run_and_no_code_of_a_job(kits: Path, name: str, classes: list[str]) -> None:
    local = kits / name / "local"
    resources = of_json(local / "resources.json")
    assert resources["class_allow_list"] == classes
    assert resources["class_list_enforcement_mode"] == "enforce"
    rights = of_json(local / "authorization.json")["permissions"]
    assert rights["lead"]["byoc"] == rights["lead"]["shell_commands"] == "none"
    assert rights["project_admin"] == {"view": "any"}
    assert {path_of(RoundsController), path_of(TrainerExecutor)} == {CONTROLLER, EXECUTOR}


def test_logs_of_a_site_stay_there(kits: Path) -> None:
    resources = of_json(kits / "north/local/resources.json")
    assert resources["allow_log_streaming"] is False
    assert "site_log_streamer" not in [component["id"] for component in resources["components"]]


def test_file_of_a_silo_can_be_read(kits: Path) -> None:
    settings = read_site_settings(kits / "north/local" / SITE_FILE)
    assert settings.silo == "north"
    assert settings.state.resolve() == (kits / "north/state").resolve()
    assert settings.downloads is False


def test_silos_share_a_key_that_nobody_else_has(kits: Path) -> None:
    pytest.importorskip("tenseal")
    keys = {path.parent.parent.name: path.read_bytes() for path in kits.rglob(KEY)}
    assert sorted(keys) == ["north", "south"]
    assert keys["north"] == keys["south"]
    file = read_site_settings(kits / "north/local" / SITE_FILE).key
    assert file == kits / "north/local" / KEY
    sealed = SiloKey.load(file).sealed(b"state", "here")
    assert SiloKey.load(kits / "south/local" / KEY).opened(sealed, "here") == b"state"


def test_kits_without_the_packages_for_encryption_have_no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kits_module, "installed", lambda package: False)
    write_kits(tmp_path / "kits", ["north"], Training())
    assert not list((tmp_path / "kits").rglob(KEY))


def test_nothing_is_printed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write_kits(tmp_path / "kits", ["north"], Training())
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("names", [["north", "north"], ["no/rth"]])
def test_names_that_do_not_work_leave_nothing(tmp_path: Path, names: list[str]) -> None:
    with pytest.raises(InvalidName):
        write_kits(tmp_path / "kits", names, Training())
    assert not (tmp_path / "kits").exists()
