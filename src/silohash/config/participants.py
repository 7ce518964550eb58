"""What robust rules and server-side optimizers need: a method that averages, values that they protect, enough silos."""

from __future__ import annotations

from typing import TYPE_CHECKING

from silohash.config.sections import RunConfig
from silohash.federated import FEDERATED_METHODS

if TYPE_CHECKING:
    from silohash.federated.base import FederatedMethod

SELF_COUNTING = ("column", "nested")
"""Kinds of partition whose number of silos may come from the archive or from their parameters."""


def objections_to_tables(config: RunConfig, federated: FederatedMethod) -> dict[str, str]:
    """Return why ``[federated.robust]`` or ``[federated.server]`` cannot be used with a method, by the table's name."""
    given = {"federated.robust": config.federated.robust, "federated.server": config.federated.server}
    effects = {
        "federated.robust": federated.averages or _median_of_means_only(config, federated),
        "federated.server": federated.averages,
    }
    for section, table in given.items():
        if table is not None and not effects[section]:
            name = config.federated.name
            return {section: f'{section} has no effect: "{name}" does not average parameters. Remove {section}.'}
    if config.federated.robust is None:
        return {}
    if federated.unprotected:
        return {"federated.robust": f"federated.robust: {federated.unprotected}"}
    objection = objection_to_config(config)
    return {"federated.robust": objection} if objection else {}


def _median_of_means_only(config: RunConfig, federated: FederatedMethod) -> bool:
    """Return whether silos send means and no parameters, and the rule is the median, which protects them."""
    robust = config.federated.robust
    only_means = bool(federated.means) and not federated.shares_parameters
    return only_means and robust is not None and robust.rule == "median"


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
