"""Which federated methods can train local methods without gradient steps, and which rounds they need."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from silohash.run.config.ineffective import Objection
from silohash.run.config.sections import RunConfig

if TYPE_CHECKING:
    from silohash.methods.federated.base import FederatedMethod
    from silohash.methods.local.base import LocalMethod

ALONE = '"centralized", "local"'
"""Federated methods that can train every local method without gradient steps."""


def objections_to_closed_form(config: RunConfig, local: LocalMethod, federated: FederatedMethod) -> Iterator[Objection]:
    """Yield the federated method, or a setting of its rounds, if it cannot train the local method.

    A method that adds terms to a loss, or averages the steps of optimizers, cannot train a local method without gradient
    steps. A method that adds up sums cannot train any other.
    """
    from silohash.methods.local.base import ClosedForm
    from silohash.methods.local.closed_form.base import FromSums

    name, method, trains = config.local.name, config.federated.name, federated.traits.closed_form
    if isinstance(local, ClosedForm) and trains == "none":
        averaged = f'"fedavg", {ALONE}' if local.traits.codes_comparable else ALONE
        sums = ', or "fedsums"' if isinstance(local, FromSums) else ""
        yield (
            "federated.name",
            (
                f'"{method}" trains by gradient steps, and local.name = "{name}" has none. Set federated.name = '
                f"{averaged}{sums}."
            ),
        )
    alone = federated.traits.pooled or federated.traits.personalized
    if isinstance(local, ClosedForm) and trains == "silos" and not alone and not local.traits.codes_comparable:
        yield (
            "federated.name",
            (
                f'"{method}" averages the models of silos, and a bit of local.name = "{name}" means something else in every '
                f"silo. Set federated.name = {ALONE}."
            ),
        )
    if trains == "sums":
        yield from _objections_to_sums(config, local)


def _objections_to_sums(config: RunConfig, local: LocalMethod) -> Iterator[Objection]:
    """Yield what keeps a model from being solved from the sums of all silos."""
    from silohash.methods.local.closed_form.base import FromSums

    name, method, settings = config.local.name, config.federated.name, config.federated
    others = '"fedavg"' if local.traits.codes_comparable else ALONE
    if not isinstance(local, FromSums):
        yield (
            "federated.name",
            (
                f'"{method}" solves a local method from sums over items, which local.name = "{name}" does not define. Set '
                f'local.name = "scm" or "cmfh", or federated.name = {others}.'
            ),
        )
        return
    needed = local.exchanges(config.local.bits)
    if settings.rounds < needed:
        yield (
            "federated.rounds",
            (
                f'federated.rounds = {settings.rounds}, and "{name}" with local.bits = {config.local.bits} needs {needed} '
                f"rounds of sums. Set federated.rounds = {needed}."
            ),
        )
    if settings.fraction < 1:
        yield (
            "federated.fraction",
            (
                f'federated.fraction = {settings.fraction:g}, and "{method}" needs the sums of the same silos in every '
                "round. Remove federated.fraction."
            ),
        )


def remarks_on_closed_form(config: RunConfig, federated: FederatedMethod) -> list[str]:
    """Return a remark if rounds of a local method without gradient steps repeat what the first one computes."""
    rounds = config.federated.rounds
    if federated.traits.closed_form != "silos" or rounds == 1:
        return []
    return [
        f'local.name = "{config.local.name}" has no gradient steps, so further rounds repeat most of the first one. '
        f"Set federated.rounds = 1 instead of {rounds}."
    ]
