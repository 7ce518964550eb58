"""What DLFFH's codes of queries tell: figures with real queries, and with queries whose pictures and texts are noise.

    python benchmarks/label_leak.py [--smoke] [DATA]

The paper hashes queries and database items with their true labels, and judges the results by the same labels. A query that
is pure noise then still finds the right items. Without its labels, its figure falls toward that of random codes. It stays
above where one label is much more frequent than the others, because noise is then taken for an item with this label. The
script trains DLFFH with each input of its label networks on all training items of an archive, coco18 by default, and prints
the figures side by side. On coco18, the three trainings take about two minutes on one core.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from silohash.base import seeds
from silohash.base.types import Modality, Rows, Side
from silohash.data.archive import Archive
from silohash.evaluate.relevance import Relevance
from silohash.evaluate.ties import average_precision, histogram
from silohash.features.vectors import vectors
from silohash.index.codes import Words
from silohash.run.config.load import load_resolved
from silohash.run.folder import Run
from silohash.training.experiment import train

INPUTS = ("label-free", "db-labels", "oracle-labels")
DIRECTIONS: tuple[tuple[str, Modality, Modality], ...] = (("i2t", "image", "text"), ("t2i", "text", "image"))


def main() -> None:
    """Train with each input, and print one line per input."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", default="coco18", metavar="DATA", help="name of the archive")
    parser.add_argument("--smoke", action="store_true", help="train one short round, to check that it runs")
    options = parser.parse_args()
    print(f"{'mAP@all in percent':24}{'real queries':>20}{'noise as queries':>20}{'random codes':>16}")
    print(f"{'':24}{'i2t     t2i':>20}{'i2t     t2i':>20}")
    for labels in INPUTS:
        with tempfile.TemporaryDirectory() as folder:
            run = train(load_resolved(config(options.data, labels, smoke=options.smoke)), Path(folder) / "run")
            real, noise, prior = figures(run)
        print(f"{labels:24}{shown(real)}{shown(noise)}{100 * prior:16.1f}", flush=True)


def config(data: str, labels: str, *, smoke: bool) -> dict[str, Any]:
    """Return the config of a run on all training items together."""
    return {
        "data": {"name": data},
        "model": {"hidden": 32 if smoke else 256, "dropout": 0.3},
        "local": {"name": "dlffh", "bits": 32, "labels": labels},
        "federated": {"name": "centralized", "rounds": 1 if smoke else 8, "local_epochs": 1 if smoke else 4},
        "train": {"batch": 64, "learning_rate": 3e-3, "weight_decay": 1e-2, "device": "cpu"},
        "evaluate": {"validation": 0.0},
    }


def figures(run: Run) -> tuple[dict[str, float], dict[str, float], float]:
    """Return the mAP@all of real queries and of noise per direction, and that of random codes."""
    archive = run.archive
    both = archive.has_image & archive.has_text
    query, database = (rows[both[rows]] for rows in (archive.split("query"), archive.split("database")))
    labels = archive.required_labels("so the results cannot be judged.")
    relevance = Relevance(query_labels=labels[query], database_labels=labels[database])
    real, noise, prior = {}, {}, 0.0
    for name, asked, searched in DIRECTIONS:
        items = codes(run, archive, searched, database, "database")
        for values, found in ((None, real), (noise_like(run, asked, query), noise)):
            words = codes(run, archive, asked, query, "query", values)
            counts = histogram(words, items, relevance, run.config.local.bits)
            found[name] = float(average_precision(counts).expected.mean())
            prior = float(counts.relevant_in_all.mean()) / counts.database
    return real, noise, prior


def codes(
    run: Run,
    archive: Archive,
    modality: Modality,
    rows: Rows,
    side: Side,
    values: npt.NDArray[np.generic] | None = None,
) -> Words:
    """Return the codes of items on a side of the search, with other vectors than their own if ``values`` has any."""
    encoder = run.model.encoder(run_by="torch")
    given = vectors(archive, encoder.featurizers[modality], rows) if values is None else values
    return encoder.codes_of(given, modality, archive.ids[rows], encoder.labels_for(side, archive, rows)).words


def noise_like(run: Run, modality: Modality, rows: Rows) -> npt.NDArray[np.float32]:
    """Return vectors whose columns are those of the items in a random order each, so that they tell nothing of an item."""
    given = vectors(run.archive, run.model.encoder(run_by="torch").featurizers[modality], rows).astype(np.float32)
    generator = seeds.numpy_generator(run.config.seed, f"noise/{modality}")
    return np.asarray(generator.permuted(given, axis=0))


def shown(values: Mapping[str, float]) -> str:
    """Return the figures of both directions as text."""
    return f"{100 * values['i2t']:12.1f}{100 * values['t2i']:8.1f}"


if __name__ == "__main__":
    main()
