"""Kits: what a silo sets itself."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from silohash.base.errors import NotAKit
from silohash.training.sites import kits as module
from silohash.training.sites.kits import LOCAL, SITE_FILE, new_silo_key, write_site
from silohash.training.sites.settings import read_site_settings
from silohash.training.updates.encryption import KEY
from tests.ports import free_port
from tests.runs import write_archive

pytest.importorskip("nvflare")
from silohash.training.engines.flare.kits import write_kits
from silohash.training.sites.kits import LEADER, SERVER, Training, check_kit


def test_what_a_silo_sets_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_site(tmp_path, "north", None)
    settings = read_site_settings(tmp_path / LOCAL / SITE_FILE)
    assert (settings.silo, settings.device, settings.downloads) == ("north", "auto", False)
    assert settings.state.resolve() == (tmp_path / "state").resolve()
    assert not (tmp_path / LOCAL / KEY).exists()
    monkeypatch.setattr(module, "installed", lambda package: False)
    assert new_silo_key() is None


def answer(listening: socket.socket, startup: Path) -> None:
    """Accept connections as a training server does, which asks for a certificate of its authority, until the test ends."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(startup / "server.crt", startup / "server.key")
    context.load_verify_locations(startup / "rootCA.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    while True:
        with suppress(OSError), listening.accept()[0] as plain, context.wrap_socket(plain, server_side=True) as secure:
            secure.recv(1)


@pytest.fixture(scope="module")
def kits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checked")
    listening = socket.create_server(("127.0.0.1", 0))
    training = Training(port=listening.getsockname()[1], valid_days=900)
    write_kits(folder / "kits", ["north"], training)
    startup = folder / "kits" / SERVER / "startup"
    threading.Thread(target=answer, args=(listening, startup), daemon=True).start()
    archive = write_archive(folder / "data", count=30)
    (folder / "kits/north/local" / SITE_FILE).write_text(f'silo = "north"\n[data]\npath = "{archive}"\n')
    return folder / "kits"


def bad(kit: Path, **options: object) -> dict[str, str]:
    return {finding.subject: finding.text for finding in check_kit(kit, **options) if not finding.good}


def test_good_kits(kits: Path) -> None:
    found = {finding.subject: finding.text for finding in check_kit(kits / "north")}
    assert set(found) == {"client.crt", "rootCA.pem", "server", "data"}
    assert found["data"] == "25 training items"
    assert found["server"].startswith("127.0.0.1:")
    assert [bad(kits / name) for name in ("north", SERVER, LEADER)] == [{}, {}, {}]


def test_labels_that_look_similar_are_named(kits: Path) -> None:
    site = kits / "north" / "local" / SITE_FILE
    folder = kits / "similar"
    folder.mkdir()
    (folder / "metadata.csv").write_text("text,labels\na,Sea\nb,sea\nc,sea\n")
    site.write_text(f'silo = "north"\n[data]\npath = "{folder}"\n')
    found = {finding.subject: finding.text for finding in check_kit(kits / "north")}
    assert found["data"].startswith("2 training items; ")
    assert 'look similar but are different: "Sea" and "sea"' in found["data"]


def test_certificates_and_the_clock(kits: Path) -> None:
    soon = datetime.now(UTC) + timedelta(days=880)
    assert set(bad(kits / SERVER, now=soon)) == {"server.crt", "rootCA.pem"}
    assert "Make new kits" in bad(kits / SERVER, now=soon)["server.crt"]
    assert bad(kits / "north", now=datetime.now(UTC) + timedelta(days=860)) == {}, "as long as the authority's"
    early = datetime.now(UTC) - timedelta(days=2)
    assert "the clock of this machine is before that" in bad(kits / SERVER, now=early)["server.crt"]


def test_a_kit_of_another_authority_is_named(kits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REFUSAL_SECONDS", 60.0)
    startup = kits / "north" / "startup"
    port = json.loads((startup / "fed_client.json").read_text())["servers"][0]["service"]["target"].rpartition(":")[2]
    write_kits(tmp_path / "other", ["north"], Training(port=int(port)))
    other = tmp_path / "other" / "north"
    assert "certificates of different authorities" in bad(other)["authority"]
    both = other / "startup" / "rootCA.pem"
    both.write_bytes((startup / "rootCA.pem").read_bytes() + both.read_bytes())
    assert "certificates of different authorities" in bad(other)["authority"], "the server refuses that of the kit"
    (other / "startup" / "rootCA.pem").write_bytes((startup / "rootCA.pem").read_bytes())
    texts = [finding.text for finding in check_kit(other) if not finding.good]
    assert any("client.crt was signed by another authority than rootCA.pem" in text for text in texts)


def test_server_that_is_not_there(tmp_path: Path) -> None:
    port = free_port()
    write_kits(tmp_path / "kits", ["north"], Training(port=port))
    found = bad(tmp_path / "kits" / "north")
    assert set(found) == {"server", "data"}
    assert f"127.0.0.1:{port} cannot be reached" in found["server"]
    assert set(bad(tmp_path / "kits" / LEADER)) == {"server"}


def test_folder_that_is_not_a_kit(tmp_path: Path) -> None:
    (tmp_path / "startup").mkdir()
    (tmp_path / "startup" / "other.json").write_text('{"host": "127.0.0.1", "port": 8002}')
    with pytest.raises(NotAKit):
        check_kit(tmp_path)
