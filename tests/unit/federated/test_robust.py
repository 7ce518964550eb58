"""Rules that bear faulty silos: what they compute, whom they name, and that a run survives."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from silohash.exchange.message import Message
from silohash.federated.averaging import capped_weights, weighted_average
from silohash.federated.base import ServerState
from silohash.federated.robust import (
    capped_average,
    clip_updates,
    coordinate_median,
    mislabeled_silos,
    multi_krum,
    robust_aggregation,
    suspicious_updates,
    trimmed_mean,
)
from silohash.federated.server_optimizers import ServerOptimizer
from silohash.runtime.rounds import RoundSettings, run_rounds
from silohash.runtime.runner import InProcess
from silohash.runtime.silo import SiloResult, SiloTask
from silohash.runtime.worker import Worker
from silohash.types import UserError
from tests.runs import Records, first_state, prepared, run_loop

CURRENT = {"image.w": np.zeros(3, np.float32), "text.w": np.ones(2, np.float32), "image.steps": np.asarray(3)}


def update(sender: str, image: object, text: object = (1, 1), weight: float = 1.0, steps: int = 4) -> Message:
    params = {"image.w": np.asarray(image, np.float32), "text.w": np.asarray(text, np.float32)}
    return Message(
        kind="update", sender=sender, round=0, params={**params, "image.steps": np.asarray(steps)},
        weights={"image": weight, "text": 1.0}, counts={"items": 1},
    )  # fmt: skip


def test_median_and_trimmed_mean_take_each_number_by_itself() -> None:
    updates = [update(str(n), [n, -n, 1e9 if n == 4 else 0], steps=n) for n in range(5)]
    assert coordinate_median(CURRENT, updates)["image.w"].tolist() == [2, -2, 0]
    assert trimmed_mean(CURRENT, updates, share=0.2)["image.w"].tolist() == [2, -2, 0]
    assert trimmed_mean(CURRENT, updates, share=0.0)["image.w"].tolist() == [2, -2, pytest.approx(2e8)]
    assert coordinate_median(CURRENT, updates)["image.steps"] == 4
    two = [update("a", [0, 0, 0]), update("b", [2, 4, 6])]
    assert trimmed_mean(CURRENT, two, share=0.49)["image.w"].tolist() == [1, 2, 3]


def test_silos_without_a_modality_have_no_voice_in_its_tower() -> None:
    updates = [update("a", [9, 9, 9], weight=0.0), update("b", [1, 1, 1]), update("c", [1, 1, 1])]
    assert coordinate_median(CURRENT, updates)["image.w"].tolist() == [1, 1, 1]
    silent = [update("a", [9, 9, 9], weight=0.0)]
    assert "image.w" not in coordinate_median(CURRENT, silent)


def test_clipping_cuts_moves_to_the_median_and_names_the_largest() -> None:
    updates = [update("a", [3, 4, 0]), update("b", [0, 5, 0]), update("c", [0, 0, 500])]
    kept, remarks = clip_updates(CURRENT, updates, factor=1.0)
    assert kept[0] is updates[0]
    np.testing.assert_allclose(kept[2].params["image.w"], [0, 0, 5], rtol=1e-6)
    assert list(remarks) == ["c"]
    assert "100.0 times" in remarks["c"]


def test_krum_leaves_out_those_far_from_the_others() -> None:
    near = [update(str(n), [1 + 0.01 * n, 0, 0]) for n in range(7)]
    far = [update(f"far-{n}", [(-1) ** n * 50, 9 * n, 0]) for n in range(3)]
    kept, remarks = multi_krum(CURRENT, [*far, *near], share=0.3)
    assert {message.sender for message in kept} == {message.sender for message in near}
    assert set(remarks) == {"far-0", "far-1", "far-2"}
    assert multi_krum(CURRENT, near[:2], share=0.3) == (near[:2], {})


def test_silos_without_weight_are_nobodys_neighbours() -> None:
    empty = [replace(update(f"empty-{n}", [0, 0, 0]), weights={"image": 0.0, "text": 0.0}) for n in range(6)]
    near = [update(str(n), [5 + 0.01 * n, 0, 0]) for n in range(4)]
    far = update("far", [-50, 0, 0])
    kept, remarks = multi_krum(CURRENT, [*empty, far, *near], share=0.2)
    assert [message.sender for message in kept] == [*(m.sender for m in empty), *(m.sender for m in near)]
    assert list(remarks) == ["far"]
    kept, remarks = clip_updates(CURRENT, [*empty, far, *near], factor=1.0)
    assert list(remarks) == ["far"]
    assert [message.params["image.w"][0] for message in kept[7:9]] == pytest.approx([5, 5.01])
    assert suspicious_updates(CURRENT, [*empty, far, *near]) == {
        "far": "its update is 10 times as long as the median silo's"
    }
    assert clip_updates(CURRENT, empty, factor=1.0) == (empty, {})
    assert suspicious_updates(CURRENT, empty) == {}


def test_krum_compares_silos_in_what_both_of_them_train() -> None:
    both = [update(str(n), [5, 0, 0.01 * n], text=(6, 6)) for n in range(4)]
    pictures = [update(f"picture-{n}", [5, 0, 0.01 * n]) for n in range(2)]
    pictures = [replace(message, weights={"image": 1.0, "text": 0.0}) for message in pictures]
    far = [update(f"far-{n}", [-5 + n, 0, 0], text=(6, 6)) for n in range(2)]
    kept, remarks = multi_krum(CURRENT, [*far, *both, *pictures], share=0.25)
    assert set(remarks) == {"far-0", "far-1"}
    assert len(kept) == 6


def test_suspicions_name_large_moves_and_opposite_ones() -> None:
    updates = [update(str(n), [1, 0.1 * n, 0]) for n in range(4)]
    assert suspicious_updates(CURRENT, updates) == {}
    assert "49 times" in suspicious_updates(CURRENT, [*updates, update("large", [50, 0, 0])])["large"]
    assert "away" in suspicious_updates(CURRENT, [*updates, update("other", [-1, 0, 0])])["other"]


def scored(sender: str, score: float, chance: float | None = 0.4, queries: int = 40) -> Message:
    scalars = {"score": score} if chance is None else {"score": score, "chance": chance}
    return Message(kind="score", sender=sender, round=0, scalars=scalars, counts={"queries": queries})


def test_misfits_are_named_by_what_the_model_does_above_chance() -> None:
    honest = [scored("a", 0.7), scored("b", 0.64), scored("few classes", 0.85, chance=0.7), scored("hard", 0.55)]
    assert mislabeled_silos(honest) == {}
    assert set(mislabeled_silos([*honest, scored("wrong", 0.45)])) == {"wrong"}
    assert set(mislabeled_silos([*honest, scored("high and wrong", 0.72, chance=0.7)])) == {"high and wrong"}
    assert set(mislabeled_silos([*honest, *(scored(str(n), 0.4) for n in range(3))])) == {"0", "1", "2"}


@pytest.mark.parametrize(
    "unjudged",
    [scored("few", 0.4, queries=9), scored("one class", 0.9, chance=0.9), scored("only", 1.0, chance=1.0),
     scored("none", float("nan"), float("nan"), queries=0), scored("no chance", 0.4, chance=None)],
    ids=lambda message: message.sender,
)  # fmt: skip
def test_silos_whose_score_tells_too_little_are_no_misfits(unjudged: Message) -> None:
    honest = [scored("a", 0.7), scored("b", 0.7), scored("c", 0.7)]
    assert mislabeled_silos([*honest, unjudged]) == {}
    assert mislabeled_silos([unjudged] * 3) == {}


def test_nobody_is_a_misfit_before_something_is_learnt_or_among_two() -> None:
    assert mislabeled_silos([scored("a", 0.45), scored("b", 0.45), scored("c", 0.4)]) == {}
    assert mislabeled_silos([scored("a", 0.9), scored("b", 0.4)]) == {}


@pytest.mark.parametrize(
    ("weights", "cap", "expected"),
    [
        ([8, 1, 1, 0], 0.5, [5, 2.5, 2.5, 0]),
        ([1, 1, 1, 1], 0.5, [1, 1, 1, 1]),
        ([8, 8, 1, 1], 0.3, [5.4, 5.4, 3.6, 3.6]),
        ([9, 1, 0, 0], 0.3, [5, 5, 0, 0]),
    ],
)
def test_no_silo_weighs_more_than_the_cap(weights: list[float], cap: float, expected: list[float]) -> None:
    np.testing.assert_allclose(capped_weights(np.asarray(weights, float), cap), expected)
    updates = [update(str(n), [n == 0, n == 1, n == 2], weight=w) for n, w in enumerate(weights)]
    found = capped_average(weighted_average, cap, CURRENT, updates)["image.w"]
    np.testing.assert_allclose(found, np.asarray(expected[:3]) / sum(expected), rtol=1e-6)


def test_server_optimizers_step_by_the_averaged_move() -> None:
    before = ServerState(params={"image.w": np.asarray([1.0, 2.0], np.float32)})
    after = replace(before, params={"image.w": np.asarray([2.0, 1.0], np.float32)})
    momentum = ServerOptimizer("fedavgm", momentum=0.5)
    first = momentum.step(before, after)
    np.testing.assert_allclose(first.params["image.w"], [2, 1])
    second = momentum.step(first, replace(first, params={"image.w": np.asarray([3.0, 0.0], np.float32)}))
    np.testing.assert_allclose(second.params["image.w"], [3.5, -0.5])
    for name, square in (("fedadam", 0.99e-6 + 0.01), ("fedyogi", 1e-6 + 0.01)):
        adaptive = ServerOptimizer(name, learning_rate=0.1, floor=1e-3)
        found = adaptive.step(before, after).params["image.w"]
        move = 0.1 * 0.1 / (np.sqrt(square) + 1e-3)
        np.testing.assert_allclose(found, [1 + move, 2 - move], rtol=1e-4)


@pytest.mark.parametrize("optimizer", ["fedavgm", "fedadam", "fedyogi"])
def test_server_optimizers_learn_by_their_default_rates(optimizer: str) -> None:
    given = prepared(federated={"rounds": 8, "server": {"optimizer": optimizer}}, train={"learning_rate": 0.01})
    listener = Records()
    run_loop(given, listener)
    losses = [record.loss for record in listener.records]
    assert losses[-1] < 0.8 * losses[0], losses


class Faulty:
    """A runner in which some silos send noise, a hundred times as large as what they learnt."""

    def __init__(self, worker: Worker, faulty: int) -> None:
        self.inner, self.faulty = InProcess(worker), faulty

    def run(self, tasks: list[SiloTask]):
        for result in self.inner.run(tasks):
            yield self.spoilt(result) if result.silo < self.faulty and result.update.kind == "update" else result

    def spoilt(self, result: SiloResult) -> SiloResult:
        generator = np.random.default_rng(result.silo)
        params = {
            name: array + generator.normal(0, 5, array.shape).astype(array.dtype)
            for name, array in result.update.params.items()
        }
        return replace(result, update=replace(result.update, params=params))

    def close(self) -> None:
        pass


def score(faulty: int, **federated: object) -> tuple[float, Records]:
    torch.set_num_threads(1)
    given = prepared((24,) * 10, federated={"rounds": 4, **federated}, train={"learning_rate": 0.01}, single=True)
    worker, listener = Worker(given, torch.device("cpu")), Records()
    settings = RoundSettings(rounds=4, silos=[name for name, _, _ in given.silos])
    state = run_rounds(
        first_state(given, worker), federated=given.resolved.federated, runner=Faulty(worker, faulty),
        settings=settings, observers=[listener],
    )  # fmt: skip
    assert all(np.isfinite(array).all() for array in state.server.params.values())
    return listener.records[-1].validation or 0.0, listener


@pytest.mark.whole_run
@pytest.mark.parametrize("faulty", [1, 3])
@pytest.mark.parametrize("rule", ["median", "trimmed_mean", "multi_krum", "clip"])
@pytest.mark.parametrize("name", ["fedavg", "fednova"])
def test_a_run_survives_faulty_silos_under_every_rule_and_names_them(name: str, rule: str, faulty: int) -> None:
    healthy, _ = score(0, name=name)
    ruined, _ = score(faulty, name=name)
    borne, listener = score(faulty, name=name, robust={"rule": rule})
    assert ruined < healthy - 0.15
    assert borne > ruined + 0.5 * (healthy - ruined)
    named = {warning.partition(":")[0] for record in listener.records for warning in record.warnings}
    assert {f"silo-{number}" for number in range(faulty)} <= named


@pytest.mark.parametrize("name", ["local", "fedproto", "plfedcmh"])
def test_what_would_do_nothing_is_refused(name: str) -> None:
    for section, value in (("robust", {"rule": "median"}), ("server", {"optimizer": "fedadam"})):
        with pytest.raises(UserError, match=f'federated.{section}: "{name}" does not average parameters'):
            prepared(federated={"name": name, section: value})


def test_rules_are_chosen_by_name() -> None:
    assert robust_aggregation().screens == ()
    assert len(robust_aggregation("clip", weight_cap=0.5).screens) == 1


@pytest.mark.parametrize("name", ["fedavg", "fedcafe"])
def test_the_cap_holds_for_weights_that_a_method_makes_itself(name: str) -> None:
    def ended(cap: float) -> dict[str, np.ndarray]:
        given = prepared((60, 6, 6), federated={"name": name, "rounds": 2, "weight_cap": cap, "min_count": 1}
                         if name == "fedcafe" else {"rounds": 2, "weight_cap": cap})  # fmt: skip
        return run_loop(given).server.params

    assert not np.array_equal(ended(0.334)["image.hash.weight"], ended(1.0)["image.hash.weight"])


def test_rules_by_name_average_as_they_say() -> None:
    assert robust_aggregation("median").average is coordinate_median
