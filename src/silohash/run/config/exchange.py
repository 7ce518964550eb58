"""What a config cannot combine with a transformation of the updates that silos send: noise, compression, encryption.

Under differential privacy, a setting is refused if anything exact would leave a silo beside what the accountant counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from silohash.base.registry import Registry
from silohash.methods.federated import FEDERATED_METHODS
from silohash.methods.local import LOCAL_METHODS
from silohash.run.config.objections import SELF_COUNTING, Objection, no_effect
from silohash.run.config.sections import CompressionConfig, PrivacyConfig, RunConfig

if TYPE_CHECKING:
    from silohash.methods.federated.base import FederatedMethod
    from silohash.methods.local.base import LocalMethod
    from silohash.methods.traits import Traits

COMPRESSION, ENCRYPTION = "exchange.compression", "exchange.encryption"

FEWEST_SILOS = 2
"""With fewer silos per round, a sum is the update of a single silo, and no noise of others hides what a silo contributed."""

SUM_ONLY = "and with encryption it sees nothing but their sum"

WITH_FEEDBACK = ("int8", "top_k")
"""Kinds of compression with which a silo adds what it left out to its next update."""


def objections_to_privacy(
    config: RunConfig, privacy: PrivacyConfig, local: LocalMethod, federated: FederatedMethod
) -> Iterator[Objection]:
    """Yield why differential privacy would not hold, as far as this can be told from the config alone."""
    yield from _of_federated(config, privacy, federated)
    yield from _of_local(config, privacy, local)
    yield from _of_run(config, privacy)
    compression = config.exchange.compression
    if privacy.unit == "silo" and compression is not None and compression.kind != "hash_layers":
        yield (
            COMPRESSION,
            f'{COMPRESSION}: with exchange.privacy.unit = "silo", each silo adds a part of the noise, and '
            f'"{compression.kind}" changes each part by itself, so the sum hides less than epsilon says. Remove '
            f'{COMPRESSION}, or set the unit to "record".',
        )


def _of_federated(config: RunConfig, privacy: PrivacyConfig, federated: FederatedMethod) -> Iterator[Objection]:
    """Yield why what the federated method sends has no guarantee."""
    name, unit = config.federated.name, privacy.unit
    if unit not in federated.traits.private_units:
        others = [f'"{other}"' for other in federated.traits.private_units]
        remedy = f"Set exchange.privacy.unit = {others[0]}, or choose" if others else "Choose"
        private = _first(FEDERATED_METHODS, lambda traits: unit in traits.private_units)
        yield (
            "federated.name",
            f'federated.name: with "{name}", {_sent(federated.traits)}, so exchange.privacy.unit = "{unit}" has no '
            f"guarantee. {remedy} another federated method, such as {private}.",
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
    flaws = {
        "computes the parameters from exact sums, to which exchange.privacy does not add noise. Choose a method that is "
        "trained by gradient steps, such as {able}.": isinstance(local, ClosedForm),
        "sends exact sums from which the server computes class codes, and exchange.privacy adds no noise to them. Choose "
        "another local method, such as {able}.": isinstance(local, ServerSolved),
        "needs the exact numbers of items per label of all silos, which exchange.privacy does not let a silo send. Choose "
        "another local method, such as {able}.": local.traits.needs_label_counts,
        "compares items with each other or keeps their codes, so an item takes part in the gradients of others, and "
        'exchange.privacy.unit = "record" has no guarantee. Choose {able}, or set the unit to "silo".': (
            privacy.unit == "record" and not local.traits.record_terms
        ),
    }
    for flaw, there in flaws.items():
        if there:
            able = _first(LOCAL_METHODS, lambda traits: traits.record_terms)
            yield "local.name", f'local.name = "{name}" {flaw.format(able=able)}'


def _first(registry: Registry, fits: Callable[[Traits], bool]) -> str:
    """Return the first built-in method of a family whose traits fit."""
    return next(name for name in registry.table if fits(registry.resolve(name).traits))


def _of_run(config: RunConfig, privacy: PrivacyConfig) -> Iterator[Objection]:
    """Yield the other settings under which silos would send something exact, or too little noise hides it."""
    if config.evaluate.validation:
        yield (
            "evaluate.validation",
            f"evaluate.validation = {config.evaluate.validation:g} lets silos send exact scores on their items, which "
            "exchange.privacy does not hide. Set evaluate.validation = 0; the last round is then used.",
        )
    settings = config.federated
    if settings.given_cap < 1:
        yield no_effect("federated.weight_cap", "under exchange.privacy all silos have the same weight")
    if privacy.unit == "silo" and (settings.robust is not None or settings.norm_limit):
        key = "federated.norm_limit" if settings.robust is None else "federated.robust"
        yield (
            key,
            f'{key} uses the updates of single silos, and with exchange.privacy.unit = "silo" only their sum is hidden. '
            f'Remove {key}, or set the unit to "record".',
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


def objections_to_private_silos(config: RunConfig, silos: int) -> Iterator[Objection]:
    """Yield the unit "silo" if too few silos take part in a round."""
    privacy, drawn = config.exchange.privacy, config.federated.participants(silos)
    if privacy is not None and privacy.unit == "silo" and drawn < FEWEST_SILOS:
        yield (
            "exchange.privacy.unit",
            f'exchange.privacy.unit = "silo" hides a silo in the noise of others, and only {drawn} of {silos} takes part '
            'in a round. Raise federated.fraction or the number of silos, or set the unit to "record".',
        )


def objections_to_exchange(config: RunConfig, local: LocalMethod, federated: FederatedMethod) -> Iterator[Objection]:
    """Yield the transformations of updates that have no effect with the methods of a config, or harm them."""
    compression = config.exchange.compression
    if compression is not None:
        for message in _against_compression(config, compression, local, federated):
            yield COMPRESSION, f"{COMPRESSION}{message}"
        if compression.kind != "top_k" and compression.share != CompressionConfig.model_fields["share"].default:
            yield no_effect(f"{COMPRESSION}.share", f'"{compression.kind}" does not use it')
    if config.exchange.encryption is not None:
        for message in _against_encryption(config, federated):
            yield ENCRYPTION, f"{ENCRYPTION}{message}"


def _against_encryption(config: RunConfig, federated: FederatedMethod) -> Iterator[str]:
    """Yield why silos have nothing to encrypt, or the server would have to see single silos, as the ends of messages."""
    name, settings, compression = config.federated.name, config.federated, config.exchange.compression
    traits = federated.traits
    sends = traits.shares != "none" or traits.means or traits.closed_form == "sums"
    if traits.pooled or not sends:
        yield f' has no effect: with federated.name = "{name}", silos do not send anything to add up. Remove it.'
    if traits.uplink != "sum":
        yield (
            f': with federated.name = "{name}", the server computes with the message of each silo, {SUM_ONLY}. Choose '
            "another federated method, or remove it."
        )
    if settings.robust is not None:
        yield (
            f': the rule "{settings.robust.rule}" compares the updates of single silos, {SUM_ONLY}. Remove '
            "federated.robust."
        )
    if settings.given_cap < 1:
        yield f": a cap needs the weights of single silos, {SUM_ONLY}. Remove federated.weight_cap."
    if settings.norm_limit:
        yield f": federated.norm_limit compares the updates of single silos, {SUM_ONLY}. Remove federated.norm_limit."
    if compression is not None and compression.kind != "hash_layers":
        yield (
            f': encrypted parameters cannot be compressed with "{compression.kind}". Remove {COMPRESSION}, or use the kind '
            '"hash_layers".'
        )
    if config.partition.kind not in SELF_COUNTING and settings.participants(config.partition.silos) < FEWEST_SILOS:
        yield f": the sum over one silo is that silo's update. Let at least {FEWEST_SILOS} silos take part in a round."


def _against_compression(
    config: RunConfig, compression: CompressionConfig, local: LocalMethod, federated: FederatedMethod
) -> Iterator[str]:
    """Yield why silos cannot compress their parameters, as the ends of messages."""
    from silohash.methods.local.base import ClosedForm

    method, kind, robust = config.federated.name, compression.kind, config.federated.robust
    instead = 'Use the kind "int8", "half" or "top_k".'
    if federated.traits.pooled or federated.traits.shares == "none":
        yield f' has no effect: with federated.name = "{method}", silos do not send parameters. Remove it.'
    if isinstance(local, ClosedForm):
        yield (
            f': local.name = "{config.local.name}" computes its model once, so what is left out would be lost. Remove it.'
        )
    if kind in WITH_FEEDBACK and config.federated.rounds == 1:
        yield (
            f': "{kind}" sends what it leaves out in the next round, and there is only one. Raise federated.rounds, or use '
            'the kind "half".'
        )
    if kind == "top_k" and robust is not None and robust.rule != "clip":
        yield (
            f': with "top_k" most values of an update are unchanged, which the rule "{robust.rule}" takes for what the '
            'silos agree on. Use the kind "int8", or the rule "clip".'
        )
    if kind == "hash_layers" and federated.traits.personalized:
        yield f': "hash_layers" trains one common model, and "{method}" trains one per silo. {instead}'
    if kind == "hash_layers" and federated.traits.class_head:
        yield f': "{method}" needs a trained classifier, which "hash_layers" leaves untrained. {instead}'
