"""How often the very item that a text describes is found, on the embedded archive of characters.

    python benchmarks/exact_items.py RUN...

Every name of a character is a query, and all items of the archive are the database, including those held out as queries.
The table shows the share of names for which an item with exactly this name is among the first ten, as the mean over all
orders of items at equal distance. ``items`` searches for items by the nearer of their two codes. ``pictures`` searches for
pictures alone, so that the text code of an item does not help. A name is seen if an item with it was in the training
split. The last columns are the run's mAP@all over kinds of characters, picture to text and text to picture. Runs with a
personal model per silo cannot be measured.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from silohash.evaluate.cutoffs import success
from silohash.evaluate.items import ItemCodes, item_histogram
from silohash.evaluate.relevance import Pairs
from silohash.evaluate.ties import histogram
from silohash.report.tables import read_results
from silohash.runtime.codes import RunCodes
from silohash.runtime.run import Run

CUTOFF = 10
GOALS = (80.0, 45.0, 45.0, 20.0)
"""Goals in percent: items, seen and unseen; pictures, seen and unseen."""


def main() -> None:
    """Measure the runs on the command line."""
    print(f"{'first ten, in %':30} {'items':>15} {'pictures':>15} {'mAP@all':>15}")
    print(f"{'run':30} {'seen':>7} {'unseen':>7} {'seen':>7} {'unseen':>7} {'i2t':>7} {'t2i':>7}")
    for folder in sys.argv[1:]:
        run = Run.open(Path(folder))
        figures = "".join(f" {value:7.1f}" for value in (*exact_names(run), *label_figures(run)))
        print(f"{folder[-30:]:30}{figures}", flush=True)
    print(f"{'goal':30}" + "".join(f" {value:7.1f}" for value in GOALS))


def exact_names(run: Run) -> tuple[float, float, float, float]:
    """Return the shares in percent: items for seen and unseen names, pictures for seen and unseen names."""
    archive, bits = run.archive, run.config.local.bits
    rows = np.arange(len(archive))
    codes, model = RunCodes(run, rows), run.model.shared_name()
    captions = np.array([archive.caption(int(row)) for row in rows])
    names, queries = np.unique(captions, return_index=True)
    pairs = Pairs.of_groups(names, captions)
    words = {modality: codes.words(model, modality, rows) for modality in ("image", "text")}
    held = np.ones(len(rows), bool)
    items = ItemCodes((words["image"], words["text"]), (held, held))
    asked = words["text"][queries]
    found = (item_histogram(asked, items, pairs, bits), histogram(asked, words["image"], pairs, bits))
    seen = np.isin(names, captions[archive.split("train")])
    shares = [100 * success(counts, CUTOFF).expected[chosen].mean() for counts in found for chosen in (seen, ~seen)]
    return shares[0], shares[1], shares[2], shares[3]


def label_figures(run: Run) -> tuple[float, float]:
    """Return the run's mAP@all in percent for i2t and t2i, NaN where it was not measured."""
    rows = read_results(run.results_path) if run.results_path.exists() else []
    found = {row.task: 100 * row.value for row in rows if row.measure == "mAP@all" and row.evaluation == "GG"}
    return found.get("i2t", float("nan")), found.get("t2i", float("nan"))


if __name__ == "__main__":
    main()
