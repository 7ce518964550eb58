"""Kits of a federation that Flower connects: who has which key, and what the certificate proves."""

from __future__ import annotations

import socket
import ssl
import stat
import threading
from pathlib import Path

import pytest

from silohash.exchange.encryption import KEY
from silohash.runtime.sites.kits import LEADER, LOCAL, SERVER, SITE_FILE, STARTUP, Training, uses_flower
from silohash.runtime.sites.settings import read_site_settings
from silohash.types import UserError

pytest.importorskip("cryptography")

from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_ssh_private_key,
)

from silohash.runtime.engine.flower.kits import (
    AUTHORITY,
    CERTIFICATE,
    CERTIFICATE_KEY,
    SECRET,
    SILO_KEY,
    Connection,
    write_flower_kits,
)

SILOS = ("north", "south")


@pytest.fixture(scope="module")
def kits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kits") / "museums"
    write_flower_kits(folder, SILOS, Training(host="127.0.0.1", port=18002))
    return folder


def test_each_member_has_what_it_needs_and_no_more(kits: Path) -> None:
    found = {name: sorted(path.name for path in (kits / name / STARTUP).iterdir()) for name in (SERVER, LEADER, *SILOS)}
    common = ["flower.json", AUTHORITY]
    assert found == {
        SERVER: sorted([*common, CERTIFICATE, CERTIFICATE_KEY, SECRET, "silos"]),
        LEADER: sorted([*common, SECRET]),
        "north": sorted([*common, SILO_KEY]),
        "south": sorted([*common, SILO_KEY]),
    }
    assert all(uses_flower(kits / name) for name in found)
    private = [path for path in kits.rglob("*.key") if path.name != KEY]
    assert {stat.S_IMODE(path.stat().st_mode) for path in private} == {0o600}
    assert len({path.read_bytes() for path in private}) == 4  # the server and the leader share one of the five


def test_the_server_knows_the_public_key_of_each_silo(kits: Path) -> None:
    keys = Connection.of(kits / SERVER).silo_keys()
    assert list(keys) == list(SILOS)
    for name, public in keys.items():
        own = load_ssh_private_key((kits / name / STARTUP / SILO_KEY).read_bytes(), None)
        assert own.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo) == public
    assert keys["north"] != keys["south"]
    assert Connection.of(kits / "north").silo_keys() == {}


def test_connection_of_each_kit(kits: Path) -> None:
    server, leader, silo = (Connection.of(kits / name) for name in (SERVER, LEADER, "north"))
    assert {one.address for one in (server, leader, silo)} == {"127.0.0.1:18002"}
    assert [(one.is_server, one.is_silo) for one in (server, leader, silo)] == [
        (True, False),
        (False, False),
        (False, True),
    ]
    assert server.secret() == leader.secret()
    assert len(server.secret()) == 64
    with pytest.raises(
        UserError, match=r"secret\.key is missing\. Give the kit that starts runs, such as museums/leader"
    ):
        silo.secret()
    with pytest.raises(UserError, match=r"Make kits with: silohash federation kits"):
        Connection.of(kits)
    assert Connection(kits, "::1", 5).address == "[::1]:5"


def test_file_of_a_silo_can_be_read_and_silos_share_a_key(kits: Path) -> None:
    settings = read_site_settings(kits / "north" / LOCAL / SITE_FILE)
    assert (settings.silo, settings.downloads) == ("north", False)
    pytest.importorskip("tenseal")
    assert sorted(path.parent.parent.name for path in kits.rglob(KEY)) == ["north", "south"]
    assert (kits / "north" / LOCAL / KEY).read_bytes() == (kits / "south" / LOCAL / KEY).read_bytes()


def trusts(kits: Path, authority: Path, name: str) -> bool:
    """Tells whether a client that trusts an authority accepts the server's certificate for a name."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(kits / SERVER / STARTUP / CERTIFICATE, kits / SERVER / STARTUP / CERTIFICATE_KEY)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    client.load_verify_locations(authority)
    here, there = socket.socketpair()

    def serve() -> None:
        try:
            server.wrap_socket(there, server_side=True).close()
        except OSError:
            there.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        client.wrap_socket(here, server_hostname=name).close()
        return True
    except ssl.SSLCertVerificationError:
        return False
    finally:
        here.close()
        thread.join()


def test_certificate_proves_the_server_under_its_name_to_members_only(kits: Path, tmp_path: Path) -> None:
    authority = kits / "north" / STARTUP / AUTHORITY
    assert trusts(kits, authority, "127.0.0.1")
    assert not trusts(kits, authority, "127.0.0.2")
    write_flower_kits(tmp_path / "other", SILOS, Training(host="train.example.org"))
    assert not trusts(kits, tmp_path / "other" / "north" / STARTUP / AUTHORITY, "127.0.0.1")
    assert trusts(tmp_path / "other", tmp_path / "other" / "north" / STARTUP / AUTHORITY, "train.example.org")


@pytest.mark.parametrize("names", [["north", "north"], ["no/rth"], ["server"], ["leader"], [""], [".."]])
def test_names_that_do_not_work_leave_nothing(tmp_path: Path, names: list[str]) -> None:
    with pytest.raises(UserError, match="The kits cannot be made"):
        write_flower_kits(tmp_path / "kits", names, Training())
    assert not (tmp_path / "kits").exists()
