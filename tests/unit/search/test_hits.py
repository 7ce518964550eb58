"""Queries and results: bounds, pages, and hits as objects."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from silohash.base.errors import OutOfRange, UserError, WrongShape, WrongType
from silohash.evaluate.calibration import Calibration
from silohash.index.preview import make_preview, preview_url
from silohash.search.hits import Hits, Query, SearchOptions, changed, described, silent
from silohash.search.released import Hit

PREVIEW = preview_url(make_preview(Image.new("L", (6, 4))))
HITS = Hits(
    ids=("a", "b", "c"),
    distances=(1, 2, 2),
    silos=("north", "south", "north"),
    payloads=({"caption": "two parrots", "labels": ["bird", "red"], "preview": PREVIEW}, {}, {"labels": "bird"}),
    left_out={1: 3, 2: 4},
)


def query(**changed):
    given = {"words": np.zeros(1, np.uint16), "bits": 16, "model_digest": "m", "target": "image", **changed}
    return Query(**given)


@pytest.mark.parametrize(
    ("changed", "kind", "says"),
    [
        ({"k": 0}, OutOfRange, "k is 0"),
        ({"offset": -1}, OutOfRange, "-1"),
        ({"radius_bits": -1}, OutOfRange, "-1"),
        ({"words": np.zeros((2, 1), np.uint16)}, WrongShape, r"shape \(2, 1\)"),
        ({"words": np.zeros((1, 1, 1), np.uint16)}, WrongShape, None),
    ],
)
def test_impossible_queries(changed, kind: type[UserError], says: str | None):
    with pytest.raises(kind, match=says):
        query(**changed)


def test_the_smallest_query():
    smallest = query(k=1, offset=0, radius_bits=0, words=np.zeros((1, 1), np.uint16))
    assert smallest.words.shape == (1,)
    assert smallest.reach == 1
    assert query(k=4, offset=3).reach == 7
    assert (query().k, query().offset, query().previews, query().label) == (10, 0, False, None)


def test_a_query_with_another_key_has_the_same_other_values():
    first = query(k=3, tie_key=b"one", words=np.ones((1, 1), np.uint16), asker="ann")
    second = changed(first, tie_key=b"two")
    assert type(second) is Query
    assert vars(second) == vars(first) | {"tie_key": b"two"}
    assert first.tie_key == b"one"


def test_hits_are_objects():
    assert len(HITS) == 3
    first, second, third = HITS
    assert (first.id, first.silo, first.distance_bits, first.rank) == ("a", "north", 1, None)
    assert (first.caption, first.labels, first.preview_url) == ("two parrots", ("bird", "red"), PREVIEW)
    assert first.preview.size == (6, 4)
    assert "two parrots" in repr(first)
    assert PREVIEW not in repr(first)
    assert (second.caption, second.labels, second.preview) == ("", (), None)
    assert third.labels == (), "a text is not a list of labels"


def test_hits_are_indexed_like_a_list():
    assert HITS[0].id == "a"
    assert HITS[-1].id == "c"
    assert [hit.id for hit in HITS[1:]] == ["b", "c"]
    assert list(HITS) == [HITS[0], HITS[1], HITS[2]]
    with pytest.raises(IndexError):
        HITS[3]


@pytest.mark.parametrize("preview", ["javascript:alert(1)", "data:text/html;base64,PHA+", 7, None])
def test_what_is_not_a_preview_is_dropped(preview):
    hits = replace(HITS, payloads=({"preview": preview},) * 3)
    assert hits[0].preview_url is None
    assert Hit(id="a", silo="b", distance_bits=0, payload={"preview": preview}).preview is None


def test_paths_exist_on_this_machine_or_are_left_out(tmp_path):
    (tmp_path / "a.jpg").touch()
    (tmp_path / "c.jpg").touch()
    payloads = ({"file": "a.jpg"}, {"file": "b.jpg"}, {"file": "../c.jpg"})
    hits = replace(HITS, payloads=payloads, folders={"north": (tmp_path,)})
    assert [hit.path for hit in hits] == [tmp_path / "a.jpg", None, None]
    assert [hit.path for hit in replace(hits, folders={})] == [None] * 3, "on another machine"
    assert [hit.path for hit in replace(hits, payloads=({},) * 3)] == [None] * 3, "a policy does not release it"


def test_ranks_replace_distances():
    ranked = replace(HITS, ranks=(1, 1, 2), left_out={2: 9})
    assert not ranked.comparable
    assert HITS.comparable
    assert ranked.places == (1, 1, 2)
    assert ranked.ties_at_cut == 9
    assert ranked[2].rank == 2


def test_pages_and_selections():
    assert HITS.ties_at_cut == 4
    assert HITS.page(1).ids == ("b", "c")
    assert HITS.page(3).ids == HITS.page(9).ids == ()
    assert HITS.page(0) == HITS
    taken = replace(HITS, ranks=(1, 2, 3)).taken([2, 0])
    assert (taken.ids, taken.distances, taken.silos, taken.ranks) == (("c", "a"), (2, 1), ("north", "north"), (3, 1))
    assert taken.payloads == (HITS.payloads[2], HITS.payloads[0])


def test_a_silent_silo_has_a_reason_and_no_hits():
    hits = silent("north", "closed")
    assert (len(hits), hits.ties_at_cut, hits.missing_silos) == (0, 0, {"north": "closed"})


def test_options_have_a_description_and_are_checked() -> None:
    assert described("k") == "Number of hits."
    assert SearchOptions(k=np.int64(3), offset=2).reach == 5
    for wrong, kind, text in (
        ({"label": 3}, WrongType, "type int"),
        ({"k": 1.5}, WrongType, "k is 1.5"),
        ({"candidates": 0}, OutOfRange, "candidates"),
    ):
        with pytest.raises(kind, match=text):
            SearchOptions(**wrong)


def test_hits_are_judged_by_their_distances() -> None:
    calibration = Calibration(3.0, 1.0, 0.0, 2, 10, 40)
    plain = Hits(ids=("a", "b", "c"), silos=("s",) * 3, payloads=({},) * 3, distances=(1, 3, None))
    judged = plain.judged(calibration)
    assert judged.probabilities == (pytest.approx(0.88, abs=0.01), 0.5, None)
    assert judged.strengths == ("strong", "none", None)
    assert [(hit.probability, hit.strength) for hit in judged[1:]] == [(0.5, "none"), (None, None)]
    assert plain.judged(calibration, bar=0.3).strengths == ("strong", "likely", None)
    assert plain.judged(None).strengths is None
    assert judged.taken([1]).strengths == ("none",)
    assert [each.nothing_close for each in (plain, judged, judged.taken([1]), judged.taken([]))] == [
        False,
        False,
        True,
        False,
    ]
    assert plain.judged(calibration, known=0.3).strengths == ("none", "none", None)


def test_hits_among_more_items_are_less_sure_at_the_same_distance() -> None:
    calibration = Calibration(3.0, 0.5, 0.5, 2, 10, 40)
    plain = Hits(ids=("a",), silos=("s",), payloads=({},), distances=(1,))
    few, many = (replace(plain, searched=count).judged(calibration).probabilities or () for count in (40, 40_000))
    assert plain.judged(calibration).probabilities == few > many


@pytest.mark.parametrize("bar", [-0.1, 1.1, "high", float("nan")])
def test_a_bar_is_a_probability(bar: object) -> None:
    with pytest.raises(OutOfRange):
        SearchOptions(bar=bar)
