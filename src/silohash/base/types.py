"""Types that all parts of the package share.

This module does not import torch at run time, because neither searching nor ``silohash list`` needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import torch

Modality: TypeAlias = Literal["image", "text"]
Target: TypeAlias = Literal["item", "image", "text"]
"""What a search finds: pictures, texts, or items by the nearer of their two codes."""

Task: TypeAlias = Literal["i2t", "t2i", "i2i", "t2t", "i2item", "t2item", "i2unified", "t2unified"]
Evaluation: TypeAlias = Literal["GG", "GL", "GF", "GA", "PL", "PF", "PA", "PG", "XS"]

ValidationBy: TypeAlias = Literal["labels", "pairs"]
"""What makes an item a right answer to a held-back query: a shared label, or being its partner in a pair."""

Side: TypeAlias = Literal["query", "database"]
"""The two sides of a search. Some models encode the items of one or both sides with their true labels."""

MODALITIES: tuple[Modality, Modality] = ("image", "text")
SIDES: tuple[Side, Side] = ("query", "database")
TARGETS: tuple[Target, ...] = ("item", "image", "text")
TASKS: tuple[Task, ...] = ("i2t", "t2i", "i2i", "t2t", "i2item", "t2item", "i2unified", "t2unified")
PAIR_TASKS: tuple[Task, Task] = ("i2t", "t2i")
"""The tasks in which a query has a partner of the other modality."""

EVALUATIONS: tuple[Evaluation, ...] = get_args(Evaluation)

WITH_LABELS = " and the true labels"
"""End of `ResultRow.database_code` if database items were encoded with their true labels."""

ORACLE = f"{WITH_LABELS}, also for queries (oracle)"
"""End of `ResultRow.database_code` if queries were encoded with their true labels too, from which relevance is computed."""

Rows: TypeAlias = npt.NDArray[np.int64]
"""Positions of items in an archive, ``(n,)`` int64."""

Arrays: TypeAlias = dict[str, np.ndarray]
"""Named arrays. All states are kept in this form."""

ReadArrays: TypeAlias = Mapping[str, np.ndarray]
"""Named arrays that are only read. Those of messages may be on disk (`silohash.methods.stored`)."""

Terms: TypeAlias = "dict[str, tuple[float, torch.Tensor]]"
"""The terms of a loss: name -> (weight, scalar tensor). The training loop adds them up, and observers log each."""


class PlausibilityWarning(UserWarning):
    """A warning about a figure that is right for the given codes, labels and ids, which are likely to be wrong."""


def modalities_of(target: Target) -> tuple[Modality, ...]:
    """Return the modalities whose codes are searched to find a target.

    Example:
        >>> modalities_of("item"), modalities_of("text")
        (('image', 'text'), ('text',))
    """
    return MODALITIES if target == "item" else (target,)


def query_modality(task: Task) -> Modality:
    """Return the modality of a task's queries, for example ``image`` for ``i2t``."""
    return "image" if task[0] == "i" else "text"


def database_target(task: Task) -> Target:
    """Return what a task finds, for example ``text`` for ``i2t`` and ``item`` for ``i2item`` and ``i2unified``."""
    targets: dict[str, Target] = {"i": "image", "t": "text", "item": "item", "unified": "item"}
    return targets[task.partition("2")[2]]


def database_modalities(task: Task) -> tuple[Modality, ...]:
    """Return the modalities whose codes a task searches, for example ``("text",)`` for ``i2t``."""
    return modalities_of(database_target(task))


def is_unified(task: Task) -> bool:
    """Return whether an item has one code in the database, computed from its picture and its text together."""
    return task.endswith("2unified")


def is_across(task: Task) -> bool:
    """Return whether a task searches the other modality than that of its queries, and that alone.

    Example:
        >>> [task for task in TASKS if is_across(task)]
        ['i2t', 't2i']
    """
    return query_modality(task) not in database_modalities(task)


@dataclass(frozen=True)
class PairBatch:
    """A batch of one silo's image-text pairs, as tensors on the device.

    Attributes:
        row: ``(B,)`` int64, positions in the silo's data, which also index buffers with one row per item.
        image: ``(B, D)`` or ``(B, c, h, w)`` floats. Rows without an image are zero. None if the silo has no images.
        text: ``(B, V)`` floats. Rows without a text are zero. None if the silo has no texts.
        labels: ``(B, C)`` float multi-hot labels, or None if the archive has no labels.
        has_image: ``(B,)`` bool, which rows have an image.
        has_text: ``(B,)`` bool, which rows have a text.
    """

    row: torch.Tensor
    image: torch.Tensor | None
    text: torch.Tensor | None
    labels: torch.Tensor | None
    has_image: torch.Tensor
    has_text: torch.Tensor

    def has(self, modality: Modality) -> torch.Tensor:
        """Return a mask of the rows that have the modality, ``(B,)`` bool."""
        return self.has_image if modality == "image" else self.has_text

    def rows_with(self, modality: Modality) -> torch.Tensor | slice:
        """Return an index of the rows that have the modality. If all rows have it, this is a slice, which copies nothing."""
        held = self.has(modality)
        return slice(None) if bool(held.all()) else held

    def values(self, modality: Modality) -> torch.Tensor | None:
        """Return the inputs of one modality, or None if the batch does not have it."""
        return self.image if modality == "image" else self.text


@dataclass(frozen=True)
class Outputs:
    """The towers' outputs for a batch. Each mapping has one entry per requested modality.

    Attributes:
        feature: ``(B, H)``, the input of the hash layer.
        logit: ``(B, K)``, the output of the hash layer.
        code: ``(B, K)`` in (-1, 1), the relaxed code. Its signs are the hash code.
        class_logit: ``(B, C)``, the output of the optional classifier head.
        projection: ``(B, H)``, the feature before dropout. Empty if the model computes its features in another way.
        pair_score: ``(B, B)`` for matching methods, with one row per image and one column per text.
        extra: Outputs of networks and tables that only the local method's training needs, such as a label network or
            learned class codes.
    """

    feature: Mapping[Modality, torch.Tensor]
    logit: Mapping[Modality, torch.Tensor]
    code: Mapping[Modality, torch.Tensor]
    class_logit: Mapping[Modality, torch.Tensor] = field(default_factory=dict)
    pair_score: torch.Tensor | None = None
    extra: Mapping[str, torch.Tensor] = field(default_factory=dict)
    projection: Mapping[Modality, torch.Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class Step:
    """One optimizer step on a batch.

    Attributes:
        parameters: Prefixes of the names of the parameters that are updated.
        modalities: Modalities whose outputs the loss terms need.
        regularize: Whether the federated method's loss terms are added to those of the step. A method that trains a tower in
            several steps per batch sets this for one of them, so that the terms count once.
        own_terms: Whether the step has the terms of the local method.
    """

    name: str
    parameters: tuple[str, ...]
    modalities: tuple[Modality, ...]
    regularize: bool = True
    own_terms: bool = True


@dataclass(frozen=True)
class Phase:
    """A part of a silo's round in which one model is trained for some epochs.

    Attributes:
        epochs: Number of passes over the rows.
        rows: The silo's rows that are used for training, or None for all.
        hides_other_rows: Whether the local method sees only ``rows``. If not, it may also compare a batch with the silo's
            other pairs.
        begin: Called at the start of the phase.
    """

    name: str
    model: torch.nn.Module
    epochs: int
    rows: Rows | None = None
    hides_other_rows: bool = False
    begin: Callable[[], None] | None = None


@dataclass(frozen=True)
class MethodCard:
    """The facts about a method that ``silohash list``, the documentation and the reports show.

    Write the card as a literal ``CARD = MethodCard(...)`` in the method's module. It can then be read without importing
    the module, which would import torch.
    """

    key: str
    title: str
    authors: str
    venue: str
    year: int
    link: str
    summary: str
    supervised: bool = False
    needs_label_at_query: bool = False
    sends: Sequence[str] = ()
    keeps: Sequence[str] = ()
    differs_from_paper: Sequence[str] = ()


@dataclass(frozen=True)
class ResultRow:
    """One figure of one run, with everything needed to compare it with other figures.

    Attributes:
        value: The value of the measure, in its unit (0 to 1 for mAP).
        low: Lower end of the 95 % bootstrap interval over queries.
        high: Upper end of the same interval.
        best: The value if all ties were ordered favorably; NaN for measures without ties.
        worst: The value if all ties were ordered unfavorably.
        prior: The share of relevant items, which is the mAP of random codes.
        population: Number of items that the archive's protocol uses.
        no_hits: How queries without relevant items count: ``zero`` or ``skip``.
        query_in_database: Whether a query's item is part of the database that is searched.
        bits: Code length; 0 if the model scores pairs and has no codes.
        database_code: What an item's code is computed from: ``one view``, the modality that is searched, ``the nearer of
            both views``, or ``both views``; or ``scores of pairs``. Ends in `WITH_LABELS` or `ORACLE` if the true labels of
            items were used.
        round_by: How the round was chosen: by ``validation`` on held-out training items, with shared labels, by
            ``validation on pairs``, or the ``last`` round. In tables of studies also ``only``: there was a single round.
    """

    run: str
    dataset: str
    protocol: str
    partition: str
    local: str
    federated: str
    evaluation: Evaluation
    task: Task
    bits: int
    seed: int
    measure: str
    value: float
    low: float
    high: float
    best: float
    worst: float
    queries: int
    queries_without_relevant: int
    prior: float
    config_digest: str
    code_version: str
    population: int
    no_hits: str
    query_in_database: bool
    database_code: str
    round_by: str

    @property
    def oracle(self) -> bool:
        """Whether queries were encoded with their true labels, which no real search has."""
        return self.database_code.endswith(ORACLE)

    @property
    def uses_labels(self) -> bool:
        """Whether items of any side were encoded with their true labels."""
        return WITH_LABELS in self.database_code


Notify: TypeAlias = Callable[[str], None]
"""A callback that reports one line about what a long task does or skips."""
