"""The command ``demo``: the whole path once, on the embedded archive."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from silohash.base.errors import MissingFile, RunChanged, UserError
from silohash.base.optional import require
from silohash.cli.console import print_result, print_status, print_table, spinner
from silohash.cli.help import Settings, flag, option
from silohash.cli.serve import LOOPBACK, PORT, require_page, serve

if TYPE_CHECKING:
    from rich.table import Table

    from silohash.base.types import Modality, ResultRow
    from silohash.data.archive import Archive
    from silohash.features.base import Value
    from silohash.run.config.load import ResolvedConfig
    from silohash.run.folder import Run

OVERRIDES = {"pooled": ("train.workers=1", "train.threads=0")}
"""Pooled training has one silo and so no use for two workers. It gets all cores instead."""

METHODS = {"federated": "fedavg", "alone": "local", "pooled": "centralized"}
TEXT_QUERY = "domino tile"
NEXT_QUERY = "braille pattern"
SEEN_CHARACTER = "circled latin capital letter l"
UNSEEN_CHARACTER = "playing card three of diamonds"
HITS = 6


def demo(
    out: Annotated[Path, option("FOLDER", "Folder for the runs and the report.")] = Path("runs/demo"),
    set_: Settings = None,
    serve_: Annotated[bool, flag("Open the search page at the end, until Ctrl-C.", "--serve")] = False,
    port: Annotated[int, option("N", "Port of the search page; 0 for any that is free.", min=0, max=65535)] = PORT,
) -> None:
    """Try every step on an embedded archive, in about two minutes.

    Trains five silos together, alone and pooled, compares the three, searches, and writes a report. Everything runs on
    this machine, and nothing is downloaded.
    """
    from silohash.base.files import check_own_folder
    from silohash.run.config.load import read_config

    started = time.perf_counter()
    check_own_folder(out, *METHODS)
    # What can be checked without torch is checked before it is imported, which takes seconds.
    read_config(recipe("demo.toml"), set_ or [])
    require("torch", "Training")
    if serve_:
        # Checked before minutes are spent on training.
        require_page()
        from silohash.service.web.server import listening_socket

        listening_socket(LOOPBACK[0], port, remedy="Choose another: --port N, or make SERVE=1 PORT=N demo.").close()
    print_status(
        "Five libraries of characters, simulated on this machine, train one model without sharing a picture or a text."
    )
    from silohash.run.folder import archive_of

    with spinner("Reading the characters"):
        configs = demo_configs(set_ or [])
        archive = archive_of(configs["federated"].config.data)
    print_status(f"{len(archive):,} pictures of characters with their Unicode names.")
    runs = {name: _train(config, out / name) for name, config in configs.items()}
    _compare(runs)
    _search(runs["federated"], archive)
    from silohash.report.gather import report_data
    from silohash.report.page import write_report

    page = out / "report.html"
    with spinner("Writing the report"):
        write_report(report_data(list(runs.values()), title="silohash demo: five libraries of characters"), page)
    print_result(f"\nReport: {page}")
    print_status(f'Next: silohash search {out}/federated "{NEXT_QUERY}"')
    print_status(f"Total time: {time.perf_counter() - started:.0f} s")
    if serve_:
        serve(out / "federated", port=port)
    else:
        print_status(
            f"Open the search page, and draw a character to find its name: silohash serve {out}/federated --open"
        )


def demo_configs(overrides: list[str]) -> dict[str, ResolvedConfig]:
    """Return the config of each of the demo's runs: federated, alone and pooled."""
    from silohash.run.config.load import load_resolved

    return {
        name: load_resolved(recipe("demo.toml"), [f'federated.name="{method}"', *OVERRIDES.get(name, ()), *overrides])
        for name, method in METHODS.items()
    }


def recipe(name: str) -> Path:
    """Return the path of a recipe, in a checkout or in an installed package.

    Raises:
        UserError: If the recipe does not exist.
    """
    candidates = [Path(__file__).parents[1] / "recipes" / name, Path(__file__).parents[3] / "recipes" / name]
    for path in candidates:
        if path.exists():
            return path
    raise MissingFile(f"The recipe {name} is missing from this installation. Reinstall silohash.")


def _train(resolved: ResolvedConfig, folder: Path) -> Run:
    """Train and measure one run of the demo, or continue it if an earlier demo was interrupted."""
    from silohash.cli.train import finish, observers
    from silohash.run.folder import Run
    from silohash.training import experiment

    run = Run(folder)
    if run.config_path.exists() and run.config.digest() != resolved.config.digest():
        raise RunChanged(
            f'"{folder}" holds a run with another config. Remove it or choose another folder: silohash demo --out FOLDER'
        )
    if not run.model_folder.exists():
        listening = observers(run, tensorboard=False)
        if run.config_path.exists():
            experiment.resume(run, observers=listening)
        else:
            experiment.train(resolved, folder, observers=listening, notify=print_status)
    if not run.results_path.exists():
        finish(run)
    return run


def _compare(runs: dict[str, Run]) -> None:
    """Print the headline of the runs, what it rests on, and the table behind it."""
    from silohash.measure.evaluation import UNSEEN
    from silohash.report.headline import headline
    from silohash.report.tables import read_results

    rows = {name: read_results(run.results_path) for name, run in runs.items()}
    unseen = [row for run in runs.values() for row in read_results(run.unseen_results_path)]
    different = [row for row in unseen if row.protocol.endswith(UNSEEN)]
    found = headline([row for of_run in rows.values() for row in of_run], different)
    print_result(f"\n{found.sentence}")
    print_result(*(f"  {line}" for line in (found.explanation, *found.notes)))
    print_result("")
    print_table(comparison(rows))


def comparison(rows: dict[str, list[ResultRow]]) -> Table:
    """Return the demo's table: mAP of training together, alone and pooled, one line per run and evaluation."""
    from rich.table import Table

    table = Table(title="mAP@all in percent, with 95 % intervals", title_justify="left")
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
    """Index the federated run and print the results of three searches."""
    from silohash.cli.search import print_aligned, print_notes
    from silohash.cli.train import index_silos
    from silohash.search.bus import now
    from silohash.search.requests import SearchRequest
    from silohash.search.silos import RunSearch

    if not run.index_folder.exists():
        index_silos(run)
    silos = RunSearch(run)
    for title, value, modality in demo_queries(archive):
        print_result(f"\n{title}")
        try:
            hits = now(silos.search(SearchRequest(value=value, modality=modality, k=HITS)))
        # Another archive, chosen with --set, may not have the words of the text.
        except UserError as error:
            print_status(str(error))
            continue
        print_aligned(hits)
        print_notes(hits)


def demo_queries(archive: Archive) -> list[tuple[str, Value, Modality]]:
    """Return the title, value and modality of the demo's searches."""
    return [
        (f'Search with the text "{TEXT_QUERY}"', TEXT_QUERY, "text"),
        picture_query(archive, "train", SEEN_CHARACTER, "Search with a picture"),
        picture_query(archive, "query", UNSEEN_CHARACTER, "Search with a picture of a character unseen in training"),
    ]


def picture_query(archive: Archive, split: str, name: str, title: str) -> tuple[str, Value, Modality]:
    """Return a query with the picture of a named character in a split, or of the split's first character without it."""
    from silohash.run.indexing import display_text

    rows = archive.split(split)
    row = int(next((row for row in rows if archive.caption(int(row)) == name), rows[0]))
    pictures = archive.pictures()
    assert pictures is not None  # noqa: S101  the archive consists of pictures
    return f"{title}: {display_text(archive, row)}", pictures.picture(row), "image"
