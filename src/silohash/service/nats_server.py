"""The subjects of the messages of a federation, and the config of the NATS server that connects its members.

Members sign in with their certificates (`silohash.base.certificates`). The server knows the subjects of the certificates, so
that its config does not contain secrets.

The server enforces what each member may send. A silo may only receive requests to itself and publish answers under its own
name. Only the hub may send requests and receive answers. Silos can neither see nor answer the requests to other silos.
"""

import base64
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from silohash.base.certificates import subject_of
from silohash.base.errors import RepeatedValue, SettingNeeded
from silohash.search.wire import MOST_ANSWER_BYTES
from silohash.service.config import HubConfig, NatsSettings

_PLAIN = re.compile("[A-Za-z0-9_-]{1,100}")


@dataclass(frozen=True)
class Subjects:
    """Name the subjects of a federation. A subject is the address of messages on the bus."""

    federation: str

    def requests(self, silo: str) -> str:
        """Return the subject of the requests to a silo."""
        return f"silohash.{self.federation}.ask.{token(silo)}"

    def answer(self, silo: str, hub: str, number: int) -> str:
        """Return the subject of one answer: of a silo, to a hub's process, to the request with a number."""
        return f"silohash.{self.federation}.answer.{token(silo)}.{hub}.{number}"

    def answers(self, silo: str, hub: str) -> str:
        """Return the pattern of all answers of a silo to a hub's process."""
        return f"silohash.{self.federation}.answer.{token(silo)}.{hub}.*"

    def permissions(self, silo: str | None) -> dict[str, dict[str, list[str]]]:
        """Return what a silo may publish and subscribe to; None for the hub."""
        prefix = f"silohash.{self.federation}"
        if silo is None:
            publish, subscribe = f"{prefix}.ask.*", f"{prefix}.answer.>"
        else:
            publish, subscribe = f"{prefix}.answer.{token(silo)}.>", self.requests(silo)
        return {"publish": {"allow": [publish]}, "subscribe": {"allow": [subscribe]}}


def token(silo: str) -> str:
    """Return the name of a silo as one part of a subject. Names that NATS does not allow in subjects are encoded.

    Example:
        >>> token("north"), token("Musée d'Orsay")
        ('north', '=TXVzw6llIGQnT3JzYXk')
    """
    if _PLAIN.fullmatch(silo):
        return silo
    return "=" + base64.urlsafe_b64encode(silo.encode()).decode().rstrip("=")


def server_config(config: HubConfig, *, beside: Path | None = None) -> str:
    """Return the config file of the NATS server of a federation.

    Certificates ``beside`` it, in its folder, are written without the folder, so that it can be moved, and the server must
    be started in it. None writes absolute paths.

    Raises:
        UserError: If the hub's file has no table ``[nats]``, or the hub's certificate cannot be read.
    """
    if config.nats is None:
        raise SettingNeeded("The hub's file has no table [nats]. Add it, with certificate, key and authority.")
    hub = subject_of(config.bus.certificate)
    if hub in config.silos.values():
        raise RepeatedValue(f"The certificates of the hub and of a silo have the same subject, {hub}. Make a new one.")
    return "\n".join(_lines(config, config.nats, hub, beside)) + "\n"


def _lines(config: HubConfig, nats: NatsSettings, hub: str, beside: Path | None) -> Iterator[str]:
    subjects = Subjects(config.federation)
    yield f"# NATS server of the federation {config.federation}. Written by: silohash hub CONFIG --write-nats-config"
    yield "# After a change, write it again and run: nats-server --signal reload"
    yield f"listen: {json.dumps(nats.listen)}"
    yield f"max_payload: {MOST_ANSWER_BYTES}"
    yield 'ping_interval: "5s"'  # a member whose machine was cut off is noticed within 15 seconds
    yield "ping_max: 2"
    yield "tls: {"
    for key, path in {"cert_file": nats.certificate, "key_file": nats.key, "ca_file": nats.authority}.items():
        is_beside = beside is not None and path.parent.resolve() == beside.resolve()
        yield f"  {key}: {json.dumps(path.name if is_beside else str(path.resolve()))}"
    yield "  verify_and_map: true"  # a member is the user that the subject of its certificate names
    yield "}"
    yield "authorization: {"
    yield "  users: ["
    for name, (silo, user) in {"hub": (None, hub), **{s: (s, user) for s, user in config.silos.items()}}.items():
        yield f"    # {json.dumps(name)}"
        yield f"    {json.dumps({'user': user, 'permissions': subjects.permissions(silo)}, ensure_ascii=False)}"
    yield "  ]"
    yield "}"
