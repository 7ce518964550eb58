"""The codes of a run's items by each of its models, and those that a search finds the items by.

A model encodes the items when a code is first needed. A task searches for codes of one modality, for the nearer of two, or
for one code of both modalities.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from silohash.base.types import MODALITIES, SIDES, Modality, Rows, Side, Task, database_modalities, is_unified
from silohash.data.partitions.holdings import Holdings
from silohash.evaluate.items import ItemCodes
from silohash.features.vectors import vectors
from silohash.index.codes import Words, pack, word_count, word_type
from silohash.run.folder import Run

ArchiveOutputs: TypeAlias = Mapping[Modality, npt.NDArray[np.floating[Any]]]
"""``(N, K)`` per modality, of all archive rows."""

Mask: TypeAlias = npt.NDArray[np.bool_]
"""``(n,)``, which items are meant."""


class RunCodes:
    """Encode some archive rows with any model of a run, once per model and modality.

    Args:
        run: A trained run.
        rows: ``(n,)`` int64, sorted and unique archive rows. Rows without a modality are encoded from zeros.
        outputs: The outputs whose signs are the codes, in place of those of the models.

    Attributes:
        label_sides: The sides of a search whose items are encoded with their true labels, once an item was encoded.
    """

    def __init__(self, run: Run, rows: Rows, outputs: ArchiveOutputs | None = None) -> None:
        self._run, self._outputs = run, outputs
        self.label_sides: tuple[Side, ...] = ()
        self._rows = rows
        self._position = np.full(len(run.archive), -1, np.int64)
        self._position[rows] = np.arange(len(rows))
        self._encoded: dict[tuple[str, Modality, Side], Words] = {}
        self._unified: dict[str, Words] = {}

    def words(self, name: str, modality: Modality, rows: Rows, side: Side = "database") -> Words:
        """Return one model's codes, ``(n, W)``, of archive rows among those of this object.

        The side matters if the model encodes items with their true labels.
        """
        if (name, modality, side) not in self._encoded:
            self._encode(name, modality, side)
        return self._encoded[name, modality, side][self._position[rows]]

    def unified(self, name: str, rows: Rows, held: Sequence[Mask]) -> Words:
        """Return one code per database item, ``(n, W)``, computed by one model from all modalities that are held.

        The code of an item with a picture and a text consists of the signs of the sum of both towers' outputs. An item
        with one modality has the code of that modality.

        Args:
            name: Name of the model, "global" or that of a silo.
            rows: ``(n,)``, archive rows among those of this object.
            held: ``(n,)`` bool per modality, in the order of `MODALITIES`. Every item has at least one modality.
        """
        if name not in self._unified:
            self._unified[name] = pack(sum(self._encode(name, modality, "database") for modality in MODALITIES))
        words = self._unified[name][self._position[rows]]
        for modality, other in zip(MODALITIES, reversed(held), strict=True):
            words[~other] = self.words(name, modality, rows[~other])
        return words

    def _encode(self, name: str, modality: Modality, side: Side) -> npt.NDArray[np.float32]:
        """Encode all rows for one side, and the other if its codes are the same. Return the outputs, ``(n, bits)``."""
        if self._outputs is not None:
            given = self._outputs[modality][self._rows].astype(np.float32)
            self._encoded |= dict.fromkeys(((name, modality, other) for other in SIDES), pack(given))
            return given
        archive, encoder = self._run.archive, self._run.model.encoder(name, run_by="torch")
        labels = encoder.labels_for(side, archive, self._rows)
        outputs = encoder.outputs(self._vectors[modality], modality, labels)
        self.label_sides = encoder.label_sides
        same = [other for other in SIDES if (other in self.label_sides) == (side in self.label_sides)]
        self._encoded |= dict.fromkeys(((name, modality, other) for other in same), pack(outputs))
        return outputs

    @cached_property
    def _vectors(self) -> Mapping[Modality, npt.NDArray[np.generic]]:
        archive = self._run.archive
        return {
            modality: vectors(archive, featurizer, self._rows, archive.has(modality)[self._rows])
            for modality, featurizer in self._run.model.featurizers.items()
        }


class DatabaseCodes:
    """Return the codes of database items, by one model or by those that silos deploy. A task decides which modalities."""

    def __init__(self, run: Run, codes: RunCodes) -> None:
        self.holdings = Holdings(run.archive, run.partition)
        self._codes = codes
        self._bits = run.config.local.bits
        self._deployed = [run.model.deployed_by(silo.name) for silo in run.partition.silos]

    def held(self, task: Task, rows: Rows) -> Sequence[Mask]:
        """Return for each modality that a task searches, whether some silo holds it of archive rows, ``(n,)``.

        In a task with unified codes, only the silo counts that holds most of an item.
        """
        if is_unified(task):
            return [self.holdings.together[modality][rows] for modality in database_modalities(task)]
        return [self.holdings.owner[modality][rows] >= 0 for modality in database_modalities(task)]

    def of_model(self, task: Task, name: str, rows: Rows) -> Words | ItemCodes:
        """Return one model's codes of rows of all silos."""
        return self._encoded(task, name, rows, self.held(task, rows))

    def of_silo(self, task: Task, number: int, rows: Rows) -> Words | ItemCodes:
        """Return the codes of rows of one silo, with the model that the silo deploys."""
        held = [np.isin(rows, self.holdings.rows_of(number, modality)) for modality in database_modalities(task)]
        return self._encoded(task, self._deployed[number], rows, held)

    def stored(self, task: Task, rows: Rows) -> Words | ItemCodes:
        """Return the codes that silos hold: each item is encoded by the model that its silo deploys."""
        held = self.held(task, rows)
        if is_unified(task):
            return self._by_silo(
                self.holdings.holder[rows],
                lambda name, some: self._codes.unified(name, rows[some], [mask[some] for mask in held]),
            )
        return _joined([self._stored_words(modality, rows) for modality in database_modalities(task)], held)

    def _stored_words(self, modality: Modality, rows: Rows) -> Words:
        owners = self.holdings.owner[modality][rows]
        return self._by_silo(owners, lambda name, some: self._codes.words(name, modality, rows[some]))

    def _encoded(self, task: Task, name: str, rows: Rows, held: Sequence[Mask]) -> Words | ItemCodes:
        """Return one model's codes of rows, of which the masks say what modalities are searched."""
        if is_unified(task):
            return self._codes.unified(name, rows, held)
        return _joined([self._codes.words(name, modality, rows) for modality in database_modalities(task)], held)

    def _by_silo(self, silos: Rows, encode: Callable[[str, Mask], Words]) -> Words:
        """Return the codes of items, each encoded by the model that its silo deploys; zeros for items of no silo."""
        words: Words = np.zeros((len(silos), word_count(self._bits)), word_type(self._bits))
        for number, name in enumerate(self._deployed):
            words[silos == number] = encode(name, silos == number)
        return words


def _joined(words: Sequence[Words], held: Sequence[Mask]) -> Words | ItemCodes:
    """Return the codes of one modality as they are, and those of several as the codes of items."""
    return words[0] if len(words) == 1 else ItemCodes(tuple(words), tuple(held))
