"""Memory of an index with ten million codes of 64 bits, from the store on disk to the first search.

    python benchmarks/index_memory.py [--smoke]

Prints the size of the index relative to the size of the codes, and the growth of the process's peak memory while the
index is loaded from its store and searched, each with its goal.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from silohash.base.seeds import numpy_generator
from silohash.index.base import IndexManifest
from silohash.index.codes import pack
from silohash.index.flat import FlatIndex
from silohash.index.store import Store

BITS = 64
ITEMS = 10_000_000
GOAL_MEGABYTES = 400
GOAL_RATIO = 1.1
KEY_BYTES = 8
CODES_AT_ONCE = 1 << 20


def peak_bytes() -> int:
    """Return the peak memory of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def build(path: Path, items: int) -> None:
    """Write random codes to a store."""
    generator = numpy_generator(0, "index memory")
    with Store.create(path, IndexManifest("benchmark", BITS, "image")) as store:
        for start in range(0, items, CODES_AT_ONCE):
            count = min(CODES_AT_ONCE, items - start)
            store.add(None, generator.integers(0, 1 << 64, (count, 1), dtype=np.uint64))


def measure(path: Path, items: int) -> None:
    """Load the store, search it, and print both figures."""
    query = pack(np.ones((1, BITS)))
    small = FlatIndex(BITS)
    small.add(np.arange(1), query)
    small.search(query, 1)
    before = peak_bytes()
    with Store(path) as store:
        index = store.load()
        found = index.search(np.repeat(query, 100, axis=0), 100)
    grown = (peak_bytes() - before) / 1e6
    assert isinstance(index, FlatIndex)
    assert len(index) == items
    assert (found.distances[:, 1:] >= found.distances[:, :-1]).all()
    ratio = (index.memory_bytes - KEY_BYTES * items) / (items * BITS // 8)
    for text, value, goal in (
        (f"{items / 1e6:g}M x {BITS}: index without keys / bytes of codes", ratio, GOAL_RATIO),
        (f"{items / 1e6:g}M x {BITS}: peak memory grows by (MB)", grown, GOAL_MEGABYTES),
    ):
        print(f"{text:<66} {value:<8.2f} (goal at most {goal:g})  {'met' if value <= goal else 'NOT MET'}", flush=True)


def main() -> None:
    """Build the store in one process and measure in another, so that building does not affect the peak memory."""
    options = argparse.ArgumentParser(description="Memory of ten million codes")
    options.add_argument("--smoke", action="store_true", help="use a hundredth of the size, to check that it runs")
    options.add_argument("--measure", type=Path, help="store to measure (used by the first process)")
    chosen = options.parse_args()
    items = ITEMS // 100 if chosen.smoke else ITEMS
    if chosen.measure:
        measure(chosen.measure, items)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "image.sqlite"
        build(path, items)
        command = [sys.executable, __file__, "--measure", str(path), *(["--smoke"] if chosen.smoke else [])]
        subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
