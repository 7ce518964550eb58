"""What is missing here to run a paper's study, and the same study on other data or cut short."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from silohash.base.errors import NothingUsable, UserError
from silohash.data import ARCHIVES
from silohash.data.benchmarks.dataset import AUTO, Dataset, benchmark, folder_of, text_features_path
from silohash.data.build.archive import BuiltSet
from silohash.data.packed.reader import PackedSet
from silohash.data.protocols.apply import DEFAULT, SCALED
from silohash.methods.federated import FEDERATED_METHODS
from silohash.methods.local import LOCAL_METHODS
from silohash.run.config.load import read_override
from silohash.run.config.sections import DataConfig, RunConfig
from silohash.study.config import Axis, Choice, StudyConfig
from silohash.study.figures import Figure
from silohash.study.papers import BEYOND_CONFIG, PaperTable, SettingDifference, differences
from silohash.study.plan import planned_runs

DATA, BITS = "data", "local.bits"
"""The axis of the data sets, and the key of the code length."""

SMOKE_TITLE = "SMOKE TEST, ITS FIGURES MEAN NOTHING"
SMOKE_WIDTH = 32
SMOKE_PERPLEXITY = 2.0
SMOKE_ITEMS = 400
SMOKE_SETTINGS: Mapping[str, Any] = {
    "federated.rounds": 2, "federated.local_epochs": 1, "model.hidden": SMOKE_WIDTH
}  # fmt: skip
"""Settings of every run of a study that only shows that everything works."""

Need = tuple[str, str]
"""What is missing, and how to get it."""

STATUS: Mapping[str, str] = {
    "paper": "runs here with the paper's data", "part": "runs here in part", "open": "runs here with --data open",
    "missing": "cannot be run here", "no study": "not run here",
}  # fmt: skip


@dataclass(frozen=True)
class MissingRequirement:
    """Something that a choice of a study needs and that is missing here, with how to get it if silohash has it.

    The axis and the choice are empty if the whole study needs it.
    """

    axis: str
    choice: str
    needs: str
    remedy: str = ""

    def __str__(self) -> str:
        """Return the requirement as a phrase."""
        return f"{self.choice or 'every run'} needs {self.needs}"


@dataclass(frozen=True)
class Listed:
    """A table or figure of a paper with what is missing here to run it, and in what the runs differ from the paper.

    The status is a key of `STATUS`. ``open`` has the sets that anyone may use, with what is missing of their files.
    """

    table: PaperTable
    status: str
    needs: Sequence[MissingRequirement] = ()
    open: Mapping[str, str] = field(default_factory=dict)
    differs: Sequence[SettingDifference] = ()

    def document(self) -> dict[str, Any]:
        """Return a JSON value."""
        return {
            "key": self.table.key, "title": self.table.title, "covers": list(self.table.item.covers),
            "status": self.status, "needs": list(map(asdict, self.needs)), "open": dict(self.open),
            "differs": list(map(asdict, self.differs)), "notes": list(self.table.paper.notes),
        }  # fmt: skip

    def lines(self, *, in_detail: bool) -> list[str]:
        """Return lines of text; in detail, also how to get what is missing, and each difference."""
        lines = [f"{self.table.key}: {self.table.title}", f"  {STATUS[self.status]}"]
        if self.needs:
            lines.append(f"  missing: {'; '.join(dict.fromkeys(need.needs for need in self.needs))}")
        for name, missing in self.open.items():
            lines.append(f"  --data open: {name}{f' (missing: {missing})' if missing else ''}")
        if in_detail:
            lines += [f"  {need.remedy}" for need in self.needs if need.remedy]
            return [*lines, *(f"  {one}" for one in (*self.differs, *self.table.paper.notes))]
        keys = {one.key for one in self.differs}
        beyond = sum(key.startswith(BEYOND_CONFIG) for key in keys)
        counted = f"  settings that differ from the paper: {len(keys) - beyond}, and {beyond} that cannot be set"
        return lines if self.status == "no study" else [*lines, counted]


def listed(table: PaperTable, *, open_data: bool = False) -> Listed:
    """Return what is missing here to run a table, and in what the runs differ from the paper.

    Raises:
        UserError: If the study or what is stated about its settings is wrong.
    """
    if table.study_path is None:
        return Listed(table, "no study")
    config = study_of(table, open_data=open_data)
    needs, status = missing_requirements(config), "missing"
    sets = {choice.name: missing_of_data(_data_of(choice)) for choice in table.item.open}
    try:
        without_missing(config, needs)
        status = "part" if needs else "paper"
    except NothingUsable:
        status = "missing" if all(sets.values()) else "open"
    built = without_missing(config, missing_methods(config))
    found = {name: need[0] if need else "" for name, need in sets.items()}
    return Listed(table, status, needs, found, differences(table.settings, built))


def study_of(
    table: PaperTable, *, open_data: bool = False, smoke: bool = False, overrides: Sequence[str] = ()
) -> StudyConfig:
    """Return the study of a table, on the data that anyone may use or cut short if wanted, with overrides of settings."""
    config = table.study()
    if open_data:
        config = on_open_data(config, table.item.open)
    if smoke:
        config = cut_short(config)
    return config.model_copy(update={"set": {**config.set, **dict(map(read_override, overrides))}})


def missing_requirements(config: StudyConfig) -> list[MissingRequirement]:
    """Return the methods, data sets and weights that a study needs and that are missing here."""
    methods = missing_methods(config)
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


def without_missing(config: StudyConfig, missing: Sequence[MissingRequirement]) -> StudyConfig:
    """Return a study without the choices that need something missing.

    Raises:
        UserError: If no run is left; names what is missing and how to get it.
    """
    removed = {(requirement.axis, requirement.choice) for requirement in missing}
    axes = [_taken(axis, [c for c in axis.choices if (axis.name, c.name) not in removed]) for axis in config.axes]
    empty = {"", *(axis.name for axis in axes if not axis.choices)}
    preventing = [requirement for requirement in missing if requirement.axis in empty]
    if preventing:
        remedies = dict.fromkeys(requirement.remedy for requirement in preventing if requirement.remedy)
        raise NothingUsable("\n".join([f"{config.title}: {'; '.join(map(str, preventing))}.", *remedies]))
    return _changed(config, axes)


def on_open_data(config: StudyConfig, choices: Sequence[Choice]) -> StudyConfig:
    """Return a study on other data sets: they replace the axis ``data`` and all settings of ``[data]``.

    Raises:
        UserError: If there are none.
    """
    if not choices:
        raise NothingUsable(f"{config.title}: no data set that anyone may use takes the place of the paper's.")
    others = [axis for axis in config.axes if axis.name != DATA]
    place = config.axis_names.index(DATA) if DATA in config.axis_names else 0
    other = _changed(config, others, lambda settings: {k: v for k, v in settings.items() if k.split(".")[0] != "data"})
    sets = Axis.model_validate({"name": DATA, "choice": [choice.model_dump() for choice in choices]})
    return _changed(other, [*other.axes[:place], sets, *other.axes[place:]])


def cut_short(config: StudyConfig) -> StudyConfig:
    """Return the same study with one seed, one code length, a few items, narrow towers and two rounds of one epoch.

    Of axes that a figure is drawn over, two choices are left, and few items are enough for t-SNE. The title says that the
    figures mean nothing. Protocols accept files that are not complete.
    """
    axes = [_taken(axis, _few(axis, config.figures)) for axis in config.axes]
    short = _changed(config, axes, _narrowed)
    settings = {**short.set, **SMOKE_SETTINGS}
    figures = tuple(
        one.model_copy(update={"perplexity": SMOKE_PERPLEXITY}) if one.kind == "tsne" else one for one in short.figures
    )
    title = f"{SMOKE_TITLE}: {config.title}"
    update = {"seeds": config.seeds[:1], "title": title, "set": settings, "figures": figures}
    return short.model_copy(update=update)


def missing_of_data(data: DataConfig) -> Need | None:
    """Return the files of a named data set that are missing here, and how to get them; None if there are all."""
    opener = ARCHIVES.resolve(data.name) if data.name in ARCHIVES.names() else None
    what = f"the files of {data.name}"
    try:
        if isinstance(opener, Dataset):
            folder = folder_of(opener.key, str(data.options.get("root", "")))
            what = f"{what} (in {folder})"
            opener.layout(str(data.options.get("layout", AUTO)), folder)
            if texts := str(data.options.get("text_features", "")):
                text_features_path(opener.key, folder, texts)
        if isinstance(opener, PackedSet):
            opener.file("")
        if isinstance(opener, BuiltSet):
            opener.folder(str(data.options.get("root", "")))
    except UserError as error:
        return what, str(error)
    return None


def _data_of(choice: Choice) -> DataConfig:
    return DataConfig.model_validate(
        {key.partition(".")[2]: value for key, value in choice.set.items() if key in {"data.name", "data.path"}}
    )


def missing_methods(config: StudyConfig) -> list[MissingRequirement]:
    """Return the methods that a study names and silohash does not have."""
    places: list[tuple[str, str, Mapping[str, Any]]] = [("", "", config.base.set)]
    places += [(axis.name, choice.name, choice.set) for axis in config.axes for choice in axis.choices]
    return [
        MissingRequirement(axis, name, f"{method} ({registry.family})")
        for axis, name, values in places
        for key, registry in (("local.name", LOCAL_METHODS), ("federated.name", FEDERATED_METHODS))
        if isinstance(method := values.get(key), str) and method not in registry.names()
    ]


def _needs(config: RunConfig) -> list[Need]:
    found = [missing_of_data(config.data)]
    for key, table in (("features.image", config.features.image), ("model.image", config.model.image)):
        weights = str(table.get("weights", ""))
        if weights and not Path(weights).expanduser().exists():
            remedy = f"The weights {weights} are missing. Put the file here, or name it: --set {key}.weights=FILE"
            found.append((f"the weights {Path(weights).name}", remedy))
    return [need for need in found if need]


def _common(needs: Sequence[Sequence[Need]]) -> list[Need]:
    return [need for need in needs[0] if all(need in other for other in needs)] if needs else []


def _taken(axis: Axis, choices: Sequence[Choice]) -> Axis:
    values = axis.values and [v for v, c in zip(axis.values, axis.choices, strict=True) if c in choices]
    return axis.model_copy(update={"choices": tuple(choices), "values": tuple(values)})


def _few(axis: Axis, figures: Sequence[Figure]) -> Sequence[Choice]:
    """Return the choices of an axis that a smoke test keeps. Those that figures name come first."""
    most = 2 if any(axis.name in figure.drawn_over for figure in figures) else 1
    if most == 1 and axis.key != BITS:
        return axis.choices
    named = [name for figure in figures for name in figure.only.get(axis.name, ())[:most]]
    return [choice for choice in axis.choices if choice.name in named] or axis.choices[:most]


def _drawn(figures: Sequence[Figure], names: Mapping[str, Sequence[str]]) -> Sequence[Figure]:
    possible = [one for one in figures if all(len(names.get(axis, ())) > 1 for axis in one.drawn_over)]
    return tuple(one.restricted(names) for one in possible)


def _changed(
    config: StudyConfig, axes: Sequence[Axis], change: Callable[[dict[str, Any]], dict[str, Any]] = dict
) -> StudyConfig:
    """Return a study with other axes and changed settings, without the rules and comparisons that name other choices."""

    def changed(part: Any) -> Any:  # noqa: ANN401  the base, a choice or a rule
        """Return a part of the study with changed settings."""
        return part.model_copy(update={"set": change(part.set)})

    names = {axis.name: [choice.name for choice in axis.choices] for axis in axes}
    rules = [r for r in config.where if all(c in names.get(axis, (c,)) for axis, c in r.choices.items())]
    against = {axis: tuple(c for c in some if c in names.get(axis, ())) for axis, some in config.table.against.items()}
    update = {
        "axes": tuple(one.model_copy(update={"choices": tuple(map(changed, one.choices))}) for one in axes),
        "base": changed(config.base),
        "where": tuple(map(changed, rules)),
        "set": change(config.set),
        "figures": _drawn(config.figures, names),
        "table": config.table.model_copy(update={"against": {axis: some for axis, some in against.items() if some}}),
    }
    return config.model_copy(update=update)


def _narrowed(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with narrow towers, some of a data set's items, and protocols that accept incomplete files."""
    found = {key: _narrow(value) if key.startswith("model.widths") else value for key, value in values.items()}
    parts = str(values.get("data.protocol", DEFAULT)).split("/")
    if parts[0] != DEFAULT and SCALED not in parts:
        found["data.protocol"] = "/".join([*parts, SCALED])
    if benchmark(str(values.get("data.name"))):
        found["data.options.sample"] = SMOKE_ITEMS
    return found


def _narrow(value: Any) -> Any:  # noqa: ANN401  a width, or any table or list of widths
    if isinstance(value, dict):
        return {key: _narrow(inner) for key, inner in value.items()}
    return [_narrow(inner) for inner in value] if isinstance(value, list) else min(value, SMOKE_WIDTH)
