"""Shared types: modalities of a task, rows of a batch, defaults of a result."""

from __future__ import annotations

from dataclasses import MISSING, fields

import pytest
import torch

from silohash.base.types import (
    MODALITIES,
    ORACLE,
    TASKS,
    WITH_LABELS,
    MethodCard,
    Outputs,
    PairBatch,
    Phase,
    ResultRow,
    Step,
    database_modalities,
    database_target,
    is_across,
    is_unified,
    query_modality,
)
from tests.reports import row


def batch(has_image: list[bool], has_text: list[bool], **inputs: torch.Tensor | None) -> PairBatch:
    count = len(has_image)
    values = {"image": torch.ones(count, 2), "text": torch.zeros(count, 3), "labels": None, **inputs}
    return PairBatch(
        row=torch.arange(count), has_image=torch.tensor(has_image), has_text=torch.tensor(has_text), **values
    )


@pytest.mark.parametrize(
    ("task", "query", "database"),
    [
        ("i2t", "image", "text"),
        ("t2i", "text", "image"),
        ("i2i", "image", "image"),
        ("t2t", "text", "text"),
        ("i2item", "image", "item"),
        ("t2item", "text", "item"),
        ("i2unified", "image", "item"),
        ("t2unified", "text", "item"),
    ],
)
def test_modalities_of_a_task(task, query, database) -> None:
    assert (query_modality(task), database_target(task)) == (query, database)
    assert database_modalities(task) == (MODALITIES if database == "item" else (database,))
    assert is_across(task) == (task in ("i2t", "t2i"))
    assert is_unified(task) == (task in ("i2unified", "t2unified"))
    assert task in TASKS


def test_a_batch_knows_which_rows_have_a_modality() -> None:
    some = batch([True, False, True], [True, True, True])
    assert some.has("image").tolist() == [True, False, True]
    assert some.has("text").tolist() == [True, True, True]
    assert some.rows_with("text") == slice(None)
    assert torch.equal(some.image[some.rows_with("image")], torch.ones(2, 2))
    assert some.values("image") is some.image
    assert some.values("text") is some.text


def test_a_batch_without_any_row_of_a_modality() -> None:
    none = batch([False, False], [True, True], image=None)
    assert none.values("image") is None
    assert none.text[none.rows_with("image")].shape == (0, 3)


def test_defaults() -> None:
    outputs = Outputs(feature={}, logit={}, code={})
    assert (outputs.class_logit, outputs.pair_score) == ({}, None)
    phase = Phase("train", torch.nn.Identity(), 2)
    assert (phase.rows, phase.hides_other_rows, phase.begin) == (None, False, None)
    assert Step("joint", ("image.",), ("image",)).regularize
    card = MethodCard("x", "X", "A", "V", 2020, "", "S", supervised=True)
    assert not card.needs_label_at_query
    assert (card.sends, card.keeps, card.differs_from_paper) == ((), (), ())
    assert {field.default for field in fields(ResultRow)} == {MISSING}


@pytest.mark.parametrize(
    ("ending", "expected"), [("", (False, False)), (WITH_LABELS, (False, True)), (ORACLE, (True, True))]
)
def test_figures_tell_which_labels_they_used(ending: str, expected: tuple[bool, bool]) -> None:
    one = row(database_code=f"one view{ending}")
    assert (one.oracle, one.uses_labels) == expected
