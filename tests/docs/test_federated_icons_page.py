"""The tables of federated methods on libraries of icons say what the figures of single runs say."""

from __future__ import annotations

from silohash.study.config import load_study
from tests.docs import icons_page
from tests.docs.federated_icons_page import PAPERS, RECIPE, RUNS, methods, tables
from tests.docs.run_figures import figures

REPEATED = {
    "CenterAP, alone": "each silo alone", "DCMH, FedAvg": "FedAvg, DCMH", "CenterAP, FedAvg": "FedAvg, CenterAP",
    "CenterAP, pooled": "pooled",
}  # fmt: skip
"""The rows of the smaller study, which has the same settings."""


def test_each_table_stands_on_its_page() -> None:
    for name, several in tables().items():
        page = (PAPERS / name).read_text(encoding="utf-8")
        for table in several:
            assert table in page, f"{name}; run: python -m tests.docs.federated_icons_page"


def test_each_figure_is_that_of_the_seeds_of_the_study() -> None:
    found = figures(RUNS)
    assert {training for training, *_ in found} == {*methods()}
    assert {tuple(seeds) for seeds in found.values()} == {tuple(map(str, load_study(RECIPE).seeds))}


def test_rows_of_both_studies_are_equal() -> None:
    found, smaller = figures(RUNS), figures(icons_page.RUNS)
    for method, training in REPEATED.items():
        here = {key[1:]: seeds for key, seeds in found.items() if key[0] == method}
        assert here
        assert here == {key[1:]: seeds for key, seeds in smaller.items() if key[0] == training}
