"""Print the tables of `papers/fedbignn.md` on GSMN in silos, from the figures of single runs.

`python -m tests.docs.gsmn_page` prints them.
"""

from __future__ import annotations

import csv
from statistics import mean

from tests.docs.feduch_page import PAPERS, interval_cell

RESULTS = PAPERS / "results"
CUTOFFS = (1, 5, 10)
BASELINE = "FedBi-GNNs"

Figures = dict[tuple[str, str, str], dict[str, float]]


def figures(study: str) -> Figures:
    """Return the figures of a study's runs by seed, for each kind of training, task and measure, in percent."""
    found: Figures = {}
    with (RESULTS / f"{study}.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            found.setdefault((row["training"], row["task"], row["measure"]), {})[row["seed"]] = float(row["value"])
    return found


def table(study: str) -> str:
    """Return a table with a row per kind of training: mean recalls, and the sum of all six with its difference."""
    found = figures(study)
    sums = {name: _sums(found, name) for name in dict.fromkeys(key[0] for key in found)}
    seeds = [*sums[BASELINE]]
    # Two folds do not give an interval worth the name, so both are listed.
    heads = ["sum", f"sum, minus that of {BASELINE}"] if len(seeds) > 2 else [f"sum, fold {seed}" for seed in seeds]
    lines = [f"| training | i2t R@1 / 5 / 10 | t2i R@1 / 5 / 10 | {' | '.join(heads)} |", "| --- |" + " ---: |" * 4]
    for name, own in sums.items():
        recalls = (
            " / ".join(f"{mean(found[name, task, f'R@{k}'].values()):.1f}" for k in CUTOFFS) for task in ("i2t", "t2i")
        )
        if len(seeds) > 2:
            minus = [own[seed] - sums[BASELINE][seed] for seed in seeds]
            cells = [
                interval_cell([*own.values()], signed=False),
                "—" if name == BASELINE else interval_cell(minus, signed=True),
            ]
        else:
            cells = [f"{own[seed]:.1f}" for seed in seeds]
        lines.append(f"| {name} | {' | '.join([*recalls, *cells])} |")
    return "\n".join(lines)


def _sums(found: Figures, name: str) -> dict[str, float]:
    """Return the sum of the six recalls by seed."""
    parts = [found[name, task, "RSum"] for task in ("i2t", "t2i")]
    return {seed: sum(part[seed] for part in parts) for seed in parts[0]}


def tables() -> dict[str, str]:
    """Return the table of each study whose figures are there."""
    return {path.stem: table(path.stem) for path in sorted(RESULTS.glob("fedbignn-*.csv"))}


if __name__ == "__main__":
    print("\n\n".join(tables().values()))
