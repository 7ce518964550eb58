"""How often the very item that a text describes is found, on the embedded archive of characters.

    python benchmarks/exact_items.py RUN...

The query is the text of an item, which is the name of a character, and all items of the archive are the database, including
those held out as queries. The table shows the share of queries for which an item with exactly this name is among the first
ten, as the mean over all orders of items at equal distance. ``items`` searches for items by the nearer of their two codes.
``pictures`` searches for pictures alone, so that the text code of an item does not help. A name is seen if an item with it
was in the training split. The first line of a run has one query per item, the second one query per name: a character that
more faces draw is found more easily. The last columns are the run's mAP@all over kinds of characters, picture to text and
text to picture. Runs with a personal model per silo cannot be measured.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from silohash.evaluate.cutoffs import success
from silohash.evaluate.items import ItemCodes, item_histogram
from silohash.evaluate.relevance import Pairs
from silohash.evaluate.ties import histogram
from silohash.report.tables import read_results
from silohash.run.codes import RunCodes
from silohash.run.folder import Run

CUTOFF = 10
GOALS = (80.0, 45.0, 45.0, 20.0)
"""Goals in percent: items, seen and unseen; pictures, seen and unseen."""


def main() -> None:
    """Measure the runs on the command line."""
    print(f"{'first ten, in %':30} {'items':>15} {'pictures':>15} {'mAP@all':>15}")
    print(f"{'run':30} {'seen':>7} {'unseen':>7} {'seen':>7} {'unseen':>7} {'i2t':>7} {'t2i':>7}")
    for folder in sys.argv[1:]:
        run = Run.open(Path(folder))
        per_item, per_name = exact_names(run)
        print_line(folder[-30:], [*per_item, *label_figures(run)])
        print_line("  one query per name", per_name)
    print_line("goal", GOALS)


def print_line(name: str, values: Sequence[float]) -> None:
    """Print a line of the table."""
    print(f"{name:30}" + "".join(f" {value:7.1f}" for value in values), flush=True)


def exact_names(run: Run) -> tuple[list[float], list[float]]:
    """Return the shares in percent with one query per item, and with one query per name.

    Each list has the shares of items for seen and unseen names, then those of pictures.
    """
    archive, bits = run.archive, run.config.local.bits
    rows = np.arange(len(archive))
    codes, model = RunCodes(run, rows), run.model.shared_name()
    captions = np.array([archive.caption(int(row)) for row in rows])
    names, first, name_of = np.unique(captions, return_index=True, return_inverse=True)
    pairs = Pairs.of_groups(names, captions)
    images, texts = codes.words(model, "image", rows), codes.words(model, "text", rows)
    has_image, has_text = (archive.has(modality) for modality in ("image", "text"))
    items = ItemCodes((images, texts), (has_image, has_text))
    histograms = item_histogram(texts[first], items, pairs, bits), histogram(texts[first], images, pairs, bits)
    found = [success(counts, CUTOFF).expected for counts in histograms]
    seen = np.isin(names, captions[archive.split("train")])
    per_item = [100 * of_name[name_of[chosen[name_of]]].mean() for of_name in found for chosen in (seen, ~seen)]
    return per_item, [100 * of_name[chosen].mean() for of_name in found for chosen in (seen, ~seen)]


def label_figures(run: Run) -> tuple[float, float]:
    """Return the run's mAP@all in percent for i2t and t2i, NaN where it was not measured."""
    rows = read_results(run.results_path) if run.results_path.exists() else []
    found = {row.task: 100 * row.value for row in rows if row.measure == "mAP@all" and row.evaluation == "GG"}
    return found.get("i2t", float("nan")), found.get("t2i", float("nan"))


if __name__ == "__main__":
    main()
