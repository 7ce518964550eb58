"""Write all files of a new federation: one folder per silo, one for the hub, and one for the NATS server.

The folders hold everything that a member needs, so each of them can be moved to the member's machine::

    FOLDER/authority/  authority.pem, authority-key.pem                    what signs all certificates
    FOLDER/hub/        hub.toml, hub.pem, hub.key, sealing.key, run/       the model, and the public keys of the silos
    FOLDER/nats/       nats.conf, server.pem, server.key                   who may send what
    FOLDER/SILO/       silo.toml, silo.pem, silo.key, sealing.key, run/    the model, and the silo's index and policy
"""

import os
import shutil
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any
from urllib.parse import urlsplit

from pydantic import ValidationError

from silohash.base.certificates import AUTHORITY, AUTHORITY_FOLDER, HUB, KIT, Authority, subject, subject_of
from silohash.base.errors import InvalidName, NotIndexed, RepeatedValue, WrongAddress
from silohash.base.files import check_new_folder, folder_beside, make_private, read_text, write_text
from silohash.base.forms import fault, of_value
from silohash.base.names import canonical
from silohash.base.registry import suggestion
from silohash.index.listing import note_indexed, read_listing
from silohash.run.config.toml import to_toml
from silohash.run.folder import Run
from silohash.search.silos import POLICIES
from silohash.service.config import FederationName, HubConfig, Server, is_local, read_config
from silohash.service.envelope import new_key
from silohash.service.nats_server import server_config

NATS = "nats"
SHARED = ("config.toml", "environment.json", "partition.json", "rounds.jsonl")
"""Files of a run that every member gets, besides the folder of the model. They do not hold any item of a silo."""

CERTIFICATE, CERTIFICATE_KEY, SEALING_KEY = "server.pem", "server.key", "sealing.key"
OPEN_TO_ALL = "0.0.0.0"  # noqa: S104  only with TLS
ADDRESS = "tls://127.0.0.1:4222"


def listen(address: str) -> str:
    """Return the address and port on which the server listens that members reach at an address."""
    host, port = urlsplit(address).hostname or "", urlsplit(address).port
    host = host if is_local(host) else OPEN_TO_ALL
    return f"{f'[{host}]' if ':' in host else host}:{port}"


POLICY_COMMENT = Path(__file__).with_name("policy.toml.in").read_text(encoding="utf-8")
HUB_COMMENT = Path(__file__).with_name("hub.toml.in").read_text(encoding="utf-8")


@dataclass(frozen=True)
class _Members:
    """What the files of all members, in the folder, have in common. Silos with training ``kits`` use their certificates."""

    run: Run
    folder: Path
    federation: str
    server: str
    authority: Authority
    kits: Path | None

    def bus(self, folder: Path, stem: str, name: str) -> tuple[dict[str, Any], str]:
        """Return the table ``[bus]`` of a member and the subject of its certificate, which is new unless it has a kit."""
        table: dict[str, Any] = {"servers": [self.server]}
        kit = None if self.kits is None else self.kits.resolve() / name
        if kit is not None and (kit / KIT["certificate"]).exists():
            beside = Path(os.path.relpath(kit, self.folder.resolve() / name))
            return table | {key: str(beside / file) for key, file in KIT.items()}, subject_of(kit / KIT["certificate"])
        self.authority.write_member(folder / f"{stem}.pem", folder / f"{stem}.key", name)
        files = {"certificate": f"{stem}.pem", "key": f"{stem}.key", "authority": AUTHORITY}
        return table | files, subject(name)


def write_federation(
    run: Run,
    folder: Path,
    *,
    silos: Sequence[str],
    name: str | None = None,
    server: str = ADDRESS,
    kits: Path | None = None,
) -> list[str]:
    """Write the files of a federation into a new folder, and return the names of its silos.

    A silo that is indexed in the run gets its index. Other silos get the model only, and build their index with it. By
    default, the silos are those that are indexed, the federation has the folder's name, and the server is on this machine.

    With the folder of training ``kits``, their authority signs the certificates, and silos whose kits are there use those of
    their kits. Otherwise there is a new authority.

    Raises:
        UserError: If the folder is not empty, a name or the server is not valid, the run is not trained, or a file cannot
            be read or written.
    """
    try:
        of_value(server, Server)
    except ValidationError as error:
        raise WrongAddress(f"--server is not valid: {fault(error)}.") from error
    authority = Authority.new() if kits is None else Authority.load(kits / AUTHORITY_FOLDER)
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
        common = _Members(run, folder, federation, server, authority, kits)
        with folder_beside(folder) as new:
            if kits is None:
                authority.save(new / AUTHORITY_FOLDER)
            sealing = {silo: new_key(new / silo / SEALING_KEY) for silo in members}
            hub = new_key(new / HUB / SEALING_KEY)
            subjects = {silo: _write_silo(common, new / silo, silo, hub) for silo in members}
            _write_hub(common, new, subjects, sealing)
            if folder.exists():
                folder.rmdir()
    return members


def _check_names(silos: Sequence[str], run: Run) -> None:
    if not silos:
        raise NotIndexed(f"{run.folder} has no indexed silo. Name the silos of the federation with --silo.")
    for silo in silos:
        if silo.casefold() in {HUB, NATS, AUTHORITY_FOLDER} or silo != Path(silo).name or silo.startswith((".", "-")):
            raise InvalidName(
                f'A silo cannot have the name "{silo}" here, because its files are in a folder of this name. '
                "Choose another name without slashes."
            )
    seen = Counter(canonical(silo).casefold() for silo in silos)
    if (twice := next((silo for silo in silos if seen[canonical(silo).casefold()] > 1), None)) is not None:
        raise RepeatedValue(f'Two silos have the name "{twice}" in different spellings{suggestion(twice, silos)}.')


def _write_silo(common: _Members, folder: Path, silo: str, hub: str) -> str:
    """Write the folder of a silo, which gets the hub's public key, and return the subject of its certificate."""
    run = common.run
    _copy_run(run, folder / "run")
    policy, index = run.folder / POLICIES / f"{silo}.toml", run.index_folder / silo
    (folder / "run" / POLICIES).mkdir()
    written = read_text(policy) if policy.exists() else ""
    write_text(folder / "run" / POLICIES / f"{silo}.toml", f"{POLICY_COMMENT}{written}")
    if index.is_dir():
        shutil.copytree(index, folder / "run" / "index" / silo)
        make_private(folder / "run" / "index" / silo)  # one of an earlier version is open
        held = (read_listing(run.index_folder) or {}).get(silo)
        if held is not None:
            note_indexed(folder / "run" / "index", silo, held, (silo,))
    bus, known_as = common.bus(folder, "silo", silo)
    file: dict[str, Any] = {"silo": silo, "federation": common.federation, "run": "run"}
    startup = Path(bus["certificate"]).parent
    if startup != Path():
        file["training"] = str(startup.parent)
    tables = {"bus": bus, "sealing": {"key": SEALING_KEY, "hub": [hub]}}
    _write_toml(folder / "silo.toml", f"The silo {silo}", file | tables)
    return known_as


def _write_hub(common: _Members, root: Path, subjects: dict[str, str], sealing: dict[str, str]) -> None:
    folder, nats = root / HUB, root / NATS
    _copy_run(common.run, folder / "run")
    bus, _ = common.bus(folder, HUB, HUB)
    host = urlsplit(common.server).hostname or ""
    common.authority.write_member(nats / CERTIFICATE, nats / CERTIFICATE_KEY, host, server=True)
    files = {"certificate": CERTIFICATE, "key": CERTIFICATE_KEY, "authority": AUTHORITY}
    tables = {
        "bus": bus,
        "sealing": {"key": SEALING_KEY, "silos": sealing},
        "silos": subjects,
        "nats": {"listen": listen(common.server), **{key: f"../{NATS}/{file}" for key, file in files.items()}},
    }
    file = {"federation": common.federation, "run": "run"}
    _write_toml(folder / "hub.toml", f"The hub of the federation {common.federation}", file | tables, HUB_COMMENT)
    config = server_config(read_config(folder / "hub.toml", HubConfig), beside=folder / ".." / NATS)
    write_text(root / NATS / "nats.conf", config)


def _copy_run(run: Run, folder: Path) -> None:
    shutil.copytree(run.model_folder, folder / "model")
    for name in SHARED:
        if (run.folder / name).exists():
            shutil.copy(run.folder / name, folder / name)


def _write_toml(path: Path, title: str, tables: dict[str, Any], comment: str = "") -> None:
    write_text(path, f"# {title}. docs/how-to/deploy.md describes all keys.\n{comment}\n{to_toml(tables)}")


def commands(folder: Path, silos: Iterable[str]) -> list[str]:
    """Return the commands that start the members of a new federation, one per process.

    The NATS server finds its certificate in the working directory, so it is started in its folder.
    """
    return [
        f"cd {quote(str(folder / NATS))} && nats-server -c nats.conf",
        *(f"silohash silo {quote(str(folder / silo / 'silo.toml'))}" for silo in silos),
        f"silohash hub {quote(str(folder / HUB / 'hub.toml'))}",
    ]
