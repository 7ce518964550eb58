"""Supervised hierarchical deep hashing: codes agree with the binary code of their class on each of two levels of labels.

An item's code should have inner product K with the codes of its classes and 0 with all others, and the code of a fine class
should agree with that of its coarse class. The class codes are found bit by bit (discrete cyclic coordinate descent) from
sums over items, so the server updates them for all silos together.

=========  ======================================  ================================================================
paper      code                                    meaning
=========  ======================================  ================================================================
F, G       ``buffers["image"]``, ``["text"]``      relaxed codes of the items, ``(N, K)``
B          ``buffers["code"]``                     ``sign(F + G)``, ``(N, K)``, target of both networks
Y1, Y2     ``coarse_codes``, ``fine_codes``        codes of coarse and fine classes, transposed: ``(C, K)``
L1, L2     ``coarse_labels``, ``labels``           labels of the two levels, ``(N, C)``
S12        `hierarchy_of`                          1 where a fine class lies under a coarse one, ``(C1, C2)``
alpha      ``coarse_weight``                       weight of the coarse level
beta       ``fine_weight``                         weight of the fine level
eta        ``hierarchy_weight``                    weight of the agreement of class codes
gamma      ``quantization_weight``                 weight of the quantization loss
=========  ======================================  ================================================================

The objective is `objective`. Its terms with F or G are `class_residual` and `quantization`, which train the networks. The
update of Y1 and Y2 is `updated_codes`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from pydantic import Field
from torch import Tensor, nn

from silohash.base.types import Arrays, MethodCard, Modality, Outputs, PairBatch, ReadArrays, Step, Terms
from silohash.methods.local.base import MethodParams, SiloData, SiloState, TowerMethod, outputs_of, store_all, unadapted
from silohash.methods.local.class_codes import class_codes
from silohash.methods.local.losses import quantization
from silohash.methods.local.stored_outputs import joint_codes, store_batch
from silohash.models.parameters import to_array
from silohash.models.specs import ModelSpec
from silohash.models.towers import HashNet

CARD = MethodCard(
    key="shdch",
    title="Supervised Hierarchical Deep Hashing for Cross-Modal Retrieval",
    authors="Yu-Wei Zhan, Xin Luo, Yongxin Wang, Xin-Shun Xu",
    venue="ACM Multimedia",
    year=2020,
    link="https://doi.org/10.1145/3394171.3413962",
    summary="Fit codes to binary class codes on two levels of labels, which the server updates from sums over silos.",
    supervised=True,
    sends=(
        "number of labeled items, and of those with each pair of a coarse and a fine label",
        "sums of relaxed codes per class, and of their products per pair of bits",
    ),
    keeps=("outputs of both networks for all of its items, within a round",),
    differs_from_paper=(
        "Class codes are updated once per round, from the sums of all silos. In the authors' code they are updated "
        "every epoch.",
        "Silos that share no parameters keep the initial class codes.",
        "Class codes start far apart.",
        "A bit of a class code for which both values are equally good keeps its value.",
        "Image and text steps alternate per batch instead of per epoch.",
        "Losses are means over items, and inner products are divided by the code length, except in the preset paper.",
        "Items without labels train the quantization loss only. The data of the paper have no such items.",
        "Without a coarser level of labels, the terms of that level are left out, and the run says so.",
        "The weights of the preset paper are those of the authors' code. Because of a mistake, that code sweeps over the "
        "bits of the class codes only once (the preset authors_code).",
    ),
)

Codes: TypeAlias = npt.NDArray[np.int8]
Values: TypeAlias = npt.NDArray[np.float64]

COARSE, FINE = "coarse_codes", "fine_codes"
"""Names of the model's buffers with the class codes."""


class SHDCHParams(MethodParams):
    """Parameters of SHDCH."""

    coarse_column: str = ""
    """Column of the archive that holds the coarse class of each item, such as `sub_category`. If empty, there is one
    level of labels, of which the run warns unless coarse_weight is 0."""
    coarse_weight: float = Field(default=0.3, ge=0)
    """Weight of the coarse level (alpha in the paper), at least 0. Without effect if there is one level. At 0 without a
    coarse_column, the run is meant to have one level, and does not warn."""
    fine_weight: float = Field(default=0.7, ge=0)
    """Weight of the fine level, which is the level of the labels by which items are relevant (beta in the paper), at
    least 0."""
    hierarchy_weight: float = Field(default=0.1, ge=0)
    """Weight of the agreement between the code of a fine class and that of its coarse class (eta in the paper), at least
    0. Without effect if there is one level."""
    quantization_weight: float = Field(default=0.1, ge=0)
    """Weight of the quantization loss (gamma in the paper), which pulls relaxed codes toward their signs, at least 0."""
    sweeps: int = Field(default=3, ge=0)
    """Number of passes over all bits of the class codes per round, at least 0. At 0 the class codes stay as they start."""
    normalization: Literal["mean", "paper"] = "mean"
    """`mean`: inner products are divided by the code length, and losses are means over items. `paper`: sums of squares
    divided by the silo's number of items and the batch size."""

    without_effect: ClassVar = MethodParams.switched_off("coarse_weight", "hierarchy_weight", coarse_column=("",))


class Weights(NamedTuple):
    """Weights of the terms of `objective`: alpha, beta and eta."""

    coarse: float
    fine: float
    hierarchy: float


def level_sums(codes: Sequence[tuple[Values, Values, Values]], pairs: Values) -> Arrays:
    """Return the sums over items and modalities that determine the class codes.

    Per modality, relaxed codes ``(n, K)``, coarse labels ``(n, C1)`` and fine labels ``(n, C2)`` are given, and in all the
    numbers of items with each of the pairs of labels ``(C1, C2)``.

    Returns:
        ``coarse`` ``(C1, K)``, L1^T F + L1^T G; ``fine`` ``(C2, K)``, L2^T F + L2^T G; ``gram`` ``(K, K)``, F^T F + G^T G;
        ``pairs``; and ``rows`` ``()``, the number of rows of F and G together. All are float64.
    """
    return {
        "coarse": np.sum([coarse.T @ values for values, coarse, _ in codes], axis=0),
        "fine": np.sum([fine.T @ values for values, _, fine in codes], axis=0),
        "gram": np.sum([values.T @ values for values, _, _ in codes], axis=0),
        "pairs": pairs,
        "rows": np.asarray(float(sum(len(values) for values, _, _ in codes))),
    }


def hierarchy_of(sums: ReadArrays) -> Values:
    """Return S12, 1 where a fine class lies under a coarse one, else 0, ``(C1, C2)``, from the sums of `level_sums`."""
    return (sums["pairs"] > 0).astype(np.float64)


def objective(
    codes: Sequence[tuple[Values, Values, Values]], coarse: Codes, fine: Codes, hierarchy: Values, weights: Weights
) -> float:
    """Return the terms of the objective that contain class codes, given the arrays per modality that `level_sums` takes.

    sum_Z alpha ||K L1 - Z Y1||^2 + beta ||K L2 - Z Y2||^2, plus eta ||K S12 - Y1^T Y2||^2.

    Source: Zhan et al., the overall objective without the quantization term.
    """
    bits = fine.shape[1]
    total = weights.hierarchy * np.square(bits * hierarchy - coarse.astype(np.float64) @ fine.T).sum()
    for values, of_coarse, of_fine in codes:
        total += weights.coarse * np.square(bits * of_coarse - values @ coarse.T).sum()
        total += weights.fine * np.square(bits * of_fine - values @ fine.T).sum()
    return float(total)


def updated_codes(coarse: Codes, fine: Codes, sums: ReadArrays, weights: Weights, sweeps: int) -> tuple[Codes, Codes]:
    """Return the codes of both levels after discrete cyclic coordinate descent on the totals of `level_sums`.

    A sweep updates each bit of the coarse codes ``(C1, K)`` and then of the fine codes ``(C2, K)``. `objective` never
    increases.
    """
    hierarchy, gram = hierarchy_of(sums), sums["gram"]
    for _ in range(sweeps):
        coarse = _swept(coarse, fine, weights.coarse, (sums["coarse"], gram), weights.hierarchy, hierarchy)
        fine = _swept(fine, coarse, weights.fine, (sums["fine"], gram), weights.hierarchy, hierarchy.T)
    return coarse, fine


def _swept(
    codes: Codes, others: Codes, weight: float, sums: tuple[Values, Values], agreement: float, related: Values
) -> Codes:
    """Return the codes ``(C, K)`` of one level after an update of each bit, given those of the other level ``(C', K)``.

    Bit k of all classes becomes sign(K (w P_k + eta R O_k) - w Y' (Z^T Z)_k - eta Y' (O^T O)_k), where Y' and the products
    leave out bit k, O are the other codes, w is the weight of the level, P ``(C, K)`` and Z^T Z ``(K, K)`` are the sums, eta
    is the agreement, and R ``(C, C')`` tells which classes are related. A bit keeps its value where the argument is 0.

    Source: Zhan et al., the updates of Y1 and Y2.
    """
    products, gram = sums
    swept, bits, beside = codes.astype(np.float64), codes.shape[1], others.astype(np.float64)
    pulled = bits * (weight * products + agreement * related @ beside)
    pushed = weight * gram + agreement * beside.T @ beside
    for bit in range(bits):
        force = pulled[:, bit] - swept @ pushed[:, bit] + swept[:, bit] * pushed[bit, bit]
        swept[:, bit] = np.where(force == 0.0, swept[:, bit], np.sign(force))
    return swept.astype(np.int8)


def class_residual(codes: Tensor, labels: Tensor, classes: Tensor) -> Tensor:
    """Return the squared distances of inner products with class codes ``(C, K)`` from their targets, ``(B, C)``.

    The inner products are divided by K. The target is 1 for the item's own classes, and 0 for all others.

    Source: Zhan et al., the terms of the overall objective per level, divided by K^2.
    """
    return (labels - codes @ classes.T / codes.shape[1]).square()


class HierarchyNet(HashNet):
    """Towers that end in a tanh, with the class codes as buffers that only the server changes."""

    fixed_buffers = (COARSE, FINE)

    def __init__(self, spec: ModelSpec, bits: int) -> None:
        super().__init__(spec, bits, relaxation="tanh")
        for name, classes in ((COARSE, spec.coarse_classes), (FINE, spec.classes)):
            # The seed of the weights is the same in all silos, so they start with the same class codes.
            seed = int(torch.randint(2**31, ()))
            # More classes than orthogonal rows need opposite codes, which class_codes has for exclusive labels only.
            codes = class_codes(classes, bits, exclusive=classes > bits, seed=seed)
            self.register_buffer(name, torch.tensor(codes))


def class_codes_of(model: nn.Module) -> tuple[Tensor, Tensor]:
    """Return the codes of the coarse and the fine classes, ``(C1, K)`` and ``(C2, K)`` float32."""
    net = unadapted(model)
    return net.get_buffer(COARSE).float(), net.get_buffer(FINE).float()


PAPER: Mapping[str, Any] = {"quantization_weight": 10.0, "hierarchy_weight": 100.0, "normalization": "paper"}


NO_HIERARCHY = (
    'local.name = "shdch" runs without its hierarchy, on one level of labels. Set local.coarse_column to the column of the '
    "archive with the coarse classes, or local.coarse_weight = 0 if one level is what you want."
)
"""Remark on a run without a coarser level of labels."""


class SHDCH(TowerMethod[SHDCHParams]):
    """Supervised hierarchical deep hashing, for one or two modalities and levels of labels."""

    presets: ClassVar = {"recommended": {}, "paper": PAPER, "authors_code": {**PAPER, "sweeps": 1}}

    def __init__(self, params: SHDCHParams) -> None:
        self.params = params
        flat = not params.coarse_column and params.coarse_weight > 0
        self.traits = replace(self.traits, coarse_column=params.coarse_column, remarks=(NO_HIERARCHY,) if flat else ())

    def build(self, spec: ModelSpec, bits: int) -> nn.Module:
        """Build towers that end in a tanh, with class codes that are far apart."""
        return HierarchyNet(spec, bits)

    def init_state(self, model: nn.Module, data: SiloData, state: SiloState) -> None:
        """Store both networks' outputs of all items, the labels of both levels and the class codes."""
        coarse, fine = class_codes_of(model)
        state.buffers = {COARSE: coarse, FINE: fine, "coarse_labels": _coarse_labels(data, len(coarse))}
        store_all(model, data, state)
        self.end_epoch(model, data, state)

    def tower_terms(self, modality: Modality, codes: Tensor, rows: Tensor, labels: Tensor, state: SiloState) -> Terms:
        """Return the terms of both levels and the quantization term of one network."""
        drift = quantization(codes, state.buffers["code"][rows])
        labeled = (labels > 0).any(1)
        coarse, classes = state.buffers["coarse_labels"][rows][labeled], state.buffers[COARSE]
        residuals = {
            "fine": (self.params.fine_weight, class_residual(codes[labeled], labels[labeled], state.buffers[FINE]))
        }
        if len(classes):
            residuals["coarse"] = (self.params.coarse_weight, class_residual(codes[labeled], coarse, classes))
        if self.params.normalization == "mean":
            items = max(int(labeled.sum()), 1)
            terms = {name: (weight, values.sum(1).sum() / items) for name, (weight, values) in residuals.items()}
            return {**terms, "quantization": (self.params.quantization_weight, drift.mean())}
        pairs, bits = len(state.buffers["code"]) * len(rows), codes.shape[1]
        terms = {name: (weight, bits**2 * values.sum() / pairs) for name, (weight, values) in residuals.items()}
        return {**terms, "quantization": (self.params.quantization_weight, drift.sum() / pairs)}

    def record(self, step: Step, outputs: Outputs, batch: PairBatch, state: SiloState) -> None:
        """Store the outputs of the batch."""
        store_batch(outputs, batch, state)

    def end_epoch(self, model: nn.Module, data: SiloData, state: SiloState) -> None:
        """Update the target codes B."""
        state.buffers["code"] = joint_codes(state)

    def warnings(self, terms: Mapping[str, float]) -> list[str]:
        """Return a warning if the codes do not separate the classes: all outputs at 0 give a mean residual of 1."""
        if self.params.normalization == "paper" or terms.get("fine", 0.0) < 1.0:
            return []
        return [
            "The codes do not separate the classes: zeros would fit the class codes as well. Lower the learning rate, or "
            "train longer."
        ]

    def silo_sums(self, model: nn.Module, data: SiloData) -> Arrays:
        """Return `level_sums` over the silo's labeled items."""
        classes = [len(codes) for codes in class_codes_of(model)]
        labels = torch.zeros(len(data), classes[1]) if data.labels is None else data.labels
        fine, coarse = (to_array(of).astype(np.float64) for of in (labels, _coarse_labels(data, classes[0])))
        labeled = fine.any(axis=1)
        codes = []
        for modality, values in outputs_of(model, data).items():
            rows = labeled & to_array(data.has(modality))
            codes.append((to_array(values).astype(np.float64)[rows], coarse[rows], fine[rows]))
        bits = class_codes_of(model)[1].shape[1]
        none = (np.zeros((0, bits)), np.zeros((0, classes[0])), np.zeros((0, classes[1])))
        return level_sums([*codes, none], coarse.T @ fine)

    def empty_sums(self, params: ReadArrays) -> Arrays:
        """Return the sums over no items."""
        if FINE not in params:
            return {}
        (coarse, bits), fine = params[COARSE].shape, len(params[FINE])
        none = (np.zeros((0, bits)), np.zeros((0, coarse)), np.zeros((0, fine)))
        return level_sums([none], np.zeros((coarse, fine)))

    def solve(self, params: ReadArrays, sums: ReadArrays) -> Arrays:
        """Return the class codes after coordinate descent on the sums over all silos."""
        if FINE not in params:
            return {}
        coarse, fine = updated_codes(params[COARSE], params[FINE], sums, self._weights(sums), self.params.sweeps)
        return {COARSE: coarse, FINE: fine}

    def _weights(self, sums: ReadArrays) -> Weights:
        """Return the weights of the sums: per row for means over rows, and per fine class for the agreement."""
        params, rows, classes = self.params, max(float(sums["rows"]), 1.0), max(len(sums["fine"]), 1)
        if params.normalization == "paper":
            rows = classes = 1
        return Weights(params.coarse_weight / rows, params.fine_weight / rows, params.hierarchy_weight / classes)


def _coarse_labels(data: SiloData, classes: int) -> Tensor:
    """Return the labels of the coarser level, ``(n, C1)``; without columns if there is one level."""
    if data.coarse_labels is not None and classes:
        return data.coarse_labels
    return data.has_image.new_zeros((len(data), 0), dtype=torch.float32)
