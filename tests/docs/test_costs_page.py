"""The tables on what hashing costs say what the figures of single runs say, and so do the sentences below them."""

from __future__ import annotations

from statistics import mean

from tests.docs.costs_page import BITS, DATA, PAGE, figures, tables


def test_each_table_stands_on_the_page() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for table in tables():
        assert table in page, "run: python -m tests.docs.costs_page"


def test_each_figure_of_codes_is_that_of_five_seeds() -> None:
    assert {tuple(seeds) for key, seeds in figures().items() if key[1] != "real-valued"} == {("0", "1", "2", "3", "4")}


def test_no_method_that_trains_is_above_itq_with_any_seed() -> None:
    found = figures()
    for data, (_, tasks) in DATA.items():
        for task in tasks:
            for bits in BITS:
                itq = found[data, "ITQ", bits, task, "all"]
                for method in ("UCCH", "DGCPN", "hyperplanes"):
                    assert all(value < itq[seed] for seed, value in found[data, method, bits, task, "all"].items())


def test_ranges_on_the_page_are_those_of_the_means() -> None:
    found, page = figures(), " ".join(PAGE.read_text(encoding="utf-8").split())
    means = {key: mean(seeds.values()) for key, seeds in found.items()}

    def span(data: str, first: str, second: str) -> str:
        """The least and the most that one row lies below another."""
        real = {name: "0" if name == "real-valued" else None for name in (first, second)}
        apart = [
            means[data, first, real[first] or bits, task, "all"]
            - means[data, second, real[second] or bits, task, "all"]
            for task in DATA[data][1]
            for bits in BITS
        ]
        return f"{min(apart):.1f} to {max(apart):.1f} points".replace("-", "−")

    for data in DATA:
        assert span(data, "ITQ", "UCCH") in page
        assert span(data, "ITQ", "DGCPN") in page
        assert span(data, "real-valued", "ITQ") in page
