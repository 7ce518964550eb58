"""Which figure of a table is best and second, how sure that is, and what a reader must be told beside it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from string import ascii_lowercase

import numpy as np
import numpy.typing as npt

from silohash.evaluate.significance import paired_bootstrap
from silohash.federated import FEDERATED_METHODS
from silohash.local import LOCAL_METHODS
from silohash.registry import Registry
from silohash.report.page import EVALUATION_WORDS
from silohash.study.pivot import GROUPS, Key, Sheet, Spot

SURE = 0.05
"""The p-value below which the best is marked as better than the second."""


def marked(sheet: Sheet) -> Sheet:
    """Returns a table with best, second, their significance, footnotes and the sentences that explain them."""
    spots = {place: _told(spot) for place, spot in sheet.spots.items()}
    letters: dict[str, str] = {}
    for places in _groups(sheet, spots):
        differing = {spots[place].conditions for place in places if spots[place].rows}
        if len(differing) > 1:
            for said in sorted(differing):
                letters.setdefault(said, _letter(len(letters)))
            spots |= {
                place: replace(spots[place], footnote=letters.get(spots[place].conditions, "")) for place in places
            }
        elif sheet.ranked and _same_queries([spots[place] for place in places]):
            spots |= _ranked({place: spots[place] for place in places})
    filled = replace(sheet, spots=spots)
    return replace(filled, notes=(*sheet.notes, *_notes(filled, letters)))


def paired_values(first: Spot, second: Spot) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Returns two cells' figures of the same queries, ``(Q,)`` each, over the seeds that both have.

    A query's figure is its mean over the seeds where all seeds ask the same queries; else every seed's queries count as
    further ones. Queries that either does not count are left out. Empty where the cells have no such figures.
    """
    shared = [seed for seed in first.seeds if seed in second.seeds]
    sides = [
        {seed: (queries, values) for seed, queries, values in zip(s.seeds, s.queries, s.per_query, strict=True)}
        if len(s.queries) == len(s.seeds)
        else {}
        for s in (first, second)
    ]
    pairs = [
        np.stack([sides[0][seed][1], sides[1][seed][1]])
        for seed in shared
        if all(seed in side for side in sides) and sides[0][seed][0] == sides[1][seed][0]
    ]
    if not pairs or len(pairs) < len(shared):
        return np.zeros(0), np.zeros(0)
    same = len({sides[0][seed][0] for seed in shared}) == 1
    values = np.mean(pairs, axis=0) if same else np.concatenate(pairs, axis=1)
    one, other = values[:, np.isfinite(values).all(axis=0)]
    return one, other


def _groups(sheet: Sheet, spots: Mapping[tuple[Key, Key], Spot]) -> list[list[tuple[Key, Key]]]:
    """Returns the places that are compared with each other: they differ in the compared field only."""
    found: dict[tuple[tuple[str, str], ...], list[tuple[Key, Key]]] = {}
    for place, spot in spots.items():
        common = tuple(sorted((name, value) for name, value in spot.fields.items() if name != sheet.compared))
        found.setdefault(common, []).append(place)
    return list(found.values())


def _same_queries(spots: Sequence[Spot]) -> bool:
    """Tells whether no two cells have asked other queries with the same seed."""
    asked: dict[int, set[str]] = {}
    for spot in spots:
        for seed, queries in zip(spot.seeds, spot.queries, strict=False):
            asked.setdefault(seed, set()).add(queries)
    return all(len(queries) < 2 for queries in asked.values())


def _ranked(spots: Mapping[tuple[Key, Key], Spot]) -> dict[tuple[Key, Key], Spot]:
    """Returns the cells of a group with their ranks; none where fewer than two can be compared, or the first are equal."""
    fair = [place for place, spot in spots.items() if math.isfinite(spot.mean) and not spot.told_label]
    order = sorted(fair, key=lambda place: -spots[place].mean)
    ranked = dict(spots)
    if len(order) < 2 or spots[order[0]].mean == spots[order[1]].mean:
        return ranked
    best, second = (spots[place] for place in order[:2])
    one, other = paired_values(best, second)
    p_value = paired_bootstrap(one, other, min(best.seeds)) if len(one) else None
    ranked[order[0]] = replace(best, rank="best", p_value=p_value, tested_on=len(one))
    if len(order) > 2:
        ranked |= {
            place: replace(spots[place], rank="second") for place in order[1:] if spots[place].mean == second.mean
        }
    return ranked


def _told(spot: Spot) -> Spot:
    told = any(
        _needs_label(LOCAL_METHODS, row.local) or _needs_label(FEDERATED_METHODS, row.federated) for row in spot.rows
    )
    return replace(spot, told_label=True) if told else spot


def _needs_label(registry: Registry, name: str) -> bool:
    return name in registry.names() and registry.card(name).needs_label_at_query


def _letter(number: int) -> str:
    letter = ascii_lowercase[number % len(ascii_lowercase)]
    return letter * (1 + number // len(ascii_lowercase))


def _notes(sheet: Sheet, letters: Mapping[str, str]) -> list[str]:
    """Returns what the table's reader must know, a sentence each."""
    spots = list(sheet.spots.values())
    notes = [*_about_evaluations(spots), *_about_intervals(spots), *_about_ranks(sheet)]
    if any(spot.told_label for spot in spots):
        notes.append("‡: told the query's own label, which a search in use cannot be; not compared with the others.")
    lacking = sum(1 for spot in spots if spot.lack == "no run")
    if lacking:
        notes.append(f"{lacking} of {len(spots)} cells have no finished run.")
    said = list(dict.fromkeys(spot.conditions for spot in spots if spot.conditions))
    if letters:
        notes.append("Figures with different letters were measured differently and do not compare:")
    notes += [f"{letters[text]}: {text}." if text in letters else f"Measured on {text}." for text in said]
    return notes


def _about_evaluations(spots: Sequence[Spot]) -> list[str]:
    groups = [set(group) for group in GROUPS]
    used: dict[str, set[str]] = {}
    for spot in spots:
        for row in spot.rows:
            used.setdefault(row.evaluation, set()).add(row.federated)
    notes = []
    for evaluation, methods in sorted(used.items()):
        apart = any(evaluation in group and len(group & used.keys()) > 1 for group in groups)
        whose = f" ({', '.join(sorted(methods))})" if apart else ""
        notes.append(f"{evaluation}: {EVALUATION_WORDS[evaluation]}{whose}.")
    return notes


def _about_intervals(spots: Sequence[Spot]) -> list[str]:
    over = {spot.interval for spot in spots if spot.interval}
    notes = []
    if "seeds" in over:
        counts = sorted({len(spot.values) for spot in spots if spot.interval == "seeds"})
        numbers = " or ".join(map(str, counts))
        notes.append(f"± is the 95 % interval of the mean over {numbers} seeds (Student's t).")
    if "queries" in over:
        notes.append("Brackets are the 95 % bootstrap interval over the queries of a single run.")
    return notes


def _about_ranks(sheet: Sheet) -> list[str]:
    ranks = {spot.rank for spot in sheet.spots.values()}
    if "best" not in ranks:
        return []
    second = "; second: underlined or italic" if "second" in ranks else ""
    notes = [f"Best {sheet.compared}: bold{second}."]
    tested = [spot.tested_on for spot in sheet.spots.values() if spot.p_value is not None]
    if tested:
        queries = f"{min(tested):,}" if min(tested) == max(tested) else f"{min(tested):,} to {max(tested):,}"
        notes.append(
            f"†: the best differs from the next with p < {SURE:g} in a paired bootstrap over {queries} queries, a query's "
            f"figure being its mean over the seeds; {len(tested)} tests, not corrected for their number. It is about these "
            "trained models; how much seeds matter, the intervals over seeds say."
        )
    return notes
