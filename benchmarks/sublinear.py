"""Speed of the trie, compared with the flat scan and with faiss, on codes that a model has learned and on uniform codes.

    python benchmarks/sublinear.py [--smoke] [--sizes N...] [--model NAME] [--bits N] [--run RUN]

A model is trained on coco18 for a few minutes, unless the folder of a run on coco18 is given. The codes are those of the
items that it was not trained on. There are 300,000, 1 million and 10 million items: each one is a mixture of an item with
one of its ten nearest, plus noise. The noise is chosen so that queries are as near to items that are made from a tenth of
the real ones as to as many real ones. Queries are real and not among the items. The worst case are uniform codes.

Searches take turns on one thread, and every answer is compared with that of the scan, the count of ties included. Times are
CPU seconds of the thread, because the machine may be busy. ``default`` is the search for items by either of their codes: two
scans, or two searches of a trie of which the second is limited by what the first has found. The lines show how many times as
fast as the scan the trie and faiss are: in the median, in the mean, and in the mean of the slowest percent.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias
from unittest import mock

import faiss
import numpy as np
import numpy.typing as npt
from index_scan import random_codes

from silohash.api.runs import open_run, train
from silohash.base.seeds import numpy_generator
from silohash.base.types import MODALITIES, Modality
from silohash.features.vectors import vectors
from silohash.index.codes import Words, pack, to_bytes
from silohash.index.flat import FlatIndex
from silohash.index.trie import Trie, TrieIndex

MILLION = 1_000_000
SIZES = (300_000, MILLION, 10 * MILLION)
QUERIES = 300
ROWS_AT_ONCE = 1 << 17
NEIGHBORS = 10
NOISES = (0.0, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.6)
GOALS = {MILLION: (2.0, 5.0), 10 * MILLION: (6.0, 20.0), 100 * MILLION: (20.0, 50.0)}
SLOWEST_GOAL, BATCH_GOAL, BYTES_GOAL, BUILD_GOAL = 0.85, 2.5, 5.0, 1.0

Outputs: TypeAlias = dict[Modality, npt.NDArray[np.float32]]
Found: TypeAlias = list[tuple[Any, Any]]
Index: TypeAlias = FlatIndex | TrieIndex


def config(name: str, bits: int) -> dict[str, Any]:
    """Return the config of a model of all training items, as in the recipes centerap.toml and coco18.toml."""
    rate = 3e-3 if name == "centerap" else 7e-4
    return {
        "data": {"name": "coco18"},
        "features": {"text": {"kind": "tfidf", "buckets": 2048}},
        "model": {"hidden": 512, "dropout": 0.3},
        "partition": {"kind": "iid", "silos": 1},
        "local": {"name": name, "bits": bits, "quantization_weight": 0.2},
        "federated": {"name": "fedavg", "rounds": 4, "local_epochs": 3},
        "train": {"batch": 128, "learning_rate": rate, "decay": True, "threads": 1},
        "evaluate": {"validation": 0.0},
    }


def outputs_of(folder: Path) -> tuple[Outputs, Outputs]:
    """Return the outputs of a run for items that it was not trained on: those of queries, and those of the other items."""
    run = open_run(folder)._run
    unseen = np.setdiff1d(np.arange(len(run.archive)), run.archive.split("train"))
    queries = numpy_generator(0, "queries").permutation(unseen)[: min(QUERIES, len(unseen) // 4)]
    encoder = run.model.encoder()

    def outputs(rows: npt.NDArray[np.int64]) -> Outputs:
        """Return the outputs of some items."""
        return {m: encoder.outputs(vectors(run.archive, encoder.featurizers[m], rows), m) for m in MODALITIES}

    return outputs(np.sort(queries)), outputs(np.setdiff1d(unseen, queries))


def expanded(items: Outputs, count: int, noise: float) -> dict[Modality, Words]:
    """Return codes of mixtures of some items with their neighbors, plus noise relative to the deviation of outputs."""
    joined = np.concatenate([items[modality] for modality in MODALITIES], axis=1)
    joined = joined / np.linalg.norm(joined, axis=1, keepdims=True)
    near = np.argpartition(-(joined @ joined.T), NEIGHBORS, axis=1)[:, :NEIGHBORS]
    generator = np.random.Generator(np.random.SFC64(17))
    parts: dict[Modality, list[Words]] = {modality: [] for modality in MODALITIES}
    for start in range(0, count, ROWS_AT_ONCE):
        some = min(ROWS_AT_ONCE, count - start)
        first = generator.integers(0, len(joined), some)
        second = near[first, generator.integers(0, NEIGHBORS, some)]
        share = generator.random((some, 1), np.float32)
        for modality, values in items.items():
            mixed = values[first] * (1 - share) + values[second] * share
            mixed += noise * values.std() * generator.standard_normal(mixed.shape, np.float32)
            parts[modality].append(pack(mixed))
    return {modality: np.concatenate(words) for modality, words in parts.items()}


def nearest_bits(items: Words, queries: Words) -> float:
    """Return the mean distance of queries from their nearest items."""
    return float(np.mean([np.bitwise_count(items ^ query).sum(axis=1).min() for query in queries]))


def fitting_noise(items: Outputs, queries: Outputs) -> float:
    """Return the noise with which the nearest of items that are made from a tenth are as near as those of all items."""
    count = len(items["image"])
    tenth = {modality: values[::10] for modality, values in items.items()}
    asked, codes = ({m: pack(values) for m, values in outputs.items()} for outputs in (queries, items))
    real = [nearest_bits(codes[m], asked[m]) for m in MODALITIES]
    made = {n: [nearest_bits(words, asked[m]) for m, words in expanded(tenth, count, n).items()] for n in NOISES}
    best = min(NOISES, key=lambda n: sum(abs(a - b) for a, b in zip(made[n], real, strict=True)))
    print(
        f"{count:,} items of coco18, noise {best}; mean distance of the nearest of them, image and text: "
        f"real {real[0]:.2f} and {real[1]:.2f}, made from a tenth {made[best][0]:.2f} and {made[best][1]:.2f}"
    )
    return best


def distinct_share(words: Words) -> tuple[float, float]:
    """Return the share of different codes among some, and the share of the most frequent one."""
    counts = np.unique(words[:, 0] if words.shape[1] == 1 else words, axis=0, return_counts=True)[1]
    return len(counts) / len(words), counts.max() / len(words)


def filled(index: Index, words: Words) -> float:
    """Add codes to an index, and return the CPU seconds that this takes."""
    start = time.thread_time()
    index.add(np.arange(len(words)), words)
    return time.thread_time() - start


def nearest(indexes: list[Index], queries: Words, k: int, row: int, *, limited: bool) -> Found:
    """Return what a search finds in each index, with all ties, within the smallest of the k-th distances."""
    found: Found = []
    cut = 8 * queries.nbytes
    for index in indexes:
        limit = cut if limited else None
        found.append(index.search_with_ties(queries[row : row + 1], k, limit_bits=limit))
        cut = min(cut, int(found[-1][1].max())) if len(found[-1][1]) >= k else cut
    return [(keys[distances <= cut], distances[distances <= cut]) for keys, distances in found]


def in_order(found: Found) -> list[npt.NDArray[np.int64]]:
    """Return the answers in an order that does not depend on the index."""
    return [np.sort(distances.astype(np.int64) << 40 | keys) for keys, distances in found]


def taking_turns(searches: Mapping[str, Callable[[int], Any]], queries: int) -> dict[str, npt.NDArray[np.float64]]:
    """Return the CPU seconds of each search for each query, ``(Q,)``, after comparing the answers of the first two."""
    seconds = {name: np.zeros(queries) for name in searches}
    for search in searches.values():
        search(0)  # loads its loops
    for row in range(queries):
        answers = []
        for name, search in searches.items():
            start = time.thread_time()
            found = search(row)
            seconds[name][row] = time.thread_time() - start
            answers.append(found)
        for one, two in zip(in_order(answers[0]), in_order(answers[1]), strict=True):
            np.testing.assert_array_equal(one, two)
    return seconds


def slowest(seconds: npt.NDArray[np.float64]) -> float:
    """Return the mean of the slowest percent."""
    return float(np.sort(seconds)[-max(1, len(seconds) // 100) :].mean())


def show(text: str, seconds: Mapping[str, npt.NDArray[np.float64]], goals: tuple[float, float] | None = None) -> None:
    """Print the times of the scan, and how many times as fast the others are."""
    scan = seconds["scan"]
    print(f"{text:<34} scan {1e3 * np.median(scan):7.3f} / {1e3 * scan.mean():7.3f} ms", flush=True)
    for name, other in seconds.items():
        if name == "scan":
            continue
        median, mean = np.median(scan) / np.median(other), scan.mean() / other.mean()
        worst = slowest(scan) / slowest(other)
        line = f"    {name:<8} median {median:6.2f}x, mean {mean:6.2f}x, slowest {worst:5.2f}x"
        if name == "trie" and goals:
            met = mean >= goals[0] and median >= goals[1] and worst >= SLOWEST_GOAL
            line += f"  (goals {goals[1]:g}, {goals[0]:g}, {SLOWEST_GOAL}) {'met' if met else 'NOT MET'}"
        print(line, flush=True)


def compare(name: str, items: Mapping[Modality, Words], queries: Mapping[Modality, Words], bits: int) -> None:
    """Compare the searches of two modalities."""
    count = len(items["image"])
    scans: dict[Modality, Index] = {}
    tries: dict[Modality, Index] = {}
    for modality, words in items.items():
        scans[modality], tries[modality] = FlatIndex(bits, capacity=count), TrieIndex(bits, capacity=count)
        filled(scans[modality], words)
        build = filled(tries[modality], words) / count * MILLION
        more = (tries[modality].memory_bytes - scans[modality].memory_bytes) / count
        share, largest = distinct_share(words)
        met = "met" if build <= BUILD_GOAL and more <= BYTES_GOAL else "NOT MET"
        print(
            f"{name}, {count:,} {modality} codes, {share:.0%} distinct, the most frequent {largest:.1%}: "
            f"build {build:.2f} s per million, {more:.2f} more bytes per item  (goals {BUILD_GOAL:g}, {BYTES_GOAL:g}) {met}"
        )
    of_faiss = faiss.IndexBinaryFlat(bits)
    of_faiss.add(np.ascontiguousarray(to_bytes(items["image"], bits)))
    for k in (10, 100):
        for asked in MODALITIES:
            words, rest = queries[asked], [modality for modality in MODALITIES if modality != asked]
            packed = np.ascontiguousarray(to_bytes(words, bits))
            searches: dict[str, Callable[[int], Any]] = {
                "scan": partial(nearest, [scans["image"]], words, k, limited=False),
                "trie": partial(nearest, [tries["image"]], words, k, limited=False),
                "faiss": lambda row, packed=packed, k=k: of_faiss.search(packed[row : row + 1], k),
            }
            show(f"{asked[0]}2i, k={k}", taking_turns(searches, len(words)))
            both: dict[str, Callable[[int], Any]] = {
                "scan": partial(nearest, [scans[asked], scans[rest[0]]], words, k, limited=False),
                "trie": partial(nearest, [tries[asked], tries[rest[0]]], words, k, limited=True),
            }
            show(f"default, {asked}, k={k}", taking_turns(both, len(words)), GOALS.get(count) if k == 10 else None)
    batch = queries["text"][:64]
    seconds = []
    for index in (scans["image"], tries["image"]):
        start = time.thread_time()
        found = index.search(batch, 10)
        seconds.append(time.thread_time() - start)
    np.testing.assert_array_equal(found.keys, scans["image"].search(batch, 10).keys)
    ratio = seconds[0] / seconds[1]
    met = f"(goal {BATCH_GOAL}) {'met' if ratio >= BATCH_GOAL else 'NOT MET'}" if count >= 10 * MILLION else ""
    print(f"batch of 64, t2i, k=10: {ratio:.2f}x  {met}\n", flush=True)


def main() -> None:
    """Compare all sizes."""
    options = argparse.ArgumentParser(description="Exact search of learned codes in less time than a scan")
    options.add_argument("--smoke", action="store_true", help="use random outputs and few items, to check that it runs")
    options.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="numbers of items; 100000000 takes 20 GB")
    options.add_argument("--model", default="centerap", help="local method, centerap or dcmh")
    options.add_argument("--bits", type=int, default=64)
    options.add_argument("--run", type=Path, help="folder of a run on coco18, instead of training a model")
    chosen = options.parse_args()
    faiss.omp_set_num_threads(1)
    if chosen.smoke:
        generator = numpy_generator(0, "smoke")
        made = [generator.standard_normal((400, chosen.bits), np.float32) for _ in range(4)]
        queries, items = dict(zip(MODALITIES, made[:2], strict=True)), dict(zip(MODALITIES, made[2:], strict=True))
        chosen.sizes = [5_000]
        mock.patch("silohash.index.trie.TRIE_ITEMS", 1_000).start()
    else:
        with tempfile.TemporaryDirectory() as folder:
            run = chosen.run or Path(folder) / "run"
            if chosen.run is None:
                train(config(chosen.model, chosen.bits), run, report=False, index=False)
            queries, items = outputs_of(run)
    asked = {modality: pack(values) for modality, values in queries.items()}
    Trie.built(np.zeros(1, np.int64), to_bytes(asked["text"][:1], chosen.bits))  # loads the loops
    noise = fitting_noise(items, queries)
    for size in chosen.sizes:
        compare(chosen.model, expanded(items, size, noise), asked, chosen.bits)
    worst = [random_codes(min(MILLION, max(chosen.sizes)), chosen.bits, name) for name in ("image", "text")]
    uniform = {modality: random_codes(100, chosen.bits, f"{modality} queries") for modality in MODALITIES}
    compare("uniform", dict(zip(MODALITIES, worst, strict=True)), uniform, chosen.bits)


if __name__ == "__main__":
    main()
