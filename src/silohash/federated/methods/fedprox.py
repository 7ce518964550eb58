"""Federated Optimization in Heterogeneous Networks. Tian Li et al., MLSys 2020.

Federated averaging in which every silo is held near the global model by a squared distance, so that silos with unlike data
drift apart less.

=========  =============================  ==========================
paper      code                           meaning
=========  =============================  ==========================
mu         ``proximal_weight``            strength of the pull
w^t        ``context.payload.params``     the global model
=========  =============================  ==========================

The second term of equation (2) is `proximal`; `proximal_terms` takes it over a model's parameters.

Differs from the paper: silos all run the same number of epochs; averaging weights are the silos' sizes, of all silos that
take part, where the paper samples silos by size and averages evenly. The paper takes the best mu of 0.001, 0.01, 0.1 and 1
for each data set; preset ``reference`` has the default of the authors' code, 0, which is federated averaging.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from silohash.federated.base import FederatedMethod, SiloContext
from silohash.local.base import MethodParams
from silohash.models.towers import group_of
from silohash.types import MethodCard, Outputs, PairBatch, Terms

CARD = MethodCard(
    key="fedprox",
    title="Federated Optimization in Heterogeneous Networks",
    authors="Tian Li, Anit Kumar Sahu, Manzil Zaheer, Maziar Sanjabi, Ameet Talwalkar, Virginia Smith",
    venue="MLSys",
    year=2020,
    link="https://arxiv.org/abs/1812.06127",
    summary="Federated averaging whose silos are held near the global model.",
    supervised=False,
    sends=("parameters", "number of items"),
    differs_from_paper=("every silo runs the same number of epochs", "averages by the silos' sizes"),
)


class FedProxParams(MethodParams):
    """Parameters of FedProx."""

    proximal_weight: float = Field(default=0.01, ge=0)
    """mu: 0 is federated averaging."""


def proximal(parameters: Iterable[tuple[Tensor, Tensor]]) -> Tensor:
    """Returns half the squared distance between parameters and those that they started from.

    Args:
        parameters: pairs of equal shapes: what moves, and where it was.

    Source: FedProx, equation (2).
    """
    return 0.5 * torch.stack([(moving - fixed).square().sum() for moving, fixed in parameters]).sum()


def proximal_terms(method: FederatedMethod, context: SiloContext, outputs: Outputs, weight: float) -> Terms:
    """Returns the proximal term over the shared parameters of the towers that a step moves; empty at weight 0.

    Source: FedProx, equation (2).
    """
    if not weight:
        return {}
    shared = set(method.shared_parameters(context.model))
    fixed = dict(context.global_model.named_parameters())
    pairs = [
        (parameter, fixed[name])
        for name, parameter in context.model.named_parameters()
        if name in shared and parameter.requires_grad and group_of(name) in outputs.logit
    ]
    return {"proximal": (weight, proximal(pairs))} if pairs else {}


class FedProx(FederatedMethod):
    """Federated averaging with a proximal term."""

    Params: ClassVar[type[MethodParams]] = FedProxParams
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "recommended": {},
        "paper": {},
        "authors_code": {"proximal_weight": 0.0},
    }

    def regularizer(self, context: SiloContext, batch: PairBatch, outputs: Outputs) -> Terms:
        """Returns the proximal term."""
        return proximal_terms(self, context, outputs, self.params.proximal_weight)
