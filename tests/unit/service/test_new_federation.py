"""The files of a new federation: what each member gets, and what it must not get."""

from __future__ import annotations

import base64
import stat
from pathlib import Path

import pytest

from silohash.base.certificates import AUTHORITY, Authority, member_findings, new_key, subject, subject_of
from silohash.base.errors import (
    AlreadyExists,
    InvalidName,
    MissingFile,
    NotIndexed,
    RepeatedValue,
    UserError,
    WrongAddress,
)
from silohash.index.listing import is_indexed, read_listing
from silohash.run.folder import Run
from silohash.search.silos import open_node
from silohash.service.config import HubConfig, SiloConfig, read_config
from silohash.service.envelope import read_key
from silohash.service.nats_server import server_config
from silohash.service.new_federation import commands, listen, write_federation
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


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def sealing_key(path: Path) -> str:
    return base64.b64encode(read_key(path).public_key().public_bytes_raw()).decode()


def test_each_member_has_a_folder_with_what_it_needs(folder: Path) -> None:
    assert names(folder) == {"authority", "hub", "nats", "silo-1", "silo-2", "Musée d'Orsay"}
    assert names(folder / "authority") == {"authority.pem", "authority-key.pem"}
    assert names(folder / "nats") == {"nats.conf", "server.pem", "server.key", "authority.pem"}
    assert names(folder / "hub") == {"hub.toml", "hub.pem", "hub.key", "sealing.key", "authority.pem", "run"}
    assert names(folder / "silo-1") == {"silo.toml", "silo.pem", "silo.key", "sealing.key", "authority.pem", "run"}
    shared = {"config.toml", "environment.json", "partition.json", "rounds.jsonl", "model"}
    assert names(folder / "hub" / "run") == shared
    assert names(folder / "Musée d'Orsay" / "run") == shared | {"policies"}
    assert names(folder / "silo-1" / "run") == shared | {"index", "policies"}
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
    assert (hub.federation, hub.bus.servers) == ("museums", ("tls://127.0.0.1:4222",))
    assert [*hub.silos] == ["silo-1", "silo-2", "Musée d'Orsay"]
    for silo, known_as in hub.silos.items():
        config = read_config(folder / silo / "silo.toml", SiloConfig)
        assert (config.silo, config.federation, config.run) == (silo, "museums", folder / silo / "run")
        assert config.bus.servers == hub.bus.servers
        assert known_as == subject_of(config.bus.certificate) == subject(silo)
        assert all(finding.good for finding in member_findings(config.bus.certificate, config.bus.authority, ""))
        assert stat.S_IMODE(config.bus.key.stat().st_mode) == 0o600
        assert config.training is None
    own = sealing_key(hub.sealing.key)
    for silo, key in hub.sealing.silos.items():
        sealing = read_config(folder / silo / "silo.toml", SiloConfig).sealing
        assert (key, sealing.hub) == (sealing_key(sealing.key), (own,))
        assert stat.S_IMODE(sealing.key.stat().st_mode) == 0o600
    assert len({own, *hub.sealing.silos.values()}) == 1 + len(hub.silos)
    assert (folder / "nats" / "nats.conf").read_text() == server_config(hub, beside=folder / "nats")
    assert 'listen: "127.0.0.1:4222"' in server_config(hub)


def test_the_commands_start_every_member(folder: Path) -> None:
    assert commands(Path("a b"), ["north"]) == [
        "cd 'a b/nats' && nats-server -c nats.conf",
        "silohash silo 'a b/north/silo.toml'",
        "silohash hub 'a b/hub/hub.toml'",
    ]


def test_the_folder_of_the_server_can_be_moved(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "far"
    assert write_federation(run, folder, silos=(), server="tls://nats.example.org:4443") == ["silo-1", "silo-2"]
    written = (folder / "nats" / "nats.conf").read_text()
    assert 'listen: "0.0.0.0:4443"' in written
    assert 'cert_file: "server.pem"' in written
    assert 'key_file: "server.key"' in written
    assert 'ca_file: "authority.pem"' in written
    assert str(tmp_path) not in written
    assert stat.S_IMODE((folder / "nats" / "server.key").stat().st_mode) == 0o600
    assert subject_of(folder / "nats" / "server.pem") == subject("nats.example.org")
    hub = read_config(folder / "hub" / "hub.toml", HubConfig)
    assert f'cert_file: "{folder.resolve() / "nats" / "server.pem"}"' in server_config(hub)


def test_silos_have_the_certificates_of_their_kits(run: Run, tmp_path: Path) -> None:
    """One silo has a kit there, and another not."""
    authority, startup = Authority.new(), tmp_path / "kits" / "silo-1" / "startup"
    authority.save(tmp_path / "kits" / "authority")
    key = new_key(startup / "client.key")
    (startup / "client.crt").write_bytes(authority.signed(key.public_key(), "silo-1"))
    (startup / "rootCA.pem").write_bytes((tmp_path / "kits" / "authority" / AUTHORITY).read_bytes())
    folder = tmp_path / "search"
    write_federation(run, folder, silos=(), kits=tmp_path / "kits")
    assert names(folder) == {"hub", "nats", "silo-1", "silo-2"}, "the authority stays with the kits"
    assert names(folder / "silo-1") == {"silo.toml", "sealing.key", "run"}, "there is one certificate for both"
    silo = read_config(folder / "silo-1" / "silo.toml", SiloConfig)
    assert silo.training is not None
    assert silo.training.resolve() == startup.parent.resolve()
    assert silo.bus.certificate.resolve() == (startup / "client.crt").resolve()
    assert not Path((folder / "silo-1" / "silo.toml").read_text().partition('training = "')[2]).is_absolute()
    other = read_config(folder / "silo-2" / "silo.toml", SiloConfig)
    assert (other.training, names(folder / "silo-2")) == (
        None, {"silo.toml", "silo.pem", "silo.key", "sealing.key", "authority.pem", "run"},
    )  # fmt: skip
    for config in (silo, other, read_config(folder / "hub" / "hub.toml", HubConfig)):
        assert all(finding.good for finding in member_findings(config.bus.certificate, config.bus.authority, ""))


@pytest.mark.parametrize(
    ("address", "listens"),
    [
        ("tls://127.0.0.1:4222", "127.0.0.1:4222"),
        ("tls://[::1]:4222", "[::1]:4222"),
        ("tls://localhost:5000", "localhost:5000"),
        ("tls://nats:4222", "0.0.0.0:4222"),
    ],
)
def test_a_server_for_this_machine_does_not_listen_to_others(address: str, listens: str) -> None:
    assert listen(address) == listens


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"silos": ["hub"]}, InvalidName, "hub"),
        ({"silos": ["a/b"]}, InvalidName, None),
        ({"silos": ["north", "North"]}, RepeatedValue, None),
        ({"silos": ["n\u00f6rth", "no\u0308rth"]}, RepeatedValue, None),
        ({"name": "two words"}, InvalidName, r"two.*words"),
        ({"silos": ["Authority"]}, InvalidName, "Authority"),
        ({"silos": ["a=b"]}, InvalidName, "a=b"),
        ({"server": "nats://127.0.0.1:4222"}, WrongAddress, "tls://"),
        ({"server": "tls://nats"}, WrongAddress, "--server"),
        ({"kits": Path("none")}, MissingFile, r"none.*missing"),
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
        ["cd", str(tmp_path / "new" / "nats")], ["silohash", "silo"], ["silohash", "silo"], ["silohash", "hub"]
    ]  # fmt: skip
    again = silohash("federation", "init", run.folder, tmp_path / "new")
    assert again.code == 2
    assert "exists already" in again.err
