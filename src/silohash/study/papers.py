"""Tables and figures of papers as studies, read from one file per paper, and the published figures next to ours."""

from __future__ import annotations

import csv
import io
import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import Field, field_validator

from silohash.base.errors import MissingFile, UnknownName
from silohash.base.files import write_text
from silohash.base.forms import of_value, reading
from silohash.base.registry import suggestion
from silohash.base.visible import csv_cell
from silohash.base.visible import markdown as markdown_of
from silohash.report.tables import csv_table, markdown_table, number, span
from silohash.run.config.sections import Section
from silohash.study.config import Choice, StudyConfig, load_study
from silohash.study.differences import Stated, differences, differences_table
from silohash.study.pivot import Cell, field_values, figure_cell
from silohash.study.results import StudyResults
from silohash.study.tables import TABLES

REINSTALL = "Reinstall silohash."

PUBLISHED = "published"
FOLDER = "papers"


class _WithSettings(Section):
    """A table of a paper's file that has ``settings``, each one statement or a list of them."""

    settings: dict[str, tuple[Stated, ...]] = Field(default_factory=dict)
    """What the paper states, by the key of a run's config. Keys that begin with ``paper.`` stand for what the config
    cannot express."""

    @field_validator("settings", mode="before")
    @classmethod
    def _as_lists(cls, value: Any) -> Any:  # noqa: ANN401  pydantic's
        if not isinstance(value, dict):
            return value
        return {key: (stated,) if isinstance(stated, dict) else stated for key, stated in value.items()}


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
    """Read the tables and figures of all papers, by key.

    Raises:
        UserError: If a paper's file is missing or damaged.
    """
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
    """Read published figures: one row per figure, with the study's choices, the task and ``published``.

    Raises:
        UserError: If the file is missing or damaged.
    """
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
    parts.append("\n".join(f"- {note}" for note in notes))
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
