"""The runs that follow from a study's axes, each with its complete config.

A study has one run per combination of choices and seed. A run's config combines, in this order: the recipe,
``base.set``, the ``set`` of each choice in the order of the axes, ``[[where]]``, the tuned parameters, and ``set``.
Later settings override earlier ones.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from pathlib import Path
from typing import Any

from silohash.base import errors
from silohash.base.files import read_toml
from silohash.base.forms import of_value, reading
from silohash.base.registry import suggestion
from silohash.evaluate.measures import Measure
from silohash.run.config.load import load_config
from silohash.run.config.sections import RunConfig
from silohash.run.config.toml import toml_value
from silohash.study.config import SEED, Choice, Choices, StudyConfig, TunedBefore

Tuned = Mapping[str, Mapping[str, Any]]
"""Name of a search -> the parameters it found, by dotted key."""


@dataclass(frozen=True)
class PlannedRun:
    """One run of a study. Its name is that of its folder, made of the choices (axis -> choice) and the seed."""

    choices: Choices
    seed: int
    name: str
    config: RunConfig


def planned_runs(config: StudyConfig, tuned: Tuned | None = None, *, refuse_equal: bool = True) -> list[PlannedRun]:
    """Return every run of a study, after checking the config of each, and by default that no two are equal.

    Raises:
        UserError: If two choices set the same key, two runs are equal, or a run's config is wrong; names the axis and
            the choice.
    """
    if config.tuned:
        tuned = _tuned_before(config, config.tuned)
    found = []
    for combined in product(*(axis.choices for axis in config.axes)):
        choices = {axis.name: choice.name for axis, choice in zip(config.axes, combined, strict=True)}
        values = (tuned or {}).get(search_name(config, choices), {})
        for seed in config.seeds:
            run = run_config(config, choices, seed, values)
            found.append(PlannedRun(choices, seed, f"{folder_name(choices)}-seed{seed}", run))
    # Runs must not share a folder, also on file systems that ignore case.
    by_name: dict[str, PlannedRun] = {}
    for one in found:
        other = by_name.setdefault(one.name.lower(), one)
        if other is not one:
            raise errors.RepeatedValue(
                f"The runs {_description(other)} and {_description(one)} would share the folder {one.name}. Rename a choice."
            )
    _check_measure(config, found)
    if refuse_equal:
        _check_differences(config, found)
    return found


def run_config(config: StudyConfig, choices: Choices, seed: int, tuned: Mapping[str, Any]) -> RunConfig:
    """Return the config of one run, with the tuned parameters by dotted key. The exceptions are those of `planned_runs`."""
    recipe, values = _settings(config, choices, seed, tuned)
    return _load(config, choices, recipe, {**values, **tuned, **config.set, "seed": seed})


def selected(config: StudyConfig, runs: Sequence[PlannedRun], only: Sequence[str]) -> list[PlannedRun]:
    """Return the runs that ``only`` selects: those with one of the choices named for each axis, such as ``seed=0``.

    Raises:
        UserError: If there is no such axis or choice.
    """
    wanted: dict[str, set[str]] = {}
    for text in only:
        axis, equals, choice = text.partition("=")
        if not equals:
            raise errors.WrongForm(f'--only "{text}" is not of the form axis=choice, for example method=FedAvg.')
        try:
            config.check_choices("--only", {axis: choice})
        except ValueError as error:
            raise errors.UnknownName(f"{error}.") from error
        wanted.setdefault(axis, set()).add(choice)
    choices_of = [{**run.choices, SEED: str(run.seed)} for run in runs]
    return [
        run
        for run, choices in zip(runs, choices_of, strict=True)
        if all(choices[axis] in names for axis, names in wanted.items())
    ]


def folder_name(choices: Choices) -> str:
    """Return choices as a folder name that is valid on every file system.

    Example:
        >>> folder_name({"method": "FedAvg", "share": "1/2"})
        'FedAvg-1_2'
    """
    return "-".join(re.sub(r"[^A-Za-z0-9.+_]", "_", choice) for choice in choices.values())


def search_name(config: StudyConfig, choices: Choices) -> str:
    """Return the name of the search that tunes the given choices; empty without tuning."""
    return folder_name({axis: choices[axis] for axis in config.tuned_axes})


def read_best(path: Path) -> Tuned:
    """Read the tuned parameters; none if tuning has not finished."""
    if not path.exists():
        return {}
    remedy = "Remove it and start the study again."
    value = read_toml(path, remedy=remedy)
    with reading(path, remedy=remedy):
        return {name: search.set for name, search in of_value(value, dict[str, _BestTrial]).items()}


@dataclass(frozen=True)
class _BestTrial:
    """The entry of a search in ``best.toml`` that is used."""

    set: dict[str, Any]


def _tuned_before(config: StudyConfig, tuned: TunedBefore) -> Tuned:
    """Return the values that another study's tuning chose, after checking that every choice has some."""
    found = read_best(tuned.file)
    if not found:
        raise errors.MissingFile(
            f'[tuned]: there is no file "{tuned.file}" with values. Run the study that tunes them first.'
        )
    for combined in product(*(config.axis(name).choices for name in tuned.of)):
        choices = dict(zip(tuned.of, (choice.name for choice in combined), strict=True))
        if folder_name(choices) not in found:
            raise errors.UnknownName(
                f'[tuned]: {tuned.file.name} has no values of "{folder_name(choices)}"'
                f"{suggestion(folder_name(choices), found)}. Name the choices as the other study does."
            )
    return found


def _settings(
    config: StudyConfig, choices: Choices, seed: int, tuned: Mapping[str, Any]
) -> tuple[Path | None, dict[str, Any]]:
    """Return the recipe of a combination of choices, and the settings that override it."""
    by_axis = _by_axis(config, choices)
    recipes = {axis: choice.recipe for axis, choice in by_axis.items() if choice.recipe is not None}
    if len(recipes) > 1:
        both = " and ".join(f'"{axis}"' for axis in recipes)
        raise errors.ConflictingOptions(f"The axes {both} both name recipes. Only one of them may.")
    setters = {_place(axis, choice): choice.set for axis, choice in by_axis.items()}
    _check_conflicts(setters)
    rules = {
        f"[[where]] {number} with choices = {toml_value(where.choices)}": where.set
        for number, where in enumerate(config.where, 1)
        if where.choices.items() <= {**choices, SEED: str(seed)}.items()
    }
    _check_conflicts(rules)
    if config.tune:
        for name, chosen in {**setters, **rules, "set": config.set}.items():
            _check_conflicts({name: chosen, "tune.parameters": config.tune.parameters_of(choices)})
    if config.tuned:
        for name, chosen in {**setters, **rules}.items():
            _check_conflicts({name: chosen, f"the values of {config.tuned.file.name}": tuned})
    values = dict(config.base.set)
    for chosen in (*setters.values(), *rules.values()):
        values |= chosen
    return next(iter(recipes.values()), config.base.recipe), values


def _by_axis(config: StudyConfig, choices: Choices) -> dict[str, Choice]:
    return {axis: next(c for c in config.axis(axis).choices if c.name == name) for axis, name in choices.items()}


def _load(config: StudyConfig, choices: Choices, recipe: Path | None, values: Mapping[str, Any]) -> RunConfig:
    texts = [f"{key}={toml_value(value)}" for key, value in values.items()]
    try:
        return load_config({} if recipe is None else recipe, texts)
    except errors.UserError as error:
        override, reason = (
            (error.override, error.reason) if isinstance(error, errors.WrongOverride) else ("", str(error))
        )
        message = f'"{override}": {reason}' if override else reason
        blamed = [
            _place(axis, choice)
            for axis, choice in _by_axis(config, choices).items()
            if _is_blamed(choice, recipe, message)
        ]
        where = blamed[-1] if blamed else ", ".join(f"{axis} {choice}" for axis, choice in choices.items())
        raise (
            errors.WrongOverride(override, reason, place=f"{where}: ")
            if override
            else error.reworded(f"{where}: {message}")
        ) from error


def _is_blamed(choice: Choice, recipe: Path | None, message: str) -> bool:
    """Return whether an error message mentions a setting of a choice, or its recipe was read."""
    if recipe and recipe == choice.recipe:
        return True
    return any(
        f'"{key}"' in message or f'"{key}=' in message or f'"{value}"' in message for key, value in choice.set.items()
    )


def _check_conflicts(setters: Mapping[str, Mapping[str, Any]]) -> None:
    for (first, one), (second, other) in combinations(setters.items(), 2):
        for key, other_key in product(one, other):
            if f"{key}.".startswith(f"{other_key}.") or f"{other_key}.".startswith(f"{key}."):
                also = "" if other_key == key else f' (as "{other_key}")'
                raise errors.ConflictingOptions(
                    f'"{key}" is set by {first} and by {second}{also}. Set it in only one of them.'
                )


def _check_differences(config: StudyConfig, runs: Sequence[PlannedRun]) -> None:
    """Refuse runs with equal settings. Runs differ if a parameter is tuned for only one of them."""
    by_settings: dict[tuple[str, ...], PlannedRun] = {}
    for run in runs:
        tuned = config.tune.parameters_of(run.choices) if config.tune else ()
        other = by_settings.setdefault((run.config.located_digest(), *tuned), run)
        if other is not run:
            raise errors.RepeatedValue(
                f"The runs {_description(other)} and {_description(run)} have the same settings. Change the set of their "
                "choices so that they differ."
            )


def _check_measure(config: StudyConfig, runs: Sequence[PlannedRun]) -> None:
    for run in runs:
        measures = [Measure.parse(text) for text in run.config.evaluate.measures]
        measured = [str(measure) for measure in measures]
        if "measure" not in config.table.model_fields_set and all(measure.by == "pairs" for measure in measures):
            continue  # the tables then show a measure that the runs have
        if set(measured).isdisjoint(config.table.measures):
            raise errors.UnsuitableMeasure(
                f'table.measure is "{", ".join(config.table.measures)}", but {_description(run)} only measures '
                f'{", ".join(measured)}. Add it to "evaluate.measures" in set.'
            )


def _place(axis: str, choice: Choice) -> str:
    return f'axis "{axis}", choice "{choice.name}"'


def _description(run: PlannedRun) -> str:
    return f'"{", ".join(run.choices.values())}" (seed {run.seed})'
