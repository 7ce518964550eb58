"""Measures of the first k items of a ranking whose ties are in random order.

The tie group at the cut is only partly within it.

Symbols as in `ties`: b items, g of them relevant, come before the group at the cut. The group has n items, r of them
relevant, and t of its items fall within the cut. Of these t items, h are relevant: h is hypergeometric(n, r, t).
"""

from collections.abc import Callable
from typing import Literal, TypeAlias

import numpy as np

from silohash.evaluate.ties import Counts, Histogram, TieValues, Values, divided, precision_sums

Denominator: TypeAlias = Literal["retrieved", "min", "first-k-relevant", "all"]
Gain: TypeAlias = Literal["linear", "exponential"]


def hits(counts: Histogram, cutoff: int) -> TieValues:
    """Return the number of relevant items among the first ``cutoff``."""
    groups = counts.groups(cutoff)
    expected = groups.within * groups.relevant / np.maximum(groups.items, 1)
    best = np.minimum(groups.relevant, groups.within)
    worst = np.maximum(groups.within - (groups.items - groups.relevant), 0)
    return TieValues(expected.sum(1), best.sum(1).astype(np.float64), worst.sum(1).astype(np.float64))


def success(counts: Histogram, cutoff: int) -> TieValues:
    """Return the probability that a relevant item is among the first ``cutoff``; at best and at worst, 0 or 1."""
    found, best, worst = hits(counts, cutoff)
    # The expected number of hits is then their probability.
    if counts.relevant_in_all.max(initial=0) <= 1:
        return TieValues(found, best, worst)
    none_found = np.ones(len(counts.counts))
    groups = counts.groups(cutoff)
    for column in range(counts.bits + 1):
        for row in np.flatnonzero((groups.relevant[:, column] > 0) & (groups.within[:, column] > 0)):
            items, relevant = int(groups.items[row, column]), int(groups.relevant[row, column])
            within = int(groups.within[row, column])
            few, many = sorted((within, relevant))
            drawn = np.arange(few)
            none_found[row] *= np.prod(np.maximum(items - many - drawn, 0) / (items - drawn))
    return TieValues(1 - none_found, (best > 0).astype(np.float64), (worst > 0).astype(np.float64))


def first_rank(counts: Histogram) -> TieValues:
    """Return the rank of the first relevant item, from 1; the rank after the last item for a query without relevant items.

    In a tie of n items of which r are relevant, after b others, the first relevant one is expected at rank
    ``b + (n + 1) / (r + 1)``.
    """
    groups = counts.groups(None)
    there = groups.relevant > 0
    first = np.arange(len(there)), there.argmax(1)
    before, items, relevant = (part[first] for part in (groups.before, groups.items, groups.relevant))
    last = np.where(there.any(1), 0, groups.items.sum(1) + 1)
    ranks = (before + (items + 1) / (relevant + 1), before + 1.0, before + items - relevant + 1.0)
    return TieValues(*(np.where(last > 0, last, rank) for rank in ranks))


def average_precision_at(counts: Histogram, cutoff: int, denominator: Denominator) -> TieValues:
    """Return the average precision of the first k items.

    The sum of precisions is divided by the number of relevant items among the first k (``retrieved``), by min(k, R)
    (``min``) or by R (``all``). ``first-k-relevant`` does not cut at k: it takes the first min(k, R) relevant items at any
    position and divides by their number.
    """
    if denominator == "first-k-relevant":
        return _first_relevant(counts, cutoff)
    sums = precision_sums(counts, counts.groups(cutoff))
    if denominator == "retrieved":
        groups = counts.groups(cutoff)
        whole = groups.within == groups.items
        found = np.where(whole, groups.relevant, 0).sum(1)
        earlier = [np.where(whole, part, 0).sum(1) for part in sums]
        values = TieValues(*(divided(part, found) for part in earlier))
        for row, column in zip(*np.nonzero(~whole & (groups.within > 0)), strict=True):
            cut = tuple(int(part[row, column]) for part in groups)
            values.expected[row] = _expected_per_retrieved(counts, cut, earlier[0][row])
            values.best[row], values.worst[row] = _bounds_per_retrieved(counts, cut, earlier[1][row], earlier[2][row])
        return values
    divisor = counts.relevant_in_all if denominator == "all" else np.minimum(cutoff, counts.relevant_in_all)
    return TieValues(*(divided(part.sum(1), divisor) for part in sums))


def _possible_hits(items: int, relevant: int, within: int) -> Counts:
    return np.arange(max(0, within - items + relevant), min(within, relevant) + 1)


def _expected_per_retrieved(counts: Histogram, cut: tuple[int, ...], earlier: np.longdouble) -> float:
    """Return E[(sum of precisions) / (g + h)]. Given h, the part of the group within the cut is a tie group of t items."""
    before, found, items, relevant, within = cut
    h = _possible_hits(items, relevant, within)
    odds = np.log((relevant - h[:-1]) * (within - h[:-1]) / ((h[:-1] + 1) * (items - relevant - within + h[:-1] + 1.0)))
    logarithm = np.concatenate([[0.0], np.cumsum(odds)])
    # The probabilities are ratios of binomials that overflow, so only their logarithms are added up.
    weight = np.exp(logarithm - logarithm.max())
    span = counts.harmonic[before + within] - counts.harmonic[before]
    slope = (h - 1) / np.longdouble(max(within - 1, 1)) * (within > 1)
    part = h / np.longdouble(within) * (slope * within + (1 + found - slope * (before + 1)) * span)
    return float((weight * divided(earlier + part, found + h)).sum() / weight.sum())


def _bounds_per_retrieved(
    counts: Histogram, cut: tuple[int, ...], best_earlier: np.longdouble, worst_earlier: np.longdouble
) -> tuple[float, float]:
    """Return the highest and lowest value over all h, with the h relevant items first or last within the cut."""
    before, found, items, relevant, within = cut
    h, harmonic = _possible_hits(items, relevant, within), counts.harmonic
    first = h + (found - before) * (harmonic[before + h] - harmonic[before])
    start = before + within - h
    last = h + (found - start) * (harmonic[before + within] - harmonic[start])
    best, worst = divided(best_earlier + first, found + h), divided(worst_earlier + last, found + h)
    return float(best.max()), float(worst.min())


def _first_relevant(counts: Histogram, cutoff: int) -> TieValues:
    groups = counts.groups(None)
    wanted = np.minimum(cutoff, counts.relevant_in_all)
    whole = groups.relevant_before + groups.relevant <= wanted[:, None]
    sums = [np.where(whole, part, 0).sum(1) for part in precision_sums(counts, groups)]
    cut_here = ~whole & (groups.relevant_before < wanted[:, None])
    for row, column in zip(*np.nonzero(cut_here), strict=True):
        before, found, items, relevant, _ = (int(part[row, column]) for part in groups)
        missing = np.arange(1, int(wanted[row]) - found + 1)
        sums[0][row] += _expected_first_relevant(before, found, items, relevant, len(missing))
        sums[1][row] += ((found + missing) / (before + missing)).sum()
        sums[2][row] += ((found + missing) / (before + items - relevant + missing)).sum()
    return TieValues(*(divided(part, wanted) for part in sums))


def _expected_first_relevant(before: int, found: int, items: int, relevant: int, missing: int) -> float:
    """Return the expected sum of precisions at the first ``missing`` relevant items of a tie group.

    The item at position t is relevant with probability r / n. The number h of relevant items before it is then
    hypergeometric(n - 1, r - 1, t - 1), and the item counts if h < missing. With F the distribution function of h, and
    F' that of hypergeometric(n - 2, r - 2, t - 2), the sum is
    ``(r / n) sum_t ((1 + g) F(missing - 1) + (t - 1) (r - 1) / (n - 1) F'(missing - 2)) / (b + t)``.
    """
    position = np.arange(1, items + 1)
    counted = (1 + found) * _at_most(missing - 1, items - 1, relevant - 1)
    if missing > 1:
        earlier = _at_most(missing - 2, items - 2, relevant - 2)
        counted[1:] += position[:-1] * (relevant - 1) / (items - 1) * earlier
    return float(relevant / items * (counted / (before + position)).sum())


def _at_most(successes: int, population: int, marked: int) -> Values:
    """Return the probability of at most ``successes`` marked items among the first s, for s = 0..population.

    For successes < marked. From s to s + 1 it falls by the probability that exactly ``successes`` marked items are among
    the first s and the next item is marked too.
    """
    drawn = np.arange(successes, population - (marked - successes) + 1)
    first = np.arange(successes)
    start = np.log((marked - first) / (population - first)).sum()
    earlier = drawn[:-1]
    growth = np.log((earlier + 1) / (earlier + 1 - successes))
    shrink = np.log((population - earlier - (marked - successes)) / (population - earlier))
    exactly = np.exp(start + np.concatenate([[0.0], np.cumsum(growth + shrink)]))
    probability = np.ones(population + 1)
    probability[successes + 1 :] = 0
    fallen = 1 - np.cumsum(exactly * (marked - successes) / (population - drawn))
    probability[successes + 1 : successes + 1 + len(fallen)] = np.maximum(fallen, 0)
    return probability


def gains_of(levels: int, gain: Gain) -> Values:
    """Return the gain of an item for each number s of shared labels, ``(levels,)``: s, or 2^s - 1."""
    level = np.arange(levels, dtype=np.float64)
    return level if gain == "linear" else np.exp2(level) - 1


def discount_sums(items: int) -> Values:
    """Return the sums of 1 / log2(1 + position) over the first 0 to ``items`` positions, ``(items + 1,)``."""
    return np.concatenate([[0.0], np.cumsum(1 / np.log2(np.arange(2, items + 2)))])


def ndcg(counts: Histogram, cutoff: int | None, gain: Gain) -> TieValues:
    """Return the normalized discounted cumulative gain of the first ``cutoff`` items (None: of all), from graded counts.

    An item that shares s labels has the gain s (``linear``) or 2^s - 1 (``exponential``).
    """
    groups, worth = counts.groups(cutoff), gains_of(counts.counts.shape[2], gain)
    discount = discount_sums(counts.database)
    end = counts.database if cutoff is None else min(cutoff, counts.database)
    mean = (counts.counts @ worth) / np.maximum(groups.items, 1)
    expected = (mean * (discount[groups.before + groups.within] - discount[groups.before])).sum(1)

    def in_order(start: Counts, of_level: Callable[[int], Counts], levels: range) -> Values:
        """Return the discounted gain of items placed from a position on, level by level."""
        total = np.zeros(start.shape)
        for level in levels:
            stop = np.minimum(start + of_level(level), end)
            total += worth[level] * (discount[stop] - discount[np.minimum(start, end)])
            start = start + of_level(level)
        return total

    ascending = range(len(worth))
    best = in_order(groups.before, lambda level: counts.counts[:, :, level], ascending[::-1]).sum(1)
    worst = in_order(groups.before, lambda level: counts.counts[:, :, level], ascending).sum(1)
    nothing = np.zeros(len(counts.counts), np.int64)
    ideal = in_order(nothing, lambda level: counts.counts[:, :, level].sum(1), ascending[::-1])
    return TieValues(divided(expected, ideal), divided(best, ideal), divided(worst, ideal))
