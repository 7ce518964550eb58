"""Print the tables on libraries of icons of `papers/`, from the figures of single runs.

`python -m tests.docs.federated_icons_page` prints them. With the path of a study, it first stores the figures of its runs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from silohash.study.config import load_study
from silohash.study.plan import folder_name
from tests.docs.feduch_page import PAPERS, RESULTS
from tests.docs.icons_page import columns
from tests.docs.run_figures import figures, store, table

RUNS = RESULTS / "federated-icons.csv"
RECIPE = PAPERS.parent / "recipes" / "federated-icons.toml"
PAGES = {
    "fedcafe.md": ("CenterAP, FedAvg", "CenterAP, FedCAFE", "DCMH, FedAvg", "DCMH, FedCAFE"),
    "fedhap.md": ("CenterAP, FedAvg", "CenterAP, FedHAP", "DCMH, FedAvg", "DCMH, FedHAP"),
    "feduch.md": ("DGCPN, alone", "DGCPN, FedAvg", "DGCPN, FedUCH", "DGCPN, pooled"),
    "dlffh.md": ("DLFFH, FedAvg", "DCMH, FedAvg", "DSPH, FedAvg", "MESDCH, FedAvg", "CenterAP, FedAvg"),
}
"""The rows of the pages of single papers."""


def methods() -> list[str]:
    """Return the methods of the study, in its order."""
    return [choice.name for choice in load_study(RECIPE).axes[0].choices]


def bases() -> dict[str, str | None]:
    """Return, for each method, FedAvg with the same local method, from which its differences are measured."""
    named = {method: f"{method.partition(',')[0]}, FedAvg" for method in methods()}
    return {method: None if base == method else base for method, base in named.items()}


def tables() -> dict[str, list[str]]:
    """Return all tables that come from these runs, by the page on which they stand."""
    found, every = figures(RUNS), bases()

    def of(rows: Iterable[str], items: str, *, differences: bool) -> str:
        """Return a table of some methods."""
        return table(found, "method", columns(items), {row: every[row] for row in rows}, differences=differences)

    whole = [("unseen", False), ("unseen", True), ("all", False)]
    pages = {"federated.md": [of(every, items, differences=signed) for items, signed in whole]}
    for page, rows in PAGES.items():
        # On the page of DLFFH are local methods, each under FedAvg.
        kinds = (False,) if page == "dlffh.md" else (False, True)
        pages[page] = [of(rows, "unseen", differences=signed) for signed in kinds]
    return pages


if __name__ == "__main__":
    if len(sys.argv) > 1:
        store(Path(sys.argv[1]), RUNS, ["method"], {folder_name({"method": each}): (each,) for each in methods()})
    for page, several in tables().items():
        print(f"{page}\n\n" + "\n\n".join(several) + "\n")
