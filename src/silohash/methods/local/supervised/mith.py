"""MITH: a code from the vector of a whole item and from its tokens, such as patches or words.

Each bit stands for a concept. The global branch computes a code from the vector of an item, and is trained to agree between
the modalities. The token branch gathers the tokens of each concept and computes a code from them, and is trained within each
modality. The branches teach each other, and the code is the sign of their sum.

=========  ==============================  ==================================================================
paper      code                            meaning
=========  ==============================  ==================================================================
h_cls      ``extra["image/global"]``       code of the global branch, (B, K) in (-1, 1)
h_tokens   ``extra["image/token"]``        code of the token branch, (B, K) in (-1, 1)
H          ``outputs.code``                mean of the codes of both branches, (B, K)
buffers    ``buffers["image"]``            stored codes of both branches, side by side, (n, 2K)
S          `similarity`                    1 where two items share a label
B          `target_codes`                  sign of the weighted sum of all codes of an item
lambda     ``global_share``                share of the global branch in B
beta       ``global_weight``               weight of the likelihood between the modalities
gamma      ``quantization_weight``         weight of the distance from B
delta      ``contrast_weight``             weight of the alignment of the two vectors of an item
alpha      ``concept_share``               weight of the alignment of concepts, as a share of delta
mu         ``distillation_weight``         weight of the distance between the branches
=========  ==============================  ==================================================================

The names and symbols are those of the authors' code. The terms are `pair_likelihood` within and between the modalities,
`quantization`, `alignment` and `distillation`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from silohash.base.types import MODALITIES, MethodCard, Modality, Outputs, PairBatch, Step, Terms
from silohash.methods.local.base import (
    LocalMethod,
    MethodParams,
    SiloData,
    SiloState,
    draw_anchors,
    partner_outputs,
    signs,
    store_all,
    store_batch,
)
from silohash.methods.local.concept_networks import CONCEPTS, GLOBAL, TOKEN, VECTOR, ConceptNet, alignment
from silohash.methods.local.losses import quantization
from silohash.methods.local.stored_pairs import labels_and_share, stored_likelihood
from silohash.methods.traits import Traits
from silohash.models.specs import ModelSpec

CARD = MethodCard(
    key="mith",
    title="Multi-Granularity Interactive Transformer Hashing for Cross-modal Retrieval",
    authors="Yishu Liu, Qingpeng Wu, Zheng Zhang, Jingyi Zhang, Guangming Lu",
    venue="ACM Multimedia",
    year=2023,
    link="https://github.com/DarrenZZhang/MM23-MITH",
    summary="Compute codes from whole items and from their tokens, and let the two teach each other.",
    supervised=True,
    keeps=("outputs of both branches for all of its items, within a round",),
    differs_from_paper=(
        "The inputs are fixed. The paper fine-tunes a pretrained CLIP, and reports the epoch that is best on the test "
        "queries.",
        "Features without tokens, such as bags of words or one vector per picture, are treated as a single token, which is "
        "the feature of the tower. Each item then belongs to a few concepts only.",
        "Stored outputs are computed by the network at the start of every round. In the paper they start as noise.",
        "The distance between the branches is a mean over bits, and the weights of the alignment and of the quantization "
        "loss are lower, except in the preset paper.",
        "Similar and dissimilar pairs have the same total weight, except in the preset paper.",
        "Similarity is graded by the share of common labels, except in the preset paper.",
        "A batch is compared with at most 1,024 stored items, except in the preset paper.",
        "Layers and weights are those of the authors' code.",
    ),
)


class MITHParams(MethodParams):
    """Parameters of MITH."""

    token_weight: float = Field(default=1.0, ge=0)
    """Weight of the likelihood of the token branch within each modality, at least 0."""
    global_weight: float = Field(default=10.0, ge=0)
    """Weight of the likelihood of the global branch between the modalities (beta in the paper), at least 0."""
    quantization_weight: float = Field(default=1.0, ge=0)
    """Weight of the quantization loss (gamma in the paper), which pulls the mean of both codes toward the target code, at
    least 0."""
    contrast_weight: float = Field(default=1.0, ge=0)
    """Weight of the loss that aligns the image and the text of an item (delta in the paper), at least 0."""
    concept_share: float = Field(default=0.01, ge=0)
    """Weight of the alignment of concepts, as a multiple of `contrast_weight` (alpha in the paper), at least 0."""
    distillation_weight: float = Field(default=1.0, ge=0)
    """Weight of the squared distance between the codes of the branches (mu in the paper), at least 0."""
    teacher_share: float = Field(default=0.1, ge=0, le=1)
    """Factor on the gradient of that distance for the global branch, from 0 to 1. At 0 only the token branch learns."""
    global_share: float = Field(default=0.99, ge=0, le=1)
    """Share of the global branch in the target code (lambda in the paper), from 0 to 1."""
    temperature: float = Field(default=0.07, gt=0)
    """Temperature of the alignment, positive. Lower values emphasize the closest wrong partners."""
    concepts_per_token: int = Field(default=8, ge=1)
    """Number of concepts that a token belongs to at most, at least 1."""
    residual_layers: int = Field(default=2, ge=0)
    """Number of residual layers of the global branch, at least 0."""
    layers: int = Field(default=2, ge=0)
    """Number of layers of the transformer over the concepts, at least 0. Each costs 12 K H^2 multiplications per item and
    modality, for K bits and a feature layer of width H."""
    similarity: Literal["any", "graded"] = "graded"
    """Similarity of two items: `any` (1 if they share a label, else 0) or `graded` (the cosine of their label
    vectors)."""
    class_balance: bool = True
    """Give similar and dissimilar pairs the same total weight, regardless of how many there are of each."""
    per_bit: bool = True
    """Divide the distance between the branches by the number of bits."""
    anchors: int = Field(default=1024, ge=1)
    """Number of stored items that each batch is compared with, at least 1. A new random subset is drawn each epoch."""

    without_effect: ClassVar = {
        "concept_share": {"contrast_weight": (0.0,)},
        "temperature": {"contrast_weight": (0.0,)},
        "teacher_share": {"distillation_weight": (0.0,)},
        "per_bit": {"distillation_weight": (0.0,)},
    }


def target_codes(codes: Mapping[Modality, Tensor], held: Mapping[Modality, Tensor], share: float) -> Tensor:
    """Return the signs of the sum of an item's codes over modalities and branches, ``(B, K)``.

    Args:
        codes: ``(B, 2K)`` codes of both branches side by side, per modality.
        held: ``(B,)`` bool, which items have the modality.
        share: Share of the global branch, from 0 to 1.
    """
    sums = torch.stack([values * held[modality].unsqueeze(1) for modality, values in codes.items()]).sum(0)
    whole, part = sums.chunk(2, dim=1)
    return signs(share * whole + (1.0 - share) * part)


def distillation(student: Tensor, teacher: Tensor, share: float) -> Tensor:
    """Return the squared distances of two codes, ``(B, K)``, of which the teacher receives only a share of the gradient.

    Args:
        student: ``(B, K)``.
        teacher: ``(B, K)``.
        share: Factor on the gradient of the teacher. It also adds this share of the distances.
    """
    return (student - teacher.detach()).square() + share * (student.detach() - teacher).square()


class BranchCodes(nn.Module):
    """A model whose codes are those of both branches side by side, ``(B, 2K)``.

    Args:
        model: A `ConceptNet`, or one whose outputs a federated method adapts.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: PairBatch) -> Outputs:
        """Return the outputs for items with labels."""
        return with_branch_codes(self.model(batch))


def with_branch_codes(outputs: Outputs) -> Outputs:
    """Return outputs whose codes are those of both branches side by side, ``(B, 2K)``."""
    names = GLOBAL, TOKEN
    return replace(
        outputs, code={m: torch.cat([outputs.extra[f"{m}/{name}"] for name in names], dim=1) for m in outputs.code}
    )


class MITH(LocalMethod):
    """Codes from whole items and from their tokens, for one or two modalities.

    With one modality, the global branch is compared with its own stored outputs.
    """

    Params = MITHParams
    params: MITHParams
    presets: ClassVar = {
        "recommended": {},
        "paper": {
            "quantization_weight": 8.0,
            "contrast_weight": 50.0,
            "similarity": "any",
            "class_balance": False,
            "per_bit": False,
            "anchors": 1_000_000,
        },
    }
    traits = Traits(needs_labels=True, takes_tokens=True)

    def build(self, spec: ModelSpec, bits: int) -> nn.Module:
        """Build towers with a shared global branch and a token branch each."""
        given = self.params
        return ConceptNet(
            spec, bits, most=given.concepts_per_token, residual_layers=given.residual_layers, layers=given.layers
        )

    def init_state(self, model: nn.Module, data: SiloData, state: SiloState) -> None:
        """Store the codes of both branches for all items, the labels, and the share of similar pairs."""
        state.buffers = labels_and_share(data, graded=self.params.similarity == "graded")
        store_all(BranchCodes(model).train(model.training), data, state)
        self.end_epoch(model, data, state)

    def terms(self, step: Step, outputs: Outputs, batch: PairBatch, state: SiloState) -> Terms:
        """Return the likelihoods of both branches, and the terms on quantization, alignment and distillation."""
        held = {m: batch.has(m) for m in outputs.code if bool(batch.has(m).any())}
        if not held:
            return {}
        branches = with_branch_codes(outputs).code
        targets = target_codes({m: branches[m].detach() for m in held}, held, self.params.global_share)
        codes = {m: outputs.code[m][rows] for m, rows in held.items()}
        drift = [quantization(values, targets[held[m]]).mean() for m, values in codes.items()]
        return {
            **self._likelihoods(outputs, batch, state, held),
            "quantization": (self.params.quantization_weight, torch.stack(drift).sum()),
            **self._alignment(outputs, batch),
            **self._distillation(outputs, held),
        }

    def _likelihoods(
        self, outputs: Outputs, batch: PairBatch, state: SiloState, held: Mapping[Modality, Tensor]
    ) -> Terms:
        """Return the likelihood of the token branch within, and of the global branch between the modalities."""
        anchors = state.buffers["anchors"]
        found: dict[str, list[Tensor]] = {TOKEN: [], GLOBAL: []}
        for modality, rows in held.items():
            stored = partner_outputs(state, modality, anchors).chunk(2, dim=1)[0]
            found[GLOBAL].append(
                self._likelihood(outputs.extra[f"{modality}/{GLOBAL}"][rows], stored, batch.row[rows], anchors, state)
            )
            same = anchors[state.buffers[f"has_{modality}"][anchors]]
            if len(same):
                stored = state.buffers[modality][same].chunk(2, dim=1)[1]
                found[TOKEN].append(
                    self._likelihood(outputs.extra[f"{modality}/{TOKEN}"][rows], stored, batch.row[rows], same, state)
                )
        weights = {TOKEN: self.params.token_weight, GLOBAL: self.params.global_weight}
        return {name: (weights[name], torch.stack(values).sum()) for name, values in found.items() if values}

    def _likelihood(self, codes: Tensor, stored: Tensor, rows: Tensor, anchors: Tensor, state: SiloState) -> Tensor:
        """Return the mean likelihood of the pairs of a batch's codes and stored ones, a scalar."""
        graded, balanced = self.params.similarity == "graded", self.params.class_balance
        return stored_likelihood(codes, stored, rows, anchors, state, graded=graded, balanced=balanced).mean()

    def _alignment(self, outputs: Outputs, batch: PairBatch) -> Terms:
        """Return the alignment of the images and texts of the same items, and that of their concepts."""
        both = batch.has_image & batch.has_text
        if len(outputs.code) < 2 or not self.params.contrast_weight or not bool(both.any()):
            return {}
        image, text = MODALITIES
        weights = {
            VECTOR: self.params.contrast_weight,
            CONCEPTS: self.params.contrast_weight * self.params.concept_share,
        }
        found = {
            name: alignment(
                outputs.extra[f"{image}/{name}"][both], outputs.extra[f"{text}/{name}"][both], self.params.temperature
            )
            for name in weights
        }
        return {
            "contrast": (weights[VECTOR], found[VECTOR]), "concept_contrast": (weights[CONCEPTS], found[CONCEPTS])
        }  # fmt: skip

    def _distillation(self, outputs: Outputs, held: Mapping[Modality, Tensor]) -> Terms:
        """Return the mean distance between the codes of the two branches, summed over the modalities."""
        branches = [
            (outputs.extra[f"{m}/{TOKEN}"][rows], outputs.extra[f"{m}/{GLOBAL}"][rows]) for m, rows in held.items()
        ]
        distances = [distillation(student, teacher, self.params.teacher_share) for student, teacher in branches]
        means = [values.mean() if self.params.per_bit else values.sum(1).mean() for values in distances]
        return {"distillation": (self.params.distillation_weight, torch.stack(means).sum())}

    def record(self, step: Step, outputs: Outputs, batch: PairBatch, state: SiloState) -> None:
        """Store the codes of the batch."""
        branches = with_branch_codes(outputs)
        for modality in outputs.code:
            store_batch(modality, branches, batch, state)

    def end_epoch(self, model: nn.Module, data: SiloData, state: SiloState) -> None:
        """Draw the stored items for the next epoch."""
        draw_anchors(data, state, self.params.anchors)
