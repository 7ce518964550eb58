"""The judge of codes against a plain loop."""

from __future__ import annotations

import numpy as np
import torch

from silohash.models.discriminator import PairJudge


def test_logits_against_a_loop() -> None:
    torch.manual_seed(0)
    judge = PairJudge(5, 4)
    codes = torch.tensor([[1.0, -1.0, 1.0], [-1.0, -1.0, 0.5]])
    classes = torch.tensor([[0, 1], [1, 0]])
    first, _, second = judge.layers
    weights = [tensor.detach().double().numpy() for tensor in (first.weight, first.bias, second.weight, second.bias)]
    expected = []
    for code, kind in zip(codes.double().numpy(), classes.double().numpy(), strict=True):
        hidden = weights[0] @ np.array([*code, *kind]) + weights[1]
        hidden = np.array([value if value > 0 else 0.2 * value for value in hidden])
        expected.append((weights[2] @ hidden + weights[3]).item())
    found = judge(codes, classes)
    assert found.shape == (2,)
    np.testing.assert_allclose(found.detach().numpy(), expected, rtol=1e-5)
