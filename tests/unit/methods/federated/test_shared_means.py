"""Means that travel beside parameters: impossible ones are rejected, and robust rules keep silos from moving them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from silohash.base.errors import MethodsConflict, WrongValue
from silohash.base.types import Arrays
from silohash.methods.federated import FEDERATED_METHODS
from silohash.methods.federated.robust import robust_aggregation
from silohash.methods.federated.shared_means import SharedMean, class_mean, median_mean, objection, with_median_means
from silohash.methods.message import Message
from silohash.training.checkpoint import RunState
from silohash.training.engines.port import WAIT_FOR_ALL, InProcess, Limits, SiloResult, SiloTask
from silohash.training.rounds import RoundSettings, run_rounds
from silohash.training.worker import Worker
from tests.runs import Records, prepared, same_arrays

MEANS = (class_mean("sum", "count", like="table"),)
TABLE = {"table": np.zeros((2, 3))}


def message(sums: object, counts: object, *, items: int = 10, sender: str = "a", **more: object) -> Message:
    arrays = {"sum": np.asarray(sums, np.float32), "count": np.asarray(counts, np.float32)}
    added = {name: np.asarray(value, np.float32) for name, value in more.items()}
    return Message(kind="update", sender=sender, round=0, sums={**arrays, **added}, counts={"items": items})


@pytest.mark.parametrize(
    ("sums", "counts", "expected"),
    [
        ([[4, -4, 0], [0, 0, 0]], [4, 0], None),
        ([[4.001, 0, 0], [0, 0, 0]], [4, 0], None),
        ([[4.01, 0, 0], [0, 0, 0]], [4, 0], "sum holds means outside -1 to 1"),
        ([[0, 0, -1e3], [0, 0, 0]], [4, 0], "sum holds means outside -1 to 1"),
        ([[0, 0, 0], [0, 0, 0.1]], [4, 0], "sum holds means outside -1 to 1"),
        ([[0, 0, 0], [0, 0, 0]], [10, 0], None),
        ([[0, 0, 0], [0, 0, 0]], [11, 0], "count counts 11 items of one class, but the silo has 10"),
        ([[0, 0, 0], [0, 0, 0]], [4, -1], "count holds negative counts"),
        ([[0, 0, 0]], [4, 0], "sum has shape (1, 3) instead of (2, 3)"),
        ([[0, 0, 0], [0, 0, 0]], 4, "count has shape () instead of (2,)"),
    ],
)
def test_impossible_class_sums_are_named(sums: object, counts: object, expected: str | None) -> None:
    assert objection(message(sums, counts), MEANS, TABLE) == expected


def test_values_of_other_names_and_without_counts_are_named() -> None:
    zeros = np.zeros((2, 3))
    other = message(zeros, [0, 0], **{"sum/text": zeros})
    assert objection(other, MEANS, TABLE) == "sum/text is in neither the means nor the template of the method"
    alone = replace(other, sums={"sum": zeros})
    assert objection(alone, MEANS, TABLE) == "sum comes without count"
    assert objection(replace(other, sums={}), MEANS, TABLE) is None
    counted = replace(other, sums={"count": np.zeros(2)})
    assert objection(counted, MEANS, TABLE) == "count comes without sum"


def test_values_of_other_types_are_named() -> None:
    sums = {"sum": np.zeros((2, 3), np.int64), "count": np.zeros(2)}
    given = replace(message(0, 0), sums=sums)
    assert objection(given, MEANS, TABLE) == "sum has type int64 instead of float32 or float64"
    mean = (replace(MEANS[0], section="records"),)
    rows, mask = np.zeros((2, 3), np.float32), np.zeros(2, np.bool_)
    for records, expected in (
        ({"sum": rows, "count": mask}, None),
        ({"sum": rows.astype(np.float64), "count": mask}, "sum has type float64 instead of float32"),
        ({"sum": rows, "count": mask.astype(np.int64)}, "count has type int64 instead of bool"),
    ):
        assert objection(replace(given, sums={}, records=records), mean, TABLE) == expected


def test_all_parts_of_a_mean_with_one_count_are_needed() -> None:
    parts = (SharedMean("judge", "judges", like="judge"),)
    extras = {"judge/a": np.zeros(2), "judge/b": np.zeros(3)}
    sums = {"judge/a": np.zeros(2), "judge/b": np.zeros(3), "judges": np.asarray(1.0)}
    whole = Message(kind="update", sender="a", round=0, sums=sums)
    assert objection(whole, parts, extras) is None
    less = replace(whole, sums={name: array for name, array in sums.items() if name != "judge/b"})
    assert objection(less, parts, extras) == "judge/b is missing"


def test_sums_per_parameter_group_go_with_its_weight() -> None:
    mean = (SharedMean("steps", "weight", per_group=True),)
    sums = {"steps/image": np.asarray(12.0), "weight/image": np.asarray(4.0)}
    whole = Message(kind="update", sender="a", round=0, sums=sums, weights={"image": 4.0, "text": 0.0})
    assert objection(whole, mean, {}) is None
    assert objection(replace(whole, weights={"image": 4.0, "text": 1.0}), mean, {}) == "steps/text is missing"
    common = replace(whole, sums={"steps/image": sums["steps/image"], "weight": sums["weight/image"]})
    assert objection(common, mean, {}) == "weight/image is missing"
    assert objection(replace(whole, weights={"image": 5.0}), mean, {}) == "weight/image is 4, but the weight is 5"


def test_unit_rows_and_scalars_have_limits_of_their_own() -> None:
    unit = (replace(MEANS[0], unit=True),)
    assert objection(message([[0.8, 0.6, 0], [0, 0, 0]], [1, 0]), unit, TABLE) is None
    assert objection(message([[0.8, 0.8, 0], [0, 0, 0]], [1, 0]), unit, TABLE) == "sum holds means longer than 1"
    share = (SharedMean("sum", "count", low=0.0, high=1.0),)
    for value, expected in ((5, None), (0, None), (-1, "outside 0 to 1"), (11, "outside 0 to 1")):
        found = objection(message(value, 10), share, {})
        assert (found is None) if expected is None else (expected in str(found))
    assert objection(message(-5, 0), (SharedMean("sum", "count"),), {}) is None


def test_where_silos_count_alike_none_can_count_twice() -> None:
    once = (replace(MEANS[0], most=1.0),)
    assert objection(message([[1, -1, 0], [0, 0, 0]], [1, 0]), once, TABLE) is None
    twice = objection(message([[1, -1, 0], [0, 0, 0]], [2, 0]), once, TABLE)
    assert twice == "count is 2, but a silo can count 1 at most"
    assert objection(message([[1, -1, 0], [0, 0, 0]], [2, 0]), MEANS, TABLE) is None
    scalar = (SharedMean("sum", "count", most=1.0),)
    assert objection(message(5, 1), scalar, {}) is None
    assert objection(message(5, 3), scalar, {}) == "count is 3, but a silo can count 1 at most"


@pytest.mark.parametrize("name", ["fedhap", "fedproto", "fedproc", "plfedcmh"])
def test_methods_limit_counts_if_silos_count_alike(name: str) -> None:
    kind, key = FEDERATED_METHODS.resolve(name), "weighting" if name == "fedhap" else "prototype_weighting"
    limits = {way: kind(kind.Params(**{key: way})).traits.means[0].most for way in ("uniform", "examples")}
    assert limits == {"uniform": 1.0, "examples": np.inf}


def test_the_median_is_that_of_the_silos_with_a_row() -> None:
    generator = np.random.default_rng(0)
    sums, counts = generator.normal(size=(6, 4, 3)), generator.integers(0, 3, (6, 4)).astype(float)
    found, held = median_mean(list(sums), list(counts), 3)
    for row in range(4):
        having = [n for n in range(6) if counts[n, row] > 0]
        enough = len(having) >= 3
        assert held[:, row].tolist() == [float(n in having and enough) for n in range(6)]
        for column in range(3):
            values = sorted(sums[n, row, column] / counts[n, row] for n in having)
            middle = (values[(len(values) - 1) // 2] + values[len(values) // 2]) / 2 if enough else 0.0
            assert found[row, column] == pytest.approx(middle)
    scalar, there = median_mean([np.asarray(v) for v in (2.0, 9.0, 8.0)], [np.asarray(v) for v in (1, 3, 0)], 1)
    assert (float(scalar), there.tolist()) == (2.5, [1.0, 1.0, 0.0])
    rows, _ = median_mean([np.asarray([[3.0, 4.0]])], [np.asarray([1.0])], 1, unit=True)
    np.testing.assert_allclose(rows, [[0.6, 0.8]])


def test_means_are_replaced_by_their_median_if_2f_plus_1_silos_have_them() -> None:
    given = [message([[n, 0, 0], [n, n, 0]], [2, 2 * (n < 2)], sender=str(n)) for n in range(3)]
    found, remarks = with_median_means(given, MEANS, 1)
    assert remarks == {}
    for each in found:
        assert each.sums["sum"].tolist() == [[0.5, 0, 0], [0, 0, 0]]
        assert each.sums["count"].tolist() == [1, 0]
    found, remarks = with_median_means(given[:2], MEANS, 1)
    assert "fewer than 3 silos sent the same rows of sum" in remarks["federated.robust"]
    assert all(not each.sums["sum"].any() and not each.sums["count"].any() for each in found)


def test_values_that_are_not_declared_are_dropped_or_refused() -> None:
    honest = [message(np.zeros((2, 3)), [1, 1]) for _ in range(3)]
    adding = message(np.zeros((2, 3)), [1, 1], other=1.0)
    found, _ = with_median_means([*honest, adding], MEANS, 1)
    assert set(found[3].sums) == {"sum", "count"}
    with pytest.raises(MethodsConflict, match="other"):
        with_median_means([*honest, adding, adding], MEANS, 1)


def test_rejected_silos_are_among_the_faulty_ones() -> None:
    protection = robust_aggregation("clip", faulty=0.4).protecting(MEANS).protection
    given = [message([[1, 1, 1], [1, 1, 1]], [1, 1]) for _ in range(3)]
    assert not protection(given[:2], 0)[0][0].sums["count"].any()  # one of two may be faulty
    assert protection(given[:2], 1)[0][0].sums["count"].any() == np.False_  # two of three, of which one is known
    assert protection(given, 2)[0][0].sums["count"].all()
    assert robust_aggregation().protecting(MEANS).protection(given, 0) == (given, {})


Change = Callable[[Arrays], Arrays]
SILOS, FAULTY = 10, 3


class Lying(InProcess):
    """An engine in which the first silos change what they send beside the parameters."""

    def __init__(self, worker: Worker, faulty: int, change: Change) -> None:
        super().__init__(worker)
        self.faulty, self.change = faulty, change

    def send(self, tasks: Iterable[SiloTask], limits: Limits = WAIT_FOR_ALL) -> Iterator[SiloResult]:
        for task in tasks:
            result = self.worker.do(task)
            lies = task.kind in {"train", "finish"} and result.silo < self.faulty
            update = result.update
            if lies:
                sums, records = self.change(dict(update.sums)), self.change(dict(update.records))
                update = replace(update, sums=sums, records=records)
            yield replace(result, update=update)


def huge(values: Arrays) -> Arrays:
    """Send sums of -1000."""
    summed = ("prototype_sum", "sum", "memory", "effective", "discriminator")
    return {n: np.full_like(a, -1e3) if n.split("/")[0] in summed else a for n, a in values.items()}


def opposite(values: Arrays) -> Arrays:
    """Send the opposite of every sum, which is a possible value."""
    summed = ("prototype_sum", "sum", "memory", "discriminator")
    return {n: -a if n.split("/")[0] in summed else a for n, a in values.items()}


def trained(name: str, faulty: int, change: Change, rule: str | None, **given: Any) -> tuple[RunState, Records]:
    torch.set_num_threads(1)
    robust = {"robust": {"rule": rule, "faulty": 0.3}} if rule else {}
    inputs = prepared(
        (30,) * SILOS, single=True, validation=2, train={"learning_rate": 0.01},
        federated={"name": name, "rounds": 2, "min_count": 1, **robust, **given},
    )  # fmt: skip
    worker, listener = Worker(inputs, torch.device("cpu")), Records()
    settings = RoundSettings(rounds=2, silos=[silo for silo, _, _ in inputs.silos], validate=False, chain=worker.chain)
    state = run_rounds(
        worker.first_state(), federated=inputs.resolved.federated, engine=Lying(worker, faulty, change),
        settings=settings, observers=[listener],
    )  # fmt: skip
    return state, listener


METHODS = [
    ("fedhap", {}, "prototypes"),
    ("fedproc", {}, "prototypes/fused"),
    ("fedproto", {}, "prototypes/fused"),
    ("fedcafe", {}, "memory"),
    ("fedcafe", {"memory": "class_mean"}, "memory"),
]


def agreement(table: np.ndarray, other: np.ndarray) -> float:
    """Return the mean cosine of the rows of two tables."""
    one, two = table.astype(float), other.astype(float)
    lengths = np.linalg.norm(one, axis=1) * np.linalg.norm(two, axis=1)
    return float(((one * two).sum(1) / np.maximum(lengths, 1e-12)).mean())


@pytest.mark.parametrize(("name", "given", "extra"), METHODS, ids=lambda value: str(value))
def test_impossible_values_are_rejected_under_every_aggregation(name: str, given: dict, extra: str) -> None:
    _, listener = trained(name, 1, huge, None, **given)
    for record in listener.records:
        assert "means outside -1 to 1" in str(record.silos[0].rejected)
        assert [silo.rejected for silo in record.silos[1:]] == [None] * (SILOS - 1)


@pytest.mark.parametrize(("name", "given", "extra"), METHODS, ids=lambda value: str(value))
def test_lies_of_a_third_do_not_turn_the_common_table(name: str, given: dict, extra: str) -> None:
    honest, _ = trained(name, 0, opposite, "median", **given)
    attacked, listener = trained(name, FAULTY, opposite, "median", **given)
    assert all(silo.rejected is None for record in listener.records for silo in record.silos)
    assert honest.server.extras[extra].any(axis=1).all()
    assert agreement(honest.server.extras[extra], attacked.server.extras[extra]) > 0.7


def test_lies_within_a_composition_are_limited_too() -> None:
    methods = [{"name": "fedhap", "weighting": "examples", "min_count": 1}, {"name": "fedproc", "min_count": 1}]
    inputs = prepared(
        (8,) * 3, federated={"name": "compose", "methods": methods, "robust": {"rule": "clip"}}, validation=0
    )
    names = [(mean.sums, mean.like) for mean in inputs.resolved.federated.traits.means]
    assert names == [
        ("fedhap/prototype_sum", "fedhap/prototypes"), ("fedhap/discriminator", "fedhap/discriminator"),
        ("fedproc/prototype_sum", "fedproc/prototypes"),
    ]  # fmt: skip


def test_no_prototype_is_made_of_too_few_silos_and_the_record_says_so() -> None:
    state, listener = trained("fedhap", 0, opposite, "median", min_count=31)
    assert not state.server.extras["mask"].any()
    state, listener = trained("fedproc", FAULTY + 1, lambda values: {}, "median")
    assert not state.server.extras["mask/fused"].any()
    assert any("fewer than 7 silos sent the same rows" in text for r in listener.records for text in r.warnings)


def test_lengths_of_updates_cannot_be_claimed_under_a_rule() -> None:
    def long(values: Arrays) -> Arrays:
        return {n: a * 1e6 if n.startswith("effective/") else a for n, a in values.items()}

    honest, _ = nova(0, long)
    attacked, _ = nova(FAULTY, long)
    assert same_arrays(honest.server.params, attacked.server.params)


def nova(faulty: int, change: Change) -> tuple[RunState, Records]:
    inputs = prepared((20,) * SILOS, validation=0, federated={"name": "fednova", "robust": {"rule": "median"}})
    worker, listener = Worker(inputs, torch.device("cpu")), Records()
    settings = RoundSettings(rounds=1, silos=[silo for silo, _, _ in inputs.silos], validate=False, chain=worker.chain)
    state = run_rounds(
        worker.first_state(), federated=inputs.resolved.federated, engine=Lying(worker, faulty, change),
        settings=settings, observers=[listener],
    )  # fmt: skip
    return state, listener


def test_memories_without_a_common_order_exclude_robust_rules() -> None:
    with pytest.raises(WrongValue, match=r"federated.robust"):
        prepared(federated={"name": "fedcafe", "memory": "reference", "robust": {"rule": "median"}})


@pytest.mark.parametrize("rule", ["clip", "multi_krum", "trimmed_mean"])
def test_rules_on_parameters_have_no_effect_where_only_means_are_sent(rule: str) -> None:
    with pytest.raises(WrongValue, match=r"federated.robust"):
        prepared((8,) * 10, federated={"name": "fedproto", "robust": {"rule": rule}})
