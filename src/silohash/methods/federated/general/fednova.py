"""Normalized averaging: every silo's update is divided by the length of its local training before averaging.

Plain averaging favors silos that take more steps and thereby optimizes a different objective. The server multiplies the
average of the normalized updates by the average length.

===========  =================================  ==================================================
paper        code                               meaning
===========  =================================  ==================================================
a_i          ``context.step_norm``              weights of the local steps within the update
||a_i||_1    `FedNova.update`                   length of the update under a unit gradient
tau_eff      ``sums["effective/<group>"]``      effective number of steps
mu           ``proximal_weight``                weight of the proximal term
===========  =================================  ==================================================

The update of the global model is `FedNova.aggregate`, with tau_eff as the weighted mean of the lengths.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from silohash.base.errors import ConflictingOptions, OutOfRange
from silohash.base.types import Arrays, MethodCard, Outputs, PairBatch, Terms
from silohash.methods.federated.base import FederatedMethod, RunFacts, ServerState, SiloContext
from silohash.methods.federated.general.fedprox import proximal_terms
from silohash.methods.federated.shared_means import SharedMean
from silohash.methods.federated.statistics import sum_statistics
from silohash.methods.local.base import MethodParams
from silohash.methods.message import Message
from silohash.methods.traits import Traits
from silohash.models.towers import group_of

CARD = MethodCard(
    key="fednova",
    title="Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization",
    authors="Jianyu Wang, Qinghua Liu, Hao Liang, Gauri Joshi, H. Vincent Poor",
    venue="NeurIPS",
    year=2020,
    link="https://arxiv.org/abs/2007.07481",
    summary="Normalize each silo's update by the length of its local training before averaging.",
    sends=("normalized updates of the parameters", "number of items", "number of local steps"),
    differs_from_paper=(
        "The length of an update is measured by running the silo's optimizer on a scalar, separately for each tower.",
        "The paper gives no length for Adam; the number of steps is used, and the record of the first round states this.",
        "A proximal term cannot be combined with momentum, because no length is known for both.",
        "The authors' code uses the mean number of steps as the effective number of steps if there is a proximal term.",
    ),
)


class FedNovaParams(MethodParams):
    """Parameters of FedNova."""

    without_effect: ClassVar = {"effective_steps": {"proximal_weight": (0,)}}

    proximal_weight: float = Field(default=0.0, ge=0)
    """Weight of the proximal term (mu in the paper), at least 0. At 0 there is none. If positive, `sgd` requires
    `train.momentum = 0`."""
    effective_steps: Literal["length", "count"] = "length"
    """Used with a proximal term only. The effective number of steps is the mean length of the updates (`length`) or
    the mean number of steps (`count`)."""


def step_remarks(weight: float, run: RunFacts) -> tuple[str, ...]:
    """Return a remark if the length of updates is approximated, which is the case for Adam.

    Raises:
        UserError: If the proximal term is combined with momentum, or with a step size that overshoots the global
            model.
    """
    if run.optimizer != "sgd":
        return (f'fednova: the length of an update under "{run.optimizer}" is approximated by its number of steps.',)
    if weight and run.momentum:
        raise ConflictingOptions(
            f"fednova: proximal_weight = {weight:g} cannot be combined with momentum, because the length of updates "
            f"is not known for both. Set train.momentum = 0 (it is {run.momentum:g}), or proximal_weight = 0."
        )
    if weight * run.learning_rate > 1:
        raise OutOfRange(
            f"fednova: proximal_weight = {weight:g} times train.learning_rate = {run.learning_rate:g} is above 1, so a "
            "step would overshoot the global model. Lower one of them."
        )
    return ()


class FedNova(FederatedMethod[FedNovaParams]):
    """Federated averaging of normalized updates."""

    presets: ClassVar = {"recommended": {}, "paper": {}, "authors_code": {"effective_steps": "count"}}
    traits = Traits(
        sends_changes=True, normalizes=True, trains_scores=True,
        means=(SharedMean("effective", "weight", low=0.0, per_group=True),),
    )  # fmt: skip

    def chosen_traits(self) -> Traits:
        """State the weight of the proximal term, and whether lengths are approximated."""
        weight = self.params.proximal_weight
        return replace(self.traits, proximal_weight=weight, remarks=step_remarks(weight, self.run))

    def terms(self, context: SiloContext, batch: PairBatch, outputs: Outputs) -> Terms:
        """Return the proximal term."""
        return proximal_terms(self, context, outputs, self.params.proximal_weight)

    def update(self, context: SiloContext) -> Message:
        """Send updates divided by their lengths. Integer buffers are sent unchanged."""
        update = super().update(context)
        # a group without steps of its own is trained by those of others, at most by all
        most = max(context.steps_taken.values(), default=0)
        steps = {group: context.steps_taken.get(group, most) for group in update.weights}
        lengths = {group: context.step_norm(count, self.params.proximal_weight) for group, count in steps.items()}
        counted = self.params.proximal_weight and self.params.effective_steps == "count"
        effective = {group: float(steps[group]) if counted else length for group, length in lengths.items()}
        deltas: Arrays = {}
        for name, array in update.params.items():
            if np.issubdtype(array.dtype, np.floating):
                delta = context.payload.params[name] - array
                deltas[name] = (delta / array.dtype.type(max(lengths[group_of(name)], 1.0))).astype(array.dtype)
            else:
                deltas[name] = array
        sums = {f"effective/{group}": np.asarray(update.weights[group] * each) for group, each in effective.items()}
        sums |= {f"weight/{group}": np.asarray(weight) for group, weight in update.weights.items()}
        return replace(update, params=deltas, sums=sums)

    def aggregate(self, server: ServerState, updates: Sequence[Message]) -> ServerState:
        """Subtract the mean normalized update times the effective number of steps."""
        total = sum_statistics(updates)
        params = dict(server.params)
        for name, mean in self.aggregation.average(server.params, updates).items():
            group = group_of(name)
            if np.issubdtype(mean.dtype, np.floating):
                effective = float(total[f"effective/{group}"] / total[f"weight/{group}"])
                params[name] = (params[name] - effective * mean).astype(mean.dtype)
            else:
                params[name] = mean
        return replace(server, params=params)
