"""What silos on other machines claim, and how long their updates are, is limited; honest rounds are left as they are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from silohash.methods.federated.shared_means import SharedMean, class_mean
from silohash.methods.local.base import class_group
from silohash.methods.message import Message
from silohash.run.config.load import load_resolved
from silohash.training.engines.port import InProcess
from silohash.training.prepared import Prepared
from silohash.training.rounds import HELD_BYTES, RoundSettings, run_rounds
from silohash.training.updates.bounds import Announced, Bounds, capped
from silohash.training.worker import Worker
from tests.runs import Records, prepared, same_arrays

CURRENT = {"image.w": np.zeros(3, np.float32), "text.w": np.zeros(3, np.float32)}
OWN = Announced(20, 4, np.array([12, 0, 3]))
MEANS = (class_mean("sum", "count", like="memory"), SharedMean("scored", "silos"))


def update(silo: int = 0, length: float = 1.0, weights: dict[str, float] | None = None, **values: Any) -> Message:
    return Message(
        "update", f"silo-{silo}", 0, params={"image.w": np.array([0, length, 0], np.float32), "text.w": np.zeros(3)},
        weights={"image": 20.0, "text": 8.0} if weights is None else weights, silo=silo, **values,
    )  # fmt: skip


def bounds(*, largest: float | None = None, limit: float = 5.0, announced: tuple[Announced, ...] = (OWN,)) -> Bounds:
    return Bounds(announced, MEANS, largest, limit)


def test_counts_of_a_message_are_at_most_those_announced() -> None:
    assert OWN.overclaim({"items": 20, "queries": 4, "other": 10**9}) is None
    assert OWN.overclaim({"items": 10**9}) == "it claims 1,000,000,000 items, but announced 20 before its first round"
    assert OWN.overclaim({"queries": 5}) == "it claims 5 queries, but announced 4 before its first round"
    assert Announced().overclaim({"items": 1}) is not None


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({}, None),
        ({"counts": {"items": 20}}, None),
        ({"counts": {"items": 21}}, "it claims 21 items"),
        ({"weights": {"image": 20.0, "text": 1e9}}, "its weight for text is 1e+09, but at most 20"),
        ({"weights": {class_group(0): 12.0, class_group(1): 0.0}}, None),
        ({"weights": {class_group(1): 1.0}}, f"its weight for {class_group(1)} is 1, but at most 0"),
        ({"sums": {"sum": np.zeros((3, 2)), "count": np.array([12.0, 0.0, 3.0])}}, None),
        ({"sums": {"sum": np.zeros((3, 2)), "count": np.array([12.0, 1.0, 3.0])}}, "count counts more items"),
        ({"sums": {"scored": np.asarray(0.0), "silos": np.asarray(20.0)}}, None),
        ({"sums": {"scored": np.asarray(0.0), "silos": np.asarray(21.0)}}, "silos counts more items"),
    ],
)
def test_claims_beyond_what_was_announced_are_rejected(given: dict[str, Any], reason: str | None) -> None:
    found = bounds().objection(update(**given))
    assert found is None if reason is None else str(found).startswith(reason)
    assert bounds(announced=()).objection(update(**given)) is None


def test_a_method_states_the_largest_weight_if_weights_do_not_count_items() -> None:
    heavy = update(weights={"image": 25.0, class_group(1): 25.0})
    assert bounds(largest=25.0).objection(heavy) is None
    assert "its weight for image is 25, but at most 24" in str(bounds(largest=24.0).objection(heavy))


def test_without_counts_of_labels_a_class_has_at_most_all_items() -> None:
    unlabeled = bounds(announced=(Announced(20, 4),))
    sums = {"sum": np.zeros((3, 2)), "count": np.array([20.0, 0.0, 3.0])}
    assert unlabeled.objection(update(sums=sums)) is None
    assert unlabeled.objection(update(sums={**sums, "count": np.array([21.0, 0.0, 3.0])})) is not None


@pytest.mark.parametrize(
    ("exchange", "limit", "expected"),
    [
        ({}, {}, (None, 5.0)),
        ({}, {"norm_limit": 0}, (None, 0.0)),
        ({}, {"norm_limit": 9}, (None, 9.0)),
        ({"privacy": {"unit": "record"}}, {}, (1.0, 5.0)),
        ({"privacy": {"unit": "silo"}}, {}, (1.0, 0.0)),
        ({"encryption": "ckks"}, {}, (None, 0.0)),
    ],
)
def test_limits_apply_by_default_where_silos_are_real_and_updates_are_seen(
    exchange: dict[str, Any], limit: dict[str, float], expected: tuple[float | None, float]
) -> None:
    given = prepared(
        exchange=exchange, validation=0, local={"name": "csq"}, evaluate={"validation": 0.0}, federated=limit
    )
    found, simulated = (
        next(link for link in replace(given, announced=own).chain().links if isinstance(link, Bounds))
        for own in ((OWN,) * 3, ())
    )
    assert (found.largest_weight, found.norm_limit) == expected
    assert simulated.norm_limit == limit.get("norm_limit", 0)


def test_updates_far_longer_than_the_median_are_refused() -> None:
    given = [update(0, 1.0), update(1, 2.0), update(2, 10.0), update(3, 1e6)]
    assert bounds().refused(CURRENT, given) == {
        3: "its update is 1.67e+05 times as long as the median silo's, and federated.norm_limit is 5"
    }
    assert bounds().refused(CURRENT, given[:3]) == {}, "exactly five times the median"
    assert bounds(limit=4.9).refused(CURRENT, given[:3]).keys() == {2}
    assert bounds(limit=0).refused(CURRENT, given) == {}


def test_updates_without_weight_or_with_fewer_than_two_others_are_not_compared() -> None:
    one, huge = update(0, 1.0), update(1, 1e6)
    assert bounds().refused(CURRENT, [one, huge]) == {}
    assert bounds().refused(CURRENT, [one, huge, update(2, 1.0, weights={"image": 0.0})]) == {}
    assert bounds().refused(CURRENT, [one, replace(huge, weights={"text": 1.0}), update(2), update(3)]) == {}
    assert bounds().refused(CURRENT, [update(0, 0.0), huge, update(2, 0.0)]) == {}, "the median is 0"


def average(federated: dict[str, Any], items: dict[str, int], **sections: Any) -> float:
    """Returns the average of two silos that send 0 and one that sends 1 and has a billion items."""
    given = prepared(federated=federated, **sections)
    found = capped(given.resolved, items)
    sent = [
        Message("update", name, 0, params={"image.w": np.full(3, value, np.float32)}, weights={"image": float(count)})
        for (name, count), value in zip(items.items(), (0.0, 0.0, 1.0), strict=False)
    ]
    return float(found.federated.aggregation.average({"image.w": np.zeros(3, np.float32)}, sent)["image.w"][0])


HUGE = {"a": 243, "b": 243, "c": 10**9}


@pytest.mark.parametrize(
    "federated",
    [{}, {"name": "fednova"}, {"robust": {"rule": "clip"}}, {"name": "compose", "methods": [{"name": "moon"}]}],
)
def test_a_silo_has_at_most_its_share_of_an_average(federated: dict[str, Any]) -> None:
    assert average(federated, HUGE) == pytest.approx(0.4)
    assert average({**federated, "weight_cap": 0.9}, HUGE) == pytest.approx(0.9)
    assert average({**federated, "weight_cap": 1.0}, HUGE) == pytest.approx(1.0)


def test_shares_below_the_cap_are_left_as_they_are() -> None:
    items = {"a": 7, "b": 11, "c": 12}
    assert average({}, items) == np.float32(12 / 30)
    given = prepared()
    assert capped(given.resolved, items).remarks == given.resolved.remarks
    assert (
        capped(given.resolved, HUGE)
        .remarks[-1]
        .startswith("c announced 1,000,000,000 of 1,000,000,486 training items.")
    )


@pytest.mark.parametrize(
    ("federated", "sections"),
    [
        ({"weight_cap": 1.0}, {}),
        ({"robust": {"rule": "median"}}, {}),
        ({"name": "fedproto"}, {}),
        ({"name": "fedridge", "reveal_items": True}, {"local": {"name": "centerap"}}),
        ({"fraction": 0.5}, {}),
        ({}, {"exchange": {"encryption": "ckks"}}),
    ],
)
def test_no_cap_where_the_config_or_the_methods_rule_it_out(
    federated: dict[str, Any], sections: dict[str, Any]
) -> None:
    given = prepared(federated=federated, **sections)
    assert capped(given.resolved, HUGE) is given.resolved


def test_two_silos_have_no_cap() -> None:
    assert capped(load := load_resolved({"data": {"name": "glyphs"}}), {"a": 1, "b": 9}) is load


class Lying(InProcess):
    """An engine whose last silo changes what it sends."""

    def __init__(self, worker: Worker, silo: int, **change: Any) -> None:
        super().__init__(worker)
        self.silo, self.change = silo, change

    def send(self, tasks, limits=None):
        for task in tasks:
            result = self.worker.do(task)
            kind, factor = self.change["kind"], self.change.get("factor", 1.0)
            if task.silo == self.silo and result.update.kind == kind:
                sent = {n: task.broadcast.params[n] + factor * (a - task.broadcast.params[n])
                        for n, a in result.update.params.items()}  # fmt: skip
                counts = {**result.update.counts, **self.change.get("counts", {})}
                weights = {**result.update.weights, **self.change.get("weights", {})}
                result = replace(result, update=replace(result.update, params=sent, counts=counts, weights=weights))
            yield result


def trained(given: Prepared, change: dict[str, Any] | None, silos: int = 4, held_bytes: int = HELD_BYTES):
    """Returns the state and the record after one round, in which the last silo sends something else."""
    worker, records = Worker(given, torch.device("cpu")), Records()
    engine = InProcess(worker) if change is None else Lying(worker, silos - 1, **change)
    settings = RoundSettings(
        rounds=1,
        silos=[name for name, _, _ in given.silos],
        chain=worker.chain,
        announced=given.announced,
        held_bytes=held_bytes,
    )
    start = worker.first_state()
    state = run_rounds(start, federated=given.resolved.federated, engine=engine, settings=settings, observers=[records])
    return state, records.records[0]


def announced(given: Prepared) -> Prepared:
    return replace(given, announced=tuple(Announced(train, held) for _, train, held in given.silos))


@pytest.mark.parametrize(
    ("federated", "change", "reason"),
    [
        ({"norm_limit": 5}, {"factor": 100.0}, "times as long as the median"),
        ({}, {"counts": {"items": 10**9}}, "it claims 1,000,000,000 items, but announced 12"),
        ({}, {"weights": {"image": 1e9}}, "its weight for image is 1e+09"),
        ({"name": "personal"}, {"factor": 100.0}, "times as long as the median"),
    ],
)
def test_a_refused_update_is_named_and_leaves_no_trace(
    federated: dict[str, Any], change: dict[str, Any], reason: str
) -> None:
    sizes = (20, 16, 14, 12)
    given = announced(prepared(sizes, federated={"rounds": 1, **federated}))
    state, record = trained(given, {"kind": "update", **change})
    assert [silo.rejected is None for silo in record.silos] == [True, True, True, False]
    assert reason in str(record.silos[3].rejected)
    assert not [warning for warning in record.warnings if warning.startswith("silo-3") and "update" in warning]
    assert 3 not in state.silos
    empty = replace(given, silos=[*given.silos[:3], ("silo-3", 0, 0)])
    assert same_arrays(state.server.params, trained(empty, None)[0].server.params)


def test_a_round_that_does_not_fit_into_memory_is_compared_too() -> None:
    given = prepared((20, 16, 14, 12), federated={"rounds": 1, "norm_limit": 5})
    expected, _ = trained(given, change := {"kind": "update", "factor": 100.0})
    state, record = trained(given, change, held_bytes=0)
    assert record.silos[3].rejected
    assert same_arrays(state.server.params, expected.server.params)


def test_more_queries_than_announced_do_not_choose_the_round() -> None:
    given = announced(prepared((20, 16, 14, 12), federated={"rounds": 1}))
    honest, expected = trained(given, None)
    state, record = trained(given, {"kind": "score", "counts": {"queries": 10**9}})
    said = "its validation score is not used: it claims 1,000,000,000 queries, but announced 6 before its first round"
    assert f"silo-3: {said}" in record.warnings
    assert record.validation != expected.validation
    assert same_arrays(state.server.params, honest.server.params)


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("fedcmr", {}),
        ("fedcmr", {"weighting": "softmax", "loss_factor": 5.0}),
        ("fedcafe", {"memory": "class_mean", "weighting": "memory", "min_count": 1}),
        ("fedbignns", {}),
        ("fednova", {}),
        ("fedhap", {"min_count": 1}),
        ("fedproto", {"min_count": 1, "prototype_weighting": "uniform"}),
        ("compose", {"methods": [{"name": "fedcmr", "weighting": "uniform"}]}),
    ],
)
def test_honest_silos_of_every_size_are_within_the_bounds(name: str, params: dict[str, Any]) -> None:
    given = announced(prepared((30, 20, 9, 2), federated={"name": name, "rounds": 1, **params}))
    ends = np.cumsum([train + held for _, train, held in given.silos])
    counts = [given.arrays["labels"][end - train - held : end - held].sum(0) for end, (_, train, held)
              in zip(ends, given.silos, strict=True)]  # fmt: skip
    own = [replace(one, labels=labels.astype(np.int64)) for one, labels in zip(given.announced, counts, strict=True)]
    _, record = trained(replace(given, announced=tuple(own)), None)
    assert [silo.rejected for silo in record.silos] == [None] * 4
