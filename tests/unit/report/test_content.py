"""The content of a report: what its values derive from each other."""

from __future__ import annotations

from silohash.report.content import ExampleHit, Examples, ExampleSearch, MethodRun, ReportData
from tests.reports import card, item, row


def test_silos_of_the_examples_are_named_once_in_order_of_appearance():
    hits = (ExampleHit(item=item("b", silo="west"), distance_bits=1), ExampleHit(item=item("c"), distance_bits=2))
    searches = (
        ExampleSearch(task="t2i", query=item("a", silo="north"), hits=hits),
        ExampleSearch(task="i2t", query=item("d", silo="east"), hits=hits),
    )
    assert Examples(searches=searches).silos == ["north", "west", "east"]
    assert Examples().silos == []


def test_only_a_method_that_uses_the_label_of_the_query_is_unfair():
    fair = MethodRun(name="a", rows=(row(run="a"),), cards=(card("x"), card("y")))
    unfair = MethodRun(name="b", rows=(row(run="b"),), cards=(card("x"), card("z", needs_label_at_query=True)))
    assert (fair.needs_label_at_query, unfair.needs_label_at_query) == (False, True)
    data = ReportData(title="", facts={}, runs=(fair, unfair))
    assert [found.run for found in data.rows] == ["a", "b"]
    assert [found.run for found in data.fair_rows] == ["a"]
