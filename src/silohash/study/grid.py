"""A study as one value: axes of settings and their choices, tables, tuning; read from TOML, unknown keys refused."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from silohash.evaluate.measures import Measure
from silohash.registry import suggestion
from silohash.runtime.config import read_override, toml_value
from silohash.runtime.sections import Section
from silohash.types import Evaluation, UserError

BESIDE_AXES = ("task", "evaluation", "measure")
"""What a table's rows and columns may stand for beside axes."""

Choices = Mapping[str, str]
"""Axis -> choice."""


class Base(Section):
    """``base``: what every run begins with."""

    recipe: Path | None = None
    """A run's config, relative to the study's file."""
    set: dict[str, Any] = Field(default_factory=dict)
    """Dotted keys over the recipe."""


class Choice(Section):
    """``[[axis.choice]]``: one of the settings that an axis compares."""

    name: str = Field(min_length=1)
    """As it stands in tables and in the runs' folders."""
    recipe: Path | None = None
    """A run's config in place of the base's."""
    set: dict[str, Any] = Field(default_factory=dict)
    """Dotted keys, as ``"federated.name" = "fedavg"``."""


_Settings = TypeVar("_Settings", Base, Choice)


class Axis(Section):
    """``[[axis]]``: what is varied; with ``choice``, or with ``key`` and ``values``."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, populate_by_name=True)

    name: str = Field(min_length=1)
    """As it stands in tables."""
    key: str = ""
    """Shorthand: the key of the config that each value is set for."""
    values: tuple[Any, ...] = ()
    """Shorthand: one choice a value."""
    choices: tuple[Choice, ...] = Field(default=(), alias="choice")
    """The choices, in the tables' order."""

    @model_validator(mode="before")
    @classmethod
    def _spelled_out(cls, value: Any) -> Any:  # noqa: ANN401  pydantic's
        if not isinstance(value, dict):
            return value
        values, key = value.get("values") or [], value.get("key")
        shorthand = bool(key and values and isinstance(values, list | tuple))
        if shorthand == bool(value.get("choice")) or bool(key) != bool(values):
            raise ValueError('give an axis [[axis.choice]] tables, or key = "local.bits" with values = [16, 32]')
        if not shorthand:
            return value
        return {**value, "choice": [{"name": _name_of(item), "set": {key: item}} for item in values]}

    @model_validator(mode="after")
    def _each_once(self) -> Axis:
        if self.name in (*BESIDE_AXES, "seed"):
            raise ValueError(f'an axis cannot be called "{self.name}"; tables have a column of that name')
        if twice := _twice([choice.name for choice in self.choices]):
            raise ValueError(f'there are two choices "{twice}"')
        return self


class Where(Section):
    """``[[where]]``: what is set for some choices together, over what each sets alone."""

    choices: dict[str, str] = Field(min_length=1)
    """Axis -> choice, as ``{ method = "Centralized", data = "coco18" }``."""
    set: dict[str, Any] = Field(default_factory=dict)
    """Dotted keys."""


class Table(Section):
    """``[table]``: how the figures are set out; an axis in neither rows nor columns gets a table for each choice."""

    rows: tuple[str, ...] = ()
    """Axes, and task, evaluation, measure."""
    columns: tuple[str, ...] = ()
    """Likewise."""
    measure: str = "mAP@all"
    """The measure that is shown."""
    evaluations: tuple[Evaluation, ...] = ("GG", "PG", "XS")
    """GG and PG stand as one: whichever of them a method has."""

    @field_validator("measure")
    @classmethod
    def _readable(cls, value: str) -> str:
        try:
            return str(Measure.parse(value))
        except UserError as error:
            raise ValueError(str(error)) from error


class Parameter(Section):
    """One parameter that tuning chooses: between ``low`` and ``high``, or one of ``values``."""

    low: int | float | None = None
    """The lowest value; a whole number if both ends are."""
    high: int | float | None = None
    """The highest value."""
    log: bool = False
    """Whether values are drawn evenly in their logarithm."""
    values: tuple[bool | int | float | str, ...] = ()
    """The values to choose from, in place of a range."""
    only: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """Axis -> the choices that have the parameter, as ``{ method = ["FedProx"] }``; all by default."""

    @model_validator(mode="after")
    def _range_or_values(self) -> Parameter:
        if bool(self.values) == (self.low is not None and self.high is not None):
            raise ValueError("give low and high, or values")
        if self.low is not None and self.high is not None and not (0 if self.log else -1e300) < self.low <= self.high:
            raise ValueError(f"low = {self.low:g} and high = {self.high:g} are no range" + " above 0" * self.log)
        return self


class Tune(Section):
    """``[tune]``: a search on the validation figure, with the same number of trials for every choice of some axes."""

    trials: int = Field(ge=1)
    """How many each search gets."""
    of: tuple[str, ...] = Field(min_length=1)
    """Axes for whose choices a search of its own is made; the other axes stand at their first choice."""
    parameters: dict[str, Parameter] = Field(min_length=1)
    """Dotted key -> what it may be."""
    seed: int = Field(default=0, ge=0)
    """Of the search's draws."""

    def parameters_of(self, choices: Choices) -> dict[str, Parameter]:
        """Returns the parameters that the runs of some choices have."""
        return {
            key: parameter
            for key, parameter in self.parameters.items()
            if all(choices[axis] in names for axis, names in parameter.only.items())
        }

    def words(self) -> str:
        """Returns what was tuned, by what and at what cost, as a sentence."""
        trials = f"{self.trials} trial{'s' * (self.trials > 1)}"
        return (
            f"{', '.join(self.parameters)}: the best of {trials} for each {' and '.join(self.of)}, by validation score."
        )


class StudyConfig(Section):
    """A whole study; what `silohash study` reads and stores."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, populate_by_name=True)

    title: str = ""
    """Over tables and plots."""
    seeds: tuple[int, ...] = Field(default=(0,), min_length=1)
    """Every choice of the axes is run with each."""
    processes: int = Field(default=1, ge=1, le=64)
    """Runs at the same time; each gets its share of the cores."""
    base: Base = Base()
    axes: tuple[Axis, ...] = Field(alias="axis", min_length=1)
    where: tuple[Where, ...] = ()
    table: Table = Table()
    tune: Tune | None = None
    set: dict[str, Any] = Field(default_factory=dict)
    """Dotted keys over everything, in every run."""

    @field_validator("seeds")
    @classmethod
    def _seeds_once(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if _twice([str(seed) for seed in value]) or min(value) < 0:
            raise ValueError("each seed once, none below 0")
        return value

    @model_validator(mode="after")
    def _names_are_known(self) -> StudyConfig:
        if twice := _twice([axis.name for axis in self.axes]):
            raise ValueError(f'there are two axes "{twice}"')
        for where in self.where:
            self.check_choices("where", where.choices)
        for name in (*self.table.rows, *self.table.columns):
            _check_name("table: there is no axis", name, [*self.axis_names, *BESIDE_AXES])
        if twice := _twice([*self.table.rows, *self.table.columns]):
            raise ValueError(f'table: "{twice}" stands twice in rows and columns')
        if self.tune:
            self._check_tuning(self.tune)
        return self

    def _check_tuning(self, tune: Tune) -> None:
        for name in tune.of:
            _check_name("tune.of: there is no axis", name, self.axis_names)
        for key, parameter in tune.parameters.items():
            for axis, names in parameter.only.items():
                _check_name(f'tune.parameters."{key}".only: tune.of names no axis', axis, tune.of)
                for name in names:
                    self.check_choices(f'tune.parameters."{key}".only', {axis: name})

    def check_choices(self, where: str, choices: Choices) -> None:
        """Checks names that ``where`` gives of axes and choices.

        Raises:
            ValueError: if there is no such axis or choice; names the nearest.
        """
        for axis, choice in choices.items():
            _check_name(f"{where}: there is no axis", axis, self.axis_names)
            _check_name(f'{where}: axis "{axis}" has no choice', choice, [c.name for c in self.axis(axis).choices])

    @property
    def axis_names(self) -> tuple[str, ...]:
        """The axes' names, in order."""
        return tuple(axis.name for axis in self.axes)

    def axis(self, name: str) -> Axis:
        """Returns an axis by its name."""
        return next(axis for axis in self.axes if axis.name == name)

    def to_toml(self) -> str:
        """Returns the study as TOML, an axis a line, with the paths as they were resolved."""
        value = self.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        for axis in value["axis"]:
            axis.pop("choice" if "key" in axis else "key", None)
        return "".join(f"{name} = {toml_value(item)}\n" for name, item in value.items())


def load_study(path: Path, overrides: Sequence[str] = ()) -> StudyConfig:
    """Reads a study's file; paths in it are relative to it.

    Args:
        path: a TOML file.
        overrides: ``section.key=value``, set in every run over everything else.

    Raises:
        UserError: if the file is missing or no TOML, or a key, a name or a value in it is wrong.
    """
    try:
        value = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UserError(f'There is no study "{path}". docs/how-to/studies.md shows what one looks like.') from error
    except IsADirectoryError as error:
        raise UserError(f'"{path}" is a folder; a study is a TOML file.') from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is no TOML: {error}.") from error
    return make_study(value, where=str(path), folder=path.parent, overrides=overrides)


def make_study(
    value: Mapping[str, Any], *, where: str, folder: Path = Path(), overrides: Sequence[str] = ()
) -> StudyConfig:
    """Returns a study of what a file would hold.

    Args:
        value: the tables.
        where: what messages call it.
        folder: what its paths are relative to.
        overrides: as of `load_study`.

    Raises:
        UserError: if a key, a name or a value is wrong; names the axis and the choice.
    """
    try:
        config = StudyConfig.model_validate(value)
    except ValidationError as error:
        raise UserError(f"{where}: {_explain(error, value)}") from error
    over = {**_placed_values(config.set, folder), **dict(read_override(text) for text in overrides)}
    placed = [
        axis.model_copy(update={"choices": tuple(_placed(choice, folder) for choice in axis.choices)})
        for axis in config.axes
    ]
    where_placed = [rule.model_copy(update={"set": _placed_values(rule.set, folder)}) for rule in config.where]
    update = {"base": _placed(config.base, folder), "axes": tuple(placed), "where": tuple(where_placed), "set": over}
    return config.model_copy(update=update)


def _placed(settings: _Settings, folder: Path) -> _Settings:
    """Returns a base or a choice with its paths taken from a folder."""
    recipe = None if settings.recipe is None else (folder / settings.recipe).resolve()
    return settings.model_copy(update={"recipe": recipe, "set": _placed_values(settings.set, folder)})


def _placed_values(values: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    placed = dict(values)
    data = placed.get("data")
    if isinstance(data, dict) and isinstance(data.get("path"), str):
        placed["data"] = {**data, "path": str((folder / data["path"]).resolve())}
    if isinstance(placed.get("data.path"), str):
        placed["data.path"] = str((folder / placed["data.path"]).resolve())
    return placed


def _explain(error: ValidationError, value: Mapping[str, Any]) -> str:
    """Returns the first thing that is wrong, in one sentence, with the axis and the choice by name."""
    first = error.errors()[0]
    places: list[str] = []
    here: Any = value
    keys = list(first["loc"])
    model: type[BaseModel] | None = StudyConfig
    for number, part in enumerate(first["loc"]):
        here = here[part] if _has(here, part) else {}
        if isinstance(part, int):
            name = here.get("name") if isinstance(here, dict) else None
            kind = str(first["loc"][number - 1])
            places.append(f'{kind} "{name}"' if name else f"{kind} {part + 1}")
            keys = list(first["loc"][number + 1 :])
        elif part in INNER:
            model = INNER[part]
    key = ".".join(str(part) for part in keys)
    where = "".join(f"{place}, " for place in places).removesuffix(", ") + ": " * bool(places)
    if first["type"] == "extra_forbidden":
        assert model is not None  # noqa: S101  the study itself at the least
        known = [field.alias or name for name, field in model.model_fields.items()]
        return f'{where}unknown key "{key}"{suggestion(str(keys[-1]), known)}; known: {", ".join(known)}.'
    if first["type"] == "missing":
        return f'{where}"{key}" is missing.'
    message = first["msg"].removeprefix("Value error, ").rstrip(".")
    shown = first.get("input")
    seen = f" (got {shown!r})" if isinstance(shown, str | int | float | bool) else ""
    return f"{where}{key + ': ' if key else ''}{message[0].lower()}{message[1:]}{seen}."


INNER: Mapping[object, type[BaseModel]] = {
    "base": Base, "axis": Axis, "choice": Choice, "where": Where, "table": Table, "tune": Tune, "parameters": Parameter,
}  # fmt: skip
"""A table of the file -> the model that reads it."""


def _has(value: object, part: object) -> bool:
    if isinstance(value, list):
        return isinstance(part, int) and part < len(value)
    return isinstance(value, dict) and part in value


def _name_of(value: object) -> str:
    return value if isinstance(value, str) else toml_value(value)


def _twice(names: Sequence[str]) -> str:
    """Returns the first name that occurs twice, or an empty string."""
    return next((name for place, name in enumerate(names) if name in names[:place]), "")


def _check_name(what: str, name: str, known: Sequence[str]) -> None:
    if name not in known:
        raise ValueError(f'{what} "{name}"{suggestion(name, known)}; there are: {", ".join(known)}')
