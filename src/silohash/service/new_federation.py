"""Write all files of a new federation: one folder per silo, one for the hub, and one for the NATS server.

The folders hold everything that a member needs, so each of them can be moved to the member's machine::

    FOLDER/hub/      hub.toml, hub.key, run/                  the model, and the public keys of the silos
    FOLDER/nats/     nats.conf                                who may send what; with TLS, the server's certificate
    FOLDER/SILO/     silo.toml, silo.key, run/                the model, and the silo's index and policy
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any
from urllib.parse import urlsplit

from pydantic import ValidationError

from silohash.base.errors import InvalidName, NoEffect, NotIndexed, RepeatedValue, SettingNeeded, WrongAddress
from silohash.base.files import check_new_folder, folder_beside, make_private, write_bytes, write_text
from silohash.base.forms import fault, of_value, reading
from silohash.base.names import canonical
from silohash.base.registry import suggestion
from silohash.index.listing import note_indexed, read_listing
from silohash.run.config.toml import to_toml
from silohash.run.folder import Run
from silohash.search.silos import POLICIES
from silohash.service.config import BusSettings, FederationName, HubConfig, is_local, read_config
from silohash.service.nats_server import new_key, server_config

HUB, NATS = "hub", "nats"
SHARED = ("config.toml", "environment.json", "partition.json", "rounds.jsonl")
"""Files of a run that every member gets, besides the folder of the model. They do not hold any item of a silo."""

CERTIFICATE, CERTIFICATE_KEY, AUTHORITY = "server.pem", "server-key.pem", "authority.pem"
OPEN_TO_ALL = "0.0.0.0"  # noqa: S104  only with TLS


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """Where the members find the NATS server.

    Attributes:
        address: Address of the server, such as ``tls://nats.example.org:4222``. Without TLS, it is this machine.
        certificate: The server's certificate. It is required with TLS.
        authority: Certificates that the members trust; None for those that their operating systems trust.
    """

    address: str = "nats://127.0.0.1:4222"
    certificate: Path | None = None
    certificate_key: Path | None = None
    authority: Path | None = None

    def check(self) -> None:
        """Check the address, and that a certificate is given if it is needed.

        Raises:
            UserError: If the address is not valid, or the certificate and the address do not fit.
        """
        try:
            BusSettings(servers=(self.address,), key=Path())
        except ValidationError as error:
            raise WrongAddress(f"--server is not valid: {fault(error)}.") from error
        certified = self.certificate is not None and self.certificate_key is not None
        if self.encrypted and not certified:
            raise SettingNeeded(
                f"--server {self.address} is encrypted. Give the server's certificate with --certificate and "
                "--certificate-key."
            )
        if not self.encrypted and (self.certificate or self.certificate_key or self.authority):
            raise NoEffect(
                f"--server {self.address} is not encrypted, so it does not use a certificate. Use tls://, or leave the "
                "certificates out."
            )

    @property
    def encrypted(self) -> bool:
        """Whether connections are encrypted."""
        return self.address.startswith("tls:")

    @property
    def listen(self) -> str:
        """The address and port on which the server listens."""
        parts = urlsplit(self.address)
        host = OPEN_TO_ALL if self.encrypted and not is_local(parts.hostname) else parts.hostname
        return f"{f'[{host}]' if ':' in (host or '') else host}:{parts.port}"


def write_federation(
    run: Run, folder: Path, *, silos: Sequence[str], name: str | None = None, server: ServerSettings | None = None
) -> list[str]:
    """Write the files of a federation into a new folder, and return the names of its silos.

    A silo that is indexed in the run gets its index. Other silos get the model only, and build their index with it. By
    default, the silos are those that are indexed, the federation has the folder's name, and the server is on this machine.

    Raises:
        UserError: If the folder is not empty, a name or the server is not valid, the run is not trained, or a file cannot
            be read or written.
    """
    server = server or ServerSettings()
    server.check()
    _ = run.model  # is trained
    check_new_folder(folder)
    federation = folder.resolve().name if name is None else name
    try:
        of_value(federation, FederationName)
    except ValidationError as error:
        raise InvalidName(
            f'A federation cannot have the name "{federation}". Set one of at most 64 letters, digits, - and _ with --name.'
        ) from error
    with run.writing():
        indexed = read_listing(run.index_folder) or {}
        members = list(dict.fromkeys(silos)) or [silo for silo, held in indexed.items() if held is not None]
        _check_names(members, run)
        with folder_beside(folder) as new:
            keys = {silo: _write_silo(run, new / silo, silo, federation, server) for silo in members}
            _write_hub(run, new, federation, server, keys)
            if folder.exists():
                folder.rmdir()
    return members


def _check_names(silos: Sequence[str], run: Run) -> None:
    if not silos:
        raise NotIndexed(f"{run.folder} has no indexed silo. Name the silos of the federation with --silo.")
    for silo in silos:
        if silo.casefold() in {HUB, NATS} or silo != Path(silo).name or silo.startswith((".", "-")):
            raise InvalidName(
                f'A silo cannot have the name "{silo}" here, because its files are in a folder of this name. '
                "Choose another name without slashes."
            )
    seen = Counter(canonical(silo).casefold() for silo in silos)
    twice = next((silo for silo in silos if seen[canonical(silo).casefold()] > 1), None)
    if twice is not None:
        raise RepeatedValue(f'Two silos have the name "{twice}" in different spellings{suggestion(twice, silos)}.')


def _write_silo(run: Run, folder: Path, silo: str, federation: str, server: ServerSettings) -> str:
    """Write the folder of a silo, and return its public key."""
    _copy_run(run, folder / "run")
    policy, index = run.folder / POLICIES / f"{silo}.toml", run.index_folder / silo
    if policy.exists():
        (folder / "run" / POLICIES).mkdir()
        shutil.copy(policy, folder / "run" / POLICIES)
    if index.is_dir():
        shutil.copytree(index, folder / "run" / "index" / silo)
        make_private(folder / "run" / "index" / silo)  # one of an earlier version is open
        held = (read_listing(run.index_folder) or {}).get(silo)
        if held is not None:
            note_indexed(folder / "run" / "index", silo, held, (silo,))
    file = {"silo": silo, "federation": federation, "run": "run"}
    _write_toml(folder / "silo.toml", f"The silo {silo}", file | {"bus": _bus(folder, "silo.key", server)})
    return new_key(folder / "silo.key")


def _write_hub(run: Run, root: Path, federation: str, server: ServerSettings, keys: dict[str, str]) -> None:
    folder = root / HUB
    _copy_run(run, folder / "run")
    new_key(folder / "hub.key")
    file = {"federation": federation, "run": "run", "bus": _bus(folder, "hub.key", server), "silos": keys}
    nats = {"listen": server.listen, **_certificates(root / NATS, server)}
    _write_toml(folder / "hub.toml", f"The hub of the federation {federation}", file | {"nats": nats})
    config = server_config(read_config(folder / "hub.toml", HubConfig), beside=folder / ".." / NATS)
    write_text(root / NATS / "nats.conf", config)


def _copy_run(run: Run, folder: Path) -> None:
    shutil.copytree(run.model_folder, folder / "model")
    for name in SHARED:
        if (run.folder / name).exists():
            shutil.copy(run.folder / name, folder / name)


def _bus(folder: Path, key: str, server: ServerSettings) -> dict[str, Any]:
    """Return the table ``[bus]`` of a member. The certificate of the authority is copied into the member's folder."""
    table: dict[str, Any] = {"servers": [server.address], "key": key}
    if server.authority is not None:
        _copy(server.authority, folder / AUTHORITY)
        table["authority"] = AUTHORITY
    return table


def _certificates(folder: Path, server: ServerSettings) -> dict[str, str]:
    """Copy the certificate of the server into its folder, and return its keys of the table ``[nats]``."""
    if server.certificate is None or server.certificate_key is None:
        return {}
    _copy(server.certificate, folder / CERTIFICATE)
    _copy(server.certificate_key, folder / CERTIFICATE_KEY, private=True)
    return {"certificate": f"../{NATS}/{CERTIFICATE}", "certificate_key": f"../{NATS}/{CERTIFICATE_KEY}"}


def _copy(source: Path, target: Path, *, private: bool = False) -> None:
    with reading(source, missing="Check the path."):
        content = source.read_bytes()
    write_bytes(target, content, private=private)


def _write_toml(path: Path, title: str, tables: dict[str, Any]) -> None:
    write_text(path, f"# {title}. docs/how-to/deploy.md describes all keys.\n\n{to_toml(tables)}")


def commands(folder: Path, silos: Iterable[str], server: ServerSettings) -> list[str]:
    """Return the commands that start the members of a new federation, one per process.

    With TLS, the NATS server finds its certificate in the working directory, so it is started in its folder.
    """
    nats = folder / NATS
    in_folder = f"cd {quote(str(nats))} && nats-server -c nats.conf"
    return [
        in_folder if server.encrypted else f"nats-server -c {quote(str(nats / 'nats.conf'))}",
        *(f"silohash silo {quote(str(folder / silo / 'silo.toml'))}" for silo in silos),
        f"silohash hub {quote(str(folder / HUB / 'hub.toml'))}",
    ]
