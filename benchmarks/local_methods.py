"""Time and memory of every supervised hashing method on pooled data: 10,000 pairs of coco18, 64 bits.

    python benchmarks/local_methods.py [--items N] [--threads N] [METHOD...]

A single silo trains for 8 rounds of 4 epochs with the settings of ``recipes/dlffh.toml`` and two threads, a method without
gradient steps for one round. The seconds are those of the training alone, as wall time, which is compared with the goal, so
run this on an idle machine, and as processor time. Each method runs in its own process, whose peak memory includes the
archive and the libraries. MITH is left out, because its inputs are the tokens of a network.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from training import coco18_or_drawn

from silohash.data.partitions.base import partition
from silohash.methods.federated.base import FederationInfo
from silohash.run.config.load import load_resolved
from silohash.training.checkpoint import RunState
from silohash.training.engines.port import InProcess
from silohash.training.experiment import prepare_run
from silohash.training.rounds import RoundSettings, run_rounds
from silohash.training.worker import Worker

CLOSED_FORM = ("cmfh", "scm", "seph")
CROSS_MODAL = (
    *CLOSED_FORM, "dcmh", "ssah", "mesdch", "shdch", "dscmr", "dchmt", "dsph", "dcgh", "triplet", "centerap", "dlffh",
)  # fmt: skip
IMAGE = ("dpsh", "dch", "hashnet", "greedyhash", "csq")
ITEMS, MOST_ITEMS = 10_000, 11_000
THREADS = 2
MOST_SECONDS = 300
CONFIG: dict[str, Any] = {
    "data": {"name": "coco18"},
    "features": {"text": {"kind": "tfidf", "buckets": 1024}},
    "model": {"hidden": 256, "dropout": 0.3},
    "partition": {"kind": "iid", "silos": 1},
    "local": {"name": "dcmh", "bits": 64},
    "federated": {"name": "centralized", "rounds": 8, "local_epochs": 4},
    "train": {"batch": 64, "learning_rate": 3e-3, "decay": True, "weight_decay": 1e-2},
    "evaluate": {"validation": 0.0},
}


def main() -> None:
    """Measure the methods on the command line, by default all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("methods", nargs="*", metavar="METHOD", default=[*CROSS_MODAL, *IMAGE], help="local methods")
    parser.add_argument("--items", type=int, default=ITEMS, help=f"number of items to train on; at most {MOST_ITEMS:,}")
    parser.add_argument("--threads", type=int, default=THREADS, help="number of threads; at least 1")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if unknown := [name for name in options.methods if name not in (*CROSS_MODAL, *IMAGE)]:
        parser.error(f'There is no method "{unknown[0]}" here. Choose from: {", ".join((*CROSS_MODAL, *IMAGE))}.')
    if not 1 <= options.items <= MOST_ITEMS:
        parser.error(f"--items must be between 1 and {MOST_ITEMS:,}.")
    if options.threads < 1:
        parser.error("--threads must be at least 1.")
    if options.one:
        print(json.dumps(measured(options.methods[0], options.items, options.threads)))
        return
    print(f"{options.items:,} items, 64 bits; N x N numbers in single precision would take "
          f"{4 * options.items**2 / 2**30:.2f} GiB")  # fmt: skip
    for method in options.methods:
        settings = ["--items", str(options.items), "--threads", str(options.threads)]
        command = [sys.executable, __file__, "--one", *settings, method]
        answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        found = json.loads(answer.splitlines()[-1])
        print(
            f"{method:12} {found['seconds']:7.1f} s ({found['processor']:.1f} s of processor time)   "
            f"{found['gibibytes']:.2f} GiB, of which {found['added']:.2f} in training   "
            f"goal {MOST_SECONDS} s: {'met' if found['seconds'] <= MOST_SECONDS else 'NOT MET'}",
            flush=True,
        )


def measured(method: str, items: int, threads: int) -> dict[str, float]:
    """Return the seconds of training, by the clock and by the processor, and the memory in GiB: peak, and its rise."""
    torch.set_num_threads(threads)
    train = {**CONFIG["train"], "threads": threads}
    tables = {**CONFIG, "train": train, "local": {**CONFIG["local"], "name": method}}
    if method in IMAGE:
        tables = {**tables, "data": {**CONFIG["data"], "modality": "image"}, "features": {}}
    resolved = load_resolved(tables)
    archive = coco18_or_drawn(resolved.config)
    rows = np.sort(np.random.default_rng(0).permutation(archive.splits["database"])[:items])
    archive = replace(archive, splits={**archive.splits, "train": rows})
    prepared, _ = prepare_run(archive, partition(archive, "iid", 1, 0), resolved)
    worker, rounds = (
        Worker(prepared, torch.device("cpu")),
        1 if method in CLOSED_FORM else resolved.config.federated.rounds,
    )
    info = FederationInfo(silos=1, classes=prepared.spec.classes, bits=64, total_rounds=rounds)
    state = RunState(round=0, server=resolved.federated.init_server(worker.model, info))
    settings = RoundSettings(rounds=rounds, silos=[name for name, _, _ in prepared.silos], validate=False)
    before, started, processor = peak_gibibytes(), time.perf_counter(), time.process_time()
    run_rounds(state, federated=resolved.federated, engine=InProcess(worker), settings=settings)
    seconds, processor = time.perf_counter() - started, time.process_time() - processor
    peak = peak_gibibytes()
    return {"seconds": seconds, "processor": processor, "gibibytes": peak, "added": peak - before}


def peak_gibibytes() -> float:
    """Return the peak memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


if __name__ == "__main__":
    main()
