"""Networks over the tokens of an item, such as the patches of a picture or the words of a text.

The global branch turns the vector of a whole item into one number per bit. Each bit stands for a concept. The token branch
distributes the tokens over the concepts, lets the concepts exchange information, and turns each of them into the number of
its bit. The code is the sign of the sum of both.

An item without tokens has a single token, which is its vector.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
import torch.nn.functional as F  # noqa: N812  torch's usual name
from torch import Tensor, nn

from silohash.base.types import Modality, Outputs, PairBatch, UserError
from silohash.models.specs import ModelSpec
from silohash.models.towers import HashNet, Tower

GLOBAL, TOKEN, VECTOR, CONCEPTS = "global", "token", "vector", "concepts"
"""Names of the extra outputs, each under ``MODALITY/NAME``: the codes of both branches, ``(B, K)`` in (-1, 1); the input of
the global branch's hash layer, ``(B, H)``; and the projected concepts, ``(B, K, H)``."""

HEAD_WIDTH = 64
"""Width of an attention head, unless the network is narrower or its width is not a multiple of it."""


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

    A token belongs to its highest concepts, as far as their scores are positive. The shares of the tokens of a concept are a
    softmax over their scores.

    Args:
        scores: ``(B, T, K)`` in (-1, 1), how much each token resembles each concept.
        present: ``(B, T)`` bool, which tokens exist. Others are padding.
        most: Number of concepts that a token belongs to at most. Equal scores can add further ones.
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
    ``hash`` of its token branch, and ``projection``, which only the training uses.

    ``Outputs.feature`` is the input of both hash layers: the vector of the global branch followed by all concepts,
    ``(B, (1 + K) H)``. ``Outputs.code`` is the mean of the two branches' codes.

    Raises:
        UserError: If the feature layers of the towers have different widths.
    """

    def __init__(self, spec: ModelSpec, bits: int, *, most: int, residual_layers: int, layers: int) -> None:
        super().__init__(spec, bits)
        widths = {tower.hidden for tower in spec.towers.values()}
        if len(widths) > 1:
            raise UserError(
                f"mith shares layers between towers, and their feature layers have {' and '.join(map(str, widths))} units. "
                "Use the same width for both, or another local method."
            )
        self.most, self.width = most, widths.pop()
        for modality in self.modalities:
            tower = self.tower(modality)
            tower.hash = BitwiseHash(self.width, bits)
            tower.add_module("concepts", ConceptLayers(self.width, bits, layers))
            tower.add_module("projection", nn.Linear(self.width, self.width))
        residual, last = ResidualLayers(self.width, residual_layers), nn.Linear(self.width, bits, bias=False)
        self.shared = nn.ModuleDict({"residual": residual, "hash": last})

    def run_tower(self, modality: Modality, values: Tensor, batch: PairBatch) -> tuple[Tensor, Tensor]:
        """Return the input of the hash layers ``(B, (1 + K) H)`` and the mean of both codes ``(B, K)``."""
        tower = self.tower(modality)
        vector, tokens, present = item_and_tokens(tower, values)
        concepts = tower.get_submodule("concepts")(self.gathered(tokens, present))
        feature = torch.cat([self.shared["residual"](vector), concepts.flatten(1)], dim=1)
        whole, part = self.codes(modality, feature)
        return feature, 0.5 * (whole + part)

    def gathered(self, tokens: Tensor, present: Tensor) -> Tensor:
        """Return the tokens of each concept, averaged by their shares, ``(B, K, H)``; zeros for concepts without tokens.

        The shared layers score each token like the vector of an item. They learn from whole items only.

        Args:
            tokens: ``(B, T, H)``.
            present: ``(B, T)`` bool.
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

    def forward(self, batch: PairBatch, modalities: Sequence[Modality] | None = None) -> Outputs:
        """Return the outputs of the towers. If the batch has labels, they include those that the training compares."""
        outputs = super().forward(batch, modalities)
        if batch.labels is None:
            return outputs
        extra: dict[str, Tensor] = {}
        for modality, feature in outputs.feature.items():
            extra[f"{modality}/{GLOBAL}"], extra[f"{modality}/{TOKEN}"] = self.codes(modality, feature)
            extra[f"{modality}/{VECTOR}"] = feature[:, : self.width]
            projected = self.tower(modality).get_submodule("projection")(self.concepts(feature))
            extra[f"{modality}/{CONCEPTS}"] = projected.float()
        return replace(outputs, extra={**outputs.extra, **extra})


def item_and_tokens(tower: Tower, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the vectors of whole items ``(B, H)``, of their tokens ``(B, T, H)``, and which tokens exist, ``(B, T)`` bool.

    Args:
        tower: The tower. Its backbone maps each vector to H dimensions.
        values: ``(B, 1 + T, D)``, the vector of each item followed by those of its tokens, with zeros for padding. Inputs of
            any other form are items without tokens, whose single token is their feature.
    """
    feature = tower.features(values)
    if feature.ndim == 2:
        return feature, feature.unsqueeze(1), torch.ones_like(feature[:, :1], dtype=torch.bool)
    return feature[:, 0], feature[:, 1:], (values[:, 1:] != 0).any(2)


def alignment(values: Tensor, others: Tensor, temperature: float) -> Tensor:
    """Return the mean cross-entropy of identifying the partner of each row, in both directions, a scalar.

    Args:
        values: ``(..., N, H)``. Row i is the partner of row i of the others.
        others: ``(..., N, H)``.
        temperature: Divides the cosines; positive.

    Source: van den Oord, Li and Vinyals, "Representation Learning with Contrastive Predictive Coding", 2018.
    """
    cosines = F.normalize(values, dim=-1) @ F.normalize(others, dim=-1).transpose(-1, -2) / temperature
    own = cosines.diagonal(dim1=-2, dim2=-1)
    return 0.5 * ((cosines.logsumexp(-1) - own).mean() + (cosines.logsumexp(-2) - own).mean())
