"""The tables of federated methods over items that nobody trained on say what the figures of single runs say."""

from __future__ import annotations

from tests.docs.federated_page import DATA, PAPERS, RUNS, methods, tables
from tests.docs.run_figures import figures


def test_each_table_stands_on_the_page() -> None:
    page = (PAPERS / "federated.md").read_text(encoding="utf-8")
    for table in tables():
        assert table in page, "run: python -m tests.docs.federated_page"


def test_each_figure_is_that_of_five_seeds() -> None:
    found = figures(RUNS)
    assert {key[:2] for key in found} == {(data, method) for data in DATA for method in methods()}
    assert {tuple(seeds) for seeds in found.values()} == {("0", "1", "2", "3", "4")}
