"""Ten silos train together and some are faulty: the round's record reports them, and robust rules limit their influence.

Wrong labels are random within their silo. If a silo renames its classes consistently, the similarity of its items does not
change, and there is nothing to detect. `make test` has three faulty silos, `make test-slow` also a single one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest
import torch

from silohash.base.types import Arrays
from silohash.methods.federated.base import ServerState
from silohash.training.engines.port import WAIT_FOR_ALL, InProcess, Limits, SiloResult, SiloTask
from silohash.training.prepared import Prepared
from silohash.training.rounds import RoundSettings, mean_score, run_rounds, validation_scores
from silohash.training.worker import Worker
from tests.runs import Records, prepared, same_arrays

SILOS, TRAIN, HELD_BACK, ROUNDS = 10, 36, 12, 6
MARGIN = 0.06
"""Maximum loss of score (0 to 1) due to faulty silos under the appropriate rule."""

Change = Callable[[Arrays, Arrays, np.random.Generator], Arrays]
Labels = Callable[[np.ndarray, np.random.Generator], np.ndarray]


def not_a_number(sent: Arrays, trained: Arrays, generator: np.random.Generator) -> Arrays:
    return {**trained, "image.hash.bias": np.full_like(trained["image.hash.bias"], np.nan)}


def wrong_shape(sent: Arrays, trained: Arrays, generator: np.random.Generator) -> Arrays:
    return {**trained, "text.hash.weight": trained["text.hash.weight"][:-1]}


def huge(sent: Arrays, trained: Arrays, generator: np.random.Generator) -> Arrays:
    return {name: (sent[name] + 1000 * (array - sent[name])).astype(array.dtype) for name, array in trained.items()}


def random_parameters(sent: Arrays, trained: Arrays, generator: np.random.Generator) -> Arrays:
    return {name: generator.permutation(array.ravel()).reshape(array.shape) for name, array in trained.items()}


def random_labels(labels: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    return generator.permutation(labels)


def renamed_classes(labels: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    return np.roll(labels, 1, axis=1)


@dataclass(frozen=True)
class Fault:
    """A fault of a silo, in the parameters that it sends or in its labels.

    Attributes:
        named: Text by which the round's record reports the silo.
        rule: Robust rule that limits its influence.
        change: Function of the broadcast and the trained parameters that returns the parameters sent.
        labels: Function that returns wrong labels.
        named_from: First round in which the silo is reported.
    """

    named: str
    rule: str | None
    change: Change | None = None
    labels: Labels | None = None
    named_from: int = 0


FAULTS = {
    # Rejected before any rule applies: the average of the other silos is correct.
    "NaN parameters": Fault("NaN or infinite", None, change=not_a_number),
    "wrong shapes": Fault("has shape", None, change=wrong_shape),
    # Only the length of the update is wrong: it is shortened to that of the others.
    "huge updates": Fault("times", "clip", change=huge),
    # Direction and length are random: the median of each parameter comes from an honest silo.
    "random parameters": Fault("its update", "median", change=random_parameters),
    # The updates have a normal length, and are as far apart as those of honest but unequal silos, which multi-Krum would
    # leave out. Trimming each parameter limits them. Wrong labels show only once something has been learned.
    "random labels": Fault("labels do not match", "trimmed_mean", labels=random_labels, named_from=1),
}


class Faulty(InProcess):
    """An engine whose first silos send faulty updates."""

    def __init__(self, worker: Worker, faulty: int, change: Change) -> None:
        super().__init__(worker)
        self.faulty, self.change = faulty, change

    def send(self, tasks: Iterable[SiloTask], limits: Limits = WAIT_FOR_ALL) -> Iterator[SiloResult]:
        for task in tasks:
            result = self.worker.do(task)
            if task.kind == "train" and task.silo < self.faulty:
                generator = np.random.default_rng([task.silo, task.broadcast.round])
                params = self.change(task.broadcast.params, result.update.params, generator)
                result = replace(result, update=replace(result.update, params=params))
            yield result


def relabeled(inputs: Prepared, faulty: int, labels: Labels) -> Prepared:
    """Return the inputs with wrong labels in the first silos."""
    changed, size = inputs.arrays["labels"].copy(), TRAIN + HELD_BACK
    for silo in range(faulty):
        rows = slice(silo * size, (silo + 1) * size)
        changed[rows] = labels(changed[rows], np.random.default_rng(silo))
    return replace(inputs, arrays={**inputs.arrays, "labels": changed})


def unequal(inputs: Prepared) -> Prepared:
    """Return the inputs with items moved between silos, so that each has two or three main classes."""
    generator, size = np.random.default_rng(0), TRAIN + HELD_BACK
    classes = inputs.arrays["labels"].argmax(1)
    order = np.argsort(classes + generator.normal(0, 1.0, len(classes)))
    silos = [
        generator.permutation(order[number * size : (number + 1) * size]) for number in generator.permutation(SILOS)
    ]
    order, count = np.concatenate(silos), len(classes)
    arrays = {name: array[order] if len(array) == count else array for name, array in inputs.arrays.items()}
    return replace(inputs, arrays=arrays)


@cache
def trained(
    kind: str | None = None, faulty: int = 0, rule: str | None = None, *, even: bool = True
) -> tuple[float, Records, ServerState]:
    """Return the last model's score on all correct held-back labels, the records, and the server state."""
    torch.set_num_threads(1)
    fault = FAULTS.get(kind or "", Fault("", None, labels=renamed_classes if kind == "renamed classes" else None))
    inputs = prepared(
        (TRAIN,) * SILOS, validation=HELD_BACK, single=True, train={"learning_rate": 0.01},
        federated={"rounds": ROUNDS, **({"robust": {"rule": rule}} if rule else {})},
    )  # fmt: skip
    inputs = inputs if even else unequal(inputs)
    believed = relabeled(inputs, faulty, fault.labels) if fault.labels else inputs
    worker, listener, federated = Worker(believed, torch.device("cpu")), Records(), inputs.resolved.federated
    settings = RoundSettings(rounds=ROUNDS, silos=[name for name, _, _ in inputs.silos], chain=worker.chain)
    state = run_rounds(
        worker.first_state(), federated=federated, settings=settings, observers=[listener],
        engine=Faulty(worker, faulty, fault.change) if fault.change else InProcess(worker),
    )  # fmt: skip
    judge = InProcess(Worker(inputs, torch.device("cpu")))
    return mean_score(validation_scores(judge, federated, state, settings)) or 0.0, listener, state.server


def remarks(listener: Records) -> list[dict[str, list[str]]]:
    """Return the remarks about each silo, per round."""
    rounds = []
    for record in listener.records:
        found: dict[str, list[str]] = {silo.silo: [silo.rejected] for silo in record.silos if silo.rejected}
        for warning in record.warnings:
            silo, _, text = warning.partition(": ")
            found.setdefault(silo, []).append(text)
        rounds.append(found)
    return rounds


@pytest.mark.parametrize("faulty", [pytest.param(1, marks=pytest.mark.slow), 3])
@pytest.mark.parametrize("kind", FAULTS)
def test_faulty_silos_are_reported_and_have_little_influence(kind: str, faulty: int) -> None:
    healthy, _, _ = trained()
    score, listener, server = trained(kind, faulty, FAULTS[kind].rule)
    assert healthy > 0.9
    assert score > healthy - MARGIN
    assert all(np.isfinite(array).all() for array in server.params.values())
    for number, found in list(enumerate(remarks(listener)))[FAULTS[kind].named_from :]:
        named = {silo for silo, texts in found.items() if any(FAULTS[kind].named in text for text in texts)}
        assert {f"silo-{silo}" for silo in range(faulty)} <= named, (number, found)


@pytest.mark.parametrize("faulty", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_plain_averaging_is_ruined_by_huge_updates_but_reports_them(faulty: int) -> None:
    healthy, _, _ = trained()
    score, listener, _ = trained("huge updates", faulty)
    assert score < healthy - 0.4
    assert all({f"silo-{silo}" for silo in range(faulty)} <= found.keys() for found in remarks(listener))


@pytest.mark.parametrize("faulty", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_random_labels_are_reported_under_plain_averaging_too_but_harm_it_more(faulty: int) -> None:
    score, listener, _ = trained("random labels", faulty)
    assert score < trained("random labels", faulty, FAULTS["random labels"].rule)[0]
    found = remarks(listener)
    assert [set(one) for one in found[1:]] == [{f"silo-{silo}" for silo in range(faulty)}] * (ROUNDS - 1)


@pytest.mark.parametrize("even", [True, False], ids=["even shares", "few classes per silo"])
def test_honest_silos_are_not_reported(even: bool) -> None:
    assert remarks(trained(even=even)[1]) == [{}] * ROUNDS


def test_random_labels_are_distinguished_from_few_classes() -> None:
    found = remarks(trained("random labels", 3, even=False)[1])
    assert set(found[-1]) == {"silo-0", "silo-1", "silo-2"}


def test_classes_renamed_throughout_a_silo_change_nothing() -> None:
    _, listener, server = trained("renamed classes", 3)
    assert same_arrays(server.params, trained()[2].params)
    assert remarks(listener) == [{}] * ROUNDS
