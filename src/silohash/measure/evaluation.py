"""Compute a run's figures: one per evaluation, task and measure.

========  ==========================  =================  ====================================================
name      model                       queries            database
========  ==========================  =================  ====================================================
``GG``    global                      of all silos       of all silos
``GL``    global                      of a silo          of the same silo; mean over silos
``GF``    global                      of a silo          of all other silos; mean over silos
``GA``    global                      of a silo          of all silos; mean over silos
``PL``    personal                    of a silo          of the same silo; mean over silos
``PF``    personal                    of a silo          of all other silos; mean over silos
``PA``    personal                    of a silo          of all silos; mean over silos
``PG``    personal                    of all silos       of all silos; mean over silos
``XS``    queries: one silo's model,  of all silos       each silo's items, merged into one ranking; mean over
          items: their silo's model                      the querying silos
========  ==========================  =================  ====================================================

Names with G require a method with a global model, those with P a method with personal models. If all silos deploy the global
model, XS equals GG and measures a search across silos. With personal models, XS measures how well each silo's model
understands the codes of the others. (An actual search encodes the query with each silo's own model and merges by rank.)
Scores by different models cannot be compared, so personal models that score pairs have no XS.
In XS an item that several silos hold is included once, with the code of the first of these silos.

The tasks i2item and t2item search for items by the nearer of their picture code and their text code. The tasks i2unified and
t2unified search for items by one code, which is computed from both modalities. That of an item whose modalities are divided
among silos is computed from those that one silo holds, the first silo that holds the most.

Some protocols include the queries in the database, so that a query can retrieve its own item. Between modalities
(i2t, t2i) the own item stays in the ranking, as the protocol specifies. Within one modality (i2i, t2t), and among
items, it would be found by its own modality, so it is removed unless ``own_item = "count"``. The column
``query_in_database`` of a result states whether the own item was ranked.

Measures by pairs are about the partners of a query alone. The items of the split ``query`` search each other in i2t and
t2i, as in tests of captions, because most protocols leave these items out of the database. A picture with several texts is
one query, and one item of the database.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeAlias, cast

import numpy as np
import numpy.typing as npt
from pydantic import BeforeValidator

from silohash import __version__
from silohash.base import types
from silohash.base.errors import RunsDiffer, UnsuitableMeasure, UnsuitableMethod
from silohash.base.files import MEASURE_AGAIN, digest_json, read_arrays, write_arrays
from silohash.base.forms import damaged
from silohash.data.partitions.kinds import training_split
from silohash.data.partitions.training import bootstrap_sample
from silohash.evaluate.calibration import Calibration, hit_counts, reliability
from silohash.evaluate.items import ItemCodes, counts_by_distance
from silohash.evaluate.measures import Measure, PerQuery, evaluate_in_folds, mean_of
from silohash.evaluate.relevance import Pairs, Relevance
from silohash.evaluate.scores import NO_WORDS, PairScores, Scores, best_scored
from silohash.evaluate.significance import bootstrap_interval
from silohash.evaluate.ties import precision_recall
from silohash.index.codes import Words
from silohash.measure.measurable import Rule, check_measures, measures_of, rules_of
from silohash.run.codes import ArchiveOutputs, DatabaseCodes, RunCodes
from silohash.run.config.load import evaluate_config
from silohash.run.config.sections import EvaluateConfig
from silohash.run.folder import Run
from silohash.run.model.trained import GLOBAL

SAME_QUERIES: tuple[types.Evaluation, ...] = ("GG", "PG", "XS")
"""Evaluations in which all models are evaluated on the same queries."""

OF_GLOBAL_MODEL: tuple[types.Evaluation, ...] = ("GG", "GL", "GF", "GA", "XS")
OF_PERSONAL_MODELS: tuple[types.Evaluation, ...] = ("PL", "PF", "PA", "PG", "XS")
OF_OWN_ITEMS: tuple[types.Evaluation, ...] = ("GL", "PL")
OF_OTHERS_ITEMS: tuple[types.Evaluation, ...] = ("GF", "PF")

ONE_VIEW, NEARER_VIEW, BOTH_VIEWS = "one view", "the nearer of both views", "both views"
"""Across modalities, items are encoded from the searched modality alone, because a code of both modalities would contain the
query's modality. Searches for items have both codes and take the nearer one, or have one code of both modalities."""

SCORED = "scores of pairs"
"""The same where a model scores each query with each item."""

UNSEEN = ", without items that silos trained on"
"""End of `ResultRow.protocol` if the database is searched without these items."""

OF_QUERIES = " of the items of the split query"
"""End of the same where queries and their partners search each other."""

LABELS_USED: Mapping[tuple[types.Side, ...], str] = {
    (): "",
    ("database",): types.WITH_LABELS,
    ("query", "database"): types.ORACLE,
}
"""What the column ``database_code`` adds for each set of sides whose items are encoded with their true labels."""

Key = tuple[types.Evaluation, types.Task, str]
"""Evaluation, task and measure."""

Baseline: TypeAlias = ArchiveOutputs | PairScores
"""What ranks items as one model of all silos: outputs whose signs are the codes, or scores."""


def or_nan(value: float | None) -> float:
    """Return a number, or NaN for None."""
    return math.nan if value is None else value


@dataclass(frozen=True)
class RadiusCurve:
    """Mean precision and recall over queries of all items within a Hamming radius, from 0 to the code length.

    Attributes:
        task: For example "t2i".
        precision: ``precision[r]`` of the items within r bits; NaN where no item is within.
        recall: ``recall[r]``.
        prior: Share of relevant pairs among all pairs of a query and an item, which is the level of random codes.
        name: The run's name in the legend of a plot.
        reliability: The probabilities of the first hits compared with what is right (`calibration.reliability`), if known.
    """

    task: types.Task
    precision: tuple[Annotated[float, BeforeValidator(or_nan)], ...]
    recall: tuple[float, ...]
    prior: float | None = None
    name: str = ""
    reliability: tuple[tuple[float, float, float], ...] = ()

    def __post_init__(self) -> None:
        if len(self.precision) != len(self.recall):
            raise ValueError(f"{len(self.precision)} values of precision and {len(self.recall)} of recall")

    def to_json(self) -> dict[str, Any]:
        """Return the curve as a JSON value, with null for NaN and without the name."""
        precision = [None if math.isnan(value) else value for value in self.precision]
        known = {name: getattr(self, name) for name in ("task", "recall", "prior", "reliability")}
        return {**known, "precision": precision}


@dataclass(frozen=True)
class Figures:
    """The figures of a run.

    Attributes:
        per_query: (evaluation, task, measure) -> ``(Q,)`` float64 with one value per item of the archive's split
            "query", in its order. NaN marks an item that was not counted. Only the evaluations in `SAME_QUERIES` have
            values per query.
        queries: Digest of the ids of these items. The values of two runs can be compared if it is equal.
        unseen: The figures over the items that no silo trained on, which have no curves. They are the same rows where that
            leaves out no item, and there are none where it leaves out all of them.
    """

    rows: list[types.ResultRow]
    curves: list[RadiusCurve]
    per_query: Mapping[Key, npt.NDArray[np.float64]] = field(default_factory=dict)
    queries: str = ""
    unseen: Figures | None = None


def write_per_query(path: Path, figures: Figures) -> None:
    """Write ``per_query.safetensors``: one array ``evaluation/task/measure`` per figure, and the queries' digest."""
    arrays = {"/".join(key): values for key, values in figures.per_query.items()}
    write_arrays(path, arrays, {"queries": figures.queries})


def read_per_query(path: Path) -> tuple[Mapping[Key, npt.NDArray[np.float64]], str]:
    """Read one ``(Q,)`` float64 array per figure, NaN for queries that are not counted, and a digest of the query ids.

    Raises:
        UserError: If the file is missing or damaged.
    """
    arrays, about = read_arrays(path, remedy=MEASURE_AGAIN, missing='Run "silohash evaluate" on the run first.')
    found: dict[Key, npt.NDArray[np.float64]] = {}
    for name, values in arrays.items():
        parts = name.split("/", 2)
        if len(parts) < 3 or values.ndim != 1 or values.dtype != np.float64:
            raise damaged(path, f'it holds an array "{name}" of {values.dtype} and shape {values.shape}', MEASURE_AGAIN)
        found[cast(Key, tuple(parts))] = values
    return found, str(about.get("queries", ""))


class Part(NamedTuple):
    """The codes of some queries and of the database that they search, or scores. A figure is the mean over its parts."""

    query_words: Words
    database: Words | ItemCodes | Scores
    relevance: Relevance | Pairs


def evaluate_run(run: Run, *, ensemble: Sequence[Run] = (), **instead: Sequence[str] | None) -> Figures:
    """Compute the figures of a trained run, with the scores averaged over further runs of an ensemble on the same archive.

    ``instead`` holds the ``measures``, ``evaluations``, ``tasks`` or ``ignore_labels`` to use instead of the config's.

    Raises:
        UserError: If the run does not have a model, or its archive lacks what the measures need: labels or pairs, queries
            and a database; or if the runs of an ensemble do not score the same items.
    """
    given = {name: tuple(value) for name, value in instead.items() if value}
    measures = given.get("measures", ())
    settings = evaluate_config({**run.config.evaluate.model_dump(), **given})
    check_measures(run.archive, measures)
    return Evaluator(run, settings, ensemble).figures()


class Evaluator:
    """Encode a run's queries and database items, and compute the figures. A baseline takes the place of its models.

    Attributes:
        rules: The rules by which the measures judge, at least one.
        database_codes: The codes of the items that are searched.
        scores: The scores of pairs, if the model has them; otherwise None.
    """

    def __init__(
        self, run: Run, settings: EvaluateConfig, ensemble: Sequence[Run] = (), baseline: Baseline | None = None
    ) -> None:
        self.run, self._baseline = run, baseline
        outputs, scores = (baseline, None) if isinstance(baseline, Mapping) else (None, baseline)
        self.settings = settings
        self.rules = rules_of(run.archive, settings)
        rows = np.unique(np.concatenate([rows for rule in self.rules for rows in (rule.queries, rule.database)]))
        self.codes = RunCodes(run, rows, outputs)
        self.database_codes = DatabaseCodes(run, self.codes)
        self.holdings = self.database_codes.holdings
        self.scores = _scores_of(run, ensemble) if baseline is None else scores
        if self.scores is None and any(rule.by == "scores" for rule in self.rules):
            raise UnsuitableMeasure(
                f"Measures with by=scores compare codes with scores of pairs, and the model of {run.folder} has only codes. "
                "Remove them from the measures."
            )

    def figures(self) -> Figures:
        """Return every configured figure for which the method has a model, over all items and over unseen ones.

        A rule whose database has no training items is measured once.
        """
        trained = trained_rows(self.run)
        whole = [self._of_rule(rule) for rule in self.rules]
        unseen = [
            self._of_rule(narrow) if (narrow := rule.without(trained)) is not rule else found
            for rule, found in zip(self.rules, whole, strict=True)
        ]
        return replace(self._joined(whole), unseen=self._joined(unseen))

    def _joined(self, parts: Sequence[Figures]) -> Figures:
        """Return the figures of several rules as one, with the digest of the queries."""
        ids = self.run.archive.ids[self.run.archive.split("query")]
        return Figures(
            rows=[row for part in parts for row in part.rows],
            curves=[curve for part in parts for curve in part.curves],
            per_query={key: values for part in parts for key, values in part.per_query.items()},
            queries=digest_json([str(name) for name in ids]),
        )

    def _of_rule(self, rule: Rule) -> Figures:
        """Return the figures of one rule. The rule of unseen items has no curves."""
        rows: list[types.ResultRow] = []
        curves: dict[types.Task, RadiusCurve] = {}
        per_query: dict[Key, npt.NDArray[np.float64]] = {}
        measures = [measure for measure in measures_of(self.run.archive, self.settings) if measure.by == rule.by]
        for evaluation, task, parts in self._tasks(rule):
            of_parts = [evaluate_in_folds(measures, *part, self._bits(rule)) for part in parts]
            for measure in measures:
                found = [values[measure] for values in of_parts]
                rows.append(self._row(rule, evaluation, task, measure, found))
                if evaluation in SAME_QUERIES:
                    per_query[evaluation, task, str(measure)] = self._per_query(rule, task, found)
            if rule.by == "labels" and not rule.unseen and task not in curves and self.scores is None:
                by_labels = {*map(attrgetter("validation_by"), self.run.rounds())} == {"labels"}
                known = self.run.model.record.calibration if by_labels else {}
                curves[task] = _curve(task, parts, self.bits, known.get(task))
        return Figures(rows=rows, curves=list(curves.values()), per_query=per_query)

    def _tasks(self, rule: Rule) -> Iterator[tuple[types.Evaluation, types.Task, list[Part]]]:
        """Yield every configured evaluation and task for which the method has a model, with its parts."""
        for evaluation, task in product(self.settings.evaluations, rule.tasks(self.modalities)):
            if parts := list(self.parts(rule, evaluation, task)):
                yield evaluation, task, parts

    @property
    def bits(self) -> int:
        """The code length; 0 if scores are measured."""
        return self.run.config.local.bits if self.scores is None else 0

    def _bits(self, rule: Rule) -> int:
        """Return the length of the codes that a rule judges; 0 if it judges scores."""
        return self.run.config.local.bits if rule.by == "scores" else self.bits

    @property
    def modalities(self) -> tuple[types.Modality, ...]:
        """The modalities that the model encodes."""
        return tuple(self.run.model.featurizers)

    @property
    def personal(self) -> list[str]:
        """The silos that deploy a personal model."""
        return [name for name in self.run.model.names if name != GLOBAL and self._baseline is None]

    def asked(self, rule: Rule, task: types.Task, silo: int | None = None) -> types.Rows:
        """Return the archive rows of the queries that are asked: those of a silo, or of all silos."""
        modality = types.query_modality(task)
        if silo is None:
            return rule.asked(task, rule.queries[self.holdings.owner[modality][rule.queries] >= 0])
        return rule.asked(task, np.intersect1d(rule.queries, self.holdings.rows_of(silo, modality)))

    def searched(self, rule: Rule, task: types.Task, silo: int | None = None) -> types.Rows:
        """Return the archive rows of the items that are searched: those of a silo, or of all silos."""
        if silo is None:
            held = np.any(self.database_codes.held(task, rule.database), axis=0)
            return rule.searched(task, rule.database[held])
        return rule.searched(
            task, np.intersect1d(rule.database, self.holdings.items_of(silo, types.database_modalities(task)))
        )

    def parts(self, rule: Rule, evaluation: types.Evaluation, task: types.Task) -> Iterator[Part]:
        """Yield the parts of an evaluation. There are none if the method does not have the model that it requires."""
        if evaluation not in (OF_PERSONAL_MODELS if self.personal else OF_GLOBAL_MODEL):
            return
        if evaluation == "XS" and self.personal and self.scores is not None:
            # Scores of different models cannot be compared.
            return
        if evaluation in SAME_QUERIES:
            yield from self._parts_per_model(rule, evaluation, task)
        else:
            yield from self._parts_per_silo(rule, evaluation, task)

    def _parts_per_model(self, rule: Rule, evaluation: types.Evaluation, task: types.Task) -> Iterator[Part]:
        """Yield one part per model, with the queries and items of all silos."""
        queries, database = self.asked(rule, task), self.searched(rule, task)
        if rule.unseen and not len(database):
            return
        relevance = rule.relevance(task, queries, database)
        if self.scores is not None:
            for name in self.personal or [GLOBAL]:
                yield self._scored(rule, task, name, queries, database)
            return
        stored = self.database_codes.stored(task, database) if evaluation == "XS" else None
        for name in self.personal or [GLOBAL]:
            codes = self.database_codes.of_model(task, name, database) if stored is None else stored
            yield Part(self.codes.words(name, types.query_modality(task), queries, "query"), codes, relevance)

    def _parts_per_silo(self, rule: Rule, evaluation: types.Evaluation, task: types.Task) -> Iterator[Part]:
        """Yield one part per silo with its own queries, if there are any, and items for them to search."""
        for number, silo in enumerate(self.run.partition.silos):
            name, own = self.run.model.deployed_by(silo.name), self.searched(rule, task, number)
            queries, database = self.asked(rule, task, number), own
            if evaluation not in OF_OWN_ITEMS:
                database = np.setdiff1d(self.searched(rule, task), own if evaluation in OF_OTHERS_ITEMS else own[:0])
            if len(queries) and len(database) and self.scores is not None:
                yield self._scored(rule, task, name, queries, database)
            elif len(queries) and len(database):
                words = self.codes.words(name, types.query_modality(task), queries, "query")
                encoded = self.database_codes
                of_own = database is own
                codes = encoded.of_silo(task, number, database) if of_own else encoded.of_model(task, name, database)
                yield Part(words, codes, rule.relevance(task, queries, database))

    def _scored(self, rule: Rule, task: types.Task, name: str, queries: types.Rows, database: types.Rows) -> Part:
        """Return the scores of one model, or its codes with the items that it scores highest as the relevant ones."""
        assert self.scores is not None  # noqa: S101  the model scores pairs
        scores = self.scores.of_model(task, name, queries, database)
        if rule.by != "scores":
            return Part(NO_WORDS, scores, rule.relevance(task, queries, database))
        codes = self.database_codes.of_model(task, name, database)
        return Part(self.codes.words(name, types.query_modality(task), queries, "query"), codes, best_scored(scores))

    def _per_query(self, rule: Rule, task: types.Task, parts: Sequence[PerQuery]) -> npt.NDArray[np.float64]:
        rows = self.run.archive.split("query")
        values = np.full(len(rows), np.nan)
        counted = [np.where(part.counted, part.value, np.nan) for part in parts]
        values[np.isin(rows, self.asked(rule, task))] = np.mean(counted, axis=0)
        return values

    def _row(
        self, rule: Rule, evaluation: types.Evaluation, task: types.Task, measure: Measure, parts: Sequence[PerQuery]
    ) -> types.ResultRow:
        config, archive = self.run.config, self.run.archive
        ignored = self.settings.ignore_labels if measure.by == "labels" else ()
        return types.ResultRow(
            run=self.run.name, dataset=archive.card.name,
            protocol=archive.card.protocol
            + "".join(f", without {name}" for name in ignored)
            + (UNSEEN if rule.unseen else ""),
            partition=f"{self.run.partition.kind}-{len(self.run.partition.silos)}", local=config.local.name,
            federated=config.federated.name, evaluation=evaluation, task=task, bits=self._bits(rule),
            seed=config.seed, measure=str(measure), config_digest=config.digest(), code_version=__version__,
            population=len(archive), no_hits=measure.empty, query_in_database=rule.ranks_own_item(task),
            database_code=self._database_code(rule, task), round_by=self._round_by(),
            **_summary(parts, same_queries=evaluation in SAME_QUERIES, seed=config.seed),
        )  # fmt: skip

    def _round_by(self) -> str:
        if not self.run.config.evaluate.validation:
            return "last"
        records = self.run.rounds()
        if not records or records[0].validation_by == "labels":
            return "validation"
        return "validation on pairs" if any(record.validation is not None for record in records) else "last"

    def _database_code(self, rule: Rule, task: types.Task) -> str:
        """Return what the codes of a task's items were computed from, and whether true labels were used."""
        if self.scores is not None and rule.by != "scores":
            return SCORED + ("" if rule.by == "labels" else OF_QUERIES)
        several = BOTH_VIEWS if types.is_unified(task) else NEARER_VIEW
        views = ONE_VIEW if len(types.database_modalities(task)) == 1 else several
        views += "" if rule.by == "labels" else OF_QUERIES
        return views + LABELS_USED[self.codes.label_sides]


def trained_rows(run: Run) -> types.Rows:
    """Return the archive rows that some silo trained on, sorted. Those it held back chose the round, so they count.

    Items that no silo drew, where training items are drawn with replacement, do not count, unless some were held back.
    """
    archive, partition, split = run.archive, run.partition, training_split(run.partition.params)
    none = np.zeros(0, np.int64)
    if split not in archive.splits:
        return none
    rows = [silo.split(archive, split) for silo in partition.silos]
    if partition.params.get("bootstrap") and run.resolved.config.evaluate.validation == 0:
        rows = [bootstrap_sample(held, partition.seed, number) for number, held in enumerate(rows)]
    return np.unique(np.concatenate([none, *rows]))


def _scores_of(run: Run, ensemble: Sequence[Run]) -> PairScores | None:
    """Return the scores of a run's items, averaged over an ensemble, or None if its model has codes only."""
    runs = [run, *ensemble]
    for member in runs if ensemble else ():
        model = member.model
        if not model.record.spec.scores_pairs or model.personalized:
            raise UnsuitableMethod(
                f"{member.folder} does not have one model for all silos that scores pairs, and only scores of such models "
                "can be averaged. Leave it out."
            )
        if member.archive.card.digest != run.archive.card.digest:
            raise RunsDiffer(
                f"{member.folder} was trained on other items than {run.folder}. Average runs on one archive."
            )
    if not run.model.record.spec.scores_pairs:
        return None
    from silohash.run.model.scores import ArchiveScores, EnsembleScores

    models = [member.model for member in runs]
    return EnsembleScores(models, run.archive) if ensemble else ArchiveScores(run.model, run.archive)


def _summary(parts: Sequence[PerQuery], *, same_queries: bool, seed: int) -> dict[str, Any]:
    """Return the fields of a row that sum up its parts: the mean over their queries or, of ranks, the median."""
    are_ranks = parts[0].are_ranks
    medians = are_ranks and not same_queries  # the mean of the parts' medians, without an interval
    counted = {name: [getattr(part, name)[part.counted] for part in parts] for name in ("value", "best", "worst")}
    combined = {name: _combined(values, same_queries=same_queries) for name, values in counted.items()}
    low, high = bootstrap_interval(combined["value"], seed=seed, median=are_ranks)
    if medians:
        low = high = float("nan")
    means = {
        name: mean_of(np.array([mean_of(values, are_ranks=True) for values in counted[name] if len(values)]))
        if medians
        else mean_of(values, are_ranks=are_ranks)
        for name, values in combined.items()
    }
    without = sum(part.queries_without_relevant for part in parts) // (len(parts) if same_queries else 1)
    return {
        **means, "low": low, "high": high, "queries": len(combined["value"]), "queries_without_relevant": without,
        "prior": float(np.mean([part.prior for part in parts])),
    }  # fmt: skip


def _combined(parts: Sequence[npt.NDArray[np.float64]], *, same_queries: bool) -> npt.NDArray[np.float64]:
    """Return one value per query, weighted so that their mean equals the mean over parts, whatever their sizes."""
    if same_queries:
        return np.asarray(np.mean(parts, axis=0))
    filled = [part for part in parts if len(part)]
    total = sum(len(part) for part in filled)
    weighted = [part * (total / (len(filled) * len(part))) for part in filled]
    return np.concatenate(weighted) if weighted else np.zeros(0)


def _curve(task: types.Task, parts: Sequence[Part], bits: int, calibration: Calibration | None) -> RadiusCurve:
    counts = [counts_by_distance(*part, bits) for part in parts]
    precision, recall = np.mean([precision_recall(part) for part in counts], axis=0).tolist()
    prior = np.mean([part.relevant.sum() / max(1, part.items.sum()) for part in counts])
    sure = () if calibration is None else reliability(calibration, list(map(hit_counts, counts)))
    return RadiusCurve(task, tuple(precision), tuple(recall), float(prior), reliability=sure)
