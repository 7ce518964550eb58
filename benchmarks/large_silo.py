"""Time and memory of a large silo without labels: one epoch of DGCPN on 50,000 pairs, and on a tenth of them.

    python benchmarks/large_silo.py [--pairs N] [METHOD...]

The pairs are those of coco18's training items, repeated with noise: each copy adds normal noise to the picture features and
lacks a tenth of the words. Without ``SILOHASH_DATA`` they are random numbers of the same shape. The settings are those of
``recipes/dgcpn.toml``, with one thread. Each size runs in its own process, which also computes the graph of neighbors.

``memory``  peak memory of the process, which may not exceed 8 GiB, and its ratio to that of a tenth of the pairs.
``time``    CPU time per pair of the silo's round, with the graph, relative to that of a tenth of the pairs.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from training import report

from silohash.base.errors import UserError
from silohash.base.types import MODALITIES, Modality
from silohash.data.catalogue import open_archive
from silohash.methods.federated.base import FederationInfo
from silohash.models.specs import ModelSpec, TowerSpec
from silohash.run.config.load import load_resolved
from silohash.run.config.sections import RunConfig
from silohash.training.engines.port import SiloTask
from silohash.training.prepared import Prepared
from silohash.training.worker import Worker

CONFIG: dict[str, Any] = {
    "data": {"name": "coco18"},
    "model": {"hidden": 512, "dropout": 0.5},
    "partition": {"kind": "iid", "silos": 1},
    "local": {"name": "dgcpn", "bits": 32},
    "federated": {"name": "fedavg", "rounds": 1, "local_epochs": 1},
    "train": {"batch": 32, "optimizer": "sgd", "learning_rate": 0.005, "weight_decay": 5e-4, "threads": 1},
    "evaluate": {"validation": 0.0},
}
PAIRS = 50_000
IMAGE_WIDTH, TEXT_WIDTH, WORDS = 1280, 1252, 6
NOISE, DROPPED = 0.1, 0.1
MOST_GIBIBYTES = 8.0
TIME_GOAL = 1.5

Values = npt.NDArray[np.float32]


def main() -> None:
    """Measure the methods on the command line; DGCPN by default."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("methods", nargs="*", metavar="METHOD", default=["dgcpn"], help="local methods without labels")
    parser.add_argument("--pairs", type=int, default=PAIRS, help="number of pairs of the large silo")
    parser.add_argument("--one", nargs=2, metavar=("METHOD", "PAIRS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measured(options.one[0], int(options.one[1]))))
        return
    for method in options.methods:
        few, many = (in_own_process(method, pairs) for pairs in (options.pairs // 10, options.pairs))
        name = f"{method}, {options.pairs:,} pairs"
        report(f"{name}: peak memory in GiB", many["gibibytes"], f"<= {MOST_GIBIBYTES:.0f}", met=fits(many))
        ratio = many["gibibytes"] / few["gibibytes"]
        report(f"{name}: peak memory / with a tenth ({few['gibibytes']:.2f} GiB)", ratio, "<= 10", met=ratio <= 10)
        ratio = many["seconds"] / few["seconds"]
        report(
            f"{name}: {1e3 * many['seconds']:.2f} ms per pair / with a tenth", ratio, f"<= {TIME_GOAL}",
            met=ratio <= TIME_GOAL,
        )  # fmt: skip


def fits(found: dict[str, float]) -> bool:
    """Return whether a measurement stays within the memory allowed."""
    return found["gibibytes"] <= MOST_GIBIBYTES


def in_own_process(method: str, pairs: int) -> dict[str, float]:
    """Return what `measured` finds in a process of its own, whose peak memory is that of this silo."""
    command = [sys.executable, __file__, "--one", method, str(pairs)]
    answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    found: dict[str, float] = json.loads(answer.splitlines()[-1])
    return found


def measured(method: str, pairs: int) -> dict[str, float]:
    """Return the CPU seconds per pair of a silo's round of one epoch, and the peak memory in GiB."""
    torch.set_num_threads(1)
    prepared = inputs(method, pairs)
    federated, worker = prepared.resolved.federated, Worker(prepared, torch.device("cpu"))
    info = FederationInfo(silos=1, classes=0, bits=prepared.config.local.bits, total_rounds=1)
    message = federated.broadcast(federated.init_server(worker.model, info), 0, round=0)
    started = time.process_time()
    worker.do(SiloTask("train", 0, message))
    seconds = (time.process_time() - started) / pairs
    return {"seconds": seconds, "gibibytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20}


def inputs(method: str, pairs: int) -> Prepared:
    """Return the inputs of one silo."""
    resolved = load_resolved(CONFIG, [f"local.name={method}"])
    image, text = originals()
    generator, rows = np.random.default_rng(0), np.arange(pairs) % len(image)
    arrays = held(image[rows], text[rows])
    for start in range(len(image), pairs, len(image)):
        copies = slice(start, start + len(image))
        arrays["image"][copies] += NOISE * generator.standard_normal(arrays["image"][copies].shape, np.float32)
        arrays["text"][copies] *= generator.random(arrays["text"][copies].shape, np.float32) >= DROPPED
    return Prepared(resolved, specified(resolved.config, image, text), [("silo", pairs, 0)], arrays)


def held(image: Values, text: Values) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of the silos' items, each of which has a picture and a text."""
    has = np.ones(len(image), np.bool_)
    return {"image": image, "text": text, "has_image": has, "has_text": has.copy()}


def specified(config: RunConfig, image: Values, text: Values) -> ModelSpec:
    """Return the structure of a network for these inputs."""
    hidden, dropout = config.model.hidden, config.model.dropout
    towers: dict[Modality, TowerSpec] = {
        modality: TowerSpec(kind="mlp", shape=(values.shape[1],), hidden=hidden, dropout=dropout)
        for modality, values in zip(MODALITIES, (image, text), strict=True)
    }
    return ModelSpec(towers=towers, classes=0)


def originals() -> tuple[Values, Values]:
    """Return the picture features and words of coco18's training pairs, or random numbers of their shape."""
    try:
        archive = open_archive("coco18", options={"text": "words"})
    except UserError as error:
        print(f"{error} Using random numbers of the shape of coco18.", file=sys.stderr)
    else:
        rows = archive.split("train")
        return np.asarray(archive.image, np.float32)[rows], np.asarray(archive.text, np.float32)[rows]
    generator = np.random.default_rng(0)
    text = np.zeros((4_000, TEXT_WIDTH), np.float32)
    np.put_along_axis(text, generator.integers(0, TEXT_WIDTH, (len(text), WORDS)), 1.0, axis=1)
    return generator.random((len(text), IMAGE_WIDTH), np.float32), text


if __name__ == "__main__":
    main()
