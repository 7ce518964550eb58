"""What protocols of one source share on every data set."""

from __future__ import annotations

import pytest

from silohash.data.benchmarks import sources
from silohash.data.protocols.rule import SplitProtocol
from silohash.evaluate.measures import Measure

SIZES = {"query": 2, "train": 3, "database": 5}


def test_facts_of_the_data_set_replace_the_rules_of_the_source() -> None:
    source = {"name": "theirs", "source": "A paper", "draw": "first rows", "train": 10}
    rule = sources.protocol(source, dataset="shapes", about="Small.", query=2, database=5, train=3)
    assert rule == SplitProtocol(
        dataset="shapes", name="theirs", source="A paper", about="Small.", draw="first rows", **SIZES
    )
    assert source["train"] == 10


def test_a_source_is_optional() -> None:
    rule = sources.protocol(dataset="shapes", name="plain", source="nobody", about="Small.", **SIZES)
    assert (rule.name, rule.draw, rule.train) == ("plain", "seeded", 3)


@pytest.mark.parametrize(
    ("source", "draw", "round_by", "measure", "no_hits"),
    [
        (sources.FEDCAFE, "first rows", "queries", "mAP@all", "zero"),
        (sources.FEDHAP, "seeded", "not stated", "mAP@all", "zero"),
        (sources.FEDUCH, "seeded", "not stated", "mAP@50[denominator=retrieved]", "zero"),
        (sources.DLFFH, "seeded", "not stated", "mAP@all", "zero"),
        (sources.DCMH, "first rows", "last", "mAP@all", "zero"),
        (sources.UCCH, "last rows", "queries", "mAP@all", "zero"),
        (sources.TORCHCMH, "numpy seed", "queries", "mAP@all", "zero"),
        (sources.DEEPHASH, "stated", "queries", "mAP@all", "zero"),
        (sources.HASHNET, "stated", "last", "mAP@5000[denominator=retrieved]", "skip"),
        (sources.CSQ, "stated", "queries", "mAP@5000[denominator=retrieved]", "skip"),
        (sources.DSCMR, "stated", "queries", "mAP@all", "zero"),
    ],
    ids=str,
)
def test_the_rules_of_each_source(source, draw, round_by, measure, no_hits) -> None:
    rule = sources.protocol({"name": "variant", "about": "A protocol.", **SIZES, **source}, dataset="shapes")
    assert (rule.draw, rule.round_by, rule.measure, rule.no_hits) == (draw, round_by, measure, no_hits)
    assert rule.source
    assert source.get("name", "hashnet") in {"hashnet", rule.name}


@pytest.mark.parametrize(
    ("source", "train"), [(sources.FEDHAP, 10_000), (sources.FEDUCH, 5_000), (sources.DLFFH, 10_000)]
)
def test_sources_that_train_on_equally_many_items_everywhere(source, train) -> None:
    assert source["train"] == train


def test_searched_items_that_a_source_states() -> None:
    assert sources.DSCMR["searched"] == "query"
    assert (sources.CSQ["searched"], sources.CSQ["database"]) == ("neither", None)


@pytest.mark.parametrize(("text", "depth"), [(sources.MAP_AT_50, 50), (sources.MAP_AT_5000, 5_000)])
def test_measures_are_written_as_evaluation_reads_them(text: str, depth: int) -> None:
    measure = Measure.parse(text)
    assert (str(measure), measure.cutoff, measure.denominator) == (text, depth, "retrieved")


def test_seeded_lists_are_explained_where_a_source_uses_them() -> None:
    assert sources.TORCHCMH["about"] == sources.SEEDED_LISTS
