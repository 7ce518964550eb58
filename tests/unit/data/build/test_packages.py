"""Packages are found in a folder or fetched from a registry, and used only if they are the pinned ones."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from silohash.base.errors import (
    FilesDiffer,
    MissingContent,
    MissingFile,
    RequestRefused,
    ServerUnreachable,
    SettingNeeded,
    UserError,
    WrongAddress,
)  # fmt: skip
from silohash.data.build.packages import SETTING, Pin, configured_registry, fetch, license_of, read_members, verified
from tests.icon_packages import serving, tarball, write_packages
from tests.ports import free_port


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    return tmp_path / "packages"


@pytest.fixture
def pins(packages: Path, tmp_path: Path) -> list[Pin]:
    return write_packages(packages, tmp_path / "tables")


@pytest.fixture
def lines() -> list[str]:
    return []


def test_every_package_is_fetched_once(packages: Path, pins: list[Pin], tmp_path: Path, lines: list[str]) -> None:
    fetched = tmp_path / "fetched"
    with serving(packages, pins) as (registry, asked):
        fetch(pins, fetched, registry, lines.append)
        fetch(pins, fetched, registry, lines.append)
    assert asked == [pin.package for pin in pins]
    assert lines[0] == "Downloading @tabler/icons@3.52.0 (1 of 12)"
    paths = verified(pins, fetched)
    assert [paths[pin].read_bytes() for pin in pins] == [(packages / pin.tarball).read_bytes() for pin in pins]
    # Without a registry, because nothing is lacking.
    fetch(pins, fetched, "", lines.append)


def test_an_interrupted_download_continues(packages: Path, pins: list[Pin], tmp_path: Path, lines: list[str]) -> None:
    fetched = tmp_path / "fetched"
    with serving(packages, pins, refused=("@mdi/svg",)) as (registry, _), pytest.raises(RequestRefused, match="503"):
        fetch(pins, fetched, registry, lines.append)
    assert len(list(fetched.iterdir())) == 3
    (fetched / pins[1].tarball).write_bytes(b"damaged")
    with serving(packages, pins) as (registry, asked):
        fetch(pins, fetched, registry, lines.append)
    assert asked == [pins[1].package, *(pin.package for pin in pins[3:])]
    assert len(verified(pins, fetched)) == len(pins)


def test_another_content_is_not_kept(packages: Path, pins: list[Pin], tmp_path: Path, lines: list[str]) -> None:
    (packages / pins[0].tarball).write_bytes(b"another")
    with serving(packages, pins) as (registry, _), pytest.raises(FilesDiffer, match=r"@tabler/icons@3\.52\.0"):
        fetch(pins, tmp_path / "fetched", registry, lines.append)
    assert not (tmp_path / "fetched").exists()


def test_a_broken_connection_and_a_missing_server(packages: Path, pins: list[Pin], tmp_path: Path) -> None:
    with serving(packages, pins, cut=True) as (registry, _), pytest.raises(ServerUnreachable):
        fetch(pins, tmp_path / "fetched", registry, print)
    with pytest.raises(ServerUnreachable):
        fetch(pins, tmp_path / "fetched", f"http://127.0.0.1:{free_port()}", print)
    assert not (tmp_path / "fetched").exists()


@pytest.mark.parametrize("address", ["registry", "ftp://example.org", "http://", "file:///etc"])
def test_other_addresses_are_refused(address: str, pins: list[Pin], tmp_path: Path) -> None:
    with pytest.raises(WrongAddress):
        fetch(pins, tmp_path / "fetched", address, print)


def test_the_registry_is_the_one_of_npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, project, programs = (tmp_path / name for name in ("home", "project", "programs"))
    for folder in (home, project, programs):
        folder.mkdir()
    monkeypatch.chdir(project)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PATH", str(programs))
    for name in (SETTING, SETTING.upper()):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(SettingNeeded, match="--registry"):
        configured_registry()
    npm = programs / "npm"
    npm.write_text('#!/bin/sh\n[ "$*" = "config get registry" ] && echo http://of-npm.invalid/\n')
    npm.chmod(0o755)
    assert configured_registry() == "http://of-npm.invalid/"
    npm.write_text("#!/bin/sh\necho undefined\n")
    with pytest.raises(SettingNeeded):
        configured_registry()
    (home / ".npmrc").write_text(
        "; comment\nfund = false\n@scope:registry=http://other.invalid/\n registry = http://of-user.invalid\n"
    )
    assert configured_registry() == "http://of-user.invalid"
    (project / ".npmrc").write_text('registry="http://of-project.invalid"\n')
    assert configured_registry() == "http://of-project.invalid"
    monkeypatch.setenv(SETTING.upper(), "http://of-environment.invalid")
    assert configured_registry() == "http://of-environment.invalid"


def test_a_folder_lacks_a_package_or_has_another(packages: Path, pins: list[Pin]) -> None:
    (packages / "mdi-svg-7.4.47.tgz").unlink()
    with pytest.raises(MissingFile, match=r'"npm pack @mdi/svg@7\.4\.47"'):
        verified(pins, packages)
    (packages / "mdi-svg-7.4.47.tgz").write_bytes(b"another")
    with pytest.raises(MissingFile, match=r"does not hold mdi-svg-7\.4\.47\.tgz with the SHA-512 of the lock"):
        verified(pins, packages)


def test_only_wanted_files_are_read(tmp_path: Path) -> None:
    path = tmp_path / "one.tgz"
    path.write_bytes(tarball({"a.json": b"1", "b.json": b"2", "../c.json": b"3", "d/a.json": b"4"}))
    assert read_members(path, r"a\.json") == {"a.json": b"1"}
    assert read_members(path, r".*a\.json") == {"a.json": b"1", "d/a.json": b"4"}
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("member", "text", "change", "kind"),
    [
        ("LICENSE", b"free", {}, None),
        ("LICENCE", b"free", {}, MissingContent),
        ("LICENSE", b"not free", {}, FilesDiffer),
        ("info.json", b'{"license": {"spdx": "MIT"}}', {"license_file": "info.json"}, None),
        ("info.json", b'{"license": {"spdx": "ISC"}}', {"license_file": "info.json"}, FilesDiffer),
    ],
)
def test_licenses_are_checked(
    member: str, text: bytes, change: dict[str, str], kind: type[UserError] | None, pins: list[Pin], tmp_path: Path
) -> None:
    expected = hashlib.sha256(b"free" if member != "info.json" else text).hexdigest()
    pin = replace(pins[0], license="MIT", license_sha256=expected, **change)
    path = tmp_path / "one.tgz"
    path.write_bytes(tarball({member: text}))
    if kind is None:
        assert license_of(pin, path) == text
        return
    with pytest.raises(kind):
        license_of(pin, path)
