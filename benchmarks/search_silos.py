"""Time of one search among three silos in this process, and which part of it takes how long.

    python benchmarks/search_silos.py [--smoke]

Three silos hold 100,000 and then 1,000,000 codes of 64 bits each, in clusters with many ties, with ids and captions. The
nodes are opened for many queries, as a service opens them. The median, the percentiles and the first query are wall time,
so run this on an idle machine. Searches per second are those of 1, 8 and 32 threads. The parts are the least time of many
trials, which depends less on other programs. They are those of one silo unless the line names more, and their share is that
of the least time of a whole search. The popcount limit is the time of a loop that only compares all codes of one silo with
the query.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from index_scan import clustered_codes, roof_one

from silohash.index.base import IndexManifest
from silohash.index.codes import Words
from silohash.index.store import Store
from silohash.search import merge
from silohash.search.bus import LocalBus, now
from silohash.search.hits import Hits, Query
from silohash.search.nearest import nearest_items
from silohash.search.node import SiloNode
from silohash.search.order import item_digests, keyed_order
from silohash.search.silos import open_nodes

BITS = 64
MODEL = "benchmark"
SILOS = ("north", "south", "west")
ROWS_AT_ONCE = 1 << 16
QUERIES = 1000
GOALS_MS = {100_000: 0.6, 1_000_000: 1.5}
GOAL_FIRST_MS = 20.0
KEY = b"key of the order"


def build(folder: Path, items: int) -> None:
    """Write the indexes of the silos."""
    for silo in SILOS:
        codes = clustered_codes(items, BITS, silo)
        (folder / silo).mkdir(parents=True)
        with Store.create(folder / silo / "image.sqlite", IndexManifest(MODEL, BITS, "image", silo=silo)) as store:
            for start in range(0, items, ROWS_AT_ONCE):
                some = range(start, min(start + ROWS_AT_ONCE, items))
                payloads = [json.dumps({"caption": f"picture {row}", "labels": ["picture"]}) for row in some]
                store.add([f"{silo}-{row:07d}" for row in some], codes[some.start : some.stop], payloads)


def queries_of(words: Words, k: int) -> list[Query]:
    """Return one query per code."""
    return [Query(words=code, bits=BITS, model_digest=MODEL, target="image", k=k, tie_key=KEY) for code in words]


def ask(bus: LocalBus, query: Query) -> Hits:
    """Return what all silos answer to a query."""
    return now(merge.ask(bus, dict.fromkeys(bus.nodes, query), deadline_seconds=10.0))


def milliseconds(call: Callable[[], object]) -> float:
    """Return the wall time of a call."""
    start = time.perf_counter()
    call()
    return 1e3 * (time.perf_counter() - start)


def least(call: Callable[[Query], object], queries: list[Query]) -> float:
    """Return the least wall time of a call over the queries, in milliseconds."""
    return min(milliseconds(lambda query=query: call(query)) for query in queries)


def rate(bus: LocalBus, queries: list[Query], callers: int) -> float:
    """Return the number of searches per second of several threads, each of which asks one query after the other."""
    start = time.perf_counter()
    with ThreadPoolExecutor(callers) as pool:
        list(pool.map(lambda query: ask(bus, query), queries))
    return len(queries) / (time.perf_counter() - start)


def line(text: str, value: float, note: str) -> None:
    """Print one line."""
    print(f"{text:<62} {value:>8.3f} ms  {note}", flush=True)


def goal(value: float, most: float) -> str:
    """Return the note of a value that has a goal."""
    return f"(goal at most {most:g})  {'met' if value <= most else 'NOT MET'}"


def parts(nodes: list[SiloNode], queries: list[Query], k: int) -> dict[str, float]:
    """Return the least time of each part of a search, in milliseconds."""
    node = nodes[0]
    [loaded] = node._loaded.values()
    column = np.ascontiguousarray(np.concatenate([words for _, words in _codes(loaded.store)]).view(np.uint64)[:, 0])
    found = {id(query): loaded.nearest(query.words, k) for query in queries}
    digests = {key: loaded.digests(keys) for key, (keys, _) in found.items()}
    rows = {id(query): [*nearest_items({"image": loaded}, query, k, None)[0].keys["image"]] for query in queries}
    answers = {id(query): [other.answer(query) for other in nodes] for query in queries}
    return {
        "popcount limit of the scan": least(lambda q: roof_one(column, q.words[0], np.uint64(16)), queries),
        "scan, with all ties at the cut": least(lambda q: loaded.nearest(q.words, k), queries),
        "digests of the codes that were found": least(lambda q: loaded.digests(found[id(q)][0]), queries),
        "keyed order of the digests": least(lambda q: keyed_order(digests[id(q)], KEY), queries),
        "rows of the hits, from memory": least(lambda q: loaded.rows(rows[id(q)]), queries),
        "rows of the hits, from the file (not part of a search)": least(
            lambda q: loaded.store.rows(rows[id(q)]), queries
        ),
        "change of the store noticed": least(lambda _: loaded.outdated(), queries),
        "whole answer of one silo": least(node.answer, queries),
        "whole answers of three silos": least(lambda q: [other.answer(q) for other in nodes], queries),
        "hashing of ids at the hub, of k hits": least(
            lambda q: item_digests(answers[id(q)][0].silos, answers[id(q)][0].ids), queries
        ),
        "merge of three answers": least(lambda q: merge.merge(answers[id(q)], k=k, key=KEY), queries),
    }


def _codes(store: Store) -> list[tuple[object, np.ndarray]]:
    with store._database.reading():
        return list(store._database.live())


def measure(folder: Path, items: int, words: Words) -> None:
    """Open the silos, search them, and print all figures."""
    opened = time.perf_counter()
    nodes = open_nodes(folder, prepared=True)
    bus = LocalBus(nodes)
    opened = time.perf_counter() - opened
    print(f"\n3 silos of {items:,} codes of {BITS} bits, opened in {opened:.2f} s")
    first = milliseconds(lambda: ask(bus, queries_of(words[:1], 10)[0]))
    for k in (10, 100):
        queries = queries_of(words[1:], k)
        took = [milliseconds(lambda query=query: ask(bus, query)) for query in queries]
        middle, quickest = statistics.median(took), min(took)
        line(
            f"k = {k}: median of {len(took)} searches",
            middle,
            goal(middle, GOALS_MS.get(items, 1e9)) if k == 10 else "",
        )
        line(f"k = {k}: 95th percentile", statistics.quantiles(took, n=20)[-1], "")
        line(f"k = {k}: 99th percentile", statistics.quantiles(took, n=100)[-1], "")
        for callers in (1, 8, 32):
            print(f"k = {k}: {callers:2} callers {rate(bus, queries, callers):8.0f} searches per second", flush=True)
        if k == 10:
            line("first search, beyond the median", first - middle, goal(first - middle, GOAL_FIRST_MS))
        line(f"k = {k}: least", quickest, "")
        for text, value in parts(nodes, queries[:200], k).items():
            line(f"  {text}", value, f"{100 * value / quickest:5.1f} %")
    loaded = nodes[0]._loaded["image"]
    if hasattr(loaded.index, "memory_bytes"):
        held = loaded.index.memory_bytes + loaded._digests.nbytes
        print(f"memory of codes, keys and digests: {held / items:.1f} bytes per item")
    if loaded._rows is not None:
        print(f"memory of ids, captions and labels: {loaded._rows.memory_bytes / items:.1f} bytes per item")
    for node in nodes:
        node.close()


def main() -> None:
    """Build the silos and measure searches."""
    options = argparse.ArgumentParser(description="Time of a search among three silos in this process")
    options.add_argument("--smoke", action="store_true", help="use a hundredth of the size, to check that it runs")
    scale = 100 if options.parse_args().smoke else 1
    words = clustered_codes(1 + QUERIES // scale, BITS, "queries")
    for items in GOALS_MS:
        with tempfile.TemporaryDirectory() as folder:
            build(Path(folder) / "index", items // scale)
            measure(Path(folder) / "index", items // scale, words)


if __name__ == "__main__":
    main()
