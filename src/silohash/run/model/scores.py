"""The scores of a run's images with its texts, for local methods that score pairs.

An item is encoded once by each model, whatever it is compared with.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import nn

from silohash.base.types import PAIR_TASKS, Modality, Rows, Task, database_modalities, query_modality
from silohash.data.archive import Archive
from silohash.evaluate.measures import Measure, evaluate_all
from silohash.evaluate.relevance import Pairs
from silohash.evaluate.scores import NO_WORDS, Scores, score_histogram
from silohash.evaluate.validation import ValidationScore, validation_score_of
from silohash.features.vectors import vectors
from silohash.methods.local.base import SiloData
from silohash.models.matching_net import MatchingNet, nodes_of, scores_of
from silohash.models.nodes import Nodes
from silohash.run.model.saved import SavedModel

RECALL_SUM = Measure.parse("RSum[by=pairs]")


class ArchiveScores:
    """Score rows of an archive with any of the models of a run."""

    def __init__(self, model: SavedModel, archive: Archive) -> None:
        self._model, self._archive = model, archive
        self._encoded: dict[tuple[str, Modality], tuple[Rows, Nodes]] = {}
        self._networks: dict[str, MatchingNet] = {}

    def of_model(self, task: Task, name: str, queries: Rows, database: Rows) -> Scores:
        """Return the scores that one model, "global" or that of a silo, gives to queries with items, both archive rows."""
        by_image = query_modality(task) == "image"
        images, texts = (queries, database) if by_image else (database, queries)
        network = self._network(name)
        values = scores_of(network, self._nodes(name, "image", images), self._nodes(name, "text", texts)).numpy()
        return Scores(values if by_image else values.T)

    def _network(self, name: str) -> MatchingNet:
        if name not in self._networks:
            network = self._model.trained.network(name)
            assert isinstance(network, MatchingNet)  # noqa: S101  the local method scores pairs
            self._networks[name] = network
        return self._networks[name]

    def _nodes(self, name: str, modality: Modality, rows: Rows) -> Nodes:
        """Return the nodes of rows, which one model encodes when they are first needed."""
        known = self._encoded.get((name, modality))
        if known is None or not np.array_equal(known[0], rows):
            archive, featurizer = self._archive, self._model.featurizers[modality]
            values = torch.from_numpy(np.array(vectors(archive, featurizer, rows, archive.has(modality)[rows])))
            known = rows, nodes_of(self._network(name), values, modality)
            self._encoded[name, modality] = known
        return known[1]


class EnsembleScores:
    """The mean of the scores of several models for the same items."""

    def __init__(self, models: Sequence[SavedModel], archive: Archive) -> None:
        self._members = [ArchiveScores(model, archive) for model in models]

    def of_model(self, task: Task, name: str, queries: Rows, database: Rows) -> Scores:
        """Return the mean of the scores that the models with a name give. See `ArchiveScores.of_model`."""
        return Scores(np.mean([of.of_model(task, name, queries, database).values for of in self._members], axis=0))


def paired_rows(items: SiloData, pictures: Rows) -> Mapping[Modality, Rows]:
    """Return the rows of a silo's pictures, each once, and of their texts; none if fewer than two pictures have a text.

    Args:
        items: Those without a picture or a text are left out.
        pictures: ``(n,)`` numbers of the items' pictures. Items with the same number have the same picture.
    """
    texts = np.flatnonzero((items.has_image & items.has_text).cpu().numpy())
    numbers, first = np.unique(pictures[texts], return_index=True)
    return {"image": texts[first], "text": texts} if len(numbers) > 1 else {}


def match_score(model: nn.Module, items: SiloData, pictures: Rows) -> ValidationScore:
    """Return the mean of R@1, R@5 and R@10 over i2t and t2i among a silo's items, and the same for random scores.

    It is the rSum of papers divided by 600. The values are NaN if fewer than two pictures have a text.
    """
    assert isinstance(model, MatchingNet)  # noqa: S101  the local method scores pairs
    rows = paired_rows(items, pictures)
    if not rows or items.image is None or items.text is None:
        return ValidationScore()
    device = items.has_image.device
    places = {modality: torch.from_numpy(of).to(device) for modality, of in rows.items()}
    images = nodes_of(model, items.image[places["image"]], "image")
    captions = nodes_of(model, items.text[places["text"]], "text")
    values = scores_of(model, images, captions).numpy()
    found, counted = [], []
    for task in PAIR_TASKS:
        asked, [searched] = query_modality(task), database_modalities(task)
        pairs = Pairs.of_groups(pictures[rows[asked]], pictures[rows[searched]])
        scores = Scores(values if asked == "image" else values.T)
        found.append(evaluate_all([RECALL_SUM], NO_WORDS, scores, pairs, 0)[RECALL_SUM])
        counted.append((pictures[rows[asked]], score_histogram(scores, pairs)))
    parts = len(PAIR_TASKS) * len(RECALL_SUM.kind.parts(RECALL_SUM))
    scale = len(PAIR_TASKS) / parts
    return validation_score_of([scale * of.mean() for of in found], [scale * of.prior for of in found], counted)
