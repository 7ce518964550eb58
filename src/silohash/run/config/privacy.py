"""Configs for which differential privacy would not hold, with what to change.

A setting is refused if anything exact would leave a silo beside what the accountant counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from silohash.run.config.ineffective import Objection
from silohash.run.config.sections import PrivacyConfig, RunConfig

if TYPE_CHECKING:
    from silohash.methods.federated.base import FederatedMethod
    from silohash.methods.local.base import LocalMethod
    from silohash.methods.traits import Traits

FEWEST_SILOS = 2
"""With fewer silos in a round, no other silo's noise hides what a silo contributed."""


def objections_to_privacy(
    config: RunConfig, privacy: PrivacyConfig, local: LocalMethod, federated: FederatedMethod
) -> Iterator[Objection]:
    """Yield why differential privacy would not hold, as far as this can be told from the config alone."""
    yield from _of_federated(config, privacy, federated)
    yield from _of_local(config, privacy, local)
    yield from _of_run(config, privacy)
    yield from _of_compression(config, privacy)


def _of_federated(config: RunConfig, privacy: PrivacyConfig, federated: FederatedMethod) -> Iterator[Objection]:
    """Yield why what the federated method sends has no guarantee."""
    name, unit = config.federated.name, privacy.unit
    if unit not in federated.traits.private_units:
        others = [f'"{other}"' for other in federated.traits.private_units]
        remedy = f"Set exchange.privacy.unit = {others[0]}, or choose" if others else "Choose"
        yield (
            "federated.name",
            f'federated.name: with "{name}", {_sent(federated.traits)}, so exchange.privacy.unit = "{unit}" has no '
            f"guarantee. {remedy} another federated method, such as fedavg.",
        )
    for parameter, why in federated.traits.not_private.items():
        yield f"federated.{parameter}", why


def _sent(traits: Traits) -> str:
    """Return what makes a method unfit for differential privacy, as a clause."""
    if traits.pooled:
        return "the items of all silos are pooled"
    if traits.shares == "none" or not traits.averages:
        return "silos do not send parameters that are averaged"
    if traits.personalized:
        return "each silo deploys a model of its own, which is trained without noise"
    if traits.uplink == "records":
        return "the server needs values of each silo whose size has no limit"
    if traits.private_units:
        return "not all terms or sums have a limit per item or per silo"
    return "silos send more than parameters and class means, without a limit on one item's share"


def _of_local(config: RunConfig, privacy: PrivacyConfig, local: LocalMethod) -> Iterator[Objection]:
    """Yield why the local method has no guarantee."""
    from silohash.methods.local.base import ClosedForm, ServerSolved

    name = config.local.name
    if isinstance(local, ClosedForm):
        yield (
            "local.name",
            f'local.name = "{name}" computes the parameters from exact sums, to which exchange.privacy does not add '
            "noise. Choose a method that is trained by gradient steps, such as csq.",
        )
    if isinstance(local, ServerSolved):
        yield (
            "local.name",
            f'local.name = "{name}" sends exact sums from which the server computes class codes, and exchange.privacy adds '
            "no noise to them. Choose another local method, such as csq.",
        )
    if local.traits.needs_label_counts:
        yield (
            "local.name",
            f'local.name = "{name}" needs the exact numbers of items per label of all silos, which exchange.privacy does '
            "not let a silo send. Choose another local method, such as csq.",
        )
    if privacy.unit == "record" and not local.traits.record_terms:
        yield (
            "local.name",
            f'local.name = "{name}" compares items with each other or keeps their codes, so an item takes part in the '
            'gradients of others, and exchange.privacy.unit = "record" has no guarantee. Choose csq, or set the unit to '
            '"silo".',
        )


def _of_run(config: RunConfig, privacy: PrivacyConfig) -> Iterator[Objection]:
    """Yield the other settings under which silos would send something exact, or too little noise hides it."""
    if config.evaluate.validation:
        yield (
            "evaluate.validation",
            f"evaluate.validation = {config.evaluate.validation:g} lets silos send exact scores on their items, which "
            "exchange.privacy does not hide. Set evaluate.validation = 0; the last round is then used.",
        )
    settings = config.federated
    if settings.weight_cap < 1:
        yield (
            "federated.weight_cap",
            "federated.weight_cap has no effect: under exchange.privacy all silos have the same weight. Remove it.",
        )
    if privacy.unit == "silo" and settings.robust is not None:
        yield (
            "federated.robust",
            f'federated.robust: the rule "{settings.robust.rule}" uses the updates of single silos, and with '
            'exchange.privacy.unit = "silo" only their sum is hidden. Remove federated.robust, or set the unit to "record".',
        )
    if config.model.image or config.model.text:
        yield (
            "model",
            "model.image and model.text fine-tune published networks, whose layers exchange.privacy does not support. Take "
            "the features of such a network instead, with features.image or features.text.",
        )
    if config.train.clip_norm and privacy.unit == "record":
        yield (
            "train.clip_norm",
            f"train.clip_norm = {config.train.clip_norm:g} has no effect: exchange.privacy.clip_norm limits the gradient of "
            "each item. Remove train.clip_norm.",
        )


def _of_compression(config: RunConfig, privacy: PrivacyConfig) -> Iterator[Objection]:
    """Yield a compression of updates whose noise must add up to that of the accountant."""
    compression = config.exchange.compression
    if privacy.unit == "silo" and compression is not None and compression.kind != "hash_layers":
        yield (
            "exchange.compression",
            f'exchange.compression: with exchange.privacy.unit = "silo", each silo adds a part of the noise, and '
            f'"{compression.kind}" changes each part by itself, so the sum hides less than epsilon says. Remove '
            'exchange.compression, or set the unit to "record".',
        )


def objections_to_private_silos(config: RunConfig, silos: int) -> Iterator[Objection]:
    """Yield the unit "silo" if too few silos take part in a round.

    Args:
        config: The config of the run.
        silos: Number of silos of the run.
    """
    privacy, drawn = config.exchange.privacy, config.federated.participants(silos)
    if privacy is not None and privacy.unit == "silo" and drawn < FEWEST_SILOS:
        yield (
            "exchange.privacy.unit",
            f'exchange.privacy.unit = "silo" hides a silo in the noise of others, and only {drawn} of {silos} takes part '
            'in a round. Raise federated.fraction or the number of silos, or set the unit to "record".',
        )
