"""Papers' tables: as studies, with the printed figures beside ours, and what of them cannot be run here and why."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from silohash.data.benchmarks.datasets import DATASETS
from silohash.data.benchmarks.files import complete_layout, folder_of
from silohash.federated import FEDERATED_METHODS
from silohash.files import write_text
from silohash.local import LOCAL_METHODS
from silohash.registry import suggestion
from silohash.report.tables import markdown_table, number, span
from silohash.study.grid import StudyConfig, load_study
from silohash.study.pivot import Spot, choices_key, field_values, figure_spot, runs_by_choices
from silohash.study.results import StudyResults
from silohash.study.tables import TABLES
from silohash.types import UserError

PUBLISHED = "published"
FOLDER = "papers"

_FEDCAFE_DIFFERS = (
    "The pictures' features are CNN-F's, fixed; the paper trains CNN-F too.",
    "The round is chosen on held-back training items; the paper's code keeps the best round on the queries.",
    "Personal models are measured on all silos' data (PG); the paper deals queries and database out to the silos.",
)
_FEDHAP_DIFFERS = (
    "The paper does not say which items are the queries; they are drawn.",
    "Widths of the hash head, the margin of the triplets and the cut-off of mAP are not stated; ours are those of the "
    "methods' presets, and mAP over the whole ranking.",
)


@dataclass(frozen=True)
class PaperTable:
    """A table of a paper that can be run.

    Attributes:
        key: what a user types.
        title: paper, table and what it is about.
        differs: in what our figures cannot be the paper's, whatever the methods do.
    """

    key: str
    title: str
    differs: tuple[str, ...]

    def file(self, recipes: Path, suffix: str) -> Path:
        """Returns the study's file (``.toml``) or the printed figures (``.csv``)."""
        return recipes / FOLDER / f"{self.key.replace('/', '-')}{suffix}"

    def study(self, recipes: Path, overrides: Sequence[str] = ()) -> StudyConfig:
        """Reads the study, with methods in it that may not be there yet."""
        return load_study(self.file(recipes, ".toml"), overrides)


PAPER_TABLES: Mapping[str, PaperTable] = {
    table.key: table
    for table in (
        PaperTable("fedcafe/table2", "FedCAFE, table 2: MIRFlickr-25K and NUS-WIDE in equal shares", _FEDCAFE_DIFFERS),
        PaperTable("fedcafe/table3", "FedCAFE, table 3: FashionVC in unequal shares", _FEDCAFE_DIFFERS),
        PaperTable("fedcafe/table4", "FedCAFE, table 4: Ssense in unequal shares", _FEDCAFE_DIFFERS),
        PaperTable("fedhap/table2", "FedHAP, table 2: three data sets in equal shares", _FEDHAP_DIFFERS),
        PaperTable("fedhap/table3", "FedHAP, table 3: three data sets, three labels a silo", _FEDHAP_DIFFERS),
    )
}
"""The papers' tables that can be run, by key."""


@dataclass(frozen=True)
class Lack:
    """What keeps a choice of a study from being run.

    Attributes:
        axis: the choice's; empty where the whole study lacks it.
        choice: its name.
        needs: what is not there, in words.
        remedy: what to do about it; empty where one can only wait.
    """

    axis: str
    choice: str
    needs: str
    remedy: str = ""

    def __str__(self) -> str:
        """Returns the lack in one line."""
        return f"{self.choice or 'all of it'} needs {self.needs}"


def paper_table(key: str) -> PaperTable:
    """Returns a table by its key.

    Raises:
        UserError: if there is no such table; names the nearest.
    """
    if key not in PAPER_TABLES:
        raise UserError(
            f'There is no table "{key}"{suggestion(key, PAPER_TABLES)}; there are: {", ".join(PAPER_TABLES)}.'
        )
    return PAPER_TABLES[key]


def lacks(config: StudyConfig) -> list[Lack]:
    """Returns what a study's choices need and is not there: methods by the registries, data by the files."""
    found = _lacks_of("", "", config.base.set, config)
    for axis in config.axes:
        for choice in axis.choices:
            found += _lacks_of(axis.name, choice.name, choice.set, config)
    return found


def without(config: StudyConfig, missing: Sequence[Lack]) -> StudyConfig:
    """Returns a study without the choices that lack something.

    Raises:
        UserError: if nothing is left; says what everything needs.
    """
    gone = {(lack.axis, lack.choice) for lack in missing}
    axes = [
        axis.model_copy(update={"choices": tuple(c for c in axis.choices if (axis.name, c.name) not in gone)})
        for axis in config.axes
    ]
    empty = [axis.name for axis in axes if not axis.choices]
    if ("", "") in gone or empty:
        said = [lack for lack in missing if not lack.axis or lack.axis in empty]
        remedies = dict.fromkeys(lack.remedy for lack in said if lack.remedy)
        raise UserError("\n".join([f"{config.title}: {'; '.join(map(str, said))}.", *remedies]))
    return config.model_copy(update={"axes": tuple(axes)})


def _lacks_of(axis: str, name: str, values: Mapping[str, object], config: StudyConfig) -> list[Lack]:
    found = []
    for key, registry in (("local.name", LOCAL_METHODS), ("federated.name", FEDERATED_METHODS)):
        method = values.get(key)
        if isinstance(method, str) and method not in registry.names():
            found.append(Lack(axis, name, f"{method} ({registry.family})"))
    data = values.get("data.name")
    if isinstance(data, str) and data in DATASETS:
        root = str(config.set.get("data.options.root", values.get("data.options.root", "")))
        try:
            complete_layout(data, folder_of(data, root), DATASETS[data].layouts)
        except UserError as error:
            found.append(Lack(axis, name, f"the files of {data}", str(error)))
    return found


def read_published(path: Path) -> list[dict[str, str]]:
    """Reads printed figures: a line a figure, with the study's choices, the task and ``published``.

    Raises:
        UserError: if the file is missing or no such table.
    """
    try:
        lines = list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"), newline="")))
        _ = [float(line[PUBLISHED]) for line in lines]
    except FileNotFoundError as error:
        raise UserError(f"{path} is missing from this installation. Install silohash anew.") from error
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path} is damaged ({error}). Install silohash anew.") from error
    return lines


def write_beside(table: PaperTable, study: StudyResults, printed: Sequence[Mapping[str, str]], out: Path) -> list[Path]:
    """Writes the printed figures with ours beside them, as ``published.md`` and ``.csv`` in the study's ``tables/``.

    Args:
        table: the paper's.
        study: what our runs found.
        printed: what `read_published` gave.
        out: the study's folder.

    Returns:
        The files.
    """
    axes = [axis for axis in printed[0] if axis != PUBLISHED]
    pairs = [(line, _ours(study, line)) for line in printed]
    lines = [
        [*(line[axis] for axis in axes), *_beside(float(line[PUBLISHED]), spot)] for line, spot in pairs if spot.values
    ]
    there = sum(1 for _, spot in pairs if spot.values)
    intervals = "over seeds" if any(spot.interval == "seeds" for _, spot in pairs) else "over queries"
    notes = [
        f"{there} of {len(pairs)} printed figures have one of ours beside them. Intervals: 95 %, {intervals}.",
        *table.differs,
        *dict.fromkeys(f"Ours: {spot.conditions}." for _, spot in pairs if spot.conditions),
    ]
    headings = [*axes, "printed", "ours", "95 % interval", "ours less printed"]
    text = markdown_table(headings, lines, numbers_from=len(axes))
    paths = [out / TABLES / f"{PUBLISHED}{suffix}" for suffix in (".md", ".csv")]
    write_text(paths[0], f"### {table.title}\n\n{text}\n{''.join(f'- {note}{chr(10)}' for note in notes)}")
    stream = io.StringIO(newline="")
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([*axes, PUBLISHED, "ours", "low", "high", "seeds"])
    for line, spot in pairs:
        values = ["" if math.isnan(value) else value for value in (spot.mean, spot.low, spot.high)]
        writer.writerow([*(line[axis] for axis in axes), line[PUBLISHED], *values, len(spot.values)])
    write_text(paths[1], stream.getvalue())
    return paths


def _ours(study: StudyResults, line: Mapping[str, str]) -> Spot:
    """Returns the cell that stands for a printed figure; an empty one where there are no runs."""
    values = field_values(study, ())
    fields = {"evaluation": values["evaluation"][0], "measure": study.config.table.measure, **line}
    chosen = {axis: fields.get(axis, "") for axis in study.config.axis_names}
    runs = runs_by_choices(study).get(choices_key(chosen), [])
    return figure_spot(fields, runs, len(study.config.seeds))


def _beside(printed: float, spot: Spot) -> list[str]:
    return [
        number(printed, digits=4),
        number(spot.mean, digits=4),
        span(spot.low, spot.high),
        f"{spot.mean - printed:+.4f}",
    ]
