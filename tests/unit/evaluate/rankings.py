"""Plain definitions to test against: every order of the tied items is written out, without closed forms."""

import itertools
import math

import numpy as np

from silohash.evaluate.measures import Measure, evaluate_all


def evaluated(text, query_words, database_words, relevance, bits):
    """Returns one measure of a retrieval task."""
    measure = Measure.parse(text)
    return evaluate_all([measure], query_words, database_words, relevance, bits)[measure]


def pack(signs):
    """Packs ``(N, bits)`` zeros and ones into bytes, little-endian."""
    return np.packbits(np.asarray(signs, np.uint8), axis=1, bitorder="little")


def counts_of(groups, levels=2):
    """Returns ``(1, len(groups), levels)`` counts of tie groups, each a list of gains."""
    counts = np.zeros((1, len(groups), levels), np.int64)
    for distance, group in enumerate(groups):
        for gain in group:
            counts[0, distance, gain] += 1
    return counts


def orders(groups):
    """Returns every distinct ranking of the gains; all are equally likely."""
    arrangements = [sorted(set(itertools.permutations(group))) for group in groups]
    return [list(itertools.chain(*parts)) for parts in itertools.product(*arrangements)]


def average_precision(ranking, cutoff, denominator):
    relevant = sum(gain > 0 for gain in ranking)
    found, total, counted = 0, 0.0, 0
    for position, gain in enumerate(ranking, 1):
        if denominator != "first-k-relevant" and position > cutoff:
            break
        if gain > 0:
            found += 1
            if denominator != "first-k-relevant" or found <= cutoff:
                total += found / position
                counted += 1
    divisor = {"all": relevant, "min": min(cutoff, relevant)}.get(denominator, counted)
    return total / divisor if divisor else 0.0


def ndcg(ranking, cutoff, worth=lambda gain: gain):
    def gained(gains):
        return sum(worth(gain) / math.log2(position + 1) for position, gain in enumerate(gains[:cutoff], 1))

    ideal = gained(sorted(ranking, reverse=True))
    return gained(ranking) / ideal if ideal else 0.0


def over_orders(figure, groups):
    """Returns (mean, highest, lowest) of a figure over every order."""
    values = [figure(ranking) for ranking in orders(groups)]
    return sum(values) / len(values), max(values), min(values)


def random_groups(generator, levels=2, most_items=8):
    """Draws up to eight items into four tie groups."""
    groups = [[], [], [], []]
    for _ in range(int(generator.integers(1, most_items + 1))):
        groups[int(generator.integers(0, 4))].append(int(generator.integers(0, levels)))
    return groups
