"""What a silo releases of one item, the item's code, and the summary of a silo."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from silohash.base.errors import NotFound, NotSearchable
from silohash.index.base import IndexManifest
from silohash.index.codes import pack
from silohash.index.preview import preview_url
from silohash.index.store import Store
from silohash.search.node import SiloNode
from silohash.search.policy import Policy
from silohash.search.released import MOST_EXAMPLES, Item, item_code, released_item, silo_status
from tests.silos import made_up_codes, made_up_node

BITS = 16
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
    assert released_item(node, "a") == Item(id="a", silo="north", modalities=("image",), payload=payload)
    b = released_item(node, "b")
    assert (b.modalities, b.payload) == (("image", "text"), {"caption": "item b", "labels": ["b"]})
    assert released_item(node, "c").modalities == ("text",)
    with pytest.raises(NotFound, match='The silo north does not have an item "d"'):
        released_item(node, "d")
    node = SiloNode("north", stores, Policy(fields=("labels",), modalities=("text",)))
    b = released_item(node, "b")
    assert (b.modalities, b.payload) == (("text",), {"labels": ["b"]})
    with pytest.raises(NotFound):
        released_item(node, "a")
    with pytest.raises(NotSearchable, match=r"^Its policy does not allow"):
        released_item(SiloNode("north", stores, Policy(modalities=())), "a")


def test_a_malformed_payload_gives_an_item_without_the_field() -> None:
    item = Item(id="a", payload={"caption": None, "labels": "ab", "preview": "javascript:alert(1)"})
    assert (item.caption, item.labels, item.preview_url, item.path) == ("", (), None, None)


def test_the_code_of_an_item(stores: dict[str, Store]) -> None:
    node = SiloNode("north", stores)
    codes = {
        (name, by): item_code(node, name, by) for name, by in (("a", None), ("b", None), ("b", "text"), ("c", None))
    }
    assert {key: code.words.tolist() for key, code in codes.items()} == {
        ("a", None): pack([SIGNS[0]])[0].tolist(),
        ("b", None): pack([SIGNS[1]])[0].tolist(),
        ("b", "text"): pack([SIGNS[2]])[0].tolist(),
        ("c", None): pack([SIGNS[1]])[0].tolist(),
    }
    assert [code.modality for code in codes.values()] == ["image", "image", "text", "text"]
    assert {(code.bits, code.model_digest) for code in codes.values()} == {(BITS, "m")}
    with pytest.raises(NotFound, match='does not have the code of a picture for the item "c"'):
        item_code(node, "c", "image")
    with pytest.raises(NotFound, match='does not have a code for the item "d"'):
        item_code(node, "d")


def test_the_summary_of_a_silo(stores: dict[str, Store]) -> None:
    status = silo_status(SiloNode("north", stores))
    assert (status.items, status.model_digest, status.labels) == ({"image": 2, "text": 2}, "m", {"a": 1, "b": 1})
    assert [item.id for item in status.examples] == ["a", "b"]
    assert (status.reachable, status.reason) == (True, "")
    limited = silo_status(SiloNode("north", stores, Policy(fields=("caption",), modalities=("text",))))
    assert (limited.items, limited.labels, limited.fields) == ({"text": 2}, {}, ("caption",))
    assert limited.reason == "Its policy does not allow searching for images."
    lost = silo_status(SiloNode("north", {}, unusable={"image": "It is damaged."}))
    assert (lost.reachable, lost.items, lost.model_digest) == (False, {}, "")
    assert "It is damaged." in lost.reason


def test_a_summary_has_the_most_frequent_labels(stores: dict[str, Store], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("silohash.search.released.MOST_SUMMARY_LABELS", 2)
    payloads = [json.dumps({"labels": labels}) for labels in (["c", "d"], ["d"], ["c"])]
    stores["image"].add(["x", "y", "z"], pack(SIGNS), payloads)
    assert silo_status(SiloNode("north", stores)).labels == {"c": 2, "d": 2}


def test_a_summary_names_labels_of_approved_items_only(stores: dict[str, Store], tmp_path: Path) -> None:
    approved = tmp_path / "approved.txt"
    stores["image"].add(["x", "y"], pack(SIGNS[:2]), [json.dumps({"labels": ["a", "secret"]}), json.dumps({})])
    node = SiloNode("north", stores, Policy(approve=approved))
    assert silo_status(node).labels == {}
    approved.write_text("b\nnone\nnothing\n")
    assert silo_status(node).labels == {"b": 1}
    approved.write_text("a\nx\n")
    assert silo_status(node).labels == {"a": 2, "secret": 1}


def test_examples_are_spread_over_the_index(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "text.sqlite", IndexManifest("m", BITS, "text"))
    names = [str(number) for number in range(10 * MOST_EXAMPLES)]
    store.add(names, pack([SIGNS[0]] * len(names)))
    status = silo_status(SiloNode("north", {"text": store}))
    assert [item.id for item in status.examples] == names[5::10]


def test_items_that_are_not_approved_are_not_released(tmp_path):
    path = tmp_path / "approved.txt"
    path.write_text("1\n")
    node = made_up_node(tmp_path, "north", made_up_codes(5, 16, 1), 16, Policy(approve=path))
    assert released_item(node, "1").modalities == ("image",)
    assert item_code(node, "1").modality == "image"
    for request in (released_item, item_code):
        with pytest.raises(NotFound, match='"2"'):
            request(node, "2")
    assert [item.id for item in silo_status(node).examples] == ["1"]
