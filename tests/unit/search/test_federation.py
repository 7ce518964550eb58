"""The check of silos, and a page without one item. Whole searches: test_silos, test_hub."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest

from silohash.base.errors import EmptyInput, NotFound, OutOfRange
from silohash.run.folder import Run
from silohash.search.bus import LocalBus, now
from silohash.search.federation import Federation, check_silos, without_item
from silohash.search.hits import Hits, SearchOptions
from silohash.search.requests import Code, SearchRequest


@pytest.mark.parametrize("seconds", [0.0, -1.0, 0.09, 60.1, float("nan"), float("inf"), "5"])
def test_a_deadline_beyond_the_limits_is_refused(seconds: Any) -> None:
    federation = Federation(cast(Run, None), ["north"], LocalBus([]))
    code = Code(words=np.zeros(1, np.uint16), bits=16, model_digest="m")
    with pytest.raises(OutOfRange, match=r"Choose 0\.1 to 60 seconds\."):
        now(federation.search(SearchRequest(value=code, deadline_seconds=seconds)))
    with pytest.raises(OutOfRange):
        now(federation.similar("north", "a", SearchOptions(deadline_seconds=seconds)))
    assert now(federation.search(SearchRequest(value=code, deadline_seconds=60))).missing_silos


def test_silos_of_a_filter_exist() -> None:
    check_silos(None, ["north"])
    check_silos(["north"], ["north", "south"])
    with pytest.raises(NotFound, match=r'There is no silo "east"\. Choose from: north, south\.'):
        check_silos(["north", "east"], ["north", "south"])
    with pytest.raises(EmptyInput):
        check_silos([], ["north"])


def hits_at(*distances: int, left_out: dict[int, int] | None = None) -> Hits:
    names = tuple("abcdefgh"[: len(distances)])
    return Hits(
        ids=names, distances=distances, silos=("s",) * len(names), payloads=({},) * len(names), left_out=left_out or {}
    )


def test_a_page_without_an_item() -> None:
    hits = hits_at(0, 1, 1, 2, 2, left_out={2: 3})
    page = without_item(hits, "s", "a", offset=0, k=4)
    assert (page.ids, page.ties_at_cut) == (("b", "c", "d", "e"), 3)
    page = without_item(hits, "s", "a", offset=1, k=2)
    assert (page.ids, page.ties_at_cut) == (("c", "d"), 4), (
        "the last item is left out at the distance of the page's last"
    )
    page = without_item(hits, "other", "a", offset=0, k=3)
    assert (page.ids, page.ties_at_cut, dict(page.left_out)) == (("a", "b", "c"), 0, {})
    page = without_item(hits, "s", "a", offset=4, k=2)
    assert (page.ids, dict(page.left_out)) == ((), {})
