"""The table of local methods under federated training says what the figures of single runs say."""

from __future__ import annotations

from tests.docs.federated_local_page import DATA, PAPERS, SEEDS, TRAININGS, all_figures, rows, tables


def test_each_table_stands_on_the_page() -> None:
    page = (PAPERS / "federated.md").read_text(encoding="utf-8")
    for table in tables():
        assert table in page, "run: python -m tests.docs.federated_local_page"


def test_each_figure_is_that_of_three_seeds() -> None:
    found = all_figures()
    shown = {row for training in TRAININGS for row in rows(training)}
    assert {key[:2] for key in found} == {(data, row) for data in DATA for row in shown}
    assert {tuple(seeds) for seeds in found.values()} == {SEEDS}
