"""The two-tower hash network, and how it is run, for training and encoding alike.

A federated method may adapt its outputs (`Adapted`), and `outputs_over` runs it on many rows.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple, Protocol, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from silohash.base.errors import UnsuitableFeatures
from silohash.base.types import MODALITIES, Modality, Outputs, PairBatch, ReadArrays
from silohash.models.backbones import PublishedTower, rectified_layers
from silohash.models.specs import ModelSpec, TowerKind, TowerSpec

Part: TypeAlias = Literal["feature", "logit", "code", "projection"]
"""Which of a model's `Outputs`."""


class Dropout(nn.Dropout):
    """Set random elements to 0 and divide the others by the probability to keep one, in training.

    `torch.nn.Dropout` draws one Bernoulli variable after the other on a CPU, which takes longer than the layer before it. A
    vector of uniform variables takes the same numbers from the generator, so the results are equal bit by bit.
    """

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  the name in the parent class
        """Return the input with elements set to 0, in the same shape."""
        if not self.training or self.p in (0, 1) or input.device.type != "cpu":
            return super().forward(input)
        uniform = torch.rand(input.shape, dtype=torch.float64)
        return input * (uniform < 1 - self.p).to(input.dtype).div_(1 - self.p)


def mlp(spec: TowerSpec) -> nn.Module:
    """Return a network with one hidden layer, or with further ones before it, ``(B, D) -> (B, hidden)``."""
    layers = rectified_layers((spec.shape[0], *spec.layers, spec.hidden))
    return nn.Sequential(*layers, Dropout(spec.dropout))


def conv(spec: TowerSpec) -> nn.Module:
    """Return a small convolutional network, ``(B, c, h, w) -> (B, hidden)``, for images of 16 to 64 pixels.

    The first layer has a 5 x 5 kernel with stride 4, which costs a fifth of three layers with stride 2. Each further layer
    halves the resolution, down to 4 x 4. There is no batch normalization, because the batch statistics of silos with
    different classes cannot be averaged.

    Raises:
        UserError: If the images are too small or too large.
    """
    channels, height, width = spec.shape
    if not 16 <= min(height, width) <= max(height, width) <= 64:
        raise UnsuitableFeatures(
            f"The convolutional tower takes images of 16 to 64 pixels per side, and these have {height} x {width}. "
            "Set features.image.size."
        )
    layers: list[nn.Module] = [nn.Conv2d(channels, 32, 5, stride=4, padding=2), nn.ReLU()]
    height, width, maps = -(-height // 4), -(-width // 4), 32
    while max(height, width) > 4:
        layers += [nn.Conv2d(maps, 2 * maps, 3, stride=2, padding=1), nn.ReLU()]
        height, width, maps = (height + 1) // 2, (width + 1) // 2, 2 * maps
    layers += [nn.Flatten(), nn.Linear(maps * height * width, spec.hidden), nn.ReLU(), Dropout(spec.dropout)]
    return nn.Sequential(*layers)


def flat(_: TowerSpec) -> nn.Module:
    """Return a network that passes on its inputs as vectors, ``(B, ...) -> (B, hidden)``."""
    return nn.Flatten()


def tokens(spec: TowerSpec) -> nn.Module:
    """Return a network that maps each vector of an item alike, ``(B, 1 + T, D) -> (B, 1 + T, hidden)``.

    Vectors that already have this width are passed on. Only local methods that take tokens have such towers.
    """
    width = spec.shape[-1]
    return nn.Sequential(*(() if width == spec.hidden else (nn.Linear(width, spec.hidden),)), Dropout(spec.dropout))


class AnchorKernel(nn.Module):
    """The Gaussian kernel exp(-|x - a|^2 / width) of an input with every anchor, ``(B, ...) -> (B, hidden)``.

    Anchors, as many as the spec's hidden width, and width are buffers, which a local method sets from a silo's items.
    """

    def __init__(self, spec: TowerSpec) -> None:
        super().__init__()
        self.register_buffer("anchors", torch.zeros(spec.hidden, math.prod(spec.shape)))
        self.register_buffer("width", torch.ones(()))

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the similarities."""
        return gaussian_kernel(inputs.flatten(1), self.get_buffer("anchors"), self.get_buffer("width"))


def gaussian_kernel(vectors: Tensor, anchors: Tensor, width: Tensor) -> Tensor:
    """Return exp(-|x - a|^2 / width) of all vectors ``(n, D)`` with all anchors ``(m, D)``, ``(n, m)``."""
    squares = vectors.square().sum(1, keepdim=True) - 2.0 * vectors @ anchors.T + anchors.square().sum(1)
    return torch.exp(-squares.clamp(min=0.0) / width)


KINDS: Mapping[TowerKind, Callable[[TowerSpec], nn.Module]] = {
    "mlp": mlp, "conv": conv, "network": PublishedTower, "linear": flat, "kernel": AnchorKernel,
    "tokens": tokens,
}  # fmt: skip
"""Kind of a tower -> function that makes its backbone."""


class TowerOutputs(NamedTuple):
    """The outputs of a tower.

    Attributes:
        feature: ``(B, H)``, the input of the hash layer.
        logit: ``(B, K)``, the output of the hash layer.
        projection: ``(B, H)``, the feature before dropout; None if the feature is computed in another way.
    """

    feature: Tensor
    logit: Tensor
    projection: Tensor | None = None


class Tower(nn.Module):
    """The network of one modality: input scaling, backbone and hash layer."""

    def __init__(self, spec: TowerSpec, bits: int) -> None:
        super().__init__()
        self.scale = spec.scale
        self.backbone = KINDS[spec.kind](spec)
        self.hash: nn.Module = nn.Linear(spec.hidden, bits)

    def features(self, inputs: Tensor) -> Tensor:
        """Return the outputs of the backbone, ``(B, H)``."""
        return self.projected(inputs)[1]

    def projected(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return the outputs of the backbone before its final dropout, if it has one, and after it, both ``(B, H)``."""
        values = inputs * self.scale if self.scale != 1.0 else inputs
        if not isinstance(self.backbone, nn.Sequential) or not isinstance(self.backbone[-1], Dropout):
            feature: Tensor = self.backbone(values)
            return feature, feature
        *layers, dropout = self.backbone
        for layer in layers:
            values = layer(values)
        return values, dropout(values)

    def forward(self, inputs: Tensor) -> TowerOutputs:
        """Return the outputs of the tower."""
        projection, feature = self.projected(inputs)
        return TowerOutputs(feature, self.hash(feature), projection)


class HashNet(nn.Module):
    """A model with one tower per modality. The prefixes ``image`` and ``text`` of the names are the parameter groups.

    Args:
        spec: The structure of the model.
        bits: Code length K.
        relaxation: Function that turns outputs into relaxed codes: ``identity`` or ``tanh``.
    """

    def __init__(self, spec: ModelSpec, bits: int, *, relaxation: Literal["identity", "tanh"] = "identity") -> None:
        super().__init__()
        self.bits = bits
        self.relaxation = relaxation
        self.modalities: tuple[Modality, ...] = tuple(m for m in MODALITIES if m in spec.towers)
        for modality in self.modalities:
            self.add_module(modality, Tower(spec.towers[modality], bits))
        # The classifiers are created last, so that the towers' initial weights do not depend on them.
        if spec.class_head:
            for modality in self.modalities:
                self.get_submodule(modality).add_module("classifier", nn.Linear(bits, spec.classes))

    def forward(self, batch: PairBatch, modalities: Sequence[Modality] | None = None) -> Outputs:
        """Return the float32 outputs of the towers whose modality the batch has, or only of the given modalities."""
        feature: dict[Modality, Tensor] = {}
        logit: dict[Modality, Tensor] = {}
        code: dict[Modality, Tensor] = {}
        class_logit: dict[Modality, Tensor] = {}
        projection: dict[Modality, Tensor] = {}
        for modality in modalities or self.modalities:
            values = batch.values(modality)
            if values is None or modality not in self.modalities:
                continue
            found = self.run_tower(modality, values, batch)
            feature[modality], logit[modality] = found.feature.float(), found.logit.float()
            if found.projection is not None:
                projection[modality] = found.projection.float()
            tower = self.tower(modality)
            if hasattr(tower, "classifier"):
                class_logit[modality] = tower.get_submodule("classifier")(logit[modality]).float()
            code[modality] = torch.tanh(logit[modality]) if self.relaxation == "tanh" else logit[modality]
        outputs = Outputs(feature=feature, logit=logit, code=code, class_logit=class_logit, projection=projection)
        return outputs if batch.labels is None else replace(outputs, extra=self.extras(outputs))

    def extras(self, outputs: Outputs) -> Mapping[str, Tensor]:
        """Return further outputs for items with labels, which the training needs; by default none."""
        return {}

    def tower(self, modality: Modality) -> Tower:
        """Return the tower of one of the model's modalities."""
        tower = getattr(self, modality)
        assert isinstance(tower, Tower)  # noqa: S101  built above
        return tower

    def run_tower(self, modality: Modality, values: Tensor, batch: PairBatch) -> TowerOutputs:
        """Return the outputs for inputs of one modality. A subclass may compute them in another way."""
        found: TowerOutputs = self.tower(modality)(values)
        return found


class OutputAdapter(Protocol):
    """The part of a federated method that changes a model's outputs."""

    @property
    def adapts_training(self) -> bool:
        """Whether the local method is trained on adapted outputs."""

    def adapt_outputs(self, outputs: Outputs, extras: Mapping[str, Tensor]) -> Outputs:
        """Return the adapted outputs."""


class Adapted(nn.Module):
    """A model whose outputs pass through a federated method's `adapt_outputs`, with the extras that the server sends."""

    def __init__(self, model: nn.Module, method: OutputAdapter, extras: ReadArrays) -> None:
        super().__init__()
        self.model = model
        self.method = method
        device = next(model.parameters()).device
        self.extras = {name: torch.from_numpy(np.array(array)).to(device) for name, array in extras.items()}
        self.bits: int = model.bits  # type: ignore[assignment]
        self.modalities: tuple[Modality, ...] = model.modalities  # type: ignore[assignment]

    def forward(self, batch: PairBatch, modalities: Sequence[Modality] | None = None) -> Outputs:
        """Run the model and adapt its outputs."""
        outputs: Outputs = self.model(batch, modalities)
        if self.training and not self.method.adapts_training:
            return outputs
        return self.method.adapt_outputs(outputs, self.extras)


def standardized(image: Tensor, mean: Tensor | None, deviation: Tensor | None) -> Tensor:
    """Return images ``(B, D)`` or ``(B, c, h, w)`` as floats, with integer pixels standardized.

    Floats are returned unchanged. Without mean and deviation ``(c, 1, 1)``, integer pixels keep their scale.
    """
    if image.is_floating_point():
        return image
    image = image.float()
    return image if mean is None or deviation is None else image.sub_(mean).div_(deviation)


def batch_of(
    values: Tensor, modality: Modality, pixels: Mapping[str, Tensor], labels: Tensor | None = None
) -> PairBatch:
    """Return a featurizer's vectors ``(B, *shape)`` as a batch of items that have only one modality.

    Pixels have ``pixel_mean`` and ``pixel_deviation`` (`silohash.features.vectors`), or nothing. Few models use labels
    (`silohash.methods.traits.Traits.label_sides`).
    """
    present = torch.ones(values.shape[0], dtype=torch.bool, device=values.device)
    absent = torch.zeros_like(present)
    is_image = modality == "image"
    return PairBatch(
        row=torch.arange(values.shape[0], device=values.device),
        image=standardized(values, pixels.get("pixel_mean"), pixels.get("pixel_deviation")) if is_image else None,
        text=None if is_image else values,
        labels=labels,
        has_image=present if is_image else absent,
        has_text=absent if is_image else present,
    )


@torch.no_grad()
def outputs_over(model: nn.Module, batches: Iterable[PairBatch], *, part: Part = "code") -> dict[Modality, Tensor]:
    """Run a model over batches in evaluation mode.

    For each modality it gives ``(n, H)`` features, or ``(n, K)`` hash-layer outputs or relaxed codes; rows without the
    modality are zero.
    """
    training = model.training
    model.eval()
    parts: dict[Modality, list[Tensor]] = {}
    for batch in batches:
        for modality, values in getattr(model(batch), part).items():
            parts.setdefault(modality, []).append(values.float() * batch.has(modality).unsqueeze(1))
    model.train(training)
    return {modality: torch.cat(values) for modality, values in parts.items()}


def hash_layers(names: Iterable[str]) -> list[str]:
    """Return the names that belong to a hash layer. Silos must share these parameters for their codes to be comparable."""
    return [name for name in names if name.split(".")[1:2] == ["hash"]]


def group_of(name: str) -> str:
    """Return a parameter's group, which is the first part of its name (``image`` for ``image.hash.weight``)."""
    return name.partition(".")[0]


def layers_of(names: Sequence[str]) -> dict[str, list[str]]:
    """Group parameter names by layer: names that differ only in their last part."""
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(name.rpartition(".")[0], []).append(name)
    return found
