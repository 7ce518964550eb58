"""The command ``serve``: it opens the page over a run, and refuses addresses that others can reach."""

from __future__ import annotations

import base64
import json
import os
import shlex
import signal
import socket
import stat
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from silohash.base.certificates import subject, subject_of, validity, write_request
from silohash.base.errors import (
    AddressUnavailable,
    DependencyMissing,
    NotARun,
    NotPermitted,
    NotSupported,
)
from silohash.cli.serve import hub, serve, server, silo
from silohash.service.accounts import Accounts
from silohash.service.envelope import read_key
from silohash.service.link import tls_context
from tests.accounts import PASSWORD
from tests.nats import Federation
from tests.runs import silohash
from tests.served import served_run


def test_other_addresses_are_refused(tmp_path: Path) -> None:
    for host in ("0.0.0.0", "192.168.0.7", "example.org", ""):  # noqa: S104
        with pytest.raises(NotPermitted):
            serve(tmp_path, host=host)


@pytest.mark.parametrize("command", [serve, silo, hub, server])
def test_windows_is_refused(command: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "win32")
    with pytest.raises(NotSupported, match=str(command.__name__)):
        command(tmp_path)


def test_what_is_not_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotARun, match="does not hold a run"):
        serve(tmp_path)


def test_missing_packages_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("silohash.base.optional.installed", lambda package: package != "uvicorn")
    with pytest.raises(DependencyMissing, match=r"The search page needs uvicorn, .* pip install 'silohash\[service\]'"):
        serve(tmp_path)


def test_a_taken_port_is_noticed_before_anything_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "config.toml").touch()
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(AddressUnavailable):
        serve(tmp_path, port=taken.getsockname()[1])


@pytest.mark.whole_run
def test_the_page_opens_over_a_run_and_ends_with_an_interrupt(tmp_path: Path) -> None:
    run = served_run(tmp_path)
    command = [sys.executable, "-m", "silohash", "serve", str(run), "--port", "0"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            line = process.stdout.readline()
            assert line.startswith("The search page is at http://127.0.0.1:"), process.stderr.read()
            address = line.split()[-1]
            with urllib.request.urlopen(f"{address}/api/v1/search?text=red+square&k=1") as answer:  # noqa: S310
                assert json.load(answer)["silos_answered"] == 2
        finally:
            for _ in range(3):
                process.send_signal(signal.SIGINT)  # people press Ctrl-C more than once
        _, errors = process.communicate(timeout=120)
    assert process.returncode == 0
    assert errors.endswith("Stopped.\n")
    assert "Traceback" not in errors


@pytest.fixture
def federation(tmp_path):
    return Federation(tmp_path, "north", run=tmp_path / "run")


@pytest.mark.parametrize(("command", "member"), [("silo", "north"), ("hub", "hub")])
def test_a_member_makes_its_key_and_the_authority_signs_its_certificate(federation, tmp_path, command, member):
    key, config = federation.folder / f"{member}.key", federation.folder / f"{member}.toml"
    if member == "hub":
        (federation.folder / "server.key").write_text("kept")
    before = subject_of(federation.folder / f"{member}.pem")
    again = silohash(command, config, "--new-key")
    assert again.code == 2
    assert "exists already" in again.err
    key.unlink()
    made = silohash(command, config, "--new-key")
    assert made.code == 0
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert key.read_text().strip() not in made.out + made.err
    federation.authority.save(tmp_path / "authority")
    words = shlex.split(made.out)
    assert words == ["silohash", "federation", "sign", "AUTHORITY", str(key.with_suffix(".csr")), member]
    signed = silohash(*words[1:3], tmp_path / "authority", *words[4:])
    assert signed.code == 0
    assert signed.out.strip() == str(federation.folder / f"{member}.pem")
    assert subject_of(federation.folder / f"{member}.pem") == before
    assert tls_context((federation.hub if member == "hub" else federation.silo(member)).bus)


def test_the_server_gets_a_new_key_with_the_hub(federation, tmp_path):
    (federation.folder / "server.key").unlink()
    made = silohash("hub", federation.folder / "hub.toml", "--new-key")
    assert made.out.strip().endswith(f"{federation.folder / 'server.csr'} 127.0.0.1 --server")
    federation.authority.save(tmp_path / "authority")
    signed = silohash("federation", "sign", tmp_path / "authority", *shlex.split(made.out)[4:], "--days", 3)
    assert signed.code == 0
    assert not validity(federation.folder / "server.pem", "").good, "it ends in three days"


def test_a_signed_certificate_has_the_name_that_was_given_and_replaces_no_other_file(federation, tmp_path):
    federation.authority.save(tmp_path / "authority")
    request = write_request(tmp_path / "own.key", "south")
    assert silohash("federation", "sign", tmp_path / "authority", request, "north").code == 0
    assert subject_of(tmp_path / "own.pem") == subject("north")
    (tmp_path / "own.pem").write_text("a secret key")
    assert silohash("federation", "sign", tmp_path / "authority", request, "north").code == 2
    assert (tmp_path / "own.pem").read_text() == "a secret key"
    other = ("--out", tmp_path / "other.pem")
    assert silohash("federation", "sign", tmp_path / "authority", request, "north", *other).code == 0
    assert "authority-key.pem is missing" in silohash("federation", "sign", tmp_path, request, "north", *other).err
    request.write_text("damaged")
    assert "own.csr is damaged" in silohash("federation", "sign", tmp_path / "authority", request, "north", *other).err


def test_the_config_of_the_server_is_written_without_secrets(federation, tmp_path):
    target = tmp_path / "written.conf"
    done = silohash("hub", tmp_path / "hub.toml", "--write-nats-config", target)
    assert done.code == 0
    assert f"nats-server -c {target}" in done.err
    assert target.read_text() == (tmp_path / "nats.conf").read_text()
    assert (tmp_path / "hub.key").read_text().strip() not in target.read_text()


def test_what_is_wrong_is_explained_before_anything_starts(federation, tmp_path):
    for command, member in (("silo", "north"), ("hub", "hub")):
        missing = silohash(command, tmp_path / "none.toml")
        assert missing.code == 2
        assert "none.toml is missing" in missing.err
        no_run = silohash(command, tmp_path / f"{member}.toml", *(["--port", 0] if command == "hub" else []))
        assert no_run.code == 2
        assert "does not hold a run" in no_run.err


def test_the_hub_listens_on_this_machine_only(federation, tmp_path):
    refused = silohash("hub", tmp_path / "hub.toml", "--host", "192.0.2.1")
    assert refused.code == 2
    assert '"192.0.2.1" is not one of them. Use --host 127.0.0.1, or add an account' in refused.err


def test_a_hub_with_accounts_may_listen_elsewhere(federation, tmp_path):
    with Accounts(tmp_path / "accounts.sqlite") as accounts:
        accounts.add("ada", PASSWORD)
    no_run = silohash("hub", tmp_path / "hub.toml", "--host", "::", "--port", 0)
    assert no_run.code == 2
    assert "does not hold a run" in no_run.err


def test_kits_of_a_training_federation_and_their_commands(tmp_path: Path) -> None:
    pytest.importorskip("nvflare")
    done = silohash("federation", "kits", tmp_path / "museums", "--silo", "north", "--silo", "south", "--port", "18002")
    assert done.out.splitlines() == [
        f"  silohash server {tmp_path / 'museums' / 'server'}",
        f"  silohash silo {tmp_path / 'museums' / 'north'}",
        f"  silohash silo {tmp_path / 'museums' / 'south'}",
        f"  silohash train CONFIG --on {tmp_path / 'museums' / 'leader'}",
    ]
    assert "Each folder in it holds a secret key" in done.err
    site = tmp_path / "museums" / "north" / "local" / "silohash.toml"
    site.write_text("mine")
    again = silohash("federation", "kits", tmp_path / "museums", "--silo", "north")
    assert again.code == 2
    assert "museums exists already. Choose a new folder, so that no key is lost." in again.err
    assert site.read_text() == "mine"


@pytest.mark.parametrize("command", ["server", "silo"])
def test_folder_that_is_not_a_kit_is_refused(tmp_path: Path, command: str) -> None:
    pytest.importorskip("nvflare")
    done = silohash(command, tmp_path)
    assert done.code == 2
    assert "is not the kit of a server or of a silo" in done.err


@pytest.mark.parametrize("command", ["server", "silo"])
def test_kits_need_the_extra(tmp_path: Path, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("silohash.base.optional.installed", lambda package: package != "nvflare")
    done = silohash(command, tmp_path)
    assert done.code == 2
    assert "pip install 'silohash[training]'" in done.err


def test_a_silo_whose_file_names_its_kit_also_trains(federation, tmp_path: Path, monkeypatch) -> None:
    pytest.importorskip("nvflare")
    seen: list[object] = []

    @contextmanager
    def beside(kit: Path, silo: str, notify: object) -> Iterator[None]:
        seen.append((kit, silo))
        yield
        seen.append("trained")

    monkeypatch.setattr("silohash.training.sites.members.member_beside", beside)
    monkeypatch.setattr("silohash.service.silo.run_silo", lambda settings, **options: seen.append(settings.silo))
    file = federation.folder / "north.toml"
    assert silohash("silo", file).code == 0
    file.write_text(f'training = "{tmp_path / "kit"}"\n{file.read_text()}')
    assert silohash("silo", file).code == 0
    assert seen == ["north", (tmp_path / "kit", "north"), "north", "trained"]


@pytest.mark.parametrize(("command", "admitted"), [("disable", False), ("enable", True)])
def test_silos_are_locked_out_and_let_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, admitted: bool
) -> None:
    pytest.importorskip("nvflare")
    calls: list[tuple[Path, str, bool]] = []
    monkeypatch.setattr(
        "silohash.training.engines.flare.jobs.set_admission",
        lambda kit, silo, *, admitted: calls.append((kit, silo, admitted)),
    )
    done = silohash("federation", command, tmp_path, "south")
    assert (done.code, calls) == (0, [(tmp_path, "south", admitted)])
    assert done.out.startswith("south can")


def test_a_member_makes_the_key_that_seals_its_messages(tmp_path: Path) -> None:
    made = silohash("federation", "key", tmp_path / "north" / "sealing.key")
    assert (made.code, "[sealing] key" in made.err) == (0, True)
    key = read_key(tmp_path / "north" / "sealing.key")
    assert base64.b64decode(made.out) == key.public_key().public_bytes_raw()
    again = silohash("federation", "key", tmp_path / "north" / "sealing.key")
    assert again.code == 2
    assert read_key(tmp_path / "north" / "sealing.key").private_bytes_raw() == key.private_bytes_raw()
