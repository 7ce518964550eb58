"""Pretrained vectors of words as a part of the model that a training starts from."""

from __future__ import annotations

import torch
from torch import nn

from silohash.features.base import Featurizer
from silohash.features.nodes.word_ids import WordSequences
from silohash.features.nodes.word_vectors import read_word_vectors
from silohash.models.node_encoders import word_tables


def start_from_word_vectors(model: nn.Module, featurizer: Featurizer | None) -> None:
    """Replace the random vectors of words by those of the file that the config names. Without one, nothing happens.

    Words that the file does not have keep their random vectors. All vectors are trained.

    Args:
        model: The model that the server starts from.
        featurizer: The featurizer of texts.

    Raises:
        UserError: If the file is missing or does not fit the model.
    """
    if not isinstance(featurizer, WordSequences) or featurizer.vectors is None:
        return
    tables = word_tables(model)
    numbers, vectors = read_word_vectors(featurizer.vectors, featurizer.known_number, tables[0].embedding_dim)
    for table in tables:
        with torch.no_grad():
            table.weight[torch.from_numpy(numbers)] = torch.from_numpy(vectors).to(table.weight)
