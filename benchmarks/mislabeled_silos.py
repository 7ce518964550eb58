"""Silos with wrong pairs or labels: how often they are named, and how often honest silos are, by simulation.

    python benchmarks/mislabeled_silos.py [--by pairs | labels] [--runs N] [--silos N...] [--items N...]

Items have codes around the code of their pair or of their class. They differ in how hard they are, and so do silos. Codes
get better from round to round, and those of consecutive rounds are alike. By labels, silos have unequal shares of classes.

In the first table, each run has another quality of codes, from poor to nearly perfect. A row has the same number of silos,
a column the same number of held-back items per silo, and the column ``unequal`` numbers from 10 to 1,000. A cell is the
percentage of clean runs in which any round names any silo.

In the second table, half the pairs or labels of the first of ten silos are shuffled. A cell is the percentage of runs in
which any round names it, for codes of different quality. The skill is that of the median silo in the last round. Both tables
take half an hour on one core.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from silohash.base.types import ValidationBy
from silohash.methods.federated.screening import mislabeled_silos
from silohash.methods.message import Message

BY: tuple[ValidationBy, ...] = ("pairs", "labels")
BITS, ROUNDS, CLASSES = 32, 5, 10
SEARCHED = 100
"""An item searches this number of items at most, so that many items per silo do not take long."""

KEPT = 0.9
"""Correlation of an item's noise in consecutive rounds."""

EARLY = 2.0
"""Noise in the first round, as a multiple of that in the last."""

NOISE = (0.5, 2.0)
"""Range of the noise of a run in its last round, as a multiple of the deviation of a code's values."""

HALF_SHUFFLED, QUALITIES = 10, (2.0, 1.4, 1.0, 0.7, 0.5)
"""Number of silos in runs with a wrong one, and the noise of these runs."""

ITEM_SPREAD, SILO_SPREAD, MIX = 0.5, 0.05, 1.0
"""Deviation of the logarithm of the noise, among the items of a silo and among silos, and the Dirichlet parameter of the
classes of a silo."""

Values = npt.NDArray[np.float32]


@dataclass
class Noise:
    """Noise of items that changes little from round to round, ``(N, BITS)``."""

    generator: np.random.Generator
    scale: Values
    values: Values = field(init=False)

    def __post_init__(self) -> None:
        self.values = self._drawn()

    def _drawn(self) -> Values:
        return self.generator.standard_normal((len(self.scale), BITS), np.float32)

    def codes(self, targets: Values, strength: float) -> Values:
        """Return the next round's codes around the targets, with values -1 and 1."""
        self.values = np.float32(KEPT) * self.values + np.float32((1 - KEPT**2) ** 0.5) * self._drawn()
        return np.where(targets + np.float32(strength) * self.scale[:, None] * self.values < 0, -1, 1).astype(
            np.float32
        )


@dataclass
class Silo:
    """A silo of a simulated run.

    Attributes:
        noise: The noise of the codes of this silo.
        centers: Codes of the classes, ``(CLASSES, BITS)``.
        wrong: Whether half of its pairs or labels are shuffled.
    """

    generator: np.random.Generator
    items: int
    by: ValidationBy
    noise: float
    centers: Values
    wrong: bool = False

    def __post_init__(self) -> None:
        searched = self.items if self.by == "pairs" else min(9 * self.items, SEARCHED)
        self.sides = [self._noise(self.items), self._noise(searched)]
        if self.by == "pairs":
            pairs = self.generator.standard_normal((self.items, BITS), np.float32)
            self.targets, self.labels = [pairs, self._given(pairs)], []
            return
        shares = self.generator.dirichlet(np.full(CLASSES, MIX))
        classes = [self.generator.choice(CLASSES, len(side.scale), p=shares) for side in self.sides]
        self.targets, self.labels = [self.centers[of] for of in classes], [self._given(of) for of in classes]

    def _noise(self, items: int) -> Noise:
        scale = self.noise * np.exp(ITEM_SPREAD * self.generator.standard_normal(items, np.float32))
        return Noise(self.generator, scale.astype(np.float32))

    def _given(self, values: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
        """Return values of all items, half of which are shuffled if the silo is wrong."""
        if not self.wrong:
            return values
        half = self.generator.permutation(len(values))[: len(values) // 2]
        given = values.copy()
        given[half] = values[self.generator.permutation(half)]
        return given

    def score(self, sender: str, strength: float) -> Message:
        """Return what the silo sends in the next round."""
        queries, searched = (side.codes(of, strength) for side, of in zip(self.sides, self.targets, strict=True))
        if self.by == "pairs":
            areas = np.concatenate(
                [
                    pair_areas(queries[start : start + SEARCHED], searched[start : start + SEARCHED])
                    for start in range(0, self.items, SEARCHED)
                ]
            )
        else:
            areas = label_areas(queries, searched, self.labels[0][:, None] == self.labels[1][None])
        areas, count = areas[np.isfinite(areas)], int(np.isfinite(areas).sum())
        scalars = {"score": 0.5, "chance": 0.1}
        if count > 1:
            scalars |= {"auc": float(areas.mean()), "auc_error": float(areas.std(ddof=1)) / count**0.5}
        return Message("score", sender, 0, scalars=scalars, counts={"queries": self.items, "judged": count})


def pair_areas(first: Values, second: Values) -> Values:
    """Return the area under the ROC curve of each pair, whose codes search those of the other pairs, in both directions."""
    if len(first) < 2:
        return np.full(len(first), np.nan, np.float32)
    similarity = first @ second.T
    own = np.diag(similarity)
    nearer = [
        (values < own[:, None]).sum(1) + ((values == own[:, None]).sum(1) - 1) / 2
        for values in (similarity, similarity.T)
    ]
    return (nearer[0] + nearer[1]) / 2 / (len(first) - 1)


def label_areas(queries: Values, searched: Values, relevant: npt.NDArray[np.bool_]) -> Values:
    """Return the area under the ROC curve of each query, ``(Q,)``; NaN unless there are relevant and other items."""
    levels = BITS + 1
    place = ((queries @ searched.T + BITS) / 2).astype(np.int64) + levels * np.arange(len(queries))[:, None]
    size = levels * len(queries)
    found = np.bincount(place[relevant], minlength=size).reshape(-1, levels)
    others = np.bincount(place[~relevant], minlength=size).reshape(-1, levels)
    before = np.cumsum(others, 1) - others / 2
    with np.errstate(invalid="ignore"):
        return (found * before).sum(1) / (found.sum(1) * others.sum(1))


def rounds_of(
    sizes: Sequence[int], by: ValidationBy, seed: int, *, noise: float | None = None, half: bool = False
) -> Iterator[list[Message]]:
    """Yield what the silos of a run send in each round, where half the first silo's pairs or labels may be shuffled.

    The noise of the last round is drawn from `NOISE` if it is not given.
    """
    generator = np.random.default_rng([seed, len(sizes)])
    drawn = float(np.exp(generator.uniform(*np.log(NOISE))))
    centers = generator.standard_normal((CLASSES, BITS), np.float32)
    silos = [
        Silo(generator, size, by, (noise or drawn) * factor, centers, half and number == 0)
        for number, size in enumerate(sizes)
        for factor in [float(np.exp(SILO_SPREAD * generator.standard_normal()))]
    ]
    for number in range(ROUNDS):
        strength = EARLY ** (1 - number / (ROUNDS - 1))
        yield [silo.score(f"silo-{of}", strength) for of, silo in enumerate(silos)]


def named(rounds: Iterable[list[Message]], by: ValidationBy) -> set[str]:
    """Return the silos that any round of a run names."""
    return {silo for messages in rounds for silo in mislabeled_silos(messages, by, rounds=ROUNDS)}


def wrongly_named(sizes: Sequence[Sequence[int]], by: ValidationBy) -> float:
    """Return the percentage of clean runs, each with silos of the given sizes, in which a silo is named."""
    return 100 * float(np.mean([bool(named(rounds_of(of, by, seed), by)) for seed, of in enumerate(sizes)]))


def found(items: int, by: ValidationBy, noise: float, runs: int, silos: int = HALF_SHUFFLED) -> tuple[float, float]:
    """Return the percentage of runs that name the silo half of whose pairs or labels are shuffled, and the median skill."""
    right, skills = [], []
    for seed in range(runs):
        rounds = list(rounds_of([items] * silos, by, seed, noise=noise, half=True))
        right.append("silo-0" in named(rounds, by))
        areas = [message.scalars["auc"] for message in rounds[-1] if "auc" in message.scalars]
        skills.append(2 * float(np.median(areas)) - 1)
    return 100 * float(np.mean(right)), float(np.mean(skills))


def sizes_of(silos: int, items: int | None, runs: int) -> list[list[int]]:
    """Return the numbers of held-back items of the silos of each run; None for unequal ones."""
    if items is not None:
        return [[items] * silos] * runs
    generator = np.random.default_rng(silos)
    return np.exp(generator.uniform(np.log(10), np.log(1000), (runs, silos))).astype(int).tolist()


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description="Simulate how often honest silos and wrong ones are named.")
    parser.add_argument("--by", choices=BY, nargs="+", default=BY, help="what is compared")
    parser.add_argument("--runs", type=int, default=200, help="runs per cell")
    parser.add_argument("--silos", type=int, nargs="+", default=[2, 3, 5, 10, 20, 50], help="numbers of silos")
    parser.add_argument(
        "--items", type=int, nargs="+", default=[10, 30, 100, 300, 1000], help="held-back items per silo"
    )
    options = parser.parse_args()
    items: list[int] = options.items
    for by in options.by:
        start_table(f"silos, clean {by}", [*(f"{count:,}" for count in items), "unequal"])
        for silos in options.silos:
            cells = (wrongly_named(sizes_of(silos, of, options.runs), by) for of in [*items, None])
            print(f"| {silos} | {' | '.join(f'{cell:.3g}' for cell in cells)} |", flush=True)
        start_table(f"skill, half of the {by} shuffled", [f"{count:,}" for count in items])
        for noise in QUALITIES:
            results = [found(of, by, noise, options.runs) for of in items]
            print(f"| {results[-1][1]:.2f} | {' | '.join(f'{share:.3g}' for share, _ in results)} |", flush=True)


def start_table(title: str, columns: Sequence[str]) -> None:
    """Print the head of a table."""
    print(f"\n| {title} | {' | '.join(columns)} |\n|---:|{'---:|' * len(columns)}", flush=True)


if __name__ == "__main__":
    main()
