"""What is checked before a training, so that its figures can be measured after it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from silohash.base.errors import ConflictingOptions, LabelsNeeded, ModalityNeeded, NothingUsable, UnknownName, UserError
from silohash.base.types import Task
from silohash.data.archive import Archive
from silohash.evaluate.measures import PAIR_MEASURES
from silohash.measure.measurable import (
    LabelRule,
    PairRule,
    check_measures,
    check_settings,
    counted_items,
    ignored_labels,
    measurable_tasks,
    measures_of,
    remark_on_measures,
    rules_of,
    unmeasured,
)
from silohash.run.config.sections import EvaluateConfig
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


def test_ignored_labels_may_be_typed_differently(archive: Archive) -> None:
    assert ignored_labels(archive, ignoring("\u00a0b\u200b")) == ignored_labels(archive, ignoring("b")) == (1,)


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
    with pytest.raises(NothingUsable, match="query"):
        check_settings(archive, ("image", "text"), ignoring("a", "b"))
    check_settings(archive, ("image", "text"), ignoring("a"))
    empty = replace(archive, splits={**archive.splits, "database": NONE})
    with pytest.raises(NothingUsable, match="database"):
        check_settings(empty, ("image", "text"), EvaluateConfig())
    with pytest.raises(ModalityNeeded, match=r"i2t.*t2i"):
        check_settings(archive, ("text",), EvaluateConfig())


def without_labels(archive: Archive) -> Archive:
    return replace(archive, labels=None, label_names=())


def test_without_labels_an_archive_is_measured_by_pairs(archive: Archive) -> None:
    bare = without_labels(archive)
    assert unmeasured(bare) == ""
    check_settings(bare, ("image", "text"), EvaluateConfig())
    assert [str(measure) for measure in measures_of(bare, EvaluateConfig())] == list(PAIR_MEASURES)
    assert [str(measure) for measure in measures_of(archive, EvaluateConfig())] == ["mAP@all"]
    both = EvaluateConfig(measures=("P@5", "mAP@all[by=pairs]"), no_hits="skip")
    assert [str(measure) for measure in measures_of(bare, both)] == ["mAP@all[by=pairs,empty=skip]"]
    assert [rule.by for rule in rules_of(archive, both)] == ["labels", "pairs"]
    assert [rule.by for rule in rules_of(bare, both)] == ["pairs"]
    with pytest.raises(UserError, match="has no labels, so it is unknown which items are relevant"):
        LabelRule(bare, EvaluateConfig())
    with pytest.raises(UnknownName):
        check_settings(bare, ("image", "text"), ignoring("a"))
    with pytest.raises(ConflictingOptions, match=r"i2t.*t2i.*i2item.*t2t"):
        check_settings(bare, ("image", "text"), EvaluateConfig(tasks=("i2item", "t2t")))
    check_settings(archive, ("image", "text"), EvaluateConfig(tasks=("i2item", "t2t")))


def test_measures_that_are_left_out_are_remarked(archive: Archive) -> None:
    bare = without_labels(archive)
    assert remark_on_measures(archive, EvaluateConfig()) == ""
    assert remark_on_measures(bare, EvaluateConfig(measures=("R@1[by=pairs]",))) == ""
    assert remark_on_measures(without_queries(bare), EvaluateConfig()) == ""
    remark = remark_on_measures(bare, EvaluateConfig(measures=("P@5", "mAP@all", "R@1[by=pairs]")))
    assert remark.startswith('Archive "made-up" has no labels, so P@5, mAP@all cannot be measured.')
    assert remark.endswith("by pairs of a picture and a text: R@1[by=pairs].")


def test_without_labels_and_pairs_nothing_can_be_measured(archive: Archive) -> None:
    lonely = replace(without_labels(archive), has_text=np.array([False, False, True, True, True, True]))
    assert unmeasured(lonely).startswith(
        'Archive "made-up" has neither labels nor queries with both a picture and a text'
    )
    check_settings(lonely, ("image", "text"), EvaluateConfig())
    labeled = replace(lonely, labels=archive.labels, label_names=archive.label_names)
    assert unmeasured(labeled) == ""
    with pytest.raises(UserError, match="has no queries with both a picture and a text"):
        check_settings(labeled, ("image", "text"), EvaluateConfig(measures=("R@1[by=pairs]",)))


def test_named_measures_need_labels_or_pairs(archive: Archive) -> None:
    check_measures(archive, ["mAP@all", "R@1[by=pairs]"])
    check_measures(without_labels(archive), ["R@1[by=pairs]"])
    check_measures(without_labels(archive), [])
    with pytest.raises(LabelsNeeded, match=r"P@5.*made-up"):
        check_measures(without_labels(archive), ["R@1[by=pairs]", "P@5"])


@pytest.mark.parametrize(
    ("inside", "own_item", "ranked"),
    [
        (True, "count", {"i2t": True, "i2i": True}),
        (True, "exclude", {"i2t": True, "i2i": False}),
        (False, "count", {"i2t": False, "i2i": False}),
    ],
)
def test_a_query_in_the_database_is_ranked_across_modalities_or_if_it_counts(
    archive: Archive, inside: bool, own_item: Any, ranked: dict[Task, bool]
) -> None:
    rule = LabelRule(replace(archive, query_in_database=inside), EvaluateConfig(own_item=own_item))
    assert {task: rule.ranks_own_item(task) for task in ranked} == ranked


def test_pictures_are_asked_and_searched_once(archive: Archive) -> None:
    pictures = np.array(["x", "x", "y", "y", "y", "z"])
    splits = {"query": np.arange(6), "database": NONE, "train": NONE}
    rule = PairRule(replace(archive, columns={"picture": pictures}, splits=splits), EvaluateConfig())
    rows = np.array([1, 2, 4, 5])
    assert (rule.asked("i2t", rows).tolist(), rule.asked("t2i", rows).tolist()) == ([1, 2, 5], [1, 2, 4, 5])
    assert (rule.searched("i2t", rows).tolist(), rule.searched("t2i", rows).tolist()) == ([1, 2, 4, 5], [1, 2, 5])
    relevance = rule.relevance("i2t", np.array([1, 2, 5]), rows)
    assert list(zip(relevance.query_rows.tolist(), relevance.database_rows.tolist(), strict=True)) == [
        (0, 0), (1, 1), (1, 2), (2, 3)
    ]  # fmt: skip
    assert (rule.is_relevant(2, 4), rule.is_relevant(1, 4), rule.ranks_own_item("i2t")) == (True, False, True)
    assert rule.tasks(("image", "text")) == ["i2t", "t2i"]


def test_relevance_by_labels_of_one_item(archive: Archive) -> None:
    rule = LabelRule(archive, EvaluateConfig())
    assert [rule.is_relevant(0, item) for item in range(6)] == [True, False, True, False, True, False]
    assert rule.is_relevant(3, 0) is None
    ignoring_a = LabelRule(archive, ignoring("a"))
    assert (ignoring_a.is_relevant(0, 2), ignoring_a.is_relevant(2, 1)) == (None, True)


def test_items_that_are_counted(archive: Archive) -> None:
    queries, database = counted_items(archive, archive.labels, ())
    assert (queries.tolist(), database.tolist()) == ([0, 1], [2, 3, 4, 5])
    queries, database = counted_items(archive, archive.labels, (0,))
    assert (queries.tolist(), database.tolist()) == ([1], [2, 5])
    queries, database = counted_items(archive, archive.labels, (1,))
    assert (queries.tolist(), database.tolist()) == ([0], [2, 4])


def test_columns_of_ignored_labels(archive: Archive) -> None:
    assert ignored_labels(archive, ignoring()) == ()
    assert ignored_labels(archive, ignoring("b", "a")) == (1, 0)
    named = replace(archive, label_names=("parrot", "harbour"))
    with pytest.raises(UnknownName, match=r"parot.*parrot"):
        ignored_labels(named, ignoring("parot"))


@pytest.mark.parametrize(
    ("modalities", "expected"),
    [(("image", "text"), ["i2t", "t2t", "i2i"]), (("image",), ["i2i"]), (("text",), ["t2t"])],
)
def test_tasks_of_the_modalities(modalities, expected) -> None:
    assert measurable_tasks(("i2t", "t2t", "i2i"), modalities) == expected
    with pytest.raises(ModalityNeeded, match=r"evaluate\.tasks"):
        measurable_tasks(("i2t",), ("text",))
