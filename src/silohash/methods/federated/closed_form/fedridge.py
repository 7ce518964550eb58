"""Closed-form codes: the server solves a ridge regression from the sums of all silos.

The solution maps vectors to the codes of their classes. It needs no gradient step, and for given vectors it equals that of
the pooled data for every partition. The regression is solved in the first or the last round, or in both. The other rounds
are federated averaging.

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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from pydantic import Field
from torch import nn

from silohash.base.errors import UnsuitableMethod
from silohash.base.types import MODALITIES, Arrays, MethodCard, Modality, Phase, ReadArrays
from silohash.methods.federated import second_moments
from silohash.methods.federated.base import FederatedMethod, FederationInfo, ServerState, SiloContext, sums_alone
from silohash.methods.federated.statistics import RevealParams, sum_statistics
from silohash.methods.local.base import labels_of, outputs_of
from silohash.methods.local.class_codes import ClassCodes, class_codes
from silohash.methods.message import Message
from silohash.methods.traits import Traits
from silohash.models.parameters import to_array
from silohash.models.towers import group_of, hash_layers

CARD = MethodCard(
    key="fedridge",
    title="Federated ridge regression to class codes",
    authors="The silohash developers",
    venue="baseline",
    year=2026,
    link="",
    summary="Average models, and in one round compute their hash layers in closed form, from exact sums over all silos.",
    supervised=True,
    sends=(
        "in a round that solves the regression: number of items, items per label, and sums, second moments and label "
        "cross-products of the vectors",
        "in the other rounds: parameters, number of items",
    ),
    differs_from_paper=(),
)


class FedRidgeParams(RevealParams):
    """Parameters of federated ridge regression."""

    solve: Literal["first", "last", "both"] = "last"
    """Round in which the regression is solved: `first` (later rounds start from it), `last` (it replaces the hash layers of
    the trained model), or `both`. Such a round has no gradient steps. With a single round, all three are the same."""
    penalty: float = Field(default=0.0, ge=0)
    """Ridge penalty, as a multiple of the mean variance of the vectors' dimensions, at least 0. At 0 it is chosen by
    generalized cross-validation, which needs nothing but the sums."""
    deviation: float = Field(default=1.25, gt=0)
    """Mean standard deviation of the hash outputs, greater than 0. It does not change the codes of the solution, only how
    far later rounds can move them."""


@dataclass(frozen=True)
class Projection:
    """The solution for one modality: hash outputs are ``(v - mean) @ scores @ codes`` of vectors ``v (D,)``.

    Attributes:
        mean: ``(D,)``, mean vector.
        scores: ``(D, R)``, maps centered vectors to R values.
        codes: ``(R, K)``, maps these values to the hash outputs.
    """

    mean: second_moments.Matrix
    scores: second_moments.Matrix
    codes: second_moments.Matrix


class FedRidge(FederatedMethod[FedRidgeParams]):
    """Federated averaging with a round, the first or the last, in which the server solves a ridge regression."""

    traits = Traits(needs_labels=True, class_codes=True, reveals="second moments, which reveal")

    def init_server(self, model: nn.Module, info: FederationInfo) -> ServerState:
        """Store what the solution depends on beside the sums, and check that the towers can hold the solution.

        Raises:
            UserError: If a tower's hidden layer is too narrow, or its hash layer is not a linear map of the hidden layer.
        """
        server = super().init_server(model, info)
        layers = hash_layers(server.params)
        if any(name.count(".") > 2 for name in layers):
            raise UnsuitableMethod(
                f"fedridge: the hash layer ({layers[0]}) is not linear, and the solution is. Choose another local method, "
                "or for dchmt local.rectified = false."
            )
        for modality in MODALITIES:
            if any(group_of(name) == modality for name in server.params):
                check_tower(server.params, modality, needed=solution_units(info.classes, info.bits))
        private = {
            "class_code_seed": np.asarray(info.seed),
            "last_round": np.asarray(info.total_rounds - 1),
            "exclusive": np.asarray(info.exclusive),
            "classes": np.asarray(info.classes),
        }
        return replace(server, private=private)

    def begin_round(self, context: SiloContext) -> Sequence[Phase]:
        """Install the parameters. A round in which the regression is solved has no training phase."""
        phases = super().begin_round(context)
        return [] if self._solves(context.round, context.total_rounds) else phases

    def _solves(self, number: int, total: int) -> bool:
        if total == 1:
            return True
        first = number == 0 and self.params.solve != "last"
        return first or (number == total - 1 and self.params.solve != "first")

    def _solved_by(self, server: ServerState, number: int) -> bool:
        return self._solves(number, int(server.private["last_round"]) + 1)

    def template(self, server: ServerState, *, kind: str, round: int) -> Message:  # noqa: A002  the field's word
        """Return the sums of a silo without items if the regression is solved in the round."""
        message, classes = super().template(server, kind=kind, round=round), int(server.private["classes"])
        sums: Arrays = {}
        if kind == "update" and self._solved_by(server, round):
            for modality in (m for m in MODALITIES if f"{m}.hash.weight" in server.params):
                width = sum(blocks_of(server.params, modality, classes))
                sums |= second_moments.second_moments(np.zeros((0, width)), np.zeros((0, classes))).to_sums(modality)
        return replace(message, sums=sums)

    def update(self, context: SiloContext) -> Message:
        """Send the sums if the regression is solved in this round, and the parameters otherwise."""
        if not self._solves(context.round, context.total_rounds):
            return super().update(context)
        labels = to_array(labels_of(context.data))
        sums: Arrays = {}
        for modality in MODALITIES:
            vectors = vectors_of(context, modality)
            if vectors is not None:
                rows = np.flatnonzero(to_array(context.data.has(modality)))
                sums |= second_moments.second_moments(vectors[rows], labels[rows]).to_sums(modality)
        return sums_alone(context, sums)

    def aggregate(self, server: ServerState, updates: Sequence[Message]) -> ServerState:
        """Average the parameters, or solve the regression if the silos sent sums."""
        if not self._solved_by(server, updates[0].round):
            return super().aggregate(server, updates)
        total = sum_statistics(updates)
        held = {m: second_moments.SecondMoments.from_sums(total, m) for m in MODALITIES if f"{m}/count" in total}
        exclusive = bool(server.private["exclusive"])
        params = dict(server.params)
        for modality, moments in held.items():
            codes = class_codes(
                len(moments.label_sum), len(params[f"{modality}.hash.bias"]), exclusive=exclusive,
                seed=int(server.private["class_code_seed"]),
            )  # fmt: skip
            solution = projection(
                moments, codes, blocks=blocks_of(params, modality, len(codes)), exclusive=exclusive,
                penalty=self.params.penalty, deviation=self.params.deviation,
            )  # fmt: skip
            params |= tower_params(params, modality, solution)
        # with several labels per item, the trained hash layers can be better, and the validation decides
        final = exclusive and updates[0].round == int(server.private["last_round"])
        return replace(server, params=params, private={**server.private, "final": np.asarray(final)})


def solution_units(classes: int, bits: int) -> int:
    """Return the number of hidden units that pass on the scores of the inputs: two per label or bit, whichever are fewer."""
    return 2 * min(classes, bits)


def check_tower(params: ReadArrays, modality: Modality, *, needed: int, method: str = CARD.key) -> None:
    """Check that a tower can hold a solution that takes a number of hidden units.

    Raises:
        UserError: If its hash layer is missing or does not take the hidden layer alone, or if that layer is too narrow.
    """
    weight, first = params.get(f"{modality}.hash.weight"), params.get(f"{modality}.backbone.0.weight")
    vectors = takes_vectors(params, modality)
    if weight is None or (vectors and first is not None and weight.shape[1] != len(first)):
        raise UnsuitableMethod(
            f"{method}: the codes of the {modality} tower are not a linear map of its hidden layer, and the solution is. "
            "Choose another local method, such as dcmh or centerap."
        )
    if vectors and weight.shape[1] < needed:
        raise UnsuitableMethod(
            f"{method}: the {modality} tower has {weight.shape[1]} hidden units, and the solution needs {needed} (two per "
            f"label or bit, whichever are fewer). Set model.hidden = {needed} or more."
        )


def takes_vectors(params: ReadArrays, modality: Modality) -> bool:
    """Return whether a tower is a network with one hidden layer on vectors, rather than on pictures or word pieces."""
    weight = params.get(f"{modality}.backbone.0.weight")
    return weight is not None and weight.ndim == 2


def blocks_of(params: ReadArrays, modality: Modality, classes: int) -> tuple[int, ...]:
    """Return the sizes of the blocks in the vectors of `vectors_of`: inputs and features (0 or more), or features alone."""
    bits, hidden = params[f"{modality}.hash.weight"].shape
    if not takes_vectors(params, modality):
        return (hidden,)
    return params[f"{modality}.backbone.0.weight"].shape[1], hidden - solution_units(classes, bits)


def vectors_of(context: SiloContext, modality: Modality) -> np.ndarray | None:
    """Return the vectors that the regression starts from, ``(n, D)`` float32, or None without the modality.

    For a tower on vectors they are its scaled inputs, followed by the features of the hidden units that the solution does
    not replace. For any other tower they are its features. Rows without the modality are undefined.
    """
    values = context.data.image if modality == "image" else context.data.text
    if values is None or not hasattr(context.model, modality):
        return None
    params = context.payload.params
    blocks = blocks_of(params, modality, labels_of(context.data).shape[1])
    if not len(context.data):
        return np.zeros((0, sum(blocks)), np.float32)
    inputs = inputs_of_tower(context, modality)
    if not takes_vectors(params, modality):
        return inputs
    features = to_array(outputs_of(context.model, context.data, part="feature")[modality])
    return np.concatenate([inputs, features[:, features.shape[1] - blocks[1] :]], axis=1)


def inputs_of_tower(context: SiloContext, modality: Modality) -> np.ndarray:
    """Return the scaled inputs of a tower on vectors, or the features of any other tower, ``(n, D)``."""
    if not takes_vectors(context.payload.params, modality):
        return to_array(outputs_of(context.model, context.data, part="feature")[modality])
    values = context.data.image if modality == "image" else context.data.text
    assert values is not None  # noqa: S101  checked by the caller
    return to_array(values * float(getattr(context.model, modality).scale))


def label_weights(moments: second_moments.SecondMoments, *, exclusive: bool) -> second_moments.Matrix:
    """Return the weights of the labels, ``(C,)``: rare labels count more if items may have several.

    w' = (pi (1 - pi) + 1e-4)^(-1/4), where pi is the share of items that have the label; 1 for exclusive labels.
    """
    shares = moments.label_shares()
    return np.ones_like(shares) if exclusive else np.asarray((shares * (1.0 - shares) + 1e-4) ** -0.25)


def projection(
    moments: second_moments.SecondMoments,
    codes: ClassCodes,
    *,
    blocks: Sequence[int],
    exclusive: bool,
    penalty: float,
    deviation: float,
) -> Projection:
    """Return the solution Z = W diag(w') P as a product of two matrices with as few columns between them as possible.

    Codes ``(C, K)`` are the targets of the classes, which are ``exclusive`` if every item has at most one label. Hash
    outputs have the given mean standard deviation, but are zero if all vectors are equal. At a penalty of 0, one of
    `PENALTIES` is chosen.
    """
    weights = second_moments.ridge_weights(
        moments, blocks, penalties=[penalty] if penalty else second_moments.PENALTIES
    )
    scores = weights * label_weights(moments, exclusive=exclusive)
    targets = codes.astype(np.float64)
    if codes.shape[0] > codes.shape[1]:
        scores, targets = scores @ targets, np.eye(codes.shape[1])
    found = second_moments.mean_deviation(scores @ targets, moments.scatter(), float(moments.count))
    return Projection(moments.mean(), scores * (deviation / found if found > 0 else 0.0), targets)


def tower_params(params: Arrays, modality: Modality, solution: Projection) -> Arrays:
    """Return the parameters of a tower that computes the solution.

    In a tower with one hidden layer, the units 1 to R compute the scores of the inputs, the units R + 1 to 2R their
    negatives, and the hash layer subtracts the two, because relu(a) - relu(-a) = a. The other units keep their weights, and
    the hash layer applies the solution to them. In any other tower, the hash layer is the solution. It is the one for the
    vectors of `vectors_of`, and only changed parameters are returned, in their dtypes.
    """
    hashing, bias = f"{modality}.hash.weight", f"{modality}.hash.bias"
    if not takes_vectors(params, modality):
        matrix = solution.scores @ solution.codes
        return _in_dtypes(params, {hashing: matrix.T, bias: -solution.mean @ matrix})
    first, offset = f"{modality}.backbone.0.weight", f"{modality}.backbone.0.bias"
    width, units = params[first].shape[1], solution.scores.shape[1]
    inputs, features = np.split(solution.scores, [width])
    features = features @ solution.codes
    offsets = -solution.mean[:width] @ inputs
    weight, biases = params[first].astype(np.float64), params[offset].astype(np.float64)
    weight[: 2 * units] = np.concatenate([inputs, -inputs], axis=1).T
    biases[: 2 * units] = np.concatenate([offsets, -offsets])
    signed = np.concatenate([solution.codes, -solution.codes, features])
    changed = {first: weight, offset: biases, hashing: signed.T, bias: -solution.mean[width:] @ features}
    return _in_dtypes(params, changed)


def _in_dtypes(params: Arrays, changed: Mapping[str, second_moments.Matrix]) -> Arrays:
    return {name: array.astype(params[name].dtype) for name, array in changed.items()}
