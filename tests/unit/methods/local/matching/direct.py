"""The attention of one text and one image as the papers write it, with explicit contexts, and inputs for both forms."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812  torch's usual name
from torch import Tensor

WIDTH = 24
TEXTS, IMAGES = (5, 1, 3), (4, 2)
"""Numbers of words per text and of regions per image."""


def drawn(counts: tuple[int, ...], seed: int, *, most: int | None = None, width: int = WIDTH) -> tuple[Tensor, Tensor]:
    """Return unit vectors ``(B, N, D)`` in float64 that need gradients, with noise as padding, and their mask ``(B, N)``.

    Args:
        counts: Number of vectors per item.
        seed: Seed of the vectors. Those of an item do not depend on the number of rows of padding.
        most: N; by default the largest count.
        width: D.
    """
    generator = torch.Generator().manual_seed(seed)
    most = most or max(counts)
    values = torch.full((len(counts), most, width), 0.5, dtype=torch.float64)
    for row, count in enumerate(counts):
        vectors = torch.randn(count, width, generator=generator, dtype=torch.float64)
        values[row, :count] = F.normalize(vectors, dim=1)
    mask = torch.arange(most) < torch.tensor(counts).unsqueeze(1)
    return values.requires_grad_(), mask


def boxes_of(counts: tuple[int, ...], seed: int = 5) -> Tensor:
    """Return boxes ``(B, N, 4)`` in float64 with corners in [0, 1], zero for padding."""
    generator = torch.Generator().manual_seed(seed)
    boxes = torch.zeros(len(counts), max(counts), 4, dtype=torch.float64)
    for row, count in enumerate(counts):
        corners = torch.rand(count, 2, 2, generator=generator, dtype=torch.float64).sort(1).values
        boxes[row, :count] = corners.flatten(1)
    return boxes


def contexts(queries: Tensor, keys: Tensor, inverse_temperature: float) -> Tensor:
    """Return the context of each query ``(N, D)`` among the keys ``(M, D)``."""
    affinity = queries @ keys.T
    reduced = torch.where(affinity > 0, affinity, 0.1 * affinity)
    scaled = reduced / reduced.norm(dim=0)
    weights = (inverse_temperature * scaled).exp()
    return (weights / weights.sum(1, keepdim=True)) @ keys


def block_cosines(queries: Tensor, found: Tensor, blocks: int) -> Tensor:
    """Return the cosines of queries and contexts per block of dimensions, ``(N, P)``."""
    parts = zip(queries.chunk(blocks, dim=1), found.chunk(blocks, dim=1), strict=True)
    return torch.stack([F.cosine_similarity(query, context, dim=1) for query, context in parts], 1)
