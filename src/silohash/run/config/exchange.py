"""What a config cannot combine with a transformation of the updates that silos send."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from silohash.run.config.ineffective import SELF_COUNTING, Objection
from silohash.run.config.sections import CompressionConfig, RunConfig

if TYPE_CHECKING:
    from silohash.methods.federated.base import FederatedMethod
    from silohash.methods.local.base import LocalMethod

COMPRESSION, ENCRYPTION = "exchange.compression", "exchange.encryption"

FEWEST_SILOS = 2
"""With fewer silos per round, a sum is the update of a single silo."""

SUM_ONLY = "and with encryption it sees nothing but their sum"

WITH_FEEDBACK = ("int8", "top_k")
"""Kinds of compression with which a silo adds what it left out to its next update."""


def objections_to_exchange(config: RunConfig, local: LocalMethod, federated: FederatedMethod) -> Iterator[Objection]:
    """Yield the transformations of updates that have no effect with the methods of a config, or harm them."""
    compression = config.exchange.compression
    if compression is not None:
        yield from _objections_to_compression(config, compression, local, federated)
    if config.exchange.encryption is not None:
        yield from _objections_to_encryption(config, federated)
        yield from _settings_against_encryption(config)


def _objections_to_encryption(config: RunConfig, federated: FederatedMethod) -> Iterator[Objection]:
    """Yield why silos have nothing to encrypt, or the server cannot do without the message of each silo."""
    name = config.federated.name
    traits = federated.traits
    sends = traits.shares != "none" or traits.means or traits.closed_form == "sums"
    if traits.pooled or not sends:
        yield (
            ENCRYPTION,
            f'{ENCRYPTION} has no effect: with federated.name = "{name}", silos do not send anything to add up. Remove it.',
        )
    if traits.uplink != "sum":
        yield (
            ENCRYPTION,
            f'{ENCRYPTION}: with federated.name = "{name}", the server computes with the message of each silo, {SUM_ONLY}. '
            "Choose another federated method, or remove it.",
        )


def _settings_against_encryption(config: RunConfig) -> Iterator[Objection]:
    """Yield the settings for which the server would have to see single silos."""
    settings, compression = config.federated, config.exchange.compression
    if settings.robust is not None:
        yield (
            ENCRYPTION,
            f'{ENCRYPTION}: the rule "{settings.robust.rule}" compares the updates of single silos, {SUM_ONLY}. Remove '
            "federated.robust.",
        )
    if settings.weight_cap < 1:
        yield (
            ENCRYPTION,
            f"{ENCRYPTION}: a cap needs the weights of single silos, {SUM_ONLY}. Remove federated.weight_cap.",
        )
    if compression is not None and compression.kind != "hash_layers":
        yield (
            ENCRYPTION,
            f'{ENCRYPTION}: encrypted parameters cannot be compressed with "{compression.kind}". Remove {COMPRESSION}, or '
            'use the kind "hash_layers".',
        )
    if config.partition.kind not in SELF_COUNTING and settings.participants(config.partition.silos) < FEWEST_SILOS:
        yield (
            ENCRYPTION,
            f"{ENCRYPTION}: the sum over one silo is that silo's update. Let at least {FEWEST_SILOS} silos take part in a "
            "round.",
        )


def _objections_to_compression(
    config: RunConfig, compression: CompressionConfig, local: LocalMethod, federated: FederatedMethod
) -> Iterator[Objection]:
    """Yield why silos cannot compress their parameters, or why a key of the compression has no effect."""
    from silohash.methods.local.base import ClosedForm

    method, kind, robust = config.federated.name, compression.kind, config.federated.robust
    if federated.traits.pooled or federated.traits.shares == "none":
        yield (
            COMPRESSION,
            f'{COMPRESSION} has no effect: with federated.name = "{method}", silos do not send parameters. Remove it.',
        )
    if isinstance(local, ClosedForm):
        yield (
            COMPRESSION,
            f'{COMPRESSION}: local.name = "{config.local.name}" computes its model once, so what is left out would be lost. '
            "Remove it.",
        )
    if kind in WITH_FEEDBACK and config.federated.rounds == 1:
        yield (
            COMPRESSION,
            f'{COMPRESSION}: "{kind}" sends what it leaves out in the next round, and there is only one. Raise '
            'federated.rounds, or use the kind "half".',
        )
    if kind == "top_k" and robust is not None and robust.rule != "clip":
        yield (
            COMPRESSION,
            f'{COMPRESSION}: with "top_k" most values of an update are unchanged, which the rule "{robust.rule}" takes for '
            'what the silos agree on. Use the kind "int8", or the rule "clip".',
        )
    if kind == "hash_layers":
        yield from _objections_to_hash_layers(method, federated)
    if kind != "top_k" and compression.share != CompressionConfig.model_fields["share"].default:
        yield f"{COMPRESSION}.share", f'{COMPRESSION}.share has no effect: "{kind}" does not use it. Remove it.'


def _objections_to_hash_layers(method: str, federated: FederatedMethod) -> Iterator[Objection]:
    """Yield why a method cannot train the hash layers alone."""
    instead = 'Use the kind "int8", "half" or "top_k".'
    if federated.traits.personalized:
        yield (
            COMPRESSION,
            f'{COMPRESSION}: "hash_layers" trains one common model, and "{method}" trains one per silo. {instead}',
        )
    if federated.traits.class_head:
        yield (
            COMPRESSION,
            f'{COMPRESSION}: "{method}" needs a trained classifier, which "hash_layers" leaves untrained. {instead}',
        )
