"""Every run that follows from a study's axes, with its whole config.

A run of a study is one choice of each axis and one seed. Its config is made in this order, the later over the earlier:
the recipe, ``base.set``, the choices' ``set`` in the order of the axes, ``[[where]]``, what tuning found, ``set``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from pathlib import Path
from typing import Any

from silohash.evaluate.measures import Measure
from silohash.runtime.config import RunConfig, load_config, toml_value
from silohash.study.grid import Choice, Choices, StudyConfig
from silohash.types import UserError

Tuned = Mapping[str, Mapping[str, Any]]
"""The name of a search (`name_of` its choices) -> dotted keys."""


@dataclass(frozen=True)
class Cell:
    """One run of a study.

    Attributes:
        choices: axis -> choice.
        seed: the run's seed.
        name: of its folder: the choices, then the seed.
        config: the run.
    """

    choices: Choices
    seed: int
    name: str
    config: RunConfig


def cells(config: StudyConfig, tuned: Tuned | None = None, *, refuse_equal: bool = True) -> list[Cell]:
    """Returns every run of a study; the whole config of each is checked.

    Args:
        config: the study.
        tuned: what tuning found.
        refuse_equal: whether two runs that come to the same are refused.

    Raises:
        UserError: if two choices set the same key, two runs are the same, or a run's config is wrong; names axis and
            choice.
    """
    found = []
    for combined in product(*(axis.choices for axis in config.axes)):
        choices = {axis.name: choice.name for axis, choice in zip(config.axes, combined, strict=True)}
        values = (tuned or {}).get(search_name(config, choices), {})
        for seed in config.seeds:
            run = run_config(config, choices, seed, values)
            found.append(Cell(choices, seed, f"{name_of(choices)}-seed{seed}", run))
    _check_names(found)
    _check_measure(config, found)
    if refuse_equal:
        _check_differences(config, found)
    return found


def run_config(config: StudyConfig, choices: Choices, seed: int, tuned: Mapping[str, Any]) -> RunConfig:
    """Returns the run of one choice of each axis.

    Args:
        config: the study.
        choices: axis -> choice, of every axis.
        seed: the run's seed.
        tuned: dotted keys that tuning chose.

    Raises:
        UserError: if two choices set the same key, or the config is wrong.
    """
    recipe, values = _settings(config, choices)
    return _load(config, choices, recipe, {**values, **tuned, **config.set, "seed": seed})


def selected(config: StudyConfig, found: Sequence[Cell], only: Sequence[str]) -> list[Cell]:
    """Returns the runs with one of the choices that are named for an axis, as ``method=FedAvg``.

    Raises:
        UserError: if there is no such axis or choice.
    """
    wanted: dict[str, set[str]] = {}
    for text in only:
        axis, equals, choice = text.partition("=")
        if not equals:
            raise UserError(f'--only "{text}" is not of the form axis=choice, for example method=FedAvg.')
        try:
            config.check_choices("--only", {axis: choice})
        except ValueError as error:
            raise UserError(f"{error}.") from error
        wanted.setdefault(axis, set()).add(choice)
    return [cell for cell in found if all(cell.choices[axis] in names for axis, names in wanted.items())]


def name_of(choices: Choices) -> str:
    """Returns choices as a name that any file system takes.

    Example:
        >>> name_of({"method": "FedAvg", "share": "1/2"})
        'FedAvg-1_2'
    """
    return "-".join(re.sub(r"[^A-Za-z0-9.+_]", "_", choice) for choice in choices.values())


def search_name(config: StudyConfig, choices: Choices) -> str:
    """Returns the name of the search whose findings some choices take; empty without tuning."""
    return name_of({axis: choices[axis] for axis in config.tune.of}) if config.tune else ""


def _settings(config: StudyConfig, choices: Choices) -> tuple[Path | None, dict[str, Any]]:
    """Returns the recipe of some choices, and what is set over it."""
    by_axis = {axis: _choice(config, axis, name) for axis, name in choices.items()}
    recipes = {axis: choice.recipe for axis, choice in by_axis.items() if choice.recipe is not None}
    if len(recipes) > 1:
        raise UserError(f"The axes {_quoted(recipes)} both name recipes; only one of them may.")
    setters = {f'axis "{axis}", choice "{choice.name}"': choice.set for axis, choice in by_axis.items()}
    _check_conflicts(setters)
    above = {
        f"[[where]] {number} with choices = {toml_value(where.choices)}": where.set
        for number, where in enumerate(config.where, 1)
        if where.choices.items() <= choices.items()
    }
    _check_conflicts(above)
    if config.tune:
        for name, chosen in {**setters, **above, "set": config.set}.items():
            _check_conflicts({name: chosen, "tune.parameters": config.tune.parameters_of(choices)})
    values = dict(config.base.set)
    for chosen in (*setters.values(), *above.values()):
        values |= chosen
    return next(iter(recipes.values()), config.base.recipe), values


def _choice(config: StudyConfig, axis: str, name: str) -> Choice:
    return next(choice for choice in config.axis(axis).choices if choice.name == name)


def _load(config: StudyConfig, choices: Choices, recipe: Path | None, values: Mapping[str, Any]) -> RunConfig:
    texts = [f"{key}={toml_value(value)}" for key, value in values.items()]
    try:
        return load_config({} if recipe is None else recipe, texts)
    except UserError as error:
        by_axis = {axis: _choice(config, axis, name) for axis, name in choices.items()}
        guilty = [
            f'axis "{axis}", choice "{choice.name}"'
            for axis, choice in by_axis.items()
            if (recipe and recipe == choice.recipe) or any(_speaks_of(str(error), *pair) for pair in choice.set.items())
        ]
        where = guilty[-1] if guilty else ", ".join(f"{axis} {choice}" for axis, choice in choices.items())
        raise UserError(f"{where}: {error}") from error


def _speaks_of(message: str, key: str, value: object) -> bool:
    return f'"{key}"' in message or f" {key}:" in message or f'"{value}"' in message


def _check_conflicts(setters: Mapping[str, Mapping[str, Any]]) -> None:
    for (first, one), (second, other) in combinations(setters.items(), 2):
        for key, its in product(one, other):
            if f"{key}.".startswith(f"{its}.") or f"{its}.".startswith(f"{key}."):
                beside = "" if its == key else f' (there "{its}")'
                raise UserError(f'"{key}" is set by {first} and by {second}{beside}. Set it in one of them only.')


def _check_names(found: Sequence[Cell]) -> None:
    """Refuses choices whose folders would be the same, on file systems that do not tell case apart too."""
    by_name: dict[str, Cell] = {}
    for cell in found:
        other = by_name.setdefault(cell.name.lower(), cell)
        if other is not cell:
            raise UserError(
                f"The runs of {_words(other)} and of {_words(cell)} would share the folder {cell.name}. Rename a choice."
            )


def _check_differences(config: StudyConfig, found: Sequence[Cell]) -> None:
    """Refuses runs with the same settings; what is tuned for only one of them tells them apart."""
    by_settings: dict[tuple[str, ...], Cell] = {}
    for cell in found:
        tuned = config.tune.parameters_of(cell.choices) if config.tune else ()
        other = by_settings.setdefault((cell.config.digest(), *tuned), cell)
        if other is not cell:
            raise UserError(
                f"The runs of {_words(other)} and of {_words(cell)} are the same: all their settings are equal. "
                "Let the choices set what tells them apart."
            )


def _check_measure(config: StudyConfig, found: Sequence[Cell]) -> None:
    for cell in found:
        measured = [str(Measure.parse(text)) for text in cell.config.evaluate.measures]
        if config.table.measure not in measured:
            raise UserError(
                f'table.measure is "{config.table.measure}", and {_words(cell)} measures {", ".join(measured)} only. '
                'Add it to "evaluate.measures" in set.'
            )


def _words(cell: Cell) -> str:
    return f"{', '.join(cell.choices.values())} (seed {cell.seed})"


def _quoted(names: Iterable[str]) -> str:
    return " and ".join(f'"{name}"' for name in names)
