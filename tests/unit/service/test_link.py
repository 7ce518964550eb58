"""Connections to the bus: whose certificates are accepted, and what each refusal says."""

from __future__ import annotations

import asyncio
import shutil
import ssl
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
from nats.aio.client import Client
from nats.errors import Error as NatsError

from silohash.base import certificates
from silohash.base.certificates import AUTHORITY, Authority, new_key
from silohash.base.errors import DamagedFile, MissingFile, ReadableByOthers
from silohash.service.link import tls_context
from silohash.service.nats_bus import NO_BUS, NatsBus
from tests.nats import Federation, needs_nats
from tests.ports import free_port

pytestmark = needs_nats


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    with Federation(tmp_path_factory.mktemp("bus"), "north") as started:
        yield started


@asynccontextmanager
async def hub_of(federation, **changes):
    hub = federation.hub
    bus = NatsBus(hub.model_copy(update={"bus": hub.bus.model_copy(update=changes)}))
    await bus.link.start(wait_seconds=0.2)
    try:
        yield bus
    finally:
        await bus.link.stop()


def problem_of(federation, **changes):
    """Returns why a hub with other files does not connect, and what it answers to a query."""

    async def connect():
        async with hub_of(federation, **changes) as bus:
            async with asyncio.timeout(60):
                while not bus.link.problem:
                    await asyncio.sleep(0.01)
            return bus.link.problem, (await bus.ask({"north": b"x"}, 0.1)).reasons

    problem, reasons = asyncio.run(connect())
    assert reasons == {"north": NO_BUS}
    return problem


def files_of(folder, name, authority, **options):
    """Returns the settings of a member whose certificate an authority signs."""
    files = {"certificate": folder / f"{name}.pem", "key": folder / f"{name}.key"}
    key = new_key(files["key"])
    files["certificate"].write_bytes(authority.signed(key.public_key(), name, **options))
    return files


def test_a_member_that_the_server_does_not_know_is_named(federation, tmp_path):
    problem = problem_of(federation, **files_of(tmp_path, "west", federation.authority))
    assert "ended the connection of the member O=silohash,CN=west" in problem


def test_a_server_with_a_certificate_of_another_authority_is_not_trusted(federation, tmp_path):
    other = Authority.new()
    other.save(tmp_path)
    changes = {**files_of(tmp_path, "hub", other), "authority": tmp_path / AUTHORITY}
    assert f"signed by the authority in {tmp_path / AUTHORITY}" in problem_of(federation, **changes)


def test_a_certificate_of_another_authority_is_named(federation, tmp_path):
    problem = problem_of(federation, **files_of(tmp_path, "hub", Authority.new()))
    assert "hub.pem was signed by another authority than authority.pem" in problem


def test_a_certificate_that_only_the_server_refuses_is_named(federation, tmp_path):
    """The member trusts both authorities, and the server only one, so that the member's own files show nothing."""
    other, both = Authority.new(), tmp_path / "both.pem"
    other.save(tmp_path)
    both.write_bytes((tmp_path / AUTHORITY).read_bytes() + federation.hub.bus.authority.read_bytes())
    problem = problem_of(federation, **files_of(tmp_path, "hub", other), authority=both)
    assert f"The server refuses the certificate {tmp_path / 'hub.pem'}" in problem


def test_a_certificate_that_has_ended_is_named(federation, tmp_path, monkeypatch):
    monkeypatch.setattr(certificates, "CLOCKS", timedelta(days=10))
    problem = problem_of(federation, **files_of(tmp_path, "hub", federation.authority, days=-1))
    assert "hub.pem: expired on" in problem


def test_a_member_without_a_certificate_gets_no_connection(federation):
    context = ssl.create_default_context(cafile=federation.hub.bus.authority)

    async def connect():
        await Client().connect(f"tls://127.0.0.1:{federation.port}", tls=context, allow_reconnect=False)

    with pytest.raises((ssl.SSLError, ConnectionError, NatsError)):
        asyncio.run(connect())


def test_a_certificate_that_ends_soon_is_logged(federation, tmp_path, caplog):
    changes = files_of(tmp_path, "hub", federation.authority, days=20)

    async def connect():
        async with hub_of(federation, **changes) as bus:
            assert await bus.link.wait(60)

    with caplog.at_level("WARNING"):
        asyncio.run(connect())
    assert [record for record in caplog.records if "days from now" in str(record.__dict__)]


def test_certificates_are_checked(federation, tmp_path):
    context = tls_context(federation.hub.bus)
    assert context.verify_mode == ssl.CERT_REQUIRED
    assert context.check_hostname
    with pytest.raises(MissingFile, match=r"none\.pem"):
        tls_context(federation.hub.bus.model_copy(update={"authority": tmp_path / "none.pem"}))
    (tmp_path / "text.pem").write_text("text")
    for name in ("authority", "certificate"):
        with pytest.raises(DamagedFile, match=r"text\.pem"):
            tls_context(federation.hub.bus.model_copy(update={name: tmp_path / "text.pem"}))
    with pytest.raises(DamagedFile, match=r"north\.key that belongs to the certificate"):
        tls_context(federation.hub.bus.model_copy(update={"key": federation.folder / "north.key"}))


def test_a_server_that_is_not_running_is_named(federation):
    address = f"tls://127.0.0.1:{free_port()}"
    assert f"Nothing answers at {address}. Start" in problem_of(federation, servers=(address,))


def test_a_key_that_others_can_read_is_refused(federation, tmp_path):
    key = shutil.copy(federation.hub.bus.key, tmp_path / "hub.key")
    tls_context(federation.hub.bus.model_copy(update={"key": key}))
    key.chmod(0o604)
    with pytest.raises(ReadableByOthers, match=rf"chmod 600 {key}"):
        tls_context(federation.hub.bus.model_copy(update={"key": key}))
