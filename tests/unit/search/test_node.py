"""A silo's node: its checks, its policy, its ties, its changes."""

from __future__ import annotations

import json

import numpy as np
import pytest

from silohash.search.node import SiloNode
from silohash.search.policy import Policy
from silohash.types import UserError
from tests.silos import made_up_codes, made_up_node, query_of

BITS = 16
WORDS = made_up_codes(200, BITS, seed=1)


def test_policy_limits_results_over_all_pages(tmp_path):
    node = made_up_node(tmp_path, "north", WORDS, BITS, Policy(max_results=15))
    first = node.answer(query_of(WORDS, BITS, k=10))
    assert len(first) == 10
    assert not first.limited_silos
    second = node.answer(query_of(WORDS, BITS, k=10, offset=10))
    assert len(second) == 15
    assert second.ids[:10] == first.ids
    assert second.limited_silos == {"north": "It shows at most 15 items for one question."}


def test_policy_limits_distance(tmp_path):
    node = made_up_node(tmp_path, "north", WORDS, BITS, Policy(max_distance_bits=2))
    hits = node.answer(query_of(WORDS, BITS, k=200))
    assert 0 < len(hits) < 200
    assert max(hits.distances) == 2
    assert hits.limited_silos == {"north": "It shows no item farther than 2 bits."}
    asked = node.answer(query_of(WORDS, BITS, k=200, radius_bits=1))
    assert max(asked.distances) <= 1
    assert not asked.limited_silos


def test_policy_releases_fields(tmp_path):
    def payload(number, **limits):
        node = made_up_node(tmp_path, f"silo{number}", WORDS, BITS, Policy(**limits))
        hits = node.answer(query_of(WORDS, BITS, k=1))
        return hits.ids[0], hits.payloads[0]

    item, released = payload(0)
    assert released == {"caption": f"item {item}"}, "a field that no policy knows never leaves the silo"
    assert payload(1, fields=())[1] == {}
    assert payload(2, fields=("labels",))[1] == {}


@pytest.mark.parametrize(
    ("limits", "says"),
    [
        ({"max_results": 0}, "max_results is 0"),
        ({"max_distance_bits": -1}, "max_distance_bits is -1"),
        ({"fields": ("captions",)}, 'did you mean "caption"'),
        ({"modalities": ("sound",)}, 'modality "sound"'),
    ],
)
def test_impossible_policies(limits, says):
    with pytest.raises(UserError, match=says):
        Policy(**limits)


def test_refusals_name_their_reason(tmp_path):
    node = made_up_node(tmp_path, "north", WORDS, BITS)
    query = query_of(WORDS, BITS)
    closed = SiloNode("south", {"image": node._sides["image"].store}, Policy(modalities=("text",)))
    assert "does not let images be searched" in closed.answer(query).missing_silos["south"]
    assert "holds no image index" in SiloNode("east", {}).answer(query).missing_silos["east"]
    longer = query_of(made_up_codes(1, 32, seed=0), 32)
    assert "32" in node.answer(longer).missing_silos["north"]


def test_empty_store(tmp_path):
    node = made_up_node(tmp_path, "north", WORDS[:0], BITS)
    hits = node.answer(query_of(WORDS, BITS))
    assert len(hits) == 0
    assert not hits.missing_silos


def test_ties_at_the_cut_are_not_broken_by_the_order_in_the_store(tmp_path):
    node = made_up_node(tmp_path, "north", np.zeros((500, 1), np.uint16), BITS)
    hits = node.answer(query_of(np.zeros((1, 1), np.uint16), BITS, k=10))
    assert hits.left_out == {0: 490}
    assert max(int(item) for item in hits.ids) > 50, "the first ten of the store would be the order of insertion"


def test_refresh_sees_what_was_added_and_removed(tmp_path):
    node = made_up_node(tmp_path, "north", WORDS, BITS)
    store = node._sides["image"].store
    query = query_of(WORDS, BITS, k=200)
    before = node.answer(query)
    store.remove([before.ids[0]])
    store.add(["new"], WORDS[:1], [json.dumps({"caption": "new"})])
    node.refresh()
    after = node.answer(query)
    assert before.ids[0] not in after.ids
    assert "new" in after.ids[:20]
    assert len(after) == 200
