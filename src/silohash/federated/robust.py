"""Rules that bear faulty silos, for any federated method: they take the average's place, or look at updates before it.

A faulty silo may send anything: noise, a move in the wrong direction, or one so large that it drowns the others. The rules
need each silo's update by itself, so that they cannot stand together with secure aggregation.

Differs from the papers: weights count where a rule leaves room for them (clipping, multi-Krum); coordinate-wise rules take
every silo alike, as published. A parameter group is taken over the silos that have its modality.

Sources: coordinate-wise median and trimmed mean, Yin et al., "Byzantine-Robust Distributed Learning: Towards Optimal
Statistical Rates", ICML 2018; multi-Krum, Blanchard et al., "Machine Learning with Adversaries: Byzantine Tolerant Gradient
Descent", NeurIPS 2017; clipping of moves, Sun et al., "Can You Really Backdoor Federated Learning?", 2019.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from silohash.exchange.message import Message
from silohash.federated.averaging import Aggregation, Average, Screened, capped_weights
from silohash.models.towers import group_of
from silohash.types import Arrays

Vector: TypeAlias = npt.NDArray[np.float64]
LARGE_UPDATE = 5.0
"""A move more than so many times the median move is named in the round's record."""

MIN_COSINE = -0.2
"""So is one whose cosine with the sum of the others' is below this: near the end honest moves are all but orthogonal."""

SAMPLED_VALUES = 1 << 15
"""About so many numbers of each array are looked at for that."""

MIN_QUERIES = 10
"""A silo with fewer held-back questions is not judged by them."""

MAX_CHANCE = 0.8
"""Nor is one in which chance reaches more than this: nearly all its items are alike, whatever their labels."""

MIN_TYPICAL_SKILL = 0.1
"""Nor is any before the median silo's skill has come so far."""

MIN_RELATIVE_SKILL = 0.3
"""A silo is named where the model's skill is less than so much of the median silo's.

Measured on photos and products, in even and very unequal shares: silos with random labels reach about 0.2 of it at most from
the second round on, honest ones at least 0.65 from the first. Where silos hold few classes and few items, an honest one may
be named after the first round.
"""


def coordinate_median(current: Arrays, updates: Sequence[Message]) -> Arrays:
    """Returns the median of every number over silos. Source: Yin et al., option I."""
    return _by_coordinate(current, updates, lambda stacked: np.median(stacked, axis=0))


def trimmed_mean(current: Arrays, updates: Sequence[Message], *, share: float) -> Arrays:
    """Returns the mean of every number without its ``share`` smallest and largest. Source: Yin et al., option II."""

    def mean(stacked: np.ndarray) -> np.ndarray:
        """Returns the mean over the silos in the middle."""
        cut = min(int(np.ceil(share * len(stacked))), (len(stacked) - 1) // 2)
        middle: np.ndarray = np.sort(stacked, axis=0)[cut : len(stacked) - cut].mean(axis=0)
        return middle

    return _by_coordinate(current, updates, mean)


def _by_coordinate(current: Arrays, updates: Sequence[Message], rule: Callable[[np.ndarray], np.ndarray]) -> Arrays:
    found: Arrays = {}
    for name, before in current.items():
        holders = [u.params[name] for u in updates if name in u.params and u.weights.get(group_of(name), 0.0) > 0]
        if not holders:
            continue
        if np.issubdtype(before.dtype, np.floating):
            found[name] = rule(np.stack(holders)).astype(before.dtype)
        else:
            found[name] = np.maximum.reduce(holders)
    return found


def delta_of(current: Arrays, update: Message) -> Vector:
    """Returns how far an update lies from the current parameters, as one vector; zero where the silo lacks a modality."""
    parts = [
        (update.params[name].astype(np.float64) - before).ravel() * (update.weights.get(group_of(name), 0.0) > 0)
        for name, before in sorted(current.items())
        if name in update.params and np.issubdtype(before.dtype, np.floating)
    ]
    return np.concatenate(parts) if parts else np.zeros(0)


def clip_updates(current: Arrays, updates: Sequence[Message], *, factor: float) -> Screened:
    """Cuts every move to at most ``factor`` times the median move, and names those that were cut by more than half."""
    norms = np.asarray([np.linalg.norm(delta_of(current, update)) for update in updates])
    limit = factor * float(np.median(norms[_has_weight(updates)])) if _has_weight(updates).any() else 0.0
    kept, remarks = [], {}
    for update, norm in zip(updates, norms, strict=True):
        shrink = min(1.0, limit / norm) if norm > 0 else 1.0
        if shrink < 0.5:
            remarks[update.sender] = f"its move was {norm / limit:.1f} times the limit and was cut"
        params = {
            name: (current[name] + shrink * (array - current[name])).astype(array.dtype)
            if name in current and np.issubdtype(array.dtype, np.floating)
            else array
            for name, array in update.params.items()
        }
        kept.append(update if shrink == 1.0 else replace(update, params=params))
    return kept, remarks


def multi_krum(current: Arrays, updates: Sequence[Message], *, share: float) -> Screened:
    """Keeps the silos whose moves lie nearest to their neighbours', and names the others.

    With n silos of which f may be faulty, a silo's score is the sum of its n - f - 2 smallest squared distances; the n - f
    lowest scores are kept. Silos without weight do not count among the n. Source: Blanchard et al., section 4.
    """
    weighted = [update for update, has in zip(updates, _has_weight(updates), strict=True) if has]
    count = len(weighted)
    faulty = int(np.ceil(share * count))
    if count < 3 or count - faulty < 1:
        return list(updates), {}
    squares = _squared_distances(current, weighted)
    near = max(1, count - faulty - 2)
    scores = np.sort(squares, axis=1)[:, 1 : near + 1].sum(axis=1)
    left_out = {weighted[number].sender for number in np.argsort(scores, kind="stable")[count - faulty :]}
    remarks = dict.fromkeys(sorted(left_out), "its move lies far from the others' and was left out")
    return [update for update in updates if update.sender not in left_out], remarks


def _has_weight(updates: Sequence[Message]) -> npt.NDArray[np.bool_]:
    """Returns which updates weigh anything."""
    return np.asarray([any(weight > 0 for weight in update.weights.values()) for update in updates], bool)


def _squared_distances(current: Arrays, updates: Sequence[Message]) -> npt.NDArray[np.float64]:
    """Returns squared distances between moves; over the groups that two silos both train, scaled up to all of them."""
    groups = sorted({group_of(name) for name in current})
    squares = np.zeros((len(updates), len(updates)))
    sizes = np.zeros_like(squares)
    total = 0
    for group in groups:
        part = {name: array for name, array in current.items() if group_of(name) == group}
        moves = np.stack([delta_of(part, update) for update in updates])
        trained = np.asarray([update.weights.get(group, 0.0) > 0 for update in updates])
        both = trained[:, None] & trained
        total += moves.shape[1]
        sizes += both * moves.shape[1]
        squares += both * np.asarray([[float(np.square(one - other).sum()) for other in moves] for one in moves])
    far = squares.max(initial=0.0)
    return np.where(sizes > 0, squares * (total / np.maximum(sizes, 1)), far)


def suspicious_updates(current: Arrays, updates: Sequence[Message]) -> dict[str, str]:
    """Returns which silos' moves are far larger than the median, or point away from the others', with the reason."""
    weighted = _has_weight(updates)
    if weighted.sum() < 3:
        return {}
    products = _inner_products(current, updates)
    norms = np.sqrt(np.diag(products))
    typical = float(np.median(norms[weighted]))
    large = norms > LARGE_UPDATE * typical
    found = {}
    for number, (update, norm) in enumerate(zip(updates, norms, strict=True)):
        others = weighted & ~large & (np.arange(len(updates)) != number)
        others_norm = np.sqrt(max(0.0, products[np.ix_(others, others)].sum()))
        if typical > 0 and large[number]:
            found[update.sender] = f"its move is {norm / typical:.0f} times as large as the median silo's"
        elif products[number, others].sum() < MIN_COSINE * norm * others_norm:
            found[update.sender] = "its move points away from the other silos'"
    return found


def mislabeled_silos(scores: Sequence[Message]) -> dict[str, str]:
    """Returns for which silos the common model does hardly better than chance while it serves the others, with the reason.

    That is how wrong labels show. In moves they do not: a silo with few classes moves as far from the others as one whose
    labels are random. The skill is what a score is above chance, as a share of what it could be, so that silos with few
    and with many classes compare. Labels that are renamed alike throughout a silo are no fault: what was alike stays alike.
    Silos measure themselves, so that this finds mistakes, not lies.

    Args:
        scores: each silo's score of the common model on its own held-back ``queries``, and the score's ``chance`` level.

    Returns:
        Silo -> what is said of it; empty with fewer than three silos that can be judged.

    Source: Chen et al., "FOCUS: Dealing with Label Quality Disparity in Federated Learning", 2020: labels are trusted by how
    the common model does on a silo's own data. Skill: Cohen, "A Coefficient of Agreement for Nominal Scales", 1960.
    """
    judged = [m for m in scores if m.counts["queries"] >= MIN_QUERIES and m.scalars.get("chance", 1.0) <= MAX_CHANCE]
    if len(judged) < 3:
        return {}
    skills = [(m.scalars["score"] - m.scalars["chance"]) / (1.0 - m.scalars["chance"]) for m in judged]
    typical = float(np.median(skills))
    reason = "its labels do not fit the others': on its held-back items the model is hardly better than chance"
    return {
        message.sender: reason
        for message, skill in zip(judged, skills, strict=True)
        if typical >= MIN_TYPICAL_SKILL and skill < MIN_RELATIVE_SKILL * typical
    }


def _inner_products(current: Arrays, updates: Sequence[Message]) -> npt.NDArray[np.float64]:
    """Returns the inner products of all moves, ``(n, n)``.

    It runs every round, so that of a large array only some evenly spaced numbers are looked at, and scaled up.
    """
    products = np.zeros((len(updates), len(updates)))
    for name, before in current.items():
        held = np.asarray([u.weights.get(group_of(name), 0.0) > 0 and name in u.params for u in updates])
        if not np.issubdtype(before.dtype, np.floating) or not held.any():
            continue
        every = max(1, before.size // SAMPLED_VALUES)
        start = before.ravel()[::every]
        those = [u for u, there in zip(updates, held, strict=True) if there]
        moves = np.stack([u.params[name].ravel()[::every] - start for u in those])
        products[np.ix_(held, held)] += every * (moves @ moves.T)
    return products


def capped_average(average: Average, cap: float, current: Arrays, updates: Sequence[Message]) -> Arrays:
    """Averages after every silo's weight is cut to at most ``cap`` of all weights of a parameter group.

    Args:
        average: the rule to average by.
        cap: share of all weights.
        current: the current parameters.
        updates: the silos', with the weights that the federated method gives them.
    """
    capped = list(updates)
    for group in {group for update in updates for group in update.weights}:
        limited = capped_weights(np.asarray([update.weights.get(group, 0.0) for update in capped]), cap)
        capped = [
            replace(update, weights={**update.weights, group: float(weight)})
            for update, weight in zip(capped, limited, strict=True)
        ]
    return average(current, capped)


def robust_aggregation(
    rule: str | None = None, *, faulty: float = 0.3, clip_factor: float = 1.0, weight_cap: float = 1.0
) -> Aggregation:
    """Returns how updates are looked at and averaged.

    Args:
        rule: ``median``, ``trimmed_mean``, ``multi_krum``, ``clip``, or None for the weighted average.
        faulty: share of silos that may be faulty.
        clip_factor: moves are cut to so many times the median move.
        weight_cap: no silo weighs more than this share of all.
    """
    rules: Mapping[str | None, Aggregation] = {
        None: Aggregation(),
        "median": Aggregation(average=coordinate_median),
        "trimmed_mean": Aggregation(average=partial(trimmed_mean, share=faulty)),
        "multi_krum": Aggregation(screens=(partial(multi_krum, share=faulty),)),
        "clip": Aggregation(screens=(partial(clip_updates, factor=clip_factor),)),
    }
    chosen = rules[rule]
    if weight_cap < 1.0:
        chosen = replace(chosen, average=partial(capped_average, chosen.average, weight_cap))
    return chosen
