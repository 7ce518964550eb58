"""Tables of papers as studies: what is missing here to run them, and the published figures next to ours."""

from __future__ import annotations

import csv
import io
import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from silohash.base.errors import NothingUsable, UnknownName, UserError
from silohash.base.files import write_text
from silohash.base.forms import of_value, reading
from silohash.base.registry import suggestion
from silohash.base.visible import csv_cell
from silohash.base.visible import markdown as markdown_of
from silohash.data.benchmarks.dataset import AUTO, benchmark, folder_of, text_features_path
from silohash.methods.federated import FEDERATED_METHODS
from silohash.methods.local import LOCAL_METHODS
from silohash.report.tables import csv_table, markdown_table, number, span
from silohash.study.config import StudyConfig, load_study
from silohash.study.pivot import Cell, field_values, figure_cell
from silohash.study.results import StudyResults
from silohash.study.tables import TABLES

REINSTALL = "Reinstall silohash."

PUBLISHED = "published"
FOLDER = "papers"

OPTIONS_OF_FILES = ("data.options.root", "data.options.text_features")
"""Settings of a choice that name files of the user: the folder of a data set, and text features in it."""


@dataclass(frozen=True)
class PaperTable:
    """A table of a paper that can be run, and why our figures cannot equal the paper's, whatever the methods do."""

    key: str
    title: str
    differences: tuple[str, ...]

    def file(self, recipes: Path, suffix: str) -> Path:
        """Return the path of the study (suffix ``.toml``) or of the published figures (``.csv``)."""
        return recipes / FOLDER / f"{self.key.replace('/', '-')}{suffix}"

    def study(self, recipes: Path, overrides: Sequence[str] = ()) -> StudyConfig:
        """Read the study. It may name methods that silohash does not have yet."""
        return load_study(self.file(recipes, ".toml"), overrides)


@dataclass(frozen=True)
class _Paper:
    """A paper in ``papers.toml``: its differences from our studies, and the titles of its tables by name."""

    differences: tuple[str, ...]
    tables: dict[str, str]


def paper_tables(recipes: Path) -> dict[str, PaperTable]:
    """Read the tables that can be run, by key.

    Raises:
        UserError: If their file is missing or damaged.
    """
    path = recipes / FOLDER / "papers.toml"
    with reading(path, remedy=REINSTALL, missing=REINSTALL):
        papers = of_value(tomllib.loads(path.read_text(encoding="utf-8")), dict[str, _Paper])
    return {
        f"{name}/{table}": PaperTable(f"{name}/{table}", title, paper.differences)
        for name, paper in papers.items()
        for table, title in paper.tables.items()
    }


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


def paper_table(recipes: Path, key: str) -> PaperTable:
    """Return the table with a key.

    Raises:
        UserError: If there is no such table; suggests the nearest key.
    """
    tables = paper_tables(recipes)
    if key not in tables:
        raise UnknownName(f'There is no table "{key}"{suggestion(key, tables)}. Available: {", ".join(tables)}.')
    return tables[key]


def missing_requirements(config: StudyConfig) -> list[MissingRequirement]:
    """Return the methods and data sets that a study needs and that are missing here."""
    found = _missing_for("", "", config.base.set, config)
    for axis in config.axes:
        for choice in axis.choices:
            found += _missing_for(axis.name, choice.name, choice.set, config)
    return found


def without_missing(config: StudyConfig, missing: Sequence[MissingRequirement]) -> StudyConfig:
    """Return a study without the choices that need something missing.

    Raises:
        UserError: If no run is left; names what is missing and how to get it.
    """
    removed = {(requirement.axis, requirement.choice) for requirement in missing}
    axes = [
        axis.model_copy(update={"choices": tuple(c for c in axis.choices if (axis.name, c.name) not in removed)})
        for axis in config.axes
    ]
    empty = {"", *(axis.name for axis in axes if not axis.choices)}
    preventing = [requirement for requirement in missing if requirement.axis in empty]
    if preventing:
        remedies = dict.fromkeys(requirement.remedy for requirement in preventing if requirement.remedy)
        raise NothingUsable("\n".join([f"{config.title}: {'; '.join(map(str, preventing))}.", *remedies]))
    return config.model_copy(update={"axes": tuple(axes)})


def _missing_for(axis: str, name: str, values: Mapping[str, object], config: StudyConfig) -> list[MissingRequirement]:
    found = []
    for key, registry in (("local.name", LOCAL_METHODS), ("federated.name", FEDERATED_METHODS)):
        method = values.get(key)
        if isinstance(method, str) and method not in registry.names():
            found.append(MissingRequirement(axis, name, f"{method} ({registry.family})"))
    data = values.get("data.name")
    if isinstance(data, str) and (dataset := benchmark(data)):
        root, texts = (str(config.set.get(key, values.get(key, ""))) for key in OPTIONS_OF_FILES)
        try:
            dataset.layout(AUTO, folder_of(data, root))
            if texts:
                text_features_path(data, folder_of(data, root), texts)
        except UserError as error:
            found.append(MissingRequirement(axis, name, f"the files of {data}", str(error)))
    return found


def read_published(path: Path) -> list[dict[str, str]]:
    """Read published figures: one row per figure, with the study's choices, the task and ``published``.

    Raises:
        UserError: If the file is missing or damaged.
    """
    with reading(path, remedy=REINSTALL, missing=REINSTALL):
        lines = list(csv.DictReader(io.StringIO(path.read_bytes().decode("utf-8"), newline=""), strict=True))
        # A figure that is not a number is found here, where the message names the file.
        _ = [float(line[PUBLISHED]) for line in lines]
        return lines


def write_comparison(
    table: PaperTable, study: StudyResults, published: Sequence[Mapping[str, str]], out: Path
) -> list[Path]:
    """Write the published figures with ours next to them in the study's ``tables/``, and return the paths of the files."""
    fields = [name for name in published[0] if name != PUBLISHED]
    shown = {"evaluation": field_values(study, ())["evaluation"][0], "measure": study.config.table.measure}
    cells = [figure_cell(study, {**shown, **line}) for line in published]
    paths = [out / TABLES / f"{PUBLISHED}{suffix}" for suffix in (".md", ".csv")]
    write_text(paths[0], _markdown(table, fields, published, cells))
    write_text(paths[1], _csv(fields, published, cells))
    return paths


def _markdown(
    table: PaperTable, fields: Sequence[str], published: Sequence[Mapping[str, str]], cells: Sequence[Cell]
) -> str:
    lines = [
        [
            *(markdown_of(line[name]) for name in fields), number(float(line[PUBLISHED]), digits=4),
            number(cell.mean, digits=4), span(cell.low, cell.high), f"{cell.mean - float(line[PUBLISHED]):+.4f}",
        ]
        for line, cell in zip(published, cells, strict=True)
        if cell.values
    ]  # fmt: skip
    over = "seeds" if any(cell.interval == "seeds" for cell in cells if cell.values) else "queries"
    notes = [
        f"{len(lines)} of {len(cells)} published figures have one of ours next to them. Intervals: 95 %, over {over}.",
        *table.differences,
        *dict.fromkeys(f"Ours: {cell.conditions}." for cell in cells if cell.conditions),
    ]
    headings = [*fields, "published", "ours", "95 % interval", "ours minus published"]
    text = markdown_table(headings, lines, numbers_from=len(fields))
    return f"### {table.title}\n\n{text}\n{''.join(f'- {note}{chr(10)}' for note in notes)}"


def _csv(fields: Sequence[str], published: Sequence[Mapping[str, str]], cells: Sequence[Cell]) -> str:
    lines: list[list[object]] = [[*fields, PUBLISHED, "ours", "low", "high", "seeds"]]
    for line, cell in zip(published, cells, strict=True):
        values = ["" if math.isnan(value) else value for value in (cell.mean, cell.low, cell.high)]
        names = [csv_cell(line[name]) for name in fields]
        lines.append([*names, line[PUBLISHED], *values, len(cell.values)])
    return csv_table(lines)
