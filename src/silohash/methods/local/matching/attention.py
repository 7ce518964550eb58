"""Attention between the words of texts and the regions of images, for all pairs of some texts and images at once.

A query, which is a word or a region, attends to the keys, which are the regions or words of the other item. It is compared
with its context, the weighted mean of the keys. The cosine of a query q and the context ``sum_j a_j k_j`` needs only inner
products,

    cos = sum_j a_j (q . k_j) / (|q| sqrt(sum_ij a_i a_j (k_i . k_j))),

and those of the keys are computed once per item. The contexts of all pairs, which have D numbers per query, are not stored.
If the D dimensions are split into P blocks, each block has its own cosine. The inner products of a query with R keys are P R
numbers then. If these are more than D, contexts take less time.

======  =========================  ==================================================================
paper   code here                  meaning
======  =========================  ==================================================================
A       `affinities`               inner products of words and regions, ``(P, T, W, I, R)``
alpha   `attention`                weights of the keys, which sum to 1 per query, ``(T, W, I, R)``
lambda  ``inverse_temperature``    factor in the softmax of the weights
R       `attended_cosines`,        cosines of queries and their contexts, per block
        `context_cosines`
======  =========================  ==================================================================

The dimensions are T texts, W words, I images, R regions, D numbers per word or region, and P blocks. Masks ``(T, W)`` and
``(I, R)`` are False for padding. Temperatures and scales are positive.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, NamedTuple, TypeAlias

import torch
import torch.nn.functional as F  # noqa: N812  torch's usual name
from torch import Tensor

Direction: TypeAlias = Literal["t2i", "i2t"]
"""What attends: words to regions (``t2i``), or regions to words (``i2t``)."""

SLOPE = 0.1
"""Slope of the leaky ReLU at negative affinities."""

SHORTEST = 1e-8
"""Vectors that are shorter are divided by this length."""

SMALLEST_SQUARE = 1e-12
"""Squared lengths of contexts are at least this number."""

CHUNK = 500_000
"""Largest number of affinities that are computed at a time without gradients. Together with the results of each step,
they fit into the cache of a processor."""

TRAINING_CHUNK = 2_000_000
"""The same while gradients are recorded. All results are kept then and leave the cache, so larger parts are faster."""

TRAINING_TEXTS = 8
"""Largest number of texts that are compared at a time while gradients are recorded. They have similar lengths, so padding to
the longest text of a batch costs little."""


class Fragments(NamedTuple):
    """The words of some texts or the regions of some images, and their inner products.

    Attributes:
        values: ``(B, N, D)`` float, zero for padding.
        mask: ``(B, N)`` bool, False for padding.
        lengths: ``(B, N, P)``, the norm of each block of a vector, at least `SHORTEST`.
        grams: ``(B, N, P, N)``, inner products of an item's vectors per block.
    """

    values: Tensor
    mask: Tensor
    lengths: Tensor
    grams: Tensor

    def take(self, rows: Tensor | slice) -> Fragments:
        """Return some of the items, without the last vectors that are padding in all of them."""
        values, mask, lengths, grams = (part[rows] for part in self)
        used = mask.any(0).nonzero()
        most = int(used[-1]) + 1 if len(used) else 1
        return Fragments(values[:, :most], mask[:, :most], lengths[:, :most], grams[:, :most, :, :most])


def fragments(values: Tensor, mask: Tensor, blocks: int = 1) -> Fragments:
    """Return words or regions ``(B, N, D)`` with the inner products that are computed once per item.

    Padding may have any finite values. The number of blocks P divides D.
    """
    values = values * mask.unsqueeze(-1)
    split = in_blocks(values, blocks).transpose(1, 2)
    # The square is limited, not the root, whose slope at 0 is infinite.
    lengths = split.square().sum(-1).clamp(min=SHORTEST**2).sqrt().transpose(1, 2)
    return Fragments(values, mask, lengths, (split @ split.mT).transpose(1, 2).contiguous())


def in_blocks(values: Tensor, blocks: int) -> Tensor:
    """Return vectors ``(..., D)`` as blocks of dimensions, ``(..., P, D / P)``."""
    return values.reshape(*values.shape[:-1], blocks, values.shape[-1] // blocks)


def affinities(texts: Fragments, images: Fragments, blocks: int = 1) -> Tensor:
    """Return the inner products of all words and regions per block, ``(P, T, W, I, R)``."""
    words = in_blocks(texts.values.flatten(0, 1), blocks).transpose(0, 1)
    regions = in_blocks(images.values.flatten(0, 1), blocks).permute(1, 2, 0)
    return (words @ regions).view(blocks, *texts.mask.shape, *images.mask.shape)


def attention(
    affinity: Tensor, text_mask: Tensor, image_mask: Tensor, direction: Direction, inverse_temperature: float
) -> Tensor:
    """Return the weights with which queries attend to keys, ``(T, W, I, R)``. They sum to 1 over the keys.

    Negative affinities ``(T, W, I, R)`` are reduced. Then the affinities of each key are scaled to length 1 over the
    queries, and the softmax is taken over the keys.

    Source: Lee et al., "Stacked Cross Attention for Image-Text Matching", ECCV 2018, section 3.1, with the leaky ReLU of
        the authors' code.
    """
    queries, keys = (1, 3) if direction == "t2i" else (3, 1)
    valid = image_mask if direction == "t2i" else text_mask[:, :, None, None]
    reduced = F.leaky_relu(affinity, SLOPE)
    lengths = reduced.square().sum(queries, keepdim=True).clamp(min=SHORTEST**2).sqrt()
    logits = reduced * (inverse_temperature / lengths)
    return logits.masked_fill(~valid, torch.finfo(logits.dtype).min).softmax(keys)


def attended_cosines(
    affinity: Tensor, weights: Tensor, texts: Fragments, images: Fragments, direction: Direction
) -> Tensor:
    """Return the cosines of all queries and their contexts, per block of dimensions; zero for padding.

    They are ``(T, W, I, P)`` for words (``t2i``) or ``(T, I, R, P)`` for regions (``i2t``).
    """
    (texts_count, words), (images_count, regions) = texts.mask.shape, images.mask.shape
    blocks = len(affinity)
    product = affinity * weights
    if direction == "t2i":
        shares = weights.permute(2, 0, 1, 3).flatten(1, 2)
        squares = (shares @ images.grams.flatten(2)).view(images_count, texts_count * words, blocks, regions)
        squares = _times(squares, shares.unsqueeze(2)).sum(-1).view(images_count, texts_count, words, blocks)
        lengths = context_lengths(squares).permute(1, 2, 0, 3) * texts.lengths.unsqueeze(2)
        return product.sum(-1).permute(1, 2, 3, 0) / lengths
    shares = weights.flatten(2)
    squares = (texts.grams.flatten(2).mT @ shares).view(texts_count, blocks, words, images_count * regions)
    squares = _times(squares, shares.unsqueeze(1)).sum(2).view(texts_count, blocks, images_count, regions)
    return product.sum(2).permute(1, 2, 3, 0) / (context_lengths(squares).permute(0, 2, 3, 1) * images.lengths)


def _times(values: Tensor, factors: Tensor) -> Tensor:
    """Return values times factors. Without gradients they replace the values, whose memory is in the cache."""
    return values * factors if torch.is_grad_enabled() else values.mul_(factors)


def products_are_fewer(texts: Fragments, images: Fragments) -> bool:
    """Return whether a query has fewer inner products with an image's regions, in all blocks, than a context has numbers."""
    return texts.lengths.shape[2] * images.mask.shape[1] <= images.values.shape[2]


def context_cosines(weights: Tensor, texts: Fragments, images: Fragments, direction: Direction) -> Tensor:
    """Return the cosines of all queries and their contexts as `attended_cosines` does, but from the contexts themselves."""
    queries, keys = (texts, images) if direction == "t2i" else (images, texts)
    found, blocks, other = contexts(weights, keys.values, direction), queries.lengths.shape[2], 2 * (direction == "t2i")
    lengths = context_lengths(in_blocks(found.square(), blocks).sum(-1)) * queries.lengths.unsqueeze(other)
    return in_blocks(found * queries.values.unsqueeze(other), blocks).sum(-1) / lengths


def contexts(weights: Tensor, keys: Tensor, direction: Direction) -> Tensor:
    """Return the weighted means of the keys, for models that need more of them than their cosines.

    For words that attend (``t2i``), keys are ``(I, R, D)`` and contexts ``(T, W, I, D)``. For regions (``i2t``), they are
    ``(T, W, D)`` and ``(T, I, R, D)``.
    """
    if direction == "t2i":
        return torch.einsum("twir,ird->twid", weights, keys)
    return torch.einsum("twir,twd->tird", weights, keys)


def context_lengths(squares: Tensor) -> Tensor:
    """Return the positive lengths of contexts, given their squares, which rounding can make negative."""
    return squares.clamp(min=SMALLEST_SQUARE).sqrt()


def chunked(score: Callable[[Tensor, slice], Tensor], texts: Fragments, images: Fragments) -> Tensor:
    """Return the scores of all texts and images, ``(T, I)``, from those of a few at a time, which take little memory.

    Texts are taken in the order of their lengths. The function receives their positions, and the images as a slice.
    """
    affinities_per_pair = texts.lengths.shape[1:].numel() * images.mask.shape[1]
    training = torch.is_grad_enabled()
    side = max(1, math.isqrt((TRAINING_CHUNK if training else CHUNK) // max(1, affinities_per_pair)))
    most = min(side, TRAINING_TEXTS) if training else side
    order = texts.mask.sum(1).argsort(stable=True)
    rows = [order[start : start + most] for start in range(0, len(order), most)]
    columns = [slice(start, start + side) for start in range(0, len(images.mask), side)]
    return torch.cat([torch.cat([score(some, part) for part in columns], 1) for some in rows])[order.argsort()]


def mean_over(values: Tensor, mask: Tensor, dim: int) -> Tensor:
    """Return the mean over the words or regions that are there, without this dimension."""
    return (values * mask).sum(dim) / mask.sum(dim).clamp(min=1)
