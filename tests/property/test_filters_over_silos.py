"""Filters and counts over silos are those of one index of all items, however the items are divided among the silos."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from silohash.base.analysis import Analysis, analyze
from silohash.index.base import IndexManifest
from silohash.index.codes import from_bytes
from silohash.index.store import Store
from silohash.search.bus import LocalBus, now
from silohash.search.hits import Query
from silohash.search.merge import ask_newest
from silohash.search.node import SiloNode
from silohash.search.order import ALL_WORDS, BY_CODE, EXACT, question_key, tie_order
from silohash.search.policy import Policy
from silohash.search.requests import Browse
from tests.silos import MODEL, ask

BITS = 8
SECRET = b"hub"
ASKED = 0b0000_0101
ENGLISH = Analysis(languages=("en",))
COLUMNS = ("museum", "made", "size")
RELEASING = Policy(columns=COLUMNS)
SIDES = ("image", "text")
FACETS = ("silo", "labels", "museum")

WORDS = ("boat", "red", "sea", "fog")
LABELS = ("cat", "dog", "old")
DATES = ("1999", "2000", "2000-02", "2000-12", "2001-02", "unknown", "")

ITEM = st.fixed_dictionaries(
    {
        "code": st.integers(0, 2**BITS - 1),
        "sides": st.sampled_from([("image",), ("text",), SIDES]),
        "caption": st.lists(st.sampled_from(WORDS), max_size=3).map(" ".join),
        "labels": st.lists(st.sampled_from(LABELS), max_size=3, unique=True),
        "museum": st.sampled_from(["Louvre", "Orsay, Paris", "prado", ""]),
        "made": st.sampled_from(DATES),
        "size": st.sampled_from(["3", "3.0", "-2.5", "10", "large", ""]),
    }
)
ARCHIVE = st.lists(st.tuples(ITEM, st.integers(0, 3)), min_size=1, max_size=24)
"""Items with the silo of each."""

MUSEUM = st.tuples(
    st.just("museum"),
    st.sampled_from(["=", "!="]),
    st.lists(st.sampled_from(["Louvre", "Orsay, Paris", "prado", "Uffizi"]), min_size=1, max_size=2, unique=True),
)
MADE = st.tuples(
    st.just("made"),
    st.sampled_from(["=", "!=", "<", "<=", ">", ">="]),
    st.sampled_from(["1999", "2000", "2000-02", "2001-01"]).map(lambda value: [value]),
)
SIZE = st.tuples(
    st.just("size"), st.sampled_from(["=", "!=", "<", "<=", ">", ">="]), st.sampled_from([["3"], ["-2.5"], ["7e0"]])
)
ANY_LABEL = st.tuples(
    st.just("labels"),
    st.sampled_from(["=", "!="]),
    st.lists(st.sampled_from(LABELS), min_size=1, max_size=2, unique=True),
)
FILTERS = st.lists(st.one_of(MUSEUM, MADE, SIZE, ANY_LABEL), max_size=3)
LABEL = st.none() | st.sampled_from(LABELS)
TEXT = st.lists(st.sampled_from(WORDS), max_size=2, unique=True)
EXCLUDED = st.lists(st.sampled_from([*WORDS, "cat", "red boat"]), max_size=2, unique=True)


def months(text):
    """Returns where the date of a text begins and where it ends, in months; None for another text."""
    if not text[:4].isdigit():
        return None
    year, _, month = text.partition("-")
    begin = int(year) * 12 + int(month or 1) - 1
    return begin, begin + (1 if month else 12)


def size(text):
    """Returns the number of a text as a period; None for another text."""
    try:
        return float(text), np.nextafter(float(text), np.inf)
    except ValueError:
        return None


def compared(operator, value, other):
    """Returns whether a period passes a comparison with another one."""
    if value is None:
        return False
    (begin, end), (low, high) = value, other
    return {"=": begin >= low and end <= high, "<": end <= low, "<=": end <= high, ">": begin >= high,
            ">=": begin >= low}[operator]  # fmt: skip


def passes(item, condition):
    """Returns whether an item passes a condition, by reading its values."""
    column, operator, values = condition
    if operator == "!=":
        return not passes(item, (column, "=", values))
    if column == "labels":
        return bool({*values} & {*item["labels"]})
    if column == "museum":
        return item["museum"] in values
    read = months if column == "made" else size
    return any(compared(operator, read(item[column]), read(value)) for value in values)


def terms(item):
    """Returns all terms of an item's caption and labels."""
    return {*analyze(f"{item['caption']} {' '.join(item['labels'])}", ENGLISH)}


def stated(condition):
    """Returns the text of a condition."""
    column, operator, values = condition
    return f"{column}{operator}{','.join(json.dumps(value) for value in values)}"


class Silos:
    """The silos of an archive, of which only those with items exist.

    Attributes:
        nodes: Maps the name of each to its node.
        rows: All items, with their silo, their id and the number of items before them on each side.
    """

    def __init__(self, archive, opened, policies=(RELEASING,) * 4):
        folder = Path(opened.enter_context(TemporaryDirectory()))
        self.nodes, self.rows = {}, []
        for number in sorted({number for _, number in archive}):
            name, stores = f"silo{number}", {}
            items = [item for item, holder in archive if holder == number]
            for side in SIDES:
                manifest = IndexManifest(MODEL, BITS, side, silo=name, analysis=ENGLISH)
                stores[side] = opened.enter_context(Store.create(folder / f"{name}-{side}.sqlite", manifest))
                held = [place for place, item in enumerate(items) if side in item["sides"]]
                codes = np.array([[items[place]["code"]] for place in held], np.uint8).reshape(-1, 1)
                payloads = [
                    {
                        "caption": items[place]["caption"],
                        "labels": items[place]["labels"],
                        "columns": {column: items[place][column] for column in COLUMNS},
                    }
                    for place in held
                ]
                stores[side].add([f"n{place}" for place in held], from_bytes(codes, BITS), [*map(json.dumps, payloads)])
            self.nodes[name] = SiloNode(name, stores, policies[number])
            self.rows += [
                item
                | {"silo": name, "id": f"n{place}"}
                | {"before": {side: sum(side in other["sides"] for other in items[:place]) for side in item["sides"]}}
                for place, item in enumerate(items)
            ]

    def answering(self, columns):
        """Returns the rows of the silos with a value in each of some columns, and the other silos' names."""
        empty = {
            name
            for name in self.nodes
            for column in {*columns} - {"labels"}
            if not any(row[column] for row in self.rows if row["silo"] == name)
        }
        return [row for row in self.rows if row["silo"] not in empty], empty


def most_frequent(rows, count):
    """Returns the most frequent values of each column that is counted."""
    values = {
        "silo": lambda row: [row["silo"]],
        "labels": lambda row: row["labels"],
        "museum": lambda row: [row["museum"]],
    }
    found = {}
    for name in FACETS:
        numbers = Counter(value for row in rows for value in values[name](row) if value)
        found[name] = dict(sorted(numbers.items(), key=lambda pair: (-pair[1], pair[0]))[:count])
    return found


def pages(found, k):
    """Yields the offsets of the pages of a result, and one page beyond it."""
    return range(0, len(found) + k, k)


@settings(max_examples=100)
@given(ARCHIVE, FILTERS, LABEL, TEXT, EXCLUDED, st.integers(1, 7), st.integers(1, 3), st.none() | st.integers(0, 5))
def test_searches_with_filters_are_those_of_one_index(archive, where, label, text, excluded, k, values, radius_bits):
    used = [column for column, *_ in where]
    typed = " ".join([*text, *(f'-"{word}"' if " " in word else f"-{word}" for word in excluded)])
    code = from_bytes(np.array([[ASKED]], np.uint8), BITS)[0]
    asked = {
        "words": code, "bits": BITS, "model_digest": MODEL, "own_text": typed or None, "k": k, "label": label,
        "where": [*map(stated, where)], "facets": FACETS, "facet_values": values, "radius_bits": radius_bits,
    }  # fmt: skip
    with ExitStack() as opened:
        silos = Silos(archive, opened)
        rows, missing = silos.answering(used)
        passing = [
            row
            for row in rows
            if all(passes(row, each) for each in where)
            and label in (None, *row["labels"])
            and not any({*analyze(word, ENGLISH)} <= terms(row) for word in excluded)
        ]
        expected = []
        for row in passing:
            distance, own = (row["code"] ^ ASKED).bit_count(), terms(row)
            count = len({*text} & own)
            tier = ALL_WORDS if text and count == len(text) else BY_CODE
            tier = EXACT if text and row["caption"] == " ".join(text) else tier
            if radius_bits is None or distance <= radius_bits:
                equal = int(tie_order([row["silo"]], [row["id"]], question_key(SECRET, [code]))[0])
                expected.append((tier, distance, -count, equal, row["silo"], row["id"]))
        expected.sort()
        found = []
        for offset in pages(expected, k):
            hits = ask([*silos.nodes.values()], Query(**asked, offset=offset), secret=SECRET)
            held = map(int.bit_count, hits.held_words)
            found += zip(hits.in_tiers, hits.distances, held, hits.silos, hits.ids, strict=True)
            last = [row[:2] for row in expected[offset : offset + k]][-1:]
            rest = [row[:2] for row in expected[offset + k :]]
            assert [hits.ties_at_cut] == [rest.count(place) for place in last or [()]]
            assert (hits.facets, {*hits.missing_silos}) == (most_frequent(passing, values), missing)
            for silo, name, payload in zip(hits.silos, hits.ids, hits.payloads, strict=True):
                [row] = [row for row in passing if (row["silo"], row["id"]) == (silo, name)]
                assert payload["caption"] == row["caption"]
    assert found == [(tier, distance, -count, silo, name) for tier, distance, count, _, silo, name in expected]


@settings(max_examples=100)
@given(ARCHIVE, FILTERS, LABEL, st.integers(1, 7), st.integers(1, 3), st.sampled_from([None, "made"]))
def test_lists_with_filters_are_those_of_one_index(archive, where, label, k, values, newest_by):
    request = {
        "k": k, "label": label, "where": [*map(stated, where)], "facets": FACETS, "facet_values": values,
        "newest_by": newest_by,
    }  # fmt: skip
    with ExitStack() as opened:
        silos = Silos(archive, opened)
        rows, missing = silos.answering([*(column for column, *_ in where), *([newest_by] if newest_by else [])])
        passing = [row for row in rows if all(passes(row, each) for each in where) and label in (None, *row["labels"])]
        expected = []
        for row in passing:
            newer = [
                sum(row["silo"] == other["silo"] and other["before"].get(side, -1) > place for other in passing)
                for side, place in row["before"].items()
            ]
            age = min(newer) if newest_by is None else -(months(row[newest_by]) or (0,))[0]
            equal = int(tie_order([row["silo"]], [row["id"]], question_key(b"", ()))[0])
            expected.append((age, equal, row["silo"], row["id"]))
        expected.sort()
        found = []
        for offset in pages(expected, k):
            asked = Browse(**request, offset=offset)
            bus = LocalBus([*silos.nodes.values()])
            hits = now(ask_newest(bus, [*silos.nodes], asked, deadline_seconds=60))
            found += zip(hits.silos, hits.ids, strict=True)
            assert (hits.facets, {*hits.missing_silos}) == (most_frequent(passing, values), missing)
    assert found == [(silo, name) for _, _, silo, name in expected]


LIMITS = ({"distance_step_bits": 3}, {"max_near_queries": 1000}, {"rank_only": True}, {"max_distance_bits": 2})


@pytest.mark.parametrize("limits", LIMITS, ids=str)
@settings(max_examples=25)
@given(ARCHIVE, FILTERS.filter(bool), st.integers(1, 7), st.integers(1, 9))
def test_a_limited_silo_tells_no_more_than_without_filters(limits, archive, where, k, max_results):
    """It filters what it would answer with, and counts nothing; the other silos are as they are without it."""
    limited = Policy(columns=COLUMNS, max_results=max_results, **limits)
    code = from_bytes(np.array([[ASKED]], np.uint8), BITS)[0]
    query = {"words": code, "bits": BITS, "model_digest": MODEL}
    filtered = {**query, "where": [*map(stated, where)], "facets": FACETS, "facet_values": 100}
    with ExitStack() as opened:
        silos = Silos(archive, opened, (limited, RELEASING, RELEASING, RELEASING))
        rows, missing = silos.answering([column for column, *_ in where])
        passing = {(row["silo"], row["id"]) for row in rows if all(passes(row, each) for each in where)}
        node = silos.nodes.get("silo0")
        if node is not None and "silo0" not in missing:
            whole = node.answer(Query(**query, k=100))
            found = node.answer(Query(**filtered, k=k))
            kept = [hit for hit in zip(whole.ids, whole.distances, strict=True) if ("silo0", hit[0]) in passing]
            seen = [*zip(found.ids, found.distances, strict=True)]
            if "max_distance_bits" in limits:  # states exact distances, and filters first
                near = [row for row in rows if row["silo"] == "silo0" and (row["code"] ^ ASKED).bit_count() <= 2]
                assert len(seen) == min(k, max_results, sum(("silo0", row["id"]) in passing for row in near))
                assert seen[: len(kept)] == kept[: len(seen)]
            else:
                assert seen == kept[:k]
            assert found.facets == {}
            assert "does not count" in found.limited_silos["silo0"]
        counts = ask([*silos.nodes.values()], Query(**filtered, k=k), secret=SECRET).facets or {}
        counted = [row for row in rows if (row["silo"], row["id"]) in passing and row["silo"] != "silo0"]
        assert counts == most_frequent(counted, 100)
