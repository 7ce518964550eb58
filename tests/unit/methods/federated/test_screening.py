"""Refused updates, and silos that are reported for updates or scores. training/test_rounds.py tests the loop's side."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from benchmarks.mislabeled_silos import BY, found, sizes_of, wrongly_named

from silohash.base.types import ValidationBy
from silohash.methods.federated import screening
from silohash.methods.federated.base import FederatedMethod, ServerState
from silohash.methods.federated.screening import Outliers, mislabeled_silos, refusal
from silohash.methods.federated.shared_means import class_mean
from silohash.methods.message import Message
from silohash.methods.traits import Traits
from tests.unit.methods.federated.helpers import CURRENT, screened, update

SERVER = ServerState(params={"image.w": np.zeros((2, 3), np.float32)}, extras={"mean": np.zeros((2, 4))})
PLAIN = FederatedMethod(None)
GOOD = {"image.w": np.ones((2, 3), np.float32)}
BAD = np.asarray([[1.0, np.nan]])


def sent(**sections: object) -> Message:
    whole = {"kind": "update", "round": 0, "params": GOOD, "weights": {"image": 1.0}, **sections}
    return Message(sender="a", **whole)


class Recording(FederatedMethod):
    """A method that sends sums per modality in its second round, and in every round a record."""

    traits = Traits(means=(class_mean("sum", "count", like="mean"),))

    def template(self, server: ServerState, *, kind: str, round: int) -> Message:  # noqa: A002
        """Return two sums per modality, and a record."""
        message = super().template(server, kind=kind, round=round)
        if kind == "statistics":
            return message
        sums = {f"{m}/{name}": np.zeros(2) for m in ("image", "text") for name in ("x", "y")} if round else {}
        return replace(message, sums=sums, records={"r": np.zeros(2)})


@pytest.mark.parametrize(
    ("sections", "kept", "reason"),
    [
        ({}, {}, None),
        ({"weights": {"image": 0.0}, "params": {}}, {"count": np.asarray(3)}, None),
        ({}, {"model": np.zeros(2)}, None),
        ({"records": {"steps": np.asarray([3])}}, {}, "steps is in neither the means nor the template of the method"),
        ({"records": {"r": BAD}}, {}, "records/r holds NaN or infinite values"),
        ({"extras": {"e": BAD}}, {}, "extras/e holds NaN or infinite values"),
        ({}, {"model/w": BAD}, "its stored model/w holds NaN or infinite values"),
        ({"params": {"text.w": np.zeros(1)}}, {}, "text.w is not a parameter of the global model"),
        (
            {"params": {"image.w": np.zeros((2, 3))}},
            {},
            "image.w has type float64, but float32 in the global model",
        ),
        ({"params": {}}, {}, "it has a weight for the parameters of image, and does not send them"),
        ({"weights": {"image": 1e16}}, {}, "its weights are {'image': 1e+16}"),
        ({"counts": {"items": 2**53}}, {}, None),
        ({"counts": {"items": 2**53 + 1}}, {}, "its count of items is not between 0 and 2^53"),
        ({"counts": {"items": -1}}, {}, "its count of items is not between 0 and 2^53"),
        ({"counts": {"items": 10**400}}, {}, "its count of items is not between 0 and 2^53"),
        ({"kind": "statistics"}, {}, "its statistics are empty"),
        ({"params": {"image.w": np.zeros((3, 2))}}, {}, "image.w has shape (3, 2), but (2, 3) in the global model"),
        ({"weights": {"image": -0.5}}, {}, "its weights are {'image': -0.5}"),
        ({"weights": {"image": float("inf")}}, {}, "its weights are {'image': inf}"),
    ],
)
def test_reasons(sections: dict, kept: dict, reason: str | None) -> None:
    assert refusal(sent(**sections), kept, SERVER, PLAIN) == reason


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_every_value_must_be_finite(dtype: type) -> None:
    def found(values: object) -> str | None:
        return refusal(sent(extras={"r": np.asarray(values, dtype)}), {}, SERVER, PLAIN)

    largest = np.finfo(dtype).max
    for finite in ([], [largest, largest], [largest, -largest], np.full((3, 2), largest, dtype).T):
        assert found(finite) is None
    for broken in ([np.inf, 1], [np.inf, -np.inf], [1, np.nan], [[largest, 0], [largest, -np.inf]]):
        assert found(broken) is not None


RECORD = {"records": {"r": np.zeros(2)}}
SUMS = {f"{modality}/{name}": np.ones(2) for modality in ("image", "text") for name in ("x", "y")}


def test_means_must_be_possible() -> None:
    possible = {"sum": np.full((2, 4), 3.0), "count": np.asarray([3.0, 3.0])}
    given = {"counts": {"items": 5}, **RECORD}
    assert refusal(sent(sums=possible, **given), {}, SERVER, Recording(None)) is None
    wrong = {**possible, "sum": np.full((2, 4), 4.0)}
    assert refusal(sent(sums=wrong, **given), {}, SERVER, Recording(None)) == "sum holds means outside -1 to 1"


@pytest.mark.parametrize(
    ("sections", "reason"),
    [
        ({**RECORD}, None),
        ({"records": {}}, "r is missing"),
        ({"records": {}, "counts": {"items": 0}}, None),
        ({"records": {"r": np.zeros(3)}}, "r is float64 (3,) instead of float64 (2,)"),
        ({"records": {"r": np.zeros(2, np.int64)}}, "r is int64 (2,) instead of float64 (2,)"),
        (
            {"records": {**RECORD["records"], "silo": np.asarray(1)}},
            "silo is in neither the means nor the template of the method",
        ),
        ({**RECORD, "sums": SUMS}, "image/x is in neither the means nor the template of the method"),
        ({**RECORD, "round": 1}, "image/x is missing"),
        ({**RECORD, "round": 1, "sums": SUMS}, None),
        ({**RECORD, "round": 1, "sums": {n: a for n, a in SUMS.items() if n.startswith("image/")}}, None),
        ({**RECORD, "round": 1, "sums": {n: a for n, a in SUMS.items() if n != "text/x"}}, "text/x is missing"),
        ({**RECORD, "round": 1, "sums": {**SUMS, "text/x": np.ones((2, 2))}}, "text/x is float64 (2, 2) instead of"),
        ({"kind": "statistics", "round": 1, "sums": SUMS}, "image/x is in neither the means nor the template of the method"),
        ({"kind": "statistics", "sums": {"sum": np.zeros((2, 4)), "count": np.zeros(2)}}, None),
    ],
)  # fmt: skip
def test_values_beside_means_are_those_of_the_template(sections: dict, reason: str | None) -> None:
    found = refusal(sent(**{"counts": {"items": 5}, **sections}), {}, SERVER, Recording(None))
    assert found == reason if reason is None else str(found).startswith(reason)


def scored(
    sender: str, auc: float | None, deviation: float = 0.15, *, items: int = 40, chance: float = 0.1, **counts: int
) -> Message:
    areas = {} if auc is None else {"auc": auc, "auc_error": deviation / math.sqrt(items)}
    scalars = {"score": 0.5, "chance": chance, **areas}
    return Message("score", sender, 0, scalars=scalars, counts={"queries": items, "judged": items, **counts})


HONEST = [scored("a", 0.9), scored("b", 0.86), scored("few", 0.95, items=12), scored("hard", 0.82, items=1000)]


def test_misfits_are_named_by_their_skill_and_by_what_was_compared() -> None:
    assert mislabeled_silos(HONEST) == mislabeled_silos(HONEST, "pairs") == {}
    assert mislabeled_silos([*HONEST, scored("half", 0.69)]) == {}
    by_pairs = mislabeled_silos([*HONEST, scored("half", 0.69, items=300)], "pairs")
    assert by_pairs["half"].startswith("its pairs do not match the others")
    assert by_pairs["half"].endswith("with 53% of the median silo's skill")
    by_labels = mislabeled_silos([*HONEST, scored("wrong", 0.45)])
    assert by_labels["wrong"].startswith("its labels do not match the others")
    assert by_labels["wrong"].endswith("with 0% of the median silo's skill")
    more = [scored(letter, 0.9) for letter in "cdef"]
    assert set(mislabeled_silos([*HONEST, *more, *(scored(str(n), 0.5) for n in range(3))])) == {"0", "1", "2"}


def test_the_level_is_shared_among_rounds_and_depends_on_the_number_of_items() -> None:
    for items, rounds, named in ((40, 1, True), (40, 10_000, False), (400, 10_000, True), (12, 1, False)):
        found = mislabeled_silos([*HONEST, scored("wrong", 0.55, items=items)], rounds=rounds)
        assert set(found) == ({"wrong"} if named else set()), (items, rounds)


@pytest.mark.parametrize(
    "unjudged",
    [scored("few", 0.4, items=9), scored("few queries", 0.4, queries=9), scored("damaged", 0.4, judged=-(10**400)),
     scored("perfect", 1.0, 0.0, judged=10**400), scored("no area", None),
     scored("nearly all relevant", 0.4, chance=0.81)],
    ids=lambda message: message.sender,
)  # fmt: skip
def test_silos_whose_score_tells_too_little_are_no_misfits(unjudged: Message) -> None:
    assert mislabeled_silos([*HONEST, unjudged]) == {}
    assert mislabeled_silos([unjudged] * 3) == {}


def test_no_silo_is_reported_before_something_is_learned_or_among_two() -> None:
    assert mislabeled_silos([scored("a", 0.59), scored("b", 0.59), scored("c", 0.3)]) == {}
    assert mislabeled_silos([scored("a", 0.9), scored("b", 0.4)]) == {}


@pytest.mark.parametrize("by", BY)
@pytest.mark.parametrize(("silos", "items"), [(2, 30), (3, 10), (3, 300), (10, 10), (10, None), (50, 10)])
def test_at_most_one_of_a_hundred_simulated_clean_runs_names_a_silo(
    by: ValidationBy, silos: int, items: int | None
) -> None:
    assert wrongly_named(sizes_of(silos, items, 100), by) <= 1


@pytest.mark.parametrize(("by", "items", "noise"), [("pairs", 300, 1.0), ("pairs", 300, 0.5), ("labels", 100, 1.0)])
def test_a_silo_with_half_its_pairs_or_labels_shuffled_is_named_in_95_of_100_simulated_runs(
    by: ValidationBy, items: int, noise: float
) -> None:
    percentage, skill = found(items, by, noise, 100, silos=5)
    assert percentage >= 95
    assert skill > 0.5


def test_suspicions_name_large_moves_and_opposite_ones() -> None:
    updates = [update(str(n), [1, 0.1 * n, 0]) for n in range(4)]
    assert screened(CURRENT, updates).remarks() == {}
    assert "49 times" in screened(CURRENT, [*updates, update("large", [50, 0, 0])]).remarks()["large"]
    assert "away" in screened(CURRENT, [*updates, update("other", [-1, 0, 0])]).remarks()["other"]


@pytest.mark.parametrize(("length", "reported"), [(4.9, False), (5.1, True)])
def test_updates_beyond_five_times_the_median_are_reported(length: float, reported: bool) -> None:
    updates = [*(update(str(n), [1, 0, 0]) for n in range(4)), update("far", [length, 0, 0])]
    assert bool(screened(CURRENT, updates).remarks()) == reported


@pytest.mark.parametrize(("cosine", "reported"), [(-0.15, False), (-0.25, True)])
def test_updates_against_the_others_are_reported(cosine: float, reported: bool) -> None:
    turned = [cosine, math.sqrt(1 - cosine**2), 0]
    updates = [*(update(str(n), [1, 0, 0]) for n in range(4)), update("turned", turned)]
    assert set(screened(CURRENT, updates).remarks()) == ({"turned"} if reported else set())
    assert screened(CURRENT, updates[3:]).remarks() == {}


@pytest.mark.parametrize(
    ("by", "auc", "items", "chance", "reported"),
    [
        ("labels", 0.5, 10, 0.1, True),
        ("labels", 0.5, 9, 0.1, False),
        ("labels", 0.67, 400, 0.1, True),  # a skill of 0.34, significantly below half of 0.8
        ("labels", 0.71, 40_000, 0.1, False),  # 0.42 is above it
        ("pairs", 0.7, 400, 0.1, True),  # 0.4 is significantly below three quarters of 0.8
        ("pairs", 0.81, 40_000, 0.1, False),
        ("labels", 0.5, 40, 0.8, True),
        ("labels", 0.5, 40, 0.85, False),
    ],
)
def test_silos_are_reported_significantly_below_a_share_of_the_typical_skill(
    by: ValidationBy, auc: float, items: int, chance: float, reported: bool
) -> None:
    honest = [scored(name, 0.9) for name in "abc"]
    assert bool(mislabeled_silos([*honest, scored("x", auc, items=items, chance=chance)], by)) == reported


@pytest.mark.parametrize(("typical", "reported"), [(0.59, False), (0.61, True)])
def test_nobody_is_reported_before_the_typical_skill_reaches_a_fifth(typical: float, reported: bool) -> None:
    messages = [*(scored(name, typical) for name in "abc"), scored("x", 0.4)]
    assert bool(mislabeled_silos(messages)) == reported


def test_three_silos_are_enough_to_find_mislabeled_ones() -> None:
    three = [scored("a", 0.9), scored("b", 0.9), scored("c", 0.4)]
    assert set(mislabeled_silos(three)) == {"c"}
    assert mislabeled_silos(three[1:]) == {}


def products(current: dict, updates: list[Message]) -> list:
    sketches = np.stack(screened(current, updates).sketches)
    return (sketches @ sketches.T).round(3).tolist()


def test_large_arrays_are_sampled_at_even_spacing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(screening, "SAMPLED_VALUES", 2)
    current = {"image.w": np.zeros(6, np.float32)}
    updates = [
        Message("update", name, 0, params={"image.w": np.asarray(values, np.float32)}, weights={"image": 1.0})
        for name, values in (("a", [1, 9, 9, 2, 9, 9]), ("b", [3, 0, 0, 5, 0, 0]))
    ]
    assert products(current, updates) == [[15.0, 39.0], [39.0, 102.0]]
    monkeypatch.setattr(screening, "SAMPLED_VALUES", 7)
    assert products(current, updates)[0] == [5 + 4 * 81, 13.0]


def test_sketches_of_many_silos_share_the_memory_of_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(screening, "SKETCH_BYTES", 4 * 4 * 40)
    current = {"image.w": np.zeros(1000, np.float32), "text.w": np.zeros(1000, np.float32)}
    sent, weights = {name: np.ones(1000, np.float32) for name in current}, {"image": 1.0, "text": 1.0}
    updates = [Message("update", str(n), 0, params=sent, weights=weights) for n in range(10)]
    assert np.allclose(products(current, updates), 2000.0)
    sizes = []
    for silos in (4, 10, 20):
        seen = Outliers(current, silos)
        seen.add(updates[0])
        sizes.append(silos * seen.sketches[0].nbytes)
    assert max(sizes) <= 1.3 * screening.SKETCH_BYTES
    assert screened(current, updates).remarks() == {}
    against = Message("update", "against", 0, params={n: -a for n, a in sent.items()}, weights=weights)
    assert set(screened(current, [*updates, against]).remarks()) == {"against"}


def test_parameters_that_a_silo_does_not_send_are_left_out_of_its_products() -> None:
    whole, part = update("a", [1, 2, 2], text=(2, 1)), update("b", [2, 0, 1])
    part = replace(part, params={"image.w": part.params["image.w"]})
    assert products(CURRENT, [whole, part]) == [[10.0, 4.0], [4.0, 5.0]]


@pytest.mark.parametrize("size", [1.0, 0.1])
def test_three_silos_are_enough_to_find_one_that_points_away(size: float) -> None:
    updates = [update("a", [size, 0, 0]), update("b", [size, 0, 0]), update("c", [-size, 0, 0])]
    assert set(screened(CURRENT, updates).remarks()) == {"c"}
    turned = [-0.25 * size, size * math.sqrt(1 - 0.25**2), 0]
    assert set(screened(CURRENT, [*updates[:2], update("c", turned)]).remarks()) == {"c"}


def test_nothing_is_suspicious_while_most_silos_stand_still() -> None:
    still = [update(str(n), [0, 0, 0]) for n in range(3)]
    assert screened(CURRENT, [*still, update("moved", [5, 0, 0])]).remarks() == {}
