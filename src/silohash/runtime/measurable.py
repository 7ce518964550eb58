"""What can be measured of a run: the items, labels and tasks that figures need, checked before the training."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from silohash.config.sections import EvaluateConfig
from silohash.data.archive import Archive
from silohash.registry import suggestion
from silohash.types import Modality, Rows, Task, UserError, database_modalities, query_modality


def check_settings(archive: Archive, modalities: Sequence[Modality], settings: EvaluateConfig) -> None:
    """Check before training that the configured figures can be computed after it.

    An archive without queries or labels passes, because it is trained without figures (see `unmeasured`).

    Raises:
        UserError: if the archive lacks labels, a label in ``ignore_labels``, or database items, if no query or no database
            item remains without these labels, or if the model cannot perform any task.
    """
    ignored = ignored_labels(archive, settings)
    if unmeasured(archive):
        return
    measurable_tasks(settings.tasks, modalities)
    counted_items(archive, labels_of(archive), ignored)


def unmeasured(archive: Archive) -> str:
    """Return why a run on the archive has no figures, as a sentence, or an empty string if it has them."""
    if archive.labels is None:
        return (
            f'Archive "{archive.card.name}" has no labels, so it is unknown which items are relevant to a query, and no '
            'figures can be measured. To measure a model, add a column "labels" to the metadata and train again.'
        )
    if len(archive.splits.get("query", ())):
        return ""
    return (
        f'Archive "{archive.card.name}" does not have items in the split "query", so no figures can be measured. To '
        'measure a model, give some items the split "query" and train again.'
    )


def measurable_tasks(tasks: Sequence[Task], modalities: Sequence[Modality]) -> list[Task]:
    """Return the tasks whose modalities the model encodes.

    Raises:
        UserError: if the model cannot perform any of the tasks.
    """
    found = [task for task in tasks if {query_modality(task), *database_modalities(task)} <= set(modalities)]
    if not found:
        raise UserError(
            f"The model encodes {' and '.join(modalities)} only, so none of the tasks {', '.join(tasks)} can be "
            "measured. Set evaluate.tasks."
        )
    return found


def counted_items(archive: Archive, labels: npt.NDArray[np.uint8], ignored: Sequence[int]) -> tuple[Rows, Rows]:
    """Return the rows of the queries and of the database items that figures count.

    Args:
        archive: the archive.
        labels: ``(N, C)`` its labels.
        ignored: columns of labels that do not count. Items without any other label are left out.

    Raises:
        UserError: if there are none.
    """
    counted = np.full(len(archive), fill_value=True)
    if ignored:
        counted = np.asarray(np.delete(labels, ignored, axis=1).any(axis=1))
    queries, database = (rows[counted[rows]] for rows in (archive.split("query"), archive.split("database")))
    for name, rows in (("query", queries), ("database", database)):
        if not len(rows):
            raise UserError(
                f'Archive "{archive.card.name}" has no items in the split "{name}" to evaluate on. '
                "Assign items to it, or list fewer labels in evaluate.ignore_labels."
            )
    return queries, database


def labels_of(archive: Archive) -> npt.NDArray[np.uint8]:
    """Return the labels of an archive, ``(N, C)``.

    Raises:
        UserError: if it does not have labels.
    """
    return archive.required_labels(
        'so it is unknown which items are relevant to a query. Add a column "labels" to its metadata.'
    )


def ignored_labels(archive: Archive, settings: EvaluateConfig) -> tuple[int, ...]:
    """Return the columns of the labels in ``ignore_labels``.

    Raises:
        UserError: if the archive does not have one of the labels.
    """
    for name in settings.ignore_labels:
        if name not in archive.label_names:
            near = suggestion(name, archive.label_names)
            raise UserError(f'evaluate.ignore_labels: there is no label "{name}"{near}.')
    return tuple(archive.label_names.index(name) for name in settings.ignore_labels)
