"""Speed of the service: a hub and three silos of one million codes each, as processes on this machine.

    python benchmarks/service.py [--smoke] [--queries N] [--k K]

A NATS server with TLS connects the processes. ``code`` queries are codes of 64 bits that are sent over the bus by the
hub's backend in this process; ``text`` queries go through the JSON API of a hub in a process of its own, which encodes
them with onnxruntime. Each returns the k nearest items of all silos, by default 10, as in a search without options. Callers
ask one query after the other, and every caller has a connection of its own. Processes share this machine's cores, so more
callers than cores wait for each other. The hub's process starts after the ``code`` queries, which do not need it.

``shares`` divides the median of a query of a single caller: ``scan`` is the time of the slowest silo with the writing of its
answer, ``merge`` includes reading and checking the answers, ``encoding`` is the model, ``API`` is the application for a
result that is ready, and ``bus`` is the rest: messages, processes and the web server. The parts are measured one after the
other in this process.

``CPU`` is the processor time per query of a process, which depends less on what else the machine does.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from logging import WARNING
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.nats import SERVER, Federation  # isort: skip
from tests.ports import free_port  # isort: skip

from silohash.api.runs import train
from silohash.base.seeds import numpy_generator
from silohash.index.base import IndexManifest
from silohash.index.codes import Words
from silohash.index.store import Store
from silohash.run.folder import Run
from silohash.search.breaker import BreakerBus
from silohash.search.bus import flaw
from silohash.search.hits import Hits, Query
from silohash.search.merge import merge
from silohash.search.order import question_key
from silohash.search.requests import Code, SearchRequest
from silohash.search.silos import open_node
from silohash.search.wire import WireBus, decode_answer, encode_answer
from silohash.service.backends import HubBackend
from silohash.service.link import run_loop
from silohash.service.logs import start_logging
from silohash.service.nats_bus import NatsBus
from silohash.service.web.app import create_app

SILOS = ("north", "south", "west")
BITS = 64
PART = 100_000
WORDS = ("parrot", "harbour", "violin", "glacier", "kitchen", "tram", "orchard", "desert")
GOALS = {"code": (3.0, 10.0), "text": (10.0, 30.0)}
"""Highest median and 99th percentile of a single caller, in milliseconds."""

CONFIG = """
[data]
path = "{folder}/pairs"
[partition]
kind = "iid"
silos = 3
[local]
name = "dcmh"
bits = {bits}
[federated]
name = "fedavg"
rounds = 1
local_epochs = 1
[train]
device = "cpu"
"""

Caller = Callable[[int], Awaitable[None]]


def main() -> None:
    """Measure, and print one line per figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="few codes and queries, to check that the benchmark runs")
    parser.add_argument("--queries", type=int, default=2_000, help="queries per figure")
    parser.add_argument("--k", type=int, default=10, help="number of hits per query")
    options = parser.parse_args()
    prepare_processes()
    items, queries = (2_000, 20) if options.smoke else (1_000_000, options.queries)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        run = make_run(Path(folder), items)
        federation = stack.enter_context(Federation(Path(folder) / "federation", *SILOS, run=run.folder))
        port = free_port()
        start = partial(start_process, stack, federation, port)
        processes = {"this process": os.getpid(), **{name: start(name) for name in SILOS}}
        run_loop(measure(run, federation, port, queries, options.k, processes, start))


def prepare_processes() -> None:
    """Check that a NATS server can be started, log as the servers do, and let SIGTERM end this process like Ctrl-C."""
    if SERVER is None:
        sys.exit("nats-server is not installed. On Debian: apt-get install nats-server")
    start_logging(level=WARNING)
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def make_run(folder: Path, items: int) -> Run:
    """Train a small model, and write an index of random codes per silo."""
    run = train_model(folder)
    for number, silo in enumerate(SILOS):
        write_index(run.index_folder / silo, silo, random_codes(items, number), run.model.digest("global"))
    return run


def train_model(folder: Path, seed: int = 0) -> Run:
    """Train a small model on random pairs. The folder holds the run and the pairs afterwards."""
    write_pairs(folder / "pairs", 200)
    (folder / "run.toml").write_text(CONFIG.format(folder=folder, bits=BITS))
    train(folder / "run.toml", folder / "run", overrides=[f"seed={seed}"], report=False)
    return Run.open(folder / "run")


def write_pairs(folder: Path, count: int) -> None:
    """Write an archive of random picture features, each with a text of three words."""
    folder.mkdir(parents=True)
    generator = numpy_generator(0, "benchmark")
    with (folder / "metadata.csv").open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["id", "text", "labels"])
        for number in range(count):
            chosen = generator.choice(WORDS, 3, replace=False).tolist()
            writer.writerow([f"item-{number}", " ".join(chosen), "|".join(chosen)])
    np.save(folder / "image.npy", generator.normal(size=(count, 32)).astype(np.float32))


def random_codes(count: int, number: int) -> Words:
    """Return ``(count, 1)`` words of random bits."""
    generator = numpy_generator(number, "benchmark codes")
    return generator.integers(0, 1 << BITS, (count, 1), dtype=np.uint64, endpoint=False)


def write_index(folder: Path, silo: str, words: Words, digest: str) -> None:
    """Write the index of a silo, whose items have captions."""
    folder.mkdir(mode=0o700, parents=True)
    manifest = IndexManifest(model_digest=digest, bits=BITS, modality="image", silo=silo)
    with Store.create(folder / "image.sqlite", manifest) as store:
        for begin in range(0, len(words), PART):
            part = range(begin, min(begin + PART, len(words)))
            payloads = [json.dumps({"caption": f"a tram beside an orchard, number {row}"}) for row in part]
            store.add([f"{silo}-{row}" for row in part], words[begin : begin + PART], payloads)


def start_process(stack: ExitStack, federation: Federation, port: int, name: str) -> int:
    """Start a silo or the hub, which the stack ends, and return the number of its process."""
    command = ["hub", "--port", str(port)] if name == "hub" else ["silo"]
    with (federation.folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "silohash", *command, str(federation.folder / f"{name}.toml")],
            stdout=log,
            stderr=log,
        )
    stack.callback(stop, process)
    return process.pid


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a process."""
    process.terminate()
    process.wait()


async def measure(
    run: Run,
    federation: Federation,
    port: int,
    queries: int,
    k: int,
    processes: dict[str, int],
    start: Callable[[str], int],
) -> None:
    """Measure both kinds of queries with 1, 8 and 32 callers, and the shares of a single caller."""
    if federation.process is not None:
        processes = {**processes, "NATS server": federation.process.pid}
    bus = NatsBus(federation.hub)
    await bus.link.start(wait_seconds=10)
    silos = BreakerBus(WireBus(bus), misses=1, patience_seconds=10)
    backend = HubBackend(run, SILOS, silos, deadline_seconds=10)
    codes = [
        Code(words=words, bits=BITS, model_digest=run.model.digest("global")) for words in random_codes(queries, 99)
    ]
    await answered(lambda: by_code(backend, codes[0], k))

    def caller_by_code() -> Caller:
        """Return a caller that sends codes over the bus."""
        return lambda number: by_code(backend, codes[number % len(codes)], k)

    found = {"code": await figures("code", caller_by_code, queries, processes)}
    processes["hub"] = start("hub")
    await answered(lambda: TextCaller(port, k).ask(0))
    found["text"] = await figures("text", lambda: TextCaller(port, k).ask, queries, processes)
    parts = parts_of_a_query(run, codes[: min(200, queries)], k)
    show_shares("code", found["code"], {name: parts[name] for name in ("scan", "merge")})
    show_shares("text", found["text"], parts | {"API": await time_of_api(run, bus, codes[0], k, min(200, queries))})
    backend.close()
    await bus.link.stop()


async def answered(ask: Callable[[], Awaitable[object]]) -> None:
    """Wait until all silos answer."""
    for _ in range(1_200):
        with suppress(AssertionError, OSError):
            await ask()
            return
        await asyncio.sleep(0.1)
    sys.exit("The silos did not start within two minutes.")


async def by_code(backend: HubBackend, code: Code, k: int) -> None:
    """Ask all silos with a code over the bus."""
    hits = await backend.search(SearchRequest(value=code, target="image", k=k, previews=False))
    assert len(hits) == k, hits.missing_silos
    assert not hits.missing_silos, hits.missing_silos


class TextCaller:
    """Ask the JSON API with a text, over one connection that stays open."""

    def __init__(self, port: int, k: int) -> None:
        self._port, self._k = port, k
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, number: int) -> None:
        """Ask with one of a few hundred texts."""
        text = "+".join(WORDS[(number // 8**place) % 8] for place in range(3))
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        path = f"/api/v1/search?text={text}&k={self._k}&find=image&previews=false"
        writer.write(
            f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\nAccept: application/json\r\n\r\n".encode()
        )
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        body = await reader.readexactly(int(head.partition(b"content-length: ")[2].split(b"\r\n")[0]))
        assert b" 200 " in head.partition(b"\r\n")[0], body
        assert len(json.loads(body)["hits"]) == self._k, body[:300]
        assert not json.loads(body)["missing_silos"]


async def figures(kind: str, caller: Callable[[], Caller], queries: int, processes: dict[str, int]) -> float:
    """Print the figures of 1, 8 and 32 callers, and return the median of a single caller in milliseconds."""
    medians = []
    for callers in (1, 8, 32):
        times: list[float] = []
        before = processor_seconds(processes)
        numbers = iter(range(queries))
        begin = time.perf_counter()
        await asyncio.gather(*(call(caller(), numbers, times) for _ in range(callers)))
        rate = len(times) / (time.perf_counter() - begin)
        median, high, highest = np.percentile(np.array(times) * 1e3, [50, 95, 99])
        line = f"{kind}, {callers:2} callers: median {median:6.2f} ms, 95 % {high:6.2f}, 99 % {highest:6.2f}, {rate:5.0f}/s"
        if callers == 1:
            most, at_most = GOALS[kind]
            met = median <= most and highest <= at_most
            line += f"   goal {most:g} and {at_most:g} ms {'met' if met else 'NOT MET'}"
        print(line, flush=True)
        if callers == 1:
            used = {
                name: 1e3 * (value - before[name]) / queries for name, value in processor_seconds(processes).items()
            }
            print(f"{kind}, CPU per query: {', '.join(f'{name} {value:.2f} ms' for name, value in used.items())}")
        medians.append(float(median))
    return medians[0]


def processor_seconds(processes: dict[str, int]) -> dict[str, float]:
    """Return the processor time that each process has used."""
    used = {}
    for name, number in processes.items():
        fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
        used[name] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return used


async def call(ask: Caller, numbers: Iterator[int], times: list[float]) -> None:
    """Ask one query after the other, and note how long each took."""
    for number in numbers:
        begin = time.perf_counter()
        await ask(number)
        times.append(time.perf_counter() - begin)


def hits_of(content: bytes, query: Query, silo: str) -> Hits:
    """Return the checked hits of a silo."""
    hits = decode_answer(content, silo)
    assert isinstance(hits, Hits)
    assert not flaw(silo, query, hits)
    return hits


def parts_of_a_query(run: Run, codes: list[Code], k: int) -> dict[str, float]:
    """Return the median milliseconds of the slowest silo, of the merge, and of encoding a text, in this process."""
    nodes = [open_node(run.index_folder, silo) for silo in SILOS]
    encoder = run.model.encoder()
    times: dict[str, list[float]] = {"scan": [], "merge": [], "encoding": []}
    for number, code in enumerate(codes):
        key = question_key(b"", [code.words])
        query = Query(words=code.words, bits=BITS, model_digest=code.model_digest, target="image", k=k, tie_key=key)
        contents, scans = {}, []
        for node in nodes:
            begin = time.perf_counter()
            contents[node.name] = encode_answer(node.name, node.answer(query))
            scans.append(time.perf_counter() - begin)
        times["scan"].append(max(scans))
        begin = time.perf_counter()
        merge([hits_of(content, query, silo) for silo, content in contents.items()], k=k, key=key)
        times["merge"].append(time.perf_counter() - begin)
        begin = time.perf_counter()
        encoder.encode(f"{WORDS[number % 8]} {WORDS[number // 8 % 8]}", "text")
        times["encoding"].append(time.perf_counter() - begin)
    for node in nodes:
        node.close()
    return {name: float(np.median(values) * 1e3) for name, values in times.items()}


class ReadyHub(HubBackend):
    """A hub that has a result already."""

    hits = Hits()

    async def search(self, request: SearchRequest) -> Hits:
        """Return the result."""
        return self.hits


async def time_of_api(run: Run, bus: NatsBus, code: Code, k: int, queries: int) -> float:
    """Return the median milliseconds that the application takes for a result that is ready, without the web server."""
    hub = ReadyHub(run, SILOS, WireBus(bus), deadline_seconds=10)
    hub.hits = await HubBackend.search(hub, SearchRequest(value=code, target="image", k=k, previews=False))
    app = create_app(hub)
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "path": "/api/v1/search",
        "raw_path": b"/api/v1/search",
        "query_string": f"text={WORDS[0]}&k={k}&find=image&previews=false".encode(),
        "root_path": "",
        "scheme": "http",
        "headers": [(b"host", b"127.0.0.1"), (b"accept", b"application/json")],
    }
    times = []
    for _ in range(queries):
        sent: list[dict[str, object]] = []

        async def receive() -> dict[str, object]:
            """Return an empty body."""
            return {"type": "http.request", "body": b""}

        async def send(message: dict[str, object], sent: list[dict[str, object]] = sent) -> None:
            """Keep a part of the response."""
            sent.append(message)

        begin = time.perf_counter()
        await app(dict(scope), receive, send)
        times.append(time.perf_counter() - begin)
        assert sent[0]["status"] == 200, sent
    hub.close()
    return float(np.median(times) * 1e3)


def show_shares(kind: str, median: float, parts: dict[str, float]) -> None:
    """Print which share of a query each part has."""
    rest = {"bus": max(0.0, median - sum(parts.values()))}
    shares = ", ".join(f"{name} {value:.2f} ms ({value / median:.0%})" for name, value in (parts | rest).items())
    print(f"{kind}, shares: {shares}")


if __name__ == "__main__":
    main()
