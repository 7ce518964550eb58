"""The words of an index file: found by field and whole caption, incremental, and gone for good after compaction."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from silohash.base.analysis import Analysis, analyze
from silohash.base.errors import UserError
from silohash.index.base import FIELDS, IndexManifest
from silohash.index.store import Store
from tests.unit.index.stores import MANIFEST, words

ENGLISH = Analysis(languages=("en",))
ITEMS = {
    "boat-7": {"caption": "Two boats off Sète", "labels": ["harbor scene", "sea"], "file": "pics/Quay_3.jpg"},
    "b": {"caption": "红色的船", "labels": ["sea"]},
    "c": {"caption": "Off Sète, two boats!"},
    "d": {},
}


@pytest.fixture
def store(path):
    with Store.create(path, replace(MANIFEST, analysis=ENGLISH)) as created:
        created.add([*ITEMS], words(len(ITEMS)), [json.dumps(item) for item in ITEMS.values()])
        yield created


def found(store: Store, text: str, fields=FIELDS):
    return [store.keys_with(term, fields).tolist() for term in analyze(text, store.manifest.analysis)]


def test_words_are_found_in_ids_and_in_every_field_with_words(store):
    assert found(store, "boat") == [[0, 2]]
    assert found(store, "harbors sea quay sete") == [[0], [0, 1], [0], [0, 2]]
    assert found(store, "7 d nothing") == [[0], [3], []]
    assert found(store, "红色") == [[1], [1], [1]]


@pytest.mark.parametrize(
    ("fields", "expected"), [((), [[0], [], []]), (("caption",), [[0, 2], [], []]), (("labels",), [[0], [0, 1], []]),
                             (("file", "preview"), [[0], [], [0]])],
)  # fmt: skip
def test_fields_that_are_not_released_are_not_searched(store, fields, expected):
    assert found(store, "boat sea quay", fields) == expected


def test_whole_captions(store):
    terms = analyze("two BOATS off sete", ENGLISH)
    assert store.keys_of_text("", terms).tolist() == [0]
    assert store.keys_of_text("", terms[::-1]).tolist() == []
    assert store.keys_of_text("", ()).tolist() == []


def test_words_follow_additions_and_replacements(store):
    store.add(["d", "e"], words(2, seed=1), [json.dumps({"caption": "one lighthouse"})] * 2)
    assert found(store, "lighthouses") == [[4, 5]]
    with Store(store.path) as other:
        assert other.manifest.analysis == ENGLISH
        assert found(other, "lighthouses") == [[4, 5]]


def test_an_addition_that_fails_adds_no_words(store):
    with pytest.raises(UserError, match="twice"):
        store.add(["x", "x"], words(2, seed=1), [json.dumps({"caption": "one lighthouse"})] * 2)
    assert found(store, "lighthouse") == [[]]


def test_compaction_removes_the_words_of_removed_items_from_the_file(path):
    """They are in no byte of the file, nor of the log beside it, even if other items came and went since."""
    unusual = "quetzalcoatlus"
    with Store.create(path, MANIFEST) as store:
        for start in range(0, 900, 300):
            payloads = [
                json.dumps({"caption": f"bird {n}" + f" {unusual}" * (n == 450)}) for n in range(start, start + 300)
            ]
            store.add([f"item-{n}" for n in range(start, start + 300)], words(300, seed=start), payloads)
        assert store.keys_with(unusual, FIELDS).tolist() == [450]
        assert unusual in contents(path)
        store.remove([f"item-{n}" for n in range(400, 500)])
        store.compact()
        assert store.keys_with("bird", FIELDS).tolist() == [*range(400), *range(500, 900)]
        assert unusual not in contents(path)
    assert unusual not in contents(path)


def contents(path: Path) -> str:
    return "".join(each.read_bytes().decode("latin-1") for each in path.parent.glob(f"{path.name}*"))


def test_items_without_ids_have_words_if_they_have_payloads(path):
    with Store.create(path, MANIFEST) as store:
        store.add(None, words(2), [json.dumps({"caption": "a"}), json.dumps({"caption": "b"})])
        assert found(store, "b") == [[1]]


@given(
    captions=st.lists(st.text(st.sampled_from("aß ıİée\u0301船红กา'’·’-\"*(:^"), max_size=12), min_size=1, max_size=5),
    query=st.text(st.sampled_from("aß ıİée\u0301船红กา'’·’-\"*(:^"), max_size=12),
)
def test_a_term_is_found_where_the_analysis_gives_it(tmp_path_factory, captions, query):
    path = tmp_path_factory.mktemp("words") / "image.sqlite"
    analysis = Analysis(languages=("tr", "th"))
    with Store.create(path, IndexManifest("d", 64, "image", analysis=analysis)) as store:
        names = [f"-{number}" for number in range(len(captions))]
        store.add(names, words(len(captions)), [json.dumps({"caption": caption}) for caption in captions])
        terms = [analyze(caption, analysis) for caption in captions]
        for term in analyze(query, analysis):
            expected = [key for key, held in enumerate(terms) if term in held]
            assert store.keys_with(term, ("caption",)).tolist() == expected
        assert store.keys_of_text("", analyze(query, analysis)).tolist() == [
            key for key, held in enumerate(terms) if held and held == analyze(query, analysis)
        ]
