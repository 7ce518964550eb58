"""Federated averaging with a proximal term that keeps every silo's parameters close to the global ones.

The squared distance limits how far silos with different data drift apart.

=========  =============================  ==========================
paper      code                           meaning
=========  =============================  ==========================
mu         ``proximal_weight``            weight of the term
w^t        ``context.payload.params``     global parameters
=========  =============================  ==========================

The second term of equation (2) is `proximal`; `proximal_terms` applies it to the parameters of a model.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from silohash.base.types import MethodCard, Outputs, PairBatch, Terms
from silohash.methods.federated.base import FederatedMethod, SiloContext
from silohash.methods.local.base import MethodParams
from silohash.methods.traits import Traits
from silohash.models.towers import group_of

CARD = MethodCard(
    key="fedprox",
    title="Federated Optimization in Heterogeneous Networks",
    authors="Tian Li, Anit Kumar Sahu, Manzil Zaheer, Maziar Sanjabi, Ameet Talwalkar, Virginia Smith",
    venue="MLSys",
    year=2020,
    link="https://arxiv.org/abs/1812.06127",
    summary="Add a penalty on the distance from the global model to the local loss.",
    sends=("parameters", "number of items"),
    differs_from_paper=(
        "All silos train for the same number of epochs.",
        "Silos are averaged by their number of items. The paper samples silos by size and averages them equally.",
        "The paper selects the weight per data set from 0.001, 0.01, 0.1 and 1; the preset paper uses 0.01.",
        "The authors' code has a default weight of 0, which is federated averaging.",
    ),
)


class FedProxParams(MethodParams):
    """Parameters of FedProx."""

    proximal_weight: float = Field(default=0.01, ge=0)
    """Weight of the proximal term (mu in the paper), at least 0. At 0 the method is FedAvg."""


def proximal(parameters: Iterable[tuple[Tensor, Tensor]]) -> Tensor:
    """Return half the squared distance within pairs of a moving parameter and its fixed starting value, a scalar.

    Source: FedProx, equation (2).
    """
    return 0.5 * torch.stack([(moving - fixed).square().sum() for moving, fixed in parameters]).sum()


def proximal_terms(method: FederatedMethod, context: SiloContext, outputs: Outputs, weight: float) -> Terms:
    """Return the proximal term over the shared parameters of the towers that a step trains; empty at weight 0.

    Source: FedProx, equation (2).
    """
    if not weight:
        return {}
    # a private layer has no common value to stay near
    shared = set((context.lead or method).shared_parameters(context.model))
    fixed = dict(context.global_model.named_parameters())
    scored = outputs.pair_score is not None
    pairs = [
        (parameter, fixed[name])
        for name, parameter in context.model.named_parameters()
        if name in shared and parameter.requires_grad and (scored or group_of(name) in outputs.logit)
    ]
    return {"proximal": (weight, proximal(pairs))} if pairs else {}


class FedProx(FederatedMethod[FedProxParams]):
    """Federated averaging with a proximal term."""

    presets: ClassVar = {"recommended": {}, "paper": {}, "authors_code": {"proximal_weight": 0.0}}
    traits = Traits(trains_scores=True, private_units=("silo",))

    def chosen_traits(self) -> Traits:
        """State the weight of the proximal term."""
        return replace(self.traits, proximal_weight=self.params.proximal_weight)

    def terms(self, context: SiloContext, batch: PairBatch, outputs: Outputs) -> Terms:
        """Return the proximal term."""
        return proximal_terms(self, context, outputs, self.params.proximal_weight)
