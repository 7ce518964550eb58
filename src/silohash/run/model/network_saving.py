"""Write the pretrained networks of a run to the cache as ONNX files, so that its queries are encoded without torch."""

from collections.abc import Mapping
from functools import partial

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from silohash.base.attempts import attempted
from silohash.base.errors import NotExportable, UserError
from silohash.base.files import digest_bytes
from silohash.base.optional import missing_package
from silohash.base.types import Modality, Notify
from silohash.features.base import Featurizer
from silohash.features.network import NetworkFeatures
from silohash.features.onnx_network import OnnxNetwork, cached_network, store_network, weights_name
from silohash.features.onnx_session import open_session, run_session
from silohash.features.preprocess import PicturePreparation
from silohash.features.word_pieces import WordPieces
from silohash.run.model.onnx_graph import onnx_bytes, without_weights

TOLERANCE = 1e-4
"""Largest accepted difference from torch's vectors, as a share of the largest number, or absolute if that is below 1."""

COMPARED_ITEMS = 4
EXAMPLES = ("two red parrots on a branch", "a", "the harbor at night", "violin")


def save_networks(featurizers: Mapping[Modality, Featurizer], notify: Notify) -> None:
    """Write the pretrained networks of a run's featurizers to the cache, unless it holds them.

    A network that cannot be written, or that does not agree with torch, is left out. Queries then need torch.
    """
    for modality, featurizer in featurizers.items():
        if not isinstance(featurizer, NetworkFeatures) or featurizer.half:
            continue
        # A network whose record is damaged is written again.
        if attempted(partial(cached_network, featurizer.key), UserError, otherwise=None) is None:
            try:
                _save(featurizer)
            except (UserError, ImportError, RuntimeError, torch.onnx.errors.OnnxExporterError) as error:
                if isinstance(error, ImportError) and missing_package(error) is None:
                    raise
                notify(f"Encoding {modality} queries needs torch: {' '.join(str(error).split())[:300]}")


class _Vectors(nn.Module):
    """A frozen network from prepared inputs to vectors."""

    def __init__(self, network: nn.Module, preparation: PicturePreparation | None) -> None:
        super().__init__()
        self.network = network
        affine = (np.ones(1, np.float32), np.zeros(1, np.float32)) if preparation is None else preparation.affine()
        self.factor, self.offset = (torch.from_numpy(array) for array in affine)
        self.scales = preparation is not None

    def forward(self, inputs: Tensor) -> Tensor:
        """Return ``(n, width)`` float32 of ``(n, *shape)``."""
        vectors: Tensor = self.network(inputs.float() * self.factor + self.offset if self.scales else inputs)
        return vectors.float()


def _save(featurizer: NetworkFeatures) -> None:
    network = featurizer.source.network()
    preparation, pieces = network.preparation, network.pieces
    given = _examples(preparation, pieces)
    content = onnx_bytes(_Vectors(network.module.cpu(), preparation).eval(), given, {"key": network.key})
    theirs = run_session(open_session(content, few_items=True), given)
    ours = network.embed({"pixels" if pieces is None else "ids": given}, "cpu", half=False)
    difference, largest = float(np.abs(ours - theirs).max()), float(np.abs(ours).max())
    if not difference <= TOLERANCE * max(1.0, largest):
        raise NotExportable(
            f"{network.name} as ONNX gives vectors that differ from those of torch by up to {difference:.2g}."
        )
    graph, weights = without_weights(content, weights_name(network.key))
    digests = digest_bytes(graph), digest_bytes(weights)
    store_network(OnnxNetwork(network.key, network.name, network.width, *digests, preparation, pieces), graph, weights)


def _examples(preparation: PicturePreparation | None, pieces: WordPieces | None) -> npt.NDArray[np.generic]:
    """Return prepared inputs on which the two forms of a network are compared."""
    if preparation is None:
        assert pieces is not None  # noqa: S101  exactly one of them is given
        return pieces.ids(list(EXAMPLES), width=pieces.most)
    shape = (COMPARED_ITEMS, 3, *preparation.shape)
    return (np.arange(np.prod(shape), dtype=np.int64) * 7919 % 256).astype(np.uint8).reshape(shape)
