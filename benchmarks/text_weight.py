"""Which weight of the text is best in a query of a picture and words, on validation items and on items nobody trained on.

    python benchmarks/text_weight.py RUN...

Each query is an item's own picture and caption, for up to 500 items. It is compared with both codes of the other items, of
which the nearer one counts, in the order of distances and then of magnitudes, and without matched words. An item is relevant
if it shares a label with the query. ``queries`` are a run's queries among all items that are not in the training split.
``validation`` are the validation items of all silos, among each other, by which a weight may be chosen. The output is the
mAP@all in percent per weight, from the picture alone to the text alone. A run with a model per silo cannot be measured.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt

from silohash.base.types import MODALITIES, Rows
from silohash.evaluate.measures import Measure, evaluate_all, mean_of
from silohash.evaluate.relevance import Relevance
from silohash.evaluate.scores import Scores
from silohash.features.vectors import vectors
from silohash.index.codes import magnitudes_of, pack
from silohash.run.folder import Run
from silohash.search.order import VALUE_BITS, magnitude_sums
from silohash.training.prepared import training_silos

QUERIES = 500
WEIGHTS = tuple(tenth / 10 for tenth in range(11))
MEASURE = Measure.parse("mAP@all")


def main() -> None:
    """Measure the runs on the command line."""
    print(f"{'mAP@all in %, by weight of the text':40} {' '.join(f'{weight:5.1f}' for weight in WEIGHTS)}")
    for folder in sys.argv[1:]:
        run = Run.open(Path(folder))
        silos = training_silos(run.archive, run.partition, run.resolved)
        held = np.sort(np.concatenate([silo.validation for silo in silos]))
        unseen = np.setdiff1d(np.arange(len(run.archive)), run.archive.split("train"))
        queries = np.intersect1d(run.archive.split("query"), unseen)
        for name, rows, database in (("queries", queries, unseen), ("validation", held, held)):
            figures = measured(run, rows[:QUERIES], database)
            cells = " ".join(f"{value:5.1f}" for value in figures)
            print(f"{f'{folder[-28:]} {name}':40} {cells}", flush=True)


def measured(run: Run, rows: Rows, database: Rows) -> list[float]:
    """Return the mean average precision of queries among a database, in percent, at each weight."""
    archive, encoder = run.archive, run.model.encoder()
    outputs = {m: encoder.outputs(vectors(archive, encoder.featurizers[m], database), m) for m in MODALITIES}
    labels = archive.required_labels("by which results are measured.")
    places = np.searchsorted(database, rows)
    relevance = Relevance(labels[rows], labels[database], left_out=places)
    asked = {modality: unit(values[places].astype(np.float64)) for modality, values in outputs.items()}
    words = {modality: pack(values) for modality, values in outputs.items()}
    found = []
    for weight in WEIGHTS:
        total = weight * asked["text"] + (1 - weight) * asked["image"]
        queries = zip(pack(total), magnitudes_of(total), strict=True)
        scores = [-np.minimum(*(placed(words[m], *query) for m in MODALITIES)) for query in queries]
        empty = np.zeros((len(rows), 1), np.uint16)
        values = evaluate_all([MEASURE], empty, Scores(np.array(scores, np.float64)), relevance, 0)[MEASURE]
        found.append(100 * mean_of(values.value[values.counted]))
    return found


def unit(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return rows divided by their norms, as a search adds them (`Encoder.encode_all`)."""
    return np.asarray(values / np.maximum(np.linalg.norm(values, axis=1, keepdims=True), np.finfo(np.float64).tiny))


def placed(
    items: npt.NDArray[np.unsignedinteger], code: npt.NDArray[np.unsignedinteger], magnitudes: npt.NDArray[np.uint8]
) -> npt.NDArray[np.int64]:
    """Return where a query places items, ``(n,)``: by distance, and then by the magnitudes of the bits that differ."""
    distances = np.bitwise_count(items ^ code).sum(axis=1).astype(np.int64)
    return np.asarray((distances << VALUE_BITS) + magnitude_sums(items, code, magnitudes))


if __name__ == "__main__":
    main()
