"""Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization. Jianyu Wang et al., NeurIPS 2020.

A silo that takes more steps moves further, and plain averaging then solves another problem than the one asked. Every silo
sends its move divided by how far its optimiser would have gone under a constant gradient; the server multiplies the average
by the average of those lengths.

===========  =================================  ============================================
paper        code                               meaning
===========  =================================  ============================================
a_i          ``context.step_norm``              weights that local steps have in the move
||a_i||_1    `FedNova.silo_update`              length of the move under a unit gradient
tau_eff      ``sums["effective/<group>"]``      the effective number of steps
mu           ``proximal_weight``                strength of the pull to the global model
===========  =================================  ============================================

Equation (9), with tau_eff the size-weighted mean of the lengths, is `FedNova.aggregate`. With ``proximal_weight`` silos are
held near the global model, as under FedProx, and the lengths count it.

Differs from the paper: the length is measured by running the silo's own optimiser on one number, a tower at a time (the
image and the text network may take different numbers of steps). Adam's, for which the paper has none, is its number of
steps; the first round's record says so. A proximal term together with momentum is refused: the authors' code adds the term
to the buffer of the momentum, and no length is given for that. Preset ``reference`` has the code's tau_eff under a proximal
term, the mean number of steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from silohash.exchange.message import Message
from silohash.federated.base import FederatedMethod, ServerState, SiloContext
from silohash.federated.methods.fedprox import proximal_terms
from silohash.federated.statistics import sum_statistics
from silohash.local.base import MethodParams
from silohash.models.towers import group_of
from silohash.types import Arrays, MethodCard, Outputs, PairBatch, Terms, UserError

CARD = MethodCard(
    key="fednova",
    title="Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization",
    authors="Jianyu Wang, Qinghua Liu, Hao Liang, Gauri Joshi, H. Vincent Poor",
    venue="NeurIPS",
    year=2020,
    link="https://arxiv.org/abs/2007.07481",
    summary="Moves are divided by the length of the silos' local training before they are averaged.",
    supervised=False,
    sends=("normalised moves of the parameters", "number of items", "number of local steps"),
    differs_from_paper=(
        "the length of a move is measured on the silo's own optimiser, a tower at a time",
        "Adam's length is its number of steps",
        "a proximal term needs steps without momentum",
    ),
)


class FedNovaParams(MethodParams):
    """Parameters of FedNova."""

    proximal_weight: float = Field(default=0.0, ge=0)
    """mu: 0 for no proximal term; with one, `sgd` needs `train.momentum = 0`."""
    effective_steps: Literal["length", "count"] = "length"
    """What tau_eff averages where there is a proximal term: the lengths of the moves, or the numbers of steps."""


class FedNova(FederatedMethod):
    """Federated averaging of normalised moves."""

    Params: ClassVar[type[MethodParams]] = FedNovaParams
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "recommended": {},
        "paper": {},
        "authors_code": {"effective_steps": "count"},
    }

    def check_steps(self, *, optimizer: str, learning_rate: float, momentum: float) -> list[str]:
        """Says that Adam's length is a convention.

        Raises:
            UserError: with a proximal term, under momentum or a step so long that it leaps over the global model.
        """
        weight = self.params.proximal_weight
        if optimizer != "sgd":
            return [f'fednova: the length of a move under "{optimizer}" is taken to be its number of steps.']
        if weight and momentum:
            raise UserError(
                f"fednova: proximal_weight = {weight:g} needs steps without momentum, for no length of a move is known "
                f"with both. Set train.momentum = 0 (it is {momentum:g}), or proximal_weight = 0."
            )
        if weight * learning_rate > 1:
            raise UserError(
                f"fednova: proximal_weight = {weight:g} times train.learning_rate = {learning_rate:g} is above 1: a "
                "step would leap over the global model. Lower one of them."
            )
        return []

    def regularizer(self, context: SiloContext, batch: PairBatch, outputs: Outputs) -> Terms:
        """Returns the proximal term."""
        return proximal_terms(self, context, outputs, self.params.proximal_weight)

    def silo_update(self, context: SiloContext) -> Message:
        """Sends moves divided by their lengths; buffers of whole numbers as they are."""
        update = super().silo_update(context)
        steps = {group: self._steps(context, group) for group in update.weights}
        lengths = {group: context.step_norm(count, self.params.proximal_weight) for group, count in steps.items()}
        counted = self.params.proximal_weight and self.params.effective_steps == "count"
        effective = {group: float(steps[group]) if counted else length for group, length in lengths.items()}
        moves: Arrays = {}
        for name, array in update.params.items():
            if np.issubdtype(array.dtype, np.floating):
                move = context.payload.params[name] - array
                moves[name] = (move / array.dtype.type(max(lengths[group_of(name)], 1.0))).astype(array.dtype)
            else:
                moves[name] = array
        sums = {f"effective/{group}": np.asarray(update.weights[group] * each) for group, each in effective.items()}
        sums |= {f"weight/{group}": np.asarray(weight) for group, weight in update.weights.items()}
        return replace(update, params=moves, sums=sums)

    def _steps(self, context: SiloContext, group: str) -> int:
        """Returns how many steps the group took in this round; the most that any took for a group of no step."""
        return context.steps_taken.get(group, max(context.steps_taken.values(), default=0))

    def origin(self, server: ServerState) -> Arrays:
        """Returns zeros: moves are what is sent."""
        return {
            name: np.zeros_like(array) if np.issubdtype(array.dtype, np.floating) else array
            for name, array in server.params.items()
        }

    def aggregate(self, server: ServerState, updates: Sequence[Message]) -> ServerState:
        """Subtracts the mean normalised move times the effective number of steps. Source: equation (9)."""
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
