"""Time of a round across machines: a server and three silos as processes on 127.0.0.1, and the same rounds in one process.

    python benchmarks/federation_round.py [--rounds N] [--smoke]

Two models are trained with FedAvg on a few random items, so that almost all of the time is transfer: a small one, and one
whose parameters take 20 MB, which every silo receives and sends in each round. Connections use TLS with certificates on
both sides. The first round includes the start of the trainers and is printed by itself; ``median`` is that of the others.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.federation import Federation, Watch
from tests.runs import tiny, write_archive

from tests.sites import NAMES, site_archives  # isort: skip

from silohash.run.config.load import load_resolved
from silohash.training import experiment
from silohash.training.engines.flare.jobs import train_in_federation
from silohash.training.engines.port import Limits
from silohash.training.sites.training import SETUP_SECONDS

SIZES = {"small": (64, 16), "20 MB": (2400, 1040)}
"""Length of the feature vectors, and number of hidden units, of each model."""
GOALS_SECONDS = {"small": 0.5, "20 MB": 1.5}
ITEMS = 36


def main() -> None:
    """Start a federation per size, and print the times of its rounds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=8, help="rounds, of which the first is not counted; at least 2")
    parser.add_argument("--smoke", action="store_true", help="use the small model alone, to check that it runs")
    options = parser.parse_args()
    if options.rounds < 2:
        parser.error("--rounds must be at least 2.")
    print("model       MB per silo   first      median   slowest   in one process   goal")
    for name in ("small",) if options.smoke else SIZES:
        with tempfile.TemporaryDirectory() as folder:
            measure(name, Path(folder), options.rounds)


def measure(name: str, folder: Path, rounds: int) -> None:
    """Train one model across processes and in this process, and print a line."""
    width, hidden = SIZES[name]
    pooled = write_archive(folder / "pooled", count=ITEMS)
    for modality in ("image", "text"):
        values = np.random.default_rng(len(modality)).normal(size=(ITEMS, width)).astype(np.float32)
        np.save(pooled / f"{modality}.npy", values)
    archives = dict(zip(NAMES, site_archives(pooled, folder / "data"), strict=True))
    config = load_resolved(
        tiny(
            pooled, partition={"kind": "column", "column": "place"}, model={"hidden": hidden, "dropout": 0.0},
            federated={"name": "fedavg", "rounds": rounds, "local_epochs": 1}, evaluate={"validation": 0.0},
            train={"optimizer": "sgd", "learning_rate": 0.01},
        )
    )  # fmt: skip
    across, alone = Watch(), Watch()
    with Federation.running(folder, archives) as federation:
        limits = Limits(SETUP_SECONDS, len(archives))
        train_in_federation(
            federation.leader, config, folder / "across", list(archives), limits=limits, observers=[across]
        )
    experiment.train(config, folder / "alone", observers=[alone])
    seconds = [record.seconds for record in across.records]
    one = statistics.median(record.seconds for record in alone.records[1:])
    megabytes = across.records[-1].uplink_bytes / len(NAMES) / 1e6
    middle, most = statistics.median(seconds[1:]), GOALS_SECONDS[name]
    print(
        f"{name:<10} {megabytes:>12.2f} {seconds[0]:>7.2f} s {middle:>9.2f} s {max(seconds[1:]):>7.2f} s {one:>14.3f} s"
        f"   {most:g} s: {'met' if middle <= most else 'NOT MET'}",
        flush=True,
    )


if __name__ == "__main__":
    main()
