"""The config of a study: axes of settings with their choices, tables and tuning, read from TOML, with clear messages."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeAlias

import tomlkit
from pydantic import AfterValidator, Field, ValidationError, ValidationInfo, field_validator, model_validator

from silohash.base.attempts import attempted
from silohash.base.errors import InvalidFile, MissingFile, NoEffect, UserError, WrongKindOfFile, WrongKindOfPath
from silohash.base.files import read_toml
from silohash.base.forms import located
from silohash.base.registry import suggestion
from silohash.base.types import Evaluation
from silohash.evaluate.measures import Measure
from silohash.run.config.load import absolute_path, read_override, similar_file
from silohash.run.config.sections import Section
from silohash.run.config.toml import toml_value
from silohash.run.config.wrong_types import wrong_type
from silohash.study.figures import Figure

RESULT_FIELDS = ("task", "evaluation", "measure")
"""Fields that a table's rows and columns may show besides axes."""

SEED = "seed"
"""What rules and selections of runs call the seed, as if it were an axis."""

Choices = Mapping[str, str]
"""Axis -> choice."""

UNION = ("int", "float")
"""Last part of a location if none of the types of a value applies, such as those of a number."""


def _in_folder(path: Path, info: ValidationInfo) -> Path:
    return path if info.context is None else absolute_path(info.context, str(path))


def _with_paths(values: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
    found = dict(values)
    if isinstance(data := found.get("data"), dict) and isinstance(data.get("path"), str):
        found["data"] = {**data, "path": str(_in_folder(Path(data["path"]), info))}
    if isinstance(path := found.get("data.path"), str):
        found["data.path"] = str(_in_folder(Path(path), info))
    return found


FilePath: TypeAlias = Annotated[Path, AfterValidator(_in_folder)]
Settings: TypeAlias = Annotated[dict[str, Any], AfterValidator(_with_paths)]


class Base(Section):
    """``base``: the settings that every run starts from."""

    recipe: FilePath | None = None
    """Path of a run's config, relative to the study's file."""
    set: Settings = Field(default_factory=dict)
    """Settings that override the recipe, by dotted key."""


class Choice(Section):
    """``[[axis.choice]]``: one of the alternatives that an axis compares."""

    name: str = Field(min_length=1)
    """Name in tables and in the runs' folders."""
    recipe: FilePath | None = None
    """Path of a run's config that replaces the base recipe."""
    set: Settings = Field(default_factory=dict)
    """Settings by dotted key, such as ``"federated.name" = "fedavg"``."""


class Axis(Section, populate_by_name=True):
    """``[[axis]]``: what is varied, given as ``choice`` tables or as ``key`` and ``values``."""

    name: str = Field(min_length=1)
    """Name in tables."""
    key: str = ""
    """Short form: the dotted config key that takes each value."""
    values: tuple[Any, ...] = ()
    """Short form: one choice per value."""
    choices: tuple[Choice, ...] = Field(default=(), alias="choice")
    """The choices, in the order of the tables."""

    @model_validator(mode="before")
    @classmethod
    def _expand_short_form(cls, value: Any) -> Any:  # noqa: ANN401  pydantic's
        if not isinstance(value, dict):
            return value
        values, key = value.get("values") or [], value.get("key")
        short = bool(key and values and isinstance(values, list | tuple))
        if short == bool(value.get("choice")) or bool(key) != bool(values):
            raise ValueError('give an axis [[axis.choice]] tables, or key = "local.bits" with values = [16, 32]')
        if not short or not isinstance(key, str):
            return value
        names = [item if isinstance(item, str) else toml_value(item) for item in values]
        choices = [{"name": name, "set": {key: item}} for name, item in zip(names, values, strict=True)]
        return {**value, "choice": choices}

    @model_validator(mode="after")
    def _names_are_unique(self) -> Self:
        if self.name in (*RESULT_FIELDS, SEED):
            raise ValueError(f'an axis cannot be called "{self.name}", because tables have a column of that name')
        if duplicate := _duplicate([choice.name for choice in self.choices]):
            raise ValueError(f'there are two choices "{duplicate}"')
        return self


class Where(Section):
    """``[[where]]``: settings for a combination of choices, which override those of each choice."""

    choices: dict[str, str] = Field(min_length=1)
    """Axis -> choice, such as ``{ method = "Centralized", data = "coco18" }``. ``seed`` also counts as an axis, as in
    ``{ seed = "1" }``."""
    set: Settings = Field(default_factory=dict)
    """Settings by dotted key."""


class Table(Section):
    """``[table]``: layout of the tables. Each choice of an axis in neither rows nor columns gets a table of its own."""

    rows: tuple[str, ...] = ()
    """Names of axes, task, evaluation or measure."""
    columns: tuple[str, ...] = ()
    """Names of axes, task, evaluation or measure."""
    measure: str = "mAP@all"
    """The measure to show."""
    further_measures: tuple[str, ...] = ()
    """Further measures, each with tables and plots of its own. Then tables and plots without any figure are left out."""
    evaluations: tuple[Evaluation, ...] = ("GG", "PG", "XS")
    """The evaluations to show. GG and PG share a column, which shows the one that a method has."""
    database: Literal["all", "unseen"] = "all"
    """`all`: figures over all items of the database. `unseen`: over those that no silo trained on. Every run has both."""
    against: dict[str, tuple[str, ...]] = Field(default={}, max_length=1)
    """An axis of the rows or columns with some of its choices, such as ``{ method = ["FedAvg"] }``. For each of these
    choices, a table shows the differences of all others from it, paired by seed."""

    @field_validator("measure", "further_measures")
    @classmethod
    def _are_measures(cls, value: str | tuple[str, ...]) -> str | tuple[str, ...]:
        try:
            return str(Measure.parse(value)) if isinstance(value, str) else tuple(str(Measure.parse(m)) for m in value)
        except UserError as error:
            raise ValueError(str(error)) from error

    @property
    def measures(self) -> tuple[str, ...]:
        """All measures to show, each once."""
        return tuple(dict.fromkeys([self.measure, *self.further_measures]))


class Parameter(Section):
    """A parameter to tune: a range from ``low`` to ``high``, or a list of ``values``."""

    low: int | float | None = None
    """Lowest value. The parameter is an integer if both ends are."""
    high: int | float | None = None
    """Highest value."""
    log: bool = False
    """Whether values are drawn uniformly in the logarithm."""
    values: tuple[bool | int | float | str, ...] = ()
    """The values to choose from, instead of a range."""
    only: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """Axis -> the choices that have the parameter, such as ``{ method = ["FedProx"] }``; all by default."""
    unless: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """Axis -> the choices that do not have the parameter; none by default."""

    @model_validator(mode="after")
    def _is_a_range_or_values(self) -> Self:
        if bool(self.values) == (self.low is not None and self.high is not None):
            raise ValueError("give low and high, or values")
        if self.low is None or self.high is None:
            return self
        if not -math.inf < self.low <= self.high < math.inf:
            raise ValueError(f"low = {self.low:g} and high = {self.high:g} are not a range")
        if self.log and self.low <= 0:
            raise ValueError(f"low = {self.low:g} must be above 0 with log = true")
        return self


class Tune(Section):
    """``[tune]``: one parameter search per choice of some axes, each with the same number of trials."""

    trials: int = Field(ge=1)
    """Number of trials per search."""
    of: tuple[str, ...] = Field(min_length=1)
    """Axes whose choices are tuned separately. All other axes are fixed at their first choice."""
    parameters: dict[str, Parameter] = Field(min_length=1)
    """Dotted key -> its range or values."""
    seed: int = Field(default=0, ge=0)
    """Seed of the search."""

    def parameters_of(self, choices: Choices) -> dict[str, Parameter]:
        """Return the parameters that are tuned for the given choices."""
        return {
            key: parameter
            for key, parameter in self.parameters.items()
            if all(choices[axis] in names for axis, names in parameter.only.items())
            and not any(choices[axis] in names for axis, names in parameter.unless.items())
        }

    def sentence(self) -> str:
        """Return a sentence that tells what was tuned and with how many trials."""
        trials = f"{self.trials} trial{'s' * (self.trials > 1)}"
        return (
            f"Tuned for each {' and '.join(self.of)}: {', '.join(self.parameters)} (best validation score of {trials})."
        )


class TunedBefore(Section):
    """``[tuned]``: the values that the tuning of another study chose, instead of a search of one's own."""

    file: FilePath
    """Its ``tuning/best.toml``."""
    of: tuple[str, ...] = Field(min_length=1)
    """The axes that it tuned separately, in its order. Both studies name their choices alike."""

    def sentence(self) -> str:
        """Return a sentence that tells where the values come from."""
        return f"Values tuned for each {' and '.join(self.of)} by another study ({self.file.name})."


class StudyConfig(Section, populate_by_name=True):
    """The config of a study, which `silohash study` reads and stores."""

    title: str = ""
    """Title of tables and plots."""
    seeds: tuple[int, ...] = Field(default=(0,), min_length=1)
    """Seeds. Every combination of choices is run with each."""
    processes: int = Field(default=1, ge=1, le=64)
    """Number of runs at the same time. They share the cores equally."""
    base: Base = Base()
    axes: tuple[Axis, ...] = Field(alias="axis", min_length=1)
    where: tuple[Where, ...] = ()
    table: Table = Table()
    figures: tuple[Figure, ...] = ()
    """What is drawn, each a table with its ``kind``. Leave empty for the curves over the rounds, and the measures over each
    axis of numbers or, without such an axis, by method."""
    tune: Tune | None = None
    tuned: TunedBefore | None = None
    set: Settings = Field(default_factory=dict)
    """Settings of every run, by dotted key. They override all others."""

    @field_validator("seeds")
    @classmethod
    def _seeds_are_unique(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if _duplicate([str(seed) for seed in value]) or min(value) < 0:
            raise ValueError("give each seed once, and none below 0")
        return value

    @model_validator(mode="after")
    def _names_are_known(self) -> Self:
        if duplicate := _duplicate([axis.name for axis in self.axes]):
            raise ValueError(f'there are two axes "{duplicate}"')
        for where in self.where:
            self.check_choices("where", where.choices)
        for name in (*self.table.rows, *self.table.columns):
            _check_name("table: there is no axis", name, [*self.axis_names, *RESULT_FIELDS])
        if duplicate := _duplicate([*self.table.rows, *self.table.columns]):
            raise ValueError(f'table: "{duplicate}" appears twice in rows and columns')
        self._check_references(self.table)
        if self.tune:
            self._check_tuning(self.tune)
        if self.tuned:
            if self.tune:
                raise ValueError("[tuned] has the values that [tune] would search. Remove one of them")
            for name in self.tuned.of:
                _check_name("tuned.of: there is no axis", name, self.axis_names)
        return self

    @model_validator(mode="after")
    def _figures_are_possible(self) -> Self:
        for number, figure in enumerate(self.figures, 1):
            self._check_figure(f"figures {number} ({figure.kind})", figure)
        return self

    def _check_references(self, table: Table) -> None:
        shown = (*table.rows, *table.columns) or self.axis_names
        for axis, names in table.against.items():
            for name in names:
                self.check_choices("table.against", {axis: name})
            _check_name("table.against: neither rows nor columns name the axis", axis, shown)

    def _check_figure(self, where: str, figure: Figure) -> None:
        for axis, names in figure.only.items():
            _check_name(f"{where}.only: there is no axis", axis, self.axis_names)
            for name in names:
                self.check_choices(f"{where}.only", {axis: name})
        for axis in figure.drawn_over:
            _check_name(f"{where}: there is no axis", axis, self.axis_names)
            shown = [c.name for c in self.axis(axis).choices if c.name in figure.only.get(axis, [c.name])]
            if len(shown) < 2:
                raise ValueError(f'{where}: a figure over "{axis}" needs at least two of its choices, not {len(shown)}')
            if figure.kind == "axis" and not all(map(is_number, shown)):
                raise ValueError(f'{where}: the choices of "{axis}" are not numbers: {", ".join(shown)}')

    def figures_of(self, choices: Choices) -> tuple[Figure, ...]:
        """Return the figures that show a run with the given choices."""
        return tuple(
            figure for figure in self.figures if all(choices[axis] in names for axis, names in figure.only.items())
        )

    def _check_tuning(self, tune: Tune) -> None:
        for name in tune.of:
            _check_name("tune.of: there is no axis", name, self.axis_names)
        for key, parameter in tune.parameters.items():
            for kind, choices in (("only", parameter.only), ("unless", parameter.unless)):
                for axis, names in choices.items():
                    _check_name(f'tune.parameters."{key}".{kind}: tune.of does not name the axis', axis, tune.of)
                    for name in names:
                        self.check_choices(f'tune.parameters."{key}".{kind}', {axis: name})

    def check_choices(self, where: str, choices: Choices) -> None:
        """Check that axes and choices exist. The axis ``seed`` has the study's seeds as choices.

        Messages begin with ``where``, the place that names them.

        Raises:
            ValueError: If there is no such axis or choice; suggests the nearest name.
        """
        for axis, choice in choices.items():
            if axis == SEED:
                _check_name(f"{where}: the study has no seed", choice, [str(seed) for seed in self.seeds])
                continue
            _check_name(f"{where}: there is no axis", axis, [*self.axis_names, SEED])
            _check_name(f'{where}: axis "{axis}" has no choice', choice, [c.name for c in self.axis(axis).choices])

    @property
    def tuned_axes(self) -> tuple[str, ...]:
        """The axes whose choices have tuned values of their own; none if no values are tuned."""
        tuning = self.tune or self.tuned
        return tuning.of if tuning else ()

    @property
    def axis_names(self) -> tuple[str, ...]:
        """The names of the axes, in order."""
        return tuple(axis.name for axis in self.axes)

    def axis(self, name: str) -> Axis:
        """Return the axis with a name."""
        return next(axis for axis in self.axes if axis.name == name)

    def tuned_by(self, file: Path) -> Self:
        """Return the study with the values of a ``best.toml`` of its own tuning, in place of the searches.

        Raises:
            NoEffect: If the study does not tune.
        """
        if self.tune is None:
            raise NoEffect(f"The study does not tune, so the values of {file} have no effect. Leave them out.")
        tuned = TunedBefore(file=file.absolute(), of=self.tune.of)
        return self.model_copy(update={"tune": None, "tuned": tuned})

    def to_toml(self) -> str:
        """Return the study as TOML, with absolute paths."""
        value = self.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        for axis in value["axis"]:
            axis.pop("choice" if "key" in axis else "key", None)
        return tomlkit.dumps(value)


def load_study(path: Path, overrides: Sequence[str] = ()) -> StudyConfig:
    """Read a study's file. Paths in it are relative to its folder, and ``section.key=value`` overrides apply to every run.

    Raises:
        UserError: If the file is missing or not TOML, or a key, name or value in it is wrong.
    """
    if path.is_dir():
        raise WrongKindOfPath(f'"{path}" is a folder. Give the path of a TOML file.')
    if not path.exists():
        raise MissingFile(
            f'There is no study file "{path}"{similar_file(path)}. See docs/how-to/studies.md for an example.'
        )
    value = read_toml(path, remedy="Correct the file.")
    if "axis" not in value and "data" in value:
        raise WrongKindOfFile(f'"{path}" is the config of one run, not a study. Train it: silohash train {path}')
    return make_study(value, where=str(path), folder=path.parent, overrides=overrides)


def make_study(
    value: Mapping[str, Any], *, where: str, folder: Path = Path(), overrides: Sequence[str] = ()
) -> StudyConfig:
    """Return the study that a file's content describes. Messages call the file ``where``. See `load_study`.

    Raises:
        UserError: If a key, name or value is wrong; names the axis and the choice.
    """
    try:
        config = StudyConfig.model_validate(value, context=folder)
    except ValidationError as error:
        raise InvalidFile(f"{where}: {explain(error, value)}") from error
    return config.model_copy(update={"set": {**config.set, **dict(read_override(text) for text in overrides)}})


def is_number(text: str) -> bool:
    """Return whether a choice's name is a finite number."""
    return math.isfinite(attempted(lambda: float(text), ValueError, otherwise=math.nan))


def _duplicate(names: Sequence[str]) -> str:
    return next((name for place, name in enumerate(names) if name in names[:place]), "")


def _check_name(what: str, name: str, known: Sequence[str]) -> None:
    if name not in known:
        raise ValueError(f'{what} "{name}"{suggestion(name, known)}. Available: {", ".join(known)}')


def explain(error: ValidationError, value: Mapping[str, Any]) -> str:
    """Return the first error as a sentence that names the axis and the choice."""
    first = error.errors()[0]
    places, keys = _location(first["loc"], value)
    key = ".".join(str(part) for part in keys)
    where = f"{', '.join(places)}: " if places else ""
    if first["type"] == "extra_forbidden":
        _, table = located(first["loc"][:-1], StudyConfig)
        known = [field.alias or name for name, field in (table or StudyConfig).model_fields.items()]
        return f'{where}unknown key "{key}"{suggestion(str(keys[-1]), known)}; known: {", ".join(known)}.'
    if first["type"] == "missing":
        return f'{where}"{key}" is missing. Add it to the file.'
    return where + _wrong_value(first, keys)


def _wrong_value(error: Mapping[str, Any], keys: Sequence[int | str]) -> str:
    """Return what is wrong with the value at some keys, and the value seen; no keys stand for the list item itself."""
    if error["loc"] and error["loc"][-1] in UNION:
        error, keys = {**error, "type": "float_type"}, keys[:-1]
    key = ".".join(map(str, keys))
    sentences = wrong_type(error, key or ".".join(map(str, error["loc"][-2:])), StudyConfig)
    if not sentences:
        message, value = error["msg"].removeprefix("Value error, ").rstrip("."), error.get("input")
        seen = f" (got {value!r})" if isinstance(value, str | int | float | bool) else ""
        sentences = f"{message[0].lower()}{message[1:]}{seen}."
    return f"{key}{': ' if key else ''}{sentences}"


def _location(loc: tuple[int | str, ...], value: Mapping[str, Any]) -> tuple[list[str], list[int | str]]:
    """Return the list items on the way to an error, in words, and the keys within the last of them."""
    places: list[str] = []
    keys = list(loc)
    here: Any = value
    for number, part in enumerate(loc):
        here = _item(here, part)
        if isinstance(part, int):
            name = here.get("name") if isinstance(here, dict) else None
            places.append(f'{loc[number - 1]} "{name}"' if name else f"{loc[number - 1]} {part + 1}")
            keys = list(loc[number + 1 :])
    return places, keys


def _item(value: object, key: int | str) -> object:
    if isinstance(value, list) and isinstance(key, int) and key < len(value):
        return value[key]
    return value.get(key, {}) if isinstance(value, dict) else {}
