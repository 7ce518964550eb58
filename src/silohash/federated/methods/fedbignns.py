"""Federated Bimodal Graph Neural Networks for Text-Image Retrieval: its aggregation. Xueming Yan et al., IJNDI 2025.

The server weights silos by size times their score on their own held-back queries, and a silo's next round may start from a
mixture of the global and its own parameters.

===========  ==============================  =========================================
paper        code                            meaning
===========  ==============================  =========================================
D_i          ``context.data.count``          number of a silo's items
r_i          ``context.validation_score``           validation score after local training
alpha        ``-local_mix``                  share of the own parameters at the start
===========  ==============================  =========================================

Equations (16) and (17) are `FedBiGNNs.weight`; (18) and (19) are `mixed`.

Differs from the paper: the score is the validation mAP that the run has (the paper's rSum rescaled by a common factor gives
the same weights). The paper starts from ``global + alpha (global - own)``, away from the own parameters; here a positive
``local_mix`` moves towards them, 0 (the default) starts from the global ones, and preset ``reference`` has the paper's sign.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from pydantic import Field

from silohash.exchange.message import Message
from silohash.federated.base import FederatedMethod, ServerState, SiloContext
from silohash.local.base import MethodParams
from silohash.models.parameters import install
from silohash.types import Arrays, MethodCard, Phase, UserError

CARD = MethodCard(
    key="fedbignns",
    title="Federated Bimodal Graph Neural Networks for Text-Image Retrieval: the aggregation",
    authors="Xueming Yan, Chuyue Wang, Yaochu Jin",
    venue="International Journal of Network Dynamics and Intelligence",
    year=2025,
    link="https://doi.org/10.53941/ijndi.2025.100009",
    summary="Weights are the silos' sizes times their validation scores; a round may start near the silo's own model.",
    supervised=True,
    sends=("parameters", "number of items times validation score"),
    keeps=("its own parameters, where local_mix is not 0",),
    differs_from_paper=(
        "the score is the run's validation mAP",
        "rounds start from the global model; the paper's start, on the far side of it, is preset reference",
    ),
)


class FedBiGNNsParams(MethodParams):
    """Parameters of FedBi-GNNs' aggregation."""

    weighting: str = Field(default="score", pattern="^(score|examples)$")
    """`score`: size times validation score; `examples`: size alone."""
    local_mix: float = Field(default=0.0, ge=-1, le=1)
    """Share of the silo's own parameters at the start of a round; below 0 on the far side of the global ones."""


def interpolated(common: Arrays, own: Arrays, share: float) -> Arrays:
    """Returns ``common + share (own - common)``; whole numbers are the common ones.

    Source: FedBi-GNNs, equations (18) and (19) with ``share = -alpha``.
    """
    return {
        name: (array + share * (own[name] - array)).astype(array.dtype)
        if name in own and np.issubdtype(array.dtype, np.floating)
        else array
        for name, array in common.items()
    }


class FedBiGNNs(FederatedMethod):
    """Federated averaging by size and validation score."""

    Params: ClassVar[type[MethodParams]] = FedBiGNNsParams
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"recommended": {}, "paper": {"local_mix": -0.5}}
    adds: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "weight": {"weighting": "examples"},
        "begin_round": {"local_mix": 0.0},
        "silo_update": {},
    }

    @property
    def needs_scores(self) -> bool:
        """Whether silos must hold queries back."""
        return bool(self.params.weighting == "score")

    def begin_round(self, context: SiloContext) -> Sequence[Phase]:
        """Installs the global parameters, mixed with the silo's own of its last round."""
        install(context.model, interpolated(context.payload.params, context.kept("model"), self.params.local_mix))
        return [Phase(name="train", model=context.model, epochs=context.epochs)]

    def silo_statistics(self, context: SiloContext) -> Arrays:
        """Returns size times score and the size it is of; zeros from a silo that has no score. Nothing is kept back."""
        if self.params.weighting == "examples":
            return {}
        score, size = context.validation_score(), float(len(context.data))
        known = np.isfinite(score)
        context.keep("score", {"value": torch.tensor(score if known else -1.0)})
        return {
            "scored": np.asarray(size * score if known else 0.0),
            "scored_items": np.asarray(size if known else 0.0),
        }

    def merge_statistics(self, server: ServerState, sums: Arrays) -> Arrays:
        """Returns the mean score of the silos that have one.

        Raises:
            UserError: if no silo of the round holds queries back.
        """
        if not sums["scored_items"]:
            raise UserError(
                '"fedbignns" weights silos by their validation scores, and no silo of this round holds queries back. '
                'Set evaluate.validation = 0.1, federated.fraction = 1, or federated.weighting = "examples".'
            )
        return {"mean_score": sums["scored"] / sums["scored_items"]}

    def weight(self, context: SiloContext, group: str) -> float:
        """Returns size times validation score; the mean score for a silo that has none. Source: equation (17)."""
        size = super().weight(context, group)
        if self.params.weighting == "examples":
            return size
        score = float(context.kept("score")["value"])
        return size * (score if score >= 0 else float(context.payload.extras["mean_score"]))

    def silo_update(self, context: SiloContext) -> Message:
        """Keeps the own parameters where rounds start from them."""
        if self.params.local_mix:
            context.keep("model", context.model.state_dict())
        return super().silo_update(context)
