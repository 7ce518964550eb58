"""Two hospitals and a server: the steps of the page can be followed literally, from kits to a search over both."""

from __future__ import annotations

import re
import shlex
import shutil
import time
import urllib.error
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.docs.test_two_silos import BLOCK, fetched, started
from tests.nats import needs_nats
from tests.ports import free_port
from tests.runs import silohash, write_archive
from tests.sites import site_archives

pytest.importorskip("nvflare")

from silohash.training.engines.flare.jobs import connected_silos, session

REPOSITORY = Path(__file__).resolve().parents[2]
SECTION = (REPOSITORY / "docs" / "how-to" / "deploy.md").read_text(encoding="utf-8").split("\n## ")[1]
STEPS = dict(re.findall(r"^\*\*(\d)\. (.*?)(?=^\*\*\d\. |\Z)", SECTION, re.MULTILINE | re.DOTALL))
SILOS = ("north", "south")
PATIENCE_SECONDS = 240.0


def blocks(step: str, language: str) -> list[str]:
    return [body for found, body in BLOCK.findall(STEPS[step]) if found == language]


def commands(step: str) -> list[list[str]]:
    return [shlex.split(line) for body in blocks(step, "bash") for line in body.splitlines()]


def follow(step: str, *further: object) -> None:
    """Run the commands of a step, each of which ends."""
    for words in commands(step):
        done = silohash(*words[1:], *further)
        assert done.code == 0, (words, done.out, done.err)


def connect(leader: Path) -> None:
    """Wait until both silos are connected to the training server."""
    end = time.monotonic() + PATIENCE_SECONDS
    while True:
        assert time.monotonic() < end, "the silos do not connect"
        try:
            with session(leader, 5.0) as opened:
                if connected_silos(opened) == list(SILOS):
                    return
        except Exception:
            time.sleep(0.5)


def found(address: str) -> str:
    """Return the results for a word as soon as both silos answer."""
    end = time.monotonic() + PATIENCE_SECONDS
    while True:
        assert time.monotonic() < end, "the silos do not answer"
        try:
            page = fetched(f"{address}/?q=parrot")
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            page = ""
        if "all 2 silos answered" in page:
            return page
        time.sleep(0.2)


def test_nine_steps() -> None:
    assert list(STEPS) == list("123456789")


@pytest.mark.whole_run
@needs_nats
@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_steps_lead_to_a_search_over_both_hospitals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONUNBUFFERED", "1")
    pooled = write_archive(tmp_path / "pooled", count=60, text="words", places=2)
    archives = site_archives(pooled, tmp_path / "archives", ("place-0", "place-1"))
    follow("1", "--port", free_port())
    for silo, archive in zip(SILOS, archives, strict=True):
        shutil.copytree(archive, Path("training") / silo / "data")
    with ExitStack() as training:
        for words in commands("3"):
            training.enter_context(started(words, tmp_path / f"training-{Path(words[-1]).name}.log"))
        connect(Path("training/leader"))
        follow("4")
        Path("run.toml").write_text("\n".join(blocks("5", "toml")))
        follow("5", "--set", "federated.rounds=2", "--set", "train.device=cpu")
    address = f"http://127.0.0.1:{free_port()}"
    follow("6", "--server", f"tls://127.0.0.1:{free_port()}")
    follow("7")
    for silo, line in zip(SILOS, blocks("8", "toml"), strict=True):
        assert line in (Path("search") / silo / "silo.toml").read_text()
        assert not (Path("search") / silo / "silo.key").exists(), "it signs in with the certificate of its kit"
    with ExitStack() as searching:
        searching.enter_context(started(commands("3")[0], tmp_path / "training-server.log"))
        for words in commands("9"):
            given = [*words, "--port", address.rpartition(":")[2]] if words[1] == "hub" else words
            searching.enter_context(started(given, tmp_path / f"search-{Path(words[-1]).parent.name}.log"))
        results = found(address).split('id="results"')[1]
        assert {*re.findall(r"Silo: </span>(\w+)<", results)} == {*SILOS}
        connect(Path("training/leader"))
        follow("5", "--out", "runs/second", "--set", "federated.rounds=1", "--set", "train.device=cpu")
