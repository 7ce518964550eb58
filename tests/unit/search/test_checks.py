"""Checks of dishonest silos: no honest silo fails them, and what each of them finds."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from silohash.base.types import MODALITIES, Modality, Target
from silohash.index.base import IndexManifest
from silohash.index.codes import pack
from silohash.index.store import Store
from silohash.search import checks
from silohash.search.checks import Allowance, Distances, are_possible, has_too_many_values
from silohash.search.hits import Hits, Query
from silohash.search.ledger import Ledger
from silohash.search.node import SiloNode
from silohash.search.policy import Policy
from silohash.search.requests import Item, SiloStatus
from silohash.search.wire import encode_answer

BITS = 12
RANDOM = np.random.default_rng(7)


def codes(count: int) -> np.ndarray:
    return pack(RANDOM.choice([-1, 1], (count, BITS)))


def queries(count: int, target: Target = "item", **options: int) -> list[Query]:
    return [Query(words=words, bits=BITS, model_digest="m", target=target, **options) for words in codes(count)]


def hits_of(query: Query, ids: str, distances: list[int], **values: object) -> Hits:
    shown = {"silos": ("s",) * len(ids), "payloads": ({},) * len(ids), "found_by": (("image",),) * len(ids)}
    return replace(Hits(ids=tuple(ids), distances=tuple(distances), **shown), **values)


@pytest.fixture
def stores(tmp_path) -> Iterator[dict[Modality, Store]]:
    stores = {
        modality: Store.create(tmp_path / modality, IndexManifest("m", BITS, modality, silo="s"))
        for modality in MODALITIES
    }
    yield stores
    for store in stores.values():
        store.close()


def test_two_distances_are_possible_if_a_code_has_them() -> None:
    bits, every = 4, range(16)
    for p, q in itertools.product(every, every):
        real = {((p ^ x).bit_count(), (q ^ x).bit_count()) for x in every}
        for first, second in itertools.product(range(6), range(6)):
            assert are_possible((p, first, 0), (q, second, 0), bits) == ((first, second) in real)
            rounded = are_possible((p, first, 1), (q, second, 2), bits)
            may = any((first + i, second + j) in real for i in range(2) for j in range(3))
            assert rounded or not may, "a rounded distance that a code has is never refused"


@pytest.mark.parametrize(
    "policy", [{}, {"distance_step_bits": 2}, {"distance_step_bits": 5}, {"code_noise": 0.2}, {"rank_only": True}]
)
def test_no_honest_silo_contradicts_itself_while_its_items_change(stores, policy) -> None:
    node, distances, number = SiloNode("s", stores, Policy(**policy), ledger=Ledger()), Distances(), 0
    for change in range(30):
        modality = MODALITIES[change % 2]
        names = [f"i{n}" for n in RANDOM.choice(20, 6, replace=False)]
        if change % 5 == 4:
            stores[modality].remove(names[:2])
        else:
            stores[modality].add(names, codes(len(names)), [json.dumps({}) for _ in names])
        for target in ("item", "image", "text"):
            for query in queries(4, target, k=15):
                hits = node.answer(query)
                number += len(hits)
                assert hits.step_bits == policy.get("distance_step_bits", 1)
                assert not distances.contradiction("s", query, hits), "an honest silo"
    assert number > 1_000


def test_distances_that_contradict_former_ones_are_found(stores) -> None:
    distances, (p, q) = Distances(), queries(2)
    apart = int(np.bitwise_count(p.words ^ q.words).sum())
    assert apart > 1
    assert not distances.contradiction("s", p, hits_of(p, "ab", [0, 0]))
    assert '"b"' in distances.contradiction("s", q, hits_of(q, "b", [0]))
    assert not distances.contradiction("s", q, hits_of(q, "ab", [apart, apart])), "the lie was not remembered"
    assert distances.contradiction("s", p, hits_of(p, "a", [2])), "the same query, another distance"
    for other in ({"edition": "2"}, {"step_bits": BITS + 1}, {"found_by": (("text",),)}):
        assert not distances.contradiction("s", q, hits_of(q, "a", [0], **other))
    assert not distances.contradiction("t", q, hits_of(q, "a", [0])), "another silo"


def test_sides_that_are_left_out_are_those_of_the_query() -> None:
    distances, (p, q) = Distances(), queries(2, "text")
    assert not distances.contradiction("s", p, hits_of(p, "a", [0], found_by=()))
    assert distances.contradiction("s", q, hits_of(q, "a", [0], found_by=(("text",),)))


def test_memory_is_bounded_and_new_editions_are_counted(monkeypatch) -> None:
    monkeypatch.setattr(checks, "MOST_REMEMBERED", 4)
    monkeypatch.setattr(checks, "MOST_EDITIONS", 2)
    seen: list[tuple[str, str]] = []
    distances, (p, q) = Distances(lambda silo, finding: seen.append((silo, finding))), queries(2, k=50)
    for start in range(0, 40, 2):
        ids = tuple(f"i{n}" for n in (start, start + 1))
        assert not distances.contradiction("s", p, replace(hits_of(p, "ab", [0, 0]), ids=ids))
    assert distances.contradiction("s", q, replace(hits_of(q, "a", [0]), ids=("i39",)))
    assert not distances.contradiction("s", q, replace(hits_of(q, "a", [0]), ids=("i0",))), "it was forgotten"
    long = ("x" * (checks.LONGEST_ID + 1),)
    for query in (p, q):
        assert not distances.contradiction("s", query, replace(hits_of(query, "a", [0]), ids=long))
    for edition in "345":
        assert not distances.contradiction("s", p, hits_of(p, "a", [0], edition=edition))
    assert seen == [("s", "new_edition")] * 4
    assert distances.contradiction("s", q, hits_of(q, "a", [0], edition="5"))
    assert not distances.contradiction("s", q, replace(hits_of(q, "a", [0]), ids=("i39",))), "its edition was forgotten"


def test_the_time_for_a_silo_is_a_share_after_a_burst() -> None:
    now = 100.0
    allowance = Allowance(lambda: now)
    assert allowance.left("s") == checks.BURST_SECONDS
    allowance.spend("s", checks.BURST_SECONDS + 1)
    assert (allowance.left("s"), allowance.left("t")) == (-1, checks.BURST_SECONDS)
    now += 1.5 / checks.READING_SHARE
    assert allowance.left("s") == pytest.approx(0.5)
    now += 1e6
    assert allowance.left("s") == checks.BURST_SECONDS


@pytest.mark.parametrize(
    ("content", "too_many"),
    [
        (b"[" + b"[]," * 12_000 + b"[]]", True),
        (b"[" + b'"",' * 12_000 + b'""]', True),
        (b"[" + b'"",' * 60_000 + b'""]', True),
        (b'["' + b",[{" * 100_000 + b'"]', False),
        (b'["' + b'\\",' * 100_000 + b'"]', False),
        (b'["' + b"\\\\" * 100_000 + b'",' + b"1," * 5_000 + b"1]", False),
        (b'["\\\\",' + b"1," * 12_000 + b"1]", True),
        (b"[" + b"1," * 9_000 + b"1]", False),
    ],
)
def test_only_what_is_outside_of_strings_is_counted(content, too_many) -> None:
    assert has_too_many_values(content, 1) == too_many
    assert not has_too_many_values(content, 100)
    assert has_too_many_values(b"[" + b"1," * 110_000 + b"1]", None)


def test_the_largest_answers_of_honest_silos_have_few_enough_values() -> None:
    payload = {"caption": '",[{' * 9_000, "labels": [f"label, {n}" for n in range(1_000)], "file": "a.png"}
    many = Hits(
        ids=tuple("abcde"), distances=(0,) * 5, silos=("s",) * 5, payloads=(payload,) * 5, found_by=(("image",),) * 5,
        model_digests=frozenset({"m"}),
    )  # fmt: skip
    assert not has_too_many_values(encode_answer("s", many), 5)
    assert not has_too_many_values(encode_answer("s", Item(id="a", modalities=("image",), payload=payload)), 1)
    examples = tuple(Item(id=str(n), modalities=("image",), payload=payload) for n in range(8))
    status = SiloStatus(name="s", labels={f"label {n}": n for n in range(1_000)}, examples=examples)
    assert not has_too_many_values(encode_answer("s", status), None)
