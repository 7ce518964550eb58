"""From items to codes: featurizer, towers, signs.

An `Encoder` does not depend on the program that runs the towers. `silohash.encode.torch_towers` runs them with torch and
`silohash.encode.onnx_towers` runs them with onnxruntime. Both include the federated method's adaptation of the outputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np
import numpy.typing as npt

from silohash.data.archive import Archive
from silohash.features.base import Featuriser, Value
from silohash.features.vectors import vectors
from silohash.index.codes import Codes, pack
from silohash.types import Modality, Rows, UserError


class Towers(Protocol):
    """The towers of one trained model, ready to run."""

    def outputs(self, values: npt.NDArray[np.generic], modality: Modality) -> npt.NDArray[np.float32]:
        """Return the real-valued outputs whose signs are the codes, ``(n, bits)`` float32.

        Args:
            values: a featurizer's vectors, ``(n, *shape)``, at least one.
            modality: their modality.
        """
        ...


class Encoder:
    """One model that turns the items of an archive, or one query, into codes.

    Args:
        towers: the towers with the federated method's adaptation.
        featurisers: one fitted featurizer per modality of the model.
        bits: code length.
        digest: digest of everything that decides the codes.
    """

    def __init__(self, towers: Towers, featurisers: Mapping[Modality, Featuriser], *, bits: int, digest: str) -> None:
        self.towers = towers
        self.featurisers = featurisers
        self.bits = bits
        self.digest = digest

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
        return self.towers.outputs(values, modality) if len(values) else np.zeros((0, self.bits), np.float32)

    def _check(self, modality: Modality) -> None:
        if modality not in self.featurisers:
            raise UserError(
                f"The model was trained without {modality} data and encodes only {' and '.join(self.featurisers)}. "
                f"Ask with {' or '.join(self.featurisers)} instead."
            )
