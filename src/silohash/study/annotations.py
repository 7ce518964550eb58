"""Annotations of a table: the best and second figures, the significance of the best, footnotes and notes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from string import ascii_lowercase

import numpy as np
import numpy.typing as npt

from silohash.evaluate.significance import paired_bootstrap
from silohash.methods.federated import FEDERATED_METHODS
from silohash.methods.local import LOCAL_METHODS
from silohash.report.page import EVALUATION_WORDS
from silohash.study.pivot import GROUPS, Cell, Key, ResultTable

SIGNIFICANT = 0.05
"""The p-value below which the best figure is marked as better than the second."""


def annotated(table: ResultTable) -> ResultTable:
    """Return a table with ranks, significance, footnotes and the notes that explain them."""
    cells = {place: _with_query_label(cell) for place, cell in table.cells.items()}
    letters: dict[str, str] = {}
    for group in _groups(table, cells):
        fair = {place: cell for place, cell in group.items() if not cell.uses_labels}
        if not _comparable([cell for cell in fair.values() if cell.rows]):
            cells |= _with_footnotes(fair, letters)
        elif table.ranked and _same_queries(fair.values()):
            cells |= _ranked(fair)
    filled, found = replace(table, cells=cells), list(cells.values())
    notes = [*_evaluation_notes(found), *_interval_notes(found), *_rank_notes(filled)]
    return replace(filled, notes=(*table.notes, *notes, *_gap_notes(found), *_condition_notes(found, letters)))


def paired_values(first: Cell, second: Cell) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return the figures of two cells for the same queries, ``(Q,)`` each, over the seeds that both have.

    If all seeds have the same queries, a query's figure is its mean over the seeds. Otherwise, the queries of each seed
    are counted separately. Queries that either cell does not count are left out. Both arrays are empty if the cells
    have no figures per query, or a seed's queries differ.
    """
    # Cells whose runs lack figures per query have none at all, so that no seed is in both.
    one, other = (
        dict(zip(cell.seeds, zip(cell.queries, cell.per_query, strict=True), strict=False)) for cell in (first, second)
    )
    shared = [seed for seed in first.seeds if seed in second.seeds]
    if not shared or not all(seed in one and seed in other and one[seed][0] == other[seed][0] for seed in shared):
        return np.zeros(0), np.zeros(0)
    pairs = [np.stack([one[seed][1], other[seed][1]]) for seed in shared]
    same = len({one[seed][0] for seed in shared}) == 1
    values = np.mean(pairs, axis=0) if same else np.concatenate(pairs, axis=1)
    counted = values[:, np.isfinite(values).all(axis=0)]
    return counted[0], counted[1]


def _groups(table: ResultTable, cells: Mapping[tuple[Key, Key], Cell]) -> list[dict[tuple[Key, Key], Cell]]:
    """Return the groups of cells that differ only in the compared field."""
    found: dict[tuple[tuple[str, str], ...], dict[tuple[Key, Key], Cell]] = {}
    for place, cell in cells.items():
        common = tuple(sorted((name, value) for name, value in cell.fields.items() if name != table.compared))
        found.setdefault(common, {})[place] = cell
    return list(found.values())


def _comparable(cells: Sequence[Cell]) -> bool:
    """Return whether cells were measured in the same way. Any choice of the round may stand beside runs with one round."""
    besides = {cell.conditions_besides_round for cell in cells}
    return len(besides) < 2 and len({cell.conditions for cell in cells if not cell.has_one_round}) < 2


def _with_footnotes(group: Mapping[tuple[Key, Key], Cell], letters: dict[str, str]) -> dict[tuple[Key, Key], Cell]:
    """Return cells with one footnote letter per condition; new conditions are added to ``letters``."""
    for text in sorted({cell.conditions for cell in group.values() if cell.rows}):
        letters.setdefault(text, _letter(len(letters)))
    return {place: replace(cell, footnote=letters.get(cell.conditions, "")) for place, cell in group.items()}


def _same_queries(cells: Iterable[Cell]) -> bool:
    """Return whether all cells have the same queries for the same seed."""
    by_seed: dict[int, set[str]] = {}
    for cell in cells:
        for seed, queries in zip(cell.seeds, cell.queries, strict=False):
            by_seed.setdefault(seed, set()).add(queries)
    return all(len(queries) < 2 for queries in by_seed.values())


def _ranked(group: Mapping[tuple[Key, Key], Cell]) -> dict[tuple[Key, Key], Cell]:
    """Return the cells of a group with ranks; without if fewer than two can be compared, or the two best are equal."""
    comparable = [place for place, cell in group.items() if math.isfinite(cell.mean) and not cell.needs_query_label]
    order = sorted(comparable, key=lambda place: group[place].mean if group[place].of_ranks else -group[place].mean)
    ranked = dict(group)
    if len(order) < 2 or group[order[0]].mean == group[order[1]].mean:
        return ranked
    best, second = (group[place] for place in order[:2])
    one, other = (np.zeros(0), np.zeros(0)) if best.of_ranks else paired_values(best, second)  # tests compare means
    p_value = paired_bootstrap(one, other, min(best.seeds)) if len(one) else None
    ranked[order[0]] = replace(best, rank="best", p_value=p_value, tested_on=len(one))
    if len(order) > 2:
        ranked |= {
            place: replace(group[place], rank="second") for place in order[1:] if group[place].mean == second.mean
        }
    return ranked


def _with_query_label(cell: Cell) -> Cell:
    methods = {(LOCAL_METHODS, row.local) for row in cell.rows} | {
        (FEDERATED_METHODS, row.federated) for row in cell.rows
    }
    known = [registry.card(name) for registry, name in methods if name in registry.names()]
    needed = any(row.oracle for row in cell.rows) or any(card.needs_label_at_query for card in known)
    return replace(cell, needs_query_label=True) if needed else cell


def _letter(number: int) -> str:
    letter = ascii_lowercase[number % len(ascii_lowercase)]
    return letter * (1 + number // len(ascii_lowercase))


def _gap_notes(cells: Sequence[Cell]) -> list[str]:
    notes = []
    if any(cell.needs_query_label for cell in cells):
        notes.append(
            "‡ oracle: needs the label of the query, which is not known in practice; not compared with the others."
        )
    if any(cell.uses_labels and not cell.needs_query_label for cell in cells):
        notes.append("§: database items were encoded with their true labels; not compared with the others.")
    empty = sum(1 for cell in cells if cell.empty_because == "no run")
    if empty:
        notes.append(f"{empty} of {len(cells)} cells have no finished run.")
    return notes


def _condition_notes(cells: Sequence[Cell], letters: Mapping[str, str]) -> list[str]:
    found = list(dict.fromkeys(cell.conditions for cell in cells if cell.conditions))
    notes = [f"{letters[text]}: {text}." if text in letters else f"Measured on {text}." for text in found]
    if letters:
        notes.insert(0, "Figures with different letters were measured differently and cannot be compared:")
    return notes


def _evaluation_notes(cells: Sequence[Cell]) -> list[str]:
    """Return what each evaluation means, with the methods that have it if others have another of the same group."""
    methods: dict[str, set[str]] = {}
    for cell in cells:
        for row in cell.rows:
            methods.setdefault(row.evaluation, set()).add(row.federated)
    mixed = {evaluation for group in GROUPS if len(methods.keys() & set(group)) > 1 for evaluation in group}
    notes = []
    for evaluation, names in sorted(methods.items()):
        having = f" ({', '.join(sorted(names))})" if evaluation in mixed else ""
        notes.append(f"{evaluation}: {EVALUATION_WORDS[evaluation]}{having}.")
    return notes


def _interval_notes(cells: Sequence[Cell]) -> list[str]:
    notes = []
    if seeds := sorted({len(cell.values) for cell in cells if cell.interval == "seeds"}):
        numbers = " or ".join(map(str, seeds))
        notes.append(f"± is the 95 % interval of the mean over {numbers} seeds (Student's t).")
    if any(cell.interval == "queries" for cell in cells):
        notes.append("Parentheses are the 95 % bootstrap interval over the queries of a single run.")
    return notes


def _rank_notes(table: ResultTable) -> list[str]:
    ranks = {cell.rank for cell in table.cells.values()}
    if "best" not in ranks:
        return []
    second = " Second: underlined or italic." if "second" in ranks else ""
    notes = [f"Best {table.compared}: bold.{second}"]
    tested = [cell.tested_on for cell in table.cells.values() if cell.p_value is not None]
    if tested:
        queries = f"{min(tested):,}" if min(tested) == max(tested) else f"{min(tested):,} to {max(tested):,}"
        notes.append(
            f"†: the best differs from the second with p < {SIGNIFICANT:g} in a paired bootstrap over {queries} queries. "
            f"A query's figure is its mean over the seeds. There are {len(tested)} tests, not corrected for their number. "
            "The test is about these trained models; the intervals over seeds show how much the seeds matter."
        )
    return notes
