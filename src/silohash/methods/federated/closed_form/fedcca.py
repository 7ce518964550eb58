"""A start from exact sums over all silos, without labels: canonical correlations between images and texts, rotated to bits.

In the first round, silos send sums over their pairs. From the totals, the server computes the maps of images and texts to
variables that agree within pairs as much as possible, and the towers compute them. In the next rounds, the server rotates
these variables, so that their signs lose less. The remaining rounds are federated averaging. The start is the same for
every partition of the pairs, and no silo needs to have seen many items.

============  =====================  ==================================================================
symbol        code                   meaning
============  =====================  ==================================================================
C             `pair_moments`         second moments of the pairs
C_xx, C_yy    blocks of the scatter  covariances of images and texts, ``(D, D)`` and ``(E, E)``
C_xy          block of the scatter   covariances of images with texts, ``(D, E)``
U S V^T       `canonical_maps`       singular value decomposition of C_xx^(-1/2) C_xy C_yy^(-1/2)
R_0           `random_rotation`      first rotation, ``(R, K)``
O             ``outputs``            hash outputs, unit rows, ``(n, K)``
Q             `rotation`             further rotations of the hash outputs, ``(K, K)``
============  =====================  ==================================================================
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal, TypeAlias

import numpy as np
from pydantic import Field
from torch import nn

from silohash.base import seeds
from silohash.base.types import MODALITIES, Arrays, MethodCard, Modality, Phase, ReadArrays
from silohash.methods.federated.base import FederatedMethod, FederationInfo, ServerState, SiloContext, sums_alone
from silohash.methods.federated.closed_form import fedridge
from silohash.methods.federated.second_moments import Matrix, SecondMoments, mean_deviation, second_moments
from silohash.methods.federated.statistics import RevealParams, sum_statistics
from silohash.methods.local.base import outputs_of
from silohash.methods.local.closed_form.itq import canonical_maps, rotation
from silohash.methods.message import Message
from silohash.methods.traits import Traits
from silohash.models.parameters import to_array

CARD = MethodCard(
    key="fedcca",
    title="Federated averaging from canonical correlations",
    authors="The silohash developers",
    venue="baseline",
    year=2026,
    link="",
    summary="Average models that start from canonical correlations, computed from exact sums over all silos.",
    sends=(
        "in the first round: number of pairs, and sums and second moments of the vectors of pairs",
        "in the rounds of rotation: one matrix with a value per two bits, and number of items",
        "in the other rounds: parameters, number of items",
    ),
    differs_from_paper=(),
)

PAIRS, ROTATION = "pairs", "rotation"
"""Names of the sums in an update."""

Stage: TypeAlias = Literal["solve", "rotate", "train"]


class FedCCAParams(RevealParams):
    """Parameters of the start from canonical correlations."""

    penalty: float = Field(default=1.0, gt=0)
    """Ridge penalty of the covariances, as a multiple of their mean variance, greater than 0. Lower values fit the pairs
    of the silos more closely, and need more pairs."""
    power: float = Field(default=2.0, ge=0)
    """Exponent of the correlations by which the canonical variables are multiplied, at least 0. At 0 all variables count
    the same. Higher values emphasize what images and texts have most in common."""
    rotations: int = Field(default=3, ge=0)
    """Number of rounds after the first one in which the server rotates the variables, at least 0. At least one round
    trains, unless there is only one."""
    deviation: float = Field(default=1.0, gt=0)
    """Mean standard deviation of the hash outputs at the start, greater than 0. It does not change the codes of the start,
    only how far later rounds can move them."""


class FedCCA(FederatedMethod[FedCCAParams]):
    """Federated averaging that starts from canonical correlations between images and texts."""

    traits = Traits(min_modalities=2, reveals="second moments, which reveal")

    def init_server(self, model: nn.Module, info: FederationInfo) -> ServerState:
        """Store the seed of the run, and check that the towers can hold the solution."""
        server = super().init_server(model, info)
        for modality in MODALITIES:
            fedridge.check_tower(server.params, modality, needed=2, method=CARD.key)
        private = {"seed": np.asarray(info.seed), "final": np.asarray(False), "rounds": np.asarray(info.total_rounds)}
        return replace(server, private=private)

    def stage(self, number: int, total: int) -> Stage:
        """Return what a round does, given its index and the number of rounds."""
        if number == 0:
            return "solve"
        return "rotate" if number <= min(self.params.rotations, total - 2) else "train"

    def begin_round(self, context: SiloContext) -> Sequence[Phase]:
        """Install the parameters. Rounds that solve or rotate have no training phase."""
        phases = super().begin_round(context)
        return phases if self.stage(context.round, context.total_rounds) == "train" else []

    def update(self, context: SiloContext) -> Message:
        """Send the sums that the round needs, or the parameters."""
        stage = self.stage(context.round, context.total_rounds)
        if stage == "train":
            return super().update(context)
        if stage == "solve":
            data, params = context.data, context.payload.params
            rows = np.flatnonzero(to_array(data.has_image & data.has_text))
            if data.image is None or data.text is None:
                rows = rows[:0]
            vectors = (
                fedridge.inputs_of_tower(context, m)[rows] if len(rows) else np.zeros((0, input_width(params, m)))
                for m in MODALITIES
            )
            sums = pair_moments(*vectors).to_sums(PAIRS)
        else:
            outputs = outputs_of(context.model, context.data, part="logit") if len(context.data) else {}
            bits = len(context.payload.params["image.hash.bias"])
            sums = {ROTATION: np.zeros((bits, bits)) + rotation_sums({m: to_array(o) for m, o in outputs.items()})}
        return sums_alone(context, sums)

    def template(self, server: ServerState, *, kind: str, round: int) -> Message:  # noqa: A002  the field's word
        """Return the sums of a silo without pairs that the round needs."""
        stage = self.stage(round, int(server.private["rounds"]))
        sums: Arrays = {}
        if kind == "update" and stage == "solve":
            sums = pair_moments(*(np.zeros((0, input_width(server.params, m))) for m in MODALITIES)).to_sums(PAIRS)
        elif kind == "update" and stage == "rotate":
            bits = len(server.params["image.hash.bias"])
            sums = {ROTATION: np.zeros((bits, bits))}
        return replace(super().template(server, kind=kind, round=round), sums=sums)

    def aggregate(self, server: ServerState, updates: Sequence[Message]) -> ServerState:
        """Average the parameters, or compute the start or its rotation from the totals of the sums."""
        stage, total = self.stage(updates[0].round, int(server.private["rounds"])), sum_statistics(updates)
        # a rotation groups items that are alike, which a score by pairs counts as a loss, so it is not compared by score
        private = {**server.private, "final": np.asarray(stage != "train")}
        if stage == "train":
            return replace(super().aggregate(server, updates), private=private)
        changed: Arrays = {}
        if ROTATION in total:
            turn = rotation(total[ROTATION])
            changed = {name: array for m in MODALITIES for name, array in rotated(server.params, m, turn).items()}
        elif f"{PAIRS}/count" in total:
            changed = self._start(server, SecondMoments.from_sums(total, PAIRS))
        return replace(server, params={**server.params, **changed}, private=private)

    def _start(self, server: ServerState, moments: SecondMoments) -> Arrays:
        """Return the changed parameters of both towers; nothing if there are fewer than two pairs."""
        if float(moments.count) < 2.0:
            return {}
        width = input_width(server.params, "image")
        covariance, mean = moments.scatter() / float(moments.count), moments.mean()
        maps = canonical_maps(
            covariance, width, components=most_components(server.params), penalty=self.params.penalty,
            power=self.params.power,
        )  # fmt: skip
        bits, seed = len(server.params["image.hash.bias"]), int(server.private["seed"])
        codes = random_rotation(maps["image"].shape[1], bits, seed)
        parts: Mapping[Modality, slice] = {"image": slice(0, width), "text": slice(width, None)}
        changed: Arrays = {}
        for modality, part in parts.items():
            found = mean_deviation(maps[modality] @ codes, covariance[part, part])
            scores = maps[modality] * (self.params.deviation / found if found > 0.0 else 0.0)
            solution = filled(server.params, modality, fedridge.Projection(mean[part], scores, codes))
            changed |= fedridge.tower_params(server.params, modality, solution)
        return changed


def input_width(params: ReadArrays, modality: Modality) -> int:
    """Return the number of dimensions of the vectors from which a tower's solution is computed."""
    name = "backbone.0.weight" if fedridge.takes_vectors(params, modality) else "hash.weight"
    return int(params[f"{modality}.{name}"].shape[1])


def most_components(params: ReadArrays) -> int:
    """Return the largest number of canonical variables that both towers can hold, at most one per bit.

    A tower with one hidden layer on vectors takes two hidden units per variable.
    """
    shapes = {m: params[f"{m}.hash.weight"].shape for m in MODALITIES}
    units = {m: hidden // 2 if fedridge.takes_vectors(params, m) else hidden for m, (_, hidden) in shapes.items()}
    return int(min(min(bits, units[m]) for m, (bits, _) in shapes.items()))


def filled(params: ReadArrays, modality: Modality, solution: fedridge.Projection) -> fedridge.Projection:
    """Return a solution for a tower's inputs as one in which the features of its other hidden units have no weight."""
    hidden, variables = params[f"{modality}.hash.weight"].shape[1], solution.scores.shape[1]
    others = hidden - 2 * variables if fedridge.takes_vectors(params, modality) else 0
    return replace(
        solution,
        mean=np.concatenate([solution.mean, np.zeros(others)]),
        scores=np.concatenate([solution.scores, np.zeros((others, variables))]),
    )


def pair_moments(image: np.ndarray, text: np.ndarray) -> SecondMoments:
    """Return the second moments, without labels, of the stacked vectors ``(n, D)`` and ``(n, E)`` of pairs."""
    return second_moments(np.concatenate([image, text], axis=1), np.zeros((len(image), 0)))


def random_rotation(components: int, bits: int, seed: int) -> Matrix:
    """Return the first rows of a random rotation, ``(components, bits)``, at most as many as there are bits."""
    drawn = seeds.numpy_generator(seed, "rotation of canonical variables").normal(size=(bits, bits))
    return np.asarray(np.linalg.qr(drawn)[0][:components])


def rotation_sums(outputs: Mapping[Modality, np.ndarray]) -> Matrix:
    """Return the sum over items and modalities of o sign(o)^T, ``(K, K)``, for hash outputs ``(n, K)`` scaled to length 1.

    Rows of zeros do not count.
    """
    total = np.zeros((1, 1))
    for values in outputs.values():
        o = values.astype(np.float64)
        o /= np.maximum(np.linalg.norm(o, axis=1, keepdims=True), np.finfo(np.float64).tiny)
        total = total + o.T @ np.where(o >= 0, 1.0, -1.0)
    return total


def rotated(params: Arrays, modality: Modality, turn: Matrix) -> Arrays:
    """Return the parameters of a tower's hash layer after a rotation ``(K, K)`` of its outputs, in their dtypes."""
    names = f"{modality}.hash.weight", f"{modality}.hash.bias"
    return {name: np.asarray(turn.T @ params[name].astype(np.float64)).astype(params[name].dtype) for name in names}
