"""Keys of the members of a federation, their subjects, and the config of the NATS server that connects them.

A member's key is an Ed25519 key pair in NATS's form (an "nkey"). The secret key is created on the member's machine and stays
there. The hub knows the public keys only, so that the config of the server does not contain secrets.

The server enforces what each member may send. A silo may only receive requests to itself and publish answers under its own
name. Only the hub may send requests and receive answers. Silos can neither see nor answer the requests to other silos.
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from silohash.base.errors import AlreadyExists, RepeatedValue, SettingNeeded, WrongKindOfFile
from silohash.base.files import explaining_disk_errors
from silohash.base.forms import reading
from silohash.base.optional import require
from silohash.search.wire import MOST_ANSWER_BYTES
from silohash.service.config import HubConfig, NatsSettings

_PLAIN = re.compile("[A-Za-z0-9_-]{1,100}")
_SEED = re.compile("SU[A-Z2-7]{56}")


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


def new_key(path: Path) -> str:
    """Create a secret key in a new file that only its owner can read, and return the public key.

    Raises:
        UserError: If the file exists or cannot be written, or a package is missing.
    """
    require("nkeys", "Making a key")
    import nkeys

    seed = nkeys.encode_seed(os.urandom(32), nkeys.PREFIX_BYTE_USER)
    if path.exists():
        raise AlreadyExists(f"{path} exists already, and a new key would lock this member out. Remove the file first.")
    with explaining_disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(seed + b"\n")
    return public_key(path)


def public_key(path: Path) -> str:
    """Return the public key that belongs to the secret key in a file."""
    require("nkeys", "Reading a key")
    import nkeys

    pair = nkeys.from_seed(bytearray(secret_key(path), "ascii"))
    return str(pair.public_key.decode())


def secret_key(path: Path) -> str:
    """Return the secret key in a file.

    Raises:
        UserError: If the file is missing or does not hold a secret key. The message does not repeat its content.
    """
    with reading(path, remedy="Make a new one with --new-key.", missing="Make it with --new-key."):
        text = path.read_bytes().decode("ascii", "replace").strip()
    if not _SEED.fullmatch(text):
        raise WrongKindOfFile(f"{path} does not hold a secret key of this program. Make one with --new-key.")
    return text


def server_config(config: HubConfig, *, beside: Path | None = None) -> str:
    """Return the config file of the NATS server of a federation.

    Certificates ``beside`` it, in its folder, are written without the folder, so that it can be moved, and the server must
    be started in it. None writes absolute paths.

    Raises:
        UserError: If the hub's file has no table ``[nats]``, or the hub has no key.
    """
    if config.nats is None:
        raise SettingNeeded("The hub's file has no table [nats]. Add it, with listen, certificate and certificate_key.")
    hub_key = public_key(config.bus.key)
    if hub_key in config.silos.values():
        raise RepeatedValue(f"The hub and a silo have the same public key, {hub_key}. Make a new key for one of them.")
    return "\n".join(_lines(config, config.nats, hub_key, beside)) + "\n"


def _lines(config: HubConfig, nats: NatsSettings, hub_key: str, beside: Path | None) -> Iterator[str]:
    subjects = Subjects(config.federation)
    yield f"# NATS server of the federation {config.federation}. Written by: silohash hub CONFIG --write-nats-config"
    yield "# After a change, write it again and run: nats-server --signal reload"
    yield f"listen: {json.dumps(nats.listen)}"
    yield f"max_payload: {MOST_ANSWER_BYTES}"
    yield 'ping_interval: "5s"'  # a member whose machine was cut off is noticed within 15 seconds
    yield "ping_max: 2"
    yield from _tls(nats, beside)
    yield "authorization: {"
    yield "  users: ["
    for name, (silo, key) in {"hub": (None, hub_key), **{s: (s, k) for s, k in config.silos.items()}}.items():
        user = {"nkey": key, "permissions": subjects.permissions(silo)}
        yield f"    # {json.dumps(name)}"
        yield f"    {json.dumps(user)}"
    yield "  ]"
    yield "}"


def _tls(nats: NatsSettings, beside: Path | None) -> Iterator[str]:
    if nats.certificate is None:
        return
    files = {"cert_file": nats.certificate, "key_file": nats.certificate_key, "ca_file": nats.authority}
    yield "tls: {"
    for key, path in files.items():
        if path is not None:
            is_beside = beside is not None and path.parent.resolve() == beside.resolve()
            yield f"  {key}: {json.dumps(path.name if is_beside else str(path.resolve()))}"
    yield f"  verify: {'true' if nats.authority else 'false'}"
    yield "}"
