"""What can be measured of a run: the items, the tasks, and which items are relevant to a query.

An item is relevant by labels if it shares a label with the query (`LabelRule`), and by pairs if it is the query's own
partner of the other modality (`PairRule`). By scores, those are relevant that the model itself scores highest
(`ScoreRule`). All is checked before the training.
"""

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from typing import Self, TypeAlias

import numpy as np
import numpy.typing as npt

from silohash.base import errors
from silohash.base.names import canonical
from silohash.base.registry import suggestion
from silohash.base.types import PAIR_TASKS, Modality, Rows, Task, database_modalities, is_across, query_modality
from silohash.data.archive import Archive
from silohash.data.pairs import picture_numbers
from silohash.evaluate.measures import PAIR_MEASURES, By, Measure
from silohash.evaluate.relevance import Pairs, Relevance
from silohash.run.config.sections import EvaluateConfig


class LabelRule:
    """Relevance by labels that are not ignored.

    Attributes:
        queries: ``(Q,)`` archive rows of the queries.
        database: ``(N,)`` archive rows of the items that are searched.
        unseen: Whether items that silos trained on are left out of the database.

    Raises:
        UserError: If the archive lacks labels, queries or database items.
    """

    by: By = "labels"
    unseen = False

    def __init__(self, archive: Archive, settings: EvaluateConfig) -> None:
        self._archive, self._settings = archive, settings
        self._labels = archive.required_labels(
            'so it is unknown which items are relevant to a query. Add a column "labels" to its metadata.'
        )
        self._ignored = ignored_labels(archive, settings)
        self.queries, self.database = counted_items(archive, self._labels, self._ignored)

    def without(self, trained: Rows) -> Self:
        """Return the rule with a database without the given rows, or the rule itself if the database has none of them."""
        rest = np.setdiff1d(self.database, trained)
        if len(rest) == len(self.database):
            return self
        narrow = copy(self)
        narrow.database, narrow.unseen = rest, True
        return narrow

    def tasks(self, modalities: Sequence[Modality]) -> list[Task]:
        """Return the configured tasks that the model can perform."""
        return measurable_tasks(self._settings.tasks, modalities)

    def asked(self, task: Task, rows: Rows) -> Rows:
        """Return all queries."""
        return rows

    def searched(self, task: Task, rows: Rows) -> Rows:
        """Return all items."""
        return rows

    def relevance(self, task: Task, queries: Rows, database: Rows) -> Relevance:
        """Return the relevance by shared labels, without a query's own item if that is not ranked."""
        own = None
        if self._archive.query_in_database and not self.ranks_own_item(task):
            position = np.full(len(self._labels), -1)
            position[database] = np.arange(len(database))
            own = position[queries]
        return Relevance(self._labels[queries], self._labels[database], self._ignored, own)

    def is_relevant(self, query: int, item: int) -> bool | None:
        """Return whether two items share a label that counts; None if the query has no such label."""
        counted = np.delete(self._labels[[query, item]], self._ignored, axis=1) > 0
        return bool(counted.all(axis=0).any()) if counted[0].any() else None

    def ranks_own_item(self, task: Task) -> bool:
        """Return whether the protocol's database holds the query, and the task ranks it."""
        return self._archive.query_in_database and (is_across(task) or self._settings.own_item == "count")


class PairRule:
    """Relevance by pairs: the items of the split ``query`` search each other for their own partners.

    A picture with several texts is one query, and is searched once.

    Raises:
        UserError: If no query has a picture and a text, or the config does not name a task across modalities.
    """

    by: By = "pairs"
    unseen = False

    def __init__(self, archive: Archive, settings: EvaluateConfig) -> None:
        self._tasks = [task for task in settings.tasks if task in PAIR_TASKS]
        if not self._tasks:
            raise errors.ConflictingOptions(
                f"Pairs of a picture and a text are judged in the tasks {' and '.join(PAIR_TASKS)}, and evaluate.tasks is "
                f"{', '.join(settings.tasks)}. Add one of them."
            )
        self.queries = self.database = paired_queries(archive)
        if not len(self.queries):
            raise errors.PairsNeeded(_without_pairs(archive))
        self._pictures = picture_numbers(archive)

    def without(self, trained: Rows) -> Self:
        """Return the rule itself, because its items are those of the split ``query``."""
        return self

    def tasks(self, modalities: Sequence[Modality]) -> list[Task]:
        """Return the configured tasks across modalities, if the model encodes both."""
        return measurable_tasks(self._tasks, modalities)

    def asked(self, task: Task, rows: Rows) -> Rows:
        """Return the queries, each picture once."""
        return self._once(rows) if query_modality(task) == "image" else rows

    def searched(self, task: Task, rows: Rows) -> Rows:
        """Return the items, each picture once."""
        return self._once(rows) if "image" in database_modalities(task) else rows

    def _once(self, rows: Rows) -> Rows:
        """Return the first row of each picture, in ascending order."""
        return np.asarray(np.sort(rows[np.unique(self._pictures[rows], return_index=True)[1]]))

    def relevance(self, task: Task, queries: Rows, database: Rows) -> Pairs:
        """Return the pairs of queries and items with the same picture."""
        return Pairs.of_groups(self._pictures[queries], self._pictures[database])

    def is_relevant(self, query: int, item: int) -> bool:
        """Return whether two items have the same picture."""
        return bool(self._pictures[query] == self._pictures[item])

    def ranks_own_item(self, task: Task) -> bool:
        """Return True, because the query's own item has its partner."""
        return True


class ScoreRule(PairRule):
    """Relevance by the scores of the model, which are compared with its codes. The items are those of `PairRule`."""

    by: By = "scores"


Rule: TypeAlias = LabelRule | PairRule
"""Which items of an archive are queries, which are searched, and which are relevant."""


def rules_of(archive: Archive, settings: EvaluateConfig) -> list[Rule]:
    """Return the rules by which a run's measures judge, labels first, of an archive that has what they need."""
    kinds = {measure.by for measure in measures_of(archive, settings)}
    rules: list[Rule] = [LabelRule(archive, settings)] if "labels" in kinds else []
    across: dict[By, type[PairRule]] = {"pairs": PairRule, "scores": ScoreRule}
    return [*rules, *(rule(archive, settings) for by, rule in across.items() if by in kinds)]


def measures_of(archive: Archive, settings: EvaluateConfig) -> list[Measure]:
    """Return the measures of a run. Without labels, those by labels are left out, and `PAIR_MEASURES` replace them.

    They have ``no_hits`` of the settings, unless their names set ``empty``.
    """
    measures = [_measure_of(text, settings) for text in settings.measures]
    if archive.labels is None:
        measures = [measure for measure in measures if measure.by != "labels"]
    return measures or [_measure_of(text, settings) for text in PAIR_MEASURES]


def _measure_of(text: str, settings: EvaluateConfig) -> Measure:
    measure = Measure.parse(text)
    return measure if "empty=" in text.replace(" ", "") else replace(measure, empty=settings.no_hits)


def remark_on_measures(archive: Archive, settings: EvaluateConfig) -> str:
    """Return a sentence if measures of the config are left out because there are no labels; otherwise an empty string."""
    measured = measures_of(archive, settings)
    left_out = [text for text in settings.measures if _measure_of(text, settings) not in measured]
    if not left_out or unmeasured(archive):
        return ""
    return (
        f'Archive "{archive.card.name}" has no labels, so {", ".join(left_out)} cannot be measured. The run is measured by '
        f"pairs of a picture and a text: {', '.join(map(str, measured))}."
    )


def check_measures(archive: Archive, names: Sequence[str]) -> None:
    """Check that an archive has the labels that measures need which a user names in place of those of the config.

    Raises:
        UserError: If one of them needs labels, and the archive does not have any.
    """
    for measure in map(Measure.parse, names):
        if measure.by == "labels" and archive.labels is None:
            raise errors.LabelsNeeded(
                f'"{measure}" needs labels, and archive "{archive.card.name}" has none. Name measures by pairs, such as '
                f"{PAIR_MEASURES[0]}."
            )


def check_settings(archive: Archive, modalities: Sequence[Modality], settings: EvaluateConfig) -> None:
    """Check before training that the configured figures can be computed after it.

    An archive without queries, or without labels and pairs, passes, because it is trained without figures (see
    `unmeasured`).

    Raises:
        UserError: If the archive lacks a label in ``ignore_labels``, or database items, if no query or no database item
            remains without these labels, or if the model cannot perform any task.
    """
    ignored_labels(archive, settings)
    if unmeasured(archive):
        return
    for rule in rules_of(archive, settings):
        rule.tasks(modalities)


def unmeasured(archive: Archive) -> str:
    """Return why a run on the archive has no figures, as a sentence, or an empty string if it has them."""
    if not len(archive.splits.get("query", ())):
        return (
            f'Archive "{archive.card.name}" does not have items in the split "query", so no figures can be measured. To '
            'measure a model, give some items the split "query" and train again.'
        )
    if archive.labels is None and not len(paired_queries(archive)):
        return _without_pairs(archive)
    return ""


def paired_queries(archive: Archive) -> Rows:
    """Return the archive rows of the queries that have a picture and a text."""
    queries = archive.splits.get("query", np.zeros(0, np.int64))
    return np.asarray(queries[(archive.has_image & archive.has_text)[queries]])


def _without_pairs(archive: Archive) -> str:
    """Return the sentence that nothing is known to be relevant to a query."""
    labels = "neither labels nor" if archive.labels is None else "no"
    return (
        f'Archive "{archive.card.name}" has {labels} queries with both a picture and a text, so it is unknown which items '
        'are relevant to a query. To measure a model by labels, add a column "labels" to its metadata and train again.'
    )


def measurable_tasks(tasks: Sequence[Task], modalities: Sequence[Modality]) -> list[Task]:
    """Return the tasks whose modalities the model encodes, at least one.

    Raises:
        UserError: If the model cannot perform any of the tasks.
    """
    found = [task for task in tasks if {query_modality(task), *database_modalities(task)} <= set(modalities)]
    if not found:
        raise errors.ModalityNeeded(
            f"The model encodes {' and '.join(modalities)} only, so none of the tasks {', '.join(tasks)} can be "
            "measured. Set evaluate.tasks."
        )
    return found


def counted_items(archive: Archive, labels: npt.NDArray[np.uint8], ignored: Sequence[int]) -> tuple[Rows, Rows]:
    """Return the rows of the queries and of the database items that figures count: with a label besides the ignored.

    Raises:
        UserError: If there are none.
    """
    counted = np.full(len(archive), fill_value=True)
    if ignored:
        counted = np.asarray(np.delete(labels, ignored, axis=1).any(axis=1))
    queries, database = (rows[counted[rows]] for rows in (archive.split("query"), archive.split("database")))
    for name, rows in (("query", queries), ("database", database)):
        if not len(rows):
            raise errors.NothingUsable(
                f'Archive "{archive.card.name}" has no items in the split "{name}" to evaluate on. '
                "Assign items to it, or list fewer labels in evaluate.ignore_labels."
            )
    return queries, database


def ignored_labels(archive: Archive, settings: EvaluateConfig) -> tuple[int, ...]:
    """Return the columns of the labels in ``ignore_labels``, all of which the archive must have.

    Raises:
        UserError: If the archive does not have one of the labels.
    """
    places = {canonical(name): place for place, name in enumerate(archive.label_names)}
    for name in settings.ignore_labels:
        if canonical(name) not in places:
            near = suggestion(name, archive.label_names)
            raise errors.UnknownName(f'evaluate.ignore_labels: there is no label "{name}"{near}.')
    return tuple(places[canonical(name)] for name in settings.ignore_labels)
