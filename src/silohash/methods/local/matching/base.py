"""What methods that learn to score an image against a text have in common: parameters, hooks and losses."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar

import torch
import torch.nn.functional as F  # noqa: N812  torch's usual name
from pydantic import Field
from torch import Tensor, nn
from typing_extensions import TypeVar

from silohash.base.errors import NoEffect, OutOfRange, UnsuitableFeatures
from silohash.base.types import MODALITIES, Outputs, PairBatch, Step, Terms
from silohash.methods.local.base import LocalMethod, MethodParams, SiloData, SiloState, shared_width
from silohash.methods.traits import Traits
from silohash.models.matching_net import MatchingNet
from silohash.models.nodes import Nodes
from silohash.models.specs import ModelSpec, TowerSpec

PICTURES = "pictures"
"""Name of the working tensor with the number of each item's picture, ``(n,)``."""

SHARPNESS = 3.0
"""Factor on standardized scores in the softmax. A higher one counts only the items with the highest scores."""

LEAST_DEVIATION = 1e-6

WHOLE = "whole"
"""Name of the vector of a whole item in `Nodes.extra`, ``(B, D)``."""

TEXTS_AT_ONCE = 8
"""Number of texts that are compared with all images at once, which limits the memory for what belongs to each pair."""


class MatchingParams(MethodParams):
    """Parameters that all matching methods have."""

    margin: float = Field(default=0.2, ge=0)
    """Margin of the hinge loss, by which a pair must score better than a wrong partner, at least 0."""
    hardest: bool = True
    """Count only the wrong partner with the highest score in each row and column of a batch. Otherwise all count."""
    easy_epochs: int = Field(default=4, ge=0)
    """Number of epochs at the beginning of the run in which all wrong partners count, at least 0. With too few of them, the
    wrong partner with the highest score draws all scores together, and they can become equal and stay so."""
    code_weight: float = Field(default=0.01, gt=0)
    """Weight of the loss by which codes learn the order of the scores, positive. Codes find the items that a search then
    scores, and their loss does not move the network that scores. A small weight keeps the clipping of gradients as it is."""
    word_width: int = Field(default=300, ge=1)
    """Width of the learned vectors of words, at least 1."""

    without_effect: ClassVar = {"easy_epochs": {"hardest": (False,)}}


OwnParams = TypeVar("OwnParams", bound=MatchingParams, default=MatchingParams)


class Matching(LocalMethod[OwnParams], ABC):
    """A base of matching methods, which build a `silohash.models.matching_net.MatchingNet`."""

    Params = MatchingParams
    presets: ClassVar = {"recommended": {}, "paper": {"easy_epochs": 0}}
    traits = Traits(scores_pairs=True)

    def build(self, spec: ModelSpec, bits: int) -> nn.Module:
        """Build the network that scores pairs, and the towers of its codes."""
        width = shared_width(spec, "Matching of regions and words")
        net = self.network(spec)
        net.add_codes(width, bits)
        return net

    @abstractmethod
    def network(self, spec: ModelSpec) -> MatchingNet:
        """Build the encoders and the network that scores pairs.

        Raises:
            UserError: If the archive does not have regions and words, or a parameter does not fit the model.
        """

    def steps(self, model: nn.Module) -> Sequence[Step]:
        """Return one step for the whole network."""
        return [Step(name="joint", parameters=("",), modalities=MODALITIES)]

    def init_state(self, model: nn.Module, data: SiloData, state: SiloState) -> None:
        """Store the numbers of the items' pictures."""
        own = torch.arange(len(data), device=data.has_image.device) if data.pictures is None else data.pictures
        state.buffers = {PICTURES: own}

    def terms(self, step: Step, outputs: Outputs, batch: PairBatch, state: SiloState) -> Terms:
        """Return the hinge loss of the pairs of a batch, and the method's own terms."""
        both = batch.has_image & batch.has_text
        if outputs.pair_score is None or int(both.sum()) < 2:
            return {}
        pictures = state.buffers[PICTURES][batch.row[both]]
        same = pictures.unsqueeze(0) == pictures.unsqueeze(1)
        hardest = self.params.hardest and state.epochs >= self.params.easy_epochs
        scores = outputs.pair_score[both][:, both]
        loss = max_violation(scores, self.params.margin, hardest=hardest, same=same)
        codes = distilled(scores.detach(), outputs.logit["image"][both], outputs.logit["text"][both])
        return {
            "hinge": (1.0, loss),
            "codes": (self.params.code_weight, codes),
            **self.extra_terms(outputs, batch, state),
        }

    def extra_terms(self, outputs: Outputs, batch: PairBatch, state: SiloState) -> Terms:
        """Return further terms of the loss; by default none."""
        return {}


def towers_of(spec: ModelSpec, name: str, *, with_heads: bool = False) -> tuple[TowerSpec, TowerSpec]:
    """Return the towers of regions and of words.

    Raises:
        UserError: If the archive lacks a modality, its features are not regions and words, or words have heads without use.
    """
    found = {modality: tower.kind for modality, tower in spec.towers.items()}
    if found != {"image": "regions", "text": "words"}:
        raise UnsuitableFeatures(
            f'local.name "{name}" matches regions with words. Use an archive with regions of pictures and with texts, and '
            'set features.text = { kind = "words" }.'
        )
    if len(spec.towers["text"].shape) > 1 and not with_heads:
        raise NoEffect(
            f'features.text.parses has no effect on local.name "{name}" with these parameters. Remove it, or set local.name '
            '= "gsmn" and local.graph = "sparse".'
        )
    return spec.towers["image"], spec.towers["text"]


def check_divisor(name: str, value: int, width: int) -> None:
    """Check that a parameter divides the width of the common space.

    Raises:
        UserError: If it does not.
    """
    if width % value:
        raise OutOfRange(f"local.{name} is {value}, which does not divide model.hidden = {width}. Choose a divisor.")


class VectorNet(MatchingNet):
    """Cosines of one vector of length 1 per image and per text."""

    def score(self, images: Nodes, texts: Nodes) -> Tensor:
        """Return the cosines of images and texts, ``(len(images), len(texts))``."""
        return images.values[:, 0] @ texts.values[:, 0].T


def one_node(vectors: Tensor, mask: Tensor) -> Nodes:
    """Return vectors ``(B, D)`` as items of one node of length 1, which is padding where an item had no nodes ``(B, N)``."""
    there = mask.any(1, keepdim=True)
    return Nodes((F.normalize(vectors, dim=1) * there).unsqueeze(1), there)


def by_texts(score: Callable[[Nodes], Tensor], texts: Nodes) -> Tensor:
    """Return the scores of all images and texts, ``(I, T)``, from those ``(T', I)`` of `TEXTS_AT_ONCE` texts at a time."""
    starts = range(0, len(texts), TEXTS_AT_ONCE)
    return torch.cat([score(texts.take(slice(start, start + TEXTS_AT_ONCE))) for start in starts]).T


def masked_softmax(logits: Tensor, mask: Tensor) -> Tensor:
    """Return the softmax over the last dimension ``(..., N)``, in which padding has the weight 0.

    Where nothing is there, the weights are equal.
    """
    # With minus infinity, the softmax of an item without nodes would be NaN.
    return logits.masked_fill(~mask, torch.finfo(logits.dtype).min).softmax(-1)


def max_violation(scores: Tensor, margin: float, *, hardest: bool = True, same: Tensor | None = None) -> Tensor:
    """Return the hinge loss over all pairs of a batch, summed over both directions, a scalar.

    ``sum_i [max_j (m + s_ij - s_ii)_+ + max_j (m + s_ji - s_ii)_+]`` with j different from i, or the sums over j instead of
    the maxima (``hardest=False``). ``s_ij`` is the score of image i with text j, and image i and text i are a pair. Pairs of
    the ``same`` picture ``(B, B)`` are right too, and do not count.

    Source: Faghri et al., "VSE++: Improving Visual-Semantic Embeddings with Hard Negatives", BMVC 2018, equations (4) and
        (6).

    Example:
        >>> round(float(max_violation(torch.tensor([[1.0, 0.9], [0.0, 1.0]]), 0.2)), 6)
        0.2
    """
    right = torch.eye(len(scores), dtype=torch.bool, device=scores.device)
    right = right if same is None else right | same
    own = scores.diagonal()
    violations = [(margin + scores - own.unsqueeze(side)).clamp(min=0).masked_fill(right, 0.0) for side in (1, 0)]
    if hardest:
        return torch.stack([values.amax(dim) for values, dim in zip(violations, (1, 0), strict=True)]).sum()
    return torch.stack(violations).sum()


def distilled(scores: Tensor, images: Tensor, texts: Tensor) -> Tensor:
    """Return how far the order of the codes is from that of the scores, a scalar.

    It is the cross entropy of two softmaxes over the texts of each image, and over the images of each text: of the scores
    ``(B, B)``, and of the cosines of relaxed codes ``(B, K)`` at their scale. It is smallest where both are equal.
    """
    # Scores that are all equal have no deviation to divide by.
    wanted = SHARPNESS * (scores - scores.mean()) / scores.std().clamp(min=LEAST_DEVIATION)
    found = relaxed(images) @ relaxed(texts).T
    found = SHARPNESS * (found - found.mean()) / found.std().clamp(min=LEAST_DEVIATION)
    return sum(
        (F.cross_entropy(one, other.softmax(1)) for one, other in ((found, wanted), (found.T, wanted.T))),
        start=scores.new_zeros(()),
    )


def relaxed(outputs: Tensor) -> Tensor:
    """Return relaxed codes of length 1, ``(B, K)``."""
    return F.normalize(outputs.tanh(), dim=1)
