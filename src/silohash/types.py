"""The types that every part shares.

Nothing here imports torch when it runs: a silo that only searches, and ``silohash list``, need none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import torch

Modality: TypeAlias = Literal["image", "text"]
Task: TypeAlias = Literal["i2t", "t2i", "i2i", "t2t"]
Evaluation: TypeAlias = Literal["GG", "GL", "PL", "PG", "XS"]

MODALITIES: tuple[Modality, Modality] = ("image", "text")
TASKS: tuple[Task, ...] = ("i2t", "t2i", "i2i", "t2t")
EVALUATIONS: tuple[Evaluation, ...] = ("GG", "GL", "PL", "PG", "XS")

Rows: TypeAlias = npt.NDArray[np.int64]
"""Positions of items in an archive, ``(n,)``."""

Arrays: TypeAlias = dict[str, np.ndarray]
"""Named arrays: the form in which every state and every message is kept."""

Terms: TypeAlias = "dict[str, tuple[float, torch.Tensor]]"
"""A loss as its parts: name -> (weight, scalar tensor). The loop sums them, the observers log them."""


class UserError(Exception):
    """Something the user can put right. Its text says what is wrong, the value seen, and what to do.

    The command line prints the text alone and exits with 2.
    """


def query_modality(task: Task) -> Modality:
    """Returns the modality of a task's queries: ``image`` for ``i2t``."""
    return "image" if task[0] == "i" else "text"


def database_modality(task: Task) -> Modality:
    """Returns the modality of a task's database: ``text`` for ``i2t``."""
    return "image" if task[2] == "i" else "text"


@dataclass(frozen=True)
class PairBatch:
    """Some pairs of one silo, as tensors on the device.

    Attributes:
        row: ``(B,)`` int64, position in the silo's own data (for buffers with a row an item).
        image: ``(B, D)`` or ``(B, c, h, w)`` floats; rows without a picture are zero. None without the modality.
        text: ``(B, V)`` floats; rows without a text are zero. None without the modality.
        labels: ``(B, C)`` float multi-hot, or None where the archive has no labels.
        has_image: ``(B,)`` bool.
        has_text: ``(B,)`` bool.
    """

    row: torch.Tensor
    image: torch.Tensor | None
    text: torch.Tensor | None
    labels: torch.Tensor | None
    has_image: torch.Tensor
    has_text: torch.Tensor

    def has(self, modality: Modality) -> torch.Tensor:
        """Returns which rows have the modality, ``(B,)`` bool."""
        return self.has_image if modality == "image" else self.has_text

    def rows_with(self, modality: Modality) -> torch.Tensor | slice:
        """Returns what picks the rows that have the modality; a plain slice, which copies nothing, where all have it."""
        held = self.has(modality)
        return slice(None) if bool(held.all()) else held

    def values(self, modality: Modality) -> torch.Tensor | None:
        """Returns the inputs of one modality."""
        return self.image if modality == "image" else self.text


@dataclass(frozen=True)
class Outputs:
    """What the towers say of a batch; each mapping holds the modalities that were asked for.

    Attributes:
        feature: ``(B, H)`` before the hash layer.
        logit: ``(B, K)`` the hash layer's output.
        code: ``(B, K)`` in (-1, 1), the relaxed code; its signs are the code.
        class_logit: ``(B, C)`` of an optional classifier head.
        pair_score: ``(B, B)`` for matching methods, image rows by text columns.
    """

    feature: Mapping[Modality, torch.Tensor]
    logit: Mapping[Modality, torch.Tensor]
    code: Mapping[Modality, torch.Tensor]
    class_logit: Mapping[Modality, torch.Tensor] = field(default_factory=dict)
    pair_score: torch.Tensor | None = None


@dataclass(frozen=True)
class Step:
    """One optimiser step on a batch: which parameters move, and which modalities must be run for it.

    Attributes:
        name: what the step is called in the logs.
        parameters: prefixes of the parameters' names that move.
        modalities: the modalities whose outputs the terms need.
    """

    name: str
    parameters: tuple[str, ...]
    modalities: tuple[Modality, ...]


@dataclass(frozen=True)
class Phase:
    """A part of a silo's round: some epochs of a model over some rows.

    Attributes:
        name: what the phase is called in the logs.
        model: the network that is trained.
        epochs: passes over the rows.
        rows: the silo's rows that are drawn from; None for all.
        regularize: whether the federated method's terms are added to the local ones.
        begin: called before the phase, after the one before it has ended.
    """

    name: str
    model: torch.nn.Module
    epochs: int
    rows: Rows | None = None
    regularize: bool = True
    begin: Callable[[], None] | None = None


@dataclass(frozen=True)
class MethodCard:
    """What one should know of a method before using it; `silohash list`, the docs and the reports print it.

    A card stands as a literal ``CARD = MethodCard(...)`` in its method's file, so that it can be read without importing
    the file (and torch with it).
    """

    key: str
    title: str
    authors: str
    venue: str
    year: int
    link: str
    summary: str
    supervised: bool
    needs_label_at_query: bool = False
    sends: Sequence[str] = ()
    keeps: Sequence[str] = ()
    differs_from_paper: Sequence[str] = ()


@dataclass(frozen=True)
class ResultRow:
    """One figure of one run, with all that one needs to compare it with another.

    Attributes:
        value: the measure, in the unit that the measure has (mAP: 0 to 1).
        low: lower end of the 95 % bootstrap interval over queries.
        high: upper end.
        best: the measure if every tie fell well; NaN for measures without ties.
        worst: the measure if every tie fell badly.
        prior: the share of relevant items, which is the mAP of random codes.
        population: how many items the archive's protocol uses; 0 where a file was written without the column.
        no_hits: what becomes of queries without relevant items: ``zero`` or ``skip``; empty where it was not recorded.
        query_in_database: whether a query's own item stands in the ranking that it is answered with.
        database_code: what an item's code is made of: ``one view``, the modality that is searched.
        round_by: who chose the round: ``validation`` (held-back training items) or ``last``.
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
    population: int = 0
    no_hits: str = ""
    query_in_database: bool = False
    database_code: str = ""
    round_by: str = ""


Notify: TypeAlias = Callable[[str], None]
"""Where a long task says in one line what it skipped or does."""
