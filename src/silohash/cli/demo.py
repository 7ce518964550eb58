"""``demo``: the main job once, on the embedded archive."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from silohash.cli.console import console, print_result, print_status, spinner
from silohash.types import UserError

if TYPE_CHECKING:
    from rich.table import Table

    from silohash.data.archive import Archive
    from silohash.features.base import Value
    from silohash.runtime.config import RunConfig
    from silohash.runtime.run import Run
    from silohash.types import Modality, ResultRow

OVERRIDES = {"pooled": ("train.workers=1", "train.threads=0")}
"""One silo has no use for two workers: it gets both cores."""

METHODS = {"federated": "fedavg", "alone": "local", "pooled": "centralized"}
TEXT_QUESTION = "playing card ace of hearts"
SEEN_CHARACTER = "rightwards double arrow"
UNSEEN_CHARACTER = "leftwards arrow with hook"
ANSWERS = 6


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command()(demo)


def demo(
    out: Annotated[Path, typer.Option(help="Where the runs and the report go.")] = Path("runs/demo"),
    set_: Annotated[list[str] | None, typer.Option("--set", help="section.key=value, over the demo's config.")] = None,
) -> None:
    """Train five silos together on the embedded archive, compare, index, search, report. About two minutes."""
    started = time.perf_counter()
    print_status(
        "Five libraries of characters train one model without sharing a picture or a text (recipes/demo.toml)."
    )
    with spinner("Drawing the characters of the fonts that matplotlib brings (once; kept in the cache)"):
        from silohash.runtime.config import load_config

        configs = {
            name: load_config(
                recipe("demo.toml"), [f'federated.name="{method}"', *OVERRIDES.get(name, ()), *(set_ or [])]
            )
            for name, method in METHODS.items()
        }
        archive = open_demo_archive(configs["federated"])
    print_status(f"{len(archive):,} pictures of characters with their Unicode names.")
    runs = {name: _train(config, out / name) for name, config in configs.items()}
    _compare(runs)
    _search(runs["federated"], archive)
    page = _report(list(runs.values()), out)
    print_result(f"\nReport: {page}")
    print_status(
        f'Next: silohash search {out}/federated "musical note"        ({time.perf_counter() - started:.0f} s in all)'
    )


def recipe(name: str) -> Path:
    """Returns the path of a recipe, in a checkout or in an installed package."""
    places = [Path(__file__).parents[1] / "recipes" / name, Path(__file__).parents[3] / "recipes" / name]
    for place in places:
        if place.exists():
            return place
    raise UserError(f"The recipe {name} is missing from this installation. Install silohash anew.")


def open_demo_archive(config: RunConfig) -> Archive:
    """Opens the archive of the demo's config."""
    from silohash.runtime.run import archive_of

    return archive_of(config)


def _train(config: RunConfig, folder: Path) -> Run:
    from silohash.cli.train import finish, observers
    from silohash.runtime import experiment
    from silohash.runtime.run import Run

    run = Run(folder)
    if run.config_path.exists() and run.config.digest() != config.digest():
        raise UserError(f'"{folder}" holds another run. Remove it, or give another folder: silohash demo --out FOLDER')
    if not run.model_folder.exists():
        listening = observers(run, tensorboard=False)
        if run.config_path.exists():
            experiment.resume(folder, observers=listening)
        else:
            experiment.train(config, folder, observers=listening, notify=print_status)
    if not run.results_path.exists():
        finish(run)
    return run


def _compare(runs: dict[str, Run]) -> None:
    from silohash.report.tables import read_results

    rows = {name: read_results(run.results_path) for name, run in runs.items()}
    screen = console(err=False)
    screen.print(comparison(rows))
    federated = mean_map(rows["federated"], ("XS",))
    alone, alone_here = mean_map(rows["alone"], ("XS",)), mean_map(rows["alone"], ("PG",))
    pooled = mean_map(rows["pooled"], ("GG",))
    print_result(
        f"Together: {federated:.1f}. Alone: {alone:.1f} across silos ({federated - alone:+.1f} by training together), "
        f"{alone_here:.1f} if one model encodes everything ({federated - alone_here:+.1f}). "
        f"Pooled: {pooled:.1f}; the federation reaches {100 * federated / pooled:.0f} % of it."
    )


def mean_map(rows: list[ResultRow], evaluations: tuple[str, ...]) -> float:
    """Returns the mean of mAP@all over both tasks, in points."""
    values = [row.value for row in rows if row.measure == "mAP@all" and row.evaluation in evaluations]
    return 100 * sum(values) / len(values)


def comparison(rows: dict[str, list[ResultRow]]) -> Table:
    """Returns the demo's table: how the silos fare together, alone, and pooled."""
    from rich.table import Table

    table = Table(title="mAP@all in points, 95 % intervals; the mean over all orders of tied items")
    for heading in ("training", "evaluation", "picture to text", "text to picture", "random codes"):
        table.add_column(heading, justify="left" if heading in {"training", "evaluation"} else "right")
    for name, measured in rows.items():
        found = {(row.evaluation, row.task): row for row in measured if row.measure == "mAP@all"}
        for evaluation in dict.fromkeys(evaluation for evaluation, _ in found):
            cells = [found[evaluation, task] for task in ("i2t", "t2i")]
            figures = [f"{100 * r.value:.1f} ({100 * r.low:.1f} to {100 * r.high:.1f})" for r in cells]
            table.add_row(name, evaluation, *figures, f"{100 * cells[0].prior:.1f}")
    return table


def _search(run: Run, archive: Archive) -> None:
    from silohash.cli.search import print_hits
    from silohash.runtime.indexing import index_run
    from silohash.search.silos import ask_run, open_nodes

    if not run.index_folder.exists():
        with spinner("Indexing every silo's characters"):
            index_run(run)
    nodes = open_nodes(run.index_folder)
    questions: list[tuple[str, Value, Modality, Modality]] = [
        (f'By words: "{TEXT_QUESTION}"', TEXT_QUESTION, "text", "image"),
        picture_question(archive, "train", SEEN_CHARACTER, "By a picture"),
        picture_question(archive, "query", UNSEEN_CHARACTER, "By a picture of a character that no silo trained on"),
    ]
    for title, value, asked_by, target in questions:
        print_result(f"\n{title}")
        print_hits(ask_run(run, value, asked_by, target, k=ANSWERS, nodes=nodes))


def picture_question(archive: Archive, split: str, name: str, title: str) -> tuple[str, Value, Modality, Modality]:
    """Returns a question by the picture of a split's character of some name; of its first where the name is not there."""
    from silohash.runtime.indexing import shown

    rows = archive.split(split)
    row = int(next((row for row in rows if archive.caption(int(row)) == name), rows[0]))
    pictures = archive.pictures()
    assert pictures is not None  # noqa: S101  the archive is made of pictures
    return f"{title}: {shown(archive, row)}", pictures.picture(row), "image", "text"


def _report(runs: list[Run], out: Path) -> Path:
    from silohash.report.gather import report_data
    from silohash.report.page import write_report

    page = out / "report.html"
    with spinner("Writing the report"):
        write_report(report_data(runs, title="silohash demo: five libraries of characters"), page)
    return page
