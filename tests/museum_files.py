"""Small files in the forms in which museums publish theirs, and a server on this machine for the pictures that they name."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import shutil
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from PIL import Image

from silohash.data.build.museums.builder import TABLES

SILOS = ("met", "chicago", "cleveland", "saam", "chndm")
KINDS = {"horse": "Horses", "boat": "Ships", "sword": "Daggers", "cup": "Goblets"}
"""The labels of the objects, and a term with which museums mean each."""

HOSTS = {
    "https://collectionapi.metmuseum.org/": "/met-api/",
    "https://images.metmuseum.org/": "/met-images/",
    "https://www.artic.edu/iiif/": "/chicago/",
    "https://openaccess-cdn.clevelandart.org/": "/cleveland/",
    "https://ids.si.edu/ids/deliveryService": "/smithsonian",
}
OBJECTS, SHARED = 16, 3
"""Number of objects per museum, and the one that all museums have: another print of one plate."""

MET = "/met-api/public/collection/v1/objects/"


@dataclass(frozen=True)
class Thing:
    """An object of a museum. The last two of each museum are not open, or have no picture."""

    silo: str
    number: int

    @property
    def kind(self) -> str:
        return list(KINDS)[self.number % len(KINDS)]

    @property
    def artist(self) -> str:
        return "Ann Engraver" if self.number == SHARED else f"{self.silo.title()} Maker {self.number % 5}"

    @property
    def title(self) -> str:
        return (
            "The Soldier Goblet" if self.number == SHARED else f"{self.kind.title()} of {self.silo} no. {self.number}"
        )

    @property
    def open(self) -> bool:
        return self.number != OBJECTS + 1

    @property
    def picture(self) -> str:
        """The path of the picture at the server; empty if there is none."""
        paths = {
            "met": f"/met-images/web-large/{self.number} a.jpg",
            "chicago": f"/chicago/2/image-{self.number}/full/843,/0/default.jpg",
            "cleveland": f"/cleveland/{self.number}_web.jpg",
        }
        path = paths.get(self.silo, f"/smithsonian?id={self.silo.upper()}-{self.number}&max=448")
        return "" if self.number == OBJECTS + 2 else path


def things(silo: str) -> list[Thing]:
    return [Thing(silo, number) for number in range(1, OBJECTS + 3)]


def _table(rows: list[dict[str, object]], *, mark: bool = False) -> str:
    stream = io.StringIO()
    csv.writer(stream).writerows([[*rows[0]], *(row.values() for row in rows)])
    return "\ufeff" * mark + stream.getvalue()


def _edan(thing: Thing, address: str) -> dict[str, object]:
    content = thing.picture.removesuffix("&max=448")
    media = [{"type": "Images", "usage": {"access": "CC0" if thing.open else "Usage conditions apply"}}]
    if content:
        media[0]["content"] = address + content
    return {
        "id": f"edanmdm-{thing.silo}_{thing.number}",
        "title": f"<i>{thing.title}</i>",
        "unitCode": thing.silo.upper(),
        "content": {
            "descriptiveNonRepeating": {
                "record_ID": f"{thing.silo}_{thing.number}",
                "metadata_usage": {"access": "CC0"},
                "online_media": {"mediaCount": 1, "media": media},
            },
            "indexedStructured": {"topic": ["Art", KINDS[thing.kind]], "object_type": ["Prints"]},
            "freetext": {
                "name": [{"label": "Artist", "content": f"{thing.artist} (born 1800)"}],
                "physicalDescription": [
                    {"label": "Medium", "content": "bronze &amp; silver"},
                    {"label": "Dimensions", "content": "1 in."},
                ],
            },
        },
    }


def write_museums(root: Path, address: str) -> tuple[Path, Path]:
    """Writes the files of five museums, and the tables of their build with a server's address. Returns the two folders."""
    files, tables = root / "files", root / "tables"
    for folder in ("met", "aic/json/artworks", "cma", "edan/saam", "edan/chndm"):
        (files / folder).mkdir(parents=True)
    met: list[dict[str, object]] = [
        {
            "Object Number": "1", "Is Public Domain": str(thing.open), "Object ID": thing.number,
            "Object Name": "Print", "Title": thing.title, "Culture": "French,\nParis", "Artist Display Name": thing.artist,
            "Medium": "Etching", "Classification": "Prints", "Tags": f"Men|{KINDS[thing.kind]}", "Tags AAT URL": "",
        }
        for thing in things("met")
    ]  # fmt: skip
    (files / "met" / "MetObjects.csv").write_text(_table(met, mark=True), "utf-8")
    cleveland: list[dict[str, object]] = [
        {
            "id": thing.number, "accession_number": "1", "share_license_status": "CC0" if thing.open else "Copyrighted",
            "title": thing.title, "creators": f"{thing.artist} (French, 1800-1850), artist", "culture": "France",
            "technique": "oil on panel", "type": "Painting", "image_web": address + thing.picture if thing.picture else "",
        }
        for thing in things("cleveland")
    ]  # fmt: skip
    (files / "cma" / "data.csv").write_text(_table(cleveland), "utf-8")
    for thing in things("chicago"):
        artwork = {
            "id": thing.number, "title": thing.title, "is_public_domain": thing.open, "artist_title": thing.artist,
            "medium_display": "Lithograph", "place_of_origin": "France", "subject_titles": [KINDS[thing.kind].lower()],
            "classification_titles": ["print"], "image_id": f"image-{thing.number}" if thing.picture else None,
        }  # fmt: skip
        (files / "aic/json/artworks" / f"{thing.number}.json").write_text(json.dumps(artwork))
    for silo in ("saam", "chndm"):
        lines = [json.dumps(_edan(thing, address)) for thing in things(silo)]
        (files / "edan" / silo / "00.txt").write_text("\n".join(lines[:9]) + "\n")
        (files / "edan" / silo / "ff.txt").write_text("\n".join(lines[9:]) + "\n")
        (files / "edan" / silo / "index.txt").write_text("00.txt\nff.txt\n")
    tables.mkdir()
    shutil.copyfile(TABLES / "concepts.txt", tables / "concepts.txt")
    text = (TABLES / "museums.toml").read_text("utf-8")
    for host, path in HOSTS.items():
        text = text.replace(host, address + path)
    (tables / "museums.toml").write_text(text, "utf-8")
    return files, tables


def picture_of(path: str, edition: int = 0) -> bytes:
    """Returns a picture file that differs by its path and edition."""
    color = tuple(hashlib.sha256(f"{path} {edition}".encode()).digest()[:3])
    stream = io.BytesIO()
    Image.new("RGB", (300, 200), color).save(stream, "JPEG")
    return stream.getvalue()


@dataclass
class Server:
    """What a server of pictures does: `asked` has the paths in the order of requests; the others are by path.

    Attributes:
        status: HTTP statuses with which the next requests are answered, and their headers.
        cut: Number of the next requests whose answers are cut off.
        content: What it gives in place of a picture.
    """

    address: str = ""
    asked: list[str] = field(default_factory=list)
    agents: set[str] = field(default_factory=set)
    status: dict[str, list[tuple[int, dict[str, str]]]] = field(default_factory=dict)
    cut: Counter[str] = field(default_factory=Counter)
    content: dict[str, bytes] = field(default_factory=dict)

    def body(self, path: str) -> bytes:
        if path in self.content:
            return self.content[path]
        if path.startswith(MET):
            picture = Thing("met", int(path.removeprefix(MET))).picture
            return json.dumps({"primaryImageSmall": self.address + picture if picture else ""}).encode()
        return picture_of(path)


@contextmanager
def serving() -> Iterator[Server]:
    """Serves pictures and records of the Met on this machine."""
    served = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.replace("%20", " ")
            served.asked.append(path)
            served.agents.add(self.headers["User-Agent"])
            planned = served.status.get(path)
            status, headers = planned.pop(0) if planned else (200, {})
            content = served.body(path) if status == 200 else b""
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content) + 10 * (served.cut[path] > 0)))
            self.end_headers()
            served.cut[path] -= 1
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    served.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@dataclass
class Clock:
    """A clock that only moves when someone waits for it."""

    time: float = 1000.0
    waits: list[float] = field(default_factory=list)

    def now(self) -> float:
        return self.time

    def wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.time += seconds
