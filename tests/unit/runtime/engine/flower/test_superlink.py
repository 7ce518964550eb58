"""The server: who may start runs, who may connect, and where it listens."""

from __future__ import annotations

from pathlib import Path

import pytest

from silohash.runtime.sites.kits import SERVER, STARTUP, Training

pytest.importorskip("flwr", reason="Flower is not installed: make test-flower")

from fastapi.testclient import TestClient
from flwr.proto.control_pb2 import ListNodesRequest, ListNodesResponse, StartRunRequest
from flwr.supercore.protobuf.constants import PROTOBUF_MEDIA_TYPE
from flwr.superlink.cli.flower_superlink import SuperLinkLifespan
from flwr.superlink.main import create_app

from silohash.runtime.engine.flower.kits import SILOS, Connection, write_flower_kits
from silohash.runtime.engine.flower.superlink import admit, listening_address, settings


@pytest.fixture
def connection(tmp_path: Path) -> Connection:
    write_flower_kits(tmp_path / "kits", ["north", "south"], Training(port=18003))
    return Connection.of(tmp_path / "kits" / SERVER)


def test_only_who_has_the_secret_asks_the_server(connection: Connection) -> None:
    app = create_app(settings(connection), SuperLinkLifespan)
    admit(app.state.linkstate_factory.state(), connection.silo_keys())
    secret = connection.secret().decode()
    with TestClient(app) as client:

        def ask(path: str, request: object, **headers: str):
            kinds = {"content-type": PROTOBUF_MEDIA_TYPE, "accept": PROTOBUF_MEDIA_TYPE}
            return client.post(path, content=request.SerializeToString(), headers={**kinds, **headers})

        for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": f"Basic {secret}"}):
            assert ask("/v1/control/list-nodes", ListNodesRequest(), **headers).status_code == 401
            assert ask("/v1/control/start-run", StartRunRequest(), **headers).status_code == 401
        known = ask("/v1/control/list-nodes", ListNodesRequest(), authorization=f"Bearer {secret}")
        assert known.status_code == 200
        nodes = ListNodesResponse.FromString(known.content).nodes_info
        assert {node.name: node.public_key for node in nodes} == connection.silo_keys()


def test_no_program_of_a_run_is_started_or_installed(connection: Connection) -> None:
    config = settings(connection)
    assert config.isolation == "process"
    assert config.runtime_dependency_install is False
    assert config.enable_supernode_auth
    assert config.superexec_auth_secret == connection.secret()
    assert not config.insecure
    assert config.host == "127.0.0.1"


def test_silo_whose_key_is_taken_out_of_the_kit_is_not_admitted(connection: Connection) -> None:
    (connection.startup / SILOS / "south.pub").unlink()
    admitted = []

    class State:
        def create_node(self, *account: object, name: str) -> None:
            admitted.append(name)

    admit(State(), connection.silo_keys())
    assert admitted == ["north"]
    assert (connection.kit / STARTUP / SILOS).exists()


@pytest.mark.parametrize(
    ("host", "address"), [("127.0.0.1", "127.0.0.1"), ("localhost", "127.0.0.1"), ("::1", "::1"), ("2001:db8::7", "::")]
)
def test_server_of_this_machine_is_not_reached_from_elsewhere(host: str, address: str) -> None:
    assert listening_address(host) == address


@pytest.mark.parametrize("host", ["train.example.org", "192.0.2.7"])
def test_server_of_a_network_listens_at_every_address(host: str) -> None:
    assert listening_address(host) == "0.0.0.0"  # noqa: S104
