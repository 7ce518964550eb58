"""What a config cannot combine with local methods that score pairs, and what it can only combine with them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from silohash.base.types import PAIR_TASKS
from silohash.run.config.ineffective import Objection
from silohash.run.config.sections import RunConfig

if TYPE_CHECKING:
    from silohash.methods.federated.base import FederatedMethod


def objections_to_scores(config: RunConfig, federated: FederatedMethod) -> Iterator[Objection]:
    """Yield the settings that need codes to be measured, for a local method whose scores are measured."""
    from silohash.evaluate.measures import Measure
    from silohash.methods.federated import FEDERATED_METHODS

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


def objections_without_scores(config: RunConfig) -> Iterator[Objection]:
    """Yield the measures that need scores of pairs, for a local method that has only codes."""
    from silohash.evaluate.measures import Measure

    for text in config.evaluate.measures:
        if Measure.parse(text).by == "scores":
            yield (
                "evaluate.measures",
                f'"{text}" compares codes with the scores of pairs, and local.name = "{config.local.name}" has only codes. '
                "Remove it.",
            )
