"""The headline of a report: one sentence about the figures, what it rests on, and the bars drawn below it.

The sentence gives the mean over the search directions, rounded to whole percent. The bars give every direction with its
95 % interval, so the sentence never says more than the chart. Runs that are not better than random codes are named first.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal, TypeAlias

from silohash.base.types import Evaluation, ResultRow, Task, is_across
from silohash.evaluate.measures import by_pairs, by_scores, is_rank
from silohash.report.plots import TASK_WORDS, WORDS

Role: TypeAlias = Literal["together", "alone", "pooled"]

ROLES: Mapping[str, Role] = {"local": "alone", "centralized": "pooled"}
"""The federated methods that are baselines. Every other method trains together."""

ROLE_WORDS: dict[Role, str] = {"together": "Training together", "alone": "Each silo alone", "pooled": "All data pooled"}
OTHER_MODEL = "One silo's model for all items"
CHANCE = "Random codes"

SCOPES: tuple[tuple[Evaluation, Evaluation], ...] = (("XS", "GG"), ("PG", "GG"), ("PL", "GL"))
"""Evaluations that rank the same items, in order of preference. The first scope that all runs have is used."""

OF_PAIRS = "R@10[by=pairs]"
"""The preferred measure by pairs."""

MOST_NAMED = 3
"""Up to this number of runs, the sentence names each."""

NOT_BETTER, WORSE = "not better than random codes", "worse than random codes"


@dataclass(frozen=True, kw_only=True)
class Bar:
    """One bar of the chart; values are fractions from 0 to 1, ``low`` and ``high`` NaN without an interval."""

    label: str
    kind: str
    value: float
    low: float = math.nan
    high: float = math.nan


@dataclass(frozen=True, kw_only=True)
class BarGroup:
    """The bars of one search direction."""

    title: str
    bars: tuple[Bar, ...]


@dataclass(frozen=True, kw_only=True)
class Headline:
    """The top of a report: a sentence, what its measure means and averages over, how certain it is, and the chart.

    The chart has one group per search direction, and none without comparable figures.
    """

    sentence: str
    explanation: str = ""
    notes: tuple[str, ...] = ()
    groups: tuple[BarGroup, ...] = ()
    measure: str = ""


@dataclass(frozen=True)
class Standing:
    """One run's figures for the headline: one row per task, all of the same measure and scope."""

    run: str
    role: Role
    rows: Mapping[Task, ResultRow]

    @property
    def mean(self) -> float:
        """The mean over the tasks."""
        return sum(row.value for row in self.rows.values()) / len(self.rows)


def headline(rows: Sequence[ResultRow], unseen: Sequence[ResultRow] = ()) -> Headline:
    """Return the headline of one or several runs, from all figures that may be compared.

    The figures over the items that no silo trained on (``unseen``) are stated in a note.
    """
    finite = [row for row in rows if math.isfinite(row.value)]
    usable = [row for row in finite if not is_rank(row.measure) and not by_scores(row.measure)]
    runs = list(dict.fromkeys(row.run for row in usable))
    if not runs:
        return Headline(sentence="All figures are ranks." if finite else "There are no figures yet.")
    standings = _standings(usable, runs)
    if not standings:
        sentence = f"These {len(runs)} runs differ in data, protocol or measures, so they cannot be compared."
        return Headline(sentence=sentence)
    measure, of_unseen = _measure(standings), headline(unseen) if unseen else Headline(sentence="")
    without = f"Without the items that silos trained on: {of_unseen.sentence}" if of_unseen.groups else ""
    return Headline(
        sentence=_with_verdicts(_sentence(standings), standings),
        explanation=explanation(measure, standings),
        notes=tuple(
            filter(None, (*_weak(standings), *_certainty(standings), _other_model(usable, standings), without))
        ),
        groups=tuple(
            BarGroup(title=TASK_WORDS[task], bars=tuple(_bars(usable, standings, task))) for task in standings[0].rows
        ),
        measure=measure,
    )


def _standings(rows: Sequence[ResultRow], runs: Sequence[str]) -> list[Standing]:
    if len({(row.dataset, row.protocol) for row in rows}) > 1:
        return []
    for measure, scope in product(_measures(rows), SCOPES):
        of_measure = [row for row in rows if row.measure == measure]
        found = [_in_scope([row for row in of_measure if row.run == run], scope) for run in runs]
        tasks = _common_tasks(found)
        if tasks:
            return [
                Standing(run, ROLES.get(of_run[tasks[0]].federated, "together"), {task: of_run[task] for task in tasks})
                for run, of_run in zip(runs, found, strict=True)
            ]
    return []


def _measures(rows: Sequence[ResultRow]) -> list[str]:
    """Return the measures in order of preference: mAP@all, other mAP, others by labels, R@10 by pairs, the rest."""
    names = dict.fromkeys(row.measure for row in rows)
    return sorted(names, key=lambda name: (by_pairs(name), name not in {"mAP@all", OF_PAIRS}, not _is_map(name)))


def _in_scope(rows: Iterable[ResultRow], scope: Sequence[Evaluation]) -> dict[Task, ResultRow]:
    """Return one row per task, of the scope's first evaluation that the rows have."""
    listed = list(rows)
    for evaluation in scope:
        found = {row.task: row for row in reversed(listed) if row.evaluation == evaluation}
        if found:
            return {row.task: found[row.task] for row in listed if row.evaluation == evaluation}
    return {}


def _common_tasks(found: Sequence[Mapping[Task, ResultRow]]) -> list[Task]:
    """Return the tasks that all runs have; those across modalities alone if there are any."""
    common = [task for task in found[0] if all(task in of_run for of_run in found)]
    return [task for task in common if is_across(task)] or common


def _measure(standings: Sequence[Standing]) -> str:
    return next(iter(standings[0].rows.values())).measure


def _sentence(standings: Sequence[Standing]) -> str:
    if len(standings) == 1:
        return _sentence_of_one(standings[0])
    roles: dict[Role, list[Standing]] = {}
    for each in _by_role(standings):
        roles.setdefault(each.role, []).append(each)
    if len(roles) > 1:
        return _sentence_of_roles(roles, standings)
    if len(standings) <= MOST_NAMED:
        first, *others = standings
        named = [f"{each.run} {_with(_measure(standings))}{_percent(each.mean, standings)}" for each in others]
        reached = _reaches(_measure(standings), _percent(first.mean, standings))
        return f"{_list_of([f'{first.run} {reached}', *named])}."
    return f"{len(standings)} runs {_reaches(_measure(standings), _range(standings, standings), several=True)}."


def _by_role(standings: Sequence[Standing]) -> list[Standing]:
    return sorted(standings, key=lambda each: list(ROLE_WORDS).index(each.role))


def _sentence_of_one(standing: Standing) -> str:
    chance = _chance([standing])
    added = f"; random codes reach {_percent(chance, [standing])}" if _shows_chance([standing]) else ""
    method = f" with {next(iter(standing.rows.values())).federated}" if standing.role == "together" else ""
    return f"{_subject(standing.role)}{method} {_reaches(_measure([standing]), _percent(standing.mean, [standing]))}{added}."


def _sentence_of_roles(roles: Mapping[Role, Sequence[Standing]], standings: Sequence[Standing]) -> str:
    """Return the sentence that compares training together with the baselines, in the order of `ROLE_WORDS`."""
    parts: list[str] = []
    for role, members in roles.items():
        count = f" ({len(members)} runs)" if len(members) > 1 else ""
        value = _range(members, standings)
        if not parts:
            parts.append(f"{_subject(role)}{count} {_reaches(_measure(standings), value)}")
        else:
            subject = "pooling all data" if role == "pooled" else _subject(role).lower()
            parts.append(f"{subject}{count} {_with(_measure(standings))}{value}")
    return f"{_list_of(parts)}."


def _subject(role: Role) -> str:
    return "Training on all data pooled" if role == "pooled" else ROLE_WORDS[role]


def _is_map(measure: str) -> bool:
    return measure.startswith("mAP")


def _is_recall_of_pairs(measure: str) -> bool:
    return by_pairs(measure) and measure.startswith(("R@", "Success@")) and "radius" not in measure


def _with(measure: str) -> str:
    if _is_recall_of_pairs(measure):
        return "in "
    return "with " if _is_map(measure) else ""


def _shows_chance(standings: Sequence[Standing]) -> bool:
    """Return whether the rows hold the level of random codes: for mAP the share of relevant items, and by pairs always."""
    measure = _measure(standings)
    return (_is_map(measure) or by_pairs(measure)) and math.isfinite(_chance(standings))


def _reaches(measure: str, value: str, *, several: bool = False) -> str:
    """Return the verb of the sentence, with the value and the name of the measure."""
    name = "mAP" if measure == "mAP@all" else measure
    if _is_recall_of_pairs(measure):
        verb, first = "find" if several else "finds", _cutoff(measure)
        return f"{verb} the right partner among the first {first} results in {value} of the searches ({name})"
    if _is_map(measure):
        return f"{'find' if several else 'finds'} relevant items with {value} average precision ({name})"
    return f"{'reach' if several else 'reaches'} {value} ({name})"


def _cutoff(measure: str) -> str:
    return measure.partition("@")[2].partition("[")[0]


def explanation(measure: str, standings: Sequence[Standing]) -> str:
    """Return what the measure means, and over what the sentence averages."""
    meaning = WORDS["measures"].get(measure.partition("@")[0], measure)
    if _is_recall_of_pairs(measure):
        meaning = WORDS["measures"]["recall of pairs"].format(_cutoff(measure))
    over = " The sentence gives the mean over both search directions." if len(standings[0].rows) == 2 else ""
    random = f" Random codes reach {_percent(_chance(standings), standings)}." if _shows_chance(standings) else ""
    return f"{meaning}; 100 % is perfect.{random if len(standings) > 1 else ''}{over}"


def _verdict(rows: Iterable[ResultRow], standings: Sequence[Standing]) -> str:
    """Return whether rows are no better than random codes in all directions, or worse in all; otherwise an empty string.

    A row without an interval or a known level of random codes says nothing. One in which all queries have the same value
    shows no spread, and is not called worse.
    """
    listed = list(rows)
    if not _shows_chance(standings) or not all(row.low <= row.prior and math.isfinite(row.high) for row in listed):
        return ""
    return WORSE if all(row.low < row.high < row.prior for row in listed) else NOT_BETTER


def _with_verdicts(sentence: str, standings: Sequence[Standing]) -> str:
    """Return a sentence, preceded by the runs that are not better than random codes or worse."""
    verdicts = {each.run: _verdict(each.rows.values(), standings) for each in standings}
    if len(standings) == 1 and verdicts[standings[0].run]:
        return f"{verdicts[standings[0].run].capitalize()}: {sentence[0].lower()}{sentence[1:]}"
    for verdict in (NOT_BETTER, WORSE):
        if named := [_label(each, standings) for each in standings if verdicts[each.run] == verdict]:
            words = _list_of([name.lower() if name in ROLE_WORDS.values() else name for name in named])
            sentence = f"{verdict.capitalize()}: {words}. {sentence}"
    return sentence


def _weak(standings: Sequence[Standing]) -> Iterator[str]:
    """Yield the directions in which a run is not better than random codes, or worse, if it is not so in all."""
    for each in standings:
        found = {task: _verdict([row], standings) for task, row in each.rows.items()}
        if not _verdict(each.rows.values(), standings):
            for task in filter(found.get, found):
                where = f"{TASK_WORDS[task][0].lower()}{TASK_WORDS[task][1:]}"
                yield f"{_label(each, standings)} is {found[task]} where {where}."


def _certainty(standings: Sequence[Standing]) -> list[str]:
    """Return whether the intervals of training together lie apart from those of each baseline."""
    together = [each for each in standings if each.role == "together"]
    if len(together) != 1:
        return []
    notes = []
    for role, words in (("alone", "each silo alone"), ("pooled", "pooled training")):
        others = [each for each in standings if each.role == role]
        if len(others) == 1:
            notes.append(_apart(together[0], others[0], words))
    return notes


def _apart(together: Standing, other: Standing, words: str) -> str:
    tasks = list(together.rows)
    above = sum(together.rows[task].low > other.rows[task].high for task in tasks)
    below = sum(together.rows[task].high < other.rows[task].low for task in tasks)
    side, count = ("above", above) if above >= below else ("below", below)
    if not count:
        return f"The 95 % intervals of training together and of {words} overlap."
    if count == len(tasks):
        where = "" if len(tasks) == 1 else " in both directions" if len(tasks) == 2 else " in all directions"
        return f"The 95 % interval of training together lies {side} that of {words}{where}."
    return f"The 95 % interval of training together lies {side} that of {words} in {count} of {len(tasks)} directions."


def _other_model(rows: Sequence[ResultRow], standings: Sequence[Standing]) -> str:
    """Return a sentence on how well one silo's model does over all items; empty without separately trained silos."""
    found = [row for each in standings if each.role == "alone" for row in _encoded_by_one(rows, each).values()]
    if not found:
        return ""
    mean = sum(row.value for row in found) / len(found)
    return f"If the model of one silo encodes the items of all silos, it reaches {_percent(mean, standings)}."


def _encoded_by_one(rows: Sequence[ResultRow], standing: Standing) -> dict[Task, ResultRow]:
    """Return a run's PG figures for the tasks of its standing, where the standing itself is XS."""
    shown = next(iter(standing.rows.values()))
    if shown.evaluation != "XS":
        return {}
    of_run = [row for row in rows if row.run == standing.run and row.measure == shown.measure]
    return {task: row for task, row in _in_scope(of_run, ["PG"]).items() if task in standing.rows}


def _bars(rows: Sequence[ResultRow], standings: Sequence[Standing], task: Task) -> Iterator[Bar]:
    """Yield the bar of every run, of one silo's model where that differs, and of random codes."""
    for each in _by_role(standings):
        found: dict[tuple[str, str], ResultRow] = {(_label(each, standings), each.role): each.rows[task]}
        if each.role == "alone" and (other := _encoded_by_one(rows, each).get(task)) is not None:
            found[OTHER_MODEL, "other"] = other
        for (label, kind), row in found.items():
            yield Bar(label=label, kind=kind, value=row.value, low=row.low, high=row.high)
    if _shows_chance(standings):
        yield Bar(label=CHANCE, kind="chance", value=_chance(standings, task))


def _label(standing: Standing, standings: Sequence[Standing]) -> str:
    alike = sum(other.role == standing.role for other in standings)
    return ROLE_WORDS[standing.role] if alike == 1 else standing.run


def _chance(standings: Sequence[Standing], task: Task | None = None) -> float:
    """Return the mean share of relevant items, of one task or of all; NaN without one."""
    rows = [row for each in standings for row in each.rows.values() if task in {None, row.task}]
    priors = [row.prior for row in rows if math.isfinite(row.prior)]
    return sum(priors) / len(priors) if priors else math.nan


def _percent(value: float, standings: Sequence[Standing]) -> str:
    """Return a fraction in whole percent, with a decimal where two runs would otherwise look equal."""
    means = {each.mean for each in standings}
    decimals = 1 if len({f"{100 * mean:.0f}" for mean in means}) < len(means) else 0
    return f"{100 * value:.{decimals}f} %"


def _range(members: Sequence[Standing], standings: Sequence[Standing]) -> str:
    low, high = (_percent(choose(each.mean for each in members), standings) for choose in (min, max))
    return high if low == high else f"{low.removesuffix(' %')} to {high}"


def _list_of(parts: Sequence[str]) -> str:
    """Return an English list with commas.

    Example:
        >>> _list_of(["one", "two", "three"])
        'one, two, and three'
    """
    if len(parts) <= 2:
        return " and ".join(parts)
    return f"{', '.join(parts[:-1])}, and {parts[-1]}"
