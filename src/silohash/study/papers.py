"""Tables of papers as studies: what is missing here to run them, and the published figures next to ours."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from silohash.base.errors import NothingUsable, UnknownName, UserError
from silohash.base.files import write_text
from silohash.base.forms import reading
from silohash.base.registry import suggestion
from silohash.base.visible import csv_cell
from silohash.base.visible import markdown as markdown_of
from silohash.data.benchmarks.dataset import AUTO, benchmark, folder_of
from silohash.methods.federated import FEDERATED_METHODS
from silohash.methods.local import LOCAL_METHODS
from silohash.report.tables import csv_table, markdown_table, number, span
from silohash.study.config import StudyConfig, load_study
from silohash.study.pivot import Cell, field_values, figure_cell, runs_by_choices, runs_with
from silohash.study.results import StudyResults
from silohash.study.tables import TABLES

REINSTALL = "Reinstall silohash."

PUBLISHED = "published"
FOLDER = "papers"

_FEDCAFE_DIFFERENCES = (
    "The image features come from a fixed CNN-F; the paper also trains CNN-F.",
    "The round is chosen on held-back training items; the paper's code keeps the best round on the queries.",
    "Personal models are evaluated on the data of all silos (PG); the paper divides queries and database among the silos.",
)
_FEDHAP_DIFFERENCES = (
    "The paper does not say which items are the queries; they are drawn at random.",
    "The paper does not give the widths of the hash head, the margin of the triplets and the cutoff of mAP; we use the "
    "presets of the methods, and mAP over the whole ranking.",
)
_DLFFH_DIFFERENCES = (
    "DLFFH and DLFFH-2 encode queries and database items with their true labels, from which the relevance of the results is "
    "computed too, so their figures do not apply to real searches.",
    "The image features come from a fixed CNN-F; the paper also trains CNN-F.",
    "The paper does not say which items are the queries; they are drawn at random.",
    "All layers of a tower are 4,096 wide; in the paper the first layer of the text network is 8,192 wide.",
)
_FEDUCH_DIFFERENCES = (
    "The paper does not state the number of silos, and gives the parameter of the Dirichlet distribution for one figure "
    "only; we use 4 silos and 0.5.",
    "The paper averages the figures of the silos' models after their local training; ours are those of the averaged model, "
    "or the mean over the silos' models for methods without one.",
    "The published code does not contain the two terms of FedUCH, so details that the paper leaves open may differ.",
    "The optimizer and the batches are those of the authors of each local method, as far as they are known.",
    "The features are those of the user's files, and texts are bags of words; the paper has CNN-F features, 1,024 topics "
    "for one of the data sets, and features of BERT for two.",
)


@dataclass(frozen=True)
class PaperTable:
    """A table of a paper that can be run.

    Attributes:
        key: Its name on the command line.
        title: The paper, the number of the table and its subject.
        differences: Why our figures cannot equal the paper's, whatever the methods do.
    """

    key: str
    title: str
    differences: tuple[str, ...]

    def file(self, recipes: Path, suffix: str) -> Path:
        """Return the path of the study (suffix ``.toml``) or of the published figures (``.csv``)."""
        return recipes / FOLDER / f"{self.key.replace('/', '-')}{suffix}"

    def study(self, recipes: Path, overrides: Sequence[str] = ()) -> StudyConfig:
        """Read the study. It may name methods that silohash does not have yet."""
        return load_study(self.file(recipes, ".toml"), overrides)


PAPER_TABLES: Mapping[str, PaperTable] = {
    table.key: table
    for table in (
        PaperTable("dlffh/table1", "DLFFH, table 1: three data sets, pooled", _DLFFH_DIFFERENCES),
        PaperTable("dlffh/table3", "DLFFH, table 3: variants of DLFFH on MIRFlickr-25K", _DLFFH_DIFFERENCES),
        PaperTable("fedcafe/table2", "FedCAFE, table 2: MIRFlickr-25K and NUS-WIDE, IID silos", _FEDCAFE_DIFFERENCES),
        PaperTable("fedcafe/table3", "FedCAFE, table 3: FashionVC, non-IID silos", _FEDCAFE_DIFFERENCES),
        PaperTable("fedcafe/table4", "FedCAFE, table 4: Ssense, non-IID silos", _FEDCAFE_DIFFERENCES),
        PaperTable("feduch/table2", "FedUCH, tables 2 to 6: five data sets, DGCPN in every silo", _FEDUCH_DIFFERENCES),
        PaperTable(
            "feduch/table7", "FedUCH, tables 7 to 11: without its contrast and distillation", _FEDUCH_DIFFERENCES
        ),
        PaperTable("feduch/table12", "FedUCH, tables 12 to 15: DJSRH and JDSH in every silo", _FEDUCH_DIFFERENCES),
        PaperTable("fedhap/table2", "FedHAP, table 2: three data sets, IID silos", _FEDHAP_DIFFERENCES),
        PaperTable("fedhap/table3", "FedHAP, table 3: three data sets, three labels per silo", _FEDHAP_DIFFERENCES),
    )
}
"""The tables that can be run, by key."""


@dataclass(frozen=True)
class MissingRequirement:
    """Something that a choice of a study needs and that is missing here.

    Attributes:
        axis: The axis of the choice; empty if the whole study needs it.
        choice: The name of the choice; empty if the whole study needs it.
        needs: What is missing.
        remedy: How to get it; empty if silohash does not have it yet.
    """

    axis: str
    choice: str
    needs: str
    remedy: str = ""

    def __str__(self) -> str:
        """Return the requirement as a phrase."""
        return f"{self.choice or 'every run'} needs {self.needs}"


def paper_table(key: str) -> PaperTable:
    """Return the table with a key.

    Raises:
        UserError: If there is no such table; suggests the nearest key.
    """
    if key not in PAPER_TABLES:
        raise UnknownName(
            f'There is no table "{key}"{suggestion(key, PAPER_TABLES)}. Available: {", ".join(PAPER_TABLES)}.'
        )
    return PAPER_TABLES[key]


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
        raise NothingUsable(_nothing_left(config.title, preventing))
    return config.model_copy(update={"axes": tuple(axes)})


def _nothing_left(title: str, preventing: Sequence[MissingRequirement]) -> str:
    remedies = dict.fromkeys(requirement.remedy for requirement in preventing if requirement.remedy)
    return "\n".join([f"{title}: {'; '.join(map(str, preventing))}.", *remedies])


def _missing_for(axis: str, name: str, values: Mapping[str, object], config: StudyConfig) -> list[MissingRequirement]:
    found = []
    for key, registry in (("local.name", LOCAL_METHODS), ("federated.name", FEDERATED_METHODS)):
        method = values.get(key)
        if isinstance(method, str) and method not in registry.names():
            found.append(MissingRequirement(axis, name, f"{method} ({registry.family})"))
    data = values.get("data.name")
    if isinstance(data, str) and (dataset := benchmark(data)):
        root = str(config.set.get("data.options.root", values.get("data.options.root", "")))
        try:
            dataset.layout(AUTO, folder_of(data, root))
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


@dataclass(frozen=True)
class _Pair:
    """A published figure and ours.

    Attributes:
        names: The choices and the task.
        published: The published figure, as printed.
        ours: Our figure; an empty cell without runs.
    """

    names: list[str]
    published: str
    ours: Cell


def write_comparison(
    table: PaperTable, study: StudyResults, published: Sequence[Mapping[str, str]], out: Path
) -> list[Path]:
    """Write the published figures with ours next to them, as ``published.md`` and ``.csv`` in the study's ``tables/``.

    Returns:
        The paths of the files.
    """
    fields = [name for name in published[0] if name != PUBLISHED]
    pairs = [_Pair([line[name] for name in fields], line[PUBLISHED], _ours(study, line)) for line in published]
    paths = [out / TABLES / f"{PUBLISHED}{suffix}" for suffix in (".md", ".csv")]
    write_text(paths[0], _markdown(table, fields, pairs))
    write_text(paths[1], _csv(fields, pairs))
    return paths


def _ours(study: StudyResults, line: Mapping[str, str]) -> Cell:
    """Return our cell for a published figure; an empty one without runs."""
    evaluation = field_values(study, ())["evaluation"][0]
    fields = {"evaluation": evaluation, "measure": study.config.table.measure, **line}
    return figure_cell(fields, runs_with(runs_by_choices(study), study.config, fields), len(study.config.seeds))


def _markdown(table: PaperTable, fields: Sequence[str], pairs: Sequence[_Pair]) -> str:
    found = [pair for pair in pairs if pair.ours.values]
    over = "seeds" if any(pair.ours.interval == "seeds" for pair in found) else "queries"
    notes = [
        f"{len(found)} of {len(pairs)} published figures have one of ours next to them. Intervals: 95 %, over {over}.",
        *table.differences,
        *dict.fromkeys(f"Ours: {pair.ours.conditions}." for pair in pairs if pair.ours.conditions),
    ]
    headings = [*fields, "published", "ours", "95 % interval", "ours minus published"]
    lines = [[*map(markdown_of, pair.names), *_figures(float(pair.published), pair.ours)] for pair in found]
    text = markdown_table(headings, lines, numbers_from=len(fields))
    return f"### {table.title}\n\n{text}\n{''.join(f'- {note}{chr(10)}' for note in notes)}"


def _csv(fields: Sequence[str], pairs: Sequence[_Pair]) -> str:
    lines: list[list[object]] = [[*fields, PUBLISHED, "ours", "low", "high", "seeds"]]
    for pair in pairs:
        figures = (pair.ours.mean, pair.ours.low, pair.ours.high)
        values = ["" if math.isnan(value) else value for value in figures]
        lines.append([*map(csv_cell, pair.names), pair.published, *values, len(pair.ours.values)])
    return csv_table(lines)


def _figures(published: float, cell: Cell) -> list[str]:
    return [
        number(published, digits=4),
        number(cell.mean, digits=4),
        span(cell.low, cell.high),
        f"{cell.mean - published:+.4f}",
    ]
