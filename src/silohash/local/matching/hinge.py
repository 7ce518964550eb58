"""The hinge loss of image-text matching on a matrix of scores."""

from __future__ import annotations

import torch
from torch import Tensor


def max_violation(scores: Tensor, margin: float, *, hardest: bool = True, same: Tensor | None = None) -> Tensor:
    """Return the hinge loss over all pairs of a batch, summed over both directions, a scalar.

    ``sum_i [max_j (m + s_ij - s_ii)_+ + max_j (m + s_ji - s_ii)_+]`` with j different from i, or the sums over j instead of
    the maxima.

    Args:
        scores: ``(B, B)``, the score of image i with text j. Image i and text i are a pair.
        margin: m, by which the pair must score better than others.
        hardest: Whether only the wrong partner with the highest score counts.
        same: ``(B, B)`` bool, which pairs of an image and a text are right besides the diagonal, because they have the same
            picture. They do not count. None if there are no such pairs.

    Source: Faghri et al., "VSE++: Improving Visual-Semantic Embeddings with Hard Negatives", BMVC 2018, equations (4) and
        (6).

    Example:
        >>> round(float(max_violation(torch.tensor([[1.0, 0.9], [0.0, 1.0]]), 0.2)), 6)
        0.2
    """
    right = torch.eye(len(scores), dtype=torch.bool, device=scores.device)
    right = right if same is None else right | same
    own = scores.diagonal()
    violations = [(margin + scores - own.unsqueeze(side)).clamp(min=0).masked_fill(right, 0.0) for side in (1, 0)]
    if hardest:
        return torch.stack([values.amax(dim) for values, dim in zip(violations, (1, 0), strict=True)]).sum()
    return torch.stack(violations).sum()
