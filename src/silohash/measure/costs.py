"""What hashing costs a run: its figures beside those of real-valued vectors and of ITQ, for the same queries and items.

Real-valued vectors rank by their cosine. Within a modality, and where one network places images and texts in one space, they
are the network's own. Elsewhere they are canonical variables (CCA), fitted to the pairs of the training items. ITQ is fitted
to the training items of all silos together, as `fedsums` does exactly, and has codes as long as those of the run.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from silohash.base.errors import UnsuitableMethod
from silohash.base.seeds import numpy_generator
from silohash.base.types import MODALITIES, ResultRow, Rows, Task, database_modalities, is_unified, query_modality
from silohash.data.partitions.holdings import Holdings
from silohash.evaluate.measures import Measure
from silohash.evaluate.scores import Scores
from silohash.features.base import Featurizer, Featurizers
from silohash.features.given import GivenFeatures, of_equal_lengths
from silohash.features.network import NetworkFeatures
from silohash.features.vectors import vectors
from silohash.measure.evaluation import Evaluator, trained_rows
from silohash.run.codes import ArchiveOutputs
from silohash.run.config.sections import EvaluateConfig
from silohash.run.folder import Run

REFERENCES = {True: "cosine, no codes", False: "CCA, no codes"}
"""Name of the real-valued vectors, by whether they are those of the network."""

MOST_ITEMS = 20_000
"""Archives with more items are compared on request only, because the cosines of all queries and items are in memory."""


def costs_of(run: Run, settings: EvaluateConfig) -> list[ResultRow]:
    """Return the figures of the real-valued vectors, of ITQ and of the run, one after the other per task and measure.

    A run with personal models has the mean over them. Measures within a radius are left out.

    Raises:
        UserError: If the model of the run scores pairs or takes word ids, or the run cannot be evaluated.
    """
    featurizers, personal = run.model.featurizers, run.model.personalized
    if run.model.record.spec.scores_pairs or any(kind.kind == "tokens" for kind in featurizers.values()):
        raise UnsuitableMethod(f"The model of {run.folder} does not hash vectors. Compare a run whose model does.")
    measures = [text for text in settings.measures if Measure.parse(text).radius_bits is None]
    own, pooled = (settings.model_copy(update={"measures": measures, "evaluations": [e]}) for e in ("PG", "GG"))
    given, plain = _vectors(run, featurizers), _vectors(run, {m: _as_given(kind) for m, kind in featurizers.items()})
    width = min(values.shape[1] for values in given.values())
    across = plain if one_network(featurizers) else _fitted(run, given, width, iterations=0)
    scores, codes = VectorScores(run, plain, across), _fitted(run, given, run.config.local.bits)
    parts = (
        Evaluator(run, pooled, (), scores),
        Evaluator(run, pooled, (), codes),
        Evaluator(run, own if personal else pooled),
    )
    rows = zip(*(part.figures().rows for part in parts), strict=True)
    return [
        replace(row, run=name, bits=run.config.local.bits, evaluation=mine.evaluation, database_code=mine.database_code)
        for real, itq, mine in (rows if measures else ())
        for name, row in ((REFERENCES[scores.are_plain(mine.task)], real), ("ITQ", itq), (run.name, mine))
    ]


def is_compared(run: Run) -> bool:
    """Return whether a run is compared without request: if published networks embed its items, and these are few."""
    networks = any(isinstance(kind, NetworkFeatures) for kind in run.model.featurizers.values())
    return networks and not run.model.record.spec.scores_pairs and len(run.archive) <= MOST_ITEMS


def one_network(featurizers: Featurizers) -> bool:
    """Return whether the projections of one network place images and texts in one space."""
    options = [kind.source.options for kind in featurizers.values() if isinstance(kind, NetworkFeatures)]
    projected = all(given.get("pooling", "auto") in {"auto", "projection", "tokens"} for given in options)
    return len(options) == len(MODALITIES) and len({given.get("model") for given in options}) == 1 and projected


class VectorScores:
    """Scores by the cosine of vectors, of some vectors within a modality and of others across modalities."""

    def __init__(self, run: Run, within: ArchiveOutputs, across: ArchiveOutputs) -> None:
        self._holdings, self._within, self._across = Holdings(run.archive, run.partition), within, across

    def are_plain(self, task: Task) -> bool:
        """Return whether the vectors of a task are those of the network."""
        return self._across is self._within or {query_modality(task)} == {*database_modalities(task)}

    def of_model(self, task: Task, name: str, queries: Rows, database: Rows) -> Scores:
        """Return the scores ``(Q, N)``. An item counts by its nearer modality or, if unified, by the sum of both."""
        space, unified = self._within if self.are_plain(task) else self._across, is_unified(task)
        items = []
        for modality in database_modalities(task):
            held = self._holdings.together[modality] if unified else self._holdings.owner[modality] >= 0
            vectors = of_equal_lengths(space[modality][database])
            items.append(np.where(held[database, np.newaxis], vectors, 0 if unified else np.nan))
        items = [of_equal_lengths(np.sum(items, axis=0))] if unified else items
        asked = of_equal_lengths(space[query_modality(task)][queries])
        return Scores(np.fmax.reduce([asked @ values.T for values in items]))


def _as_given(featurizer: Featurizer) -> Featurizer:
    """Return a featurizer that does not standardize the vectors of a network, or given ones."""
    if isinstance(featurizer, NetworkFeatures) and isinstance(featurizer.given, GivenFeatures):
        return replace(featurizer, given=replace(featurizer.given, standardize=False, whiten=False))
    return replace(featurizer, standardize=False, whiten=False) if isinstance(featurizer, GivenFeatures) else featurizer


def _vectors(run: Run, featurizers: Featurizers) -> ArchiveOutputs:
    """Return the vectors of all items of a split, without those of tokens; zeros for other rows of the archive."""
    archive, rows = run.archive, np.unique(np.concatenate([*run.archive.splits.values()]))
    found = {}
    for modality, featurizer in featurizers.items():
        values = vectors(archive, featurizer, rows, archive.has(modality)[rows])
        values = values[:, 0] if values.ndim == 3 else values.reshape(len(rows), -1)
        found[modality] = np.zeros((len(archive), values.shape[1]), np.float32)
        found[modality][rows] = values
    return found


def _fitted(run: Run, given: ArchiveOutputs, bits: int, **params: Any) -> ArchiveOutputs:  # noqa: ANN401  of ITQ
    """Return the outputs of ITQ, fitted to the training items. Without iterations, they are canonical variables, rotated."""
    from silohash.methods.local.closed_form import base, itq

    rows, generator = trained_rows(run), numpy_generator(run.config.seed, "baseline")
    together = Holdings(run.archive, run.partition).together
    held = {modality: together[modality][rows] for modality in given}
    values = {modality: given[modality][rows] * held[modality][:, np.newaxis] for modality in given}
    start = {f"{m}.hash.weight": generator.normal(size=(bits, given[m].shape[1])).astype(np.float32) for m in given}
    start |= {f"{modality}.hash.bias": np.zeros(bits, np.float32) for modality in given}
    views = base.Views(values, held, np.zeros((len(rows), 0)))
    found = base.solved(itq.ITQ(itq.ITQParams(**params)), start, views).params
    return {m: vector @ found[f"{m}.hash.weight"].T + found[f"{m}.hash.bias"] for m, vector in given.items()}
