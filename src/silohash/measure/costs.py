"""What hashing costs a run: its figures beside those of real-valued vectors and of ITQ, for the same queries and items.

Real-valued vectors rank by their cosine. Within a modality, and where one network places images and texts in one space, they
are the network's own. Elsewhere they are canonical variables (CCA), fitted to the pairs of the training items. ITQ has codes
as long as those of the run, fitted to the training items of all silos together, as `fedsums` does exactly.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from silohash.base.errors import UnsuitableMethod
from silohash.base.seeds import torch_globally
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

MOST_PAIRS = 2_000_000
"""Runs with more pairs of a query and an item are compared on request only, because their scores take long to rank."""


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
    if not measures:
        return []
    own, pooled = (settings.model_copy(update={"measures": measures, "evaluations": [e]}) for e in ("PG", "GG"))
    scores, codes = _baselines(run, featurizers)
    baselines = [Evaluator(run, pooled, (), baseline).figures().rows for baseline in (scores, codes)]
    rows = zip(*baselines, Evaluator(run, own if personal else pooled).figures().rows, strict=True)
    return [
        replace(row, run=name, bits=run.config.local.bits, evaluation=mine.evaluation, database_code=mine.database_code)
        for real, itq, mine in rows
        for name, row in ((f"{scores.reference(mine.task)}, no codes", real), ("ITQ", itq), (run.name, mine))
    ]


def _baselines(run: Run, featurizers: Featurizers) -> tuple["VectorScores", ArchiveOutputs]:
    """Return the scores of real-valued vectors, and the outputs of ITQ."""
    given, plain = _vectors(run, featurizers), _vectors(run, {m: _as_given(kind) for m, kind in featurizers.items()})
    width = min(values.shape[1] for values in given.values())
    across = plain if one_network(featurizers) else _fitted(run, given, width, iterations=0)
    return VectorScores(run, plain, across), _fitted(run, given, run.config.local.bits)


def is_compared(run: Run) -> bool:
    """Return whether a run is compared without request: if a published network embeds its items, and these are few."""
    networks = any(isinstance(kind, NetworkFeatures) for kind in run.model.featurizers.values())
    pairs = len(run.archive.split("query")) * len(run.archive.split("database"))
    return networks and not run.model.record.spec.scores_pairs and pairs <= MOST_PAIRS


def one_network(featurizers: Featurizers) -> bool:
    """Return whether the projections of one network place images and texts in one space."""
    options = [kind.source.options for kind in featurizers.values() if isinstance(kind, NetworkFeatures)]
    projected = all(given.get("pooling", "auto") in {"auto", "projection", "tokens"} for given in options)
    return len(options) == len(MODALITIES) and len({given.get("model") for given in options}) == 1 and projected


class VectorScores:
    """Scores by the cosine of vectors, of some vectors within a modality and of others across modalities."""

    def __init__(self, run: Run, within: ArchiveOutputs, across: ArchiveOutputs) -> None:
        self._holdings, self._within, self._across = Holdings(run.archive, run.partition), within, across

    def reference(self, task: Task) -> str:
        """Return what a task ranks by: the ``cosine`` of the network's vectors, or ``CCA``."""
        plain = self._across is self._within or {query_modality(task)} == {*database_modalities(task)}
        return "cosine" if plain else "CCA"

    def of_model(self, task: Task, name: str, queries: Rows, database: Rows) -> Scores:
        """Return the scores ``(Q, N)``. An item counts by its nearer modality or, if unified, by the sum of both."""
        space, unified = self._across if self.reference(task) == "CCA" else self._within, is_unified(task)
        items = []
        for modality in database_modalities(task):
            held = self._holdings.together[modality] if unified else self._holdings.owner[modality] >= 0
            found = of_equal_lengths(space[modality][database])
            items.append(np.where(held[database, np.newaxis], found, 0 if unified else np.nan))
        items = [of_equal_lengths(np.sum(items, axis=0))] if unified else items
        asked = of_equal_lengths(space[query_modality(task)][queries])
        return Scores(np.fmax.reduce([asked @ values.T for values in items]))


def _as_given(featurizer: Featurizer) -> Featurizer:
    """Return a featurizer that does not standardize the vectors of a network, or given ones."""
    if isinstance(featurizer, NetworkFeatures) and isinstance(featurizer.given, GivenFeatures):
        return replace(featurizer, given=replace(featurizer.given, standardize=False, whiten=False))
    return replace(featurizer, standardize=False, whiten=False) if isinstance(featurizer, GivenFeatures) else featurizer


def _vectors(run: Run, featurizers: Featurizers) -> ArchiveOutputs:
    """Return the vectors of all rows of the archive, without those of tokens; zeros for rows without the modality."""
    archive, found = run.archive, {}
    for modality, featurizer in featurizers.items():
        values = vectors(archive, featurizer, np.arange(len(archive)), archive.has(modality))
        items = values[:, 0] if values.ndim == 3 else values.reshape(len(archive), -1)
        found[modality] = np.asarray(items, np.float32)
    return found


def _fitted(run: Run, given: ArchiveOutputs, bits: int, **params: Any) -> ArchiveOutputs:  # noqa: ANN401  of ITQ
    """Return the outputs of ITQ, fitted to the training items. Without iterations, they are canonical variables, rotated."""
    import torch

    from silohash.methods.local.base import SiloData, outputs_of
    from silohash.methods.local.closed_form.itq import ITQ, ITQParams
    from silohash.models.specs import ModelSpec, TowerSpec

    method, spec = ITQ(ITQParams(**params)), {m: TowerSpec("mlp", values.shape[1:]) for m, values in given.items()}
    with torch_globally(run.config.seed, "baseline"):
        model = method.build(ModelSpec(spec, 0), bits)
    image, text = (torch.from_numpy(given[m]) if m in given else None for m in MODALITIES)
    together = Holdings(run.archive, run.partition).together
    masks = (
        [torch.from_numpy(of[m]) for m in MODALITIES] for of in ({m: run.archive.has(m) for m in MODALITIES}, together)
    )
    whole, silo = (SiloData("", image, text, None, has[0], has[1]) for has in masks)
    method.fit(model, silo.take(torch.from_numpy(trained_rows(run))))
    return {modality: values.numpy() for modality, values in outputs_of(model, whole).items()}
