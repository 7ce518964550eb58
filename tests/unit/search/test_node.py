"""A silo's node: what it refuses, its policy's limits, its ties, changes to its store, its items, codes and summary."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from silohash.base.errors import NotFound, NotPermitted, NotSearchable
from silohash.index.base import IndexManifest
from silohash.index.codes import from_bytes, pack, to_bytes
from silohash.index.config import IndexConfig
from silohash.index.preview import make_preview, preview_url
from silohash.index.store import Store
from silohash.search import browse
from silohash.search.ledger import Ledger, noised
from silohash.search.node import SiloNode
from silohash.search.order import tie_order
from silohash.search.policy import Policy
from silohash.search.reasons import kind_of
from silohash.search.requests import MOST_EXAMPLES, Browse, Item
from tests.silos import MODEL, made_up_codes, made_up_node, made_up_store, query_of

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
    assert second.limited_silos == {"north": "It limits results to 15 per query."}


def test_policy_limits_distance(tmp_path):
    node = made_up_node(tmp_path, "north", WORDS, BITS, Policy(max_distance_bits=2))
    hits = node.answer(query_of(WORDS, BITS, k=200))
    assert 0 < len(hits) < 200
    assert max(hits.distances) == 2
    assert hits.limited_silos == {"north": "It limits results to a distance of 2 bits."}
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


def test_refusals_name_their_reason(tmp_path):
    node = made_up_node(tmp_path, "north", WORDS, BITS)
    query = query_of(WORDS, BITS)
    closed = SiloNode("south", {"image": node._loaded["image"].store}, Policy(modalities=("text",)))
    assert "does not allow searching for images" in closed.answer(query).missing_silos["south"]
    assert "does not have images" in SiloNode("east", {}).answer(query).missing_silos["east"]
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


def test_additions_and_removals_by_another_program_are_seen(tmp_path):
    node = made_up_node(tmp_path, "north", WORDS, BITS)
    query = query_of(WORDS, BITS, k=200)
    before = node.answer(query)
    with Store(node._loaded["image"].store.path) as other:
        other.remove([before.ids[0]])
        other.add(["new"], WORDS[:1], [json.dumps({"caption": "new"})])
        other.compact()
    after = node.answer(query)
    assert before.ids[0] not in after.ids
    assert "new" in after.ids[:20]
    assert len(after) == 200


def node_at(tmp_path, distances, policy=None, **extra):
    """Return a node whose items lie at the given distances from the code 0; item "3" is the fourth."""
    tmp_path.mkdir(exist_ok=True)
    store = Store.create(tmp_path / "image.sqlite", IndexManifest(model_digest=MODEL, bits=BITS, modality="image"))
    words = np.array([[(1 << distance) - 1] for distance in distances], np.uint16)
    payloads = [json.dumps({"caption": str(d), "labels": ["even"] if d % 2 == 0 else []}) for d in distances]
    store.add([str(row) for row in range(len(distances))], words, payloads, **extra)
    return SiloNode("north", {"image": store}, policy)


ZERO = np.zeros((1, 1), np.uint16)


@pytest.mark.parametrize(
    ("policy", "asked", "distances", "limit"),
    [
        ({}, {"k": 3}, (0, 1, 2), ""),
        ({"max_results": 1}, {"k": 1}, (0,), ""),
        ({"max_results": 1}, {"k": 2}, (0,), "to 1 per query"),
        ({"max_results": 5}, {"k": 9}, (0, 1, 2, 3), ""),
        ({"max_distance_bits": 2}, {"k": 3}, (0, 1, 2), ""),
        ({"max_distance_bits": 2}, {"k": 4}, (0, 1, 2), "of 2 bits"),
        ({"max_distance_bits": 2}, {"k": 4, "radius_bits": 3}, (0, 1, 2), "of 2 bits"),
        ({"max_distance_bits": 2}, {"k": 4, "radius_bits": 2}, (0, 1, 2), ""),
        ({"max_distance_bits": 2}, {"k": 4, "radius_bits": 1}, (0, 1), ""),
        ({"max_distance_bits": 0}, {"k": 4}, (0,), "of 0 bits"),
        ({}, {"k": 4, "radius_bits": 0}, (0,), ""),
    ],
)
def test_limits_computed_by_hand(tmp_path, policy, asked, distances, limit):
    node = node_at(tmp_path, [0, 1, 2, 3], Policy(**policy))
    hits = node.answer(query_of(ZERO, BITS, **asked))
    assert hits.distances == distances
    assert limit in hits.limited_silos.get("north", "")
    assert bool(hits.limited_silos) is bool(limit)


def test_a_label_selects_the_items_that_are_searched(tmp_path):
    node = node_at(tmp_path, [0, 1, 2, 2, 3, 4])
    query = query_of(ZERO, BITS, k=2, label="even")
    hits = node.answer(query)
    assert hits.distances == (0, 2)
    assert hits.left_out == {2: 1}
    assert node.answer(replace(query, k=9)).distances == (0, 2, 2, 4)
    assert len(node.answer(replace(query, label="odd"))) == 0
    assert (hits.searched, node.answer(replace(query, label=None)).searched) == (4, 6)
    # A limited silo compares all items, and filters those that it found.
    limited = node_at(tmp_path / "limited", [0, 1, 2, 2, 3, 4], Policy(rank_only=True)).answer(query)
    assert (len(limited), limited.searched) == (2, 6)


def test_labels_that_are_not_released_cannot_be_filtered_by(tmp_path):
    node = node_at(tmp_path, [0, 1], Policy(fields=("caption",)))
    hits = node.answer(query_of(ZERO, BITS, label="even"))
    assert 'does not release "labels"' in hits.missing_silos["north"]


def test_previews_are_released_when_requested_and_allowed(tmp_path):
    picture = make_preview(Image.new("L", (8, 8)))
    for number, (policy, previews, sent) in enumerate(
        [(Policy(), True, True), (Policy(), False, False), (Policy(fields=("caption",)), True, False)]
    ):
        node = node_at(tmp_path / str(number), [0, 1], policy, previews=[picture, None])
        first, second = node.answer(query_of(ZERO, BITS, k=2, previews=previews)).payloads
        assert first.get("preview") == (preview_url(picture) if sent else None)
        assert "preview" not in second


def test_previews_of_hits_only_are_read(tmp_path, monkeypatch):
    picture = make_preview(Image.new("L", (8, 8)))
    node = node_at(tmp_path, [1] * 300, previews=[picture] * 300)
    read = []
    previews = Store.previews
    monkeypatch.setattr(Store, "previews", lambda self, ids: read.extend(ids) or previews(self, ids))
    hits = node.answer(query_of(ZERO, BITS, k=4, previews=True))
    assert read == list(hits.ids)
    assert len(read) == 4


def test_text_hits_show_the_preview_that_the_image_index_holds(tmp_path):
    picture = make_preview(Image.new("L", (8, 8)))
    image = node_at(tmp_path, [0, 1], previews=[picture, None])._loaded["image"].store
    text = Store.create(tmp_path / "text.sqlite", IndexManifest(model_digest=MODEL, bits=BITS, modality="text"))
    text.add(["0", "1"], ZERO.repeat(2, axis=0))
    node = SiloNode("north", {"text": text, "image": image})
    hits = node.answer(replace(query_of(ZERO, BITS, previews=True), target="text"))
    assert {name for name, payload in zip(hits.ids, hits.payloads, strict=True) if "preview" in payload} == {"0"}


def node_of_both(folder, image, text, policy=None, **given):
    """Return a node whose pictures and texts lie at the given distances from the code 0, by id."""
    stores = {}
    for modality, distances in (("image", image), ("text", text)):
        stores[modality] = Store.create(folder / f"{modality}.sqlite", IndexManifest(MODEL, BITS, modality))
        words = np.array([[(1 << distance) - 1] for distance in distances.values()], np.uint16).reshape(-1, 1)
        payloads = [json.dumps({"caption": f"{modality} of {name}", "labels": [name]}) for name in distances]
        stores[modality].add(list(distances), words, payloads)
    return SiloNode("north", stores, policy, **given)


def items(**asked):
    return replace(query_of(ZERO, BITS, **asked), target="item")


def test_items_are_found_by_the_nearer_of_their_codes(tmp_path):
    node = node_of_both(tmp_path, {"a": 1, "b": 4, "c": 2}, {"b": 0, "a": 3, "d": 2, "c": 2})
    hits = node.answer(items(k=2))
    assert (hits.ids, hits.distances, hits.found_by) == (("b", "a"), (0, 1), (("text",), ("image",)))
    assert [payload["caption"] for payload in hits.payloads] == ["text of b", "image of a"]
    hits = node.answer(items(k=3))
    assert hits.left_out == {2: 1}
    everything = {hit.id: hit.found_by for hit in node.answer(items(k=9))}
    assert everything == {"b": ("text",), "a": ("image",), "c": ("image", "text"), "d": ("text",)}
    assert node.answer(items(k=9, radius_bits=1)).ids == ("b", "a")
    assert node.answer(items(k=9, label="d")).ids == ("d",)
    assert node.answer(query_of(ZERO, BITS)).found_by == (("image",),) * 3


def test_limits_apply_to_items(tmp_path):
    pictures, texts = {"a": 1, "b": 4, "c": 2}, {"b": 0, "a": 3}
    node = node_of_both(tmp_path / "a", pictures, texts, Policy(max_results=2))
    assert node.answer(items(k=5)).ids == ("b", "a")
    assert node.answer(items(k=5)).limited_silos == {"north": "It limits results to 2 per query."}
    near = node_of_both(tmp_path / "b", pictures, texts, Policy(max_distance_bits=1)).answer(items(k=5))
    assert near.distances == (0, 1)


def test_items_of_a_silo_with_one_usable_side(tmp_path):
    pictures, texts = {"a": 1, "b": 4}, {"b": 0, "a": 3}
    hits = node_of_both(tmp_path / "a", pictures, texts, Policy(modalities=("image",), max_results=1)).answer(items())
    assert (hits.ids, hits.found_by) == (("a",), (("image",),))
    reason = "It searched its images only. Its policy does not allow searching for texts."
    assert hits.limited_silos == {"north": f"{reason} It limits results to 1 per query."}
    image = node_of_both(tmp_path / "b", pictures, texts)._loaded["image"].store
    assert SiloNode("north", {"image": image}).answer(items()).limited_silos == {}
    without = SiloNode("north", {"image": image}, unusable={"text": "The file is damaged."}).answer(items())
    assert without.limited_silos == {"north": "It searched its images only. The file is damaged."}
    closed = SiloNode("north", {"image": image}, Policy(modalities=())).answer(items())
    assert "searching for images. Its policy does not allow searching for texts" in closed.missing_silos["north"]
    gone = dict.fromkeys(("image", "text"), "It is not indexed.")
    assert SiloNode("east", {}, unusable=gone).answer(items()).missing_silos == {"east": "It is not indexed."}


def test_an_item_that_was_removed_is_found_by_neither_code(tmp_path):
    node = node_of_both(tmp_path, {"a": 1, "b": 4}, {"b": 0, "a": 3})
    assert node.answer(items(k=9)).ids == ("b", "a")
    for modality in ("image", "text"):
        with Store(tmp_path / f"{modality}.sqlite") as other:
            other.remove(["b"])
    assert node.answer(items(k=9)).ids == ("a",)


def test_captions_are_those_that_the_policy_releases(tmp_path):
    assert node_at(tmp_path / "a", [3, 1, 2]).captions(2) == ["3", "1"]
    assert node_at(tmp_path / "b", [3], Policy(fields=("labels",))).captions(2) == []


def test_the_digest_is_that_of_the_stores_model(tmp_path):
    assert node_at(tmp_path, [0]).model_digest == MODEL


def test_an_index_that_cannot_be_searched_is_a_reason_and_not_an_error(tmp_path):
    query = query_of(WORDS, BITS)
    gone = SiloNode("south", {}, unusable={"image": "It was deleted."})
    assert gone.answer(query).missing_silos == {"south": "It was deleted."}
    assert not gone.warm_up()
    with pytest.raises(NotSearchable):
        _ = gone.model_digest
    with pytest.raises(NotSearchable):
        _ = SiloNode("south", {}).model_digest
    damaged = made_up_store(tmp_path / "image.sqlite", WORDS, BITS)
    damaged._database.connection.execute("UPDATE log SET checksum = 7")
    node = SiloNode("east", {"image": damaged})
    assert "log entry 1 is wrong" in node.answer(query).missing_silos["east"]
    damaged.close()


def test_only_an_index_with_items_can_be_warmed_up(tmp_path):
    assert made_up_node(tmp_path, "north", WORDS, BITS).warm_up()
    assert not made_up_node(tmp_path, "south", WORDS[:0], BITS).warm_up()


def test_a_prepared_node_gives_the_same_answers(tmp_path, monkeypatch):
    monkeypatch.setattr("silohash.search.loaded_index.SMALL_ITEMS_IF_PREPARED", 1)
    plain = node_of_both(tmp_path, {"a": 1, "b": 4, "c": 2}, {"b": 0, "a": 3, "d": 2, "c": 2})
    stores = {modality: loaded.store for modality, loaded in plain._loaded.items()}
    node = SiloNode("north", stores, prepared=True)
    node.prepare()
    assert type(node._loaded["text"].index).__name__ == "FlatIndex"
    queries = [items(**asked) for asked in ({"k": 2}, {"k": 9}, {"k": 9, "label": "d"})]
    expected = [plain.answer(query) for query in queries]
    monkeypatch.setattr(Store, "item_ids", lambda self, keys: pytest.fail("ids were read"))
    assert [node.answer(query) for query in queries] == expected
    SiloNode("east", {}, prepared=True).prepare()


def test_an_index_that_cannot_be_read_is_no_error_of_preparation(tmp_path):
    store = made_up_store(tmp_path / "image.sqlite", WORDS, BITS)
    store._database.connection.execute("UPDATE items SET checksum = 7")
    node = SiloNode("east", {"image": store}, prepared=True)
    node.prepare()
    assert "checksum of item" in node.answer(query_of(WORDS, BITS)).missing_silos["east"]


@pytest.mark.parametrize(("removals", "answered"), [(1, True), (2, True), (3, False)])
def test_an_item_that_is_removed_during_a_query(tmp_path, monkeypatch, removals, answered):
    node = made_up_node(tmp_path, "north", WORDS, BITS)
    query = query_of(WORDS, BITS, k=3)
    rows, left = Store.rows, [removals]

    def removing(self, keys):
        if left[0]:
            left[0] -= 1
            with Store(self.path) as other:
                other.remove([str(keys[0])])
        return rows(self, keys)

    monkeypatch.setattr(Store, "rows", removing)
    hits = node.answer(query)
    assert (len(hits) == 3) is answered
    assert ("no item with key" in hits.missing_silos.get("north", "")) is not answered


def test_large_silos_get_a_thread_of_their_own(tmp_path, monkeypatch):
    node = made_up_node(tmp_path, "north", WORDS, BITS)
    monkeypatch.setattr("silohash.search.node.QUICK_ITEMS", 200)
    assert node.quick
    monkeypatch.setattr("silohash.search.node.QUICK_ITEMS", 199)
    assert not node.quick


def test_a_silo_on_a_server_is_asked_in_a_thread_of_its_own() -> None:
    node = SiloNode("north", {})
    assert node.quick
    assert SiloNode("north", {}, backend=IndexConfig(backend="faiss")).quick
    assert not SiloNode("north", {}, backend=IndexConfig(backend="pgvector")).quick


def test_rounded_distances_order_and_choose_the_items(tmp_path):
    node = node_at(tmp_path, [0, 1, 2, 3, 4, 5, 6, 7], Policy(distance_step_bits=4))
    hits = node.answer(query_of(ZERO, BITS, k=8))
    assert hits.distances == (1, 1, 1, 1, 5, 5, 5, 5)
    order = tie_order(["north"] * 8, list(map(str, range(8))), b"")
    expected = [*sorted(range(4), key=lambda row: order[row]), *sorted(range(4, 8), key=lambda row: order[row])]
    assert hits.ids == tuple(map(str, expected))
    for k in range(1, 8):
        fewer = node.answer(query_of(ZERO, BITS, k=k))
        assert fewer.ids == hits.ids[:k]
        assert fewer.left_out == ({} if k == 4 else {hits.distances[k - 1]: (4 if k < 4 else 8) - k})


@pytest.mark.parametrize(("radius_bits", "count"), [(0, 4), (3, 4), (4, 8), (7, 8), (8, 9)])
def test_a_radius_reveals_no_more_than_rounded_distances(tmp_path, radius_bits, count):
    node = node_at(tmp_path, [0, 1, 2, 3, 4, 5, 6, 7, 8], Policy(distance_step_bits=4))
    hits = node.answer(query_of(ZERO, BITS, k=20, radius_bits=radius_bits))
    assert len(hits) == count
    assert max(hits.distances) <= radius_bits


def test_rounded_distances_of_items_with_two_codes(tmp_path):
    node = node_of_both(tmp_path, {"a": 1, "b": 6}, {"b": 2, "a": 5, "d": 3}, Policy(distance_step_bits=2))
    hits = {hit.id: hit.distance_bits for hit in node.answer(items(k=9))}
    assert hits == {"a": 0, "b": 2, "d": 2}


def test_a_silo_that_rounds_by_the_whole_code_is_not_before_others(tmp_path):
    hits = node_at(tmp_path, [3, 9], Policy(distance_step_bits=BITS)).answer(query_of(ZERO, BITS, k=2))
    assert hits.distances == ((BITS - 1) // 2,) * 2


def test_the_limit_of_the_policy_is_that_of_exact_distances(tmp_path):
    node = node_at(tmp_path, [0, 4, 5, 6], Policy(distance_step_bits=4, max_distance_bits=5))
    assert node.answer(query_of(ZERO, BITS, k=9)).distances == (1, 5, 5)


def test_items_that_are_not_approved_are_withheld_and_counted(tmp_path):
    path = tmp_path / "approved.txt"
    node = node_at(tmp_path, [0, 1, 2, 3], Policy(approve=path))
    nothing = node.answer(query_of(ZERO, BITS, k=3))
    assert (nothing.ids, nothing.answered) == ((), True)
    assert nothing.limited_silos == {"north": "It withheld 3 of the nearest items, which are not approved."}
    assert node.captions(9) == []
    path.write_text("1\n3\n")
    some = node.answer(query_of(ZERO, BITS, k=3))
    assert (some.ids, some.distances, len(some.payloads), some.found_by) == (("1",), (1,), 1, (("image",),))
    assert "withheld 2" in some.limited_silos["north"]
    path.write_text("0\n1\n2\n3\n4\n")
    assert node.answer(query_of(ZERO, BITS, k=3)).limited_silos == {}


def test_each_asker_has_limits(tmp_path):
    node = node_at(tmp_path, [0], Policy(max_queries_per_day=2))
    answers = [node.answer(query_of(ZERO, BITS, asker=asker)) for asker in ("ann", "ann", "bob", "ann")]
    assert [len(hits) for hits in answers] == [1, 1, 1, 0]
    assert "2 queries per day" in answers[3].missing_silos["north"]


PICTURE = b"\x89PNG\r\n\x1a\nx"
SIGNS = [[1] * BITS, [-1] * BITS, [1, -1] * (BITS // 2)]


@pytest.fixture
def stores(tmp_path: Path) -> dict[str, Store]:
    """Pictures of "a" and "b", and texts of "b" and "c"."""
    found = {}
    for modality, names in (("image", "ab"), ("text", "bc")):
        store = Store.create(tmp_path / f"{modality}.sqlite", IndexManifest("m", BITS, modality, silo="north"))
        payloads = [json.dumps({"caption": f"item {name}", "labels": [name], "owner": "x"}) for name in names]
        signs = SIGNS[:2] if modality == "image" else SIGNS[1:][::-1]
        store.add(list(names), pack(signs), payloads, [PICTURE, None] if modality == "image" else None)
        found[modality] = store
    return found


def test_an_item_has_the_released_fields_and_its_modalities(stores: dict[str, Store]) -> None:
    node = SiloNode("north", stores)
    payload = {"caption": "item a", "labels": ["a"], "preview": preview_url(PICTURE)}
    assert node.item("a") == Item(id="a", silo="north", modalities=("image",), payload=payload)
    b = node.item("b")
    assert (b.modalities, b.payload) == (("image", "text"), {"caption": "item b", "labels": ["b"]})
    assert node.item("c").modalities == ("text",)
    with pytest.raises(NotFound, match='The silo north does not have an item "d"'):
        node.item("d")
    node = SiloNode("north", stores, Policy(fields=("labels",), modalities=("text",)))
    b = node.item("b")
    assert (b.modalities, b.payload) == (("text",), {"labels": ["b"]})
    with pytest.raises(NotFound):
        node.item("a")
    with pytest.raises(NotSearchable, match=r"^Its policy does not allow"):
        SiloNode("north", stores, Policy(modalities=())).item("a")


def test_a_malformed_payload_gives_an_item_without_the_field() -> None:
    item = Item(id="a", payload={"caption": None, "labels": "ab", "preview": "javascript:alert(1)"})
    assert (item.caption, item.labels, item.preview_url, item.path) == ("", (), None, None)


def test_the_code_of_an_item(stores: dict[str, Store]) -> None:
    node = SiloNode("north", stores)
    codes = {(name, by): node.code(name, by) for name, by in (("a", None), ("b", None), ("b", "text"), ("c", None))}
    assert {key: code.words.tolist() for key, code in codes.items()} == {
        ("a", None): pack([SIGNS[0]])[0].tolist(),
        ("b", None): pack([SIGNS[1]])[0].tolist(),
        ("b", "text"): pack([SIGNS[2]])[0].tolist(),
        ("c", None): pack([SIGNS[1]])[0].tolist(),
    }
    assert [code.modality for code in codes.values()] == ["image", "image", "text", "text"]
    assert {(code.bits, code.model_digest) for code in codes.values()} == {(BITS, "m")}
    with pytest.raises(NotFound, match='does not have the code of a picture for the item "c"'):
        node.code("c", "image")
    with pytest.raises(NotFound, match='does not have a code for the item "d"'):
        node.code("d")


def test_the_summary_of_a_silo(stores: dict[str, Store]) -> None:
    status = SiloNode("north", stores).status()
    assert (status.items, status.model_digest, status.labels) == ({"image": 2, "text": 2}, "m", {"a": 1, "b": 1})
    assert [item.id for item in status.examples] == ["a", "b"]
    assert (status.reachable, status.reason) == (True, "")
    limited = SiloNode("north", stores, Policy(fields=("caption",), modalities=("text",))).status()
    assert (limited.items, limited.labels, limited.fields) == ({"text": 2}, {}, ("caption",))
    assert limited.reason == "Its policy does not allow searching for images."
    lost = SiloNode("north", {}, unusable={"image": "It is damaged."}).status()
    assert (lost.reachable, lost.items, lost.model_digest) == (False, {}, "")
    assert "It is damaged." in lost.reason


def test_a_summary_has_the_most_frequent_labels(stores: dict[str, Store], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("silohash.search.summary.MOST_SUMMARY_LABELS", 2)
    payloads = [json.dumps({"labels": labels}) for labels in (["c", "d"], ["d"], ["c"])]
    stores["image"].add(["x", "y", "z"], pack(SIGNS), payloads)
    assert SiloNode("north", stores).status().labels == {"c": 2, "d": 2}


def test_a_summary_names_labels_of_approved_items_only(stores: dict[str, Store], tmp_path: Path) -> None:
    approved = tmp_path / "approved.txt"
    stores["image"].add(["x", "y"], pack(SIGNS[:2]), [json.dumps({"labels": ["a", "secret"]}), json.dumps({})])
    node = SiloNode("north", stores, Policy(approve=approved))
    assert node.status().labels == {}
    approved.write_text("b\nnone\nnothing\n")
    assert node.status().labels == {"b": 1}
    approved.write_text("a\nx\n")
    assert node.status().labels == {"a": 2, "secret": 1}


def test_examples_are_spread_over_the_index(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "text.sqlite", IndexManifest("m", BITS, "text"))
    names = [str(number) for number in range(10 * MOST_EXAMPLES)]
    store.add(names, pack([SIGNS[0]] * len(names)))
    status = SiloNode("north", {"text": store}).status()
    assert [item.id for item in status.examples] == names[5::10]


def test_items_that_are_not_approved_are_not_released(tmp_path):
    path = tmp_path / "approved.txt"
    path.write_text("1\n")
    node = made_up_node(tmp_path, "north", made_up_codes(5, 16, 1), 16, Policy(approve=path))
    assert node.item("1").modalities == ("image",)
    assert node.code("1").modality == "image"
    for request in (node.item, node.code):
        with pytest.raises(NotFound, match='"2"'):
            request("2")
    assert [item.id for item in node.status().examples] == ["1"]


def test_ranks_alone_are_released_without_anything_that_tells_a_distance(tmp_path):
    plain = node_at(tmp_path / "a", (3, 0, 5, 1))
    node = node_at(tmp_path / "b", (3, 0, 5, 1), Policy(rank_only=True))
    hits = node.answer(query_of(ZERO, BITS, k=3))
    assert hits.ids == plain.answer(query_of(ZERO, BITS, k=3)).ids == ("1", "3", "0")
    assert (hits.distances, hits.found, hits.left_out) == ((None,) * 3, ((),) * 3, {})
    assert hits.alterations == ("ranks",)
    assert "distances" in node.answer(query_of(ZERO, BITS, radius_bits=3)).missing_silos["north"]


def test_ties_of_ranks_are_ordered_by_a_key_that_the_hub_does_not_choose(tmp_path):
    node = node_at(tmp_path, (2,) * 30, Policy(rank_only=True))
    orders = {node.answer(query_of(ZERO, BITS, k=30, tie_key=key)).ids for key in (b"a", b"b")}
    assert len(orders) == 1
    assert orders != {node.answer(query_of(np.ones((1, 1), np.uint16), BITS, k=30)).ids}
    by_hub = tie_order(["north"] * 30, [str(row) for row in range(30)], b"a")
    assert orders != {tuple(str(row) for row in np.argsort(by_hub))}


def test_noise_changes_what_is_searched_and_every_code_that_leaves(tmp_path):
    ledger = Ledger(tmp_path / "ledger.sqlite")
    policy = Policy(code_noise=0.25)
    store = made_up_store(tmp_path / "a.index", WORDS, BITS)
    node = SiloNode("north", {"image": store}, policy, ledger=ledger)
    seen = from_bytes(noised(to_bytes(WORDS, BITS), BITS, share=0.25, secret=ledger.secret), BITS)
    assert (seen != WORDS).any()
    assert [node.code(str(row)).words.tolist() for row in range(200)] == seen.tolist()
    hits = node.answer(query_of(WORDS, BITS, k=200))
    assert hits.alterations == ("noised",)
    distances = np.bitwise_count(seen ^ WORDS[0]).sum(1)
    assert dict(zip(map(int, hits.ids), hits.distances, strict=True)) == dict(enumerate(distances.tolist()))
    store.add(["new"], WORDS[:1], [json.dumps({})])
    hits_now = node.answer(query_of(WORDS, BITS, k=201))
    added = dict(zip(hits_now.ids, hits_now.distances, strict=True))
    assert added["new"] == distances[0], "an equal code has equal noise, also if it is added later"
    again = SiloNode("north", {"image": Store(tmp_path / "a.index")}, policy, ledger=Ledger(tmp_path / "ledger.sqlite"))
    assert again.answer(query_of(WORDS, BITS, k=201)).distances == hits_now.distances, "a restart does not draw it anew"


@pytest.mark.parametrize(
    ("policy", "refused", "answered"),
    [
        ({"accept_codes": False}, ("code", "vector", None), ("text", "picture", "item")),
        ({"similar": False}, ("item",), ("text", "code", None)),
        ({}, (), ("text", "picture", "vector", "code", "item", None)),
    ],
)
def test_queries_are_refused_by_what_they_were_made_from(tmp_path, policy, refused, answered):
    node = node_at(tmp_path, (0, 1), Policy(**policy))
    assert all(node.answer(query_of(ZERO, BITS, source=source)).missing_silos for source in refused)
    assert not any(node.answer(query_of(ZERO, BITS, source=source)).missing_silos for source in answered)
    if "item" in refused:
        with pytest.raises(NotPermitted, match="items like an item"):
            node.code("0")
    else:
        assert node.code("0").bits == BITS


def test_near_queries_are_limited_before_anything_is_released(tmp_path):
    node = node_at(tmp_path, (0, 1), Policy(max_near_queries=2, near_bits=4))
    codes = [np.array([[code]], np.uint16) for code in (0, 1, 3)]
    answers = [node.answer(query_of(code, BITS, asker="ann")) for code in (*codes, codes[0])]
    assert [len(hits) for hits in answers] == [2, 2, 0, 2]
    assert kind_of(answers[2].missing_silos["north"]) == "limited"
    assert not node.quick, "SQLite may wait, so it needs a thread of its own"


def test_codes_on_a_server_are_not_searched_without_their_noise(tmp_path):
    store = made_up_store(tmp_path / "a.index", WORDS, BITS)
    server = IndexConfig(backend="pgvector", url_env="NOT_SET")
    node = SiloNode("north", {"image": store}, Policy(code_noise=0.1), backend=server)
    assert "code_noise" in node.answer(query_of(WORDS, BITS)).missing_silos["north"]


COLUMNS = [{"columns": {"museum": "Louvre", "year": str(1900 + row)}, "labels": ["old"]} for row in range(6)]
RELEASING = Policy(columns=("museum", "year"))


def node_with_columns(tmp_path, policy=RELEASING, payloads=COLUMNS):
    store = Store.create(tmp_path / "image.sqlite", IndexManifest(MODEL, BITS, "image", silo="north"))
    words = np.arange(len(payloads), dtype=np.uint16)[:, None]
    store.add([f"item{row}" for row in range(len(payloads))], words, [json.dumps(payload) for payload in payloads])
    return SiloNode("north", {"image": store}, policy)


def test_a_search_filters_by_released_columns(tmp_path):
    node = node_with_columns(tmp_path)
    hits = node.answer(query_of(ZERO, BITS, where=["year>=1904"]))
    assert hits.ids == ("item4", "item5")
    assert [payload["columns"] for payload in hits.payloads] == [COLUMNS[4]["columns"], COLUMNS[5]["columns"]]
    assert node.answer(Browse(where=["year<1903"], k=2)).ids == ("item2", "item1")


@pytest.mark.parametrize("ask", [partial(query_of, ZERO, BITS), Browse])
def test_a_column_that_is_not_released_is_refused_whether_it_exists_or_not(tmp_path, ask):
    node = node_with_columns(tmp_path, Policy(columns=("museum", "missing")))
    for name in ("year", "nothing", "preview", "id"):
        reason = node.answer(ask(where=[f"{name}=1900"])).missing_silos["north"]
        assert reason == node.answer(ask(where=[f"{name}!=1900"])).missing_silos["north"]
        assert "does not release" in reason
    assert "None of its items" in node.answer(ask(where=["missing=1"])).missing_silos["north"]
    hits = node.answer(ask(facets=("year", "museum")))
    assert hits.facets == {"museum": {"Louvre": 6}}
    assert '"year"' in hits.limited_silos["north"]
    assert "columns" in node.answer(ask()).payloads[0]
    assert "year" not in node.answer(ask()).payloads[0]["columns"]


def test_the_order_of_a_list_needs_a_released_column(tmp_path):
    node = node_with_columns(tmp_path, Policy(columns=("museum",)))
    assert "does not release" in node.answer(Browse(newest_by="year")).missing_silos["north"]


def test_items_that_are_not_approved_do_not_even_count_in_a_filter(tmp_path):
    (tmp_path / "approved.txt").write_text("item1\nitem2")
    node = node_with_columns(tmp_path, replace(RELEASING, approve=tmp_path / "approved.txt"))
    filtered = {"where": ["year>=1902"], "facets": ("silo",)}
    for request in (query_of(ZERO, BITS, **filtered), Browse(**filtered)):
        hits = node.answer(request)
        assert (hits.ids, hits.facets) == (("item2",), {"silo": {"north": 1}})
        assert not hits.limited_silos
        assert not hits.left_out


@pytest.mark.parametrize(
    "limits",
    [{"distance_step_bits": 4}, {"code_noise": 0.1}, {"rank_only": True}, {"max_near_queries": 9}],
    ids=str,
)
def test_a_filter_of_a_silo_that_limits_information_chooses_among_what_it_would_release_anyway(tmp_path, limits):
    policy = replace(RELEASING, max_results=3, similar=False, **limits)
    node = node_with_columns(tmp_path, policy)
    everything = node.answer(query_of(ZERO, BITS, k=6))
    for where in ("year>=1904", "year<1904", "labels=old"):
        hits = node.answer(query_of(ZERO, BITS, where=[where], facets=("silo",), k=6))
        assert {*zip(hits.ids, hits.distances, strict=True)} <= {
            *zip(everything.ids, everything.distances, strict=True)
        }
        assert (hits.facets, hits.left_out) == ({}, {})
        assert "nearest 3 items" in hits.limited_silos["north"]
        assert "does not count" in hits.limited_silos["north"]
    assert len(node.answer(query_of(ZERO, BITS, label="old", k=6))) == len(everything) == 3


def test_a_silo_that_limits_distances_does_not_list_items(tmp_path):
    node = node_with_columns(tmp_path, replace(RELEASING, max_distance_bits=2))
    assert "near a query" in node.answer(Browse()).missing_silos["north"]
    assert node.answer(query_of(ZERO, BITS, where=["year>=1903"], facets=("silo",))).facets == {}


def test_a_list_counts_for_the_limits_of_the_asker(tmp_path):
    node = node_with_columns(tmp_path, replace(RELEASING, max_queries_per_minute=1, max_results=2))
    hits = node.answer(Browse(asker="ann"))
    assert hits.ids == ("item5", "item4")
    assert "2 per query" in hits.limited_silos["north"]
    assert kind_of(node.answer(Browse(asker="ann")).missing_silos["north"]) == "limited"


@pytest.mark.parametrize("ask", [partial(query_of, ZERO, BITS), Browse])
def test_values_of_all_items_are_counted_once(tmp_path, ask, monkeypatch):
    node, counts_in, counted = node_with_columns(tmp_path), browse.counts_in, []
    monkeypatch.setattr(browse, "counts_in", lambda *given: counted.append(given[2]) or counts_in(*given))
    first = node.answer(ask(facets=("museum",))).facets
    assert node.answer(ask(facets=("museum",))).facets == first == {"museum": {"Louvre": 6}}
    assert counted == [("museum",)]
    assert node.answer(ask(facets=("museum",), where=["year>=1904"])).facets == {"museum": {"Louvre": 2}}
    node.loaded("image").store.remove(["item0"])
    assert node.answer(ask(facets=("museum",))).facets == {"museum": {"Louvre": 5}}
    assert len(counted) == 3


def test_columns_follow_changes_of_the_store(tmp_path):
    node = node_with_columns(tmp_path)
    store = node.loaded("image").store
    assert node.answer(Browse(where=["museum=Prado"])).ids == ()
    payloads = [json.dumps({"columns": {"museum": "Prado"}})] * 2
    store.add(["item0", "new"], np.array([[0], [9]], np.uint16), payloads)
    assert node.answer(Browse(where=["museum=Prado"])).ids == ("new", "item0")
    store.remove(["new"])
    assert node.answer(Browse(facets=("museum",))).facets == {"museum": {"Louvre": 5, "Prado": 1}}
