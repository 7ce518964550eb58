"""The published protocols: what each decides, in words and in numbers that fit together."""

from __future__ import annotations

import pytest

from silohash.data.benchmarks.dataset import benchmarks
from silohash.data.protocols.rule import DRAWS, POPULATIONS, SEARCHED, SplitProtocol
from silohash.evaluate.measures import Measure

PROTOCOLS = {key: dataset.protocols for key, dataset in benchmarks().items()}


EVERY = [protocol for table in PROTOCOLS.values() for protocol in table.values()]


STATED = [protocol for protocol in EVERY if protocol.draw != "free"]


def names(protocols: list[SplitProtocol]) -> list[str]:
    return [f"{protocol.dataset}/{protocol.name}" for protocol in protocols]


@pytest.mark.parametrize("protocol", EVERY, ids=names(EVERY))
def test_protocols_are_told_in_words(protocol: SplitProtocol) -> None:
    assert len(protocol.about) > 20
    assert protocol.population in POPULATIONS
    assert protocol.draw in DRAWS
    assert protocol.searched in SEARCHED
    assert all(protocol.rules().values())
    assert benchmarks()[protocol.dataset].protocol(protocol.name).name == protocol.name


@pytest.mark.parametrize("protocol", STATED, ids=names(STATED))
def test_the_counts_of_a_protocol_fit_together(protocol: SplitProtocol) -> None:
    assert min(protocol.query, protocol.train) > 0
    if protocol.database is None or protocol.items is None:
        return
    assert protocol.used is not None
    assert protocol.used <= protocol.items
    if protocol.searched == "rest":
        assert protocol.train <= protocol.database
    if protocol.searched == "train":
        assert protocol.train == protocol.database
    if protocol.searched == "query":
        assert protocol.query == protocol.database


@pytest.mark.parametrize(
    ("dataset", "name", "total", "train", "query", "database", "classes"),
    [
        ("mirflickr25k", "fedcafe", 20_015, 10_000, 2_000, 18_015, 24),
        ("nus-wide", "fedcafe", 195_834, 10_500, 2_100, 193_734, 21),
        ("fashionvc", "fedcafe", 19_862, 16_862, 3_000, 16_862, 27),
        ("ssense", "fedcafe", 15_696, 13_696, 2_000, 13_696, 28),
        ("nus-wide", "fedhap", 195_834, 10_000, 2_100, 193_734, 21),
        ("mirflickr25k", "fedhap", 20_015, 10_000, 2_000, 18_015, 24),
        ("mirflickr25k", "fedhap-text", 20_015, 10_000, 2_000, 8_015, 24),
        ("coco", "fedhap", 117_218, 10_000, 4_992, 112_226, 80),
        ("wikipedia", "feduch", 2_635, 2_173, 462, 2_173, 10),
        ("iapr-tc12", "feduch", 20_000, 5_000, 2_000, 18_000, 255),
        ("mirflickr25k", "feduch", 20_015, 5_000, 2_000, 18_015, 24),
        ("mirflickr25k", "feduch-16015", 18_015, 5_000, 2_000, 16_015, 24),
        ("coco", "feduch", 123_287, 5_000, 2_000, 121_287, 80),
        ("nus-wide", "feduch", 195_834, 5_000, 2_000, 193_834, 21),
        ("mirflickr25k", "dlffh", 20_015, 10_000, 2_000, 18_015, 24),
        ("nus-wide", "dlffh", 195_834, 10_000, 2_000, 193_834, 21),
        ("iapr-tc12", "dlffh", 20_000, 10_000, 2_000, 18_000, 255),
        ("coco", "deephash", 122_218, 10_000, 5_000, 117_218, 80),
        ("coco", "hashnet-112218", 122_218, 10_000, 5_000, 112_218, 80),
        ("mirflickr25k", "deephash", 25_000, 4_000, 1_000, 20_000, 38),
        ("nus-wide", "ucch", 186_577, 184_477, 2_100, 184_477, 10),
    ],
)
def test_the_papers_own_numbers(dataset, name, total, train, query, database, classes) -> None:
    protocol = PROTOCOLS[dataset][name]
    found = (protocol.used, protocol.train, protocol.query, protocol.database, protocol.classes)
    assert found == (total, train, query, database, classes)


def test_the_five_papers_have_the_measures_they_report() -> None:
    measures = {protocol.source: set() for protocol in EVERY}
    for protocol in EVERY:
        measures[protocol.source].add(protocol.measure)
    assert measures["FedUCH"] == {"mAP@50[denominator=retrieved]"}
    assert all(str(Measure.parse(protocol.measure)) == protocol.measure for protocol in EVERY)
    assert measures["FedCAFE"] == measures["FedHAP"] == measures["DLFFH"] == {"mAP@all"}
    assert measures["FedBi-GNNs"] == {"Success@1"}


def test_what_contradicts_itself_has_two_names() -> None:
    mirflickr, nus, coco = (PROTOCOLS[key] for key in ("mirflickr25k", "nus-wide", "coco"))
    assert (mirflickr["fedhap-table-classes"].classes, nus["fedhap-table-classes"].classes) == (21, 24)
    assert mirflickr["fedhap-text"].train_in_database is False
    assert mirflickr["fedhap"].train_in_database is True
    assert mirflickr["dcmh-20-tags"].population == "many tags"
    assert {mirflickr[name].items for name in ("dcmh", "dcmh-24581", "deephash")} == {20_015, 24_581, 25_000}
    assert coco["hashnet-112218"].query_in_database is True
    assert coco["deephash"].query_in_database is False
    assert "7,972" in coco["fedbi-gnns"].about
    assert coco["fedbi-gnns"].partition != coco["fedbi-gnns-7972"].partition
    assert PROTOCOLS["ssense"]["shdch-column-8"].classes == 24
