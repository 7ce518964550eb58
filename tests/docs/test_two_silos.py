"""The tutorial of two silos can be followed literally, from two folders of photographs to a page over both."""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from silohash.data.build.icons.builder import build_icons
from tests.icon_packages import split_packages
from tests.nats import SERVER, needs_nats
from tests.ports import free_port
from tests.runs import silohash

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = (REPOSITORY / "docs" / "tutorial" / "two-silos.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
BUILD, *COMMANDS = [
    shlex.split(line) for language, body in BLOCK.findall(PAGE) if language == "bash" for line in body.splitlines()
]
(SOURCE,) = (body for language, body in BLOCK.findall(PAGE) if language == "python")
STARTED_SECONDS = 120.0
BOUNDARY = "-tutorial-"


def test_ten_commands_lead_to_the_page() -> None:
    assert BUILD[:4] == ["silohash", "data", "build", "icons"]
    assert len(COMMANDS) == 10
    assert not any({"&&", ";", "|"} & {*words} for words in COMMANDS if words[0] != "cd")
    assert COMMANDS[-1] == ["python", "-m", "webbrowser", "http://127.0.0.1:8765"]


def runs_on(words: list[str]) -> bool:
    """Return whether a command runs until it is stopped."""
    return words[0] == "cd" or words[1] in {"silo", "hub"}


@contextmanager
def started(words: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process until the block ends. It must then still be running, and end cleanly when asked to."""
    folder = Path()
    if words[0] == "cd":
        folder, words = Path(words[1]), words[words.index("&&") + 1 :]
    program = [str(SERVER)] if words[0] == "nats-server" else [sys.executable, "-m", "silohash"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*program, *words[1:]], stdout=output, stderr=output, cwd=folder, env={**os.environ, "OMP_NUM_THREADS": "1"}
        )
        try:
            yield process
            assert process.poll() is None, log.read_text()
        finally:
            process.terminate()
            try:
                process.wait(60)
            finally:
                process.kill()
                process.wait()
    assert "Traceback" not in log.read_text()


def fetched(address: str, body: bytes | None = None) -> str:
    """Return a page, after the redirection to the results of a picture."""
    headers = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"} if body else {}
    with urllib.request.urlopen(urllib.request.Request(address, body, headers), timeout=60) as answer:  # noqa: S310
        return str(answer.read().decode())


def picture_form(path: Path) -> bytes:
    """Return a form with a picture, as a browser sends it."""
    form = io.BytesIO()
    form.write(
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="picture_file"; filename="{path.name}"\r\n'.encode()
    )
    form.write(b"Content-Type: image/png\r\n\r\n" + path.read_bytes() + f"\r\n--{BOUNDARY}--\r\n".encode())
    return form.getvalue()


def whole_page(address: str, logs: Path, body: bytes | None = None) -> str:
    """Return the results for words or a picture as soon as all silos answer."""
    end = time.monotonic() + STARTED_SECONDS
    page = ""
    while "all 2 silos answered" not in page:
        assert time.monotonic() < end, "\n".join(path.read_text() for path in logs.glob("*.log"))
        time.sleep(0.1)
        try:
            page = fetched(address, body)
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            continue
    return page


@pytest.mark.whole_run
@needs_nats
def test_tutorial_is_followed_to_its_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", "1")
    monkeypatch.setitem(build_icons.__kwdefaults__, "tables", tmp_path / "tables")
    packages = split_packages(tmp_path, monkeypatch)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    built = silohash(*BUILD[1:], "--from", packages)
    assert built.code == 0, built.err
    exec(SOURCE, {})  # noqa: S102  the page's own lines
    port, address = free_port(), f"http://127.0.0.1:{free_port()}"
    further = {
        "train": ["--smoke"],
        "federation": ["--server", f"tls://127.0.0.1:{port}"],
        "hub": ["--port", address.rpartition(":")[2]],
    }
    with ExitStack() as processes:
        for words in COMMANDS[:-1]:
            given = [*words, *further.get(words[1], [])]
            if runs_on(words):
                log = tmp_path / f"{Path(words[-1]).parent.name}.log"
                processes.enter_context(started(given, log))
                continue
            done = silohash(*given[1:])
            assert done.code == 0, (given, done.err)
            if words[1] == "federation":
                printed = [shlex.split(line) for line in done.out.splitlines()]
                assert printed == [command for command in COMMANDS if runs_on(command)]
        for page in (
            whole_page(f"{address}/?q=cat", tmp_path),
            whole_page(f"{address}/picture", tmp_path, picture_form(next(Path("south").glob("*.png")))),
        ):
            results = page.split('id="results"')[1]
            assert "all 2 silos answered" in results
            assert {*re.findall(r"Silo: </span>(\w+)<", results)} == {"north", "south"}
    assert "Traceback" not in "".join(path.read_text() for path in tmp_path.glob("*.log"))
