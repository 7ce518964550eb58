"""Which local and federated methods fit together, and which settings fit neither of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from silohash.base.types import PAIR_TASKS
from silohash.methods.federated import FEDERATED_METHODS
from silohash.methods.local import LOCAL_METHODS
from silohash.run.config.ineffective import Objection
from silohash.run.config.sections import RunConfig

if TYPE_CHECKING:
    from silohash.methods.federated.base import FederatedMethod
    from silohash.methods.local.base import LocalMethod


def objections_to_methods(config: RunConfig, local: LocalMethod, federated: FederatedMethod) -> Iterator[Objection]:
    """Yield why the federated method cannot train the local method, and the settings with which it cannot."""
    from silohash.methods.local.base import ClosedForm

    if isinstance(local, ClosedForm):
        yield from _objections_to_closed_form(config, local, federated)
    if federated.traits.closed_form == "sums":
        yield from _objections_to_sums(config, local)
    yield from _objections_to_scores(config, federated) if local.traits.scores_pairs else _without_scores(config)


def remarks_on_methods(config: RunConfig, local: LocalMethod, federated: FederatedMethod) -> Iterator[str]:
    """Yield a remark if rounds of a local method without gradient steps repeat what the first one computes."""
    from silohash.methods.local.base import ClosedForm

    rounds = config.federated.rounds
    if isinstance(local, ClosedForm) and federated.traits.closed_form == "silos" and rounds > 1:
        yield (
            f'local.name = "{config.local.name}" has no gradient steps, so further rounds repeat most of the first one. '
            f"Set federated.rounds = 1 instead of {rounds}."
        )


def _objections_to_closed_form(
    config: RunConfig, local: LocalMethod, federated: FederatedMethod
) -> Iterator[Objection]:
    """Yield the federated method if it adds terms to a loss, or averages models whose bits differ in meaning."""
    from silohash.methods.local.closed_form.base import FromSums

    name, method, traits = config.local.name, config.federated.name, federated.traits
    remedy = (
        f"Set federated.name = {_that_fit(alone=not local.traits.codes_comparable, sums=isinstance(local, FromSums))}."
    )
    if traits.closed_form == "none":
        yield (
            "federated.name",
            f'"{method}" trains by gradient steps, and local.name = "{name}" has none. {remedy}',
        )
    averages = traits.closed_form == "silos" and not (traits.pooled or traits.personalized)
    if averages and not local.traits.codes_comparable:
        yield (
            "federated.name",
            f'"{method}" averages the models of silos, and a bit of local.name = "{name}" means something else in every '
            f"silo. {remedy}",
        )


def _objections_to_sums(config: RunConfig, local: LocalMethod) -> Iterator[Objection]:
    """Yield what keeps a model from being solved from the sums of all silos."""
    from silohash.methods.local.closed_form.base import FromSums

    name, method, settings = config.local.name, config.federated.name, config.federated
    if not isinstance(local, FromSums):
        summed = [f'"{one}"' for one in LOCAL_METHODS.table if issubclass(LOCAL_METHODS.resolve(one), FromSums)]
        yield (
            "federated.name",
            f'"{method}" solves a local method from sums over items, which local.name = "{name}" does not define. Set '
            f"local.name = {' or '.join(summed)}, or federated.name = {_that_fit(alone=not local.traits.codes_comparable)}.",
        )
        return
    needed = local.exchanges(config.local.bits)
    if settings.rounds < needed:
        yield (
            "federated.rounds",
            f'federated.rounds = {settings.rounds}, and "{name}" with local.bits = {config.local.bits} needs {needed} '
            f"rounds of sums. Set federated.rounds = {needed}.",
        )
    if settings.fraction < 1:
        yield (
            "federated.fraction",
            f'federated.fraction = {settings.fraction:g}, and "{method}" needs the sums of the same silos in every round. '
            "Remove federated.fraction.",
        )


def _that_fit(*, alone: bool, sums: bool = False) -> str:
    """Return the built-in federated methods that fit a model to pairs: pooled or per silo only, or also from sums."""
    found = {name: FEDERATED_METHODS.resolve(name).traits for name in FEDERATED_METHODS.table}
    fit = {name for name, t in found.items() if t.closed_form == "silos" and (t.pooled or t.personalized or not alone)}
    return ", ".join(f'"{name}"' for name, t in found.items() if name in fit or (sums and t.closed_form == "sums"))


def _objections_to_scores(config: RunConfig, federated: FederatedMethod) -> Iterator[Objection]:
    """Yield the settings that need codes to be measured, for a local method whose scores are measured."""
    from silohash.evaluate.measures import Measure

    scores = f'local.name = "{config.local.name}" scores pairs of an image and a text'
    if not federated.traits.trains_scores:
        able = [name for name in FEDERATED_METHODS.table if FEDERATED_METHODS.resolve(name).traits.trains_scores]
        yield (
            "federated.name",
            f'"{config.federated.name}" trains codes, and {scores}. Set federated.name = {", ".join(able)}.',
        )
    if set(config.evaluate.tasks) - set(PAIR_TASKS):
        yield (
            "evaluate.tasks",
            f"{scores}, so only the tasks {' and '.join(PAIR_TASKS)} can be measured. Remove the others.",
        )
    if config.evaluate.validation_by == "labels":
        yield "evaluate.validation_by", f'{scores}, so pairs choose the round. Set it to "pairs" or "auto".'
    for text in config.evaluate.measures:
        if Measure.parse(text).radius_bits is not None:
            yield "evaluate.measures", f'{scores}, which have no distance in bits. Remove "{text}".'


def _without_scores(config: RunConfig) -> Iterator[Objection]:
    """Yield the measures that need scores of pairs, for a local method that has only codes."""
    from silohash.evaluate.measures import Measure

    for text in config.evaluate.measures:
        if Measure.parse(text).by == "scores":
            yield (
                "evaluate.measures",
                f'"{text}" compares codes with the scores of pairs, and local.name = "{config.local.name}" has only codes. '
                "Remove it.",
            )
