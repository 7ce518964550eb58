"""Speed of the index backends on servers, compared with the scan in memory, in one run on the same codes.

    python benchmarks/index_backends.py [--count N] [--exact] [--smoke]

The servers are started on this machine, so that the network is left out, and are stopped at the end. Codes have 64 bits and
lie around 256 Zipf-weighted centers, with many ties. Each line shows the time of copying all codes, the median time of one
query with its 95th percentile, the time per query in a batch of 20, the ratio to the flat index, and the share of distances
that equal those of the flat index. Times are wall-clock times.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np

from silohash.base.seeds import numpy_generator
from silohash.index import SERVERS
from silohash.index.base import Index
from silohash.index.codes import Words
from silohash.index.flat import FlatIndex

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests import servers

BITS, K = 64, 100


def clustered_codes(count: int, purpose: str) -> Words:
    """Return codes around 256 Zipf-weighted centers, with each bit flipped with probability 5/64."""
    generator = numpy_generator(0, purpose)
    weights = 1 / np.arange(1, 257)
    centers = numpy_generator(0, "centers").integers(0, 2**64, 256, dtype=np.uint64)
    codes = centers[generator.choice(256, count, p=weights / weights.sum())]
    for bit in range(BITS):
        codes ^= (generator.random(count) < 5 / 64).astype(np.uint64) << np.uint64(bit)
    return codes[:, None]


@contextmanager
def opened(name: str, approximate: bool) -> Iterator[Index]:
    """Run a server, and yield an empty index in it."""
    with servers.started(name) as url:
        index = SERVERS.resolve(name)(url, "benchmark", BITS, approximate=approximate, create=True)
        yield index
        index.close()


def seconds(action: Callable[[], object]) -> float:
    """Return the wall-clock time of a call."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def measure(index: Index, codes: Words, queries: Words, trials: int) -> dict[str, float]:
    """Return the times of an index, in milliseconds, and of copying the codes, in seconds."""

    def fill() -> None:
        index.add(np.arange(len(codes)), codes)
        getattr(index, "finish", lambda: None)()

    copying = seconds(fill)
    time.sleep(0 if isinstance(index, FlatIndex) else 11)  # a server that has just changed answers more slowly
    for query in queries[:3]:
        index.search(query[None], K)
    single = [1e3 * seconds(lambda query=query: index.search(query[None], K)) for query in queries[:trials]]
    batch = min(1e3 * seconds(lambda: index.search(queries[:20], K)) / 20 for _ in range(2))
    return {
        "copy": copying,
        "median": float(np.median(single)),
        "p95": float(np.percentile(single, 95)),
        "batch": batch,
    }


def main() -> None:
    """Measure every backend that is installed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--trials", type=int, default=50)
    parser.add_argument(
        "--exact", action="store_true", help="leave out approximate indexes, which take minutes to build"
    )
    parser.add_argument("--smoke", action="store_true", help="few codes, to check that the benchmark runs")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends the servers, too
    count = 20_000 if given.smoke else given.count
    codes, queries = clustered_codes(count, "codes"), clustered_codes(max(given.trials, 20), "queries")
    flat = FlatIndex(BITS)
    base = measure(flat, codes, queries, given.trials)
    expected = flat.search(queries[:20], K).distances
    print(f"{count:,} codes of {BITS} bits, k = {K}")
    print(f"{'engine':22}{'copy s':>9}{'median ms':>11}{'p95 ms':>9}{'batch ms':>10}{'x flat':>9}{'equal':>8}")
    print(
        f"{'flat':22}{base['copy']:9.2f}{base['median']:11.3f}{base['p95']:9.3f}{base['batch']:10.3f}{1:9.1f}{1:8.3f}"
    )
    for name in SERVERS.names():
        for approximate in (False,) if given.exact else (False, True):
            label = name + (" approximate" if approximate else "")
            with ExitStack() as stack:
                try:
                    index = stack.enter_context(opened(name, approximate))
                except servers.pytest.skip.Exception as reason:
                    print(f"{label:22}{reason}")
                    continue
                found = measure(index, codes, queries, given.trials)
                equal = float(np.mean(index.search(queries[:20], K).distances == expected))
            print(
                f"{label:22}{found['copy']:9.2f}{found['median']:11.2f}{found['p95']:9.2f}{found['batch']:10.2f}"
                f"{found['median'] / base['median']:9.1f}{equal:8.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
