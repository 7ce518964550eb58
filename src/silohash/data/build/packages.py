"""Packages of the npm registry, pinned by a lock: download, verify, and read their files without unpacking them."""

import base64
import hashlib
import os
import re
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from silohash.base import errors
from silohash.base.files import read_text, write_bytes
from silohash.base.forms import of_json
from silohash.base.names import listed
from silohash.data.build.fetching import NotGivenError, content_of

MOST_BYTES = 1 << 26
"""Upper limit on the size of a package, and of each of its files."""

SETTING, REGISTRY_LINE = "npm_config_registry", re.compile(r"^\s*registry\s*=\s*[\"']?([^\s\"']+)", re.MULTILINE)


@dataclass(frozen=True)
class Pin:
    """A package that a lock pins.

    Attributes:
        used_by: The parts of the data set, such as silos, for which its ``files`` (a regular expression) are used.
        integrity: SHA-512 of the package as npm states it: ``sha512-`` and base64.
        license_file: File of the package that holds the ``license``, or that names it (``info.json``).
    """

    package: str
    version: str
    integrity: str
    used_by: tuple[str, ...]
    files: str
    license: str
    license_file: str
    license_sha256: str
    attribution: str

    def __str__(self) -> str:
        """Return package and version as ``npm pack`` takes them."""
        return f"{self.package}@{self.version}"

    @property
    def tarball(self) -> str:
        """The name of the package's file, as ``npm pack`` gives it."""
        return f"{self.package.lstrip('@').replace('/', '-')}-{self.version}.tgz"

    def matches(self, content: bytes) -> bool:
        """Return whether this is the content of the package."""
        return self.integrity == f"sha512-{base64.b64encode(hashlib.sha512(content).digest()).decode()}"

    def is_in(self, folder: Path) -> bool:
        """Return whether a folder holds the package."""
        return (path := folder / self.tarball).is_file() and self.matches(path.read_bytes())


def configured_registry() -> str:
    """Return the address of the npm registry that this user's npm is set up for.

    Raises:
        UserError: If there is none.
    """
    found = [value for name, value in os.environ.items() if name.lower() == SETTING]
    for path in (Path(".npmrc"), Path.home() / ".npmrc"):
        found += REGISTRY_LINE.findall(read_text(path, remedy="Correct it.")) if path.is_file() else ()
    if not found and (npm := shutil.which("npm")):
        asked = subprocess.run([npm, "config", "get", "registry"], capture_output=True, text=True)
        found = [asked.stdout.strip().replace("undefined", "")]
    if not any(found):
        raise errors.SettingNeeded(
            "No npm registry is configured. Name its address with --registry, or the folder of packages that "
            '"npm pack" fetched on another machine with --from.'
        )
    return next(filter(None, found))


def fetch(pins: Sequence[Pin], folder: Path, registry: str, said: Callable[[str], None]) -> None:
    """Download to a folder the packages that it lacks. Each is verified before it is written.

    The ``registry`` is the address of an npm registry; empty for the one of the user's npm.

    Raises:
        UserError: If no registry is known, or it does not give a package, or another content.
    """
    lacking = [pin for pin in pins if not pin.is_in(folder)]
    base = (registry or configured_registry()).rstrip("/") if lacking else ""
    if lacking and not re.match("https?://[^/]", base):
        raise errors.WrongAddress(
            "The address of a registry begins with http:// or https:// and names a host (--registry)."
        )
    for number, pin in enumerate(lacking, start=1):
        said(f"Downloading {pin} ({number} of {len(lacking)})")
        name, host = pin.package.rpartition("/")[2], urlsplit(base).hostname
        address = f"{base}/{quote(pin.package, safe='@/')}/-/{name}-{pin.version}.tgz"
        try:
            content = content_of(address, MOST_BYTES)
        except NotGivenError as error:
            if error.status:
                raise errors.RequestRefused(
                    f"{host} does not give {pin} ({error}). Name another registry with --registry, or run "
                    f'"npm pack {pin}" in a folder and name that with --from.'
                ) from error
            raise errors.ServerUnreachable(
                f"{host} cannot be reached, or the connection broke ({error}). Packages that were fetched are kept. Run the "
                "command again to continue."
            ) from error
        if not pin.matches(content):
            raise errors.FilesDiffer(
                f"What the registry gives is not the pinned {pin}: its SHA-512 is not {pin.integrity}. Nothing of it was "
                "kept. Name another registry with --registry."
            )
        write_bytes(folder / pin.tarball, content)


def verified(pins: Sequence[Pin], folder: Path) -> dict[Pin, Path]:
    """Return the path of each package in a folder.

    Raises:
        UserError: If the folder lacks packages, or holds another content of them than the pinned one.
    """
    if lacking := [pin for pin in pins if not pin.is_in(folder)]:
        raise errors.MissingFile(
            f"{folder} does not hold {listed([pin.tarball for pin in lacking])} with the SHA-512 of the lock. Remove "
            f'other files of these names, and run there: "npm pack {" ".join(map(str, lacking))}".'
        )
    return {pin: folder / pin.tarball for pin in pins}


def read_members(path: Path, wanted: str) -> dict[str, bytes]:
    """Return the content of a package's files whose path within it matches a regular expression. Nothing is unpacked."""
    found: dict[str, bytes] = {}
    with tarfile.open(path, "r:gz") as archive:
        for member in archive:
            name = member.name.partition("/")[2]
            if member.size <= MOST_BYTES and re.fullmatch(wanted, name) and (stream := archive.extractfile(member)):
                found[name] = stream.read()
    return found


def license_of(pin: Pin, path: Path) -> bytes:
    """Return the content of the file that holds or names a package's license.

    Raises:
        UserError: If the package lacks it, or it is not the license that the lock expects.
    """
    content = read_members(path, re.escape(pin.license_file)).get(pin.license_file)
    if content is None:
        raise errors.MissingContent(f"{path} lacks the license of {pin}, {pin.license_file}. Do not use this package.")
    digest, named = hashlib.sha256(content).hexdigest(), pin.license
    if pin.license_file == "info.json":
        named = of_json(content, dict[str, Any])["license"]["spdx"]
    if digest != pin.license_sha256 or named != pin.license:
        raise errors.FilesDiffer(
            f"The license of {pin} is not the expected one, {pin.license}: {pin.license_file} has the SHA-256 {digest} "
            f"instead of {pin.license_sha256}. Do not use this package."
        )
    return content
