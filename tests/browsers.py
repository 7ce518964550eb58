"""What tests in a real browser share: how Chromium is started, how long it is waited for, and a check of contrast."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = Path("/usr/bin/chromium")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

PATIENCE_MILLISECONDS = 120_000
"""Limit on every wait. An idle machine needs a small part of it."""

CONTRAST = """
() => {
  const light = ([r, g, b]) => {
    const part = v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
    return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  };
  const numbers = c => {
    const found = c.match(/[0-9.]+/g).map(Number);
    return c.startsWith("color(srgb") ? [...found.slice(0, 3).map(v => 255 * v), ...found.slice(3)] : found;
  };
  const behind = e => {
    for (; e; e = e.parentElement) {
      const c = numbers(getComputedStyle(e).backgroundColor);
      if (c.length < 4 || c[3] === 1) return c;
    }
  };
  const low = [];
  const texts = "h1,h2,h3,p,li,dt,dd,td,th,a,summary,.soft,.silo,.yes b,.no b,.axis span,figcaption";
  for (const e of document.querySelectorAll(texts)) {
    if (!e.textContent.trim()) continue;
    const [a, b] = [light(numbers(getComputedStyle(e).color)), light(behind(e))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) low.push(`${e.tagName} ${e.className} ${ratio.toFixed(2)}`);
  }
  return low;
}
"""

_GIVE_FILE = """
([way, content, type]) => {
  const bytes = Uint8Array.from(atob(content), (c) => c.charCodeAt(0));
  const data = new DataTransfer();
  data.items.add(new File([bytes], "a", { type }));
  const name = way === "paste" ? "clipboardData" : "dataTransfer";
  const Event = way === "paste" ? ClipboardEvent : DragEvent;
  document.body.dispatchEvent(new Event(way, { [name]: data, bubbles: true, cancelable: true }));
}
"""


def give_file(page: Any, way: str, content: bytes, kind: str = "image/png") -> None:
    """Give a page a picture file of a media type: "choose" it in the dialog, "paste" or "drop" it."""
    if way == "choose":
        page.set_input_files("#file", {"name": "a", "mimeType": kind, "buffer": content})
    else:
        page.evaluate(_GIVE_FILE, [way, base64.b64encode(content).decode(), kind])


def started_browser() -> Iterator[Any]:
    """Yield a browser, and close it afterwards. The test is skipped where there is none."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if not CHROMIUM.exists():
        pytest.skip(f"{CHROMIUM} is not there; install it with: apt-get install -y chromium")
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS, timeout=PATIENCE_MILLISECONDS)
        yield started
        started.close()


def new_page(browser: Any, **options: Any) -> Any:
    """Return a page in a context of its own, as `options` describe it."""
    page = browser.new_page(**options)
    page.set_default_timeout(PATIENCE_MILLISECONDS)
    return page


def opening_pages(
    browser: Any, address: str, *, excused: tuple[str, ...] = (), **window: int
) -> Iterator[Callable[..., Any]]:
    """Yield a function that opens a path in a context of its own. Afterwards it is checked that no page had a fault.

    A fault is an error, a request to another address, or a message on the console without one of the ``excused`` parts.
    """
    contexts, faults = [], []
    size = {"width": 1200, "height": 800, **window}

    def opening(path: str = "/", *, at: str = address, **options: Any) -> Any:
        context = browser.new_context(**{"viewport": size, **options})
        context.set_default_timeout(PATIENCE_MILLISECONDS)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: any(part in message.text for part in excused) or faults.append(message.text))
        page.on("pageerror", lambda error: faults.append(str(error)))
        known = (at, "data:", "blob:")
        page.on("request", lambda request: request.url.startswith(known) or faults.append(request.url))
        page.goto(at + path)
        return page

    yield opening
    for context in contexts:
        context.close()
    assert faults == []


def until(page: Any, condition: str) -> None:
    """Wait until an expression is true. The page's own policy keeps it from being evaluated inside the page."""
    for _ in range(PATIENCE_MILLISECONDS // 50):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(50)
    pytest.fail(f"never true: {condition}")
