"""Robust rules: what they compute, which silos they report, and that training survives."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from silohash.base.errors import UserError
from silohash.methods.federated import robust
from silohash.methods.federated.averaging import weighted_average
from silohash.methods.federated.robust import (
    capped_average,
    change_length,
    clip_updates,
    coordinate_median,
    delta_of,
    faulty_silos,
    multi_krum,
    robust_aggregation,
    trimmed_mean,
)
from silohash.training.engines.port import WAIT_FOR_ALL, InProcess, Limits, SiloResult, SiloTask
from silohash.training.rounds import RoundSettings, run_rounds
from silohash.training.worker import Worker
from tests.runs import (
    Records,
    prepared,
    run_loop,
    same_arrays,
)
from tests.unit.methods.federated.helpers import CURRENT, screened, update


@pytest.mark.parametrize(
    ("weights", "cap", "shares"),
    [
        ([8, 1, 1, 0], 0.5, [0.5, 0.25, 0.25]),
        ([1, 1, 1, 1], 0.5, [0.25, 0.25, 0.25]),
        ([8, 8, 1, 1], 0.3, [0.3, 0.3, 0.2]),
        ([9, 1, 0, 0], 0.3, [0.5, 0.5, 0]),  # two silos cannot stay below 0.3 each
    ],
)
def test_no_silo_weighs_more_than_the_cap(weights: list[float], cap: float, shares: list[float]) -> None:
    updates = [update(str(n), [n == 0, n == 1, n == 2], weight=w) for n, w in enumerate(weights)]
    found = capped_average(weighted_average, cap, CURRENT, updates)["image.w"]
    np.testing.assert_allclose(found, shares, rtol=1e-6)


def test_median_and_trimmed_mean_take_each_number_by_itself() -> None:
    updates = [update(str(n), [n, -n, 1e9 if n == 4 else 0], steps=n) for n in range(5)]
    assert coordinate_median(CURRENT, updates)["image.w"].tolist() == [2, -2, 0]
    assert trimmed_mean(CURRENT, updates, share=0.2)["image.w"].tolist() == [2, -2, 0]
    assert trimmed_mean(CURRENT, updates, share=0.0)["image.w"].tolist() == [2, -2, pytest.approx(2e8)]
    assert coordinate_median(CURRENT, updates)["image.steps"] == 4
    two = [update("a", [0, 0, 0]), update("b", [2, 4, 6])]
    assert trimmed_mean(CURRENT, two, share=0.49)["image.w"].tolist() == [1, 2, 3]


def test_silos_without_a_modality_do_not_count_for_its_tower() -> None:
    updates = [update("a", [9, 9, 9], weight=0.0), update("b", [1, 1, 1]), update("c", [1, 1, 1])]
    assert coordinate_median(CURRENT, updates)["image.w"].tolist() == [1, 1, 1]
    silent = [update("a", [9, 9, 9], weight=0.0)]
    assert "image.w" not in coordinate_median(CURRENT, silent)


def test_clipping_shortens_updates_to_the_median_and_reports_the_largest() -> None:
    updates = [update("a", [3, 4, 0]), update("b", [0, 5, 0]), update("c", [0, 0, 500])]
    kept, remarks = clip_updates(CURRENT, updates, factor=1.0)
    assert kept[0] is updates[0]
    np.testing.assert_allclose(kept[2].params["image.w"], [0, 0, 5], rtol=1e-6)
    assert list(remarks) == ["c"]
    assert "100.0 times" in remarks["c"]


def test_rules_give_the_same_in_small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models that do not fit into memory once per silo are read block by block."""
    near = np.random.default_rng(0).normal(size=(8, 3))
    updates = [update(str(n), values.tolist(), steps=n) for n, values in enumerate(near)]
    updates += [update("far", [50, -50, 50]), update("silent", [7, 7, 7], weight=0.0)]
    rules = (coordinate_median, partial(trimmed_mean, share=0.2))
    whole = [rule(CURRENT, updates) for rule in rules]
    kept, remarks = multi_krum(CURRENT, updates, share=0.2)
    monkeypatch.setattr(robust, "BLOCK_BYTES", 8)
    for rule, expected in zip(rules, whole, strict=True):
        assert same_arrays(rule(CURRENT, updates), expected)
    assert multi_krum(CURRENT, updates, share=0.2) == (kept, remarks)
    assert "far" in remarks


def test_krum_leaves_out_those_far_from_the_others() -> None:
    near = [update(str(n), [1 + 0.01 * n, 0, 0]) for n in range(7)]
    far = [update(f"far-{n}", [(-1) ** n * 50, 9 * n, 0]) for n in range(3)]
    kept, remarks = multi_krum(CURRENT, [*far, *near], share=0.3)
    assert {message.sender for message in kept} == {message.sender for message in near}
    assert set(remarks) == {"far-0", "far-1", "far-2"}


@pytest.mark.parametrize(
    ("silos", "share", "fewest"), [(5, 0.3, 7), (7, 0.3, 9), (8, 0.3, 9), (2, 0.0, 3), (4, 0.2, 5)]
)
def test_krum_keeps_no_update_of_too_few_silos(silos: int, share: float, fewest: int) -> None:
    updates = [update(str(n), [n, 0, 0]) for n in range(silos)]
    kept, remarks = multi_krum(CURRENT, updates, share=share)
    assert kept == []
    assert f"{silos} silos with items take part, but {fewest} are needed" in remarks["multi_krum"]


@pytest.mark.parametrize("faulty", [1, 2, 3])
def test_krum_leaves_out_all_identical_attackers_from_2f_plus_3_silos_on(faulty: int) -> None:
    count = 2 * faulty + 3
    generator = np.random.default_rng(faulty)
    honest = [update(str(n), generator.normal([1, 0, 0], 0.1)) for n in range(count - faulty)]
    attackers = [update(f"attacker-{n}", [-1, 0, 0]) for n in range(faulty)]
    kept, remarks = multi_krum(CURRENT, [*attackers, *honest], share=faulty / count)
    assert kept == honest
    assert set(remarks) == {message.sender for message in attackers}
    assert multi_krum(CURRENT, [*attackers, *honest[1:]], share=faulty / count)[0] == []


def test_a_rejected_update_is_one_of_the_faulty_ones() -> None:
    honest = [update(str(n), [1 + 0.01 * n, 0, 0]) for n in range(6)]
    far = [update(f"far-{n}", [-9, 0, 0]) for n in range(2)]
    assert multi_krum(CURRENT, [*far, *honest], share=0.3)[0] == []  # 3 of 8 may be faulty, which takes 9
    assert multi_krum(CURRENT, [*far, *honest], 1, share=0.3)[0] == honest  # 3 of 9, of which one is known
    assert multi_krum(CURRENT, honest, 4, share=0.3) == (honest, {})


@pytest.mark.parametrize(
    ("share", "silos", "faulty"), [(0.3, 10, 3), (0.3, 7, 3), (0.0, 9, 0), (0.07, 100, 7), (0.1, 3, 1), (0.49, 100, 49)]
)
def test_a_share_of_silos_is_rounded_up(share: float, silos: int, faulty: int) -> None:
    assert faulty_silos(share, silos) == faulty


def test_a_round_with_too_few_silos_changes_nothing_and_the_record_says_why() -> None:
    given = prepared((8,) * 9, federated={"rounds": 2, "robust": {"rule": "multi_krum"}}, validation=2)
    worker, listener = Worker(given, torch.device("cpu")), Records()
    start = worker.first_state()
    settings = RoundSettings(rounds=2, silos=[name for name, _, _ in given.silos], fraction=0.6, chain=worker.chain)
    state = run_rounds(
        start, federated=given.resolved.federated, engine=InProcess(worker), settings=settings, observers=[listener]
    )
    assert same_arrays(state.server.params, start.server.params)
    for record in listener.records:
        skipped = [warning for warning in record.warnings if warning.startswith("multi_krum: ")]
        assert skipped == [
            "multi_krum: 5 silos with items take part, but 7 are needed to withstand 2 faulty. The round is skipped."
        ]


def test_silos_without_weight_are_not_neighbors() -> None:
    empty = [replace(update(f"empty-{n}", [0, 0, 0]), weights={"image": 0.0, "text": 0.0}) for n in range(6)]
    near = [update(str(n), [5 + 0.01 * n, 0, 0]) for n in range(4)]
    far = update("far", [-50, 0, 0])
    kept, remarks = multi_krum(CURRENT, [*empty, far, *near], share=0.2)
    assert [message.sender for message in kept] == [*(m.sender for m in empty), *(m.sender for m in near)]
    assert list(remarks) == ["far"]
    kept, remarks = clip_updates(CURRENT, [*empty, far, *near], factor=1.0)
    assert list(remarks) == ["far"]
    assert [message.params["image.w"][0] for message in kept[7:9]] == pytest.approx([5, 5.01])
    assert screened(CURRENT, [*empty, far, *near]).remarks() == {
        "far": "its update is 10 times as long as the median silo's"
    }
    assert clip_updates(CURRENT, empty, factor=1.0) == (empty, {})
    assert screened(CURRENT, empty).remarks() == {}


def test_krum_compares_silos_in_what_both_of_them_train() -> None:
    both = [update(str(n), [5, 0, 0.01 * n], text=(6, 6)) for n in range(4)]
    pictures = [update(f"picture-{n}", [5, 0, 0.01 * n]) for n in range(2)]
    pictures = [replace(message, weights={"image": 1.0, "text": 0.0}) for message in pictures]
    far = [update(f"far-{n}", [-5 + n, 0, 0], text=(6, 6)) for n in range(2)]
    kept, remarks = multi_krum(CURRENT, [*far, *both, *pictures], share=0.25)
    assert set(remarks) == {"far-0", "far-1"}
    assert len(kept) == 6


class Faulty(InProcess):
    """An engine in which some silos add strong noise to their parameters."""

    def __init__(self, worker: Worker, faulty: int) -> None:
        super().__init__(worker)
        self.faulty = faulty

    def send(self, tasks: Iterable[SiloTask], limits: Limits = WAIT_FOR_ALL):
        for result in super().send(tasks, limits):
            yield self.disturbed(result) if result.silo < self.faulty and result.update.kind == "update" else result

    def disturbed(self, result: SiloResult) -> SiloResult:
        generator = np.random.default_rng(result.silo)
        params = {
            name: array + generator.normal(0, 5, array.shape).astype(array.dtype)
            for name, array in result.update.params.items()
        }
        return replace(result, update=replace(result.update, params=params))


@functools.cache
def score(faulty: int, *, name: str, rule: str | None = None) -> tuple[float, Records]:
    """Trains with some faulty silos; returns the last validation score and the records. All rules share two runs."""
    torch.set_num_threads(1)
    rules = {"robust": {"rule": rule}} if rule else {}
    given = prepared(
        (24,) * 10, federated={"rounds": 4, "name": name, **rules}, train={"learning_rate": 0.01}, single=True
    )
    worker, listener = Worker(given, torch.device("cpu")), Records()
    settings = RoundSettings(rounds=4, silos=[name for name, _, _ in given.silos], chain=worker.chain)
    state = run_rounds(
        worker.first_state(), federated=given.resolved.federated, engine=Faulty(worker, faulty),
        settings=settings, observers=[listener],
    )  # fmt: skip
    assert all(np.isfinite(array).all() for array in state.server.params.values())
    return listener.records[-1].validation or 0.0, listener


@pytest.mark.whole_run
@pytest.mark.parametrize("faulty", [pytest.param(1, marks=pytest.mark.slow), 3])
@pytest.mark.parametrize("rule", ["median", "trimmed_mean", "multi_krum", "clip"])
@pytest.mark.parametrize("name", ["fedavg", "fednova"])
def test_training_survives_faulty_silos_under_every_rule_and_reports_them(name: str, rule: str, faulty: int) -> None:
    healthy, _ = score(0, name=name)
    ruined, _ = score(faulty, name=name)
    robust, listener = score(faulty, name=name, rule=rule)
    assert ruined < healthy - 0.15
    assert robust > ruined + 0.5 * (healthy - ruined)
    named = {warning.partition(":")[0] for record in listener.records for warning in record.warnings}
    assert {f"silo-{number}" for number in range(faulty)} <= named


@pytest.mark.parametrize("name", ["local", "plfedcmh"])
def test_rules_without_effect_are_rejected(name: str) -> None:
    for section, value in (("robust", {"rule": "median"}), ("server", {"optimizer": "fedadam"})):
        with pytest.raises(UserError, match=f'federated.{section} has no effect: "{name}" does not average parameters'):
            prepared(federated={"name": name, section: value})


def test_rules_are_chosen_by_name() -> None:
    assert robust_aggregation().screens == ()
    assert len(robust_aggregation("clip", weight_cap=0.5).screens) == 1


@pytest.mark.whole_run
@pytest.mark.parametrize("name", ["fedavg", "fedcafe"])
def test_the_cap_holds_for_weights_that_a_method_makes_itself(name: str) -> None:
    def ended(cap: float) -> dict[str, np.ndarray]:
        given = prepared((60, 6, 6), federated={"name": name, "rounds": 2, "weight_cap": cap, "min_count": 1}
                         if name == "fedcafe" else {"rounds": 2, "weight_cap": cap})  # fmt: skip
        return run_loop(given).server.params

    assert not np.array_equal(ended(0.334)["image.hash.weight"], ended(1.0)["image.hash.weight"])


def test_rules_by_name_average_as_they_say() -> None:
    assert robust_aggregation("median").average is coordinate_median


def test_deltas_are_differences_of_floating_arrays_in_groups_with_weight() -> None:
    given = replace(update("a", [1, 2, 3], text=(5, 7)), weights={"image": 1.0, "text": 0.0})
    assert delta_of(CURRENT, given).tolist() == [1.0, 2.0, 3.0, 0.0, 0.0]
    assert delta_of(CURRENT, replace(given, weights={"text": 1.0})).tolist() == [0.0, 0.0, 0.0, 4.0, 6.0]
    assert delta_of({}, given).tolist() == []


def test_the_length_of_a_change_is_that_of_its_vector() -> None:
    for weights in ({"image": 2.0, "text": 1.0}, {"image": 1.0}, {}):
        given = replace(
            update("a", (1, 1, 1)), params={name: array + 3 for name, array in CURRENT.items()}, weights=weights
        )
        assert change_length(CURRENT, given) == pytest.approx(float(np.linalg.norm(delta_of(CURRENT, given))))


def test_trimming_rounds_up_and_leaves_at_least_one_silo() -> None:
    updates = [update(str(n), [value] * 3) for n, value in enumerate([0, 1, 2, 30])]
    for share, expected in ((0.0, 8.25), (0.1, 1.5), (0.25, 1.5), (0.26, 1.5), (0.9, 1.5)):
        assert trimmed_mean(CURRENT, updates, share=share)["image.w"].tolist() == [expected] * 3, share
    five = [*updates, update("4", [100] * 3)]
    for share, expected in ((0.2, 11.0), (0.21, 2.0)):
        assert trimmed_mean(CURRENT, five, share=share)["image.w"].tolist() == pytest.approx([expected] * 3), share


@pytest.mark.parametrize(
    ("length", "factor", "reported"), [(2, 1.0, False), (2.1, 1.0, True), (4, 2.0, False), (1, 1.0, False)]
)
def test_updates_shortened_to_less_than_half_are_reported(length: float, factor: float, reported: bool) -> None:
    updates = [update("a", [1, 0, 0]), update("b", [0, 1, 0]), update("c", [0, 0, length])]
    kept, remarks = clip_updates(CURRENT, updates, factor=factor)
    assert bool(remarks) == reported
    assert kept[2].params["image.w"][2] == pytest.approx(min(length, factor))
    assert kept[2].params["image.steps"] == 4


def test_krum_scores_are_sums_over_the_nearest_silos() -> None:
    positions = [0.0, 1.0, 2.5, 4.5, 5.0, 20.0, 23.0]
    updates = [update(str(n), [value, 0, 0]) for n, value in enumerate(positions)]
    share = 2 / 7  # two of seven may be faulty: each score is the sum of the three smallest squared distances
    scores = [sum(sorted((x - y) ** 2 for j, y in enumerate(positions) if j != i)[:3]) for i, x in enumerate(positions)]
    worst = sorted(range(7), key=lambda n: scores[n])[5:]
    assert set(multi_krum(CURRENT, updates, share=share)[1]) == {str(n) for n in worst} == {"5", "6"}
    tied = [update(str(n), [value, 0, 0]) for n, value in enumerate([0.0, 1.0, 3.0, 3.4, 3.5])]
    assert set(multi_krum(CURRENT, tied, share=0.2)[1]) == {"0"}


def test_rules_pass_their_settings_on() -> None:
    updates = [update(str(n), [value] * 3) for n, value in enumerate([0, 1, 2, 30])]
    assert robust_aggregation("trimmed_mean").average(CURRENT, updates)["image.w"].tolist() == [1.5] * 3
    assert robust_aggregation("trimmed_mean", faulty=0.0).average(CURRENT, updates)["image.w"].tolist() == [8.25] * 3
    ((kept, _),) = [robust_aggregation("clip", clip_factor=2.0).screened(CURRENT, updates)]
    assert kept[3].params["image.w"][0] == pytest.approx(3.0)
    seven = [update(str(n), [value] * 3) for n, value in enumerate([0, 1, 2, 30, 1, 2, 1, 1, 2])]
    assert set(robust_aggregation("multi_krum", faulty=0.1).screened(CURRENT, seven)[1]) == {"3"}
    assert robust_aggregation("multi_krum").screened(CURRENT, updates)[0] == []
    assert len(robust_aggregation("multi_krum").screened(CURRENT, seven[1:], 1)[0]) == 6
    heavy = [update("a", [4, 4, 4], weight=9.0), update("b", [0, 0, 0], weight=1.0)]
    assert robust_aggregation().average(CURRENT, heavy)["image.w"].tolist() == pytest.approx([3.6] * 3)
    assert robust_aggregation(weight_cap=0.6).average(CURRENT, heavy)["image.w"].tolist() == pytest.approx([2.4] * 3)


def test_krum_among_three_silos_keeps_all_of_them_if_none_may_be_faulty() -> None:
    updates = [update(str(n), [value, 0, 0]) for n, value in enumerate([0.0, 0.1, 9.0])]
    assert multi_krum(CURRENT, updates, share=0.0) == (updates, {})
    assert multi_krum(CURRENT, updates, share=0.01)[0] == []


def test_squared_distances_are_scaled_to_all_groups() -> None:
    both, pictures = update("a", [3, 0, 0], text=(2, 1)), update("b", [0, 4, 0])
    pictures = replace(pictures, weights={"image": 1.0, "text": 0.0})
    texts = replace(update("c", [0, 0, 0], text=(1, 1)), weights={"image": 0.0, "text": 1.0})
    squares = robust._squared_distances(CURRENT, [both, pictures, texts])
    far = 25 * 5 / 3  # two silos that trained no group together are as far apart as the farthest, once scaled
    expected = [[0, 25 * 5 / 3, 5 / 2], [25 * 5 / 3, 0, far], [5 / 2, far, 0]]
    np.testing.assert_allclose(squares, expected)


def test_an_update_of_length_zero_is_not_clipped() -> None:
    updates = [update("a", [0, 0, 0]), update("b", [0, 0, 0]), update("c", [0, 0, 3])]
    kept, remarks = clip_updates(CURRENT, updates[:2], factor=1.0)
    assert kept[0] is updates[0]
    assert remarks == {}
