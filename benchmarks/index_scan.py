"""Speed of the exact scan, compared with the machine's popcount limit and with faiss.

    python benchmarks/index_scan.py [--smoke]

Every line shows a ratio measured in this run, its goal, and whether the goal is met. Times are CPU seconds of one
thread, the minimum of many interleaved trials, to reduce the influence of a busy machine. The limit ("roof") is a loop
that only does xor, popcount and threshold, in the same run on the same core; for batches it works in blocks, so that
codes are read from the cache. The data are ``random`` bits, and ``clustered`` bits: 256 Zipf-weighted centers with 5 of
64 bits flipped, which have many ties.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial

import faiss
import numpy as np
from numba import njit, types
from numba.extending import intrinsic

from silohash.base.seeds import numpy_generator
from silohash.index.base import Neighbors
from silohash.index.codes import Words, to_bytes, word_count, word_type
from silohash.index.flat import FlatIndex

MILLION = 1_000_000
FAISS_GOALS = {16: 15.0, 32: 4.0, 64: 3.0, 128: 2.0}
AVX2_GOAL = 1.5
BLOCK_CODES = 4096


@intrinsic
def popcount(_context, word):  # noqa: ANN001, ANN201, ARG001
    """Return the number of set bits of a 64-bit word."""

    def generate(_context, builder, _signature, values):  # noqa: ANN001, ANN202
        """Emit the instruction."""
        return builder.ctpop(values[0])

    return types.uint64(types.uint64), generate


@njit(nogil=True)
def roof_one(codes: Words, query: np.uint64, threshold: np.uint64) -> int:
    """Count the codes within a distance: the minimum work of any exact search for one query."""
    count = 0
    for i in range(len(codes)):
        count += popcount(codes[i] ^ query) <= threshold
    return count


@njit(nogil=True)
def roof_batch(codes: Words, queries: Words, threshold: np.uint64) -> int:
    """Count the codes for many queries, while a block of codes stays in the cache."""
    count = 0
    for start in range(0, len(codes), BLOCK_CODES):
        block = codes[start : start + BLOCK_CODES]
        for query in range(len(queries)):
            count += roof_one(block, queries[query], threshold)
    return count


def random_codes(count: int, bits: int, purpose: str) -> Words:
    """Return uniformly random codes, ``(count, W)``."""
    kind = word_type(bits)
    generator = numpy_generator(0, purpose)
    return generator.integers(0, np.iinfo(kind).max, (count, word_count(bits)), dtype=kind, endpoint=True)


def clustered_codes(count: int, bits: int, purpose: str) -> Words:
    """Return codes around 256 Zipf-weighted centers, with each bit flipped with probability 5/64."""
    generator = numpy_generator(0, purpose)
    weights = 1 / np.arange(1, 257)
    center = generator.choice(256, count, p=weights / weights.sum())
    codes = random_codes(256, bits, "centers")[center]
    flips = np.zeros_like(codes)
    for place, binary_digit in enumerate("101000"):
        noise = random_codes(count, bits, f"{purpose} noise {place}")
        flips = noise | flips if binary_digit == "1" else noise & flips
    return codes ^ flips


def best_seconds(trials: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Return the minimum CPU time of each trial. The trials take turns."""
    least = dict.fromkeys(trials, float("inf"))
    for turn in range(repeats + 1):
        for name, trial in trials.items():
            start = time.thread_time()
            trial()
            if turn:
                least[name] = min(least[name], time.thread_time() - start)
    return least


def claim(text: str, ratio: float, goal: float, unit: str) -> None:
    """Print one line."""
    shown = f"{100 * ratio:.0f} % (goal {100 * goal:.0f} %)" if unit == "%" else f"{ratio:.2f}x (goal {goal:g}x)"
    print(f"{text:<66} {shown:<24} {'met' if ratio >= goal else 'NOT MET'}", flush=True)


def flat_index(codes: Words, bits: int) -> FlatIndex:
    """Return our index of codes with the keys 0, 1, 2, ..."""
    index = FlatIndex(bits, capacity=len(codes))
    index.add(np.arange(len(codes)), codes)
    return index


def verify(found: Neighbors, codes: Words, queries: Words) -> None:
    """Check the result of the first query with numpy."""
    distances = np.bitwise_count(codes ^ queries[0]).sum(axis=1)
    depth = found.keys.shape[1]
    np.testing.assert_array_equal(found.keys[0], np.argsort(distances, kind="stable")[:depth])


def against_the_roof(count: int, name: str, make: Callable[[int, int, str], Words], goals: dict[str, float]) -> None:
    """Compare searches of 64-bit codes with the popcount limit."""
    codes, queries = make(count, 64, "database"), make(100, 64, "queries")
    index, column, near = flat_index(codes, 64), codes[:, 0].copy(), np.uint64(16)
    verify(index.search(queries[:1], 100), codes, queries)
    one = {f"k={k}": partial(index.search, queries[:1], k) for k in (10, 100)}
    seconds = best_seconds({"roof": partial(roof_one, column, queries[0, 0], near), **one}, 25)
    size = f"{count / MILLION:g}M x 64 {name}"
    for k in one:
        claim(f"1 query, {size}, {k}, of the popcount roof", seconds["roof"] / seconds[k], goals["one"], "%")
    batch = {
        "roof": partial(roof_batch, column, queries[:, 0].copy(), near),
        "ours": partial(index.search, queries, 100),
    }
    seconds = best_seconds(batch, 5)
    claim(f"batch of 100, {size}, k=100, of the blocked roof", seconds["roof"] / seconds["ours"], goals["batch"], "%")


def faiss_trials(codes: Words, queries: Words, bits: int, k: int) -> dict[str, Callable[[], object]]:
    """Return faiss's search in both of its modes."""
    database, batch = (np.ascontiguousarray(to_bytes(words, bits)) for words in (codes, queries))
    trials: dict[str, Callable[[], object]] = {}
    for heap in (True, False):
        index = faiss.IndexBinaryFlat(bits)
        index.use_heap = heap
        index.add(database)
        trials[f"faiss heap={heap}"] = partial(index.search, batch, k)
    return trials


def against_faiss(count: int, bits: int, k: int, goals: tuple[float, float], label: str = "") -> None:
    """Compare with the faster of faiss's two modes, for one query and for a batch."""
    for name, make in (("random", random_codes), ("clustered", clustered_codes)):
        codes, queries = make(count, bits, "database"), make(100, bits, "queries")
        index = flat_index(codes, bits)
        verify(index.search(queries[:1], k), codes, queries)
        for batch, goal, repeats in ((queries[:1], goals[0], 15), (queries, goals[1], 3)):
            trials = {"ours": partial(index.search, batch, k), **faiss_trials(codes, batch, bits, k)}
            seconds = best_seconds(trials, repeats)
            ratio = min(s for trial, s in seconds.items() if trial != "ours") / seconds["ours"]
            text = f"{len(batch)} quer{'y' if len(batch) == 1 else 'ies'}, {count / MILLION:g}M x {bits} {name}, k={k}"
            claim(f"{text}, faster than faiss{label}", ratio, goal, "x")


def main() -> None:
    """Run all comparisons."""
    options = argparse.ArgumentParser(description="Index speed against the popcount limit and faiss")
    options.add_argument("--smoke", action="store_true", help="use a hundredth of the size, to check that it runs")
    options.add_argument(
        "--avx2", action="store_true", help="run only the comparison for older processors (used by the first process)"
    )
    chosen = options.parse_args()
    scale = 100 if chosen.smoke else 1
    faiss.omp_set_num_threads(1)
    if chosen.avx2:
        against_faiss(MILLION // scale, 64, 100, (AVX2_GOAL, AVX2_GOAL), " (compiled for AVX2)")
        return
    for name, make in (("random", random_codes), ("clustered", clustered_codes)):
        against_the_roof(MILLION // scale, name, make, {"one": 0.50, "batch": 0.35})
        against_the_roof(10 * MILLION // scale, name, make, {"one": 0.75, "batch": 0.55})
    for bits, goal in FAISS_GOALS.items():
        against_faiss(MILLION // scale, bits, 100, (goal, goal))
    against_faiss(MILLION // scale, 64, 1000, (1.0, 1.5))
    command = [sys.executable, __file__, "--avx2", *(["--smoke"] if chosen.smoke else [])]
    subprocess.run(command, env={**os.environ, "NUMBA_CPU_NAME": "haswell"}, check=True)


if __name__ == "__main__":
    main()
