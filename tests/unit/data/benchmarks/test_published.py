"""The published protocols of the data sets, and what those of one source share."""

from __future__ import annotations

from dataclasses import fields

import pytest

from silohash.data.benchmarks import published as module
from silohash.data.benchmarks.dataset import benchmarks
from silohash.data.benchmarks.published import facts_of, published
from silohash.data.protocols.rule import SplitProtocol
from silohash.evaluate.measures import Measure

KEYS = [
    *("mirflickr25k", "nus-wide", "iapr-tc12", "coco", "wikipedia", "fashionvc", "ssense", "pascal-sentence"),
]


def of_source(name: str) -> list[SplitProtocol]:
    return [rule for key in KEYS for rule in published(key) if rule.name == name]


def test_facts_of_a_protocol_replace_those_of_its_source_and_its_data_set(monkeypatch: pytest.MonkeyPatch) -> None:
    source = {"name": "theirs", "source": "A paper", "draw": "first rows", "train": 10, "about": "Few."}
    shapes = {
        "note": "Small.",
        "train": 2,
        "query": 2,
        "protocols": [{"from": "a", "train": 3, "about": "{note} {source}"}],
    }
    monkeypatch.setattr(module, "_facts", lambda: {"sources": {"a": source}, "shapes": shapes})
    assert published("shapes") == (
        SplitProtocol(
            *("shapes", "theirs", "A paper", "Small. Few."), draw="first rows", query=2, train=3, database=None
        ),
    )
    assert (source["train"], len(shapes["protocols"])) == (10, 1)


def test_every_data_set_of_the_file_is_there_and_every_key_is_that_of_a_protocol() -> None:
    assert set(KEYS) == set(module._facts()) - {"sources"}
    assert set(KEYS) <= set(benchmarks())
    known = {field.name for field in fields(SplitProtocol)}
    assert [facts.keys() - known for key in KEYS for facts in facts_of(key) if facts.keys() - known] == []


@pytest.mark.parametrize(
    ("source", "draw", "round_by", "measure", "no_hits"),
    [
        ("fedcafe", "first rows", "queries", "mAP@all", "zero"),
        ("fedhap", "seeded", "not stated", "mAP@all", "zero"),
        ("feduch", "seeded", "not stated", "mAP@50[denominator=retrieved]", "zero"),
        ("dlffh", "seeded", "not stated", "mAP@all", "zero"),
        ("dcmh", "first rows", "last", "mAP@all", "zero"),
        ("ucch", "last rows", "queries", "mAP@all", "zero"),
        ("torchcmh", "numpy seed", "queries", "mAP@all", "zero"),
        ("hashnet-81", "stated", "last", "mAP@5000[denominator=retrieved]", "skip"),
        ("csq", "stated", "queries", "mAP@5000[denominator=retrieved]", "skip"),
        ("dscmr", "stated", "queries", "mAP@all", "zero"),
    ],
)
def test_the_rules_of_each_source(source: str, draw: str, round_by: str, measure: str, no_hits: str) -> None:
    rule = of_source(source)[0]
    assert (rule.draw, rule.round_by, rule.measure, rule.no_hits) == (draw, round_by, measure, no_hits)
    assert all(rule.source == other.source for other in of_source(source))


@pytest.mark.parametrize(("source", "train"), [("fedhap", 10_000), ("dlffh", 10_000)])
def test_sources_that_train_on_equally_many_items_everywhere(source: str, train: int) -> None:
    assert {rule.train for rule in of_source(source)} == {train}


def test_searched_items_that_a_source_states() -> None:
    assert {rule.searched for rule in of_source("dscmr")} == {"query"}
    assert {(rule.searched, rule.database) for rule in of_source("csq")} == {("neither", None)}


def test_measures_are_written_as_evaluation_reads_them() -> None:
    for measure in {rule.measure for key in KEYS for rule in published(key)}:
        assert str(Measure.parse(measure)) in {measure, "mAP@all", "Success@1"}


def test_seeded_lists_are_explained_where_a_source_uses_them() -> None:
    assert all(rule.about.startswith("Reproducible from the lists") for rule in of_source("torchcmh"))
