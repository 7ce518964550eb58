"""What is checked before a training, so that its figures can be measured after it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from silohash.config.sections import EvaluateConfig
from silohash.data.archive import Archive
from silohash.runtime.measurable import (
    check_settings,
    counted_items,
    ignored_labels,
    labels_of,
    measurable_tasks,
    unmeasured,
)
from silohash.types import UserError
from tests.archives import made_up_archive

NONE = np.zeros(0, np.int64)


@pytest.fixture
def archive() -> Archive:
    """Six items of which two are queries. Items 0, 2 and 4 have the label "a", items 1, 2 and 5 the label "b"."""
    labels = np.array([[1, 0], [0, 1], [1, 1], [0, 0], [1, 0], [0, 1]], np.uint8)
    made = made_up_archive(6)
    splits = {"query": np.array([0, 1]), "database": np.array([2, 3, 4, 5]), "train": np.array([4, 5])}
    return replace(made, labels=labels, label_names=("a", "b"), splits=splits)


def without_queries(archive: Archive) -> Archive:
    return replace(archive, splits={**archive.splits, "query": NONE})


def ignoring(*names: str) -> EvaluateConfig:
    return EvaluateConfig(ignore_labels=names)


def test_an_archive_with_queries_is_measured(archive: Archive) -> None:
    assert unmeasured(archive) == ""
    check_settings(archive, ("image", "text"), EvaluateConfig())


def test_an_archive_without_queries_passes_and_states_why_it_has_no_figures(archive: Archive) -> None:
    expected = 'Archive "made-up" does not have items in the split "query", so no figures can be measured.'
    lacking = replace(archive, splits={name: rows for name, rows in archive.splits.items() if name != "query"})
    for each in (without_queries(archive), lacking):
        assert unmeasured(each).startswith(expected)
        check_settings(each, ("image",), EvaluateConfig(tasks=("t2t",)))
        with pytest.raises(UserError, match='no label "c"'):
            check_settings(each, ("image",), ignoring("c"))


def test_settings_that_leave_nothing_to_measure_are_refused(archive: Archive) -> None:
    with pytest.raises(UserError, match=r'no items in the split "query" to evaluate on\. .* list fewer labels'):
        check_settings(archive, ("image", "text"), ignoring("a", "b"))
    check_settings(archive, ("image", "text"), ignoring("a"))
    empty = replace(archive, splits={**archive.splits, "database": NONE})
    with pytest.raises(UserError, match='no items in the split "database" to evaluate on'):
        check_settings(empty, ("image", "text"), EvaluateConfig())
    with pytest.raises(UserError, match="so none of the tasks i2t, t2i can be measured"):
        check_settings(archive, ("text",), EvaluateConfig())


def test_an_archive_without_labels_passes_and_states_why_it_has_no_figures(archive: Archive) -> None:
    bare = replace(archive, labels=None, label_names=())
    assert unmeasured(bare).startswith('Archive "made-up" has no labels, so it is unknown which items are relevant')
    check_settings(bare, ("image", "text"), EvaluateConfig())
    with pytest.raises(UserError, match="has no labels, so it is unknown which items are relevant"):
        labels_of(bare)


def test_items_that_are_counted(archive: Archive) -> None:
    queries, database = counted_items(archive, labels_of(archive), ())
    assert (queries.tolist(), database.tolist()) == ([0, 1], [2, 3, 4, 5])
    queries, database = counted_items(archive, labels_of(archive), (0,))
    assert (queries.tolist(), database.tolist()) == ([1], [2, 5])
    queries, database = counted_items(archive, labels_of(archive), (1,))
    assert (queries.tolist(), database.tolist()) == ([0], [2, 4])


def test_columns_of_ignored_labels(archive: Archive) -> None:
    assert ignored_labels(archive, ignoring()) == ()
    assert ignored_labels(archive, ignoring("b", "a")) == (1, 0)
    named = replace(archive, label_names=("parrot", "harbour"))
    with pytest.raises(UserError, match=r'no label "parot" \(did you mean "parrot"\?\)'):
        ignored_labels(named, ignoring("parot"))


@pytest.mark.parametrize(
    ("modalities", "expected"),
    [(("image", "text"), ["i2t", "t2t", "i2i"]), (("image",), ["i2i"]), (("text",), ["t2t"])],
)
def test_tasks_of_the_modalities(modalities, expected) -> None:
    assert measurable_tasks(("i2t", "t2t", "i2i"), modalities) == expected
    with pytest.raises(UserError, match=r"Set evaluate\.tasks"):
        measurable_tasks(("i2t",), ("text",))
