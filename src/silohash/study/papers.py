"""Tables and figures of papers as studies, read from one file per paper, and the published figures next to ours.

In what the runs of a study differ from what a paper states is found by comparing their complete configs with it.
"""

import csv
import io
import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field

from silohash.base.errors import MissingFile, UnknownName
from silohash.base.files import write_text
from silohash.base.forms import model_in, of_value, reading
from silohash.base.registry import suggestion
from silohash.base.visible import csv_cell
from silohash.base.visible import markdown as markdown_of
from silohash.report.tables import csv_table, markdown_table, number, span
from silohash.run.config.load import ResolvedConfig, resolve
from silohash.run.config.sections import RunConfig, Section
from silohash.run.config.toml import toml_value
from silohash.study.config import Choice, Choices, StudyConfig, load_study
from silohash.study.pivot import Cell, field_values, figure_cell
from silohash.study.plan import planned_runs
from silohash.study.results import StudyResults
from silohash.study.tables import TABLES

REINSTALL = "Reinstall silohash."

PUBLISHED = "published"
FOLDER = "papers"

BEYOND_CONFIG = "paper."
"""Beginning of the keys of what the config of a run cannot express."""

NOT_SET = "none"
"""How a setting without a value is stated and shown."""

ROUNDED = 1e-3
"""Numbers that differ by less than this share are equal, because papers print rounded ones."""


def _one_or_several(kind: type) -> BeforeValidator:
    """Return what takes a single value of a kind for a list of it."""
    return BeforeValidator(lambda value: (value,) if isinstance(value, kind) else value)


class Stated(Section):
    """What a paper states about one setting, and where."""

    value: Any
    source: str = Field(min_length=1)
    """Page, section or equation."""
    where: dict[str, Annotated[tuple[str, ...], _one_or_several(str)]] = Field(default_factory=dict)
    """Axis -> the choices that it holds for, or dotted key -> the values of the run's config; all runs by default."""

    def holds_for(self, choices: Choices, resolved: ResolvedConfig) -> bool:
        """Return whether the statement is about a run."""
        return all(
            (str(resolved.value_of(name)) if "." in name else choices.get(name)) in values
            for name, values in self.where.items()
        )


@dataclass(frozen=True)
class SettingDifference:
    """A setting in which runs differ from the paper.

    ``ours`` is empty for what the config cannot express, and ``runs``, the choices of the runs, for all of them.
    """

    key: str
    paper: str
    ours: str
    source: str
    runs: str = ""

    def __str__(self) -> str:
        """Return the difference as a line of text."""
        ours = f"here {self.ours}" if self.ours else "cannot be set here"
        return f"{self.key}: {self.paper} in the paper ({self.source}), {ours}{f' for {self.runs}' * bool(self.runs)}"


def differences(stated: Mapping[str, Sequence[Stated]], config: StudyConfig) -> list[SettingDifference]:
    """Return the settings in which a study's runs differ from what a paper states, in the paper's order.

    A parameter of a method or a partition is compared in the runs that have it.

    Raises:
        UserError: If a stated key is not one of the config, or a run's config is wrong.
    """
    planned = planned_runs(config.model_copy(update={"seeds": config.seeds[:1]}), refuse_equal=False)
    runs = [(run.choices, resolve(run.config)) for run in planned]
    found: list[SettingDifference] = []
    for key, one in ((key, one) for key, statements in stated.items() for one in statements):
        if key.startswith(BEYOND_CONFIG):
            found.append(SettingDifference(key, shown(one.value), "", one.source))
            continue
        optional, differing = _belongs_to_a_method(key), dict[str, list[Choices]]()
        for choices, run in runs:
            ours = run.value_of(key)
            compared = one.holds_for(choices, run) and not (optional and ours is None)
            if compared and not _equal(one.value, ours):
                differing.setdefault(shown(ours), []).append(choices)
        for ours, some in differing.items():
            described = _described(some, [choices for choices, _ in runs])
            found.append(SettingDifference(key, shown(one.value), ours, one.source, described))
    return found


def shown(value: object) -> str:
    """Return a value as it is shown: as in TOML, but strings without quotation marks."""
    if value is None:
        return NOT_SET
    return value if isinstance(value, str) else toml_value(value)


def differences_table(found: Sequence[SettingDifference]) -> str:
    """Return differences as Markdown."""
    if not found:
        return "No setting is known to differ from the paper."
    lines = [
        [f"`{d.key}`", *map(markdown_of, (d.paper, d.source, d.ours or "cannot be set", d.runs or "all"))]
        for d in found
    ]
    table = markdown_table(["setting", "paper", "source", "here", "runs"], lines, numbers_from=5)
    return f"Settings that differ from the paper:\n\n{table}"


def _belongs_to_a_method(key: str) -> bool:
    """Return whether only some methods or partitions have a setting, after checking that some config does."""
    model: type[BaseModel] | None = RunConfig
    for part in key.split("."):
        if model is None:  # within a table whose keys depend on its kind
            break
        if part not in model.model_fields:
            if model.model_config.get("extra") == "allow":
                return True
            raise UnknownName(
                f'There is no setting "{key}"{suggestion(part, model.model_fields)}. What no setting expresses has a key '
                f'that begins with "{BEYOND_CONFIG}".'
            )
        model = model_in(model.model_fields[part].annotation)
    return False


def _equal(paper: object, ours: object) -> bool:
    """Return whether two values are equal, apart from the rounding of printed numbers."""
    if ours is None:
        return paper == NOT_SET
    numbers = [value for value in (paper, ours) if isinstance(value, int | float) and not isinstance(value, bool)]
    if len(numbers) == 2:
        return math.isclose(*numbers, rel_tol=ROUNDED)
    return type(paper) is type(ours) and paper == ours


def _described(some: Sequence[Choices], everything: Sequence[Choices]) -> str:
    """Return in words which runs some are of all; empty for all of them."""
    parts, combined = [], 1
    for axis in everything[0]:
        names, known = (list(dict.fromkeys(choices[axis] for choices in runs)) for runs in (some, everything))
        combined *= len(names)
        if len(names) < len(known):
            parts.append(f"{axis} {', '.join(names)}")
    if len(some) < combined and len(some) < len(everything):
        parts.append(f"{len(some)} of {len(everything)} runs")
    return "; ".join(parts)


class _WithSettings(Section):
    """A table of a paper's file that has ``settings``, each one statement or a list of them."""

    settings: dict[str, Annotated[tuple[Stated, ...], _one_or_several(dict)]] = Field(default_factory=dict)
    """What the paper states, by the key of a run's config. Keys that begin with ``paper.`` stand for what the config
    cannot express."""


class PaperItem(_WithSettings):
    """``[items.NAME]``: tables or figures of a paper that one study makes together."""

    title: str = Field(min_length=1)
    """What they show."""
    covers: tuple[str, ...] = Field(min_length=1)
    """Their numbers, such as ``table 2``."""
    study: str = ""
    """File of the study. By default ``PAPER-NAME.toml``, if there is one."""
    open: tuple[Choice, ...] = ()
    """Data sets that anyone may use, in place of the paper's."""


class Paper(_WithSettings):
    """The file of a paper."""

    title: str = Field(min_length=1)
    notes: tuple[str, ...] = ()
    """What no setting can express, one sentence each."""
    items: dict[str, PaperItem]


@dataclass(frozen=True)
class PaperTable:
    """Tables or figures of a paper, and the study that makes them. Its ``key`` is PAPER/NAME, as on the command line."""

    key: str
    paper: Paper
    item: PaperItem
    folder: Path

    @property
    def title(self) -> str:
        """The paper, the numbers of its tables or figures, and what they show."""
        return f"{self.paper.title}, {', '.join(self.item.covers)}: {self.item.title}"

    @property
    def settings(self) -> Mapping[str, tuple[Stated, ...]]:
        """What the paper states about the study's settings."""
        return {**self.paper.settings, **self.item.settings}

    @property
    def study_path(self) -> Path | None:
        """The file of the study; None if there is none."""
        path = self.folder / (self.item.study or f"{self.key.replace('/', '-')}.toml")
        return path if self.item.study or path.exists() else None

    def study(self, overrides: Sequence[str] = ()) -> StudyConfig:
        """Read the study. It may name methods that silohash does not have.

        Raises:
            UserError: If there is none, or its file is missing or wrong.
        """
        if self.study_path is None:
            raise MissingFile(f"{self.key} is not run by silohash ({self.title}).")
        return load_study(self.study_path, overrides)

    @cached_property
    def published(self) -> list[dict[str, str]]:
        """The published figures; none if the paper shows them as a picture only."""
        path = self.folder / f"{self.key.replace('/', '-')}.csv"
        return read_published(path) if path.exists() else []


def paper_tables(recipes: Path) -> dict[str, PaperTable]:
    """Read the tables and figures of all papers, by key."""
    folder = recipes / FOLDER
    papers = {path.stem: _read_paper(path) for path in sorted(folder.glob("*.toml")) if "-" not in path.stem}
    return {
        f"{name}/{item}": PaperTable(f"{name}/{item}", paper, paper.items[item], folder)
        for name, paper in papers.items()
        for item in paper.items
    }


def _read_paper(path: Path) -> Paper:
    with reading(path, remedy=REINSTALL, missing=REINSTALL):
        return of_value(tomllib.loads(path.read_text(encoding="utf-8")), Paper)


def paper_table(recipes: Path, key: str) -> PaperTable:
    """Return the tables or figures with a key.

    Raises:
        UserError: If there is no such key; suggests the nearest one.
    """
    tables = paper_tables(recipes)
    if key not in tables:
        raise UnknownName(f'There is no table "{key}"{suggestion(key, tables)}. Available: {", ".join(tables)}.')
    return tables[key]


def read_published(path: Path) -> list[dict[str, str]]:
    """Read published figures: one row per figure, with the study's choices, the task and ``published``."""
    with reading(path, remedy=REINSTALL, missing=REINSTALL):
        lines = list(csv.DictReader(io.StringIO(path.read_bytes().decode("utf-8"), newline=""), strict=True))
        # A figure that is not a number is found here, where the message names the file.
        _ = [float(line[PUBLISHED]) for line in lines]
        return lines


def write_comparison(table: PaperTable, study: StudyResults, out: Path, remarks: Sequence[str] = ()) -> list[Path]:
    """Write what differs from the paper, and the published figures with ours next to them, into the study's ``tables/``.

    The remarks come first. Returns the paths of the files. There is no CSV file without published figures.
    """
    paths = [out / TABLES / f"{PUBLISHED}{suffix}" for suffix in (".md", ".csv")]
    differing = differences_table(differences(table.settings, study.config))
    parts = [f"### {study.config.title or table.title}", *(f"**{remark}**" for remark in remarks), differing]
    notes = list(table.paper.notes)
    if published := table.published:
        fields = [name for name in published[0] if name != PUBLISHED]
        shown = {"evaluation": field_values(study, ())["evaluation"][0], "measure": study.config.table.measure}
        cells = [figure_cell(study, {**shown, **line}) for line in published]
        parts.append(_markdown(fields, published, cells))
        notes += dict.fromkeys(f"Ours: {cell.conditions}." for cell in cells if cell.conditions)
        write_text(paths[1], _csv(fields, published, cells))
    parts.append("\n".join(map("- {}".format, notes)))
    write_text(paths[0], "\n\n".join(part.strip("\n") for part in parts if part) + "\n")
    return paths if published else paths[:1]


def _markdown(fields: Sequence[str], published: Sequence[Mapping[str, str]], cells: Sequence[Cell]) -> str:
    lines = [
        [
            *(markdown_of(line[name]) for name in fields), number(float(line[PUBLISHED]), digits=4),
            number(cell.mean, digits=4), span(cell.low, cell.high), f"{cell.mean - float(line[PUBLISHED]):+.4f}",
        ]
        for line, cell in zip(published, cells, strict=True)
        if cell.values
    ]  # fmt: skip
    over = "seeds" if any(cell.interval == "seeds" for cell in cells if cell.values) else "queries"
    counted = f"{len(lines)} of {len(cells)} published figures have one of ours next to them."
    if not lines:
        return counted
    headings = [*fields, "published", "ours", "95 % interval", "ours minus published"]
    text = markdown_table(headings, lines, numbers_from=len(fields))
    return f"{counted} Intervals: 95 %, over {over}.\n\n{text}"


def _csv(fields: Sequence[str], published: Sequence[Mapping[str, str]], cells: Sequence[Cell]) -> str:
    lines: list[list[object]] = [[*fields, PUBLISHED, "ours", "low", "high", "seeds"]]
    for line, cell in zip(published, cells, strict=True):
        values = ["" if math.isnan(value) else value for value in (cell.mean, cell.low, cell.high)]
        names = [csv_cell(line[name]) for name in fields]
        lines.append([*names, line[PUBLISHED], *values, len(cell.values)])
    return csv_table(lines)
