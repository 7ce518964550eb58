"""The files of a new federation: what each member gets, and what it must not get."""

from __future__ import annotations

import base64
import stat
from pathlib import Path

import pytest
import trustme

from silohash.base.errors import (
    AlreadyExists,
    InvalidName,
    MissingFile,
    NoEffect,
    NotIndexed,
    RepeatedValue,
    SettingNeeded,
    UserError,
    WrongAddress,
)
from silohash.index.listing import is_indexed, read_listing
from silohash.run.folder import Run
from silohash.search.silos import open_node
from silohash.service.config import HubConfig, SiloConfig, read_config
from silohash.service.envelope import read_key
from silohash.service.nats_server import public_key, server_config
from silohash.service.new_federation import ServerSettings, commands, write_federation
from tests.runs import silohash
from tests.served import served_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of two silos, of which one has a policy."""
    folder = served_run(tmp_path_factory.mktemp("trained"))
    (folder / "policies").mkdir()
    (folder / "policies" / "silo-2.toml").write_text("max_results = 7\n")
    return Run.open(folder)


@pytest.fixture(scope="module")
def folder(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a federation of the two silos and of a third one without an index."""
    target = tmp_path_factory.mktemp("written") / "museums"
    write_federation(run, target, silos=["silo-1", "silo-2", "Musée d'Orsay", "silo-1"])
    return target


@pytest.fixture
def certificates(tmp_path: Path) -> ServerSettings:
    authority = trustme.CA()
    issued = authority.issue_cert("nats.example.org")
    issued.private_key_pem.write_to_path(tmp_path / "key.pem")
    issued.cert_chain_pems[0].write_to_path(tmp_path / "certificate.pem")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    return ServerSettings(
        address="tls://nats.example.org:4443",
        certificate=tmp_path / "certificate.pem",
        certificate_key=tmp_path / "key.pem",
        authority=tmp_path / "ca.pem",
    )


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def sealing_key(path: Path) -> str:
    return base64.b64encode(read_key(path).public_key().public_bytes_raw()).decode()


def test_each_member_has_a_folder_with_what_it_needs(folder: Path) -> None:
    assert names(folder) == {"hub", "nats", "silo-1", "silo-2", "Musée d'Orsay"}
    assert names(folder / "nats") == {"nats.conf"}
    assert names(folder / "hub") == {"hub.toml", "hub.key", "sealing.key", "run"}
    shared = {"config.toml", "environment.json", "partition.json", "rounds.jsonl", "model"}
    assert names(folder / "hub" / "run") == names(folder / "Musée d'Orsay" / "run") == shared
    assert names(folder / "silo-1" / "run") == shared | {"index"}
    assert names(folder / "silo-2" / "run") == shared | {"index", "policies"}
    for member in ("silo-1", "silo-2"):
        assert names(folder / member / "run" / "index") == {member, "silos.json"}, "no index of another silo"
        assert read_listing(folder / member / "run" / "index") == {member: ("image", "text")}
        assert is_indexed(folder / member / "run" / "index", member)
        node = open_node(folder / member / "run" / "index", member)
        assert node.policy.max_results == (7 if member == "silo-2" else 1000)
        node.close()
    assert not is_indexed(folder / "Musée d'Orsay" / "run" / "index", "Musée d'Orsay")


def test_the_files_fit_each_other(folder: Path) -> None:
    hub = read_config(folder / "hub" / "hub.toml", HubConfig)
    assert (hub.federation, hub.bus.servers) == ("museums", ("nats://127.0.0.1:4222",))
    assert [*hub.silos] == ["silo-1", "silo-2", "Musée d'Orsay"]
    for silo, key in hub.silos.items():
        config = read_config(folder / silo / "silo.toml", SiloConfig)
        assert (config.silo, config.federation, config.run) == (silo, "museums", folder / silo / "run")
        assert config.bus.servers == hub.bus.servers
        assert public_key(config.bus.key) == key
        assert stat.S_IMODE(config.bus.key.stat().st_mode) == 0o600
    own = sealing_key(hub.sealing.key)
    for silo, key in hub.sealing.silos.items():
        sealing = read_config(folder / silo / "silo.toml", SiloConfig).sealing
        assert (key, sealing.hub) == (sealing_key(sealing.key), (own,))
        assert stat.S_IMODE(sealing.key.stat().st_mode) == 0o600
    assert len({own, *hub.sealing.silos.values()}) == 1 + len(hub.silos)
    assert (folder / "nats" / "nats.conf").read_text() == server_config(hub)
    assert 'listen: "127.0.0.1:4222"' in server_config(hub)


def test_the_commands_start_every_member(folder: Path) -> None:
    assert commands(Path("a b"), ["north"], ServerSettings()) == [
        "nats-server -c 'a b/nats/nats.conf'",
        "silohash silo 'a b/north/silo.toml'",
        "silohash hub 'a b/hub/hub.toml'",
    ]
    secure = ServerSettings(address="tls://nats.example.org:4222")
    assert commands(Path("a"), [], secure)[0] == "cd a/nats && nats-server -c nats.conf"


def test_certificates_are_copied_and_can_be_moved(run: Run, tmp_path: Path, certificates: ServerSettings) -> None:
    folder = tmp_path / "far"
    assert write_federation(run, folder, silos=(), server=certificates) == ["silo-1", "silo-2"]
    written = (folder / "nats" / "nats.conf").read_text()
    assert 'listen: "0.0.0.0:4443"' in written
    assert 'cert_file: "server.pem"' in written
    assert 'key_file: "server-key.pem"' in written
    assert str(tmp_path) not in written
    key = folder / "nats" / "server-key.pem"
    assert key.read_bytes() == (tmp_path / "key.pem").read_bytes()
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    hub = read_config(folder / "hub" / "hub.toml", HubConfig)
    assert f'cert_file: "{folder.resolve() / "nats" / "server.pem"}"' in server_config(hub)
    for config in (hub, read_config(folder / "silo-1" / "silo.toml", SiloConfig)):
        assert config.bus.authority is not None
        assert config.bus.authority.read_bytes() == (tmp_path / "ca.pem").read_bytes()


@pytest.mark.parametrize(
    ("address", "listen"),
    [
        ("tls://127.0.0.1:4222", "127.0.0.1:4222"),
        ("tls://[::1]:4222", "[::1]:4222"),
        ("nats://localhost:5000", "localhost:5000"),
        ("tls://nats:4222", "0.0.0.0:4222"),
    ],
)
def test_a_server_for_this_machine_does_not_listen_to_others(address: str, listen: str) -> None:
    assert ServerSettings(address=address).listen == listen


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"silos": ["hub"]}, InvalidName, "hub"),
        ({"silos": ["a/b"]}, InvalidName, None),
        ({"silos": ["north", "North"]}, RepeatedValue, None),
        ({"silos": ["n\u00f6rth", "no\u0308rth"]}, RepeatedValue, None),
        ({"name": "two words"}, InvalidName, r"two.*words"),
        ({"server": ServerSettings(address="nats://example.org:4222")}, WrongAddress, "encrypted"),
        ({"server": ServerSettings(address="tls://nats:4222")}, SettingNeeded, "--certificate"),
        ({"server": ServerSettings(authority=Path("ca.pem"))}, NoEffect, None),
        (
            {
                "server": ServerSettings(
                    address="tls://nats:4222", certificate=Path("no.pem"), certificate_key=Path("no-key.pem")
                )
            },
            MissingFile,
            r"no\.pem.*missing",
        ),
    ],
)
def test_what_cannot_be_written_is_refused_and_leaves_nothing(
    run: Run, tmp_path: Path, options: dict[str, object], kind: type[UserError], message: str | None
) -> None:
    with pytest.raises(kind, match=message):
        write_federation(run, tmp_path / "new", **{"silos": (), **options})
    assert [*tmp_path.iterdir()] == []


def test_nothing_is_written_into_a_folder_in_use(run: Run, tmp_path: Path) -> None:
    (tmp_path / "used").mkdir()
    write_federation(run, tmp_path / "used", silos=["north"])
    before = (tmp_path / "used" / "hub" / "hub.key").read_text()
    with pytest.raises(AlreadyExists):
        write_federation(run, tmp_path / "used", silos=["north"])
    assert (tmp_path / "used" / "hub" / "hub.key").read_text() == before


def test_a_run_without_indexes_needs_names(run: Run, tmp_path: Path) -> None:
    write_federation(run, tmp_path / "first", silos=["north"])
    with pytest.raises(NotIndexed, match="--silo"):
        write_federation(Run.open(tmp_path / "first" / "hub" / "run"), tmp_path / "second", silos=())


def test_the_command_prints_what_to_do_next(run: Run, tmp_path: Path) -> None:
    done = silohash("federation", "init", run.folder, tmp_path / "new", "--silo", "silo-1", "--silo", "north")
    assert done.code == 0
    assert f"silohash index {tmp_path / 'new' / 'north' / 'run'} ARCHIVE --name north" in done.err
    assert "Index the items of silo-1" not in done.err
    assert [line.split()[:2] for line in done.out.splitlines()] == [
        ["nats-server", "-c"], ["silohash", "silo"], ["silohash", "silo"], ["silohash", "hub"]
    ]  # fmt: skip
    again = silohash("federation", "init", run.folder, tmp_path / "new")
    assert again.code == 2
    assert "exists already" in again.err
