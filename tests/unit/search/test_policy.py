"""Policies: limits and their bounds, files, and files that belong to no silo."""

from __future__ import annotations

import re

import pytest

from silohash.base.errors import (
    ConflictingOptions,
    DamagedFile,
    LimitReached,
    NoEffect,
    OutOfRange,
    UnknownName,
    UserError,
    WrongForm,
    WrongType,
)
from silohash.index.base import FIELDS
from silohash.search.policy import Approvals, Policy, Quota, check_policy_files, policy_of, read_policy


@pytest.fixture
def path(tmp_path):
    return tmp_path / "north.toml"


def test_the_default_releases_everything_within_a_thousand_items():
    policy = Policy()
    assert (policy.max_results, policy.max_distance_bits) == (1000, None)
    assert policy.fields == FIELDS == ("caption", "labels", "preview", "file")
    assert policy.modalities == ("image", "text")


@pytest.mark.parametrize(
    ("limits", "kind", "says"),
    [
        ({"max_results": 0}, OutOfRange, "max_results is 0. Set it to a whole number of at least 1"),
        ({"max_results": True}, OutOfRange, "max_results is True"),
        ({"max_results": 2.0}, OutOfRange, "max_results is 2.0"),
        ({"max_distance_bits": -1}, OutOfRange, "max_distance_bits is -1. Set it to a whole number of at least 0"),
        ({"max_distance_bits": "near"}, OutOfRange, "max_distance_bits is 'near'"),
        ({"fields": ("captions",)}, UnknownName, "fields has the unknown name 'captions' (did you mean \"caption\"?)"),
        ({"fields": "caption"}, WrongType, "fields is 'caption'. Set it to a list"),
        ({"fields": [7]}, UnknownName, "fields has the unknown name 7; choose from: caption, labels, preview"),
        ({"code_noise": 0.5}, OutOfRange, "code_noise is 0.5. Set it to a number of at least 0 and below 0.5"),
        ({"code_noise": -0.1}, OutOfRange, "code_noise is -0.1"),
        ({"code_noise": float("nan")}, OutOfRange, "code_noise is nan"),
        ({"code_noise": True}, OutOfRange, "code_noise is True"),
        ({"rank_only": 1}, WrongType, "rank_only is 1. Set it to true or false"),
        ({"accept_codes": "no"}, WrongType, "accept_codes is 'no'"),
        ({"similar": 0}, WrongType, "similar is 0"),
        ({"similar": True, "rank_only": True}, ConflictingOptions, "Set similar to false"),
        ({"max_near_queries": 0}, OutOfRange, "max_near_queries is 0"),
        ({"max_near_queries": 1, "near_bits": -1}, OutOfRange, "near_bits is -1"),
        ({"near_days": 0}, OutOfRange, "near_days is 0"),
        ({"near_bits": 3}, NoEffect, "near_bits is set without max_near_queries"),
        ({"accept_query_content": True, "rank_only": True}, ConflictingOptions, "rank_only = True"),
        ({"accept_query_content": True, "code_noise": 0.1}, ConflictingOptions, "code_noise = 0.1"),
        ({"modalities": ("sound",)}, UnknownName, "modalities has the unknown name 'sound'; choose from: image, text"),
    ],
)
def test_impossible_policies(limits, kind: type[UserError], says: str):
    with pytest.raises(kind, match=re.escape(says)):
        Policy(**limits)


def test_the_strictest_policies_are_possible():
    policy = Policy(max_results=1, max_distance_bits=0, fields=(), modalities=())
    assert policy.released({"caption": "a", "labels": ["b"], "preview": "c"}) == {}


def test_only_named_fields_are_released():
    payload = {"caption": "a", "labels": ["b"], "owner": "secret"}
    assert Policy().released(payload) == {"caption": "a", "labels": ["b"]}
    assert Policy(fields=("labels",)).released(payload) == {"labels": ["b"]}


@pytest.mark.parametrize(
    ("limit", "asked", "radius"),
    [(None, None, None), (None, 4, 4), (4, None, 4), (4, 3, 3), (3, 4, 3), (0, 4, 0), (4, 0, 0)],
)
def test_the_smaller_radius_holds(limit, asked, radius):
    assert Policy(max_distance_bits=limit).radius_bits(asked) == radius


def test_a_policy_is_read_from_a_file(path):
    path.write_text('max_results = 5\nmax_distance_bits = 7\nfields = ["labels"]\nmodalities = ["text"]\n')
    expected = Policy(max_results=5, max_distance_bits=7, fields=("labels",), modalities=("text",))
    assert read_policy(path) == expected
    assert policy_of(path.parent, "north") == expected
    assert policy_of(path.parent, "south") == Policy()
    path.write_text("")
    assert read_policy(path) == Policy()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("max_result = 5", 'unknown key "max_result" (did you mean "max_results"?)'),
        ("max_results = 0", "max_results is 0"),
        ("fields = 3", "fields is 3"),
        ("max_results =", "is not valid TOML"),
        (b"\xff\xfe", "is not valid TOML"),
    ],
)
def test_files_that_are_refused_are_named(path, content, says):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UserError) as refused:
        read_policy(path)
    assert str(path) in str(refused.value)
    assert says in str(refused.value)


def test_a_policy_of_an_unknown_silo_is_refused(path):
    check_policy_files(path.parent / "none", ["north"])
    path.write_text("")
    check_policy_files(path.parent, ["north", "south"])
    (path.parent / "suoth.toml").write_text("")
    with pytest.raises(UnknownName, match=r"suoth.toml.*south"):
        check_policy_files(path.parent, ["north", "south"])


@pytest.mark.parametrize(
    ("values", "kind", "message"),
    [
        ({"distance_step_bits": 0}, OutOfRange, "distance_step_bits"),
        ({"max_queries_per_minute": 0}, OutOfRange, "max_queries_per_minute"),
        ({"max_queries_per_day": 1.5}, OutOfRange, r"1.5"),
        ({"audit_sync_seconds": -1}, OutOfRange, "-1"),
        ({"audit_sync_seconds": float("inf")}, OutOfRange, "inf"),
        ({"approve": 7}, WrongType, "7"),
        ({"approve": ""}, WrongType, None),
        ({"accept_query_content": "yes"}, WrongType, "yes"),
        ({"accept_query_words": 1}, WrongType, "accept_query_words"),
        ({"url": "javascript:alert(1)"}, WrongForm, "url"),
        ({"url": "example.org/{id}"}, WrongForm, "url"),
        ({"rights": ["CC BY"]}, WrongForm, "rights"),
        ({"contact": "a" * 5_000}, WrongForm, "contact"),
        (
            {"accept_query_content": True, "distance_step_bits": 2},
            ConflictingOptions,
            "2",
        ),
    ],
)
def test_limits_of_askers_and_rounding_are_checked(values, kind: type[UserError], message: str | None):
    with pytest.raises(kind, match=message):
        Policy(**values)
    Policy(distance_step_bits=1, max_queries_per_minute=1, max_queries_per_day=1, audit_sync_seconds=0)


@pytest.mark.parametrize(("requested", "expected"), [(None, 9), (0, 3), (3, 3), (4, 7), (7, 7), (8, 9)])
def test_the_radius_is_widened_to_a_step(requested, expected):
    assert Policy(distance_step_bits=4, max_distance_bits=9).radius_bits(requested) == expected


def test_the_list_of_approved_items_lies_beside_the_policy(tmp_path):
    (tmp_path / "north.toml").write_text('approve = "lists/approved.txt"\n')
    assert read_policy(tmp_path / "north.toml").approve == tmp_path / "lists" / "approved.txt"


def test_words_and_regions_of_queries_are_accepted_only_if_the_file_says_so(path):
    path.write_text("")
    assert not read_policy(path).accept_query_content
    path.write_text("accept_query_content = true\n")
    assert read_policy(path).accept_query_content


def test_each_asker_has_a_count_per_minute() -> None:
    now = [120.0]
    quota = Quota(per_minute=2, clock=lambda: now[0])
    quota.admit("a")
    quota.admit("b")
    now[0] = 179.9
    quota.admit("a")
    for _ in range(2):
        with pytest.raises(LimitReached, match=r"2.*queries.*minute"):
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
        with pytest.raises(LimitReached):
            quota.admit("a")
    now[0] = 86_399.0
    with pytest.raises(LimitReached, match="3"):
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
    with pytest.raises(DamagedFile, match=r"approved\.txt"):
        Approvals(tmp_path / "approved.txt").ids()


def test_a_policy_states_what_it_does_to_distances():
    assert (Policy().alterations, Policy().needs_ledger) == (None, False)
    strict = Policy(rank_only=True, code_noise=0.1, distance_step_bits=2)
    assert (strict.alterations, strict.needs_ledger) == (("rounded", "noised", "ranks"), True)
    assert Policy(max_near_queries=5).needs_ledger
    assert (Policy().similar, strict.similar, Policy(similar=False).similar) == (True, False, False)
