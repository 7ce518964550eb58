"""What the order of hits is worth: distances alone, magnitudes among equals, and outputs, on items that nobody trained on.

    python benchmarks/search_order.py RUN...

The queries are up to 300 of a run's queries, and the database is all items that are not in the training split. An item is
relevant if it shares a label with the query, which does not find itself. ``hamming`` is the order of distances, which all
measured results use. ``magnitudes`` orders items at the same distance by the magnitudes of the query's outputs. ``outputs``
also orders the first hundred of them by the cosine of outputs, as a search for a page of up to 25 hits does, and ``all
outputs`` orders every item by it. Ties count by their expected value. Outputs are the 8-bit numbers that an index keeps.
Runs with a personal model per silo cannot be measured.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt

from silohash.base.types import MODALITIES
from silohash.evaluate.measures import Measure, evaluate_all, mean_of
from silohash.evaluate.relevance import Relevance
from silohash.evaluate.scores import Scores
from silohash.index.codes import Codes
from silohash.run.folder import Run
from silohash.search.order import magnitude_sums, output_cosines, window_of

QUERIES = 300
MEASURES = ("mAP@all", "P@10")
PAGE = 10


def main() -> None:
    """Measure the runs on the command line."""
    print(f"{'in %: ' + ', '.join(MEASURES):30} {'hamming':>12} {'magnitudes':>12} {'outputs':>12} {'all outputs':>12}")
    for folder in sys.argv[1:]:
        run = Run.open(Path(folder))
        for task, figures in measured(run).items():
            cells = " ".join(f"{map_all:6.1f}{precision:6.1f}" for map_all, precision in figures)
            print(f"{f'{folder[-25:]} {task}':30} {cells}", flush=True)


def measured(run: Run) -> dict[str, list[list[float]]]:
    """Return the measures in percent of every order, by task."""
    archive, encoder = run.archive, run.model.encoder()
    database = np.setdiff1d(np.arange(len(archive)), archive.split("train"))
    queries = np.intersect1d(archive.split("query"), database)[:QUERIES]
    labels = archive.required_labels("by which results are measured.")
    relevance = Relevance(labels[queries], labels[database], left_out=np.searchsorted(database, queries))
    codes = {modality: encoder.codes(archive, database, modality) for modality in MODALITIES}
    found = {}
    for asked, searched in (("text", "image"), ("image", "text")):
        of_queries = codes[asked].take(np.searchsorted(database, queries))
        rows = [scores(of_queries, row, codes[searched]) for row in range(len(queries))]
        found[f"{asked[0]}2{searched[0]}"] = [
            figures_of(np.array(order), relevance) for order in zip(*rows, strict=True)
        ]
    return found


def scores(queries: Codes, row: int, items: Codes) -> list[npt.NDArray[np.float64]]:
    """Return the scores of the items in every order, ``(n,)`` each, for one query. Higher ones come first."""
    assert queries.magnitudes is not None
    assert items.magnitudes is not None
    asked = queries.words[row], queries.magnitudes[row]
    distances = np.bitwise_count(items.words ^ asked[0]).sum(axis=1).astype(np.float64)
    placed = distances * (1 << 17) + magnitude_sums(items.words, *asked)
    cosines = output_cosines(items.words, items.magnitudes, *asked).astype(np.float64)
    near = np.argsort(placed, kind="stable")[: window_of(PAGE)]
    by_outputs = -placed
    by_outputs[near] = cosines[near]
    return [-distances, -placed, by_outputs, cosines]


def figures_of(values: npt.NDArray[np.float64], relevance: Relevance) -> list[float]:
    """Return the measures of a ranking by scores, ``(Q, N)``, in percent."""
    measures = [Measure.parse(name) for name in MEASURES]
    words = np.zeros((len(values), 1), np.uint16)
    found = evaluate_all(measures, words, Scores(values), relevance, 0)
    return [100 * mean_of(found[measure].value[found[measure].counted]) for measure in measures]


if __name__ == "__main__":
    main()
