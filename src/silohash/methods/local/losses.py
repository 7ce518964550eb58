"""Loss terms that several local methods share, as pure functions of outputs and labels.

They are written per item or per pair, and each method takes its own sums or means of them. Codes are the outputs ``(B, K)``
of the network in training, others are ``(N, K)``, and labels are multi-hot ``(B, C)``.
"""

from collections.abc import Mapping
from itertools import combinations_with_replacement

import torch
import torch.nn.functional as F  # noqa: N812  torch's usual name
from torch import Tensor

from silohash.base.types import Modality, Outputs, PairBatch
from silohash.methods.local.base import labels_of, signs


def similarity(labels: Tensor, others: Tensor, *, graded: bool) -> Tensor:
    """Return the similarity of items by their labels ``(B, C)`` and ``(N, C)``, ``(B, N)`` in [0, 1].

    It is 1 where two items share a label, or the cosine of the label vectors if ``graded``. Items without labels are similar
    to none.

    Source: Jiang and Li, "Deep Cross-Modal Hashing", CVPR 2017, section 2.2 (``graded=False``).
    """
    return cosines(labels, others) if graded else ((labels @ others.T) > 0).to(labels.dtype)


def cosines(values: Tensor, others: Tensor) -> Tensor:
    """Return the cosines of all rows ``(B, D)`` and ``(N, D)``, ``(B, N)``; 0 for rows of zeros."""
    return F.normalize(values, dim=1) @ F.normalize(others, dim=1).T


def mean_similarity(labels: Tensor, *, graded: bool, most: int = 2048) -> Tensor:
    """Return the mean similarity over pairs of at most about ``most`` evenly spaced items, clipped to [0.05, 0.95]."""
    sample = labels[:: max(1, len(labels) // most)]
    # Silos whose pairs are all similar, or all dissimilar, would divide by 0 in `pair_weights`.
    return similarity(sample, sample, graded=graded).mean().clamp(0.05, 0.95)


def pair_likelihood(codes: Tensor, others: Tensor, similar: Tensor, *, scale: float = 0.5) -> Tensor:
    """Return the negative log-likelihood of each pair's similarity in [0, 1], ``(B, N)``.

    This is ``softplus(theta) - s * theta`` with ``theta`` the inner product of outputs ``(B, K)`` and ``(N, K)`` times
    ``scale``, which is stable for any theta. If all outputs are zero, it is ln 2 everywhere.

    Source: Jiang and Li, equation (1), first term.
    """
    theta = scale * (codes @ others.T)
    return F.softplus(theta) - similar * theta


def pair_weights(similar: Tensor, share: float) -> Tensor:
    """Return weights that give similar and dissimilar pairs half of the loss each, ``(B, N)``.

    The share is that of similar pairs among all pairs of the silo.
    """
    return similar * (0.5 / share) + (1.0 - similar) * (0.5 / (1.0 - share))


def quantization(codes: Tensor, targets: Tensor) -> Tensor:
    """Return the squared distance of outputs from their target codes, ``(B, K)``.

    Source: Jiang and Li, equation (1), second term.
    """
    return (targets - codes).square()


def straight_through(codes: Tensor) -> Tensor:
    """Return the signs of the codes with the gradient of the identity, ``(B, K)``.

    Source: Su et al., "Greedy Hash", NeurIPS 2018, the forward and the backward pass of the hash layer.
    """
    return codes + (signs(codes) - codes).detach()


def label_error(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the squared differences between labels and their predictions, given as logits, ``(B, C)``.

    Source: Ren et al., equation (4), and Li et al., "Self-Supervised Adversarial Hashing Networks for Cross-Modal
        Retrieval", CVPR 2018, the objective, fourth term.
    """
    return (torch.sigmoid(logits) - labels).square()


def target_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the mean cross-entropy of softmax(logits) against target distributions ``(B, C)``, a scalar.

    Items without a label, whose targets are zero, are left out. It is 0 if there are no others.
    """
    losses = -(targets * logits.log_softmax(1)).sum(1)
    return losses.sum() / (targets.sum(1) > 0).sum().clamp(min=1)


def labeled_codes(outputs: Outputs, batch: PairBatch) -> tuple[dict[Modality, Tensor], dict[Modality, Tensor]]:
    """Return the codes ``(B', K)`` and labels ``(B', C)`` of the items that have a modality, for each that any item has."""
    held, labels = {m: batch.has(m) for m in outputs.code if batch.has(m).any()}, labels_of(batch)
    return {m: outputs.code[m][rows] for m, rows in held.items()}, {m: labels[rows] for m, rows in held.items()}


def modality_pairs(codes: Mapping[Modality, Tensor]) -> list[tuple[Modality, Modality]]:
    """Return the pairs of modalities to compare: each with itself, and the two with each other."""
    return list(combinations_with_replacement(codes, 2))


def balance(codes: Tensor) -> Tensor:
    """Return the squared mean of each bit over the batch, ``(K,)``.

    Source: Jiang and Li, equation (1), third term, per item.
    """
    return codes.mean(0).square()


def pair_contrast(codes: Tensor, partners: Tensor, temperature: float) -> Tensor:
    """Return the cross-entropy of identifying each item's partner among the partners in the batch by cosine, ``(B,)``.

    The partners ``(B, K)`` are stored outputs of the other modality. Labels alone make all items of a class alike, whereas a
    search for one item should return that item first.
    """
    partner = torch.arange(len(codes), device=codes.device)
    return F.cross_entropy(cosines(codes, partners) / temperature, partner, reduction="none")


def mean_where(values: Tensor, counted: Tensor | None) -> Tensor:
    """Return the mean of the values that count (all if ``counted`` is None), a scalar; 0 if none does."""
    return values.mean() if counted is None else (values * counted).sum() / counted.sum().clamp(min=1)


def mean_of_pairs(losses: Tensor) -> Tensor:
    """Return the mean of losses ``(B, B)`` over the pairs of two items, without those of an item with itself, a scalar."""
    return mean_where(losses, different_items(losses))


def different_items(codes: Tensor) -> Tensor:
    """Return which pairs of a batch consist of two items, ``(B, B)`` bool: all but the diagonal."""
    return ~torch.eye(len(codes), dtype=torch.bool, device=codes.device)
