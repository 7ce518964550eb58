from __future__ import annotations

import base64

import pytest
from pydantic import ValidationError

from silohash.base.errors import InvalidFile, MissingFile, UserError
from silohash.run.config.toml import to_toml
from silohash.service.config import HubConfig, MetricsSettings, SiloConfig, host_and_port, is_local, read_config

SUBJECT = "O=silohash,CN=north"
SEALING, OTHER = (base64.b64encode(bytes([number] * 32)).decode() for number in (7, 8))
SILO = {
    "silo": "north", "federation": "museums", "run": "first",
    "bus": {
        "servers": ["tls://nats.example.org:4222"], "certificate": "north.pem", "key": "north.key", "authority": "ca.pem"
    },
    "sealing": {"key": "north.sealing", "hub": [SEALING]},
}  # fmt: skip
HUB = {
    "federation": "museums", "run": "first",
    "bus": {"servers": ["tls://nats.example.org:4222"], "certificate": "hub.pem", "key": "/keys/hub.key"},
    "sealing": {"key": "/keys/hub.sealing", "silos": {"north": SEALING}},
    "silos": {"north": SUBJECT},
    "nats": {"listen": "0.0.0.0:4222", "certificate": "server.pem", "key": "server.key", "authority": "ca.pem"},
}  # fmt: skip


def write(folder, tables, **changes):
    path = folder / "config.toml"
    merged = {**tables, **{key: {**tables.get(key, {}), **value} if isinstance(value, dict) else value
                           for key, value in changes.items()}}  # fmt: skip
    path.write_text(to_toml({key: value for key, value in merged.items() if value != ""}), encoding="utf-8")
    return path


def test_paths_are_relative_to_the_file(tmp_path):
    silo = read_config(write(tmp_path, SILO, policy="policies/north.toml"), SiloConfig)
    assert (silo.silo, silo.federation) == ("north", "museums")
    assert silo.run == tmp_path / "first"
    assert silo.policy == tmp_path / "policies/north.toml"
    assert silo.bus.key == tmp_path / "north.key"
    assert silo.sealing.key == tmp_path / "north.sealing"
    assert silo.bus.authority == tmp_path / "ca.pem"
    assert silo.bus.certificate == tmp_path / "north.pem"
    hub = read_config(write(tmp_path, HUB), HubConfig)
    assert str(hub.bus.key) == "/keys/hub.key"
    assert str(hub.sealing.key) == "/keys/hub.sealing"
    assert (hub.nats.certificate, hub.bus.authority) == (tmp_path / "server.pem", None)
    assert (hub.deadline_seconds, hub.deadline_limits_seconds, hub.deadline_misses) == (5, (0.1, 60), 1)
    assert hub.silos == {"north": SUBJECT}


def test_a_new_run_is_relative_to_the_file(tmp_path):
    silo = read_config(write(tmp_path, SILO, next_run="second", archive="items", keep_old_hours=0), SiloConfig)
    assert (silo.next_run, silo.archive, silo.keep_old_hours) == (tmp_path / "second", tmp_path / "items", 0)
    assert silo.items_folder == tmp_path / "first" / "items" / "north"
    hub = read_config(write(tmp_path, HUB, next_run="second"), HubConfig)
    assert (hub.next_run, hub.next_share, hub.next_at) == (tmp_path / "second", 1.0, None)
    path = write(tmp_path, HUB, next_share=0.5)
    path.write_text(f"next_at = 2027-01-31T08:00:00Z\n{path.read_text()}")
    assert read_config(path, HubConfig).next_at.isoformat() == "2027-01-31T08:00:00+00:00"
    for value, message in (("0.0", "greater than 0"), ("1.1", "less than or equal to 1")):
        path.write_text(path.read_text().replace("0.5", value))
        with pytest.raises(InvalidFile, match=f"next_share: input should be {message}"):
            read_config(path, HubConfig)
        path.write_text(path.read_text().replace(value, "0.5"))
    path.write_text(path.read_text().replace("08:00:00Z", "08:00:00"))
    with pytest.raises(InvalidFile, match=r"next_at: .*timezone"):
        read_config(path, HubConfig)


def test_items_are_relative_to_the_file_and_served_on_this_machine(tmp_path):
    assert read_config(write(tmp_path, SILO), SiloConfig).items is None
    items = read_config(write(tmp_path, SILO, items={"folder": "items"}), SiloConfig).items
    assert (items.folder, items.token, items.listen) == (tmp_path / "items", tmp_path / "items.token", None)
    for listen, address in (("127.0.0.1:8766", ("127.0.0.1", 8766)), ("[::1]:65535", ("::1", 65535))):
        items = read_config(write(tmp_path, SILO, items={"folder": "/items", "listen": listen}), SiloConfig).items
        assert (str(items.folder), host_and_port(items.listen)) == ("/items", address)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"slio": "x"}, r'config.toml is not valid: unknown key "slio" \(did you mean "silo"\?\); the keys'),
        ({"bus": {"sever": "x"}}, r'unknown key "sever" \(did you mean "servers"\?\); the keys here are: servers, certif'),
        ({"silo": ""}, "silo: field required"),
        ({"items": {"listen": "127.0.0.1:8766"}}, "items.folder: field required"),
        ({"items": {"fodler": "x", "folder": "x"}}, r'unknown key "fodler" \(did you mean "folder"\?\); the keys here are'),
        ({"items": {"folder": "x", "listen": "8766"}}, "can be reached from other machines; use 127.0.0.1"),
        ({"items": {"folder": "x", "listen": "0.0.0.0:8766"}}, "can be reached from other machines; use 127.0.0.1"),
        ({"items": {"folder": "x", "listen": "localhost"}}, "is not an address and a port, such as 127.0.0.1:8766"),
        ({"items": {"folder": "x", "listen": "127.0.0.1:65536"}}, "is not an address and a port"),
        ({"federation": "two words"}, "federation: string should match pattern"),
        ({"federation": "a.b"}, "federation: string should match pattern"),
        ({"bus": {"servers": []}}, "bus.servers: tuple should have at least 1 item"),
        ({"bus": {"servers": ["nats://127.0.0.1:4222"]}}, "is not an address such as tls://"),
        ({"bus": {"servers": ["https://nats.example.org:4222"]}}, "is not an address such as tls://"),
        ({"bus": {"servers": ["tls://nats.example.org"]}}, "is not an address such as tls://"),
        ({"bus": {"servers": ["tls://nats.example.org:99999"]}}, "is not an address"),
        ({"bus": {"servers": ["tls://user:password@nats.example.org:4222"]}}, "is not an address such as tls://"),
        ({"bus": {"certificate_key": "a.key"}}, r'unknown key "certificate_key"'),
        ({"sealing": ""}, r"\[sealing\] is missing.*silohash federation key FILE"),
        ({"sealing": {"hub": []}}, r"\[sealing\] at a silo has the keys key and hub"),
        ({"sealing": {"silos": {"north": OTHER}}}, r"\[sealing\] at a silo has the keys key and hub"),
        ({"sealing": {"hub": ["AAAA"]}}, '"AAAA" is not a public key; make the key.*: silohash federation key FILE'),
        ({"sealing": {"hub": [f"{'A' * 43}="]}}, "is not a public key"),
        ({"sealing": {"hub": ["\u00e9" * 44]}}, "is not a public key"),
        ({"sealing": {"keys": []}}, 'unknown key "keys".*the keys here are: key, hub, silos'),
    ],
)  # fmt: skip
def test_what_is_wrong_in_the_file_of_a_silo_is_named(tmp_path, changes, message):
    with pytest.raises(UserError, match=message):
        read_config(write(tmp_path, SILO, **changes), SiloConfig)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"silos": {"north": ""}}, "silos.north: string should have at least 1 character"),
        ({"silos": {"south": SUBJECT}}, "north and south have the same subject; each silo needs its own certificate"),
        ({"silos": {"south": "CN=south"}}, 'must name the same silos, and "south" is in one only'),
        (
            {"sealing": {"silos": {"north": SEALING, "south": OTHER}}},
            'must name the same silos, and "south" is in one only',
        ),
        ({"sealing": {"hub": [OTHER]}}, r"\[sealing\] at the hub has the keys key and silos"),
        (
            {"silos": {"south": "CN=south"}, "sealing": {"silos": {"north": SEALING, "south": SEALING}}},
            "a different public key per silo",
        ),
        ({"deadline_seconds": 0}, "deadline_seconds: input should be greater than 0, got 0"),
        ({"deadline_seconds": 601}, "deadline_seconds: input should be less than or equal to 600"),
        ({"deadline_limits_seconds": [0, 5]}, "deadline_limits_seconds.0: input should be greater than 0"),
        ({"deadline_limits_seconds": [9, 5]}, "deadline_limits_seconds must be the shortest and the longest"),
        ({"deadline_misses": -1}, "deadline_misses: input should be greater than or equal to 0"),
        ({"nats": {"listen": "nowhere"}}, "nats.listen: string should match pattern"),
    ],
)
def test_what_is_wrong_in_the_file_of_a_hub_is_named(tmp_path, changes, message):
    with pytest.raises(UserError, match=message):
        read_config(write(tmp_path, HUB, **changes), HubConfig)


@pytest.mark.parametrize("name", ["certificate", "key", "authority"])
def test_a_server_needs_certificates(tmp_path, name):
    nats = {key: value for key, value in HUB["nats"].items() if key != name}
    with pytest.raises(InvalidFile, match=f"nats.{name}: field required"):
        read_config(write(tmp_path, {**HUB, "nats": nats}), HubConfig)


def test_a_missing_or_damaged_file_is_explained(tmp_path):
    with pytest.raises(MissingFile, match=r"none.toml.*missing.*docs/how-to/deploy.md"):
        read_config(tmp_path / "none.toml", SiloConfig)
    (tmp_path / "bad.toml").write_text("silo = ")
    with pytest.raises(InvalidFile):
        read_config(tmp_path / "bad.toml", HubConfig)


def test_web_servers_are_addresses_or_networks(tmp_path):
    config = read_config(write(tmp_path, {**HUB, "proxies": ["127.0.0.1", "172.31.251.0/24", "::1"]}), HubConfig)
    assert [*map(str, config.proxies)] == ["127.0.0.1/32", "172.31.251.0/24", "::1/128"]
    assert read_config(write(tmp_path, HUB), HubConfig).proxies == ()
    with pytest.raises(InvalidFile, match=r"proxies"):
        read_config(write(tmp_path, {**HUB, "proxies": ["proxy.example.org"]}), HubConfig)


@pytest.mark.parametrize(
    ("host", "local"),
    [("localhost", True), ("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("10.0.0.1", False),
     ("0.0.0.0", False),  # noqa: S104  not bound
     ("nats.example.org", False), (None, False)],
)  # fmt: skip
def test_hosts_of_this_machine(host, local):
    assert is_local(host) is local


def test_metrics_are_served_to_this_machine_only() -> None:
    assert host_and_port(MetricsSettings().listen) == ("127.0.0.1", 9100)
    assert host_and_port(MetricsSettings(listen="[::1]:9200").listen) == ("::1", 9200)
    for listen in ("0.0.0.0:9100", "silo.example.org:9100", "127.0.0.1", "127.0.0.1:70000"):
        with pytest.raises(ValidationError):
            MetricsSettings(listen=listen)


@pytest.mark.parametrize(("begins", "form"), [('silo = "north"', SiloConfig), ('federation = "museums"', HubConfig)])
def test_the_files_of_the_documentation_are_valid(repository, tmp_path, begins, form):
    page = (repository / "docs" / "how-to" / "deploy.md").read_text(encoding="utf-8")
    (block,) = (body for body in page.split("```toml\n")[1:] if body.startswith(begins) and "[bus]" in body)
    (tmp_path / "member.toml").write_text(block.split("```")[0], encoding="utf-8")
    assert read_config(tmp_path / "member.toml", form).sealing.key == tmp_path / "sealing.key"
