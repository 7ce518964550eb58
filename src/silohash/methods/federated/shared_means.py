"""Means that silos send beside parameters: which values are possible, and their median over silos under a robust rule.

Class prototypes, class memories, discriminators and lengths of updates are means over items or silos. A method declares
them as `SharedMean`. An update with impossible values is rejected, whatever the aggregation: a mean of values in [-1, 1]
cannot leave [-1, 1], no class can have more items than the silo, and no silo can count more than once where all count
alike.

Possible values can still be wrong. Under every robust rule, each silo's mean is therefore replaced by the
coordinate-wise median over the silos that have one, with equal counts. If at most f silos are faulty and at least
2f + 1 silos have a row, the honest silos are in the majority, so every coordinate of the result lies between the values
of two honest silos. Rows of fewer silos are dropped, and the server keeps what it had.

Source of the median: Yin et al., "Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates", ICML 2018.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from silohash.base.errors import MethodsConflict
from silohash.base.types import Arrays, ReadArrays
from silohash.methods.message import Message

NOT_OF_METHOD = "{} is in neither the means nor the template of the method"
"""Why a value that the method does not know is rejected."""

TOLERANCE = 1e-3
"""Relative rounding error that sums in float32 may have."""


@dataclass(frozen=True)
class SharedMean:
    """Values in a message of which the server uses the mean only: sums, and the counts by which they are divided.

    Attributes:
        sums: Name of the sums. It also stands for all names that start with it and a slash, such as
            ``prototype_sum/image``.
        counts: Name of the counts, which has the same ending as that of the sums, or none.
        like: Name of the server's extras that have the shape of the sums. If empty, the sums are scalars.
        by_row: Whether there is one count per row (class), or one count in all.
        unit: Whether means are at most of length 1, so that a median row is scaled to length 1.
        most: Upper limit on a silo's counts, beside its number of items; 1 if all silos count alike.
        per_group: Whether silos send it per parameter group of the update that has a weight, such as ``effective/image``,
            with that weight as the count.
        quorum: Whether 2f + 1 silos must have a row, so that it can be used under a robust rule. If not, one is enough.
    """

    sums: str
    counts: str
    like: str = ""
    by_row: bool = False
    low: float = -math.inf
    high: float = math.inf
    unit: bool = False
    most: float = math.inf
    per_group: bool = False
    quorum: bool = False
    section: Literal["sums", "records"] = "sums"

    def pairs(self, message: Message) -> dict[str, str]:
        """Return the names of the sums in a message, each with the name of its counts."""
        given = self.values(message)
        names = [name for name in given if name == self.sums or name.startswith(f"{self.sums}/")]
        with_ending = {name: self.counts + name.removeprefix(self.sums) for name in names}
        return {name: count if count in given else self.counts for name, count in with_ending.items()}

    def values(self, message: Message) -> ReadArrays:
        """Return the message's section that holds the sums and counts."""
        return message.sums if self.section == "sums" else message.records

    def changed(self, message: Message, values: Arrays) -> Message:
        """Return the message with other values in the section, which keep their types."""
        section = self.values(message)
        typed = {**section, **{name: array.astype(section[name].dtype) for name, array in values.items()}}
        return replace(message, sums=typed) if self.section == "sums" else replace(message, records=typed)

    def under(self, label: str) -> Self:
        """Return the mean as the message of a composition names it."""
        like = f"{label}/{self.like}" if self.like else ""
        return replace(self, sums=f"{label}/{self.sums}", counts=f"{label}/{self.counts}", like=like)


def class_mean(sums: str, counts: str, like: str) -> SharedMean:
    """Return the declaration of a mean per class of values in [-1, 1]."""
    return SharedMean(sums, counts, like=like, by_row=True, low=-1.0, high=1.0, quorum=True)


def objection(message: Message, means: Sequence[SharedMean], extras: Arrays) -> str | None:
    """Return why the means in a message of finite numbers are impossible, or None if they are possible.

    The extras of the server have the shapes of the sums.
    """
    for mean in means:
        for name, count_name in mean.pairs(message).items():
            found = _misfit(mean, message, name, count_name, extras) or _impossible(mean, message, name, count_name)
            if found is not None:
                return found
        found = _missing(mean, message, extras) or (_missing_group(mean, message) if mean.per_group else None)
        if found is not None:
            return found
    return None


def _missing(mean: SharedMean, message: Message, extras: Arrays) -> str | None:
    """Return which sums are missing whose counts are there, or None."""
    pairs, given = mean.pairs(message), mean.values(message)
    for name in given:
        if (name == mean.counts or name.startswith(f"{mean.counts}/")) and name not in pairs.values():
            return f"{name} comes without {mean.sums + name.removeprefix(mean.counts)}"
    if mean.counts in pairs.values() and mean.like:
        endings = [name.removeprefix(mean.like) for name in extras if name.startswith(f"{mean.like}/")]
        return next((f"{mean.sums + end} is missing" for end in endings if mean.sums + end not in pairs), None)
    return None


def _missing_group(mean: SharedMean, message: Message) -> str | None:
    """Return which parameter group has no sums, or another count than its weight; None if there is none."""
    given = mean.values(message)
    for group, weight in message.weights.items():
        name, count = f"{mean.sums}/{group}", f"{mean.counts}/{group}"
        lacking = [part for part in (name, count) if part not in given]
        if lacking and (weight > 0 or name in given):
            return f"{lacking[0]} is missing"
        if name in given and not math.isclose(float(given[count]), weight, rel_tol=TOLERANCE):
            return f"{count} is {float(given[count]):g}, but the weight is {weight:g}"
    return None


def _misfit(mean: SharedMean, message: Message, name: str, count_name: str, extras: Arrays) -> str | None:
    """Return why sums do not have the right name or shape, or their counts are missing."""
    values, like = mean.values(message), mean.like + name.removeprefix(mean.sums)
    if mean.like and like not in extras:
        return NOT_OF_METHOD.format(name)
    if count_name not in values:
        return f"{name} comes without {count_name}"
    shape = extras[like].shape if mean.like else ()
    expected = {name: shape, count_name: shape[:1] if mean.by_row else ()}
    for part, wanted in expected.items():
        if values[part].shape != wanted:
            return f"{part} has shape {values[part].shape} instead of {wanted}"
        if (kind := _wrong_type(mean, values[part].dtype, part == count_name)) is not None:
            return f"{part} has type {values[part].dtype} instead of {kind}"
    return None


def _wrong_type(mean: SharedMean, given: np.dtype[Any], counts: bool) -> str | None:
    """Return the type that sums or counts must have, or None if they have it."""
    wanted = ["float32", "float64"]
    # records are used one silo at a time, as they are, and their counts only tell which rows there are
    if mean.section == "records":
        wanted = ["bool"] if counts else ["float32"]
    return None if str(given) in wanted else " or ".join(wanted)


def _impossible(mean: SharedMean, message: Message, name: str, count_name: str) -> str | None:
    """Return why no items can have the given sums and counts."""
    sums = mean.values(message)[name].astype(np.float64)
    counts = mean.values(message)[count_name].astype(np.float64)
    if (counts < 0).any():
        return f"{count_name} holds negative counts"
    items = message.counts.get("items", math.inf)
    if mean.by_row and counts.max(initial=0.0) > items * (1 + TOLERANCE):
        return f"{count_name} counts {counts.max():g} items of one class, but the silo has {items}"
    if counts.max(initial=0.0) > mean.most * (1 + TOLERANCE):
        return f"{count_name} is {counts.max():g}, but a silo can count {mean.most:g} at most"
    if (mean.low, mean.high) != (-math.inf, math.inf) and _outside(mean, sums, _broad(counts, sums)):
        return f"{name} holds means outside {mean.low:g} to {mean.high:g}"
    if mean.unit and (np.linalg.norm(sums, axis=-1) > counts * (1 + TOLERANCE) + 1e-6).any():
        return f"{name} holds means longer than 1"
    return None


def _outside(mean: SharedMean, sums: npt.NDArray[np.float64], counts: npt.NDArray[np.float64]) -> bool:
    """Return whether sums exceed the limits of a mean for counts of the same number of dimensions."""
    slack = TOLERANCE * counts + 1e-6
    with np.errstate(invalid="ignore"):  # 0 times infinity, where there is no limit
        outside = (sums < mean.low * counts - slack) | (sums > mean.high * counts + slack)
    return bool(outside.any())


def _broad(counts: npt.NDArray[np.float64], sums: np.ndarray) -> npt.NDArray[np.float64]:
    """Return counts with as many dimensions as the sums, so that both can be divided."""
    return counts.reshape(counts.shape + (1,) * (sums.ndim - counts.ndim))


def with_median_means(
    updates: Sequence[Message], means: Sequence[SharedMean], faulty: int
) -> tuple[list[Message], dict[str, str]]:
    """Replace every silo's means by their median over silos, with counts of 1, and add a remark if too few have a row.

    The sum over silos, divided by the sum of the counts, is then the median. The messages have no objections, and at most
    ``faulty`` silos are faulty.

    Raises:
        UserError: If the method sends values that it does not declare, which no rule protects.
    """
    messages = _without_undeclared(updates, means, faulty)
    originals, remarks = list(messages), dict[str, str]()
    for mean in means:
        least = 2 * faulty + 1 if mean.quorum else 1
        for pair in dict.fromkeys(pair for update in originals for pair in mean.pairs(update).items()):
            if not _set_median(messages, originals, mean, pair, least):
                remarks["federated.robust"] = (
                    f"fewer than {least} silos sent the same rows of {pair[0]}, so the server keeps what it had. "
                    "Lower federated.robust.faulty, or let more silos release each class."
                )
    return messages, remarks


def _set_median(
    messages: list[Message], originals: Sequence[Message], mean: SharedMean, pair: tuple[str, str], least: int
) -> bool:
    """Put the median of one mean into the messages, and return whether a row of it has enough silos or none has one."""
    name, count_name = pair
    holders = [number for number, update in enumerate(originals) if name in mean.values(update)]
    given = [mean.values(originals[number]) for number in holders]
    sums, counts = [values[name] for values in given], [values[count_name] for values in given]
    median, held = median_mean(sums, counts, least, unit=mean.unit)
    for number, there in zip(holders, held, strict=True):
        changed = {name: median * _broad(there, median), count_name: there}
        messages[number] = mean.changed(messages[number], changed)
    return bool(held.any()) or not np.any(counts)


def median_mean(
    sums: Sequence[np.ndarray], counts: Sequence[np.ndarray], least: int, *, unit: bool = False
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return the coordinate-wise median over silos of their means, and where it applies.

    Each silo has sums, ``(C, p)`` or any shape, and counts, ``(C,)`` or a scalar, positive for the rows that it has.

    Returns:
        The median, with zeros in rows of fewer than ``least`` silos, and 1 or 0 per silo and row: whether the silo has the
        row and the row has enough silos.
    """
    counted = np.stack(counts).astype(np.float64)
    held = counted > 0
    enough = held.sum(axis=0) >= least
    stacked = np.stack(sums).astype(np.float64)
    values = stacked / _broad(np.where(held, counted, 1.0), stacked)
    there = np.broadcast_to(_broad(held.astype(np.float64), stacked) > 0, stacked.shape)
    ordered, number = np.sort(np.where(there, values, np.inf), axis=0), there.sum(axis=0)
    low, high = (
        np.take_along_axis(ordered, place[np.newaxis], axis=0)[0]
        for place in (np.maximum(number - 1, 0) // 2, number // 2 * (number > 0))
    )
    usable = np.broadcast_to(_broad(enough.astype(np.float64), low) > 0, low.shape)
    median = np.where(usable, low / 2 + high / 2, 0.0)
    if unit:
        median = median / np.maximum(np.linalg.norm(median, axis=-1, keepdims=True), 1e-12)
    return median, (held & enough).astype(np.float64)


def _without_undeclared(updates: Sequence[Message], means: Sequence[SharedMean], faulty: int) -> list[Message]:
    """Return the messages without undeclared values, which more than ``faulty`` silos send only if the method needs them."""
    declared = [declared_values(update, means) for update in updates]
    extra = [
        name
        for update, kept in zip(updates, declared, strict=True)
        for name in [*(update.sums.keys() - kept.sums), *(update.records.keys() - kept.records)][:1]
    ]
    if len(extra) > faulty:
        raise MethodsConflict(
            f'federated.robust: the federated method sends "{extra[0]}", which no robust rule protects. '
            "Remove federated.robust, or let the method declare the value in its means."
        )
    return declared


def declared_values(message: Message, means: Sequence[SharedMean]) -> Message:
    """Return a message with only those sums and records that the means declare."""
    found: dict[str, Arrays] = {"sums": {}, "records": {}}
    for mean in means:
        values = mean.values(message)
        found[mean.section] |= {name: values[name] for pair in mean.pairs(message).items() for name in pair}
    return replace(message, sums=found["sums"], records=found["records"])
