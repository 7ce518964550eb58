"""What is checked before a training: that the data has what the methods need, and that settings have an effect on it.

Settings without an effect, or with an unintended one, are classes that no silo releases, towers of too few silos, and
weight decay that acts on absent words.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from silohash.base.registry import Registry
from silohash.base.types import MODALITIES, Arrays, Modality, UserError
from silohash.data.archive import Archive
from silohash.methods.federated import FEDERATED_METHODS
from silohash.methods.federated.statistics import ENCRYPTION, check_revealing_sums
from silohash.methods.local import LOCAL_METHODS
from silohash.methods.traits import Release
from silohash.run.config.ineffective import EQUAL_SILOS, FEWEST_SILOS, cap_is_too_low
from silohash.run.config.load import ResolvedConfig

SiloSizes = list[tuple[str, int, int]]
"""Name, number of training items and number of validation items of each silo."""


def training_rows(silos: SiloSizes) -> list[slice]:
    """Return the rows of each silo's training items."""
    starts = np.cumsum([0, *(train + validation for _, train, validation in silos)])
    return [slice(int(start), int(start) + train) for start, (_, train, _) in zip(starts, silos, strict=False)]


def unreleased_classes(releases: Mapping[str, Release | None], silos: SiloSizes, arrays: Arrays) -> Iterator[str]:
    """Yield a remark per method for which no silo has enough items of any class to release it.

    Args:
        releases: How each method releases classes, by its name. Free clusters may hold all items of a silo.
        silos: The silos' sizes.
        arrays: The silos' items, as in `silohash.training.prepared.Prepared`.
    """
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
    """Yield a remark per setting of the average that has no effect on a tower, because too few silos train it.

    Args:
        weight_cap: Upper limit on a silo's share of the weight.
        rule: The robust rule, or an empty string.
        silos: The silos' sizes.
        arrays: The silos' items.
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
            "that a batch lacks toward zero at the full learning rate. "
            'Set train.optimizer = "adamw", or train.weight_decay = 0.'
        )


def check_methods(archive: Archive, modalities: int, validation: int, resolved: ResolvedConfig) -> None:
    """Check that the archive and the silos have what the methods require.

    Args:
        archive: The archive.
        modalities: Number of modalities that the model encodes.
        validation: Number of validation items of all silos.
        resolved: The config with its methods.

    Raises:
        UserError: If labels, modalities or validation queries are missing, or the user does not allow what silos send.
    """
    config, federated = resolved.config, resolved.federated
    labeled = archive.labels is not None and bool(archive.labels.any())
    if resolved.needs_labels and not labeled:
        raise UserError(_needs_labels(archive, resolved))
    if modalities < federated.traits.min_modalities:
        raise UserError(
            f'"{config.federated.name}" needs {federated.traits.min_modalities} modalities, and archive '
            f'"{archive.card.name}" has {modalities}. Choose another federated method.'
        )
    _check_item_bits(resolved, modalities)
    _check_exchange(resolved)
    _check_validation(archive, modalities, resolved)
    _check_scores(judged=validation > 0 and (labeled or resolved.validation_by == "pairs"), resolved=resolved)


def _needs_labels(archive: Archive, resolved: ResolvedConfig) -> str:
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


def _check_item_bits(resolved: ResolvedConfig, modalities: int) -> None:
    """Check that bits of items, if the local method has any, leave bits for the classes and are trained and deployed."""
    bits, item_bits = resolved.config.local.bits, resolved.local.traits.item_bits
    if not item_bits:
        return
    if item_bits >= bits:
        raise UserError(
            f"local.item_bits = {item_bits} does not leave any bits for the classes, because codes have {bits} bits. "
            f"Set local.item_bits to at most {bits - 1}."
        )
    if modalities < len(MODALITIES):
        raise UserError(
            f"Nothing trains the bits of local.item_bits = {item_bits}, because the archive has one modality. Set "
            "local.item_bits = 0."
        )
    if resolved.federated.traits.class_codes:
        raise UserError(
            f'"{resolved.config.federated.name}" replaces the bits of local.item_bits = {item_bits}, because its codes '
            "tell only classes apart. Set local.item_bits = 0, or choose another federated method."
        )


def _check_exchange(resolved: ResolvedConfig) -> None:
    """Check that the user allows what silos send, for every member of a composition."""
    settings, federated = resolved.config.federated, resolved.federated
    given = {
        "federated.robust": settings.robust is not None,
        "federated.weight_cap": settings.weight_cap < 1,
        "federated.server": settings.server is not None,
        ENCRYPTION: resolved.config.exchange.encryption is not None,
    }
    for label, member in federated.parts(settings.name).items():
        if member.traits.reveals:
            allowed = member.traits.reveals_allowed
            check_revealing_sums(label, member.traits.reveals, allowed=allowed, rules=[k for k in given if given[k]])


def _check_validation(archive: Archive, modalities: int, resolved: ResolvedConfig) -> None:
    """Check that the archive has what the config wants to choose the round by."""
    settings = resolved.config.evaluate
    if not settings.validation:
        return
    if settings.validation_by == "labels" and archive.labels is None:
        raise UserError(
            f'evaluate.validation_by = "labels" chooses the round by labels, and archive "{archive.card.name}" has none. '
            'Set it to "pairs", or set evaluate.validation = 0 to take the last round.'
        )
    if settings.validation_by == "pairs" and modalities < len(MODALITIES):
        raise UserError(
            'evaluate.validation_by = "pairs" chooses the round by pairs of a picture and a text, and the archive '
            f'"{archive.card.name}" has one modality. Set evaluate.validation = 0 to take the last round.'
        )


def _check_scores(*, judged: bool, resolved: ResolvedConfig) -> None:
    """Check that validation queries with known answers exist if a method weights silos by their scores."""
    config, federated = resolved.config, resolved.federated
    members = federated.parts(config.federated.name)
    scoring = [label for label, member in members.items() if member.traits.needs_scores]
    if scoring and not judged:
        raise UserError(
            f'"{scoring[0]}" weights silos by their scores on validation queries, and no silo has any with known answers '
            f"(evaluate.validation is {config.evaluate.validation:g}). Set evaluate.validation = 0.1, or the method's "
            'weighting = "examples".'
        )
