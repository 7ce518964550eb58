"""Memory of a silo while it changes to new models under queries, for a small and a large silo.

    python benchmarks/model_update.py [--smoke] [--items FEW MANY]

A NATS server with TLS connects a silo process and the hub's backend in this process. The silo holds pairs of picture
features and captions. While one caller asks with texts without a pause, the silo encodes all pairs with the model of a new
run, the hub begins to use that model, and the silo removes the index of the old one; three times in a row. Each answer has
to come from the whole silo and from a single model, otherwise the benchmark ends with an error.

``one model`` is the peak memory of the silo process before the first change, and ``changes`` is that during each change.
``per item`` divides the growth from the small to the large silo by the additional items. Besides the index of one model, a
change needs that of the new one, and the captions and features of the archive while they are read.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TypeAlias

import numpy as np
from service import WORDS, answered, prepare_processes, start_process, train_model, write_pairs

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.nats import Federation  # isort: skip

from silohash.api.runs import open_run
from silohash.run.folder import Run
from silohash.search.requests import SearchRequest
from silohash.search.wire import WireBus
from silohash.service.backends import AdoptingBackend, Backend, HubBackend
from silohash.service.link import run_loop
from silohash.service.nats_bus import NatsBus

SILO = "library"
ITEMS = (20_000, 200_000)
QUERIES = 500
CHANGES = 3
KEEP_OLD_SECONDS = 10.0
GOAL_BYTES = 1_500
"""Most memory per item during a change. A million items then need 1.5 GB."""

GOAL_LAST = 1.1
"""Most memory of the last change, relative to that of the first one."""

Ask: TypeAlias = "Callable[[set[str]], Awaitable[float]]"
"""A function that asks, checks that one of some models answered, and returns the time in milliseconds."""


@dataclass(frozen=True)
class Found:
    """What was measured with one size of the silo.

    Attributes:
        one: peak memory of the silo in bytes while it answers with one model.
        changes: peak memory in bytes during each change.
        seconds: time of a change in the mean, until the index of the old model is removed.
        milliseconds: ``(n,)``, times of the queries during the changes.
    """

    one: int
    changes: list[int]
    seconds: float
    milliseconds: list[float]


def main() -> None:
    """Measure both sizes, and print one line per figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="few items, to check that the benchmark runs")
    parser.add_argument("--items", nargs=2, type=int, metavar=("FEW", "MANY"), default=ITEMS, help="sizes of the silo")
    options = parser.parse_args()
    prepare_processes()
    few, many = (500, 5_000) if options.smoke else options.items
    with tempfile.TemporaryDirectory() as folder:
        models = [train_model(Path(folder) / f"model-{seed}", seed) for seed in range(2)]
        found = {items: measure(Path(folder) / f"{items}", items, models) for items in (few, many)}
    for items, each in found.items():
        half, most = np.percentile(each.milliseconds, [50, 99])
        peaks = ", ".join(f"{peak / 1e6:.0f}" for peak in each.changes)
        print(
            f"{items:,} items: one model {each.one / 1e6:.0f} MB, changes {peaks} MB, each in {each.seconds:.0f} s; "
            f"{len(each.milliseconds):,} queries meanwhile, none failed, median {half:.1f} ms, 99 % {most:.1f} ms"
        )
    grown = (found[many].changes[0] - found[few].changes[0]) / (many - few)
    show(f"per item: {(found[many].one - found[few].one) / (many - few):.0f} bytes, during a change", grown, GOAL_BYTES)
    show("last change / first change", max(each.changes[-1] / each.changes[0] for each in found.values()), GOAL_LAST)


def show(text: str, value: float, goal: float) -> None:
    """Print a figure with its goal."""
    print(f"{text} {value:,.4g}   goal {goal:,g} {'met' if value <= goal else 'NOT MET'}")


def measure(folder: Path, items: int, models: Sequence[Run]) -> Found:
    """Return what the changes of a silo with so many items take.

    Args:
        folder: a new folder.
        items: number of items.
        models: two runs, between which the silo changes.
    """
    write_pairs(folder / "pairs", items)
    runs = [folder / f"run-{number}" for number in range(CHANGES + 1)]
    for number, run in enumerate(runs):
        shutil.copytree(models[number % 2].folder, run, ignore=shutil.ignore_patterns("index", "checkpoint"))
    open_run(runs[0]).index(folder / "pairs", name=SILO)
    with ExitStack() as stack:
        federation = stack.enter_context(Federation(folder, SILO, run=runs[0], deadline_seconds=10))
        process = start_process(stack, federation, 0, SILO)
        found: list[Found] = []

        async def note() -> None:
            """Keep what was measured."""
            found.append(await change(federation, runs, process))

        run_loop(note())
        return found[0]


async def change(federation: Federation, runs: Sequence[Path], process: int) -> Found:
    """Ask without a pause while the silo and the hub change from run to run, and return what was measured.

    Args:
        federation: the federation of the silo and the hub.
        runs: the run that the silo is indexed with, and those to which it changes.
        process: number of the silo's process.
    """
    hub, file = federation.hub, federation.folder / f"{SILO}.toml"
    text = file.read_text()
    bus = NatsBus(hub)
    await bus.link.start(wait_seconds=10)
    one, changes, times = 0, [], []
    begin = time.perf_counter()
    for old, new in pairwise(runs):
        config = hub.model_copy(update={"run": old, "next_run": new})
        backend = AdoptingBackend(config, partial(HubBackend, silos=[SILO], bus=WireBus(bus), deadline_seconds=10))
        before, after = ({Run.open(run).model.digest("global")} for run in (old, new))
        ask = asker(backend)
        if not one:
            await answered(partial(ask, before))
            one = await peak_while(process, asked(ask, before))
            begin = time.perf_counter()
        file.write_text(
            f'next_run = "{new}"\nkeep_old_hours = {KEEP_OLD_SECONDS / 3600}\n{text.replace(str(runs[0]), str(old))}'
        )
        looking = asyncio.create_task(backend.keep_looking())

        async def changed(ask: Ask = ask, old: Path = old, models: set[str] = before | after) -> None:
            """Let the silo change, and ask until it has removed the index of the old model."""
            os.kill(process, signal.SIGHUP)
            while (old / "index" / SILO).exists():
                times.append(await ask(models))

        changes.append(await peak_while(process, changed()))
        await asked(ask, after)
        looking.cancel()
        backend.close()
    seconds = (time.perf_counter() - begin) / len(changes)
    await bus.link.stop()
    return Found(one, changes, seconds, times)


def asker(backend: Backend) -> Ask:
    """Return a function that asks with a text."""

    async def ask(models: set[str]) -> float:
        """Ask, check the answer, and return the time in milliseconds."""
        begin = time.perf_counter()
        hits = await backend.search(SearchRequest(value=WORDS[0], target="item", k=10, previews=False))
        assert not hits.missing_silos, hits.missing_silos
        assert len(hits) == 10, len(hits)
        assert len(hits.model_digests) == 1, hits.model_digests
        assert hits.model_digests <= models, hits.model_digests
        return 1e3 * (time.perf_counter() - begin)

    return ask


async def asked(ask: Ask, models: set[str]) -> None:
    """Ask some queries, one after the other, which a model has to answer."""
    for _ in range(QUERIES):
        await ask(models)


async def peak_while(process: int, work: Coroutine[object, object, None]) -> int:
    """Do some work, and return the peak memory of a process in bytes meanwhile."""
    Path(f"/proc/{process}/clear_refs").write_text("5")  # the peak is counted from now on
    await work
    fields = Path(f"/proc/{process}/status").read_text().partition("VmHWM:")[2].split()
    return 1024 * int(fields[0])


if __name__ == "__main__":
    main()
