"""The merged answer of silos is the answer of one index that holds everything.

The exception are silos that release ranks only (`rank_only`). Their items are merged by rank, see `silohash.search.merge`.
"""

from __future__ import annotations

import numpy as np
import pytest

from silohash.search.node import SiloNode
from silohash.search.order import question_key, tie_order
from silohash.search.policy import Policy
from tests.silos import MODEL, ask, distances_to, made_up_codes, made_up_node, query_of

SECRET = b"hub"


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
    query = query_of(made_up_codes(1, 64, seed=7), 64, k=20)
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
