"""Towers that torch runs: the networks of the training, with the weights that a party deploys."""

from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from silohash.base.types import Modality, PairBatch
from silohash.features.base import Featurizer
from silohash.features.vectors import pixel_statistics
from silohash.models.towers import Adapted, batch_of, outputs_over
from silohash.run.model.encoder import Labels, Vectors

BATCH_ROWS = 1024


class TorchTowers:
    """The towers of one model with the federated method's adaptation, run by torch."""

    def __init__(self, model: Adapted, featurizers: Mapping[Modality, Featurizer], device: torch.device) -> None:
        self.model = model.eval()
        self.device = device
        self.pixels = {n: torch.from_numpy(a).to(device) for n, a in pixel_statistics(featurizers).items()}

    def outputs(self, values: Vectors, modality: Modality, labels: Labels | None = None) -> npt.NDArray[np.float32]:
        """Return the outputs, see `Towers.outputs`."""
        given = torch.from_numpy(np.array(values)).to(self.device)
        known = None if labels is None else torch.from_numpy(labels.astype(np.float32)).to(self.device)
        outputs = outputs_over(self.model, self._batches(given, modality, known))[modality]
        found: npt.NDArray[np.float32] = outputs.cpu().numpy()
        return found

    def batch(self, values: Tensor, modality: Modality, labels: Tensor | None = None) -> PairBatch:
        """Return a featurizer's vectors ``(B, *shape)``, and any labels ``(B, C)``, as the model takes them."""
        return batch_of(values, modality, self.pixels, labels)

    def _batches(self, values: Tensor, modality: Modality, labels: Tensor | None) -> Iterator[PairBatch]:
        for start in range(0, len(values), BATCH_ROWS):
            rows = torch.arange(start, min(start + BATCH_ROWS, len(values)), device=values.device)
            known = None if labels is None else labels.index_select(0, rows)
            yield self.batch(values.index_select(0, rows), modality, known)
