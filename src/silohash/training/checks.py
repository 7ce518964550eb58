"""Settings that have no effect on the data of a training, and methods that need labels which the data lacks.

Settings without an effect, or with an unintended one, are classes that no silo releases, towers of too few silos, and
weight decay that acts on absent words.
"""

from collections.abc import Iterator, Mapping

import numpy as np

from silohash.base.errors import NotPrivate
from silohash.base.registry import Registry
from silohash.base.types import MODALITIES, Arrays, Rows
from silohash.data.archive import Archive, Column
from silohash.features.base import SETS, Featurizer
from silohash.features.given import GivenFeatures
from silohash.features.network import NetworkFeatures
from silohash.features.text import BagOfWords
from silohash.methods.federated import FEDERATED_METHODS
from silohash.methods.local import LOCAL_METHODS
from silohash.methods.traits import Release
from silohash.run.config.load import ResolvedConfig
from silohash.run.config.objections import EQUAL_SILOS, FEWEST_SILOS, cap_is_too_low

SiloSizes = list[tuple[str, int, int]]
"""Name, number of training items and number of validation items of each silo."""


def training_rows(silos: SiloSizes) -> list[slice]:
    """Return the rows of each silo's training items."""
    starts = np.cumsum([0, *(train + validation for _, train, validation in silos)])
    return [slice(int(start), int(start) + train) for start, (_, train, _) in zip(starts, silos, strict=False)]


def unreleased_classes(releases: Mapping[str, Release | None], silos: SiloSizes, arrays: Arrays) -> Iterator[str]:
    """Yield a remark per method, by its name, for which no silo has enough items of any class to release it."""
    for name, release in releases.items() if "labels" in arrays else ():
        if release is None or not release.used:
            continue
        clusters, min_count = not release.by_class, release.min_count
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
    """Yield a remark per setting of the average that has no effect on a tower, because too few silos train it."""
    for modality in MODALITIES:
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
    """
    if optimizer == "adam" and weight_decay:
        yield (
            f'train.weight_decay = {weight_decay:g} with train.optimizer = "adam" moves the weights of words '
            "that a batch lacks toward zero at the full learning rate. "
            'Set train.optimizer = "adamw", or train.weight_decay = 0.'
        )


def needs_labels(archive: Archive, resolved: ResolvedConfig) -> str:
    """Return the message that the methods learn from labels, which the archive lacks, with those that do not."""
    config = resolved.config
    families = {
        "local": (LOCAL_METHODS, config.local.name, resolved.local.traits.needs_labels),
        "federated": (FEDERATED_METHODS, config.federated.name, resolved.federated.traits.needs_labels),
    }
    needing = [f'"{name}"' for _, name, needs in families.values() if needs]
    remedies = [
        f"{key}.name to one of {', '.join(without_labels(registry))}"
        for key, (registry, _, needs) in families.items()
        if needs
    ]
    return (
        f"{' and '.join(needing)} {'learn' if len(needing) > 1 else 'learns'} from labels, and archive "
        f'"{archive.card.name}" has none. Add a column "labels" to its metadata, or set {" and ".join(remedies)}.'
    )


def without_labels(registry: Registry) -> list[str]:
    """Return the names of a family's built-in methods that do not learn from labels, in alphabetical order."""
    return sorted(name for name in registry.table if not registry.card(name).supervised)


def no_statistics(featurizer: Featurizer, column: Column, rows: Rows) -> Arrays:  # noqa: ARG001  as `Featurizer.statistics`
    """Return the sums that a silo shares under differential privacy, on which featurizers are fitted: those of no items.

    Words are then weighed equally, and unknown words cannot be told from others. Featurizers that need sums are refused.

    Raises:
        UserError: If the featurizer is fitted to sums.
    """
    given = featurizer.given if isinstance(featurizer, NetworkFeatures) else featurizer
    fixed = isinstance(given, GivenFeatures) and not given.standardize
    if fixed or (isinstance(featurizer, BagOfWords) and featurizer.min_texts == 1):
        sums = featurizer.statistics(column, np.zeros(0, np.int64))
        return {name: array for name, array in sums.items() if name not in SETS}
    remedy = (
        f"Set features.{featurizer.modality}.standardize = false, and equal_lengths = true."
        if isinstance(given, GivenFeatures)
        else "Take feature vectors, with standardize = false and equal_lengths = true, or texts as "
        '"tfidf", "count" or "binary" with min_texts = 1.'
    )
    raise NotPrivate(
        f'features.{featurizer.modality} kind "{featurizer.kind}" is fitted to exact sums over the items of silos, which '
        f"exchange.privacy does not let a silo send. {remedy}"
    )
