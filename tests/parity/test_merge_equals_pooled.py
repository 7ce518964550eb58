"""The merged answer of silos is the answer of one index that holds everything.

The exception are silos that release ranks only (`rank_only`). Their items are merged by rank, see `silohash.search.merge`.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from silohash.base.analysis import Analysis, analyze
from silohash.index.base import IndexManifest
from silohash.index.codes import unpack
from silohash.index.store import Store
from silohash.search import merge, order
from silohash.search.bus import LocalBus, now
from silohash.search.hits import Query
from silohash.search.node import SiloNode
from silohash.search.order import possible_first, question_key, tie_order
from silohash.search.policy import Policy
from silohash.search.requests import Browse
from silohash.search.wire import WireBus
from tests.silos import MODEL, BytesInThreads, ask, distances_to, made_up_codes, made_up_node, query_of

SECRET = b"hub"
BITS = 8


def silos_of(tmp_path, bits, sizes):
    codes = {f"silo{number}": made_up_codes(size, bits, seed=number) for number, size in enumerate(sizes)}
    return codes, [made_up_node(tmp_path, name, words, bits) for name, words in codes.items()]


def pooled_order(codes, query):
    """Returns every (distance, silo, id) in the order that one index of all items would give."""
    silos = [name for name, words in codes.items() for _ in words]
    ids = [str(row) for words in codes.values() for row in range(len(words))]
    distances = distances_to(np.concatenate(list(codes.values())), query.words)
    places = tie_order(silos, ids, question_key(SECRET, [query.words]))
    ranked = sorted(range(len(ids)), key=lambda i: (distances[i], int(places[i])))
    return [(int(distances[i]), silos[i], ids[i]) for i in ranked]


@pytest.mark.parametrize("bits", [8, 16, 64, 128])
@pytest.mark.parametrize("k", [1, 7, 100, 2000])
def test_merged_equals_pooled(tmp_path, bits, k):
    codes, nodes = silos_of(tmp_path, bits, (300, 20, 411, 1))
    for seed in range(5):
        query = query_of(made_up_codes(1, bits, seed=100 + seed), bits, k=k)
        expected = pooled_order(codes, query)
        hits = ask(nodes, query, secret=SECRET)
        assert list(zip(hits.distances, hits.silos, hits.ids, strict=True)) == expected[:k]
        cut = hits.distances[-1]
        assert hits.ties_at_cut == sum(distance == cut for distance, _, _ in expected[k:])
        assert not hits.missing_silos
        assert not hits.limited_silos


def test_merged_equals_pooled_where_every_item_ties(tmp_path):
    same = {name: np.zeros((50, 1), np.uint16) for name in ("north", "south", "east")}
    nodes = [made_up_node(tmp_path, name, words, 16) for name, words in same.items()]
    query = query_of(np.zeros((1, 1), np.uint16), 16, k=30)
    hits = ask(nodes, query, secret=SECRET)
    assert list(zip(hits.distances, hits.silos, hits.ids, strict=True)) == pooled_order(same, query)[:30]
    assert hits.ties_at_cut == 120
    assert set(hits.silos) == {"north", "south", "east"}


def test_pages_follow_one_another(tmp_path):
    codes, nodes = silos_of(tmp_path, 16, (80, 90, 100))
    code = made_up_codes(1, 16, seed=9)
    expected = pooled_order(codes, query_of(code, 16))
    found = []
    for offset in range(0, 280, 20):
        hits = ask(nodes, query_of(code, 16, k=20, offset=offset), secret=SECRET)
        found += zip(hits.distances, hits.silos, hits.ids, strict=True)
    assert found == expected


def test_radius_equals_pooled(tmp_path):
    codes, nodes = silos_of(tmp_path, 16, (200, 200))
    query = query_of(made_up_codes(1, 16, seed=3), 16, k=1000, radius_bits=4)
    expected = [hit for hit in pooled_order(codes, query) if hit[0] <= 4]
    hits = ask(nodes, query, secret=SECRET)
    assert list(zip(hits.distances, hits.silos, hits.ids, strict=True)) == expected
    assert 0 < len(hits) < 400


def test_order_of_ties_is_the_same_after_the_index_was_built_in_another_order(tmp_path):
    words = made_up_codes(300, 16, seed=1, flipped=0.0)
    names = [f"item{row}" for row in range(300)]
    turned = np.random.default_rng(5).permutation(300)
    query = query_of(words, 16, k=10)
    (tmp_path / "again").mkdir()
    first = made_up_node(tmp_path, "north", words, 16, ids=names)
    again = made_up_node(tmp_path / "again", "north", words[turned], 16, ids=[names[row] for row in turned])
    assert ask([first], query) == ask([again], query)


def test_ties_favour_no_silo(tmp_path):
    nodes = [made_up_node(tmp_path, name, np.zeros((100, 1), np.uint16), 16) for name in ("a", "b")]
    share = []
    for code in range(200):
        hits = ask(nodes, query_of(np.array([[code]], np.uint16), 16, k=10))
        share.append(sum(silo == "a" for silo in hits.silos) / 10)
    # Ten of two hundred equals, half of them a's: the mean of 200 draws lies within 5 of its standard errors (0.011).
    assert abs(np.mean(share) - 0.5) < 0.055


def test_faiss_gives_the_same(tmp_path):
    pytest.importorskip("faiss")
    words = made_up_codes(300, 64, seed=1)
    node = made_up_node(tmp_path, "north", words, 64)
    store = node._loaded["image"].store
    magnitudes = np.random.default_rng(0).integers(0, 256, 64).astype(np.uint8)
    query = query_of(made_up_codes(1, 64, seed=7), 64, k=20, magnitudes=magnitudes, source="text")
    assert ask([SiloNode("north", {"image": store}, backend="faiss")], query) == ask([node], query)
    assert store.manifest.model_digest == MODEL


def test_the_exception_is_a_silo_that_releases_ranks_only(tmp_path):
    """Every silo keeps its own order, and the n-th item of the silo without distances has the rank n."""
    codes, nodes = silos_of(tmp_path, 64, (60, 40, 50))
    plain = nodes[1]
    nodes[1] = SiloNode("silo1", {"image": plain._loaded["image"].store}, Policy(rank_only=True))
    query = query_of(made_up_codes(1, 64, seed=9), 64, k=150)
    hits = ask(nodes, query, secret=SECRET)
    assert len(hits) == 150
    expected = pooled_order(codes, query)
    for silo in ("silo0", "silo2"):
        assert [hit.id for hit in hits if hit.silo == silo] == [name for _, owner, name in expected if owner == silo]
        distances = [distance for distance, owner, _ in expected if owner == silo]
        ranks = [1 + sum(other < distance for other in distances) for distance in distances]
        assert [hit.rank for hit in hits if hit.silo == silo] == ranks
    hidden = [hit for hit in hits if hit.silo == "silo1"]
    assert [(hit.rank, hit.distance_bits) for hit in hidden] == [(rank, None) for rank in range(1, 41)]
    found, near = [hit.id for hit in hidden], {name: d for d, owner, name in expected if owner == "silo1"}
    assert [near[name] for name in found] == sorted(near.values()), "its order is that of its distances"


SIDES = ("image", "text")


def made_up_silos(tmp_path, seed, *, outputs=False):
    """Returns silos with both sides of items in few codes, with labels, and a row per item: silo, id, label, codes.

    With outputs, codes are of a type that also holds the magnitudes: pairs of words and magnitudes.
    """
    generator = np.random.default_rng(seed)
    nodes, rows = [], []
    for number, count in enumerate(generator.integers(1, 60, 3)):
        name = f"silo{number}"
        ids = [str(row) for row in range(count)]
        labels = generator.choice(["cat", "dog"], count)
        codes = {side: made_up_codes(count, BITS, seed=7 * seed + number + 100 * (side == "text")) for side in SIDES}
        held = {side: generator.random(count) < 0.8 for side in SIDES}
        held["text"] |= ~held["image"]
        sizes = {side: generator.integers(0, 3, (count, BITS)).astype(np.uint8) for side in SIDES}
        stores = {}
        for side in SIDES:
            manifest = IndexManifest(MODEL, BITS, side, silo=name)
            stores[side] = Store.create(tmp_path / f"{name}-{side}.sqlite", manifest, magnitudes=outputs)
            kept = np.flatnonzero(held[side])
            payloads = [json.dumps({"labels": [labels[row]]}) for row in kept]
            stores[side].add([ids[row] for row in kept], codes[side][kept], payloads, magnitudes=sizes[side][kept])
        nodes.append(SiloNode(name, stores))
        coded = {side: [*zip(codes[side], sizes[side], strict=True)] if outputs else codes[side] for side in SIDES}
        rows += [
            (name, ids[row], labels[row], {side: coded[side][row] for side in SIDES if held[side][row]})
            for row in range(count)
        ]
    return nodes, rows


def differing(code, query):
    """Returns the bits in which a code differs from that of a query, ``(bits,)`` bool."""
    return unpack(code[None], BITS)[0] != unpack(query.words[None], BITS)[0]


def pooled_rows(rows, query, label):
    """Returns (distance, order value, equal, silo, id) of every item in order, by looking at each bit of each code."""
    found = []
    for silo, name, own, codes in rows:
        if label in (None, own):
            bits = [differing(code, query) for code in codes.values()]
            distance, value = min((int(bit.sum()), int(query.magnitudes[bit].sum(dtype=int))) for bit in bits)
            equal = int(tie_order([silo], [name], question_key(SECRET, [query.words]))[0])
            found.append((distance, value, equal, silo, name))
    return sorted(found)


@pytest.mark.parametrize("label", [None, "dog"])
@pytest.mark.parametrize("seed", range(4))
def test_equals_are_ordered_by_the_magnitudes_of_the_query(tmp_path, seed, label):
    nodes, rows = made_up_silos(tmp_path, seed)
    generator = np.random.default_rng(seed)
    magnitudes = generator.integers(0, 4, BITS).astype(np.uint8)  # few values, so that order values tie, too
    code = made_up_codes(1, BITS, seed=50 + seed)[0]
    asked = {"words": code, "bits": BITS, "model_digest": MODEL, "magnitudes": magnitudes, "source": "text"}
    expected = pooled_rows(rows, Query(**asked), label)
    found = []
    for offset in range(0, len(expected) + 7, 7):
        hits = ask(nodes, Query(**asked, k=7, offset=offset, label=label), secret=SECRET)
        found += zip(hits.distances, hits.silos, hits.ids, strict=True)
        assert hits.order_values is None
        last = [distance for distance, *_ in expected[offset : offset + 7]][-1:]
        assert [hits.ties_at_cut] == [sum(row[0] == d for row in expected[offset + 7 :]) for d in last or [-1]]
    assert found == [(distance, silo, name) for distance, _, _, silo, name in expected]
    by_hash = [(d, silo, name) for d, _, _, silo, name in sorted(expected, key=lambda row: (row[0], row[2]))]
    assert found != by_hash
    plain = ask(nodes, Query(**{**asked, "source": "code"}, k=len(expected), label=label), secret=SECRET)
    assert list(zip(plain.distances, plain.silos, plain.ids, strict=True)) == by_hash, "nobody may choose magnitudes"


@pytest.mark.parametrize(
    "limits", [{"distance_step_bits": 4}, {"code_noise": 0.1}, {"max_near_queries": 5}, {"similar": False}], ids=str
)
def test_a_silo_that_limits_information_ignores_magnitudes(tmp_path, limits):
    node = made_up_node(tmp_path, "north", made_up_codes(300, 64, seed=1), 64, policy=Policy(**limits))
    magnitudes = np.random.default_rng(0).integers(0, 256, 64).astype(np.uint8)
    asked = {"k": 100, "source": "text"}
    plain = node.answer(query_of(made_up_codes(1, 64, seed=9), 64, **asked))
    assert plain == node.answer(query_of(made_up_codes(1, 64, seed=9), 64, magnitudes=magnitudes, **asked))
    assert len(plain) == 100


def test_items_of_a_silo_that_tells_no_order_values_are_among_the_others(tmp_path):
    same = {name: np.zeros((40, 4), np.uint64)[:, :1] for name in ("north", "south")}
    same["north"] = same["north"] + np.arange(40, dtype=np.uint64)[:, None] % 2 + 1
    same["south"] = same["south"] + np.uint64(4)
    nodes = [made_up_node(tmp_path, "north", same["north"], 64)]
    nodes.append(made_up_node(tmp_path, "south", same["south"], 64, policy=Policy(max_near_queries=5)))
    magnitudes = np.full(64, 100, np.uint8)
    magnitudes[:2] = 0, 200  # the expected order value of the south is 100, and the north has 0 and 200
    query = query_of(np.zeros((1, 1), np.uint64), 64, k=80, magnitudes=magnitudes, source="text")
    silos = ask(nodes, query).silos
    assert silos == ("north",) * 20 + ("south",) * 40 + ("north",) * 20


@pytest.fixture
def small_window(monkeypatch):
    monkeypatch.setattr(order, "WINDOW", 20)


def pooled_rows_of(rows, query, label):
    """Returns `pooled_rows` of items with outputs."""
    return pooled_rows([(*row[:3], {side: code for side, (code, _) in row[3].items()}) for row in rows], query, label)


def pooled_by_outputs(rows, query, label):
    """Returns (distance, cosine, silo, id) of every item in order; the cosine is None beyond the window."""
    asked = unpack(query.words[None], BITS)[0] * query.magnitudes.astype(int)
    found = []
    for row in pooled_rows_of(rows, query, label):
        [codes] = [codes for silo, name, _, codes in rows if (silo, name) == row[3:]]
        near = [each for each in codes.values() if differing(each[0], query).sum() == row[0]]
        outputs = [unpack(code[None], BITS)[0] * sizes.astype(int) for code, sizes in near]
        lengths = [math.sqrt((own @ own) * (asked @ asked)) or 1 for own in outputs]
        cosine = max(round(int(own @ asked) / length * 2**15) for own, length in zip(outputs, lengths, strict=True))
        found.append((row[0], cosine + 2**15, *row[3:]))
    near = sorted(found[: query.window], key=lambda row: -row[1])
    return near + [(distance, None, silo, name) for distance, _, silo, name in found[query.window :]]


@pytest.mark.usefixtures("small_window")
@pytest.mark.parametrize("label", [None, "dog"])
@pytest.mark.parametrize("seed", range(4))
def test_the_nearest_are_ordered_by_outputs(tmp_path, seed, label):
    nodes, rows = made_up_silos(tmp_path, seed, outputs=True)
    magnitudes = np.random.default_rng(seed).integers(0, 3, BITS).astype(np.uint8)
    asked = {"words": made_up_codes(1, BITS, seed=50 + seed)[0], "bits": BITS, "model_digest": MODEL}
    asked |= {"magnitudes": magnitudes, "source": "text", "label": label}
    queries = [Query(**asked, k=7, offset=offset) for offset in range(0, len(rows) + 7, 7)]
    expected = pooled_by_outputs(rows, queries[0], label)
    assert label or queries[0].window == 28 < len(expected)
    wire = WireBus(BytesInThreads.of(*nodes))
    found = []
    for query in queries:
        hits = ask(nodes, query, secret=SECRET)
        found += zip(hits.distances, hits.cosines or (), hits.silos, hits.ids, strict=True)
        assert all(payload["labels"] for payload in hits.payloads)
        assert hits.order_values is None
        last, rest = expected[: query.reach][-1], expected[query.reach :]
        ties = [row for row in rest if row[:2] == last[:2] or None is not row[1] == last[1]]
        assert hits.ties_at_cut == len(ties) * bool(len(hits))
        answers = [node.answer(query) for node in nodes]
        for answer in answers:
            shown = [place for place, payload in enumerate(answer.payloads) if payload]
            assert shown == possible_first(answer.cosines, query.reach), "no caption leaves the silo in vain"
        sent = {node.name: query for node in nodes}
        carried = asyncio.run(merge.ask(wire, sent, deadline_seconds=60, secret=SECRET))
        assert carried == hits
    assert found == expected
    assert ask(nodes, queries[0], secret=SECRET).order == "outputs"
    assert [row[2:] for row in expected] != [row[3:] for row in pooled_rows_of(rows, queries[0], label)]


@pytest.mark.usefixtures("small_window")
@pytest.mark.parametrize(
    "limits", [{"distance_step_bits": 4}, {"code_noise": 0.1}, {"max_near_queries": 5}, {"similar": False}, None]
)
def test_outputs_order_nothing_if_a_silo_does_not_tell_theirs(tmp_path, limits):
    nodes, _ = made_up_silos(tmp_path, 1, outputs=True)
    stores = {side: loaded.store for side, loaded in nodes[0]._loaded.items()}
    if limits is None:
        stores["image"].add(["new"], made_up_codes(1, BITS, seed=0))  # without outputs
    nodes[0] = SiloNode("silo0", stores, Policy(**limits or {}))
    magnitudes = np.random.default_rng(1).integers(0, 256, BITS).astype(np.uint8)
    query = Query(words=made_up_codes(1, BITS, seed=51)[0], bits=BITS, model_digest=MODEL, magnitudes=magnitudes)
    query = replace(query, source="text", k=7)
    answer = nodes[0].answer(query)
    assert (len(answer), answer.cosines) == (7, None)
    hits = ask(nodes, query, secret=SECRET)
    assert (hits.order, hits.cosines) == ("distance", None)
    assert list(hits.distances) == sorted(hits.distances)
    code = replace(query, source="code")
    assert ask(nodes[1:], code, secret=SECRET).order == "distance", "nobody may choose outputs"
    assert len(nodes[1].answer(code)) == 7


VOCABULARY = ("boat", "boats", "red", "the", "sea", "old", "harbor")
TEXTS = ("boat", "red boats", "The Boat at sea", "nothing known", "silo1-3", "the")
EXCLUDING = ("boat -reds", "red -boat -sea", "-sea", "nothing -cats", "boat -silo1", 'old -"harbor sea"')
ENGLISH = Analysis(languages=("en",))


def worded_silos(tmp_path, seed, policies):
    """Returns silos with captions and labels of few words, and a row per item: silo, id, payload, codes."""
    generator = np.random.default_rng(seed)
    nodes, rows = [], []
    for number, count in enumerate(generator.integers(20, 60, 3)):
        name = f"silo{number}"
        ids = [f"{name}-{row}" for row in range(count)]
        payloads = [
            {
                "caption": " ".join(generator.choice(VOCABULARY, generator.integers(0, 4))),
                "labels": [*generator.choice(["sea", "cat"], generator.integers(0, 2))],
            }
            for _ in range(count)
        ]
        codes = {side: made_up_codes(count, BITS, seed=7 * seed + number + 100 * (side == "text")) for side in SIDES}
        held = {side: generator.random(count) < 0.8 for side in SIDES}
        held["text"] |= ~held["image"]
        stores = {}
        for side in SIDES:
            manifest = IndexManifest(MODEL, BITS, side, silo=name, analysis=ENGLISH)
            stores[side] = Store.create(tmp_path / f"{name}-{side}.sqlite", manifest)
            kept = np.flatnonzero(held[side])
            stores[side].add([ids[row] for row in kept], codes[side][kept], [json.dumps(payloads[row]) for row in kept])
        nodes.append(SiloNode(name, stores, policies[number]))
        rows += [
            (name, ids[row], payloads[row], {side: codes[side][row] for side in SIDES if held[side][row]})
            for row in range(count)
        ]
    return nodes, rows


def terms_of(name, payload):
    """Returns all terms of an item, by reading its payload."""
    labels = (term for label in payload.get("labels", ()) for term in analyze(label, ENGLISH))
    return {*analyze(name, ENGLISH), *analyze(payload.get("caption", ""), ENGLISH), *labels}


def tier_and_words(text, name, payload):
    """Returns the tier of an item and the number of different words of a text that it has, by reading its payload."""
    wanted, caption = analyze(text, ENGLISH), analyze(payload.get("caption", ""), ENGLISH)
    held = terms_of(name, payload)
    count = len(held.intersection(wanted))
    if name == text or (caption and caption == wanted):
        return 0, count
    return (1 if wanted and count == len(set(wanted)) else 2), count


@pytest.mark.parametrize("asked", [{}, {"label": "sea"}, {"radius_bits": 3}, {"target": "text"}], ids=str)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("text", [*TEXTS, *EXCLUDING])
def test_words_come_first_in_one_order_for_all_silos(tmp_path, text, seed, asked):
    """Of silos with different policies too: each matches and excludes words in the fields that it releases only."""
    policies = [Policy(), Policy(fields=("labels",)), Policy(max_near_queries=1000)]
    nodes, rows = worded_silos(tmp_path, seed, policies)
    code = made_up_codes(1, BITS, seed=50 + seed)[0]
    query = {"words": code, "bits": BITS, "model_digest": MODEL, "source": "text", "own_text": text, **asked}
    expected = []
    for silo, name, payload, codes in rows:
        policy = policies[int(silo[-1])]
        searched, *excluded = text.replace('"', "").split(" -") if text in EXCLUDING else [text]
        searched, excluded = ("", [searched[1:]]) if searched.startswith("-") else (searched, excluded)
        released = policy.released(payload)
        if any({*analyze(word, ENGLISH)} <= terms_of(name, released) for word in excluded):
            continue
        if asked.get("label", "sea") not in (*payload["labels"], *(() if "label" in asked else ("sea",))):
            continue
        distances = [
            int(differing(code, Query(**query)).sum())
            for side, code in codes.items()
            if asked.get("target", "item") in ("item", side)
        ]
        tier, count = tier_and_words(searched, name, released)
        farthest = asked.get("radius_bits", BITS)
        # A silo that limits what answers tell of codes states one distance for all that words find, and no words of others.
        limited = policy.max_near_queries is not None
        hidden, count = limited and tier < 2, 0 if limited and tier == 2 else count
        if distances and (hidden or min(distances) <= farthest):
            distance = farthest if hidden else min(distances)
            equal = int(tie_order([silo], [name], question_key(SECRET, [code]))[0])
            expected.append((tier, distance, -count, equal, silo, name))
    expected.sort()
    found = []
    for offset in range(0, len(expected) + 7, 7):
        hits = ask(nodes, Query(**query, k=7, offset=offset), secret=SECRET)
        found += zip(
            hits.in_tiers, hits.distances, map(int.bit_count, hits.held_words), hits.silos, hits.ids, strict=True
        )
        last = [row[:2] for row in expected[offset : offset + 7]][-1:]
        [ties] = [sum(row[:2] == place for row in expected[offset + 7 :]) for place in last or [()]]
        # A silo that limits what answers tell of codes filters what it found, and does not count the others.
        assert hits.ties_at_cut <= ties if text in EXCLUDING or "label" in asked else hits.ties_at_cut == ties
    assert found == [(tier, distance, -count, silo, name) for tier, distance, count, _, silo, name in expected]


MUSEUMS = ("Louvre", "Prado", "")


def silos_with_columns(tmp_path, seed, policies):
    """Returns silos with both sides of items, labels and columns, and a row per item: silo, id, payload, codes, position.

    The position is the number of items that were indexed before it, by side. Half of the years are stated as dates.
    """
    generator = np.random.default_rng(seed)
    nodes, rows = [], []
    for number, count in enumerate(generator.integers(20, 60, 3)):
        name = f"silo{number}"
        codes = {side: made_up_codes(count, BITS, seed=7 * seed + number + 100 * (side == "text")) for side in SIDES}
        held = {side: generator.random(count) < 0.8 for side in SIDES}
        held["text"] |= ~held["image"]
        years = [f"{year}-0{year % 7 + 1}" if year % 2 else str(year) for year in generator.integers(1990, 2000, count)]
        payloads = [
            {
                "labels": [*generator.choice(["sea", "cat", "old"], generator.integers(0, 3), replace=False)],
                "columns": {"museum": str(generator.choice(MUSEUMS)), "year": years[row]},
            }
            for row in range(count)
        ]
        stores = {}
        for side in SIDES:
            stores[side] = Store.create(tmp_path / f"{name}-{side}.sqlite", IndexManifest(MODEL, BITS, side, silo=name))
            kept = np.flatnonzero(held[side])
            texts = [json.dumps(payloads[row]) for row in kept]
            stores[side].add([f"{name}-{row}" for row in kept], codes[side][kept], texts)
        nodes.append(SiloNode(name, stores, policies[number], prepared=number == 0))
        rows += [
            (
                name,
                f"{name}-{row}",
                payloads[row],
                {side: codes[side][row] for side in SIDES if held[side][row]},
                {side: int(held[side][:row].sum()) for side in SIDES if held[side][row]},
            )
            for row in range(count)
        ]
    return nodes, rows


FILTERS = {
    "museum=Louvre": lambda payload: payload["columns"]["museum"] == "Louvre",
    "museum!=Louvre,Prado": lambda payload: payload["columns"]["museum"] == "",
    "year>=1995": lambda payload: int(payload["columns"]["year"][:4]) >= 1995,
    "year<1995-03": lambda payload: payload["columns"]["year"] < "1995-03",
    "labels=sea,cat": lambda payload: {"sea", "cat"} & {*payload["labels"]},
    "labels=old": lambda payload: "old" in payload["labels"],
}
WHERE = [["museum=Louvre"], ["year>=1995", "labels=sea,cat"], ["museum!=Louvre,Prado", "labels=old"], ["year<1995-03"]]
RELEASING = Policy(columns=("museum", "year"))


def counted(rows, column):
    """Returns the number of rows with each value of a column, the most frequent values first."""
    values = {
        "silo": lambda row: [row[0]],
        "labels": lambda row: row[2]["labels"],
        "museum": lambda row: [row[2]["columns"]["museum"]],
    }[column]
    counts = Counter(value for row in rows for value in values(row) if value)
    return dict(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:2])


def passing_rows(rows, where):
    return [row for row in rows if all(FILTERS[condition](row[2]) for condition in where)]


@pytest.mark.parametrize("asked", [{}, {"label": "sea"}, {"target": "text"}, {"radius_bits": 3}], ids=str)
@pytest.mark.parametrize("where", WHERE, ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_filters_and_counts_are_those_of_one_index(tmp_path, seed, where, asked):
    nodes, rows = silos_with_columns(tmp_path, seed, [RELEASING] * 3)
    query = {"words": made_up_codes(1, BITS, seed=50 + seed)[0], "bits": BITS, "model_digest": MODEL, **asked}
    query |= {"where": where, "facets": ("silo", "labels", "museum"), "facet_values": 2}
    passing = [row for row in passing_rows(rows, where) if "label" not in asked or asked["label"] in row[2]["labels"]]
    sides = SIDES if asked.get("target", "item") == "item" else (asked["target"],)
    passing = [row for row in passing if {*sides} & row[3].keys()]
    expected = []
    for silo, name, _, codes, _ in passing:
        distance = min(int(differing(code, Query(**query)).sum()) for side, code in codes.items() if side in sides)
        if distance <= asked.get("radius_bits", BITS):
            equal = int(tie_order([silo], [name], question_key(SECRET, [query["words"]]))[0])
            expected.append((distance, equal, silo, name))
    found = []
    for offset in range(0, len(expected) + 7, 7):
        hits = ask(nodes, Query(**query, k=7, offset=offset), secret=SECRET)
        found += zip(hits.distances, hits.silos, hits.ids, strict=True)
        assert hits.facets == {name: counted(passing, name) for name in query["facets"]}
        assert not hits.missing_silos
        assert not hits.limited_silos
    assert found == [(distance, silo, name) for distance, _, silo, name in sorted(expected)]
    wire = WireBus(BytesInThreads.of(*nodes))
    queries = dict.fromkeys([node.name for node in nodes], Query(**query, k=9))
    assert asyncio.run(merge.ask(wire, queries, deadline_seconds=60)) == ask(nodes, queries)


@pytest.mark.parametrize("newest_by", [None, "year"])
@pytest.mark.parametrize("target", ["item", "image"])
@pytest.mark.parametrize("where", [[], *WHERE], ids=str)
@pytest.mark.parametrize("seed", range(2))
def test_lists_from_new_to_old_are_those_of_one_index(tmp_path, seed, where, target, newest_by):
    nodes, rows = silos_with_columns(tmp_path, seed, [RELEASING] * 3)
    sides = SIDES if target == "item" else (target,)
    passing = [row for row in passing_rows(rows, where) if {*sides} & row[3].keys()]
    expected = []
    for silo, name, payload, _, positions in passing:
        # By order of indexing, an item has the number of items of its silo that pass and were indexed later.
        newer = [
            sum(other[0] == silo and other[4].get(side, -1) > place for other in passing)
            for side, place in positions.items()
            if side in sides
        ]
        year, _, month = payload["columns"]["year"].partition("-")
        age = min(newer) if newest_by is None else [-int(year), -int(month or 1)]
        expected.append((age, int(tie_order([silo], [name], question_key(b"", ()))[0]), silo, name))
    expected.sort()
    found = []
    for offset in range(0, len(expected) + 7, 7):
        request = Browse(where=where, target=target, k=7, offset=offset, newest_by=newest_by, facets=("silo",))
        hits = now(merge.ask_newest(LocalBus(nodes), [n.name for n in nodes], request, deadline_seconds=60))
        found += zip(hits.silos, hits.ids, strict=True)
        assert (hits.order, {*hits.distances} - {None}, hits.ties_at_cut) == ("newest", set(), 0)
        assert (hits.facets or {})["silo"] == Counter(row[0] for row in passing)
    assert found == [(silo, name) for _, _, silo, name in expected]
    wire, request = WireBus(BytesInThreads.of(*nodes)), replace(request, offset=0)
    sent = asyncio.run(merge.ask_newest(wire, [n.name for n in nodes], request, deadline_seconds=60))
    assert (sent.silos, sent.ids) == (tuple(s for s, _ in found[:7]), tuple(n for _, n in found[:7]))
