"""How good a run is: evaluation x task x measure.

========  ==========================  ===============  =====================================
name      model                       queries          database
========  ==========================  ===============  =====================================
``GG``    global                      of all silos     of all silos
``GL``    global                      a silo's own     its own; mean over silos
``PL``    a silo's own                a silo's own     its own; mean over silos
``PG``    a silo's own                of all silos     of all silos; mean over silos
``XS``    query: one silo's, items:   of all silos     each silo's own, merged into one
          each silo's own                              ranking; mean over the asking silos
========  ==========================  ===============  =====================================

GG and GL are only given for methods with a global model, PL and PG only for those with personal ones. XS is what a
search across silos does where all silos deploy the global model, and then it is GG; with personal models it says how
far one silo's code is understood by the others (a search asks each silo by its own model's code, and merges by rank).
There an item that several silos hold counts once, by the code of the first.

Where a protocol has queries in the database, a query meets its own item. Across modalities that pair counts, as the
protocol says; within one modality (i2i, t2t) the item would answer itself at distance 0, and is taken out of its own
ranking unless ``own_item = "count"``. The column ``query_in_database`` of a row says whether the own item stood in the
ranking.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from silohash import __version__
from silohash.config.load import check_section
from silohash.config.sections import EvaluateConfig
from silohash.data.archive import Archive
from silohash.encode.trained import GLOBAL
from silohash.evaluate.curves import precision_recall
from silohash.evaluate.measures import Measure, PerQuery, evaluate_all
from silohash.evaluate.relevance import Relevance
from silohash.evaluate.significance import bootstrap_interval
from silohash.evaluate.ties import histogram
from silohash.features.vectors import vectors
from silohash.files import digest_json
from silohash.index.codes import Words
from silohash.registry import suggestion
from silohash.runtime.run import Run
from silohash.types import (
    MODALITIES,
    Evaluation,
    Modality,
    ResultRow,
    Rows,
    Task,
    UserError,
    database_modality,
    query_modality,
)

SAME_QUERIES: tuple[Evaluation, ...] = ("GG", "PG", "XS")
"""Evaluations in which every model is asked the same queries."""

DATABASE_CODE = "one view"
"""An item's code is made of the modality that is searched; codes of both views together would hold the query's
modality."""


@dataclass(frozen=True)
class Curve:
    """Precision and recall within each radius, ``(bits + 1,)``, the mean over queries; NaN where no item is within."""

    task: Task
    precision: npt.NDArray[np.float64]
    recall: npt.NDArray[np.float64]
    prior: float

    def to_json(self) -> dict[str, Any]:
        """Return the curve as a JSON value; NaN as null."""
        precision = [None if np.isnan(value) else float(value) for value in self.precision]
        return {"task": self.task, "precision": precision, "recall": self.recall.tolist(), "prior": self.prior}


@dataclass(frozen=True)
class Figures:
    """What a run measures.

    Attributes:
        rows: a row a figure.
        curves: a curve a task.
        per_query: (evaluation, task, measure) -> ``(Q,)`` float64, a value for each item of the archive's split
            "query" in its order, NaN for one that is not counted; of GG, PG and XS, where every part asks the same
            queries.
        queries: digest of the ids of those items: values of two runs may be set side by side where it is the same.
    """

    rows: list[ResultRow]
    curves: list[Curve]
    per_query: Mapping[tuple[Evaluation, Task, str], npt.NDArray[np.float64]] = field(default_factory=dict)
    queries: str = ""


@dataclass(frozen=True)
class Part:
    """Some queries' codes against a database's codes; a figure is the mean over its parts."""

    query_words: Words
    database_words: Words
    relevance: Relevance


def evaluate_run(run: Run, **instead: Sequence[str] | None) -> Figures:
    """Measure a run.

    Args:
        run: a trained run.
        instead: ``measures``, ``evaluations``, ``tasks``, ``ignore_labels`` in place of the config's.

    Raises:
        UserError: if the run has no model, or its archive no labels, queries or database.
    """
    given = {name: tuple(value) for name, value in instead.items() if value}
    settings = check_section(EvaluateConfig, {**run.config.evaluate.model_dump(), **given}, where="evaluate")
    return Evaluator(run, settings).figures()


def check_settings(archive: Archive, modalities: Sequence[Modality], settings: EvaluateConfig) -> None:
    """Checks, before a training takes its time, that what is to be measured can be.

    Raises:
        UserError: if the archive has no labels or no such label, or the model will not have the modalities of any task.
    """
    if archive.labels is None:
        raise UserError(
            f'Archive "{archive.card.name}" has no labels, so nothing says which item is relevant and nothing could be '
            'measured. Add a column "labels" to its metadata.'
        )
    measurable_tasks(settings.tasks, modalities)
    for name in settings.ignore_labels:
        _label(name, archive.label_names)


def measurable_tasks(tasks: Sequence[Task], modalities: Sequence[Modality]) -> list[Task]:
    """Return the tasks for which a model has the modalities.

    Raises:
        UserError: if there is none.
    """
    found = [task for task in tasks if {query_modality(task), database_modality(task)} <= set(modalities)]
    if not found:
        raise UserError(
            f"The model has {' and '.join(modalities)} only, so none of the tasks {', '.join(tasks)} can be measured. "
            "Set evaluate.tasks."
        )
    return found


class Evaluator:
    """One run's codes of all queries and database items, and the figures that follow."""

    def __init__(self, run: Run, settings: EvaluateConfig) -> None:
        archive = run.archive
        if archive.labels is None:
            raise UserError(f'Archive "{archive.card.name}" has no labels, so nothing says which item is relevant.')
        self.run = run
        self.settings = settings
        self.labels = archive.labels
        self.ignore = tuple(_label(name, archive.label_names) for name in settings.ignore_labels)
        counted = np.full(len(archive), fill_value=True)
        if self.ignore:
            counted = np.asarray(np.delete(self.labels, self.ignore, axis=1).any(axis=1))
        self.queries, self.database = (
            rows[counted[rows]] for rows in (archive.split("query"), archive.split("database"))
        )
        for name, rows in (("query", self.queries), ("database", self.database)):
            if not len(rows):
                raise UserError(f'Archive "{archive.card.name}" has no item in "{name}" to evaluate with.')
        self.owner = {modality: np.full(len(archive), -1) for modality in MODALITIES}
        for number in reversed(range(len(run.partition.silos))):
            for modality in MODALITIES:
                self.owner[modality][self.rows_of(number, modality)] = number

    def figures(self) -> Figures:
        """Return every figure that the settings ask for and the method can give."""
        measures = [measure_of(text, self.settings) for text in self.settings.measures]
        rows: list[ResultRow] = []
        curves: list[Curve] = []
        per_query: dict[tuple[Evaluation, Task, str], npt.NDArray[np.float64]] = {}
        tasks = measurable_tasks(self.settings.tasks, self.modalities)
        for evaluation in self.settings.evaluations:
            for task in tasks:
                parts = list(self.parts(evaluation, task))
                if not parts:
                    continue
                measured = [evaluate_all(measures, *_arguments(part), self.bits) for part in parts]
                rows += [self._row(evaluation, task, m, [found[m] for found in measured]) for m in measures]
                if evaluation in SAME_QUERIES:
                    for m in measures:
                        per_query[evaluation, task, str(m)] = self._per_query(task, [found[m] for found in measured])
                if task not in {curve.task for curve in curves}:
                    curves.append(_curve(task, parts, self.bits))
        ids = self.run.archive.ids[self.run.archive.split("query")]
        return Figures(rows=rows, curves=curves, per_query=per_query, queries=digest_json([str(name) for name in ids]))

    @property
    def bits(self) -> int:
        """The codes' length."""
        return self.run.config.local.bits

    @property
    def modalities(self) -> tuple[Modality, ...]:
        """The modalities that the model encodes."""
        return tuple(self.run.model.featurisers)

    @property
    def personal(self) -> list[str]:
        """The silos that deploy a model of their own."""
        return [name for name in self.run.model.weights if name != GLOBAL]

    def rows_of(self, number: int, modality: Modality) -> Rows:
        """Return the archive rows of which a silo holds the modality."""
        silo = self.run.partition.silos[number]
        held = silo.has_image if modality == "image" else silo.has_text
        return silo.rows[self.run.archive.has(modality)[silo.rows] & held]

    def asking(self, modality: Modality) -> Rows:
        """Return the archive rows of the queries that a silo holds the modality of."""
        return np.asarray(self.queries[self.owner[modality][self.queries] >= 0])

    def parts(self, evaluation: Evaluation, task: Task) -> Iterator[Part]:
        """Yield the parts of an evaluation; none if the method has no such model."""
        asking, asked = query_modality(task), database_modality(task)
        queries = self.asking(asking)
        database = self.database[self.owner[asked][self.database] >= 0]
        if (evaluation in {"GG", "GL"} and self.personal) or (evaluation in {"PL", "PG"} and not self.personal):
            return
        if evaluation in {"GG", "PG"}:
            for name in self.personal or [GLOBAL]:
                yield self._part(name, queries, self.words(name, asked, database), database, task)
        elif evaluation == "XS":
            stored = self._stored(asked, database)
            for name in self.personal or [GLOBAL]:
                yield self._part(name, queries, stored, database, task)
        else:
            for number, silo in enumerate(self.run.partition.silos):
                own_queries = np.intersect1d(queries, self.rows_of(number, asking))
                own_items = np.intersect1d(database, self.rows_of(number, asked))
                if len(own_queries) and len(own_items):
                    name = self.run.model.deployed_by(silo.name)
                    yield self._part(name, own_queries, self.words(name, asked, own_items), own_items, task)

    def meets_own_item(self, task: Task) -> bool:
        """Return whether a query's own item stands in the ranking that it is answered with."""
        across = query_modality(task) != database_modality(task)
        return self.run.archive.query_in_database and (across or self.settings.own_item == "count")

    def _part(self, name: str, queries: Rows, database_words: Words, database: Rows, task: Task) -> Part:
        own = None
        if self.run.archive.query_in_database and not self.meets_own_item(task):
            place = np.full(len(self.labels), -1)
            place[database] = np.arange(len(database))
            own = place[queries]
        relevance = Relevance(self.labels[queries], self.labels[database], self.ignore, own)
        return Part(self.words(name, query_modality(task), queries), database_words, relevance)

    def _stored(self, modality: Modality, rows: Rows) -> Words:
        """Return the codes that the silos' own indexes hold: each item's by the model that its silo deploys."""
        names = [self.run.model.deployed_by(silo.name) for silo in self.run.partition.silos]
        words = self.words(names[0], modality, rows).copy()
        for number, name in enumerate(names):
            own = self.owner[modality][rows] == number
            words[own] = self.words(name, modality, rows[own])
        return words

    def words(self, name: str, modality: Modality, rows: Rows) -> Words:
        """Return the codes of archive rows by one model, ``(n, W)``."""
        return self._codes(name, modality)[self._place[rows]]

    def _codes(self, name: str, modality: Modality) -> Words:
        key = (name, modality)
        if key not in self._made:
            encoder = self.run.model.encoder(name)
            self._made[key] = encoder.codes_of(
                self._vectors[modality], modality, self.run.archive.ids[self._rows]
            ).words
        return self._made[key]

    @cached_property
    def _made(self) -> dict[tuple[str, Modality], Words]:
        return {}

    @cached_property
    def _rows(self) -> Rows:
        return np.union1d(self.queries, self.database)

    @cached_property
    def _place(self) -> Rows:
        place = np.full(len(self.run.archive), -1, np.int64)
        place[self._rows] = np.arange(len(self._rows))
        return place

    @cached_property
    def _vectors(self) -> Mapping[Modality, npt.NDArray[np.generic]]:
        archive = self.run.archive
        return {
            modality: vectors(archive, featuriser, self._rows, archive.has(modality)[self._rows])
            for modality, featuriser in self.run.model.featurisers.items()
        }

    def _per_query(self, task: Task, parts: Sequence[PerQuery]) -> npt.NDArray[np.float64]:
        rows = self.run.archive.split("query")
        values = np.full(len(rows), np.nan)
        counted = [np.where(part.counted, part.value, np.nan) for part in parts]
        values[np.isin(rows, self.asking(query_modality(task)))] = np.mean(counted, axis=0)
        return values

    def _row(self, evaluation: Evaluation, task: Task, measure: Measure, parts: Sequence[PerQuery]) -> ResultRow:
        config, archive = self.run.config, self.run.archive
        same_queries = evaluation in SAME_QUERIES
        values, best, worst = (
            _together([getattr(part, name)[part.counted] for part in parts], same_queries=same_queries)
            for name in ("value", "best", "worst")
        )
        low, high = bootstrap_interval(values, seed=config.seed)
        return ResultRow(
            run=self.run.name,
            dataset=archive.card.name,
            protocol=archive.card.protocol + "".join(f", without {name}" for name in self.settings.ignore_labels),
            partition=f"{self.run.partition.kind}-{len(self.run.partition.silos)}",
            local=config.local.name,
            federated=config.federated.name,
            evaluation=evaluation,
            task=task,
            bits=self.bits,
            seed=config.seed,
            measure=str(measure),
            value=float(values.mean()) if len(values) else float("nan"),
            low=low,
            high=high,
            best=float(best.mean()) if len(best) else float("nan"),
            worst=float(worst.mean()) if len(worst) else float("nan"),
            queries=len(values),
            queries_without_relevant=sum(part.queries_without_relevant for part in parts)
            // (len(parts) if same_queries else 1),
            prior=float(np.mean([part.prior for part in parts])),
            config_digest=config.digest(),
            code_version=__version__,
            population=len(archive),
            no_hits=measure.empty,
            query_in_database=self.meets_own_item(task),
            database_code=DATABASE_CODE,
            round_by="validation" if config.evaluate.validation > 0 else "last",
        )


def measure_of(text: str, settings: EvaluateConfig) -> Measure:
    """Return the measure that a user typed; the settings decide about queries without relevant items if it does not."""
    measure = Measure.parse(text)
    return measure if "empty=" in text.replace(" ", "") else replace(measure, empty=settings.no_hits)


def _arguments(part: Part) -> tuple[Words, Words, Relevance]:
    return part.query_words, part.database_words, part.relevance


def _together(parts: Sequence[npt.NDArray[np.float64]], *, same_queries: bool) -> npt.NDArray[np.float64]:
    """Return a value a query whose mean is the mean over parts.

    Parts of the same queries are averaged query by query; parts of different queries are joined, each weighted so that
    every silo counts the same however many queries it has.
    """
    if same_queries:
        return np.asarray(np.mean(parts, axis=0))
    filled = [part for part in parts if len(part)]
    total = sum(len(part) for part in filled)
    weighted = [part * (total / (len(filled) * len(part))) for part in filled]
    return np.concatenate(weighted) if weighted else np.zeros(0)


def _curve(task: Task, parts: Sequence[Part], bits: int) -> Curve:
    counts = [histogram(*_arguments(part), bits) for part in parts]
    found = [precision_recall(part) for part in counts]
    prior = np.mean([part.relevant.sum() / max(1, part.items.sum()) for part in counts])
    return Curve(
        task=task,
        precision=np.mean([curve.precision for curve in found], axis=0),
        recall=np.mean([curve.recall for curve in found], axis=0),
        prior=float(prior),
    )


def _label(name: str, names: Sequence[str]) -> int:
    if name not in names:
        raise UserError(f'evaluate.ignore_labels: there is no label "{name}"{suggestion(name, names)}.')
    return list(names).index(name)
