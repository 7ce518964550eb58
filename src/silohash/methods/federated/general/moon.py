"""Federated averaging with a contrast between models.

A silo's outputs are pulled toward those of the global model and pushed away from those of its own model of the
previous round.

==========  ================================  ===============================================
paper       code                              meaning
==========  ================================  ===============================================
mu          ``contrast_weight``               weight of the contrast
tau         ``temperature``                   divides the cosines
z           ``outputs``                       representation by the model in training
z_glob      ``context.global_model``          representation by the global model
z_prev      ``context.previous_model``        representation by the silo's previous model
==========  ================================  ===============================================

Equation (3) is `model_contrast`.
"""

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F  # noqa: N812  torch's usual name
from pydantic import Field
from torch import Tensor, nn

from silohash.base.types import MethodCard, Outputs, PairBatch, Terms
from silohash.methods.federated.base import FederatedMethod, SiloContext, summed_terms
from silohash.methods.local.base import MethodParams
from silohash.methods.message import Message
from silohash.methods.traits import Traits
from silohash.models.parameters import frozen_copy

CARD = MethodCard(
    key="moon",
    title="Model-Contrastive Federated Learning",
    authors="Qinbin Li, Bingsheng He, Dawn Song",
    venue="CVPR",
    year=2021,
    link="https://arxiv.org/abs/2103.16257",
    summary="Pull outputs toward those of the global model and away from those of the silo's previous model.",
    sends=("parameters", "number of items"),
    keeps=("its previous model, or several of them",),
    differs_from_paper=(
        "The representation is the output of the hash layer or the feature before it: there is no projection head.",
        "The loss is summed over the modalities.",
        "The contrast is omitted in a silo's first round, where both reference models are equal.",
        "The outputs of frozen models are computed once per round.",
        "The paper selects the weight per data set from 0.1, 1, 5 and 10; the preset paper uses 1.",
    ),
)


class MOONParams(MethodParams):
    """Parameters of MOON."""

    without_effect: ClassVar = MethodParams.switched_off(
        "temperature", "representation", "buffer", contrast_weight=(0,)
    )

    contrast_weight: float = Field(default=0.1, ge=0)
    """Weight of the contrast (mu in the paper), at least 0. At 0 the method is FedAvg."""
    temperature: float = Field(default=0.5, gt=0)
    """Temperature of the contrast (tau in the paper), positive. Lower values emphasize small differences."""
    representation: Literal["feature", "logit"] = "logit"
    """Compared outputs: `feature` (before the hash layer) or `logit` (of the hash layer)."""
    buffer: int = Field(default=1, ge=1)
    """Number of the silo's previous models to move away from, at least 1."""


def model_slots(buffer: int) -> list[str]:
    """Return the prefixes under which a silo keeps its previous models, the most recent first."""
    return ["model", *(f"model-{age}" for age in range(2, buffer + 1))]


def model_contrast(values: Tensor, positive: Tensor, negatives: Sequence[Tensor], temperature: float) -> Tensor:
    """Return the cross-entropy of identifying the positive among the negatives by cosine, ``(B,)``.

    Values are outputs ``(B, p)`` of the model in training, the positive those of the model to stay close to, and the
    negatives those of the models to move away from. The temperature divides the cosines.

    Source: MOON, equation (3).
    """
    logits = torch.stack([F.cosine_similarity(values, other, dim=1) for other in (positive, *negatives)], dim=1)
    return -F.log_softmax(logits / temperature, dim=1)[:, 0]


class MOON(FederatedMethod[MOONParams]):
    """Federated averaging with a contrast between models."""

    presets: ClassVar = {"recommended": {}, "paper": {"contrast_weight": 1.0}}
    traits = Traits(keeps_model=True, private_units=("record", "silo"), adds={"update": {}})

    def terms(self, context: SiloContext, batch: PairBatch, outputs: Outputs) -> Terms:
        """Return the contrast, summed over the step's modalities; empty in the silo's first round. Source: equation (3)."""
        previous = context.previous_model
        if not self.params.contrast_weight or previous is None:
            return {}
        part = self.params.representation
        ahead = context.frozen_outputs("global", lambda: context.global_model, part)
        older = [slot for slot in model_slots(self.params.buffer)[1:] if context.kept_tensors(slot)]
        behind = [context.frozen_outputs("previous", lambda: previous, part)]
        behind += [context.frozen_outputs(slot, partial(self._model_in, context, slot), part) for slot in older]
        parts = []
        for modality, values in getattr(outputs, part).items():
            held = batch.rows_with(modality)
            rows = batch.row[held]
            if len(rows):
                negatives = [before[modality][rows] for before in behind]
                contrast = model_contrast(values[held], ahead[modality][rows], negatives, self.params.temperature)
                parts.append(contrast.mean())
        return summed_terms({"contrast": self.params.contrast_weight}, {"contrast": parts})

    def _model_in(self, context: SiloContext, slot: str) -> nn.Module:
        return frozen_copy(context.model, context.kept(slot))

    def update(self, context: SiloContext) -> Message:
        """Keep the previous models, too, for the contrast of the next rounds."""
        for newer, older in reversed(list(pairwise(model_slots(self.params.buffer)))):
            context.keep(older, context.kept_tensors(newer))
        return super().update(context)
