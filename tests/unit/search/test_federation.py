"""The check of silos, and a page of hits without one item. Whole searches are in test_silos and test_hub."""

from __future__ import annotations

import pytest

from silohash.base.errors import EmptyInput, NotFound
from silohash.search.federation import check_silos, without_item
from silohash.search.hits import Hits


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
