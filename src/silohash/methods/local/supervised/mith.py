"""MITH: a code from the vector of a whole item and from its tokens, such as patches or words.

Each bit stands for a concept. The global branch computes a code from the vector of an item, and is trained to agree between
the modalities. The token branch distributes the tokens over the concepts, and is trained within each modality. The code is
the sign of the sum of both branches. An item without tokens has a single token, which is its vector.

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

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

import torch
import torch.nn.functional as F  # noqa: N812  torch's usual name
from pydantic import Field
from torch import Tensor, nn

from silohash.base.types import MODALITIES, MethodCard, Modality, Outputs, PairBatch, Step, Terms
from silohash.methods.local.base import SiloData, SiloState, shared_width, signs
from silohash.methods.local.losses import quantization
from silohash.methods.local.stored_outputs import partner_outputs, store_batch
from silohash.methods.local.supervised.dcmh import StoredPairs, StoredPairsParams
from silohash.methods.traits import Traits
from silohash.models.specs import ModelSpec
from silohash.models.towers import HashNet, Tower, TowerOutputs

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
        "Similar and dissimilar pairs have the same total weight, except in the preset paper. A silo of which less than 5 % "
        "or more than 95 % of the pairs are similar has the weights of that limit.",
        "Similarity is graded by the share of common labels, except in the preset paper.",
        "A batch is compared with at most 1,024 stored items, except in the preset paper.",
        "Layers and weights are those of the authors' code.",
    ),
)


GLOBAL, TOKEN, VECTOR, CONCEPTS = "global", "token", "vector", "concepts"
"""Names of the extra outputs, each under ``MODALITY/NAME``: the codes of both branches, ``(B, K)`` in (-1, 1); the input of
the global branch's hash layer, ``(B, H)``; and the projected concepts, ``(B, K, H)``."""

HEAD_WIDTH = 64
"""Width of an attention head, unless the network is narrower or its width is not a multiple of it."""


class MITHParams(StoredPairsParams):
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
    per_bit: bool = True
    """Divide the distance between the branches by the number of bits."""

    without_effect: ClassVar = {
        **StoredPairsParams.switched_off("concept_share", "temperature", contrast_weight=(0.0,)),
        **StoredPairsParams.switched_off("teacher_share", "per_bit", distillation_weight=(0.0,)),
    }


def positions(count: int, width: int) -> Tensor:
    """Return sines and cosines that tell concepts apart, ``(count, width)``, divided by the root of the width.

    Even columns hold sines and odd columns cosines, with wavelengths from 2 pi to 20,000 pi.

    Source: Vaswani et al., "Attention Is All You Need", NIPS 2017, section 3.5.
    """
    columns = torch.arange(width)
    rates = torch.exp(-math.log(10_000.0) * (columns - columns % 2) / width)
    angles = torch.arange(count).unsqueeze(1) * rates
    return torch.where(columns % 2 == 0, torch.sin(angles), torch.cos(angles)) / math.sqrt(width)


def assignment(scores: Tensor, present: Tensor, most: int) -> Tensor:
    """Return the share of each token in each concept, ``(B, T, K)``. The shares of a concept add up to 1, or to 0.

    A token belongs to at most ``most`` concepts, those with its highest positive scores ``(B, T, K)``; equal scores can add
    further ones. The shares of the tokens of a concept are a softmax over their scores. Tokens that are not present ``(B,
    T)`` are padding.
    """
    lowest = torch.topk(scores, min(most, scores.shape[2]), dim=2).values[:, :, -1:]
    chosen = (scores > 0) & (scores >= lowest) & present.unsqueeze(2)
    weights = torch.exp(scores) * chosen
    return weights / weights.sum(1, keepdim=True).clamp(min=1e-12)


class ResidualLayers(nn.Module):
    """Layers that each add a small network of the normalized values, ``(..., H) -> (..., H)``."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
            for _ in range(layers)
        )

    def forward(self, values: Tensor) -> Tensor:
        """Return the values plus what each layer adds."""
        for layer in self.layers:
            values = values + layer(values)
        return values


class AttentionLayer(nn.Module):
    """A layer of a transformer with normalized inputs, ``(B, K, H) -> (B, K, H)``."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.heads = max(count for count in range(1, max(1, width // HEAD_WIDTH) + 1) if width % count == 0)
        self.norm = nn.LayerNorm(width)
        self.inputs = nn.Linear(width, 3 * width)
        self.outputs = nn.Linear(width, width)
        self.rest = ResidualLayers(width, 1)

    def forward(self, values: Tensor) -> Tensor:
        """Return the values plus those of the concepts that they attend to, and then those of a small network."""
        count, width = values.shape[1:]
        split = self.inputs(self.norm(values)).reshape(-1, count, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4)  # each (B, heads, K, H / heads)
        attention = torch.softmax(query @ key.transpose(2, 3) / math.sqrt(width // self.heads), dim=3)
        mixed = (attention @ value).transpose(1, 2).reshape(-1, count, width)
        found: Tensor = self.rest(values + self.outputs(mixed))
        return found


class ConceptLayers(nn.Module):
    """A transformer over the concepts of an item, ``(B, K, H) -> (B, K, H)``."""

    positions: Tensor

    def __init__(self, width: int, concepts: int, layers: int) -> None:
        super().__init__()
        self.register_buffer("positions", positions(concepts, width), persistent=False)
        self.layers = nn.Sequential(*(AttentionLayer(width) for _ in range(layers)))

    def forward(self, values: Tensor) -> Tensor:
        """Return the transformed concepts."""
        found: Tensor = self.layers(values + self.positions)
        return found


class BitwiseHash(nn.Module):
    """A hash layer with weights of its own for each concept, ``(B, K, H) -> (B, K)`` in (-1, 1)."""

    def __init__(self, width: int, bits: int) -> None:
        super().__init__()
        reach = 1.0 / math.sqrt(width)
        self.directions = nn.Parameter(torch.empty(bits, width).uniform_(-reach, reach))
        self.offsets = nn.Parameter(torch.empty(bits).uniform_(-reach, reach))

    def forward(self, concepts: Tensor) -> Tensor:
        """Return the code of the token branch."""
        return torch.tanh((concepts * self.directions).sum(2) + self.offsets)


class ConceptNet(HashNet):
    """Towers with a global branch, which they share, and a token branch each.

    The shared layers are ``shared.residual`` and ``shared.hash``. A tower has the transformer ``concepts``, the hash layer
    ``hash`` of its token branch, and ``projection``, which only the training uses. ``Outputs.feature`` is the input of both
    hash layers: the vector of the global branch followed by all concepts, ``(B, (1 + K) H)``.
    """

    def __init__(self, spec: ModelSpec, bits: int, *, most: int, residual_layers: int, layers: int) -> None:
        super().__init__(spec, bits)
        self.most, self.width = most, shared_width(spec, CARD.key)
        for modality in self.modalities:
            tower = self.tower(modality)
            tower.hash = BitwiseHash(self.width, bits)
            tower.add_module("concepts", ConceptLayers(self.width, bits, layers))
            tower.add_module("projection", nn.Linear(self.width, self.width))
        residual, last = ResidualLayers(self.width, residual_layers), nn.Linear(self.width, bits, bias=False)
        self.shared = nn.ModuleDict({"residual": residual, "hash": last})

    def run_tower(self, modality: Modality, values: Tensor, batch: PairBatch) -> TowerOutputs:
        """Return the input of the hash layers ``(B, (1 + K) H)`` and the mean of both codes ``(B, K)``."""
        tower = self.tower(modality)
        vector, tokens, present = item_and_tokens(tower, values)
        concepts = tower.get_submodule("concepts")(self.gathered(tokens, present))
        feature = torch.cat([self.shared["residual"](vector), concepts.flatten(1)], dim=1)
        whole, part = self.codes(modality, feature)
        return TowerOutputs(feature, 0.5 * (whole + part))

    def gathered(self, tokens: Tensor, present: Tensor) -> Tensor:
        """Return the tokens of each concept, averaged by their shares, ``(B, K, H)``; zeros for concepts without tokens.

        The shared layers score each token ``(B, T, H)`` like the vector of an item. They learn from whole items only.
        """
        with torch.no_grad():
            scores = torch.tanh(self.shared["hash"](self.shared["residual"](tokens)).float())
            shares = assignment(scores, present, self.most)
        return shares.transpose(1, 2) @ tokens.float()

    def codes(self, modality: Modality, feature: Tensor) -> tuple[Tensor, Tensor]:
        """Return the codes of the global and the token branch, each ``(B, K)`` in (-1, 1), from ``Outputs.feature``."""
        whole = torch.tanh(self.shared["hash"](feature[:, : self.width])).float()
        return whole, self.tower(modality).hash(self.concepts(feature)).float()

    def concepts(self, feature: Tensor) -> Tensor:
        """Return the transformed concepts, ``(B, K, H)``, from ``Outputs.feature``."""
        return feature[:, self.width :].reshape(-1, self.bits, self.width)

    def extras(self, outputs: Outputs) -> dict[str, Tensor]:
        """Return the outputs that the training compares."""
        extra: dict[str, Tensor] = {}
        for modality, feature in outputs.feature.items():
            extra[f"{modality}/{GLOBAL}"], extra[f"{modality}/{TOKEN}"] = self.codes(modality, feature)
            extra[f"{modality}/{VECTOR}"] = feature[:, : self.width]
            projected = self.tower(modality).get_submodule("projection")(self.concepts(feature))
            extra[f"{modality}/{CONCEPTS}"] = projected.float()
        return extra


def item_and_tokens(tower: Tower, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the vectors of whole items ``(B, H)``, of their tokens ``(B, T, H)``, and which tokens exist, ``(B, T)`` bool.

    The inputs ``(B, 1 + T, D)`` are the vector of each item followed by those of its tokens, with zeros for padding. Inputs
    of any other form are items without tokens, whose single token is their feature.
    """
    feature = tower.features(values)
    if feature.ndim == 2:
        return feature, feature.unsqueeze(1), torch.ones_like(feature[:, :1], dtype=torch.bool)
    return feature[:, 0], feature[:, 1:], (values[:, 1:] != 0).any(2)


def alignment(values: Tensor, others: Tensor, temperature: float) -> Tensor:
    """Return the mean cross-entropy of identifying the partner of each row ``(..., N, H)``, in both directions, a scalar.

    Source: van den Oord, Li and Vinyals, "Representation Learning with Contrastive Predictive Coding", 2018.
    """
    cosines = F.normalize(values, dim=-1) @ F.normalize(others, dim=-1).transpose(-1, -2) / temperature
    own = cosines.diagonal(dim1=-2, dim2=-1)
    return 0.5 * ((cosines.logsumexp(-1) - own).mean() + (cosines.logsumexp(-2) - own).mean())


def target_codes(codes: Mapping[Modality, Tensor], held: Mapping[Modality, Tensor], share: float) -> Tensor:
    """Return the signs of the sum of an item's codes over modalities and branches, ``(B, K)``.

    The codes ``(B, 2K)`` are those of both branches side by side. Items count in the modalities that they hold ``(B,)``.
    """
    sums = torch.stack([values * held[modality].unsqueeze(1) for modality, values in codes.items()]).sum(0)
    whole, part = sums.chunk(2, dim=1)
    return signs(share * whole + (1.0 - share) * part)


def distillation(student: Tensor, teacher: Tensor, share: float) -> Tensor:
    """Return the squared distances of two codes, ``(B, K)``, of which the teacher receives only a share of the gradient.

    The share of the distances is added as well.
    """
    return (student - teacher.detach()).square() + share * (student.detach() - teacher).square()


class BranchCodes(nn.Module):
    """A `ConceptNet`, or one that a federated method adapts, whose codes are those of both branches side by side."""

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


class MITH(StoredPairs[MITHParams]):
    """Codes from whole items and from their tokens, for one or two modalities.

    With one modality, the global branch is compared with its own stored outputs.
    """

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
        super().init_state(BranchCodes(model).train(model.training), data, state)

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
            same = anchors[state.buffers[f"has_{modality}"][anchors]]
            compared = {
                GLOBAL: (anchors, partner_outputs(state, modality, anchors).chunk(2, dim=1)[0]),
                TOKEN: (same, state.buffers[modality][same].chunk(2, dim=1)[1]),
            }
            for name, (items, stored) in compared.items():
                if len(items):
                    codes = outputs.extra[f"{modality}/{name}"][rows]
                    found[name].append(self.likelihood(codes, stored, batch.row[rows], items, state).mean())
        weights = {TOKEN: self.params.token_weight, GLOBAL: self.params.global_weight}
        return {name: (weights[name], torch.stack(values).sum()) for name, values in found.items() if values}

    def _alignment(self, outputs: Outputs, batch: PairBatch) -> Terms:
        """Return the alignment of the images and texts of the same items, and that of their concepts."""
        both = batch.has_image & batch.has_text
        if len(outputs.code) < 2 or not self.params.contrast_weight or not bool(both.any()):
            return {}
        terms: Terms = {}
        for term, name, share in (("contrast", VECTOR, 1.0), ("concept_contrast", CONCEPTS, self.params.concept_share)):
            image, text = (outputs.extra[f"{m}/{name}"][both] for m in MODALITIES)
            terms[term] = (self.params.contrast_weight * share, alignment(image, text, self.params.temperature))
        return terms

    def _distillation(self, outputs: Outputs, held: Mapping[Modality, Tensor]) -> Terms:
        """Return the mean distance between the codes of the two branches, summed over the modalities."""
        extra, share = outputs.extra, self.params.teacher_share
        distances = [
            distillation(extra[f"{m}/{TOKEN}"][has], extra[f"{m}/{GLOBAL}"][has], share) for m, has in held.items()
        ]
        means = [values.mean() if self.params.per_bit else values.sum(1).mean() for values in distances]
        return {"distillation": (self.params.distillation_weight, torch.stack(means).sum())}

    def record(self, step: Step, outputs: Outputs, batch: PairBatch, state: SiloState) -> None:
        """Store the codes of the batch."""
        store_batch(with_branch_codes(outputs), batch, state)
