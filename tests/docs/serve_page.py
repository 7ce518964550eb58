"""Write the pictures of `docs/how-to/serve.md`: the search page over the run of the demo, in ten states.

`python -m tests.docs.serve_page runs/demo/federated` writes them into `docs/pictures`. It needs Chromium.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from PIL import Image

from silohash.search.bus import Arrived, Bus, Replies, ignored, late
from silohash.search.requests import Answer, Request
from silohash.service.backends import LocalBackend
from silohash.service.web.app import create_app
from tests.browsers import give_file, new_page, started_browser, until
from tests.served import running

PICTURES = Path(__file__).resolve().parents[2] / "docs" / "pictures"
DESKTOP, PHONE = {"width": 1200, "height": 800}, {"width": 390, "height": 844}
MOST_BYTES = 150_000
NO_DITHER = Image.Dither.NONE
SILENT, DEADLINE_SECONDS = "mathematics", 10.0
NOT_EQUAL = (((0.2, 0.4), (0.8, 0.4)), ((0.2, 0.6), (0.8, 0.6)), ((0.65, 0.2), (0.35, 0.8)))
"""Strokes of a drawing, as shares of the surface."""


class PartlySilent:
    """A bus to silos of which one does not answer before the deadline of a hub."""

    def __init__(self, bus: Bus) -> None:
        self.bus = bus

    async def ask(
        self, requests: Mapping[str, Request], deadline_seconds: float, arrived: Arrived = ignored
    ) -> Replies[Answer]:
        asked = {silo: request for silo, request in requests.items() if silo != SILENT}
        replies = await self.bus.ask(asked, deadline_seconds, arrived)
        return replace(replies, reasons={**replies.reasons, SILENT: late(DEADLINE_SECONDS)})


@contextmanager
def served(run: Path, *, silent: bool = False) -> Iterator[str]:
    """Serve a run, all of it or without a silo, and yield the address of its page."""
    with closing(LocalBackend.open(run)) as backend:
        if silent:
            backend.bus = PartlySilent(backend.bus)
        with running(create_app(backend)) as address:
            yield address


def settled(page: Any) -> None:
    """Wait until a page has its results and the pictures that the window shows."""
    until(page, "!document.querySelector('[aria-busy]')")
    until(page, "[...document.images].every((i) => i.complete || i.getBoundingClientRect().top > innerHeight)")


def draw(page: Any, strokes: tuple[tuple[tuple[float, float], ...], ...]) -> None:
    """Open the drawing of a page, and draw with the mouse."""
    page.click("#draw-open")
    box = page.locator("#canvas").bounding_box()
    for stroke in strokes:
        address = page.url
        for number, (x, y) in enumerate(stroke):
            page.mouse.move(box["x"] + x * box["width"], box["y"] + y * box["height"], steps=8)
            if number == 0:
                page.mouse.down()
        page.mouse.up()
        until(page, f"location.href !== {address!r}")


def with_picture(page: Any, words: str) -> None:
    """Search for the picture of the first result, and then for it with words."""
    settled(page)
    content = page.locator(".card img").first.screenshot()
    page.goto(page.url.partition("?")[0])
    give_file(page, "choose", content)
    page.wait_for_url("**/?picture=*")
    page.fill("#q", words)
    page.wait_for_url("**&q=*")


def with_menu(page: Any, name: str) -> None:
    """Open a menu of the filters."""
    page.click(f"summary:has-text('{name}') >> nth=0")


def opened(page: Any, number: int) -> None:
    """Open a result."""
    settled(page)
    page.click(f".card > a >> nth={number}")
    page.wait_for_url("**/item?**")


def nothing(page: Any) -> None:
    """Leave a page as it is."""


STATES: dict[str, tuple[str, Callable[[Any], None], dict[str, Any]]] = {
    "start": ("/", nothing, {}),
    "words": ("/?q=arrow+pointing+left", nothing, {}),
    "picture-and-words": ("/?q=playing+card+ace+of+spades", partial(with_picture, words="queen"), {}),
    "drawing": ("/", partial(draw, strokes=NOT_EQUAL), {}),
    "filters": ("/?q=circled+digit&label=circled&silo=latin&silo=signs", partial(with_menu, name="Silos"), {}),
    "item": ("/?q=chess", partial(opened, number=2), {"viewport": {"width": 1200, "height": 520}}),
    "browsing": ("/?browse=1", nothing, {}),
    "silent-silo": ("/?q=greek+letter", partial(with_menu, name="did not answer"), {}),
    "phone": ("/?q=musical+note", nothing, {"viewport": PHONE, "has_touch": True, "is_mobile": True}),
    "dark": ("/?q=domino+tile", nothing, {"color_scheme": "dark"}),
}
"""Each picture: the address, what is done there, and how the browser is set."""


def main(run: Path) -> None:
    """Write all pictures from a run of the demo."""
    PICTURES.mkdir(exist_ok=True)
    with served(run) as whole, served(run, silent=True) as part:
        for browser in started_browser():
            for name, (path, act, options) in STATES.items():
                page = new_page(browser, **{"viewport": DESKTOP, "reduced_motion": "reduce", **options})
                page.goto((part if name == "silent-silo" else whole) + path)
                act(page)
                settled(page)
                with Image.open(io.BytesIO(page.screenshot())) as picture:
                    small = picture.convert("RGB").quantize(
                        method=Image.Quantize.MAXCOVERAGE, kmeans=3, dither=NO_DITHER
                    )
                small.save(PICTURES / f"{name}.png", optimize=True)
                page.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
