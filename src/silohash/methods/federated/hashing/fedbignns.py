"""The aggregation of FedBi-GNNs: silos are weighted by size times validation score.

A silo's next round may start from a mixture of the global parameters and its own.

===========  ==============================  =============================================
paper        code                            meaning
===========  ==============================  =============================================
D_i          ``context.data.count``          number of items of a silo
r_i          ``context.validation_score``    validation score after local training; rSum / 600 for matching methods
alpha        ``-local_mix``                  share of the own parameters at the start
===========  ==============================  =============================================

Equations (16) and (17) are `FedBiGNNs.weight`; (18) and (19) are `interpolated`.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, Literal

import numpy as np
import torch
from pydantic import Field

from silohash.base.errors import ValidationNeeded
from silohash.base.types import Arrays, MethodCard, Phase, ReadArrays
from silohash.methods.federated.base import FederatedMethod, ServerState, SiloContext
from silohash.methods.federated.shared_means import SharedMean
from silohash.methods.local.base import MethodParams
from silohash.methods.traits import Traits, WeightsKnown
from silohash.models.parameters import install

CARD = MethodCard(
    key="fedbignns",
    title="Federated Bimodal Graph Neural Networks for Text-Image Retrieval",
    authors="Xueming Yan, Chuyue Wang, Yaochu Jin",
    venue="International Journal of Network Dynamics and Intelligence",
    year=2025,
    link="https://doi.org/10.53941/ijndi.2025.100009",
    summary="Weight silos by size times validation score. Rounds can start from a mixture with the silo's model.",
    sends=("parameters", "number of items times validation score"),
    keeps=("its parameters, if local_mix is not 0",),
    differs_from_paper=(
        "The aggregation trains any local method. The graph neural network of the paper is a local method of its own.",
        "For local methods with codes, the score is the validation score of the run instead of a sum of recalls.",
        "Rounds start from the global model. In the preset paper they start beyond it, away from the silo's own.",
        "The paper does not state alpha; the preset paper uses 0.5.",
    ),
)


class FedBiGNNsParams(MethodParams):
    """Parameters of the aggregation of FedBi-GNNs."""

    weighting: Literal["score", "examples"] = "score"
    """`score`: weight silos by size times validation score. `examples`: weight them by size alone."""
    local_mix: float = Field(default=0.0, ge=-1, le=1)
    """Share of the silo's own parameters at the start of a round, between -1 and 1. At 0 rounds start from the
    global parameters. Negative values extrapolate away from the silo's own parameters, as in the paper."""


def interpolated(common: ReadArrays, own: ReadArrays, share: float) -> Arrays:
    """Return ``common + share * (own - common)``. Integer arrays are those of ``common``.

    Source: FedBi-GNNs, equations (18) and (19) with ``share = -alpha``.
    """
    return {
        name: (array + share * (own[name] - array)).astype(array.dtype)
        if name in own and np.issubdtype(array.dtype, np.floating)
        else array
        for name, array in common.items()
    }


class FedBiGNNs(FederatedMethod[FedBiGNNsParams]):
    """Federated averaging by size and validation score."""

    presets: ClassVar = {"recommended": {}, "paper": {"local_mix": -0.5}}
    traits = Traits(
        trains_scores=True, weighting="weighting", means=(SharedMean("scored", "scored_items", low=0.0, high=1.0),),
        adds={"weight": {"weighting": "examples"}, "begin_round": {"local_mix": 0.0}},
    )  # fmt: skip

    def chosen_traits(self) -> Traits:
        """State whether weights need a score, known only after training, and whether rounds start from kept models."""
        scored = self.params.weighting == "score"
        known: WeightsKnown = "with update" if scored else "before training"
        mixes = self.params.local_mix != 0
        return replace(self.traits, needs_scores=scored, weights_known=known, keeps_model=mixes)

    def begin_round(self, context: SiloContext) -> Sequence[Phase]:
        """Install the global parameters, mixed with those of the silo's last round."""
        install(context.model, interpolated(context.payload.params, context.kept("model"), self.params.local_mix))
        return [Phase(name="train", model=context.model, epochs=context.epochs)]

    def statistics(self, context: SiloContext) -> Arrays:
        """Return size times score, and the size; zeros for a silo without a score."""
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
        """Return the mean score of the silos that have one, at least one.

        Raises:
            UserError: If no silo of the round holds queries back.
        """
        if not sums["scored_items"]:
            raise ValidationNeeded(
                '"fedbignns" weights silos by their validation scores, but no silo of this round holds queries back. '
                'Set evaluate.validation = 0.1, federated.fraction = 1, or federated.weighting = "examples".'
            )
        return {"mean_score": sums["scored"] / sums["scored_items"]}

    def weight(self, context: SiloContext, group: str) -> float:
        """Return size times validation score, with the mean score for a silo that has none. Source: equation (17)."""
        size = super().weight(context, group)
        if self.params.weighting == "examples":
            return size
        score = float(context.kept("score")["value"])
        return size * (score if score >= 0 else float(context.payload.extras["mean_score"]))
