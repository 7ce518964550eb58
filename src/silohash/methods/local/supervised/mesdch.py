"""Multi-scale deep cross-modal hashing with a label network: cosines of codes follow the cosines of labels.

A network of the labels, the image network and the text network learn codes together, each compared with the stored codes of
all items. The loss of a pair is large where similarity by labels and similarity by codes differ by a large factor.

=========  ===================================================  ====================================================
symbol     code                                                 meaning
=========  ===================================================  ====================================================
F, G, Q    ``buffers["image"]``, ``["text"]``, ``["labels"]``   stored codes of the image, text and label network
B          ``buffers["code"]``                                  sign(F + G + Q), ``(N, K)``, target of all networks
s          `similarity` (``graded=True``)                       cosine of label vectors, in [0, 1]
r          in `divergence`                                      max(0, cosine of codes), in [0, 1]
J          `divergence`                                         (s - r) ln((e + s) / (e + r)) per pair
e          ``offset``                                           keeps the ratio of similarities finite
=========  ===================================================  ====================================================

The method is known from its authors' public code. The symbols and the losses in `MESDCH.terms` are those of the code.
"""

from collections.abc import Sequence
from typing import ClassVar, Literal, TypeAlias

import torch
from pydantic import Field
from torch import Tensor, nn

from silohash.base.types import MethodCard, Modality, Outputs, PairBatch, Step, Terms
from silohash.methods.local import base
from silohash.methods.local.label_networks import MultiScale
from silohash.methods.local.losses import cosines, quantization, similarity
from silohash.methods.local.stored_outputs import draw_anchors, joint_codes, store_batch, stored_modalities
from silohash.methods.traits import Traits
from silohash.models.specs import ModelSpec
from silohash.models.towers import HashNet

CARD = MethodCard(
    key="mesdch",
    title="Multi-label Enhancement Based Self-supervised Deep Cross-modal Hashing",
    authors="Xitao Zou, Song Wu, Erwin M. Bakker, Xinzhi Wang",
    venue="Neurocomputing",
    year=2022,
    link="https://github.com/SWU-CS-MediaLab/MESDCH",
    summary="Fit cosines of image, text and label codes to the cosines of labels.",
    supervised=True,
    keeps=("outputs of the networks for all of its items, within a round",),
    differs_from_paper=(
        "The losses and weights are those of the authors' public code.",
        "Layers with averages over windows are normalized per item. The authors' code uses statistics of batches, which "
        "silos with different classes cannot average.",
        "The image network is that of the run. The authors' code has an AlexNet.",
        "Steps of the three networks alternate per batch instead of per epoch.",
        "Stored outputs are computed by the networks at the start of every round. In the authors' code they start as noise.",
        "Items without labels are similar to none. Stored items without a modality are not compared in that modality.",
        "Vectors of words and labels are not averaged over windows, except in the preset paper.",
        "Similar items attract each other at negative cosines too (slope), except in the preset paper.",
        "The offset that keeps ratios finite is larger, so that gradients stay moderate, except in the preset paper.",
    ),
)

Network: TypeAlias = Literal["labels", "image", "text"]
"""Name of a network in the model, of its step and of its stored codes."""

LABELS: Network = "labels"
WINDOWS = ((10, 10), (6, 5), (3, 3), (2, 2), (1, 1))
"""Widths and strides of the windows of words or labels."""


class MESDCHParams(base.MethodParams):
    """Parameters of MESDCH."""

    same_weight: float = Field(default=1.9, ge=0)
    """Weight of the comparison of a network with its own stored codes, at least 0."""
    label_weight: float = Field(default=1.0, ge=0)
    """Weight of the comparison of the image and text networks with the codes of the label network, at least 0."""
    image_weight: float = Field(default=1.0, ge=0)
    """Weight of the comparison of the label network with the codes of the image network, at least 0."""
    text_weight: float = Field(default=0.3, ge=0)
    """Weight of the comparison of the label network with the codes of the text network, at least 0."""
    quantization_weight: float = Field(default=0.9, ge=0)
    """Weight of the quantization loss, which pulls relaxed codes toward the signs of the sum of all codes, at least 0."""
    slope: float = Field(default=1.0, ge=0)
    """Slope of the loss of similar items with a negative cosine of codes, at least 0. At 0, such items do not attract each
    other."""
    offset: float = Field(default=0.1, gt=0)
    """Number that is added to similarities before their ratio is taken, positive. With a small one, gradients are very
    large where the cosine of codes is close to 0."""
    anchors: int = Field(default=1024, ge=1)
    """Number of stored items that each batch is compared with, at least 1. A new random subset is drawn each epoch."""
    width: int = Field(default=512, ge=1)
    """Width of the first layer of the label network, and of the text network if it averages over windows, at least 1."""
    scales: bool = False
    """Give the text and the label network averages over windows of 1 to 10 neighboring words or labels beside the words or
    labels. This makes their first layers six times as large, and needs texts as vectors."""


def divergence(codes: Tensor, others: Tensor, similar: Tensor, *, offset: float, slope: float) -> Tensor:
    """Return the loss of each pair, ``(B, N)``: (s - r) ln((e + s) / (e + r)) - slope * s * min(0, cosine).

    Stored codes are ``(N, K)``. Codes of length 0 have the cosine 0.

    Source: the authors' code, with the slope as an addition.
    """
    cosine = cosines(codes, others)
    found = cosine.clamp(min=0.0)
    loss = (similar - found) * ((offset + similar) / (offset + found)).log()
    return loss - slope * similar * cosine.clamp(max=0.0)


def semantic_layers(inputs: int, width: int, hidden: int, *, scales: bool) -> nn.Module:
    """Return two layers with averages over windows before them or not, ``(B, D) -> (B, hidden)``."""
    first = MultiScale(inputs, WINDOWS if scales else ())
    return nn.Sequential(
        first, nn.Linear(first.outputs, width), nn.ReLU(), nn.LayerNorm(width), nn.Linear(width, hidden), nn.ReLU(),
        nn.LayerNorm(hidden),
    )  # fmt: skip


class MESDCHNet(HashNet):
    """Towers that end in a tanh, with a label network."""

    def __init__(self, spec: ModelSpec, bits: int, *, width: int, scales: bool) -> None:
        super().__init__(spec, bits, relaxation="tanh")
        if scales and "text" in self.modalities and spec.towers["text"].kind == "mlp":
            text = spec.towers["text"]
            self.get_submodule("text").add_module(
                "backbone", semantic_layers(text.shape[0], width, text.hidden, scales=True)
            )
        hidden = spec.towers[self.modalities[0]].hidden
        layers = semantic_layers(spec.classes, width, hidden, scales=scales)
        self.add_module(LABELS, nn.Sequential(layers, nn.Linear(hidden, bits), nn.Tanh()))

    def forward(self, batch: PairBatch, modalities: Sequence[Modality] | None = None) -> Outputs:
        """Return the outputs of the towers; without modalities (``()``), only the codes of the label network."""
        # `HashNet.forward` takes an empty sequence for all towers.
        if modalities != () or batch.labels is None:
            return super().forward(batch, modalities)
        return Outputs({}, {}, {}, extra={LABELS: self.label_codes(batch.labels)})

    def label_codes(self, labels: Tensor) -> Tensor:
        """Return the relaxed codes of labels ``(B, C)``, ``(B, K)`` float32."""
        codes: Tensor = self.get_submodule(LABELS)(labels)
        return codes.float()


class MESDCH(base.LocalMethod[MESDCHParams]):
    """Three networks that learn the cosines of labels, for one or two modalities."""

    presets: ClassVar = {
        "recommended": {},
        "paper": {"slope": 0.0, "offset": 1e-5, "anchors": 1_000_000, "width": 4096, "scales": True},
    }
    traits = Traits(needs_labels=True)

    def build(self, spec: ModelSpec, bits: int) -> nn.Module:
        """Build the towers and the label network."""
        return MESDCHNet(spec, bits, width=self.params.width, scales=self.params.scales)

    def steps(self, model: nn.Module) -> Sequence[Step]:
        """Return the steps of the label network, the image network and the text network."""
        return [Step(name=LABELS, parameters=(f"{LABELS}.",), modalities=()), *base.tower_steps(model)]

    def init_state(self, model: nn.Module, data: base.SiloData, state: base.SiloState) -> None:
        """Store the codes of all networks for all items, and the labels."""
        net, labels = base.unadapted(model), base.labels_of(data)
        assert isinstance(net, MESDCHNet)  # noqa: S101  built above
        with torch.no_grad():
            state.buffers = {"known": labels, LABELS: net.label_codes(labels)}
        base.store_all(model, data, state)
        self.end_epoch(model, data, state)

    def terms(self, step: Step, outputs: Outputs, batch: PairBatch, state: base.SiloState) -> Terms:
        """Return the comparisons of a network with the stored codes, and the quantization term."""
        if step.name == LABELS:
            codes, rows = outputs.extra[LABELS], batch.row
        else:
            (modality,) = step.modalities
            held = batch.rows_with(modality)
            codes, rows = outputs.code[modality][held], batch.row[held]
        if not len(rows):
            return {}
        terms = {f"to_{name}": (weight, self._compared(codes, rows, name, state))
                 for name, weight in self._weights(step, state).items()}  # fmt: skip
        drift = quantization(codes, state.buffers["code"][rows])
        return {**terms, "quantization": (self.params.quantization_weight, drift.mean())}

    def _weights(self, step: Step, state: base.SiloState) -> dict[Network, float]:
        """Return the weight of each network with whose stored codes the step's network is compared."""
        params, held = self.params, stored_modalities(state)
        if step.name == LABELS:
            others: dict[Network, float] = {"image": params.image_weight, "text": params.text_weight}
            return {LABELS: params.same_weight, **{m: others[m] for m in held}}
        return {LABELS: params.label_weight, **dict.fromkeys(step.modalities, params.same_weight)}

    def _compared(self, codes: Tensor, rows: Tensor, name: Network, state: base.SiloState) -> Tensor:
        """Return the mean of `divergence` over the pairs with stored items that have codes of a network; 0 if none has."""
        anchors, labels = state.buffers["anchors"], state.buffers["known"]
        if name != LABELS:
            anchors = anchors[state.buffers[f"has_{name}"][anchors]]
        similar = similarity(labels[rows], labels[anchors], graded=True)
        others = state.buffers[name][anchors]
        loss = divergence(codes, others, similar, offset=self.params.offset, slope=self.params.slope)
        return loss.sum() / max(loss.numel(), 1)

    def record(self, step: Step, outputs: Outputs, batch: PairBatch, state: base.SiloState) -> None:
        """Store the codes of the batch."""
        if step.name == LABELS:
            state.buffers[LABELS][batch.row] = outputs.extra[LABELS].detach()
            return
        store_batch(outputs, batch, state)

    def end_epoch(self, model: nn.Module, data: base.SiloData, state: base.SiloState) -> None:
        """Set B to the signs of the sum of all codes, and draw the stored items for the next epoch."""
        state.buffers["code"] = joint_codes(state, LABELS)
        draw_anchors(data, state, self.params.anchors)
