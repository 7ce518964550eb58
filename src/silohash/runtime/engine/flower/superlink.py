"""The process of the server: ``python -m silohash.runtime.engine.flower.superlink KIT``.

It is Flower's SuperLink, which passes messages between silos and whoever starts runs. It does not run the program of a
run, silos must hold a key of the kit, and only whoever has the secret of the kit starts runs or changes anything.
"""

from __future__ import annotations

import ipaddress
import secrets
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import uvicorn
from flwr.common.constant import (
    ACCESS_TOKEN_KEY,
    HEARTBEAT_DEFAULT_INTERVAL,
    ISOLATION_MODE_PROCESS,
    NOOP_ACCOUNT_NAME,
    NOOP_FLWR_AID,
    TRANSPORT_TYPE_GRPC_RERE,
)
from flwr.supercore.auth.typing import AccountInfo
from flwr.supercore.constant import FLWR_IN_MEMORY_DB_NAME
from flwr.superlink.auth_plugin import ControlAuthnPlugin
from flwr.superlink.cli.flower_superlink import SuperLinkLifespan
from flwr.superlink.config_loader import SuperLinkLifespanConfig
from flwr.superlink.main import create_app

from silohash.runtime.engine.flower.kits import AUTHORITY, CERTIFICATE, CERTIFICATE_KEY, Connection


class SecretHolder(ControlAuthnPlugin):  # type: ignore[misc]  # Flower has no types
    """Let whoever has the secret of the kit start runs, and nobody else.

    Args:
        secret: the secret.
    """

    def __init__(self, secret: bytes) -> None:
        self.secret = secret

    def validate_tokens_in_metadata(self, metadata: Sequence[tuple[str, str | bytes]]) -> tuple[bool, Any]:
        """Return whether a request comes with the secret, and the account of all who have it."""
        given = dict(metadata).get(ACCESS_TOKEN_KEY, "")
        given = given.encode() if isinstance(given, str) else given
        known = secrets.compare_digest(given, self.secret)
        return known, AccountInfo(NOOP_FLWR_AID, NOOP_ACCOUNT_NAME) if known else None

    def get_login_details(self) -> None:
        """Return nothing, because nobody signs in."""

    def get_auth_tokens(self, device_code: str) -> None:
        """Return nothing, because nobody signs in."""

    def refresh_tokens(self, metadata: Sequence[tuple[str, str | bytes]]) -> tuple[None, None]:
        """Return nothing, because the secret does not expire."""
        return None, None


def settings(connection: Connection) -> Any:  # noqa: ANN401  Flower has no types
    """Return the settings of the SuperLink of a kit. It keeps messages in memory only."""
    startup, address = connection.startup, connection.address
    files = [startup / name for name in (AUTHORITY, CERTIFICATE, CERTIFICATE_KEY)]
    authority, certificate, key = (str(file) for file in files)
    return SuperLinkLifespanConfig(
        host=listening_address(connection.host), port=connection.port, control_address=address, fleet_api_address=address,
        health_server_address=None, insecure=False, certificates=tuple(file.read_bytes() for file in files),
        ssl_ca_certfile=authority, ssl_certfile=certificate, ssl_keyfile=key, enable_supernode_auth=True,
        authn_plugin=SecretHolder(connection.secret()), superexec_auth_secret=connection.secret(),
        event_log_plugin=None, fleet_event_log_plugin=None, enable_event_log=False, artifact_provider=None,
        fleet_api_type=TRANSPORT_TYPE_GRPC_RERE, simulation=False, database=FLWR_IN_MEMORY_DB_NAME,
        isolation=ISOLATION_MODE_PROCESS, runtime_dependency_install=False,
    )  # fmt: skip


def listening_address(host: str) -> str:
    """Return the address on which a server listens: that of this machine alone if its name is one, else every one."""
    try:
        given = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)
    except ValueError:
        return "0.0.0.0"  # noqa: S104  silos on other machines reach it
    if given.is_loopback:
        return str(given)
    return "0.0.0.0" if given.version == 4 else "::"  # noqa: S104


def admit(state: Any, keys: Mapping[str, bytes]) -> None:  # noqa: ANN401
    """Let silos connect, each with its own key.

    Args:
        state: the state of the SuperLink.
        keys: public key of each silo in PEM form, by its name.
    """
    for name, key in keys.items():
        state.create_node(NOOP_FLWR_AID, NOOP_ACCOUNT_NAME, key, HEARTBEAT_DEFAULT_INTERVAL, name=name)


def main() -> None:
    """Run the server until it is stopped."""
    connection = Connection.of(Path(sys.argv[1]))
    config = settings(connection)
    app = create_app(config, SuperLinkLifespan)
    admit(app.state.linkstate_factory.state(), connection.silo_keys())
    uvicorn.run(
        app, host=config.host, port=config.port, log_level="warning", access_log=False, workers=1,
        ssl_keyfile=config.ssl_keyfile, ssl_certfile=config.ssl_certfile,
    )  # fmt: skip


if __name__ == "__main__":
    main()
