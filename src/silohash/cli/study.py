"""``study`` and ``sweep``: many runs as one, their tables and plots."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from silohash.cli.console import console, print_json, print_result, print_status, spinner
from silohash.cli.train import SMOKE, seed_numbers
from silohash.types import UserError

if TYPE_CHECKING:
    from silohash.study.conduct import Conducted
    from silohash.study.grid import StudyConfig

OUT = "Folder of the study; studies/NAME by default."
PROCESSES = "Runs at the same time; each gets its share of the cores."
FRESH = "Set runs aside whose settings have changed since, and begin them anew."
SMOKE_HELP = "Two rounds of one epoch each, to see that all of it works."


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command()(study)
    app.command()(sweep)


def study(
    file: Annotated[Path, typer.Argument(help="The study's TOML file (docs/how-to/studies.md).")],
    out: Annotated[Path | None, typer.Option(help=OUT)] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="section.key=value, over every run.")] = None,
    only: Annotated[list[str] | None, typer.Option(help="axis=choice: only these runs; may be repeated.")] = None,
    processes: Annotated[int | None, typer.Option(min=1, max=64, help=PROCESSES)] = None,
    smoke: Annotated[bool, typer.Option("--smoke", help=SMOKE_HELP)] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help=FRESH)] = False,
    tables_only: Annotated[
        bool, typer.Option("--tables-only", help="Run nothing; set out what is there, under the file's [table].")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Run every combination of a study's choices and seeds, and write its tables and plots. Goes on where it stopped."""
    with spinner("Reading the study"):
        from silohash.study.grid import load_study

    config = load_study(file, [*(set_ or []), *(SMOKE if smoke else ())])
    if smoke and config.tune:
        config = config.model_copy(update={"tune": config.tune.model_copy(update={"trials": 1})})
    if processes is not None:
        config = config.model_copy(update={"processes": processes})
    try:
        _run(
            config, out or Path("studies") / file.stem, only=only or [], smoke=smoke, fresh=fresh,
            tables_only=tables_only, as_json=as_json,
        )  # fmt: skip
    except UserError as error:
        raise UserError(f"{file}: {error}") from error


def sweep(
    recipe: Annotated[Path, typer.Argument(metavar="CONFIG", help="A run's TOML file.")],
    over: Annotated[list[str], typer.Option(help="section.key=value,value: what is varied; may be repeated.")],
    seeds: Annotated[str, typer.Option(help="As 0,1,2: every value is run with each.")] = "0",
    out: Annotated[Path | None, typer.Option(help=OUT)] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="section.key=value, over every run.")] = None,
    processes: Annotated[int, typer.Option(min=1, max=64, help=PROCESSES)] = 1,
    smoke: Annotated[bool, typer.Option("--smoke", help=SMOKE_HELP)] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help=FRESH)] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Run a config over values of some of its keys, and draw the figures over them."""
    with spinner("Reading the config"):
        from silohash.study.grid import make_study

    axes = [_axis(text) for text in over]
    value = {
        "title": f"{recipe.stem} over {' and '.join(axis['name'] for axis in axes)}",
        "seeds": seed_numbers(seeds),
        "processes": processes,
        "base": {"recipe": str(recipe)},
        "axis": axes,
        "table": {"rows": [axis["name"] for axis in axes], "columns": ["evaluation", "task"]},
    }
    config = make_study(value, where="sweep", overrides=[*(set_ or []), *(SMOKE if smoke else ())])
    folder = out or Path("studies") / f"{recipe.stem}-sweep"
    _run(config, folder, only=[], smoke=smoke, fresh=fresh, tables_only=False, as_json=as_json)


def _axis(text: str) -> dict[str, Any]:
    """Returns the axis of ``section.key=value,value``."""
    from silohash.runtime.config import read_override

    key, equals, values = text.partition("=")
    listed = read_override(f"{key}=[{values}]")[1] if equals and values.strip() else None
    if isinstance(listed, str):  # bare words, as of method names
        listed = [read_override(f"{key}={part}")[1] for part in values.split(",")]
    if not listed:
        raise UserError(f'--over "{text}" is not of the form section.key=value,value, for example local.bits=16,32.')
    return {"name": key.strip(), "key": key.strip(), "values": listed}


def _run(
    config: StudyConfig,
    out: Path,
    *,
    only: list[str],
    smoke: bool,
    fresh: bool,
    tables_only: bool,
    as_json: bool,
) -> None:
    """Runs a study and writes what it found. Exits with 1 or 2 if a run failed."""
    from silohash.study.conduct import Conducted, conduct
    from silohash.study.plots import write_plots
    from silohash.study.results import collect, write_summary
    from silohash.study.tables import write_tables

    if tables_only:
        done = Conducted(collect(config, out))
        write_summary(done.results, out)
    else:
        done = conduct(config, out, console(), only=only, smoke=smoke, fresh=fresh)
    if done.results.cells:
        with spinner("Writing tables and plots"):
            write_tables(done.results, out)
            write_plots(done.results, out)
    _tell(done, out, as_json=as_json)
    if done.code:
        raise typer.Exit(done.code)


def _tell(done: Conducted, out: Path, *, as_json: bool) -> None:
    results = done.results
    if as_json:
        runs = [
            {
                "choices": dict(cell.choices),
                "seed": cell.seed,
                "run": str(cell.folder),
                "results": [asdict(row) for row in cell.rows],
            }
            for cell in results.cells
        ]
        failed = [{"run": str(one.job.folder), "said": one.said, "log": str(one.job.log_path)} for one in done.failed]
        print_json({"study": str(out), "runs": runs, "missing": results.missing, "failed": failed})
        return
    for one in done.failed:
        print_status(f"{one.job.name} failed: {one.said} ({one.job.log_path})")
    if results.missing:
        print_status(f"{len(results.missing)} of {len(results.missing) + len(results.cells)} runs are not there yet.")
    print_result(f"Figures: {out / 'results.csv'}")
    if results.cells:
        print_result(f"Tables: {out / 'tables'}\nPlots: {out / 'plots'}")
