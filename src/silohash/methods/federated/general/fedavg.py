"""Federated averaging: silos train the global model on their own pairs, and the server averages the results.

Every silo's weight is its number of items.

==========  ==============================  =========================================
paper       code                            meaning
==========  ==============================  =========================================
C           ``federated.fraction``          share of silos per round
E           ``federated.local_epochs``      local epochs per round
B           ``train.batch``                 batch size, in pairs
n_k         `FederatedMethod.weight`        weight of a silo
==========  ==============================  =========================================

Algorithm 1 is the training loop with the default hooks; its last line is `weighted_average`.
"""

from typing import ClassVar, Literal

from silohash.base.types import MethodCard
from silohash.methods.federated.base import FederatedMethod
from silohash.methods.local.base import MethodParams
from silohash.methods.traits import Traits

CARD = MethodCard(
    key="fedavg",
    title="Communication-Efficient Learning of Deep Networks from Decentralized Data",
    authors="H. Brendan McMahan, Eider Moore, Daniel Ramage, Seth Hampson, Blaise Agüera y Arcas",
    venue="AISTATS",
    year=2017,
    link="https://arxiv.org/abs/1602.05629",
    summary="Average the silos' models, weighted by the number of training items.",
    sends=("parameters", "number of items"),
    differs_from_paper=("Weights are kept per parameter group, for silos that lack a modality.",),
)


class FedAvgParams(MethodParams):
    """Parameters of FedAvg."""

    weighting: Literal["examples", "uniform"] = "examples"
    """`examples`: weight silos by their number of items. `uniform`: weight all silos equally."""


class FedAvg(FederatedMethod[FedAvgParams]):
    """Federated averaging: the default hooks, with a choice of weights."""

    presets: ClassVar = {"recommended": {}, "paper": {"weighting": "examples"}}
    traits = Traits(
        closed_form="silos", trains_scores=True, private_units=("record", "silo"), weighting="weighting",
        adds={"weight": {"weighting": "examples"}},
    )  # fmt: skip
