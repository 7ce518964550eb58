"""Self-supervised adversarial hashing: a network of the labels teaches the image and the text network.

The image and the text network learn features and codes that are similar to those of the label network for items that share
labels. Two discriminators tell features of labels from features of images or texts, and the two networks learn to deceive
them.

==============  ==================================================  ====================================================
paper           code                                                meaning
==============  ==================================================  ====================================================
f^l, H^l        ``buffers["label_feature"]``, ``["label_code"]``    stored outputs of the label network, ``(N, H)`` and
                                                                    ``(N, K)``
f^v, f^t        ``outputs.feature``                                 features of the batch, ``(B, H)``
H^v, H^t        ``outputs.code``                                    relaxed codes of the batch, ``(B, K)``
L-hat           ``outputs.extra["image_labels"]``, ...              logits of predicted labels, ``(B, C)``
D^v, D^t        ``model.judges``                                    discriminators of features
B               ``buffers["code"]``                                 sign of the sum of all codes, ``(N, K)``
S               `similarity`                                        1 where two items share a label
Delta, Gamma    `pair_likelihood`                                   half the inner products of features and of codes
alpha, gamma    ``feature_weight``, ``code_weight``                 weights of the two likelihoods
eta             ``quantization_weight``                             weight of the quantization loss
beta            ``label_weight``                                    weight of the label loss
==============  ==================================================  ====================================================

The losses of the three networks are `SSAH.terms`. The adversarial losses are `judge_loss` and `deception_loss`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F  # noqa: N812  torch's usual name
from pydantic import Field
from torch import Tensor, nn

from silohash.base.types import MethodCard, Modality, Outputs, PairBatch, Step, Terms
from silohash.methods.local.base import SiloData, SiloState, shared_width, tower_steps, unadapted
from silohash.methods.local.label_networks import LabelNet, LocalResponse, MultiScale
from silohash.methods.local.losses import label_error, pair_likelihood, pair_weights, quantization, similarity
from silohash.methods.local.stored_outputs import joint_codes, store_batch
from silohash.methods.local.supervised.dcmh import StoredPairs, StoredPairsParams
from silohash.models.specs import ModelSpec, TowerSpec
from silohash.models.towers import Dropout, HashNet

CARD = MethodCard(
    key="ssah",
    title="Self-Supervised Adversarial Hashing Networks for Cross-Modal Retrieval",
    authors="Chao Li, Cheng Deng, Ning Li, Wei Liu, Xinbo Gao, Dacheng Tao",
    venue="CVPR",
    year=2018,
    link="https://arxiv.org/abs/1804.01223",
    summary="Let image and text networks imitate a network of the labels, and deceive discriminators of its features.",
    supervised=True,
    keeps=("outputs of the networks for all of its items, within a round",),
    differs_from_paper=(
        "The gradient of the adversarial loss reaches the image and text networks. In the authors' code it does not.",
        "Steps of all networks alternate per batch. In the authors' code, one network after the other makes several passes "
        "over the items.",
        "The label network takes four steps per batch, except in the preset paper.",
        "With the squared error, the output of a discriminator is between 0 and 1, so that its error is bounded.",
        "The discriminators have hidden layers of 512 and 256 units, as in the authors' code.",
        "Layers start as torch initializes them, and the factors of the text scales start at 1.",
        "The windows of words are those of the authors' code. That code also normalizes the features of texts before the "
        "code and label layers.",
        "The weights of the preset paper (1 for the two likelihoods, 1e-4 for the quantization and label losses) are taken "
        "from memory. The authors' code has 1 for all of them.",
        "Losses are means over pairs, bits and labels, except in the preset paper.",
        "Similar and dissimilar pairs have the same total weight, except in the preset paper. A silo of which less than 5 % "
        "or more than 95 % of the pairs are similar has the weights of that limit.",
        "Similarity is graded by the share of common labels, except in the preset paper.",
        "Texts are not averaged over windows of words, except in the preset paper.",
    ),
)

WINDOWS = ((50, 50), (30, 30), (15, 15), (10, 10), (5, 5))
"""Widths and strides of the windows of words."""

JUDGE_WIDTHS = (512, 256)
"""Widths of the hidden layers of a discriminator."""

LABELS, JUDGES = "labels", "judges"
"""Names of the label network and the discriminators in the model, and of their steps."""


class SSAHParams(StoredPairsParams):
    """Parameters of SSAH."""

    feature_weight: float = Field(default=0.1, ge=0)
    """Weight of the likelihood of features (alpha in the paper), at least 0."""
    code_weight: float = Field(default=1.0, ge=0)
    """Weight of the likelihood of codes (gamma in the paper), at least 0."""
    quantization_weight: float = Field(default=0.1, ge=0)
    """Weight of the quantization loss (eta in the paper), which pulls relaxed codes toward their signs, at least 0."""
    label_weight: float = Field(default=1.0, ge=0)
    """Weight of the squared error of predicted labels (beta in the paper), at least 0."""
    adversarial_weight: float = Field(default=0.1, ge=0)
    """Weight of the adversarial loss of the image and text networks, at least 0. At 0 the discriminators have no
    effect."""
    adversary: Literal["squared", "cross_entropy"] = "squared"
    """Adversarial loss: the `squared` error, as in the paper, or `cross_entropy`. The squared error is bounded. With the
    cross-entropy, discriminators that win can outweigh the other losses."""
    normalization: Literal["mean", "paper"] = "mean"
    """`mean`: losses are means over pairs, bits and labels. `paper`: sums divided by the silo's number of items and the
    batch size."""
    width: int = Field(default=512, ge=1)
    """Width of the first layer of the label network, and of the text network if it averages over windows, at least 1."""
    label_steps: int = Field(default=4, ge=1)
    """Number of steps of the label network per batch, at least 1. The other networks imitate it, so it should learn
    first."""
    text_scales: bool = False
    """Give the text network the averages over windows of 5 to 50 neighboring words beside the words. This makes its
    first layer six times as large, and needs texts as vectors. With 2,048 words and the preset paper, that layer has 50
    million weights. A batch of 64 items then takes about a second on one core, almost all of it in the text network, and 32
    epochs over 10,000 items take more than half an hour on two cores."""

    without_effect: ClassVar = {"adversary": {"adversarial_weight": (0.0,)}}


def judge_loss(of_labels: Tensor, of_others: Tensor, kind: Literal["squared", "cross_entropy"]) -> Tensor:
    """Return the loss of a discriminator per pair of features, ``(B,)``, from their logits. Labels are to be judged as 1.

    Source: Li et al., the adversarial loss.
    """
    if kind == "squared":
        return 0.5 * ((torch.sigmoid(of_labels) - 1.0).square() + torch.sigmoid(of_others).square())
    return 0.5 * (F.softplus(-of_labels) + F.softplus(of_others))


def deception_loss(of_others: Tensor, kind: Literal["squared", "cross_entropy"]) -> Tensor:
    """Return the adversarial loss of an image or text network per item, ``(B,)``; small if features are judged as 1.

    With ``squared``, it is the negative error of the discriminator, which is at least -1.

    Source: Li et al., the objective of the networks, which subtracts the adversarial loss.
    """
    return -torch.sigmoid(of_others).square() if kind == "squared" else F.softplus(-of_others)


class Judge(nn.Module):
    """A discriminator of features, ``(B, H) -> (B,)``: logits, positive for features of labels."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        first, second = JUDGE_WIDTHS
        self.layers = nn.Sequential(
            nn.Linear(hidden, first), nn.ReLU(), nn.Linear(first, second), nn.ReLU(), nn.Linear(second, 1)
        )

    def forward(self, features: Tensor) -> Tensor:
        """Return one logit per feature."""
        judged: Tensor = self.layers(features)
        return judged.squeeze(1).float()


def scaled_text(spec: TowerSpec, width: int) -> nn.Module:
    """Return a text network with averages over windows, ``(B, V) -> (B, hidden)``."""
    scales = MultiScale(spec.shape[0], WINDOWS)
    return nn.Sequential(
        scales, nn.Linear(scales.outputs, width), nn.ReLU(), LocalResponse(), nn.Linear(width, spec.hidden), nn.ReLU(),
        Dropout(spec.dropout),
    )  # fmt: skip


class SSAHNet(HashNet):
    """Towers that also predict labels, with a label network and one discriminator per modality."""

    def __init__(self, spec: ModelSpec, bits: int, *, width: int, text_scales: bool) -> None:
        super().__init__(spec, bits, relaxation="tanh")
        hidden = {m: spec.towers[m].hidden for m in self.modalities}
        for modality in self.modalities:
            tower = self.get_submodule(modality)
            if text_scales and modality == "text" and spec.towers[modality].kind == "mlp":
                tower.add_module("backbone", scaled_text(spec.towers[modality], width))
            tower.add_module("predictor", nn.Linear(hidden[modality], spec.classes))
        shared = shared_width(spec, CARD.key)
        layers = nn.Sequential(
            nn.Linear(spec.classes, width), nn.ReLU(), LocalResponse(), nn.Linear(width, shared), nn.ReLU()
        )
        self.add_module(LABELS, LabelNet(layers, shared, bits, spec.classes))
        self.add_module(JUDGES, nn.ModuleDict({m: Judge(width) for m, width in hidden.items()}))

    def forward(self, batch: PairBatch, modalities: Sequence[Modality] | None = None) -> Outputs:
        """Return the outputs of the towers and, if the batch has labels, those of the other networks.

        Without modalities (``()``), only the label network is run. With one of two, it is not run, and the discriminator
        judges the features with their gradients.
        """
        # `HashNet.forward` takes an empty sequence for all towers.
        outputs = Outputs({}, {}, {}) if modalities == () else super().forward(batch, modalities)
        if batch.labels is None:
            return outputs
        extra: dict[str, Tensor] = {}
        for modality, feature in outputs.feature.items():
            extra[f"{modality}_labels"] = self.get_submodule(f"{modality}.predictor")(feature).float()
            if modalities is not None and len(modalities) == 1:
                extra[f"{modality}_deceives"] = self.get_submodule(f"{JUDGES}.{modality}")(feature)
        if modalities is None or len(modalities) != 1 or len(self.modalities) == 1:
            extra |= self._with_labels(batch.labels, outputs.feature)
        return replace(outputs, extra=extra)

    def _with_labels(self, labels: Tensor, features: Mapping[Modality, Tensor]) -> dict[str, Tensor]:
        """Return the outputs of the label network, and the judgments of features without gradients of the features."""
        feature, code, predicted = self.get_submodule(LABELS)(labels)
        extra = {"label_feature": feature, "label_code": code, "label_labels": predicted}
        for modality, values in features.items():
            judge = self.get_submodule(f"{JUDGES}.{modality}")
            extra[f"{modality}_judged"] = judge(values.detach())
            extra[f"{modality}_judged_labels"] = judge(feature.detach())
        return extra


class SSAH(StoredPairs[SSAHParams]):
    """Self-supervised adversarial hashing, for one or two modalities."""

    presets: ClassVar = {
        "recommended": {},
        "paper": {
            "feature_weight": 1.0, "code_weight": 1.0, "quantization_weight": 1e-4, "label_weight": 1e-4,
            "adversarial_weight": 1.0, "similarity": "any", "class_balance": False, "normalization": "paper",
            "anchors": 1_000_000, "width": 4096, "label_steps": 1, "text_scales": True,
        },
    }  # fmt: skip

    def build(self, spec: ModelSpec, bits: int) -> nn.Module:
        """Build the towers, the label network and the discriminators."""
        return SSAHNet(spec, bits, width=self.params.width, text_scales=self.params.text_scales)

    def steps(self, model: nn.Module) -> Sequence[Step]:
        """Return the steps of the label network, and one each of the discriminators, the image and the text network."""
        assert isinstance(model, HashNet)  # noqa: S101  built above
        names = [f"{LABELS}{number or ''}" for number in range(self.params.label_steps)]
        of_labels = [Step(name=name, parameters=(f"{LABELS}.",), modalities=()) for name in names]
        judges = Step(name=JUDGES, parameters=(f"{JUDGES}.",), modalities=model.modalities)
        return [*of_labels, judges, *tower_steps(model)]

    @torch.no_grad()
    def label_outputs(self, model: nn.Module, labels: Tensor) -> dict[str, Tensor]:
        """Return the features ``(N, D)`` and codes ``(N, K)`` of all items from the label network."""
        feature, code, _ = unadapted(model).get_submodule(LABELS)(labels)
        return {"label_feature": feature, "label_code": code}

    def terms(self, step: Step, outputs: Outputs, batch: PairBatch, state: SiloState) -> Terms:
        """Return the terms of the network that the step trains. Source: Li et al., the objectives."""
        if step.name == JUDGES:
            return self._judgment(outputs, batch)
        if not step.modalities:
            feature, code = outputs.extra["label_feature"], outputs.extra["label_code"]
            return self._imitation(feature, code, outputs.extra["label_labels"], batch.row, state)
        (modality,) = step.modalities
        held = batch.rows_with(modality)
        rows = batch.row[held]
        if not len(rows):
            return {}
        feature, code = outputs.feature[modality][held], outputs.code[modality][held]
        terms = self._imitation(feature, code, outputs.extra[f"{modality}_labels"][held], rows, state)
        if self.params.adversarial_weight:
            deception = deception_loss(outputs.extra[f"{modality}_deceives"][held], self.params.adversary)
            terms["deception"] = (self.params.adversarial_weight, self._mean(deception, rows, state))
        return terms

    def _judgment(self, outputs: Outputs, batch: PairBatch) -> Terms:
        """Return the loss of the discriminators; empty if the batch has no inputs."""
        losses = []
        for modality in outputs.feature:
            held = batch.rows_with(modality)
            of_others, of_labels = (outputs.extra[f"{modality}_judged{of}"][held] for of in ("", "_labels"))
            if len(of_others):
                losses.append(judge_loss(of_labels, of_others, self.params.adversary).mean())
        return {"judgment": (1.0, torch.stack(losses).mean())} if losses else {}

    def _imitation(self, feature: Tensor, code: Tensor, logits: Tensor, rows: Tensor, state: SiloState) -> Terms:
        """Return the likelihoods of features and codes beside those of the label network, and the two other losses."""
        params, anchors, labels = self.params, state.buffers["anchors"], state.buffers["labels"]
        features, codes = (state.buffers[name].index_select(0, anchors) for name in ("label_feature", "label_code"))
        similar = similarity(labels[rows], labels.index_select(0, anchors), graded=self.graded)
        weights = pair_weights(similar, float(state.buffers["share"])) if params.class_balance else 1.0
        losses = {
            "features": (params.feature_weight, weights * pair_likelihood(feature, features, similar)),
            "codes": (params.code_weight, weights * pair_likelihood(code, codes, similar)),
            "quantization": (params.quantization_weight, quantization(code, state.buffers["code"][rows])),
            "labels": (params.label_weight, label_error(logits, labels[rows])),
        }
        return {name: (weight, self._mean(loss, rows, state)) for name, (weight, loss) in losses.items()}

    def _mean(self, loss: Tensor, rows: Tensor, state: SiloState) -> Tensor:
        """Return the mean of a loss, or its sum divided by the number of pairs of a batch's item and a stored item."""
        paper = self.params.normalization == "paper"
        return loss.sum() / (len(rows) * len(state.buffers["anchors"])) if paper else loss.mean()

    def record(self, step: Step, outputs: Outputs, batch: PairBatch, state: SiloState) -> None:
        """Store the outputs of the batch."""
        if not step.modalities:
            for name in ("label_feature", "label_code"):
                state.buffers[name][batch.row] = outputs.extra[name].detach()
        elif step.name != JUDGES:
            store_batch(outputs, batch, state)

    def end_epoch(self, model: nn.Module, data: SiloData, state: SiloState) -> None:
        """Set B to the signs of the sum of all codes, and draw the stored items for the next epoch."""
        state.buffers["code"] = joint_codes(state, "label_code")
        super().end_epoch(model, data, state)
