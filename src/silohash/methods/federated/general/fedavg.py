"""Federated averaging: silos train the global model on their own pairs, and the server averages the results.

Every silo's weight is its number of items.

==========  ==============================  =========================================
paper       code                            meaning
==========  ==============================  =========================================
C           ``federated.fraction``          share of silos per round
E           ``federated.local_epochs``      local epochs per round
B           ``train.batch``                 batch size, in pairs
n_k         `FedAvg.weight`                 weight of a silo
==========  ==============================  =========================================

Algorithm 1 is the training loop with the default hooks; its last line is `weighted_average`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from silohash.base.types import MethodCard
from silohash.methods.federated.base import FederatedMethod, SiloContext, WeightsKnown
from silohash.methods.local.base import MethodParams

CARD = MethodCard(
    key="fedavg",
    title="Communication-Efficient Learning of Deep Networks from Decentralized Data",
    authors="H. Brendan McMahan, Eider Moore, Daniel Ramage, Seth Hampson, Blaise Agüera y Arcas",
    venue="AISTATS",
    year=2017,
    link="https://arxiv.org/abs/1602.05629",
    summary="Average the silos' models, weighted by the number of training items.",
    supervised=False,
    sends=("parameters", "number of items"),
    differs_from_paper=("Weights are kept per parameter group, for silos that lack a modality.",),
)


class FedAvgParams(MethodParams):
    """Parameters of FedAvg."""

    weighting: Literal["examples", "uniform"] = "examples"
    """`examples`: weight silos by their number of items. `uniform`: weight all silos equally."""


class FedAvg(FederatedMethod):
    """Federated averaging: the default hooks, with a choice of weights."""

    Params: ClassVar[type[MethodParams]] = FedAvgParams
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"recommended": {}, "paper": {"weighting": "examples"}}
    closed_form: ClassVar[Literal["none", "silos", "sums"]] = "silos"
    adds: ClassVar[Mapping[str, Mapping[str, Any]]] = {"weight": {"weighting": "examples"}}
    trains_scores: ClassVar[bool] = True
    private_units: ClassVar[tuple[Literal["record", "silo"], ...]] = ("record", "silo")

    @property
    def weights_known(self) -> WeightsKnown:
        """When a silo can announce its weights: always before it trains."""
        return "before training"

    def weight(self, context: SiloContext, group: str) -> float:
        """Return the number of items with the group's modality; under ``uniform``, 1 if there are any."""
        items = super().weight(context, group)
        return float(items > 0) if self.params.weighting == "uniform" else items
