"""Model-Contrastive Federated Learning. Qinbin Li, Bingsheng He, Dawn Song, CVPR 2021.

Every silo pulls what its model says of an item towards what the global model says, and away from what its own model of the
round before said.

==========  ================================  ======================================
paper       code                              meaning
==========  ================================  ======================================
mu          ``contrast_weight``               weight of the contrast
tau         ``temperature``                   by which cosines are divided
z           `SiloContext` model's outputs     representation of the model that learns
z_glob      ``context.global_model``          of the global model
z_prev      ``context.previous_model``        of the silo's own model of its last round
==========  ================================  ======================================

Equation (3) is `silohash.federated.contrastive_losses.model_contrast`.

Differs from the paper: hashing has no projection head, so the representation is the hash layer's output (or the feature
before it), a modality at a time; the term is left out in a silo's first round, when both references are the same model and
its gradient is zero; the frozen models' outputs are computed once a round. As in the authors' code, a silo may leave several
of its last models at once (``buffer``).
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from silohash.exchange.message import Message
from silohash.federated.base import FederatedMethod, SiloContext, entries_under
from silohash.federated.contrastive_losses import model_contrast
from silohash.local.base import MethodParams
from silohash.models.parameters import frozen_copy
from silohash.types import MethodCard, Modality, Outputs, PairBatch, Terms

CARD = MethodCard(
    key="moon",
    title="Model-Contrastive Federated Learning",
    authors="Qinbin Li, Bingsheng He, Dawn Song",
    venue="CVPR",
    year=2021,
    link="https://arxiv.org/abs/2103.16257",
    summary="Outputs are pulled to the global model's and away from the silo's own of the round before.",
    supervised=False,
    sends=("parameters", "number of items"),
    keeps=("its own model of the round before, or of several",),
    differs_from_paper=(
        "the representation is the hash layer's output, a modality at a time: there is no projection head",
        "no contrast in a silo's first round",
    ),
)


class MOONParams(MethodParams):
    """Parameters of MOON."""

    contrast_weight: float = Field(default=0.1, ge=0)
    """mu: 0 is federated averaging."""
    temperature: float = Field(default=0.5, gt=0)
    """tau."""
    representation: Literal["feature", "logit"] = "logit"
    """What is compared: the feature before the hash layer, or the hash layer's output."""
    buffer: int = Field(default=1, ge=1)
    """How many of a silo's own last models it is to leave."""


def model_slots(buffer: int) -> list[str]:
    """Returns the prefixes under which a silo keeps its own last models, the newest first."""
    return ["model", *(f"model-{age}" for age in range(2, buffer + 1))]


class MOON(FederatedMethod):
    """Federated averaging with a contrast between models."""

    Params: ClassVar[type[MethodParams]] = MOONParams
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"recommended": {}, "paper": {"contrast_weight": 1.0}}
    adds: ClassVar[Mapping[str, Mapping[str, Any]]] = {"silo_update": {}}

    def regularizer(self, context: SiloContext, batch: PairBatch, outputs: Outputs) -> Terms:
        """Returns the mean contrast a modality of the step; nothing in the silo's first round. Source: equation (3)."""
        previous = context.previous_model
        if not self.params.contrast_weight or previous is None:
            return {}
        part = self.params.representation
        ahead = context.frozen_outputs("global", lambda: context.global_model, part)
        behind = [context.frozen_outputs("previous", lambda: previous, part), *self._older(context)]
        parts = []
        for modality, values in getattr(outputs, part).items():
            held = batch.rows_with(modality)
            rows = batch.row[held]
            if len(rows):
                negatives = [before[modality][rows] for before in behind]
                contrast = model_contrast(values[held], ahead[modality][rows], negatives, self.params.temperature)
                parts.append(contrast.mean())
        return {"contrast": (self.params.contrast_weight, torch.stack(parts).sum())} if parts else {}

    def _older(self, context: SiloContext) -> list[dict[Modality, Tensor]]:
        """Returns what the silo's own models before the last one say of all own items; fewer in its first rounds."""

        def said(place: str) -> dict[Modality, Tensor]:
            """Returns what one of them says."""
            part = self.params.representation
            return context.frozen_outputs(place, lambda: frozen_copy(context.model, context.kept(place)), part)

        return [said(place) for place in model_slots(self.params.buffer)[1:] if self._kept(context, place)]

    def _kept(self, context: SiloContext, place: str) -> dict[str, Tensor]:
        """Returns what the silo keeps in a place; nothing before it has so many models."""
        return entries_under(f"{context.name_space}{place}", context.state.kept)

    def silo_update(self, context: SiloContext) -> Message:
        """Keeps the trained model for the next round's contrast, and the last ones before it."""
        for newer, older in reversed(list(pairwise(model_slots(self.params.buffer)))):
            context.keep(older, self._kept(context, newer))
        context.keep("model", context.model.state_dict())
        return super().silo_update(context)
