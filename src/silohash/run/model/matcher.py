"""The second stage of a search by scores: the words or regions of a query against those of a silo's candidates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from silohash.base.errors import NotIndexed, QueryUnsuitable
from silohash.base.types import Arrays, Modality, Rows
from silohash.data.archive import Archive
from silohash.data.pairs import picture_numbers
from silohash.data.regions import Regions
from silohash.features.base import Value, blocks
from silohash.features.vectors import vectors
from silohash.models.matching_net import MatchingNet, nodes_of, scores_of
from silohash.models.nodes import Nodes, word_tables
from silohash.run.model.encoder import Encoder
from silohash.run.model.node_files import REMOVED, NodeFiles, NodeWriter, nodes_folder
from silohash.run.model.torch_towers import TorchTowers

BLOCK_ITEMS = 1_024
"""Number of pictures or texts whose nodes are computed at a time."""

EXTRA = "extra-"
"""Beginning of the names of arrays that a model passes to its scores (`Nodes.extra`)."""


def network_of(encoder: Encoder) -> MatchingNet | None:
    """Return the network of an encoder, or None if it does not score pairs."""
    network = encoder.towers.model.model if isinstance(encoder.towers, TorchTowers) else None
    return network if isinstance(network, MatchingNet) else None


def matcher_of(encoder: Encoder, folder: Path) -> Matcher | None:
    """Return what scores the items of a silo's index in a folder, or None if the encoder's model does not score pairs."""
    network = network_of(encoder)
    shapes = {modality: tuple(featurizer.shape) for modality, featurizer in encoder.featurizers.items()}
    return None if network is None else Matcher(network, folder, shapes)


def query_nodes(encoder: Encoder, value: Value, modality: Modality) -> Arrays | None:
    """Return a text's words or a picture's regions for `Matcher.scores`; None if the model does not score pairs."""
    network = network_of(encoder)
    if network is None:
        return None
    values = torch.from_numpy(np.array(encoder.featurizers[modality].encode_one(value)))
    return arrays_of(nodes_of(network, values, modality))


def write_nodes(
    folder: Path, encoder: Encoder, archive: Archive, rows: Rows, modality: Modality, keys: Rows | None = None
) -> None:
    """Write the words or regions of indexed items beside their index. Nothing is written if the model does not score pairs.

    Without ``keys``, the rows have the keys 0 to n - 1 in the index.
    """
    network = network_of(encoder)
    if network is None:
        return
    column = archive.values(modality)
    groups = np.arange(len(rows)) if modality == "text" else picture_numbers(archive)[rows]
    groups = column.pictures[rows] if isinstance(column, Regions) else groups
    _, first, found = np.unique(groups, return_index=True, return_inverse=True)
    keys = np.arange(len(rows)) if keys is None else keys
    places = np.full(int(keys.max(initial=-1)) + 1, REMOVED)
    places[keys] = found
    writer = NodeWriter(nodes_folder(folder, modality), places)
    for _, block in blocks(rows[first], BLOCK_ITEMS):
        values = torch.from_numpy(np.array(vectors(archive, encoder.featurizers[modality], block)))
        nodes = nodes_of(network, values, modality)
        most = encoder.featurizers[modality].shape[0 if modality == "image" else -1] if nodes.mask.shape[1] > 1 else 1
        arrays = arrays_of(nodes.resized(most))
        writer.add({n: a if a.dtype == bool else a.astype(np.float16) for n, a in arrays.items()})
    writer.close()


class Matcher:
    """Score the items of a silo's index against a query. If their words or regions are not stored, it is a `UserError`."""

    def __init__(self, network: MatchingNet, folder: Path, shapes: Mapping[Modality, tuple[int, ...]]) -> None:
        self._network = network
        self._folder = folder
        self._shapes = shapes
        self._files: dict[Modality, NodeFiles] = {}

    def most_shared(self, modality: Modality) -> int:
        """Return the largest number of items that share a picture or a text, and therefore a score."""
        return self._nodes(modality).most_shared

    def nodes(self, content: np.ndarray, modality: Modality) -> Arrays:
        """Return the nodes of a query, with which `scores` scores items of a modality.

        Args:
            content: Words of a text, integers, or regions of a picture, real numbers, ``(1, *shape)`` as the model's
                featurizer gives them. It may come from another machine, so it is checked.
            modality: Modality of the items.

        Raises:
            UserError: If the content does not fit the model.
        """
        asked: Modality = "text" if modality == "image" else "image"
        values = torch.from_numpy(np.array(content))
        if flaw := self._flaw(values, asked):
            raise QueryUnsuitable(
                f"The {'words' if asked == 'text' else 'regions'} of the query do not fit the model: {flaw}."
            )
        return arrays_of(nodes_of(self._network, values, asked))

    def _flaw(self, values: Tensor, modality: Modality) -> str:
        """Return why a query's words or regions do not fit the model, or an empty string."""
        wanted = (1, *self._shapes[modality])
        if tuple(values.shape) != wanted or values.is_floating_point() != (modality == "image"):
            return f"they are {values.dtype} of shape {tuple(values.shape)}, and it takes {wanted}"
        if modality == "image":
            return "" if bool(values.isfinite().all()) else "some numbers are not finite"
        [table, *_] = word_tables(self._network)
        numbers = values if values.ndim == 2 else values[:, 0]
        known = bool(((numbers >= -1) & (numbers < table.num_embeddings)).all())
        return "" if known else f"some words are not among its {table.num_embeddings:,}"

    def scores(self, query: Mapping[str, np.ndarray], modality: Modality, keys: Sequence[int]) -> list[float]:
        """Return the score of each item with a query of the other modality (`query_nodes`); higher is better."""
        if not keys:
            return []
        arrays, position = self._nodes(modality).read(keys)
        items, asked = nodes_from(arrays).trimmed(), nodes_from(query)
        if modality == "image":
            found = scores_of(self._network, items, asked)[:, 0]
        else:
            found = scores_of(self._network, asked, items)[0]
        scores: list[float] = found.numpy()[position].tolist()
        return scores

    def _nodes(self, modality: Modality) -> NodeFiles:
        """Return the nodes of a modality, which are opened when they are first needed."""
        if modality not in self._files:
            folder = nodes_folder(self._folder, modality)
            if not folder.exists():
                what = "regions" if modality == "image" else "words"
                raise NotIndexed(f"The {what} of its items are not stored. Index the silo again.")
            self._files[modality] = NodeFiles(folder)
        return self._files[modality]


def arrays_of(nodes: Nodes) -> Arrays:
    """Return nodes as arrays by name."""
    parts = {"values": nodes.values, "mask": nodes.mask, "boxes": nodes.boxes, "edges": nodes.edges}
    parts |= {EXTRA + name: values for name, values in nodes.extra.items()}
    return {name: part.cpu().numpy() for name, part in parts.items() if part is not None}


def nodes_from(arrays: Mapping[str, np.ndarray]) -> Nodes:
    """Return the nodes that `arrays_of` gave, possibly in half precision."""
    tensors = {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}
    parts = {name: part if part.dtype == torch.bool else part.float() for name, part in tensors.items()}
    return Nodes(
        values=parts["values"],
        mask=parts["mask"],
        boxes=parts.get("boxes"),
        edges=parts.get("edges"),
        extra={name.removeprefix(EXTRA): part for name, part in parts.items() if name.startswith(EXTRA)},
    )
