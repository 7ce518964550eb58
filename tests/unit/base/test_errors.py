"""The errors that a user can fix: their texts and their keys."""

from __future__ import annotations

import re

import pytest

from silohash.base import errors
from silohash.base.errors import BadLine, UnknownName, UserError, WrongOverride, restored

KINDS = [kind for kind in UserError.__subclasses__() if kind.__module__ == errors.__name__]


def test_a_user_error_shows_its_text_alone() -> None:
    assert str(UnknownName("x is 3. Set it to 2.")) == "x is 3. Set it to 2."


def test_the_text_of_an_error_is_harmless() -> None:
    assert str(BadLine('The caption "a\x1b[2J\u202e" is too long.\nShorten it.')) == (
        'The caption "a⟨U+001B⟩[2J⟨U+202E⟩" is too long.\nShorten it.'
    )
    assert str(UserError()) == ""


def test_each_error_has_a_key_of_its_own() -> None:
    assert (UnknownName.key, UnknownName("x").key, UserError.key) == ("unknown-name", "unknown-name", "user-error")
    keys = [kind.key for kind in KINDS]
    assert len(set(keys)) == len(keys) > 90
    assert [key for key in keys if not re.fullmatch("[a-z]+(-[a-z]+)*", key)] == []


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_each_error_says_what_it_means_and_what_mends_it(kind: type[UserError]) -> None:
    meaning = (kind.__doc__ or "").split("\n")[0]
    assert meaning.count(". ") == 1
    assert meaning.endswith(".")


def test_an_error_of_another_process_has_its_class_again() -> None:
    assert [type(restored(kind.key, "x")) for kind in KINDS] == KINDS
    assert str(restored("unknown-name", "x\x1b")) == "x⟨U+001B⟩"
    assert restored("of-a-later-version", "x") is None


def test_a_reworded_error_keeps_its_class_and_its_values() -> None:
    error = WrongOverride("train.batch=0", "It must be at least 1.")
    changed = error.reworded("study.toml: \x1b no")
    assert isinstance(changed, WrongOverride)
    assert (str(changed), changed.override, changed.reason) == (
        "study.toml: ⟨U+001B⟩ no",
        "train.batch=0",
        "It must be at least 1.",
    )
    assert str(error) == '--set "train.batch=0": It must be at least 1.'
