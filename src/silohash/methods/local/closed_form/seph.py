"""Semantics-preserving hashing: codes whose neighborhoods follow those of the labels, and a kernel classifier per bit.

Similarities of labels and of codes become probability distributions over pairs of items, whose divergence the codes
minimize. Each bit is then predicted from the images and from the texts by a logistic regression on the similarities to some
anchors.

============  ==========================  ==================================================================
paper         code                        meaning
============  ==========================  ==================================================================
P             `label_distribution`        similarities of labels, as a distribution over pairs, (n, n)
Q             `code_similarities`         similarities of codes, whose shares are the other distribution
H-hat         ``codes``                   real-valued codes, (n, K)
alpha         ``quantization_weight``     weight of the quantization loss, divided by n K
Psi           `divergence`                objective
lambda        ``ridge``                   ridge of the logistic regressions
phi(x)        `AnchorKernel`              similarities to the anchors, (m,)
============  ==========================  ==================================================================

`divergence` is the objective, `divergence_gradient` its gradient, and `fit_bits` learns the hash functions. Because
of the (n, n) pairs, codes are learned for a sample of at most some thousand items. Pairs are computed in blocks, each
pair once, so that most intermediate results stay in the cache of the processor.
"""

from dataclasses import replace
from typing import ClassVar

import numpy as np
import torch
from pydantic import Field
from scipy.optimize import minimize
from torch import Tensor, nn

from silohash.base.errors import UnsuitableMethod
from silohash.base.types import Arrays, MethodCard, Modality
from silohash.methods.local.base import ClosedForm, MethodParams, SiloData, labels_of, signs
from silohash.methods.traits import Traits
from silohash.models.parameters import install
from silohash.models.specs import ModelSpec, TowerSpec
from silohash.models.towers import HashNet, gaussian_kernel

CARD = MethodCard(
    key="seph",
    title="Semantics-Preserving Hashing for Cross-View Retrieval",
    authors="Zijia Lin, Guiguang Ding, Mingqing Hu, Jianmin Wang",
    venue="CVPR",
    year=2015,
    link="https://openaccess.thecvf.com/content_cvpr_2015/html/Lin_Semantics-Preserving_Hashing_for_2015_CVPR_paper.html",
    summary="Learn codes whose neighborhoods follow the labels, and predict each bit by a kernel classifier per modality.",
    supervised=True,
    differs_from_paper=(
        "The divergence is minimized as in the authors' code, which follows t-SNE. The objective is computed in every tenth "
        "iteration, and the codes with its lowest value are kept.",
        "The tasks i2t and t2i search for codes of one view. The paper merges the predictions of both views of a database "
        "item. The tasks i2unified and t2unified do that: the product of the probabilities of both views exceeds that of "
        "their complements if the sum of both outputs is positive.",
        "The anchors are random items. The paper also tries the centers of clusters.",
        "Codes are learned on a sample of 2,000 items (5,000 in the preset paper).",
        "The similarities of pairs are computed in single precision, and their sums in double precision.",
        "The logistic regressions of all bits are minimized together, in coordinates in which their curvature is bounded.",
    ),
)


class SePHParams(MethodParams):
    """Parameters of semantics-preserving hashing."""

    sample: int = Field(default=2000, ge=2, le=5000)
    """Number of items whose codes are learned, between 2 and 5000. Memory and time grow with its square."""
    iterations: int = Field(default=1000, ge=1)
    """Number of iterations of the divergence's minimization, at least 1."""
    quantization_weight: float = Field(default=0.01, ge=0)
    """Weight of the quantization loss, at least 0. It pulls the values of the codes toward -1 and 1."""
    anchors: int = Field(default=500, ge=1)
    """Number of anchors of the kernel, at least 1."""
    ridge: float = Field(default=0.01, gt=0)
    """Ridge of the logistic regressions, greater than 0."""


FLOOR = float(np.finfo(np.float32).tiny)
"""Smallest value by which is divided."""

BLOCK_ROWS = 128
"""Number of items whose pairs are computed at a time, so that they stay in the cache of the processor."""

RATE = 100.0
EARLY, LATE, SWITCH = 0.5, 0.8, 250
"""Momentum before and after an iteration."""

EXAGGERATION, EXAGGERATED = 4.0, 100
"""Factor on the label distribution in the first iterations, which lets groups of items form."""

REGRESSION = {"maxiter": 1000, "ftol": 1e-12, "gtol": 1e-5}
"""Largest number of steps of the logistic regressions, and the relative decrease and the gradient at which they stop."""

JITTER = 1e-9
"""Relative addition to the diagonal of a matrix that may be singular."""

COST_EVERY = 10
START = 1e-4
"""Standard deviation of the first codes."""


def label_distribution(labels: Tensor) -> Tensor:
    """Return the cosines of the labels ``(n, C)`` of different items as a distribution over pairs, ``(n, n)``.

    If no two items share a label, all pairs are equally probable.
    """
    unit = nn.functional.normalize(labels, dim=1)
    cosines = (unit @ unit.T).fill_diagonal_(0.0)
    whole = float(cosines.sum(dtype=torch.float64))
    if whole <= 0:
        cosines = torch.ones_like(cosines).fill_diagonal_(0.0)
        whole = max(1.0, float(cosines.sum(dtype=torch.float64)))
    return cosines.div_(whole)


def code_similarities(codes: Tensor) -> list[Tensor]:
    """Return 1 / (1 + d) of all pairs of codes ``(n, K)``, where d is a quarter of the squared distance; 0 on the diagonal.

    Between codes of -1 and 1, d is the Hamming distance. There is one matrix per block of `BLOCK_ROWS` items, with one row
    per item of the block, and one column per item of this and all later blocks, so that each pair of different blocks is
    computed once.
    """
    quarter = codes.square().sum(1, keepdim=True) / 4.0
    one = torch.ones_like(quarter)
    rows, columns = torch.cat([codes, quarter + 1.0, one], dim=1), torch.cat([-codes / 2.0, one, quarter], dim=1)
    blocks = []
    for start in range(0, len(codes), BLOCK_ROWS):
        # 1 + d is at least 1, but rounding can make it smaller for nearly equal codes.
        block = (rows[start : start + BLOCK_ROWS] @ columns[start:].T).clamp_(min=1.0).reciprocal_()
        block[:, : len(block)].fill_diagonal_(0.0)
        blocks.append(block)
    return blocks


def sum_over_pairs(block: Tensor) -> float:
    """Return the sum of a block of `code_similarities`, in which pairs with items of later blocks count in both orders."""
    return 2.0 * float(block.sum(dtype=torch.float64)) - float(block[:, : len(block)].sum(dtype=torch.float64))


def quantization(codes: Tensor) -> Tensor:
    """Return the squared distance of the codes from their signs, a scalar."""
    return (codes.abs() - 1.0).square().sum()


def divergence(target: Tensor, codes: Tensor, weight: float) -> float:
    """Return the divergence of the codes' distribution from the labels', and the weighted mean quantization loss.

    Pairs are computed in the dtype of the target ``(n, n)``. The codes are ``(n, K)``.

    Source: Lin et al., the objective.
    """
    blocks = code_similarities(codes.to(target.dtype))
    whole = max(FLOOR, sum(map(sum_over_pairs, blocks)))
    value = weight * float(quantization(codes)) / codes.numel()
    for start, block in zip(range(0, len(codes), BLOCK_ROWS), blocks, strict=True):
        wanted = target[start : start + len(block), start:]
        value += sum_over_pairs(torch.xlogy(wanted, wanted) - torch.xlogy(wanted, block / whole))
    return value


def divergence_gradient(target: Tensor, codes: Tensor, weight: float, exaggeration: float = 1.0) -> Tensor:
    """Return the gradient of `divergence`, ``(n, K)``, with the target multiplied by ``exaggeration``."""
    values = codes.to(target.dtype)
    blocks = code_similarities(values)
    whole = max(FLOOR, sum(map(sum_over_pairs, blocks)))
    gradient = torch.zeros_like(values)
    for start, block in zip(range(0, len(codes), BLOCK_ROWS), blocks, strict=True):
        end = start + len(block)
        pulls = torch.sub(exaggeration * target[start:end, start:], block, alpha=1.0 / whole).mul_(block)
        gradient[start:end] += pulls.sum(1, keepdim=True) * values[start:end] - pulls @ values[start:]
        later = pulls[:, len(block) :]
        gradient[end:] += later.sum(0).unsqueeze(1) * values[end:] - later.T @ values[start:end]
    return gradient.to(codes.dtype) + 2.0 * weight / codes.numel() * (codes.abs() - 1.0) * codes.sign()


def learn_codes(target: Tensor, bits: int, *, weight: float, iterations: int) -> tuple[Tensor, float]:
    """Minimize the divergence by gradient descent with momentum and gains, as t-SNE does.

    The first codes are random numbers of torch's global generator. The result is the codes ``(n, K)`` float64 with the
    lowest value, and that value. Codes of the first iterations, in which the target is exaggerated, are not compared unless
    there are no others.
    """
    codes = START * torch.randn(len(target), bits, dtype=torch.float64, device=target.device)
    moves, gains = torch.zeros_like(codes), torch.ones_like(codes)
    best, lowest = codes, float("inf")
    for iteration in range(iterations):
        exaggerated = iteration < EXAGGERATED
        gradient = divergence_gradient(target, codes, weight, EXAGGERATION if exaggerated else 1.0)
        gains = torch.where(gradient.sign() == moves.sign(), gains * 0.8, gains + 0.2).clamp(min=0.01)
        moves = (EARLY if iteration < SWITCH else LATE) * moves - RATE * gains * gradient
        codes = codes + moves
        codes = codes - codes.mean(0)
        last = iteration == iterations - 1
        if last or (iteration % COST_EVERY == 0 and not exaggerated):
            value = divergence(target, codes, weight)
            best, lowest = (codes, value) if value < lowest else (best, lowest)
    return best, lowest


def fit_bits(features: Tensor, targets: Tensor, kernel: Tensor, ridge: float) -> Tensor:
    """Return the weights of one logistic regression per bit, without a bias, ``(m, K)``.

    They minimize the sum of softplus(z) - t z over items with targets t ``(n, K)``, where z = phi(x)^T w with features phi
    ``(n, m)``, plus ridge w^T kernel w; all float64. The kernel ``(m, m)`` is nearly singular, and L-BFGS would need
    thousands of steps. It minimizes over R w instead, where R^T R is an upper bound of the curvature.
    """
    root = curvature_root(features, kernel, ridge)
    inputs = torch.linalg.solve_triangular(root, features, upper=True, left=False)
    right = torch.linalg.solve_triangular(root, kernel, upper=True, left=False)
    penalty = ridge * torch.linalg.solve_triangular(root.T, right, upper=False)
    shape = features.shape[1], targets.shape[1]

    def _value_and_gradient(flat: np.ndarray) -> tuple[float, np.ndarray]:
        moved = torch.from_numpy(flat).reshape(shape)
        logits, smooth = inputs @ moved, penalty @ moved
        value = float((nn.functional.softplus(logits) - targets * logits).sum() + (moved * smooth).sum())
        gradient = inputs.T @ (torch.sigmoid(logits) - targets) + 2.0 * smooth
        return value, gradient.flatten().numpy()

    found = minimize(
        _value_and_gradient, np.zeros(shape[0] * shape[1]), jac=True, method="L-BFGS-B", options=REGRESSION
    )
    weights: Tensor = torch.linalg.solve_triangular(
        root, torch.from_numpy(np.array(found.x)).reshape(shape), upper=True
    )
    return weights


def curvature_root(features: Tensor, kernel: Tensor, ridge: float) -> Tensor:
    """Return an upper triangular matrix R, so that no second derivative of a regression exceeds R^T R, ``(m, m)``.

    The second derivatives are phi^T D phi + 2 ridge kernel, where D is diagonal with values of at most 1/4.
    """
    bound = features.T @ features / 4.0 + 2.0 * ridge * kernel
    bound.diagonal().add_(JITTER * float(bound.diagonal().mean()))
    root: Tensor = torch.linalg.cholesky(bound, upper=True)
    return root


class SePH(ClosedForm[SePHParams]):
    """Semantics-preserving hashing, for one or two modalities."""

    presets: ClassVar = {"recommended": {}, "paper": {"sample": 5000}}
    traits = Traits(needs_labels=True, codes_comparable=False)

    def build(self, spec: ModelSpec, bits: int) -> nn.Module:
        """Build towers whose hash layers see the similarities to anchors. Published networks are refused.

        Raises:
            UserError: If a tower is a published network.
        """
        towers: dict[Modality, TowerSpec] = {}
        for modality, tower in spec.towers.items():
            if tower.kind == "network":
                raise UnsuitableMethod(
                    f'local.name = "seph" compares vectors with anchors, and model.{modality} is a published network. '
                    f"Remove model.{modality}, and let the features come from the network."
                )
            towers[modality] = TowerSpec("kernel", tower.shape, hidden=self.params.anchors)
        return HashNet(replace(spec, towers=towers), bits)

    def fit(self, model: nn.Module, data: SiloData) -> dict[str, float]:
        """Learn codes of a sample of the silo's items, and predict them from each modality. The loss is the divergence."""
        assert isinstance(model, HashNet)  # noqa: S101  built by `build`
        rows = torch.randperm(len(data))[: self.params.sample].to(data.has_image.device)
        sample = data.take(rows)
        target, params = label_distribution(labels_of(data)[rows]), self.params
        codes, value = learn_codes(target, model.bits, weight=params.quantization_weight, iterations=params.iterations)
        targets = (signs(codes).cpu() + 1.0) / 2.0
        for modality in model.modalities:
            held = sample.has(modality).cpu()
            if held.any():
                install(model, self._tower(model, sample, modality, targets[held]))
        return {"loss": value}

    def _tower(self, model: HashNet, sample: SiloData, modality: Modality, targets: Tensor) -> Arrays:
        """Return the parameters of a tower that predicts the targets ``(n, K)`` of the items with its modality."""
        values = sample.batch(torch.nonzero(sample.has(modality)).flatten()).values(modality)
        assert values is not None  # noqa: S101  some items have the modality
        vectors = values.flatten(1).double().cpu()
        anchors = vectors[torch.randperm(len(vectors))[: self.params.anchors]]
        # The kernel divides by the width, which is 0 if all vectors are equal.
        spread = 2.0 * vectors.var(0, correction=0).sum() if len(vectors) > 1 else torch.ones((), dtype=torch.float64)
        width = spread.clamp(min=FLOOR)
        features, kernel = (gaussian_kernel(rows, anchors, width) for rows in (vectors, anchors))
        weights = fit_bits(features, targets, kernel, self.params.ridge)
        unused = self.params.anchors - len(anchors)
        return {
            f"{modality}.backbone.anchors": nn.functional.pad(anchors, (0, 0, 0, unused)).float().numpy(),
            f"{modality}.backbone.width": width.float().numpy(),
            f"{modality}.hash.weight": nn.functional.pad(weights.T, (0, unused)).float().numpy(),
            f"{modality}.hash.bias": np.zeros(model.bits, np.float32),
        }
