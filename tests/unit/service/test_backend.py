"""The check of silos, a page of hits without one item, and which silos accept more of a query than its code."""

from __future__ import annotations

import pytest

from silohash.base.types import UserError
from silohash.search.hits import Hits
from silohash.search.node import CONTENT_REFUSED
from silohash.search.released import SiloStatus
from silohash.service.backend import ACCEPTANCE_UNKNOWN, KNOWN_SECONDS, Acceptance, NotFound, check_silos, without_item


def test_silos_of_a_filter_exist() -> None:
    check_silos(None, ["north"])
    check_silos(["north"], ["north", "south"])
    with pytest.raises(NotFound, match=r'There is no silo "east"\. Choose from: north, south\.'):
        check_silos(["north", "east"], ["north", "south"])
    with pytest.raises(UserError, match="No silo is selected"):
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


@pytest.fixture
def clock() -> list[float]:
    return [100.0]


@pytest.fixture
def acceptance(clock: list[float]) -> Acceptance:
    return Acceptance(lambda: clock[0])


def stated(name: str, *, accepts: bool = True) -> SiloStatus:
    return SiloStatus(name=name, model_digest="new", models=("new", "old"), accepts_content=accepts)


def test_only_silos_that_accept_are_sent_more_than_codes(acceptance: Acceptance) -> None:
    acceptance.note(stated("north"))
    acceptance.note(stated("south", accepts=False))
    acceptance.note(SiloStatus(name="east", reachable=False))
    assert [acceptance.refusal("north", digest) for digest in ("new", "old", "other")] == ["", "", CONTENT_REFUSED]
    assert acceptance.refusal("south", "new") == CONTENT_REFUSED
    assert acceptance.refusal("east", "new") == acceptance.refusal("west", "new") == ACCEPTANCE_UNKNOWN
    assert acceptance.unknown(["north", "south", "east", "west"]) == ["west"]


def test_a_statement_is_relied_on_for_a_while(acceptance: Acceptance, clock: list[float]) -> None:
    acceptance.note(stated("north"))
    clock[0] += KNOWN_SECONDS
    assert acceptance.refusal("north", "new") == ""
    clock[0] += 0.1
    assert acceptance.refusal("north", "new") == ACCEPTANCE_UNKNOWN
    assert acceptance.unknown(["north"]) == ["north"]
    acceptance.note(stated("north", accepts=False))
    assert acceptance.refusal("north", "new") == CONTENT_REFUSED


def test_a_silo_without_a_statement_is_asked_again_when_it_answers(acceptance: Acceptance) -> None:
    acceptance.note(SiloStatus(name="east", reachable=False))
    acceptance.note(stated("north"))
    assert acceptance.unknown(["east", "north"]) == []
    acceptance.answered("east")
    acceptance.answered("north")
    acceptance.answered("west")
    assert acceptance.unknown(["east", "north"]) == ["east"]
