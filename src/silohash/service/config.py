"""The TOML files of a hub and of a silo, with the keys that docs/how-to/deploy.md shows by example.

Paths in a file are relative to the folder of the file.
"""

import base64
import ipaddress
from pathlib import Path
from typing import Annotated, Self, TypeVar
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    IPvAnyNetwork,
    ValidationError,
    ValidationInfo,
    model_validator,
)

from silohash.base.attempts import attempted
from silohash.base.errors import InvalidFile
from silohash.base.files import read_toml
from silohash.base.forms import detail, fault, located
from silohash.base.registry import suggestion

REMEDY = "Correct the file."
MISSING = "Write it as docs/how-to/deploy.md describes."
NEW_KEY = "make the key of a member with: silohash federation key FILE"
MOST_PORT = 65_535


def is_local(host: str | None) -> bool:
    """Return whether a host is this machine."""
    loopback = attempted(lambda: ipaddress.ip_address(host or "").is_loopback, ValueError, otherwise=False)
    return loopback or host == "localhost"


def _checked_server(address: str) -> str:
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise ValueError(f'"{address}" is not an address ({error})') from error
    if parts.scheme != "tls" or not host or port is None or parts.username is not None:
        raise ValueError(f'"{address}" is not an address such as tls://nats.example.org:4222')
    return address


def _checked_listen(address: str) -> str:
    """Return an address to listen on, after checking that only this machine can reach it."""
    host, _, port = address.rpartition(":")
    # isdecimal alone accepts the digits of other scripts.
    if not port.isascii() or not port.isdecimal() or int(port) > MOST_PORT:
        raise ValueError(f'"{address}" is not an address and a port, such as 127.0.0.1:8766')
    if not is_local(host.strip("[]")):
        raise ValueError(f'"{address}" can be reached from other machines; use 127.0.0.1')
    return address


def _checked_key(key: str) -> str:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

    try:
        # Some of 32 bytes share the same secret with every key.
        X25519PrivateKey.generate().exchange(X25519PublicKey.from_public_bytes(base64.b64decode(key, validate=True)))
    except ValueError as error:
        raise ValueError(f'"{key}" is not a public key; {NEW_KEY}') from error
    return key


def _beside(path: Path, info: ValidationInfo) -> Path:
    """Return a path relative to the working directory, if the folder of the file is known that it is relative to."""
    return path if info.context is None else info.context / path.expanduser()


def host_and_port(address: str) -> tuple[str, int]:
    """Return the host and the port of an address to listen on."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


FilePath = Annotated[Path, AfterValidator(_beside)]
Name = Annotated[str, Field(min_length=1, max_length=200)]
FederationName = Annotated[str, Field(pattern="^[A-Za-z0-9_-]{1,64}$")]
Server = Annotated[str, AfterValidator(_checked_server)]
Subject = Annotated[str, Field(min_length=1, max_length=1000)]
SealingKey = Annotated[str, AfterValidator(_checked_key)]
Seconds = Annotated[float, Field(gt=0, le=600)]


class _Table(BaseModel):
    """A table whose unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)


class BusSettings(_Table):
    """How to connect to the NATS server, or to the servers of a cluster. Every connection is encrypted.

    The ``key`` is that of this member's certificate. Without an ``authority``, those of the operating system are trusted.
    """

    servers: Annotated[tuple[Server, ...], Field(min_length=1)]
    certificate: FilePath
    key: FilePath
    authority: FilePath | None = None


class SealingSettings(_Table):
    """The keys with which the hub and the silos encrypt and sign their messages for each other.

    Attributes:
        key: File with the secret key of this member.
        hub: At a silo, the public key of the hub; two while the hub's key is replaced.
        silos: At the hub, the public key of each silo.
    """

    key: FilePath
    hub: tuple[SealingKey, ...] = ()
    silos: dict[Name, SealingKey] = Field(default_factory=dict)


class NatsSettings(_Table):
    """The NATS server for which a config file is written, and the authority that signs the members' certificates."""

    listen: Annotated[str, Field(pattern=r"^[^\s\"\\]+:\d{1,5}$")] = "0.0.0.0:4222"
    certificate: FilePath
    key: FilePath
    authority: FilePath


class ItemsSettings(_Table):
    """Where the items come from that are added while a silo runs.

    Attributes:
        folder: Folder of pictures with or without a metadata file. It is created if it does not exist.
        listen: Address and port of the API for programs on this machine; None for no API.
        token: File of the token that the programs send. It is made at the first start.
    """

    folder: FilePath
    listen: Annotated[str, AfterValidator(_checked_listen)] | None = None
    token: FilePath = Path("items.token")


class MetricsSettings(_Table):
    """Address and port where the metrics of a silo's process are served, which only this machine can reach."""

    listen: Annotated[str, AfterValidator(_checked_listen)] = "127.0.0.1:9100"


class SiloConfig(_Table):
    """The file of a silo.

    Attributes:
        run: Folder of the trained run, with the silo's index.
        policy: File of the silo's policy; None for that in the folder of the run.
        items: Where further items come from; None if the silo has the items of its index only.
        next_run: Folder of a new run. The silo's items are encoded with its model in the background.
        archive: Folder of the archive that the index was built from; None for the one that is noted beside the index.
        training: Folder of the silo's training kit; None if the process does not train.
        keep_old_hours: Hours without a query with the old model after which the old index is removed.
    """

    silo: Name
    federation: FederationName
    run: FilePath
    bus: BusSettings
    sealing: SealingSettings
    policy: FilePath | None = None
    items: ItemsSettings | None = None
    metrics: MetricsSettings | None = None
    next_run: FilePath | None = None
    archive: FilePath | None = None
    training: FilePath | None = None
    keep_old_hours: Annotated[float, Field(ge=0)] = 24.0

    @property
    def items_folder(self) -> Path:
        """The items folder. A silo without one has an empty folder in its run."""
        return self.items.folder if self.items is not None else self.run / "items" / self.silo

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.sealing.hub or self.sealing.silos:
            raise ValueError("[sealing] at a silo has the keys key and hub, a list with the hub's public key")
        return self


class HubConfig(_Table):
    """The file of a hub.

    Attributes:
        silos: The subject of each silo's certificate by the silo's name.
        deadline_seconds: Time limit for the answers of the silos to a query that does not have a limit of its own.
        deadline_limits_seconds: The shortest and the longest time limit that a query may have of its own.
        deadline_misses: Number of time limits in a row that a silo may miss. It is then not waited for until it answers a
            probe. At 0 it is always waited for.
        share_words: Whether the text of a query may be sent to silos that accept it, if the one who asks allows it, too.
        nats: The NATS server, if its config is written from this file.
        hosts: Names under which the API and the page are reached, besides those of this machine. They need accounts.
        picture_hosts: Hosts from which the service fetches a picture whose address is sent in place of the file.
        proxies: Addresses or networks of the web servers that pass requests on. Only they tell where a request comes from.
        next_run: Folder of a new run, whose model replaces that of ``run`` as soon as the silos have it.
        next_share: Share of the silos that must have the new model.
        next_at: Time from which the new model is used even if they do not; None for no such time.
        excluded: List of the silos that are not asked, which ``silohash hub --exclude`` writes.
    """

    federation: FederationName
    run: FilePath
    bus: BusSettings
    sealing: SealingSettings
    silos: Annotated[dict[Name, Subject], Field(min_length=1)]
    deadline_seconds: Seconds = 5.0
    deadline_limits_seconds: tuple[Seconds, Seconds] = (0.1, 60.0)
    deadline_misses: Annotated[int, Field(ge=0)] = 1
    share_words: bool = False
    nats: NatsSettings | None = None
    hosts: tuple[Name, ...] = ()
    picture_hosts: tuple[Name, ...] = ()
    proxies: tuple[IPvAnyNetwork, ...] = ()
    next_run: FilePath | None = None
    next_share: Annotated[float, Field(gt=0, le=1)] = 1.0
    next_at: AwareDatetime | None = None
    excluded: FilePath = Path("excluded.txt")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.deadline_limits_seconds[0] > self.deadline_limits_seconds[1]:
            raise ValueError("deadline_limits_seconds must be the shortest and the longest time limit, in this order")
        keys = list(self.silos.values())
        if twice := sorted(silo for silo, key in self.silos.items() if keys.count(key) > 1):
            raise ValueError(f"silos: {' and '.join(twice)} have the same subject; each silo needs its own certificate")
        sealing = self.sealing.silos
        if odd := sorted(sealing.keys() ^ self.silos.keys()):
            raise ValueError(f'[silos] and [sealing.silos] must name the same silos, and "{odd[0]}" is in one only')
        if len(set(sealing.values())) < len(sealing) or self.sealing.hub:
            raise ValueError("[sealing] at the hub has the keys key and silos, with a different public key per silo")
        return self


ConfigT = TypeVar("ConfigT", bound=_Table)


def read_config(path: Path, form: type[ConfigT]) -> ConfigT:
    """Read the file of a silo or of a hub.

    Raises:
        UserError: If it is missing or is not TOML, a key is unknown or missing, or a value is not allowed.
    """
    content = read_toml(path, remedy=REMEDY, missing=MISSING)
    try:
        return form.model_validate(content, context=path.parent)
    except ValidationError as error:
        raise InvalidFile(f"{path} is not valid: {_explained(error, form)}. {REMEDY}") from error


def _explained(error: ValidationError, form: type[BaseModel]) -> str:
    """Return what is wrong, with the nearest known key for an unknown one."""
    first = error.errors(include_url=False, include_context=False)[0]
    if first["type"] == "missing" and first["loc"] == ("sealing",):
        return f"[sealing] is missing, the table of the keys that encrypt messages; {NEW_KEY}"
    if first["type"] != "extra_forbidden":
        return fault(error)
    name, (_, table) = str(first["loc"][-1]), located(first["loc"][:-1], form)
    known = (table or form).model_fields
    return detail(ValueError(f'unknown key "{name}"{suggestion(name, known)}; the keys here are: {", ".join(known)}'))
