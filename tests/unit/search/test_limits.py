"""Limits of queries per asker, with a clock that the test sets, and the list of approved items, which follows its file."""

from __future__ import annotations

import pytest

from silohash.base.types import UserError
from silohash.search.limits import Approvals, Quota


def test_each_asker_has_a_count_per_minute() -> None:
    now = [120.0]
    quota = Quota(per_minute=2, clock=lambda: now[0])
    quota.admit("a")
    quota.admit("b")
    now[0] = 179.9
    quota.admit("a")
    for _ in range(2):
        with pytest.raises(UserError, match="It limits each asker to 2 queries per minute"):
            quota.admit("a")
    quota.admit("b")
    now[0] = 180.0
    quota.admit("a")


def test_a_refused_query_counts_in_no_window() -> None:
    now = [0.0]
    quota = Quota(per_minute=1, per_day=3, clock=lambda: now[0])
    for minute in range(3):
        now[0] = 60.0 * minute
        quota.admit("a")
        with pytest.raises(UserError, match="per minute"):
            quota.admit("a")
    now[0] = 86_399.0
    with pytest.raises(UserError, match="3 queries per day"):
        quota.admit("a")
    now[0] = 86_400.0
    quota.admit("a")


def test_without_limits_nothing_is_counted() -> None:
    quota = Quota()
    for _ in range(1000):
        quota.admit("a")
    assert quota._windows == []


def test_the_list_is_read_again_when_it_changes(tmp_path):
    path = tmp_path / "approved.txt"
    approvals = Approvals(path)
    assert approvals.ids() == frozenset()
    path.write_text("a\n  b c \n\n", encoding="utf-8")
    assert approvals.ids() == {"a", "b c"}
    assert approvals.ids() is approvals.ids()
    path.write_text("a\nä\nlonger\n", encoding="utf-8")
    assert approvals.ids() == {"a", "ä", "longer"}
    path.unlink()
    assert approvals.ids() == frozenset()


def test_a_list_that_cannot_be_read_is_an_error(tmp_path):
    (tmp_path / "approved.txt").write_bytes(b"\xff\xfe\xff")
    with pytest.raises(UserError, match=r"approved\.txt"):
        Approvals(tmp_path / "approved.txt").ids()
