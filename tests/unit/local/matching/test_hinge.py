"""The hinge loss on a matrix of scores, against plain loops."""

from __future__ import annotations

import pytest
import torch

from silohash.local.matching.hinge import max_violation


def plain(scores: torch.Tensor, margin: float, *, hardest: bool, same: torch.Tensor) -> float:
    total, count = 0.0, len(scores)
    for i in range(count):
        for row in (True, False):
            wrong = [
                max(0.0, margin + float(scores[i, j] if row else scores[j, i]) - float(scores[i, i]))
                for j in range(count)
                if i != j and not (same[i, j] if row else same[j, i])
            ]
            total += (max(wrong, default=0.0)) if hardest else sum(wrong)
    return total


@pytest.mark.parametrize("hardest", [True, False])
@pytest.mark.parametrize("pictures", [[0, 1, 2, 3, 4], [0, 1, 0, 2, 1], [7, 7, 7, 7, 7]])
def test_equals_plain_loops(hardest: bool, pictures: list[int]) -> None:
    scores = torch.randn(5, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    numbers = torch.tensor(pictures)
    same = numbers[:, None] == numbers
    found = max_violation(scores, 0.3, hardest=hardest, same=same)
    assert float(found) == pytest.approx(plain(scores, 0.3, hardest=hardest, same=same))


def test_the_diagonal_is_right_without_being_named() -> None:
    scores = torch.randn(4, 4, dtype=torch.float64)
    assert float(max_violation(scores, 0.2)) == pytest.approx(
        plain(scores, 0.2, hardest=True, same=torch.zeros(4, 4, dtype=torch.bool))
    )
    assert float(max_violation(torch.ones(1, 1), 0.2)) == 0.0
