"""What is missing here to run a paper's study, and the same study on other data or cut short."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from silohash.base.errors import NothingUsable, UserError
from silohash.data import ARCHIVES
from silohash.data.benchmarks.dataset import AUTO, Dataset, folder_of, text_features_path
from silohash.data.packed.reader import PackedSet
from silohash.data.protocols.apply import DEFAULT, SCALED
from silohash.methods.federated import FEDERATED_METHODS
from silohash.methods.local import LOCAL_METHODS
from silohash.run.config.load import read_override
from silohash.run.config.sections import DataConfig, RunConfig
from silohash.study.config import Axis, Choice, StudyConfig
from silohash.study.differences import BEYOND_CONFIG, SettingDifference, differences
from silohash.study.papers import PaperTable
from silohash.study.plan import planned_runs

DATA = "data"
"""The axis of the data sets."""

BITS = "local.bits"
SMOKE_TITLE = "SMOKE TEST, ITS FIGURES MEAN NOTHING"
SMOKE_WIDTH = 32
SMOKE_ITEMS = 400
SMOKE_SETTINGS: Mapping[str, Any] = {
    "federated.rounds": 2, "federated.local_epochs": 1, "model.hidden": SMOKE_WIDTH
}  # fmt: skip
"""Settings of every run of a study that only shows that everything works."""


@dataclass(frozen=True)
class MissingRequirement:
    """Something that a choice of a study needs and that is missing here, with how to get it if silohash has it.

    The axis and the choice are empty if the whole study needs it.
    """

    axis: str
    choice: str
    needs: str
    remedy: str = ""
    is_method: bool = False

    def __str__(self) -> str:
        """Return the requirement as a phrase."""
        return f"{self.choice or 'every run'} needs {self.needs}"


Need = tuple[str, str]
"""What is missing, and how to get it."""


@dataclass(frozen=True)
class Listed:
    """A table or figure of a paper with what is missing here to run it, and in what the runs differ from the paper.

    Attributes:
        has_study: Whether silohash runs it.
        partly: Whether some of its runs can be done here with the paper's data.
        needs: What is missing for the others, or for all.
        open: The sets that anyone may use -> what is missing of their files; empty if they are here.
    """

    table: PaperTable
    has_study: bool
    partly: bool = False
    needs: tuple[MissingRequirement, ...] = ()
    open: Mapping[str, str] = field(default_factory=dict)
    differs: tuple[SettingDifference, ...] = ()

    @property
    def status(self) -> str:
        """What can be run here: ``paper``, ``part``, ``open``, ``missing``, or ``no study``."""
        if not self.has_study:
            return "no study"
        if self.partly:
            return "part" if self.needs else "paper"
        return "open" if not all(self.open.values()) else "missing"

    def document(self) -> dict[str, Any]:
        """Return a JSON value."""
        return {
            "key": self.table.key, "title": self.table.title, "covers": list(self.table.item.covers),
            "status": self.status, "needs": [asdict(need) for need in self.needs], "open": dict(self.open),
            "differs": [asdict(one) for one in self.differs], "notes": list(self.table.paper.notes),
        }  # fmt: skip

    def lines(self, *, in_detail: bool) -> list[str]:
        """Return lines of text; in detail, also how to get what is missing, and each difference."""
        title = f"{self.table.key}: {self.table.title}"
        if not self.has_study:
            return [title, "  not run here"]
        words = {
            "paper": "runs here with the paper's data", "part": "runs here in part", "open": "runs here with --data open",
            "missing": "cannot be run here",
        }  # fmt: skip
        lines = [title, f"  {words[self.status]}"]
        if self.needs:
            lines.append(f"  missing: {'; '.join(dict.fromkeys(need.needs for need in self.needs))}")
        for name, missing in self.open.items():
            lines.append(f"  --data open: {name}{f' ({missing})' if missing else ''}")
        if not in_detail:
            return [*lines, f"  differs from the paper in: {count_of(self.differs)}"]
        lines += [f"  {need.remedy}" for need in self.needs if need.remedy]
        return [*lines, *(f"  {one}" for one in self.differs), *(f"  {note}" for note in self.table.paper.notes)]


def count_of(found: Sequence[SettingDifference]) -> str:
    """Return how many settings differ, and how many of them the config cannot express, in words."""
    keys = {one.key for one in found}
    beyond = len([key for key in keys if key.startswith(BEYOND_CONFIG)])
    return f"{len(keys) - beyond} settings, and {beyond} that cannot be set"


def listed(table: PaperTable, *, open_data: bool = False) -> Listed:
    """Return what is missing here to run a table, and in what the runs differ from the paper.

    Raises:
        UserError: If the study or what is stated about its settings is wrong.
    """
    if table.study_path is None:
        return Listed(table, has_study=False)
    config = study_of(table, open_data=open_data)
    needs = missing_requirements(config)
    methods = [need for need in needs if need.is_method]
    try:
        partly = bool(without_missing(config, needs))
    except NothingUsable:
        partly = False
    sets = {c.name: missing_of_data(DataConfig.model_validate(_data_of(c))) for c in table.item.open}
    return Listed(
        table, has_study=True, partly=partly, needs=tuple(needs),
        open={name: need[0] if need else "" for name, need in sets.items()},
        differs=tuple(differences(table.settings, without_missing(config, methods))),
    )  # fmt: skip


def study_of(
    table: PaperTable, *, open_data: bool = False, smoke: bool = False, overrides: Sequence[str] = ()
) -> StudyConfig:
    """Return the study of a table, on the data that anyone may use or cut short if wanted, with overrides of settings.

    Raises:
        UserError: If there is no such study, or its file or an override is wrong.
    """
    config = table.study()
    if open_data:
        config = on_open_data(config, table.item.open)
    if smoke:
        config = cut_short(config)
    return config.model_copy(update={"set": {**config.set, **dict(map(read_override, overrides))}})


def _data_of(choice: Choice) -> dict[str, Any]:
    """Return the name and the path of a choice's data."""
    return {key.partition(".")[2]: value for key, value in choice.set.items() if key in {"data.name", "data.path"}}


def missing_requirements(config: StudyConfig) -> list[MissingRequirement]:
    """Return the methods, data sets and weights that a study needs and that are missing here.

    Raises:
        UserError: If a run's config is wrong.
    """
    methods = _missing_methods(config)
    try:
        left = without_missing(config, methods)
    except NothingUsable:
        return methods
    runs = planned_runs(left.model_copy(update={"seeds": left.seeds[:1]}), refuse_equal=False)
    needs = [(run.choices, _needs(run.config)) for run in runs]
    shared = _common([of_run for _, of_run in needs])
    found = [MissingRequirement("", "", *need) for need in shared]
    for axis, choice in [(one.name, choice.name) for one in left.axes for choice in one.choices]:
        common = _common([of_run for choices, of_run in needs if choices[axis] == choice])
        found += [MissingRequirement(axis, choice, *need) for need in common if need not in shared]
    return methods + found


def _missing_methods(config: StudyConfig) -> list[MissingRequirement]:
    places: list[tuple[str, str, Mapping[str, Any]]] = [("", "", config.base.set)]
    places += [(axis.name, choice.name, choice.set) for axis in config.axes for choice in axis.choices]
    return [
        MissingRequirement(axis, name, f"{method} ({registry.family})", is_method=True)
        for axis, name, values in places
        for key, registry in (("local.name", LOCAL_METHODS), ("federated.name", FEDERATED_METHODS))
        if isinstance(method := values.get(key), str) and method not in registry.names()
    ]


def without_missing(config: StudyConfig, missing: Sequence[MissingRequirement]) -> StudyConfig:
    """Return a study without the choices that need something missing.

    Raises:
        UserError: If no run is left; names what is missing and how to get it.
    """
    removed = {(requirement.axis, requirement.choice) for requirement in missing}
    left = _with_choices(config, lambda axis: [c for c in axis.choices if (axis.name, c.name) not in removed])
    empty = {"", *(axis.name for axis in left.axes if not axis.choices)}
    preventing = [requirement for requirement in missing if requirement.axis in empty]
    if preventing:
        remedies = dict.fromkeys(requirement.remedy for requirement in preventing if requirement.remedy)
        raise NothingUsable("\n".join([f"{config.title}: {'; '.join(map(str, preventing))}.", *remedies]))
    return left


def on_open_data(config: StudyConfig, choices: Sequence[Choice]) -> StudyConfig:
    """Return a study on other data sets: they replace the axis ``data`` and all settings of ``[data]``.

    Raises:
        UserError: If there are none.
    """
    if not choices:
        raise NothingUsable(f"{config.title}: no data set that anyone may use takes the place of the paper's.")
    axes = tuple(axis for axis in config.axes if axis.name != DATA)
    place = config.axis_names.index(DATA) if DATA in config.axis_names else 0
    axis = Axis.model_validate({"name": DATA, "choice": [choice.model_dump() for choice in choices]})
    other = _with_settings(config.model_copy(update={"axes": axes}), _without_data)
    return _with_choices(
        other.model_copy(update={"axes": (*other.axes[:place], axis, *other.axes[place:])}), lambda axis: axis.choices
    )


def cut_short(config: StudyConfig) -> StudyConfig:
    """Return the same study with one seed, the first code length, a few items, narrow towers and two rounds of one epoch.

    Its title says that its figures mean nothing. Protocols accept files that are not complete.
    """
    short = _with_choices(config, lambda axis: axis.choices[: 1 if axis.key == BITS else None])
    short = _with_settings(short, _narrowed)
    return short.model_copy(
        update={
            "seeds": config.seeds[:1],
            "title": f"{SMOKE_TITLE}: {config.title}",
            "set": {**short.set, **SMOKE_SETTINGS},
            "tune": config.tune and config.tune.model_copy(update={"trials": 1}),
        }
    )


def missing_of_data(data: DataConfig) -> Need | None:
    """Return the files of a named data set that are missing here, and how to get them; None if there are all."""
    opener = ARCHIVES.resolve(data.name) if data.name in ARCHIVES.names() else None
    folder = folder_of(data.name or "", str(data.options.get("root", "")))
    try:
        if isinstance(opener, Dataset):
            opener.layout(str(data.options.get("layout", AUTO)), folder)
            if texts := str(data.options.get("text_features", "")):
                text_features_path(opener.key, folder, texts)
        if isinstance(opener, PackedSet):
            opener.file("")
    except UserError as error:
        return f"the files of {data.name} (in {folder})", str(error)
    return None


def _needs(config: RunConfig) -> list[Need]:
    """Return what a run needs and is missing."""
    found = [missing_of_data(config.data)]
    for key, table in (("features.image", config.features.image), ("model.image", config.model.image)):
        weights = str(table.get("weights", ""))
        if weights and not Path(weights).expanduser().exists():
            remedy = f"The weights {weights} are missing. Put the file here, or name it: --set {key}.weights=FILE"
            found.append((f"the weights {Path(weights).name}", remedy))
    return [need for need in found if need]


def _common(needs: Sequence[Sequence[Need]]) -> list[Need]:
    """Return what all of some runs need."""
    return [need for need in needs[0] if all(need in other for other in needs)] if needs else []


def _with_choices(config: StudyConfig, kept: Callable[[Axis], Sequence[Choice]]) -> StudyConfig:
    """Return a study with some of its choices, and without the rules and comparisons that name others."""
    axes = tuple(axis.model_copy(update={"choices": tuple(kept(axis))}) for axis in config.axes)
    names = {axis.name: {choice.name for choice in axis.choices} for axis in axes}
    rules = tuple(
        rule
        for rule in config.where
        if all(choice in names[axis] for axis, choice in rule.choices.items() if axis in names)
    )
    against = {
        axis: tuple(choice for choice in chosen if choice in names[axis])
        for axis, chosen in config.table.against.items()
    }
    table = config.table.model_copy(update={"against": {axis: chosen for axis, chosen in against.items() if chosen}})
    return config.model_copy(update={"axes": axes, "where": rules, "table": table})


def _with_settings(config: StudyConfig, change: Callable[[Mapping[str, Any]], dict[str, Any]]) -> StudyConfig:
    """Return a study with all of its settings changed."""
    axes = tuple(
        axis.model_copy(update={"choices": tuple(c.model_copy(update={"set": change(c.set)}) for c in axis.choices)})
        for axis in config.axes
    )
    return config.model_copy(
        update={
            "axes": axes,
            "base": config.base.model_copy(update={"set": change(config.base.set)}),
            "where": tuple(rule.model_copy(update={"set": change(rule.set)}) for rule in config.where),
            "set": change(config.set),
        }
    )


def _without_data(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key.partition(".")[0] != "data"}


def _narrowed(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with narrow towers, and protocols that accept files that are not complete."""
    found = dict(values)
    for key, value in values.items():
        if key.startswith("model.") and isinstance(value, int) and value > SMOKE_WIDTH:
            found[key] = SMOKE_WIDTH
        if key == "data.protocol" and SCALED not in (parts := str(value).split("/")) and parts[0] != DEFAULT:
            found[key] = f"{value}/{SCALED}"
    return found
