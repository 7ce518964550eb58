"""The loss by which codes learn the order of a model's scores."""

from __future__ import annotations

import torch.nn.functional as F  # noqa: N812  torch's usual name
from torch import Tensor

SHARPNESS = 3.0
"""Factor on standardized scores in the softmax. A higher one counts only the items with the highest scores."""

LEAST_DEVIATION = 1e-6


def distilled(scores: Tensor, images: Tensor, texts: Tensor) -> Tensor:
    """Return how far the order of the codes is from that of the scores, a scalar.

    It is the cross entropy of two softmaxes over the texts of each image, and over the images of each text: of the scores,
    and of the cosines of relaxed codes with the scale of the scores. It is smallest where both are equal.

    Args:
        scores: ``(B, B)``, the score of image i with text j, without gradient.
        images: ``(B, K)``, outputs whose signs are the codes of the images.
        texts: ``(B, K)``, the same of the texts.
    """
    wanted = SHARPNESS * (scores - scores.mean()) / scores.std().clamp(min=LEAST_DEVIATION)
    found = relaxed(images) @ relaxed(texts).T
    found = SHARPNESS * (found - found.mean()) / found.std().clamp(min=LEAST_DEVIATION)
    return sum(
        (F.cross_entropy(one, other.softmax(1)) for one, other in ((found, wanted), (found.T, wanted.T))),
        start=scores.new_zeros(()),
    )


def relaxed(outputs: Tensor) -> Tensor:
    """Return relaxed codes of length 1, ``(B, K)``."""
    return F.normalize(outputs.tanh(), dim=1)
