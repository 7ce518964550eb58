"""Whether enough silos take part in each round for the robust rule."""

from __future__ import annotations

from silohash.config.sections import RunConfig
from silohash.federated import FEDERATED_METHODS

SELF_COUNTING = ("column", "nested")
"""Kinds of partition whose number of silos may come from the archive or from their parameters."""


def objection_to_config(config: RunConfig) -> str:
    """Return why the configured number of silos is too small; empty if it is not, or is not known yet."""
    return "" if config.partition.kind in SELF_COUNTING else objection_to_silos(config, config.partition.silos)


def objection_to_silos(config: RunConfig, silos: int) -> str:
    """Return why a number of silos is too small for the robust rule, or an empty string.

    Only multi-Krum needs a minimum number. Pooled methods do not combine silos and need none.

    Args:
        config: The config.
        silos: The number of silos of the run.
    """
    from silohash.federated.robust import faulty_silos, fewest_for_krum

    federated, robust = config.federated, config.federated.robust
    if robust is None or robust.rule != "multi_krum" or FEDERATED_METHODS.resolve(federated.name).pooled:
        return ""
    count = federated.participants(silos)
    faulty = faulty_silos(robust.faulty, count)
    if count >= fewest_for_krum(faulty):
        return ""
    return (
        f'federated.robust: "multi_krum" needs at least {fewest_for_krum(faulty)} silos per round to withstand '
        f"{faulty} faulty ones, but {count} of {silos} take part. "
        'Lower federated.robust.faulty, raise federated.fraction, or use the rule "median".'
    )
