"""From items to codes: featurizer, towers, the federated method's adaptation, signs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from silohash.data.archive import Archive
from silohash.features.base import Featuriser, Value
from silohash.features.vectors import pixel_statistics, vectors
from silohash.index.codes import Codes, pack
from silohash.models.towers import Adapted, batch_of, outputs_over
from silohash.types import Modality, PairBatch, Rows, UserError

BATCH_ROWS = 1024


class Encoder:
    """One model that turns the items of an archive, or one query, into codes.

    Args:
        model: the towers with the federated method's adaptation.
        featurisers: one fitted featurizer per modality of the model.
        bits: code length.
        digest: digest of everything that decides the codes.
        device: the model's device.
    """

    def __init__(
        self, model: Adapted, featurisers: Mapping[Modality, Featuriser], *, bits: int, digest: str,
        device: torch.device,
    ) -> None:  # fmt: skip
        self.model = model.eval()
        self.featurisers = featurisers
        self.bits = bits
        self.digest = digest
        self.device = device
        self.pixels = {n: torch.from_numpy(a).to(device) for n, a in pixel_statistics(featurisers).items()}

    def codes(self, archive: Archive, rows: Rows, modality: Modality) -> Codes:
        """Return the codes of some items of an archive; each must have the modality.

        Raises:
            UserError: if the model does not have the modality.
        """
        self._check(modality)
        return self.codes_of(vectors(archive, self.featurisers[modality], rows), modality, archive.ids[rows])

    def encode(self, value: Value, modality: Modality) -> Codes:
        """Return the code of one text, image or feature vector.

        Raises:
            UserError: if the model does not have the modality, or the query is of the wrong kind.
        """
        self._check(modality)
        return self.codes_of(self.featurisers[modality].encode_one(value), modality, np.asarray(["query"]))

    def codes_of(self, values: npt.NDArray[np.generic], modality: Modality, ids: npt.NDArray[np.str_]) -> Codes:
        """Return the codes of a featurizer's vectors, ``(n, *shape)``."""
        words = pack(self.outputs(values, modality))
        return Codes(words=words, bits=self.bits, ids=ids, modality=modality, model_digest=self.digest)

    def outputs(self, values: npt.NDArray[np.generic], modality: Modality) -> npt.NDArray[np.float32]:
        """Return the real-valued outputs whose signs are the codes, ``(n, bits)`` float32.

        Args:
            values: a featurizer's vectors, ``(n, *shape)``.
            modality: their modality.
        """
        if not len(values):
            return np.zeros((0, self.bits), np.float32)
        given = torch.from_numpy(np.array(values)).to(self.device)
        outputs = outputs_over(self.model, self._batches(given, modality))[modality]
        found: npt.NDArray[np.float32] = outputs.cpu().numpy()
        return found

    def batch(self, values: Tensor, modality: Modality) -> PairBatch:
        """Return a featurizer's vectors ``(B, *shape)`` as the model takes them."""
        return batch_of(values, modality, self.pixels)

    def _batches(self, values: Tensor, modality: Modality) -> Iterator[PairBatch]:
        for start in range(0, len(values), BATCH_ROWS):
            rows = torch.arange(start, min(start + BATCH_ROWS, len(values)), device=values.device)
            yield self.batch(values.index_select(0, rows), modality)

    def _check(self, modality: Modality) -> None:
        if modality not in self.featurisers:
            raise UserError(
                f"The model was trained without {modality} data and encodes only {' and '.join(self.featurisers)}. "
                f"Ask with {' or '.join(self.featurisers)} instead."
            )
