"""What a config cannot combine with a transformation of the updates that silos send: noise, compression, encryption.

Under differential privacy, a setting is refused if anything exact would leave a silo beside what the accountant counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from silohash.base.registry import Registry
from silohash.methods.federated import FEDERATED_METHODS
from silohash.methods.local import LOCAL_METHODS
from silohash.run.config.objections import SELF_COUNTING, Objection, no_effect, objection
from silohash.run.config.sections import CompressionConfig, PrivacyConfig, RunConfig

if TYPE_CHECKING:
    from silohash.methods.federated.base import FederatedMethod
    from silohash.methods.local.base import LocalMethod
    from silohash.methods.traits import Traits

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
        yield objection("private-compression", kind=compression.kind)


def _of_federated(config: RunConfig, privacy: PrivacyConfig, federated: FederatedMethod) -> Iterator[Objection]:
    """Yield why what the federated method sends has no guarantee."""
    name, unit = config.federated.name, privacy.unit
    if unit not in federated.traits.private_units:
        others = [f'"{other}"' for other in federated.traits.private_units]
        remedy = f"Set exchange.privacy.unit = {others[0]}, or choose" if others else "Choose"
        private = _first(FEDERATED_METHODS, lambda traits: unit in traits.private_units)
        sent = _sent(federated.traits)
        yield objection("private-method", name=name, sent=sent, unit=unit, remedy=remedy, private=private)
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
        yield objection("private-validation", share=config.evaluate.validation)
    settings = config.federated
    if settings.given_cap < 1:
        yield no_effect("federated.weight_cap", "under exchange.privacy all silos have the same weight")
    if privacy.unit == "silo" and (settings.robust is not None or settings.norm_limit):
        key = "federated.norm_limit" if settings.robust is None else "federated.robust"
        yield objection("private-single-silos", key=key)
    if config.model.image or config.model.text:
        yield objection("private-networks")
    if config.train.clip_norm and privacy.unit == "record":
        yield objection("private-clipping", norm=config.train.clip_norm)


def objections_to_private_silos(config: RunConfig, silos: int) -> Iterator[Objection]:
    """Yield the unit "silo" if too few silos take part in a round."""
    privacy, drawn = config.exchange.privacy, config.federated.participants(silos)
    if privacy is not None and privacy.unit == "silo" and drawn < FEWEST_SILOS:
        yield objection("private-few-silos", drawn=drawn, silos=silos)


def objections_to_exchange(config: RunConfig, local: LocalMethod, federated: FederatedMethod) -> Iterator[Objection]:
    """Yield the transformations of updates that have no effect with the methods of a config, or harm them."""
    compression = config.exchange.compression
    if compression is not None:
        yield from _against_compression(config, compression, local, federated)
        if compression.kind != "top_k" and compression.share != CompressionConfig.model_fields["share"].default:
            yield no_effect("exchange.compression.share", f'"{compression.kind}" does not use it')
    if config.exchange.encryption is not None:
        yield from _against_encryption(config, federated)


def _against_encryption(config: RunConfig, federated: FederatedMethod) -> Iterator[Objection]:
    """Yield why silos have nothing to encrypt, or the server would have to see single silos."""
    name, settings, compression = config.federated.name, config.federated, config.exchange.compression
    traits = federated.traits
    sends = traits.shares != "none" or traits.means or traits.closed_form == "sums"
    if traits.pooled or not sends:
        yield objection("encrypts-nothing", name=name)
    if traits.uplink != "sum":
        yield objection("encrypted-messages", name=name, sum_only=SUM_ONLY)
    if settings.robust is not None:
        yield objection("encrypted-rule", rule=settings.robust.rule, sum_only=SUM_ONLY)
    if settings.given_cap < 1:
        yield objection("encrypted-cap", sum_only=SUM_ONLY)
    if settings.norm_limit:
        yield objection("encrypted-norm-limit", sum_only=SUM_ONLY)
    if compression is not None and compression.kind != "hash_layers":
        yield objection("encrypted-compression", kind=compression.kind)
    if config.partition.kind not in SELF_COUNTING and settings.participants(config.partition.silos) < FEWEST_SILOS:
        yield objection("encrypted-few-silos", fewest=FEWEST_SILOS)


def _against_compression(
    config: RunConfig, compression: CompressionConfig, local: LocalMethod, federated: FederatedMethod
) -> Iterator[Objection]:
    """Yield why silos cannot compress their parameters."""
    from silohash.methods.local.base import ClosedForm

    method, kind, robust = config.federated.name, compression.kind, config.federated.robust
    if federated.traits.pooled or federated.traits.shares == "none":
        yield objection("compresses-nothing", method=method)
    if isinstance(local, ClosedForm):
        yield objection("compressed-once", name=config.local.name)
    if kind in WITH_FEEDBACK and config.federated.rounds == 1:
        yield objection("compressed-in-one-round", kind=kind)
    if kind == "top_k" and robust is not None and robust.rule != "clip":
        yield objection("compressed-rule", rule=robust.rule)
    if kind == "hash_layers" and federated.traits.personalized:
        yield objection("compressed-personal", method=method)
    if kind == "hash_layers" and federated.traits.class_head:
        yield objection("compressed-class-head", method=method)
