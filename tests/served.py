"""What tests of the service share: a small run with pictures and texts, a made-up federation, and a client."""

from __future__ import annotations

import asyncio
import csv
import io
import re
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import uvicorn
from PIL import Image
from starlette.testclient import TestClient

from silohash.api.runs import train
from silohash.base.errors import NotFound, Unavailable
from silohash.base.types import Modality
from silohash.evaluate.collapse import CodeUse
from silohash.index.preview import make_preview, preview_url
from silohash.run.events import RoundRecord, SiloRecord
from silohash.search.federation import check_silos
from silohash.search.hits import Hits, SearchOptions
from silohash.search.merge import WAITING
from silohash.search.requests import FederationStatus, Item, SearchRequest, SiloStatus
from silohash.service.web.app import create_app
from tests.pictures import COLORS, small_config

SHAPES = ("square", "stripes", "frame")
SIDE = 24
HIT_COLUMNS = ("ids", "distances", "payloads", "found_by")


def drawn(color: str, shape: str) -> Image.Image:
    """Return a picture of a shape in a color on white."""
    pixels = np.full((SIDE, SIDE, 3), 255, np.uint8)
    ink = COLORS[color]
    if shape == "square":
        pixels[6:18, 6:18] = ink
    elif shape == "stripes":
        pixels[::4] = ink
    else:
        pixels[3:21, 3:21] = ink
        pixels[7:17, 7:17] = 255
    return Image.fromarray(pixels)


def write_pictures(folder: Path, *, each: int = 4) -> Path:
    """Write a folder with ``each`` pictures of every color and shape, their texts and labels."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for color in COLORS:
        for shape in SHAPES:
            for number in range(each):
                name = f"{color}-{shape}-{number}"
                drawn(color, shape).save(folder / f"{name}.png")
                rows.append(
                    {"file_name": f"{name}.png", "id": name, "text": f"{color} {shape}", "labels": f"{color}|{shape}"}
                )
    with (folder / "metadata.csv").open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return folder


def served_run(folder: Path, *, name: str = "run", rounds: int = 2) -> Path:
    """Return the folder of a trained and indexed run of two silos on the pictures of `write_pictures`.

    It is a copy: tests that ask for the same number of rounds share the training and the pictures. Runs with other rounds
    have the same items in the same silos, and other codes.

    Args:
        folder: a temporary folder of a test or of a module. What they share is beside it.
        name: name of the run, a folder in it.
        rounds: number of rounds.
    """
    shared = folder.parent / "served"
    pictures, trained = shared / "shapes", shared / f"rounds-{rounds}"
    if not pictures.exists():
        write_pictures(pictures)
    if not trained.exists():
        config = shared / "run.toml"
        config.write_text(small_config(pictures.as_posix(), rounds=rounds, local_epochs=8), encoding="utf-8")
        train(config, trained, report=False)
    return shutil.copytree(trained, folder / name)


class MadeUpBackend:
    """A federation of made-up items, for tests of what stands above a backend. Item n is at distance n // 2."""

    def __init__(
        self, *, silos: tuple[str, ...] = ("north", "south"), items: int = 60, archive: str = "shapes"
    ) -> None:
        self.silos = silos
        self.items = items
        self.archive = archive
        self.missing: dict[str, str] = {}
        self.limited: dict[str, str] = {}
        self.about: dict[str, str] = {}
        self.requests: list[Any] = []
        self.askers: list[str] = []
        self.failure: Exception | None = None
        self.unknown_words: tuple[str, ...] = ()
        self.path: Path | None = None
        self.captions: dict[str, str] = {}
        self.inputs: tuple[Modality, ...] = ("image", "text")

    def hits(self, options: SearchOptions) -> Hits:
        """Return the page of all items that the options ask for."""
        if self.failure is not None:
            raise self.failure
        check_silos(options.silos, self.silos)
        asked = options.silos or self.silos
        silos = [silo for silo in asked if silo not in self.missing]
        numbers = [n for n in range(self.items) if options.radius_bits is None or n // 2 <= options.radius_bits]
        found = [(f"item-{n}", silos[n % len(silos)], n // 2) for n in numbers] if silos else []
        page = found[options.offset : options.offset + options.k]
        of_silos = {silo: sum(each == silo for _, each, _ in found) for silo in silos}
        of_museums = {"Louvre": len(found) - len(found) // 3, "Orsay, Paris": len(found) // 3}
        counts = {"silo": of_silos, "labels": {"red": len(found), "shape": len(found)}, "museum": of_museums}
        return Hits(
            ids=tuple(name for name, _, _ in page),
            distances=tuple(distance for _, _, distance in page),
            newest=getattr(options, "value", "") is None,
            facets={name: counts.get(name, {}) for name in options.facets} if options.facets else None,
            limited_silos=self.limited,
            silos=tuple(silo for _, silo, _ in page),
            payloads=tuple(self.payload(name) for name, _, _ in page),
            found_by=tuple(("image", "text")[: 1 + distance % 2] for _, _, distance in page),
            missing_silos={silo: reason for silo, reason in self.missing.items() if silo in asked},
            model_digests=frozenset({"m"}) if silos else frozenset(),
            unknown_words=self.unknown_words,
        )

    def payload(self, name: str) -> dict[str, Any]:
        """Return what is released of an item."""
        number = int(name.removeprefix("item-"))
        url = None if number % 5 == 4 else preview_url(make_preview(drawn("red", SHAPES[number % 3])))
        return {"caption": self.captions.get(name, f"red shape {number}"), "labels": ["red", "shape"], "preview": url}

    async def search(self, request: SearchRequest) -> Hits:
        self.requests.append(request)
        return self.hits(request)

    async def similar(self, silo: str, name: str, options: SearchOptions, by: Modality | None = None) -> Hits:
        self.requests.append((silo, name, options, by))
        await self.item(silo, name, asker=options.asker)
        return self.hits(options)

    async def item(self, silo: str, name: str, *, asker: str = "") -> Item:
        self.askers.append(asker)
        check_silos((silo,), self.silos)
        if silo in self.missing:
            raise Unavailable(f"The silo {silo} cannot be searched: {self.missing[silo]}")
        if not re.fullmatch(r"item-[0-9]{1,4}", name):
            raise NotFound(f'The silo {silo} does not have an item "{name}". Check its id.')
        return Item(id=name, silo=silo, modalities=("image", "text"), payload=self.payload(name), path=self.path)

    async def status(self) -> FederationStatus:
        names = [f"item-{n}" for n in range(4)]
        examples = [Item(id=name, modalities=("image",), payload=self.payload(name)) for name in names]
        return FederationStatus(
            name="made-up",
            silos=tuple(
                SiloStatus(
                    name=silo,
                    items={} if silo in self.missing else {"image": 30, "text": 20},
                    model_digest="" if silo in self.missing else "m" * 32,
                    reason=self.missing.get(silo, ""),
                    reachable=silo not in self.missing,
                    fields=("caption", "labels", "preview"),
                    columns=("date", "museum", "year"),
                    about=self.about,
                    labels={"red": 3, "shape": 5},
                    examples=tuple(replace(item, silo=silo) for item in examples),
                )
                for silo in self.silos
            ),
            bits=32,
            inputs=self.inputs,
            archive=self.archive,
            local_method="dcmh",
            federated_method="fedavg",
            rounds=tuple(
                RoundRecord(
                    round=number,
                    seconds=2.0,
                    loss=3.0 - number,
                    terms={},
                    validation=0.5 + 0.1 * number,
                    best=True,
                    silos=[SiloRecord(silo=silo, items=20, loss=1.0, seconds=1.0) for silo in self.silos],
                    uplink_bytes=1_000_000,
                    downlink_bytes=2_000_000,
                )
                for number in range(3)
            ),
            chosen_round=1,
            codes={"image": CodeUse(distinct=0.93, repeated=0.2), "text": CodeUse(distinct=0.31, repeated=0.2)},
        )


class LateBackend(MadeUpBackend):
    """A federation of three silos, each with twenty items that follow those of the one before. Some are late.

    Attributes:
        late: Maps each silo that answers late to the event that lets it answer, in their order.
        fails: Whether late silos do not answer at last.
        error: What the search raises at last; None if it succeeds.
    """

    def __init__(self) -> None:
        super().__init__(silos=("archive", "museum", "town library"))
        self.late: dict[str, threading.Event] = {}
        self.waiting: tuple[str, ...] = ()
        self.fails = False
        self.error: Exception | None = None

    def hits(self, options: SearchOptions) -> Hits:
        whole = super().hits(replace(options, offset=0, k=self.items))
        silos = [self.silos[n * len(self.silos) // self.items] for n in range(self.items)]
        rows = [n for n, silo in enumerate(silos) if silo not in {*self.missing, *self.waiting}][options.offset :]
        missing = {**self.missing, **dict.fromkeys(self.waiting, WAITING)}
        taken = {name: tuple(getattr(whole, name)[row] for row in rows[: options.k]) for name in HIT_COLUMNS}
        return replace(whole, **taken, silos=tuple(silos[row] for row in rows[: options.k]), missing_silos=missing)

    async def search(self, request: SearchRequest) -> Hits:
        self.missing = {}
        self.waiting = tuple(self.late)
        for silo, event in self.late.items():
            if request.progress is not None:
                request.progress(self.hits(request))
            await asyncio.to_thread(event.wait, 60)
            self.waiting = tuple(each for each in self.waiting if each != silo)
            self.missing |= {silo: "It failed."} if self.fails else {}
        if self.error is not None:
            raise self.error
        return await super().search(request)


class HangingBackend(MadeUpBackend):
    """A federation whose status, after the first, is given only when ``silos_answer`` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = self.canceled = 0
        self.silos_answer = asyncio.Event()
        self.error: Exception | None = None

    async def status(self) -> FederationStatus:
        self.asked += 1
        try:
            if self.asked > 1:
                await self.silos_answer.wait()
        except asyncio.CancelledError:
            self.canceled += 1
            raise
        if self.error is not None:
            raise self.error
        return await super().status()


def npy(values: np.ndarray) -> bytes:
    """Return the content of the .npy file of an array."""
    stream = io.BytesIO()
    np.save(stream, values)
    return stream.getvalue()


def png(picture: Image.Image | None = None) -> bytes:
    """Return a picture as a PNG file."""
    content = io.BytesIO()
    (picture or drawn("red", "square")).save(content, "PNG")
    return content.getvalue()


@contextmanager
def running(app: Any) -> Iterator[str]:
    """Serve an application on this machine while the block runs, and yield its address."""
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        listening.close()


def client_of(backend: Any, **options: Any) -> TestClient:
    """Return a client of the service over a backend. Errors of the service are answers, as in a browser."""
    return TestClient(create_app(backend, **options), base_url="http://127.0.0.1:8765", raise_server_exceptions=False)
