"""Packages of the npm registry, pinned by a lock: download, verify, and read their files without unpacking them."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import shutil
import subprocess
import tarfile
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from silohash.base.errors import (
    FilesDiffer,
    MissingContent,
    MissingFile,
    RequestRefused,
    ServerUnreachable,
    SettingNeeded,
    WrongAddress,
)
from silohash.base.files import read_json, write_bytes
from silohash.base.forms import REINSTALL, of_json, reading
from silohash.base.names import listed

MOST_BYTES = 1 << 26
"""Upper limit on the size of a package and of each of its files, in bytes."""

TIMEOUT_SECONDS = 60
REGISTRY_LINE = re.compile(r"^\s*registry\s*=\s*(\S+)", re.MULTILINE)
SETTING = "npm_config_registry"


@dataclass(frozen=True)
class Pin:
    """A package that a lock pins, and its license.

    Attributes:
        silo: What the package is used for; names the folder of its license.
        integrity: SHA-512 of the package as npm states it: ``sha512-`` and base64.
        license: SPDX expression of what is used from the package.
        license_file: File of the package that holds the license, or that names it (``info.json``).
        license_sha256: SHA-256 of that file, in hexadecimal digits.
        attribution: Author, source and license in one sentence.
    """

    silo: str
    package: str
    version: str
    integrity: str
    license: str
    license_file: str
    license_sha256: str
    attribution: str

    @property
    def tarball(self) -> str:
        """The file's name, as ``npm pack`` gives it."""
        return f"{self.package.lstrip('@').replace('/', '-')}-{self.version}.tgz"

    @property
    def address(self) -> str:
        """The file's address relative to the registry."""
        return f"{quote(self.package, safe='@/')}/-/{self.package.rpartition('/')[2]}-{self.version}.tgz"

    def matches(self, content: bytes) -> bool:
        """Return whether this is the content of the pinned package."""
        return self.integrity == f"sha512-{base64.b64encode(hashlib.sha512(content).digest()).decode()}"


def read_lock(path: Path) -> list[Pin]:
    """Read a lock."""
    return read_json(path, list[Pin], remedy=REINSTALL, missing=REINSTALL)


def configured_registry() -> str:
    """Return the address of the npm registry that this user's npm uses.

    Raises:
        UserError: If there is none.
    """
    of_environment = next((value for name, value in os.environ.items() if name.lower() == SETTING and value), "")
    if of_environment:
        return of_environment
    for path in (Path(".npmrc"), Path.home() / ".npmrc"):
        if path.is_file():
            with reading(path, remedy="Correct it."):
                found = REGISTRY_LINE.search(path.read_text("utf-8"))
            if found:
                return found[1].strip("\"'")
    npm = shutil.which("npm")
    asked = subprocess.run([npm, "config", "get", "registry"], capture_output=True, text=True) if npm else None
    if asked is None or asked.returncode or not asked.stdout.startswith("http"):
        raise SettingNeeded(
            "No npm registry is configured. Name its address with --registry, or the folder of packages that "
            '"npm pack" fetched on another machine with --from.'
        )
    return asked.stdout.strip()


def fetch(pins: Sequence[Pin], folder: Path, registry: str, said: Callable[[str], None]) -> None:
    """Download to a folder the packages that it lacks. Each is verified before it is written.

    The ``registry`` is the address of an npm registry; empty for the one of the user's npm.

    Raises:
        UserError: If no registry is known, it does not give a package, or gives another content.
    """
    lacking = [
        pin for pin in pins if not (path := folder / pin.tarball).is_file() or not pin.matches(path.read_bytes())
    ]
    if not lacking:
        return
    base = (registry or configured_registry()).rstrip("/")
    if urlsplit(base).scheme not in {"http", "https"} or not urlsplit(base).hostname:
        raise WrongAddress(
            "The address of a registry must begin with http:// or https:// and name a host (--registry)."
        )
    for number, pin in enumerate(lacking, start=1):
        said(f"Downloading {pin.package} {pin.version} ({number} of {len(lacking)})")
        content = _download(f"{base}/{pin.address}", pin)
        if not pin.matches(content):
            raise FilesDiffer(
                f"The registry's {pin.package} {pin.version} is not the pinned package: its SHA-512 differs from "
                f"{pin.integrity}. Nothing of it was kept. Name another registry with --registry."
            )
        write_bytes(folder / pin.tarball, content)


def _download(address: str, pin: Pin) -> bytes:
    host, again = urlsplit(address).hostname, "Packages that were fetched are kept; run the command again to go on."
    try:
        with urllib.request.urlopen(address, timeout=TIMEOUT_SECONDS) as response:  # noqa: S310  http or https
            content: bytes = response.read(MOST_BYTES + 1)
    except urllib.error.HTTPError as error:
        raise RequestRefused(
            f"{host} does not give {pin.package} {pin.version} (HTTP status {error.code}). Name another registry with "
            f'--registry, or a folder with --from into which you ran "npm pack {pin.package}@{pin.version}".'
        ) from error
    except (OSError, HTTPException) as error:
        reason = getattr(error, "reason", error)
        raise ServerUnreachable(f"{host} broke off or cannot be reached ({reason}). {again}") from error
    return content


def verified(pins: Sequence[Pin], folder: Path) -> dict[str, Path]:
    """Return the path of each package in a folder, by its name, after comparing its digest with the lock.

    Raises:
        UserError: If packages are missing, or one is not the pinned package.
    """
    if lacking := [pin for pin in pins if not (folder / pin.tarball).is_file()]:
        command = " ".join(["npm pack", *(f"{pin.package}@{pin.version}" for pin in lacking)])
        raise MissingFile(f'{folder} lacks {listed([pin.tarball for pin in lacking])}. Run there: "{command}".')
    for pin in pins:
        with reading(folder / pin.tarball):
            content = (folder / pin.tarball).read_bytes()
        if not pin.matches(content):
            raise FilesDiffer(
                f"{folder / pin.tarball} is not the pinned package: its SHA-512 differs from {pin.integrity}. Remove it, "
                f'and run "npm pack {pin.package}@{pin.version}" in that folder.'
            )
    return {pin.package: folder / pin.tarball for pin in pins}


def read_members(path: Path, wanted: str) -> dict[str, bytes]:
    """Return the content of a package's files whose path within it matches a regular expression. Nothing is unpacked."""
    found: dict[str, bytes] = {}
    with tarfile.open(path, "r:gz") as archive:
        for member in archive:
            name = member.name.partition("/")[2]
            if member.isfile() and member.size <= MOST_BYTES and re.fullmatch(wanted, name):
                stream = archive.extractfile(member)
                found[name] = stream.read() if stream else b""
    return found


def license_of(pin: Pin, files: Mapping[str, bytes]) -> bytes:
    """Return the content of the file that holds or names a package's license.

    Raises:
        UserError: If the package lacks it, or it is not the license that the lock expects.
    """
    content = files.get(pin.license_file)
    if content is None:
        raise MissingContent(f"{pin.tarball} lacks its license, {pin.license_file}. Report this: the lock is wrong.")
    digest = hashlib.sha256(content).hexdigest()
    named = pin.license if not pin.license_file.endswith("info.json") else _named_license(content)
    if digest != pin.license_sha256 or named != pin.license:
        raise FilesDiffer(
            f"The license of {pin.package} {pin.version} is not the expected one ({pin.license}): {pin.license_file} "
            f"has SHA-256 {digest}, and the lock {pin.license_sha256}. Do not use this package."
        )
    return content


def _named_license(content: bytes) -> str:
    """Return the SPDX identifier that the ``info.json`` of an icon set in the form of Iconify names."""
    return str(of_json(content, dict[str, Any])["license"]["spdx"])
