"""Cost of exact federated statistics: a silo's sums, and the regression that the server computes from them.

    python benchmarks/second_moments.py [--smoke]

The vectors are random numbers of the shape of common picture features. Times are CPU seconds of all threads, to reduce the
influence of a busy machine. The second line is the ratio of the first to the bare matrix products of the same size in
float64, measured in turn in this run.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np

from silohash.methods.federated.second_moments import PENALTIES, ridge_weights, second_moments

ITEMS, WIDTH, CLASSES = 100_000, 1280, 20
HIDDEN = 256
REPEATS = 3


def main() -> None:
    """Measure and print every line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="use few items, to check that it runs")
    items, width = (2_000, 64) if parser.parse_args().smoke else (ITEMS, WIDTH)
    generator = np.random.default_rng(0)
    vectors = generator.standard_normal((items, width), np.float32)
    labels = (generator.random((items, CLASSES)) < 0.1).astype(np.float32)
    block = vectors[:4096].astype(np.float64)
    sums, products = [], []
    for _ in range(REPEATS):
        sums.append(seconds(lambda: second_moments(vectors, labels)))
        products.append(seconds(lambda: block.T @ block) * items / len(block))
    silo, ratio = statistics.median(sums), statistics.median(sums) / statistics.median(products)
    report(f"CPU seconds per silo for the sums of {items:,} items x {width:,} dimensions", silo, "< 10", met=silo < 10)
    report("silo's sums / bare matrix products in float64", ratio, "<= 2", met=ratio <= 2)
    moments = second_moments(vectors[: 4 * width], labels[: 4 * width])
    blocks = (width - min(HIDDEN, width // 2), min(HIDDEN, width // 2))
    server = seconds(lambda: ridge_weights(moments, blocks))
    report(
        f"CPU seconds of the server for the regression and the best of {len(PENALTIES)} penalties",
        server,
        "< 30",
        met=server < 30,
    )


def seconds(work: Callable[[], object]) -> float:
    """Return the CPU seconds of a function call."""
    started = time.process_time()
    work()
    return time.process_time() - started


def report(claim: str, value: float, goal: str, *, met: bool) -> None:
    """Print one line."""
    print(f"{claim:78} {value:6.2f}   goal {goal:8} {'met' if met else 'NOT MET'}", flush=True)


if __name__ == "__main__":
    main()
