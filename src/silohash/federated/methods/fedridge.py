"""Closed-form codes: in the first round, the server solves a ridge regression from the sums of all silos.

The solution maps vectors to the codes of their classes. It needs no gradient step, equals that of the pooled data for
every partition, and is the initial model of any further rounds, which are federated averaging.

===========  ==================================  ===========================================================
symbol       code                                meaning
===========  ==================================  ===========================================================
S, B         `SecondMoments`                     scatter of the vectors, and their centered products with labels
W            `ridge_weights`                     regression from vectors to labels, (D, C)
w'           `label_weights`                     weights of the labels
P            `class_codes`                       target codes of the classes, (C, K)
Z            `Projection`                        map from vectors to hash outputs, Z = W diag(w') P
===========  ==================================  ===========================================================
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import nn

from silohash.exchange.message import Message
from silohash.federated.base import FederatedMethod, FederationInfo, ServerState, SiloContext
from silohash.federated.class_codes import ClassCodes, class_codes
from silohash.federated.second_moments import Matrix, SecondMoments, mean_deviation, ridge_weights, second_moments
from silohash.federated.statistics import sum_statistics
from silohash.local.base import MethodParams, outputs_of
from silohash.models.parameters import to_array
from silohash.types import MODALITIES, Arrays, MethodCard, Modality, Phase, ReadArrays, UserError

CARD = MethodCard(
    key="fedridge",
    title="Federated ridge regression to class codes",
    authors="The silohash developers",
    venue="baseline",
    year=2026,
    link="",
    summary="Compute the model in one round and in closed form, from exact sums over all silos.",
    supervised=True,
    sends=(
        "in the first round: number of items, items per label, and sums, second moments and label cross-products of "
        "the vectors",
        "in further rounds: parameters, number of items",
    ),
    differs_from_paper=(),
)


class FedRidgeParams(MethodParams):
    """Parameters of federated ridge regression."""

    reveal_items: bool = False
    """Allow each silo to send its second moments although the server can read them. They reveal the silo's items: the
    vectors of a small silo can be computed from them, and the texts from vectors that count words."""
    penalty: float = Field(default=0.3, gt=0)
    """Ridge penalty, as a multiple of the mean variance of the vectors' dimensions. Greater than 0."""
    deviation: float = Field(default=1.25, gt=0)
    """Mean standard deviation of the hash outputs, greater than 0. It does not change the codes of the first round,
    only how far later rounds can move them."""
    unused_weight: float = Field(default=0.0, ge=0, le=1)
    """Factor on the initial hash weights of the hidden units that the solution does not use, between 0 and 1. At 0 the
    codes of the first round are exactly those of the regression."""


@dataclass(frozen=True)
class Projection:
    """The solution for one modality: hash outputs are ``(x - mean) @ scores @ codes``.

    Attributes:
        mean: ``(D,)``, mean vector.
        scores: ``(D, R)``, maps centered vectors to R values.
        codes: ``(R, K)``, maps these values to the hash outputs.
    """

    mean: Matrix
    scores: Matrix
    codes: Matrix


class FedRidge(FederatedMethod):
    """Federated ridge regression, followed by federated averaging if there is more than one round."""

    Params: ClassVar[type[MethodParams]] = FedRidgeParams
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"recommended": {}, "paper": {}}
    needs_labels: ClassVar[bool] = True

    def check_exchange(self, *, rules: Sequence[str]) -> None:
        """Check that the user allows what the sums reveal, and that no rule is expected to apply to them.

        Raises:
            UserError: If the user does not allow it, or there is such a rule.
        """
        if not self.params.reveal_items:
            raise UserError(
                "fedridge: each silo sends second moments, which reveal its items to a server that sees them one silo at "
                "a time, and this version has no secure aggregation. Set reveal_items = true if the server may learn "
                "the items, or choose another federated method."
            )
        if rules:
            raise UserError(
                f"fedridge: {rules[0]} does not apply to the sums of the first round, so it would not limit a faulty "
                f"silo. Remove {rules[0]}."
            )

    def init_server(self, model: nn.Module, info: FederationInfo) -> ServerState:
        """Draw the seed of the class codes, and check that the towers can hold the solution.

        Raises:
            UserError: If a tower's hidden layer is too narrow.
        """
        server = super().init_server(model, info)
        needed = 2 * min(info.classes, info.bits)
        for modality in MODALITIES:
            hidden = server.params.get(f"{modality}.hash.weight", np.zeros((0, needed))).shape[1]
            if takes_vectors(server.params, modality) and hidden < needed:
                raise UserError(
                    f"fedridge: the {modality} tower has {hidden} hidden units, and the solution needs {needed} (two per "
                    f"label or bit, whichever are fewer). Set model.hidden = {needed} or more."
                )
        return replace(server, private={"class_code_seed": np.asarray(int(torch.randint(2**31, ())))})

    def begin_round(self, context: SiloContext) -> Sequence[Phase]:
        """Install the parameters. The first round has no training phase."""
        phases = super().begin_round(context)
        return phases if context.round else []

    def silo_update(self, context: SiloContext) -> Message:
        """Send the sums in the first round, and the parameters in further rounds."""
        if context.round:
            return super().silo_update(context)
        assert context.data.labels is not None  # noqa: S101  needs_labels is checked when the run is put together
        labels = to_array(context.data.labels)
        sums: Arrays = {}
        for modality in MODALITIES:
            vectors = vectors_of(context, modality)
            if vectors is not None:
                rows = np.flatnonzero(to_array(context.data.has(modality)))
                sums |= second_moments(vectors[rows], labels[rows]).to_sums(modality)
        return Message(
            kind="update", sender=context.data.name, round=context.round, sums=sums, counts={"items": len(context.data)}
        )

    def aggregate(self, server: ServerState, updates: Sequence[Message]) -> ServerState:
        """Solve the regression after the first round, and average the parameters after further rounds."""
        if updates[0].round:
            return super().aggregate(server, updates)
        total = sum_statistics(updates)
        held = {m: SecondMoments.from_sums(total, m) for m in MODALITIES if f"{m}/count" in total}
        exclusive = not any(moments.several_labels for moments in held.values())
        params = dict(server.params)
        for modality, moments in held.items():
            codes = class_codes(
                len(moments.label_sum), len(params[f"{modality}.hash.bias"]), exclusive=exclusive,
                seed=int(server.private["class_code_seed"]),
            )  # fmt: skip
            solution = projection(
                moments, codes, exclusive=exclusive, penalty=self.params.penalty, deviation=self.params.deviation
            )
            params |= tower_params(params, modality, solution, unused_weight=self.params.unused_weight)
        return replace(server, params=params)


def takes_vectors(params: ReadArrays, modality: Modality) -> bool:
    """Return whether a tower is a network with one hidden layer on vectors, rather than on pictures or word pieces."""
    weight = params.get(f"{modality}.backbone.0.weight")
    return weight is not None and weight.ndim == 2


def vectors_of(context: SiloContext, modality: Modality) -> np.ndarray | None:
    """Return the vectors that the regression starts from, or None if the model or the silo lacks the modality.

    They are the scaled inputs of a tower on vectors, and the features of any other tower under the initial parameters.

    Returns:
        ``(n, D)`` float32; rows without the modality are undefined.
    """
    values = context.data.image if modality == "image" else context.data.text
    if values is None or not hasattr(context.model, modality):
        return None
    if takes_vectors(context.payload.params, modality):
        return to_array(values * float(getattr(context.model, modality).scale))
    if not len(context.data):
        return np.zeros((0, context.payload.params[f"{modality}.hash.weight"].shape[1]), np.float32)
    return to_array(outputs_of(context.model, context.data, part="feature")[modality])


def label_weights(moments: SecondMoments, *, exclusive: bool) -> Matrix:
    """Return the weights of the labels, ``(C,)``: rare labels count more if items may have several.

    w' = (pi (1 - pi) + 1e-4)^(-1/4), where pi is the share of items that have the label; 1 for exclusive labels.
    """
    shares = moments.label_shares()
    return np.ones_like(shares) if exclusive else np.asarray((shares * (1.0 - shares) + 1e-4) ** -0.25)


def projection(
    moments: SecondMoments, codes: ClassCodes, *, exclusive: bool, penalty: float, deviation: float
) -> Projection:
    """Return the solution Z = W diag(w') P as a product of two matrices with as few columns between them as possible.

    Args:
        moments: Sums over the items of all silos, with vectors ``(D,)`` and labels ``(C,)``.
        codes: ``(C, K)``, target codes of the classes.
        exclusive: Whether every item has at most one label.
        penalty: Ridge penalty, see `ridge_weights`.
        deviation: Mean standard deviation of the hash outputs. They are zero if all vectors are equal.
    """
    scores = ridge_weights(moments, penalty) * label_weights(moments, exclusive=exclusive)
    targets = codes.astype(np.float64)
    if codes.shape[0] > codes.shape[1]:
        scores, targets = scores @ targets, np.eye(codes.shape[1])
    found = mean_deviation(moments, scores @ targets)
    return Projection(moments.mean(), scores * (deviation / found if found > 0 else 0.0), targets)


def tower_params(params: Arrays, modality: Modality, solution: Projection, *, unused_weight: float) -> Arrays:
    """Return the parameters of a tower that computes the solution.

    In a tower with one hidden layer, the units 1 to R compute the scores, the units R + 1 to 2R their negatives, and the
    hash layer subtracts the two, because relu(a) - relu(-a) = a. In any other tower, the hash layer is the solution.

    Args:
        params: Current parameters.
        modality: The tower.
        solution: The solution for the tower's inputs or features.
        unused_weight: Factor on the hash weights of the other hidden units.

    Returns:
        The changed parameters by name, in their dtypes.
    """
    changed: dict[str, Matrix] = {f"{modality}.hash.bias": np.zeros(solution.codes.shape[1])}
    offset = -solution.mean @ solution.scores
    if takes_vectors(params, modality):
        units = solution.scores.shape[1]
        weight, bias, hashing = (
            params[f"{modality}.{name}"].astype(np.float64)
            for name in ("backbone.0.weight", "backbone.0.bias", "hash.weight")
        )
        weight[: 2 * units] = np.concatenate([solution.scores, -solution.scores], axis=1).T
        bias[: 2 * units] = np.concatenate([offset, -offset])
        hashing *= unused_weight
        hashing[:, : 2 * units] = np.concatenate([solution.codes, -solution.codes]).T
        changed |= {f"{modality}.backbone.0.weight": weight, f"{modality}.backbone.0.bias": bias}
        changed[f"{modality}.hash.weight"] = hashing
    else:
        changed[f"{modality}.hash.weight"] = (solution.scores @ solution.codes).T
        changed[f"{modality}.hash.bias"] = offset @ solution.codes
    return {name: array.astype(params[name].dtype) for name, array in changed.items()}
