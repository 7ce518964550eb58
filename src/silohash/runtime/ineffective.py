"""Settings that have no effect, or an unintended one, on the data of a run.

These are classes that no silo releases, towers of too few silos, and weight decay that acts on absent words.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from silohash.config.ineffective import EQUAL_SILOS, FEWEST_SILOS, cap_is_too_low
from silohash.types import Arrays, Modality

SiloSizes = list[tuple[str, int, int]]
"""Name, number of training items and number of validation items of each silo."""


def training_rows(silos: SiloSizes) -> list[slice]:
    """Return the rows of each silo's training items."""
    starts = np.cumsum([0, *(train + validation for _, train, validation in silos)])
    return [slice(int(start), int(start) + train) for start, (_, train, _) in zip(starts, silos, strict=False)]


def unreleased_classes(rules: list[tuple[str, int, bool]], silos: SiloSizes, arrays: Arrays) -> Iterator[str]:
    """Yield a remark per method for which no silo has enough items of any class to release it.

    Args:
        rules: per method its name, the number of items that a class needs, and whether it releases free clusters, each of
            which may hold all items of a silo.
        silos: the silos' sizes.
        arrays: the silos' items, as in `silohash.runtime.prepared.Prepared`.
    """
    for name, min_count, clusters in rules if "labels" in arrays else ():
        largest = max((_largest_class(rows, arrays, clusters=clusters) for rows in training_rows(silos)), default=0)
        if largest < min_count:
            yield (
                f"No class is released: no silo has federated.min_count = {min_count} training items of one class, so what "
                f'"{name}" does with released classes has no effect. The largest class of a silo has {largest} items.'
            )


def _largest_class(rows: slice, arrays: Arrays, *, clusters: bool) -> int:
    """Return the number of items of a silo's largest class, or of all its items for free clusters."""
    there = arrays["has_image"][rows] | arrays["has_text"][rows]
    if clusters:
        return int(there.sum())
    return int((arrays["labels"][rows][there] > 0).sum(axis=0).max(initial=0))


def towers_of_few_silos(weight_cap: float, rule: str, silos: SiloSizes, arrays: Arrays) -> Iterator[str]:
    """Yield a remark per setting of the average that has no effect on a tower, because too few silos train it.

    Args:
        weight_cap: upper limit on a silo's share of the weight.
        rule: the robust rule, or an empty string.
        silos: the silos' sizes.
        arrays: the silos' items.
    """
    modalities: tuple[Modality, ...] = ("image", "text")
    for modality in modalities:
        count = sum(bool(arrays[f"has_{modality}"][rows].any()) for rows in training_rows(silos))
        if count and cap_is_too_low(weight_cap, count):
            yield (
                f"federated.weight_cap = {weight_cap:g} cannot hold for the {modality} tower, because only {count} silos "
                "train it. They have equal weights."
            )
        if count and rule in EQUAL_SILOS and count < FEWEST_SILOS:
            yield (
                f'The rule "{rule}" does not protect the {modality} tower, because only {count} of the silos train it and '
                f"{FEWEST_SILOS} are needed."
            )


def decay_of_absent_words(optimizer: str, weight_decay: float) -> Iterator[str]:
    """Yield a remark if the optimizer turns weight decay into full steps for words that a batch lacks.

    `adam` divides a gradient by its own magnitude. If a word is absent, the decay is its whole gradient, however small.

    Args:
        optimizer: ``train.optimizer`` of a run whose texts are bags of words.
        weight_decay: ``train.weight_decay``.
    """
    if optimizer == "adam" and weight_decay:
        yield (
            f'train.weight_decay = {weight_decay:g} with train.optimizer = "adam" moves the weights of words '
            "that a batch lacks towards zero at the full learning rate. "
            'Set train.optimizer = "adamw", or train.weight_decay = 0.'
        )
