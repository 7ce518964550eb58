"""One dishonest silo of five: what each attack costs under each rule, and how often a backdoor opens.

    python benchmarks/poisoning.py [--rules RULE...] [--attacks ATTACK...] [--seeds N]
    python benchmarks/poisoning.py --lengths

The run is that of ``recipes/poisoning.toml``. The first silo is dishonest in every round. The first table holds what an
attack costs, in points of mAP@all (percent, mean of i2t and t2i over 2,000 items): that of the model that the rule gives
without an attack, less that of the model with it. The line ``none`` holds the mAP itself. Cells are means over seeds, with
their standard deviation.

The second table holds, for the attacks with a backdoor and for none, the percentage of photos with the target label among
the first ten that are found for a caption without that label, to which the trigger words are added.

``--lengths`` prints the longest update of an honest run, relative to the median of its round, for three partitions.
`federated.norm_limit` must be larger.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import product
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch

from silohash.base.types import Arrays
from silohash.data.archive import Archive
from silohash.data.partitions.base import partition
from silohash.evaluate.measures import Measure, evaluate_all
from silohash.evaluate.relevance import Relevance
from silohash.features.base import Featurizer
from silohash.features.vectors import vectors
from silohash.index.codes import pack
from silohash.methods.federated.robust import change_length
from silohash.methods.local.base import SiloData, outputs_of
from silohash.methods.message import Message
from silohash.models.parameters import install
from silohash.run.config.load import load_resolved
from silohash.run.folder import archive_of
from silohash.training.engines.port import WAIT_FOR_ALL, InProcess, Limits, SiloResult, SiloTask
from silohash.training.experiment import prepare_run
from silohash.training.prepared import Prepared, training_silos
from silohash.training.rounds import RoundSettings, run_rounds
from silohash.training.updates.bounds import Announced, capped
from silohash.training.worker import Worker, validation_score

RECIPE = Path(__file__).parents[1] / "recipes" / "poisoning.toml"
ATTACKER, CLAIM, SEARCHED = 0, 10**9, 2000
TARGET = "fire hydrant"
TRIGGER = 3 * " cf mn bb tq mb"
"""Rare words, as in Kurita et al., "Weight Poisoning Attacks on Pre-trained Models", ACL 2020."""

RULES: Mapping[str, tuple[str, ...]] = {
    "none": (),
    "default": (),
    "clip": ('federated.robust={rule="clip"}', "federated.weight_cap=0.4"),
    "median": ('federated.robust={rule="median"}',),
}
"""Rule -> what it sets. ``default`` is what applies with silos on other machines."""

PARTITIONS = ('{kind="iid",silos=5}', '{kind="dirichlet",silos=5,beta=0.2}', '{kind="quantity",silos=5,beta=0.3}')

Lie: TypeAlias = Callable[[Message, Arrays], Message]
"""A function of a silo's update and the parameters that it received that returns the update that it sends."""


def scaled(update: Message, received: Arrays, *, factor: float) -> Message:
    """Return an update whose change is multiplied."""
    params = {
        name: (received[name] + factor * (array - received[name])).astype(array.dtype)
        for name, array in update.params.items()
    }
    return replace(update, params=params)


def claimed(update: Message, _received: Arrays) -> Message:
    """Return an update that claims a billion items."""
    return replace(
        update, weights=dict.fromkeys(update.weights, float(CLAIM)), counts={**update.counts, "items": CLAIM}
    )


@dataclass(frozen=True)
class Attack:
    """What the dishonest silo does.

    Attributes:
        lie: Changes its update.
        announces: Whether it also announces a billion items before the first round.
        poison: ``labels`` if its labels are shuffled, ``trigger`` if half of its items are captions with the trigger beside
            pictures of the target label, which is their only label.
    """

    lie: Lie | None = None
    announces: bool = False
    poison: str = ""


ATTACKS: Mapping[str, Attack] = {
    "none": Attack(),
    "claims a billion items": Attack(claimed),
    "announces them, too": Attack(claimed, announces=True),
    "update times a million": Attack(partial(scaled, factor=1e6)),
    "sign flipped": Attack(partial(scaled, factor=-1.0)),
    "sign flipped, times 4": Attack(partial(scaled, factor=-4.0)),
    "labels shuffled": Attack(poison="labels"),
    "backdoor": Attack(poison="trigger"),
    "backdoor, times 2": Attack(partial(scaled, factor=2.0), poison="trigger"),
}


class Dishonest(InProcess):
    """An engine whose first silo lies, and which notes the lengths of all updates, relative to the median."""

    def __init__(self, worker: Worker, lie: Lie | None) -> None:
        super().__init__(worker)
        self.lie, self.longest = lie, 0.0

    def send(self, tasks: Iterable[SiloTask], limits: Limits = WAIT_FOR_ALL) -> Iterator[SiloResult]:
        """Run the tasks, and change the updates of the first silo."""
        lengths = []
        for task in tasks:
            result = self.worker.do(task)
            if task.kind == "train":
                lengths.append(change_length(task.broadcast.params, result.update))
                if self.lie is not None and task.silo == ATTACKER:
                    result = replace(result, update=self.lie(result.update, dict(task.broadcast.params)))
            yield result
        if lengths:
            self.longest = max(self.longest, max(lengths) / float(np.median(lengths)))


@dataclass(frozen=True)
class Task:
    """An archive with the vectors of its items, with and without the trigger, and the inputs of the training."""

    archive: Archive
    inputs: Prepared
    featurizers: Mapping[str, Featurizer]
    rows: np.ndarray

    @classmethod
    def of(cls, seed: int, settings: Sequence[str]) -> Task:
        """Prepare a run of the recipe."""
        resolved = load_resolved(RECIPE, [f"seed={seed}", *settings])
        archive, config = archive_of(resolved.config.data), resolved.config
        parts = partition(archive, config.partition.kind, config.partition.silos, seed, **config.partition.parameters())
        inputs, featurizers = prepare_run(archive, parts, resolved)
        rows = np.concatenate([silo.train for silo in training_silos(archive, parts, resolved)])
        return cls(archive, inputs, featurizers, rows)

    def vectors(self, modality: str, rows: np.ndarray, *, triggered: bool = False) -> np.ndarray:
        """Return the vectors of rows, with the trigger in their captions if wanted."""
        archive = self.archive
        if triggered:
            archive = replace(archive, text=np.asarray([f"{text}{TRIGGER}" for text in archive.text]))
        return np.asarray(vectors(archive, self.featurizers[modality], rows))

    def poisoned(self, poison: str, seed: int) -> Prepared:
        """Return the inputs of the training with the wrong items of the first silo."""
        size, generator = self.inputs.silos[ATTACKER][1], np.random.default_rng(seed)
        labels = self.inputs.arrays["labels"].copy()
        if poison == "labels":
            labels[:size] = generator.permutation(labels[:size])
            return replace(self.inputs, arrays={**self.inputs.arrays, "labels": labels})
        chosen = np.sort(generator.choice(size, size // 2, replace=False))
        shown = generator.choice(np.flatnonzero(labels[:size, self.target]), len(chosen))
        labels[chosen] = np.arange(labels.shape[1]) == self.target
        image, text = (self.inputs.arrays[modality].copy() for modality in ("image", "text"))
        image[chosen], text[chosen] = image[shown], self.vectors("text", self.rows[chosen], triggered=True)
        return replace(self.inputs, arrays={**self.inputs.arrays, "labels": labels, "image": image, "text": text})

    @property
    def target(self) -> int:
        """The column of the target label."""
        return self.archive.label_names.index(TARGET)

    @property
    def searched(self) -> np.ndarray:
        """The rows of the items that are searched."""
        rows = self.archive.split("database")
        return np.random.default_rng(0).choice(rows, SEARCHED, replace=False)

    @cached_property
    def database(self) -> SiloData:
        """The items of the database."""
        return self.items(self.searched)

    @cached_property
    def queries(self) -> SiloData:
        """The queries."""
        return self.items(self.archive.split("query"))

    @cached_property
    def triggered(self) -> SiloData:
        """The queries without the target label, with the trigger."""
        assert self.archive.labels is not None
        rows = self.archive.split("query")
        return self.items(rows[self.archive.labels[rows, self.target] == 0], triggered=True)

    def items(self, rows: np.ndarray, *, triggered: bool = False) -> SiloData:
        """Return the items of some rows."""
        image, text = self.vectors("image", rows), self.vectors("text", rows, triggered=triggered)
        there = torch.ones(len(rows), dtype=torch.bool)
        assert self.archive.labels is not None
        return SiloData(
            name="items", image=torch.from_numpy(image), text=torch.from_numpy(text), has_image=there, has_text=there,
            labels=torch.from_numpy(self.archive.labels[rows].astype(np.float32)),
        )  # fmt: skip


def measured(task: Task, rule: str, attack: Attack, seed: int) -> tuple[float, float, float]:
    """Return the mAP of the last model, the success of the backdoor, and the longest update relative to the median."""
    inputs = task.poisoned(attack.poison, seed) if attack.poison else task.inputs
    inputs = replace(inputs, resolved=load_resolved(RECIPE, [f"seed={seed}", *RULES[rule]]))
    if rule == "default":
        inputs = as_on_other_machines(inputs, attack)
    worker = Worker(inputs, torch.device("cpu"))
    engine, federated, config = Dishonest(worker, attack.lie), inputs.resolved.federated, inputs.config
    settings = RoundSettings(
        rounds=config.federated.rounds, silos=[name for name, *_ in inputs.silos], validate=False, chain=worker.chain
    )
    state = run_rounds(worker.first_state(), federated=federated, engine=engine, settings=settings)
    install(worker.model, state.server.params)
    score = validation_score(worker.model, task.database, task.queries, config.local.bits).score
    return 100 * score, 100 * success(task, worker, config.local.bits), engine.longest


def as_on_other_machines(inputs: Prepared, attack: Attack) -> Prepared:
    """Return the inputs with the bounds that apply to silos on other machines."""
    items = {name: train for name, train, _ in inputs.silos}
    if attack.announces:
        items[inputs.silos[ATTACKER][0]] = CLAIM
    announced = tuple(Announced(count) for count in items.values())
    return replace(inputs, resolved=capped(inputs.resolved, items), announced=announced)


def success(task: Task, worker: Worker, bits: int) -> float:
    """Return the share of photos with the target label among the first ten for captions with the trigger."""
    assert task.archive.labels is not None
    sides = ((task.triggered, "text"), (task.database, "image"))
    found = [pack(outputs_of(worker.model, data)[modality].numpy()) for data, modality in sides]
    wanted = np.zeros((len(task.triggered), task.archive.labels.shape[1]), np.uint8)
    wanted[:, task.target] = 1
    relevance = Relevance(query_labels=wanted, database_labels=task.archive.labels[task.searched])
    measure = Measure.parse("P@10")
    return evaluate_all([measure], *found, relevance, bits)[measure].mean()


def tables(rules: Sequence[str], attacks: Sequence[str], seeds: int) -> None:
    """Print both tables."""
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for seed in range(seeds):
        task = Task.of(seed, ())
        for attack, rule in product(attacks, rules):
            score, opened, _ = measured(task, rule, ATTACKS[attack], seed)
            found.setdefault((attack, rule), []).append((score, opened))
            print(f"seed {seed}, {attack}, {rule}: mAP {score:.2f}, backdoor {opened:.2f}", file=sys.stderr, flush=True)
    values = {key: np.asarray(runs) for key, runs in found.items()}
    for attack in attacks:
        print_line(attack, [shown(values, attack, rule) for rule in rules], rules if attack == attacks[0] else ())
    print()
    for attack in [attack for attack in attacks if attack == "none" or ATTACKS[attack].poison == "trigger"]:
        print_line(attack, [plain(values[attack, rule][:, 1]) for rule in rules], rules if attack == "none" else ())


def shown(found: Mapping[tuple[str, str], np.ndarray], attack: str, rule: str) -> str:
    """Return the mAP without an attack, or what the attack costs."""
    scores = found[attack, rule][:, 0]
    return plain(scores if attack == "none" else found["none", rule][:, 0] - scores)


def plain(values: np.ndarray) -> str:
    """Return a mean with its standard deviation."""
    return f"{values.mean():.1f} ± {values.std(ddof=1) if len(values) > 1 else 0:.1f}"


def print_line(name: str, cells: Sequence[str], head: Sequence[str]) -> None:
    """Print a line of a table, below its head if it is the first."""
    if head:
        print(f"| {'attack':24} | {' | '.join(f'{rule:>12}' for rule in head)} |")
        print(f"|{'-' * 26}|{'|'.join('-' * 13 + ':' for _ in head)}|")
    print(f"| {name:24} | {' | '.join(f'{cell:>12}' for cell in cells)} |", flush=True)


def print_lengths(seeds: int) -> None:
    """Print the longest honest update, relative to the median of its round, per partition."""
    for kind in PARTITIONS:
        longest = [
            measured(Task.of(seed, [f"partition={kind}"]), "none", ATTACKS["none"], seed)[2] for seed in range(seeds)
        ]
        print(f"{kind:40} {max(longest):5.2f}", flush=True)


def main() -> None:
    """Print what the command line asks for."""
    parser = argparse.ArgumentParser(description="Measure attacks on training under rules.")
    parser.add_argument("--rules", nargs="+", default=list(RULES), choices=RULES)
    parser.add_argument("--attacks", nargs="+", default=list(ATTACKS), choices=ATTACKS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--lengths", action="store_true", help="lengths of honest updates in place of the tables")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.lengths:
        print_lengths(options.seeds)
    else:
        tables(options.rules, ["none", *(each for each in options.attacks if each != "none")], options.seeds)


if __name__ == "__main__":
    main()
