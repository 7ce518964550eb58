"""Small packages in the forms of the icon libraries, the tables of their build, and a registry on this machine."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import shutil
import tarfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from silohash.base.files import read_json
from silohash.data.build.icons import concepts
from silohash.data.build.icons.builder import LOCK, TABLES
from silohash.data.build.packages import Pin
from tests.split_icons import store_split

NAMES = (
    "cat",
    "dog",
    "horse-run",
    "sword",
    "gun",
    "bomb-off",
    "rain",
    "snow",
    "storm-cloud",
    "guitar",
    "piano",
    "oddity",
)
EMOJI = {name: 0x1F600 + place for place, name in enumerate(NAMES)}
LICENSES = ("MIT", "Apache-2.0", "CC-BY-3.0")


def drawing_of(silo: str, name: str) -> str:
    """Returns the body of an SVG of 24 units that differs by silo and name."""
    digest = hashlib.sha256(f"{silo}/{name}".encode()).digest()
    cells = [place for place in range(36) if digest[place // 8] >> place % 8 & 1] or [0]
    path = "".join(f"M{place % 6 * 4} {place // 6 * 4}h4v4h-4z" for place in cells)
    return f'<path fill="currentColor" d="{path}"/>'


def svg_of(silo: str, name: str) -> bytes:
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24">{drawing_of(silo, name)}</svg>'.encode()


def as_json(value: object) -> bytes:
    return json.dumps(value).encode()


def iconify(silo: str, names: Mapping[str, str], categories: Mapping[str, list[str]] | None = None) -> dict[str, bytes]:
    """Returns the files of a set in the form of Iconify; the names are those of its icons, and of what they draw."""
    icons = {name: {"body": drawing_of(silo, drawn)} for name, drawn in names.items()}
    icons["gone"] = {"body": "<path/>", "hidden": True}
    chars = {f"{EMOJI[name]:x}-fe0f": name for name in names if name in EMOJI}
    return {
        "icons.json": as_json({"prefix": silo, "icons": icons, "width": 24, "height": 24}),
        "metadata.json": as_json({"categories": categories or {}}),
        "chars.json": as_json(chars),
    }


def package_files() -> dict[str, dict[str, bytes]]:
    """Returns the files of each package, without its license."""
    every = {name: name for name in NAMES}
    emoji = [
        {"label": name.replace("-", " "), "hexcode": f"{EMOJI[name]:X}", "tags": ["mammal"] if name == "cat" else [],
         "group": 3, "subgroup": 34} for name in NAMES
    ]  # fmt: skip
    emoji += [{"label": "flag", "hexcode": "1F3F4", "group": 9, "subgroup": 34}, {"label": "A", "hexcode": "1F1E6"}]
    phosphor = "\n".join(
        f'{{ readonly name: "{name}";\n'
        f" readonly categories: readonly [IconCategory.{'BRAND' if name == 'gun' else 'MAP'}];\n"
        f' readonly tags: readonly ["*new*", "{name} tag"];\n}},'
        for name in NAMES
    )
    awesome = {name: {"search": {"terms": ["pet", 7] if name == "cat" else []}} for name in (*NAMES, "some-brand")}
    tabler = {
        name: {"category": "Brand" if name == "piano" else "Animals" if name == "cat" else "Map", "tags": ["mammal", 9],
               "styles": {"filled": {}} if name == "gun" else {"outline": {}, "filled": {}}} for name in NAMES
    }  # fmt: skip
    mdi = [
        {"name": name, "aliases": [f"{name}-alias"], "tags": ["Brand / Logo"] if name == "dog" else ["Weather"],
         "deprecated": name == "gun"} for name in (*NAMES, "cat-outline", "tent-outline")
    ]  # fmt: skip

    def drawn(silo: str, form: str) -> dict[str, bytes]:
        return {form.format(name): svg_of(silo, name) for name in (*NAMES, "tent-outline")}

    return {
        "@tabler/icons": {
            "icons.json": as_json(tabler),
            **drawn("tabler", "icons/outline/{}.svg"), **drawn("tabler-filled", "icons/filled/{}.svg"),
        },
        "lucide-static": {"tags.json": as_json({name: ["shape"] for name in NAMES}), **drawn("lucide", "icons/{}.svg")},
        "@phosphor-icons/core": {"dist/icons.d.ts": phosphor.encode(), **drawn("phosphor", "assets/regular/{}.svg")},
        "@mdi/svg": {"meta.json": as_json(mdi), **drawn("mdi", "svg/{}.svg")},
        "@fortawesome/fontawesome-free": {
            "metadata/icon-families.json": as_json(awesome),
            "metadata/categories.yml": b"animals:\n  icons:\n    - cat\n    - 'dog'\n  label: Animals\n",
            **drawn("fontawesome", "svgs/solid/{}.svg"),
        },
        "@iconify-json/material-symbols": iconify("material", {**every, "cat-outline-rounded": "x"}, {"Maps": ["cat"]}),
        "@iconify-json/game-icons": iconify("game-icons", {**every, "abstract-001": "x"}),
        "@iconify-json/healthicons": iconify("healthicons", {"cat-24px": "x", **every, "dog-outline": "x"}),
        "@iconify-json/noto": iconify("noto", every),
        "@iconify-json/fluent-emoji-flat": iconify("fluent-emoji", every),
        "emojibase-data": {
            "en/data.json": as_json(emoji),
            "en/messages.json": as_json({"subgroups": [{"order": 34, "key": "animal-mammal"}]}),
        },
        "emojilib": {"dist/emoji-en-US.json": as_json({chr(code): [name, "joy"] for name, code in EMOJI.items()})},
    }  # fmt: skip


def tarball(files: Mapping[str, bytes]) -> bytes:
    """Returns a package as ``npm pack`` writes it."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(f"package/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return stream.getvalue()


def pin_of(pin: Pin, content: bytes, license_text: bytes) -> dict[str, object]:
    """Returns the entry of a lock for a package of this content, otherwise like the real one."""
    return {
        **vars(pin),
        "integrity": f"sha512-{base64.b64encode(hashlib.sha512(content).digest()).decode()}",
        "license_sha256": hashlib.sha256(license_text).hexdigest(),
    }


def write_packages(folder: Path, tables: Path) -> list[Pin]:
    """Writes small packages, and the tables of a build with a lock of them. Returns the entries of the lock."""
    tables.mkdir(parents=True)
    folder.mkdir(parents=True)
    for name in ("concepts.txt", "rejected_votes.txt", "rejected_labels.txt"):
        shutil.copyfile(TABLES / name, tables / name)
    files, entries = package_files(), []
    for pin in read_json(TABLES / LOCK, list[Pin]):
        text = as_json({"license": {"spdx": pin.license}}) if pin.license_file == "info.json" else b"Use it freely."
        content = tarball({**files[pin.package], pin.license_file: text})
        (folder / pin.tarball).write_bytes(content)
        entries.append(pin_of(pin, content, text))
    (tables / LOCK).write_bytes(as_json(entries))
    return read_json(tables / LOCK, list[Pin])


def split_packages(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write packages of few icons, whose labels need few items, and their split. Returns the folder of the packages.

    The tables and a cache are beside it.
    """
    monkeypatch.setenv("SILOHASH_CACHE", str(folder / "cache"))
    monkeypatch.setattr(concepts, "LEAST_ITEMS", 9)
    write_packages(folder / "packages", folder / "tables")
    store_split(folder / "packages", folder / "tables")
    return folder / "packages"


@contextmanager
def serving(
    folder: Path, pins: list[Pin], *, refused: tuple[str, ...] = (), cut: bool = False
) -> Iterator[tuple[str, list[str]]]:
    """Serves packages as a registry does. Yields its address, and a list of the packages that were asked for."""
    paths = {f"/npm/{pin.package}/-/{pin.package.rpartition('/')[2]}-{pin.version}.tgz": pin for pin in pins}
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            pin = paths[self.path]
            asked.append(pin.package)
            content = (folder / pin.tarball).read_bytes()
            self.send_response(503 if pin.package in refused else 200)
            self.send_header("Content-Length", str(len(content) + 10 * cut))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/npm/", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
