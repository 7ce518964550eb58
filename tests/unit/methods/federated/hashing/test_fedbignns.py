"""FedBi-GNNs: weights from validation scores, and mixed starts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from silohash.base.errors import ValidationNeeded
from silohash.methods.federated.base import ServerState
from silohash.methods.federated.hashing.fedbignns import CARD, FedBiGNNs, FedBiGNNsParams, interpolated
from silohash.models.parameters import params_of
from tests.runs import (
    train,
    write_archive,
)
from tests.unit.methods.federated.helpers import accepts, context_of, fresh_server, silo_context, traits_of


def test_mixed_starts_average_to_the_common_parameters() -> None:
    owns = [{"w": np.asarray([1.0, 5.0])}, {"w": np.asarray([4.0, -1.0])}]
    weights = (0.25, 0.75)
    common = {"w": sum(w * own["w"] for w, own in zip(weights, owns, strict=True))}
    for share in (-0.5, 0.0, 0.3):
        starts = [interpolated(common, own, share)["w"] for own in owns]
        np.testing.assert_allclose(sum(w * s for w, s in zip(weights, starts, strict=True)), common["w"])
    away = interpolated(common, owns[0], -0.5)["w"] - common["w"]
    assert float(away @ (owns[0]["w"] - common["w"])) < 0


@pytest.mark.whole_run
@pytest.mark.parametrize("composed", [False, True])
def test_fedbignns_without_queries_held_back_is_refused_before_training(tmp_path: Path, composed: bool) -> None:
    def federated(**own: str) -> dict:
        member = {"name": "fedbignns", **own}
        given = {"name": "compose", "methods": [{"name": "moon"}, member]} if composed else member
        return {**given, "rounds": 1}

    archive, without = write_archive(tmp_path / "archive", count=60), {"validation": 0}
    with pytest.raises(ValidationNeeded, match=r"evaluate\.validation"):
        train(archive, tmp_path / "run", federated=federated(), evaluate=without)
    assert not (tmp_path / "run").exists()
    train(archive, tmp_path / "held", federated=federated())
    train(archive, tmp_path / "sizes", federated=federated(weighting="examples"), evaluate=without)


def test_presets() -> None:
    assert FedBiGNNs.presets == {"recommended": {}, "paper": {"local_mix": -0.5}}
    assert (FedBiGNNsParams().weighting, FedBiGNNsParams().local_mix) == ("score", 0.0)


def test_interpolation_by_hand_leaves_integers_and_missing_arrays() -> None:
    common = {"w": np.asarray([2.0]), "n": np.asarray(3), "new": np.asarray([1.0])}
    found = interpolated(common, {"w": np.asarray([6.0]), "n": np.asarray(9)}, 0.25)
    assert (found["w"].tolist(), int(found["n"]), found["new"].tolist()) == ([3.0], 3, [1.0])


@pytest.mark.parametrize(("score", "expected"), [(0.25, 5.0), (0.0, 0.0), (float("nan"), 8.0)])
def test_weights_are_sizes_times_scores(score: float, expected: float) -> None:
    method, context = FedBiGNNs(FedBiGNNsParams()), silo_context(20, mean_score=0.4)
    context.validation_score = lambda: score
    sums = {name: float(value) for name, value in method.statistics(context).items()}
    known = score == score
    assert sums == {"scored": 20 * score if known else 0.0, "scored_items": 20.0 if known else 0.0}
    assert method.weight(context, "image") == pytest.approx(expected)
    by_size = FedBiGNNs(FedBiGNNsParams(weighting="examples"))
    assert by_size.statistics(context) == {}
    assert by_size.weight(context, "image") == 20.0
    assert (method.traits.needs_scores, by_size.traits.needs_scores) == (True, False)


def test_the_server_sends_the_mean_score_back() -> None:
    method = FedBiGNNs(FedBiGNNsParams())
    sums = {"scored": np.asarray(6.0), "scored_items": np.asarray(24.0)}
    assert float(method.merge_statistics(ServerState(params={}), sums)["mean_score"]) == 0.25
    with pytest.raises(ValidationNeeded):
        method.merge_statistics(ServerState(params={}), {name: np.asarray(0.0) for name in sums})


@pytest.mark.parametrize("mix", [0.0, 0.5, -0.5])
def test_rounds_start_from_a_mixture_with_the_kept_parameters(mix: float) -> None:
    method = FedBiGNNs(FedBiGNNsParams(local_mix=mix))
    server = fresh_server(method)
    context = context_of(server, kept={f"model/{n}": (a + 1).astype(a.dtype) for n, a in server.params.items()})
    (phase,) = method.begin_round(context)
    assert phase.epochs == 1
    np.testing.assert_allclose(
        params_of(context.model)["image.hash.bias"], server.params["image.hash.bias"] + mix, atol=1e-6
    )
    context.forget("model")
    context.keep("score", {"value": torch.tensor(1.0)})
    method.update(context)
    assert bool(context.kept("model")) == bool(mix)


def test_card_and_traits() -> None:
    assert (CARD.year, CARD.supervised) == (2025, False)
    assert traits_of(FedBiGNNs) == {"adds": {"weight": {"weighting": "examples"}, "begin_round": {"local_mix": 0.0}}}


@pytest.mark.parametrize(
    ("name", "value", "accepted"),
    [("local_mix", -1, True), ("local_mix", 1, True), ("local_mix", -1.01, False), ("local_mix", 1.01, False)],
)
def test_bounds_of_parameters(name: str, value: float, accepted: bool) -> None:
    assert accepts(FedBiGNNsParams, name, value) == accepted
