"""Limits on what silos on other machines claim, on their share of an average, and on the length of their updates."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from silohash.base.types import Arrays
from silohash.methods.federated.averaging import has_weight
from silohash.methods.federated.robust import capped_average, change_length
from silohash.methods.federated.shared_means import TOLERANCE, SharedMean
from silohash.methods.local.base import class_group
from silohash.methods.message import Message
from silohash.run.config.load import ResolvedConfig
from silohash.run.config.objections import EQUAL_SILOS, FEWEST_SILOS
from silohash.run.config.sections import WEIGHT_CAP
from silohash.training.updates.chain import Link


@dataclass(frozen=True)
class Announced:
    """What a silo announced before its first round: its numbers of training items and of validation items.

    ``labels`` holds the number of training items per label, ``(C,)`` int64; None if the silo did not count them.
    """

    training: int = 0
    validation: int = 0
    labels: npt.NDArray[np.int64] | None = None

    def overclaim(self, counts: Mapping[str, int]) -> str | None:
        """Return which count of a message exceeds what the silo announced, or None."""
        for name, announced in (("items", self.training), ("queries", self.validation)):
            if counts.get(name, 0) > announced:
                return f"it claims {counts[name]:,} {name}, but announced {announced:,} before its first round"
        return None


@dataclass(frozen=True)
class Bounds(Link):
    """Reject claims beyond what a silo announced, and updates that are far longer than the median of their round.

    Attributes:
        announced: What each silo announced; empty if all silos are simulated in one program.
        largest_weight: Largest weight of a silo; None if it is the number of items that it announced.
        norm_limit: Limit on an update's length, as a multiple of the median; 0 for none.
    """

    announced: Sequence[Announced]
    means: Sequence[SharedMean]
    largest_weight: float | None
    norm_limit: float

    @override
    def objection(self, update: Message) -> str | None:
        """Object to counts, weights and class counts beyond what the silo announced."""
        if not self.announced:
            return None
        own = self.announced[update.silo]
        return own.overclaim(update.counts) or self._beyond(own, update)

    def _beyond(self, own: Announced, update: Message) -> str | None:
        """Return which weight, or which count beside the parameters, is larger than the announced items allow."""
        by_class = {class_group(number): count for number, count in enumerate(() if own.labels is None else own.labels)}
        for group, weight in update.weights.items():
            most = by_class.get(group, own.training) if self.largest_weight is None else self.largest_weight
            if weight > most * (1 + TOLERANCE):
                return f"its weight for {group} is {weight:g}, but at most {most:g} follows from what it announced"
        for mean in self.means:
            for name in mean.pairs(update).values() if mean.section == "sums" and not mean.per_group else ():
                most_items = np.asarray(max(1, own.training))
                limits = own.labels if mean.by_row and own.labels is not None else most_items
                if (mean.values(update)[name] > limits * (1 + TOLERANCE)).any():
                    return f"{name} counts more items than it announced before its first round"
        return None

    @override
    def compares(self) -> bool:
        """Return whether there is a limit on the length."""
        return self.norm_limit > 0

    @override
    def refused(self, current: Arrays, updates: Sequence[Message]) -> Mapping[int, str]:
        """Refuse updates longer than the limit. With fewer than three updates, the median shows nothing."""
        if not self.norm_limit:
            return {}
        lengths = {update.silo: change_length(current, update) for update in updates if has_weight(update)}
        median = float(np.median(list(lengths.values()))) if len(lengths) >= FEWEST_SILOS else 0.0
        return {
            silo: f"its update is {length / median:.3g} times as long as the median silo's, and federated.norm_limit is "
            f"{self.norm_limit:g}"
            for silo, length in lengths.items()
            if length > self.norm_limit * median > 0
        }


def capped(resolved: ResolvedConfig, items: Mapping[str, int]) -> ResolvedConfig:
    """Return the methods of a run with a cap on a silo's share of an average, unless its config or methods rule that out.

    A silo that announced a larger share of all training items, ``items``, is remarked on.
    """
    settings, exchange, federated = resolved.config.federated, resolved.config.exchange, resolved.federated
    known = settings.weight_cap is not None or (settings.robust is not None and settings.robust.rule in EQUAL_SILOS)
    sums = any(part.traits.reveals for part in federated.parts(settings.name).values())
    hidden = exchange.privacy is not None or exchange.encryption is not None
    few = settings.participants(len(items)) < FEWEST_SILOS
    if known or sums or hidden or few or not federated.traits.averages:
        return resolved
    aggregation, total = federated.run.aggregation, sum(items.values())
    average = partial(capped_average, aggregation.average, WEIGHT_CAP)
    remarks = (
        f"{name} announced {count:,} of {total:,} training items. Its share of an average is at most {WEIGHT_CAP:g}; "
        "federated.weight_cap changes this."
        for name, count in items.items()
        if count > WEIGHT_CAP * total
    )
    limited = federated.averaging(replace(aggregation, average=average))
    return replace(resolved, federated=limited, remarks=(*resolved.remarks, *remarks))
