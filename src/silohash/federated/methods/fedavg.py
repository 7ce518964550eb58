"""Federated averaging. H. Brendan McMahan, Eider Moore, Daniel Ramage, Seth Hampson, Blaise Agüera y Arcas, AISTATS 2017.

Every silo trains the global model on its own pairs; the server averages what comes back, weighted by the silos' sizes.

==========  ==============================  =========================================
paper       code                            meaning
==========  ==============================  =========================================
C           ``federated.fraction``          share of silos that take part in a round
E           ``federated.local_epochs``      passes over a silo's own data in a round
B           ``train.batch``                 pairs a step
n_k         `FedAvg.weight`                 a silo's weight
==========  ==============================  =========================================

Algorithm 1 of the paper is the loop itself with the hooks' defaults; its last line is `weighted_average`.

Differs from the paper: weights are kept a parameter group, so that a silo without texts does not move the text tower.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from silohash.federated.base import FederatedMethod, SiloContext
from silohash.local.base import MethodParams
from silohash.types import MethodCard

CARD = MethodCard(
    key="fedavg",
    title="Communication-Efficient Learning of Deep Networks from Decentralized Data",
    authors="H. Brendan McMahan, Eider Moore, Daniel Ramage, Seth Hampson, Blaise Agüera y Arcas",
    venue="AISTATS",
    year=2017,
    link="https://arxiv.org/abs/1602.05629",
    summary="The average of the silos' models, weighted by their sizes.",
    supervised=False,
    sends=("parameters", "number of items"),
    differs_from_paper=("weights are kept a parameter group, for silos that lack a modality",),
)


class FedAvgParams(MethodParams):
    """Parameters of FedAvg."""

    weighting: Literal["examples", "uniform"] = "examples"
    """`examples`: by the number of items; `uniform`: every silo alike."""


class FedAvg(FederatedMethod):
    """Federated averaging: the default hooks, with the choice of weights."""

    Params: ClassVar[type[MethodParams]] = FedAvgParams
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"recommended": {}, "paper": {"weighting": "examples"}}
    adds: ClassVar[Mapping[str, Mapping[str, Any]]] = {"weight": {"weighting": "examples"}}

    def weight(self, context: SiloContext, group: str) -> float:
        """Returns the number of items with the group's modality, or 1 for any under ``uniform``."""
        items = super().weight(context, group)
        return float(items > 0) if self.params.weighting == "uniform" else items
