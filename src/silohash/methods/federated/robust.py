"""Rules that limit the influence of faulty silos, for any federated method.

A faulty silo may send noise, an update in the wrong direction, or one so large that it dominates the average. A rule
replaces the average or inspects the updates beforehand. Beside the parameters, every rule protects the means that a method
declares (`silohash.methods.federated.shared_means`). The rules need each silo's update individually, so they cannot be
combined with secure aggregation.

Clipping and multi-Krum respect the silos' weights. The coordinate-wise rules treat all silos equally, as published.
Each parameter group is computed over the silos that have its modality.

Sources: coordinate-wise median and trimmed mean, Yin et al., "Byzantine-Robust Distributed Learning: Towards Optimal
Statistical Rates", ICML 2018; multi-Krum, Blanchard et al., "Machine Learning with Adversaries: Byzantine Tolerant
Gradient Descent", NeurIPS 2017; clipping, Sun et al., "Can You Really Backdoor Federated Learning?", 2019.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from silohash.base.types import Arrays, ReadArrays
from silohash.methods.federated.averaging import Aggregation, Average, Screened, capped_weights, has_weight
from silohash.methods.federated.shared_means import SharedMean, with_median_means
from silohash.methods.message import Message
from silohash.methods.stored import part_of
from silohash.models.towers import group_of

Vector: TypeAlias = npt.NDArray[np.float64]

BLOCK_BYTES = 1 << 28
"""Memory for the values of all silos that a rule compares at a time."""


def coordinate_median(current: Arrays, updates: Sequence[Message]) -> Arrays:
    """Return the median of each parameter over the silos. Source: Yin et al., option I."""
    return _by_coordinate(current, updates, lambda stacked: np.median(stacked, axis=0))


def trimmed_mean(current: Arrays, updates: Sequence[Message], *, share: float) -> Arrays:
    """Return the mean of each parameter without its ``share`` smallest and largest values.

    Source: Yin et al., option II.
    """

    def _mean(stacked: np.ndarray) -> np.ndarray:
        cut = min(int(np.ceil(share * len(stacked))), (len(stacked) - 1) // 2)
        return np.asarray(np.sort(stacked, axis=0)[cut : len(stacked) - cut].mean(axis=0))

    return _by_coordinate(current, updates, _mean)


def _by_coordinate(current: Arrays, updates: Sequence[Message], rule: Callable[[np.ndarray], np.ndarray]) -> Arrays:
    found: Arrays = {}
    for name, before in current.items():
        holders = [u.params for u in updates if name in u.params and u.weights.get(group_of(name), 0.0) > 0]
        if not holders:
            continue
        if np.issubdtype(before.dtype, np.floating):
            found[name] = _in_blocks(holders, name, before, rule)
        else:
            found[name] = np.maximum.reduce([params[name] for params in holders])
    return found


def _in_blocks(
    holders: Sequence[ReadArrays], name: str, before: np.ndarray, rule: Callable[[np.ndarray], np.ndarray]
) -> np.ndarray:
    """Apply a rule to one parameter of all silos, to as many of its values at a time as the memory allows."""
    size = max(1, BLOCK_BYTES // (before.itemsize * len(holders)))
    found = np.empty(before.size, before.dtype)
    for start in range(0, before.size, size):
        stop = min(start + size, before.size)
        found[start:stop] = rule(np.stack([part_of(params, name, start, stop) for params in holders]))
    return found.reshape(before.shape)


def delta_of(current: ReadArrays, update: Message) -> Vector:
    """Return an update's change as one float64 vector, zero for parameter groups in which the silo has no weight."""
    parts = [
        (update.params[name].astype(np.float64) - before).ravel() * (update.weights.get(group_of(name), 0.0) > 0)
        for name, before in sorted(current.items())
        if name in update.params and np.issubdtype(before.dtype, np.floating)
    ]
    return np.concatenate(parts) if parts else np.zeros(0)


def change_length(current: ReadArrays, update: Message) -> float:
    """Return the Euclidean length of the change that `delta_of` returns, one parameter at a time."""
    return math.hypot(*(float(np.linalg.norm(delta_of({name: current[name]}, update))) for name in update.params))


def clip_updates(current: Arrays, updates: Sequence[Message], _rejected: int = 0, *, factor: float) -> Screened:
    """Shorten updates to ``factor`` times the median length at most, and report those shortened by more than half.

    Rejected updates make no difference.
    """
    norms = np.asarray([np.linalg.norm(delta_of(current, update)) for update in updates])
    limit = factor * float(np.median(norms[_has_weight(updates)])) if _has_weight(updates).any() else 0.0
    kept, remarks = [], {}
    for update, norm in zip(updates, norms, strict=True):
        shrink = min(1.0, limit / norm) if norm > 0 else 1.0
        if shrink < 0.5:
            remarks[update.sender] = f"its update was {norm / limit:.1f} times the limit and was shortened"
        kept.append(update if shrink == 1.0 else replace(update, params=Shortened(current, update.params, shrink)))
    return kept, remarks


class Shortened(Mapping[str, np.ndarray]):
    """The parameters of an update of which a share of the change remains. They are computed when they are used."""

    def __init__(self, current: Arrays, params: ReadArrays, share: float) -> None:
        self.current, self.params, self.share = current, params, share

    def __getitem__(self, name: str) -> np.ndarray:
        array = self.params[name]
        if name not in self.current or not np.issubdtype(array.dtype, np.floating):
            return array
        before = self.current[name]
        return np.asarray((before + self.share * (array - before)).astype(array.dtype))

    def __contains__(self, name: object) -> bool:
        return name in self.params

    def __iter__(self) -> Iterator[str]:
        return iter(self.params)

    def __len__(self) -> int:
        return len(self.params)


def faulty_silos(share: float, silos: int) -> int:
    """Return the number of faulty silos that a share stands for, rounded up.

    Example:
        >>> faulty_silos(0.3, 10), faulty_silos(0.07, 100), faulty_silos(0.3, 7)
        (3, 7, 3)
    """
    return math.ceil(round(share * silos, 9))


def fewest_for_krum(faulty: int) -> int:
    """Return the fewest silos with which multi-Krum withstands f faulty ones: 2f + 3. Source: Blanchard et al."""
    return 2 * faulty + 3


def multi_krum(current: Arrays, updates: Sequence[Message], rejected: int = 0, *, share: float) -> Screened:
    """Keep the silos whose updates are closest to their neighbors, and report the others.

    With n silos of which f may be faulty, a silo's score is the sum of its n - f - 2 smallest squared distances. The n
    - f lowest scores are kept. Silos without weight are not counted in n. A silo whose update was rejected is one of
    the f faulty ones of the round. With fewer than 2f + 3 silos the rule guarantees nothing: faulty silos that send the
    same update are then closer to each other than honest silos are. No update is kept in this case, so that the round
    is skipped. The share is that of the silos of a round that may be faulty.

    Source: Blanchard et al., section 4 and proposition 2.
    """
    weighted = [update for update, has in zip(updates, _has_weight(updates), strict=True) if has]
    count = len(weighted)
    faulty = max(0, faulty_silos(share, count + rejected) - rejected)
    needed = fewest_for_krum(faulty)
    if count < needed:
        few = f"{count} silos with items take part, but {needed} are needed to withstand {faulty} faulty."
        return [], {"multi_krum": f"{few} The round is skipped."}
    squares = _squared_distances(current, weighted)
    scores = np.sort(squares, axis=1)[:, 1 : count - faulty - 1].sum(axis=1)
    left_out = {weighted[number].sender for number in np.argsort(scores, kind="stable")[count - faulty :]}
    remarks = dict.fromkeys(sorted(left_out), "its update is far from the others and was left out")
    return [update for update in updates if update.sender not in left_out], remarks


def _has_weight(updates: Sequence[Message]) -> npt.NDArray[np.bool_]:
    return np.asarray([has_weight(update) for update in updates], bool)


def _squared_distances(current: Arrays, updates: Sequence[Message]) -> npt.NDArray[np.float64]:
    """Return squared distances between updates, ``(n, n)``, over the common groups and scaled up to all groups."""
    groups = sorted({group_of(name) for name in current})
    squares = np.zeros((len(updates), len(updates)))
    sizes = np.zeros_like(squares)
    total = 0
    for group in groups:
        part = {name: array for name, array in current.items() if group_of(name) == group}
        length, between = _squares_within(part, updates)
        trained = np.asarray([update.weights.get(group, 0.0) > 0 for update in updates])
        both = trained[:, None] & trained
        total += length
        sizes += both * length
        squares += both * between
    # nothing shows that two silos without a common group agree, so they are as far apart as the two that are farthest
    scaled = squares * (total / np.maximum(sizes, 1))
    return np.where(sizes > 0, scaled, scaled.max(initial=0.0))


def _squares_within(part: Arrays, updates: Sequence[Message]) -> tuple[int, npt.NDArray[np.float64]]:
    """Return the length of the updates within some parameters, and their squared distances, ``(n, n)``."""
    floats = {name: array for name, array in part.items() if np.issubdtype(array.dtype, np.floating)}
    length = sum(array.size for array in floats.values())
    if 8 * length * len(updates) <= BLOCK_BYTES:
        deltas = np.stack([delta_of(part, update) for update in updates])
        found = [[float(np.square(one - other).sum()) for other in deltas] for one in deltas]
        return deltas.shape[1], np.asarray(found)
    # inner products can be added up over blocks, unlike differences of updates that do not fit into memory
    size = max(1, BLOCK_BYTES // (8 * len(updates)))
    products = np.zeros((len(updates), len(updates)))
    for name, array in sorted(floats.items()):
        for start in range(0, array.size, size):
            before = array.reshape(-1)[start : start + size]
            block = np.stack([_change(before, update, name, start) for update in updates])
            products += block @ block.T
    squares = np.diag(products)
    return length, np.maximum(squares[:, None] + squares - 2.0 * products, 0.0)


def _change(before: np.ndarray, update: Message, name: str, start: int) -> Vector:
    """Return the change of the values from ``start`` on; zero if the silo has no weight or does not send them."""
    if name not in update.params or update.weights.get(group_of(name), 0.0) <= 0:
        return np.zeros(len(before))
    return np.asarray(part_of(update.params, name, start, start + len(before)).astype(np.float64) - before)


def capped_average(average: Average, cap: float, current: Arrays, updates: Sequence[Message]) -> Arrays:
    """Average the updates after limiting every silo's weight to ``cap`` of the total weight of each parameter group."""
    capped = list(updates)
    for group in {group for update in updates for group in update.weights}:
        limited = capped_weights(np.asarray([update.weights.get(group, 0.0) for update in capped]), cap)
        capped = [
            replace(update, weights={**update.weights, group: float(weight)})
            for update, weight in zip(capped, limited, strict=True)
        ]
    return average(current, capped)


def protected_means(
    messages: Sequence[Message], rejected: int, *, means: Sequence[SharedMean] = (), share: float
) -> Screened:
    """Replace the means beside the parameters by their median over silos, of which a share may be faulty.

    The silos whose messages were rejected are among the faulty ones.
    """
    faulty = max(0, faulty_silos(share, len(messages) + rejected) - rejected)
    return with_median_means(messages, means, faulty)


def robust_aggregation(
    rule: str | None = None, *, faulty: float = 0.3, clip_factor: float = 1.0, weight_cap: float = 1.0
) -> Aggregation:
    """Return the aggregation by a rule: ``median``, ``trimmed_mean``, ``multi_krum``, ``clip``, or None for the average.

    A share of the silos may be ``faulty``, updates are shortened to ``clip_factor`` times the median length, and a silo's
    share of the aggregation weight is limited by ``weight_cap``, if that is below 1.
    """
    rules: Mapping[str | None, Aggregation] = {
        None: Aggregation(),
        "median": Aggregation(average=coordinate_median),
        "trimmed_mean": Aggregation(average=partial(trimmed_mean, share=faulty)),
        "multi_krum": Aggregation(screens=(partial(multi_krum, share=faulty),)),
        "clip": Aggregation(screens=(partial(clip_updates, factor=clip_factor),)),
    }
    chosen = rules[rule]
    if rule is not None:
        chosen = replace(chosen, protection=partial(protected_means, share=faulty))
    if weight_cap < 1.0:
        chosen = replace(chosen, average=partial(capped_average, chosen.average, weight_cap))
    return chosen
