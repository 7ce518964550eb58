"""``new``, ``train``, ``resume``: from a config to a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from silohash.cli.console import console, print_json, print_result, print_status, spinner
from silohash.types import UserError

if TYPE_CHECKING:
    from silohash.config.load import ResolvedConfig
    from silohash.runtime.events import Observer
    from silohash.runtime.run import Run

SMOKE = ("federated.rounds=2", "federated.local_epochs=1")


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command()(new)
    app.command()(train)
    app.command()(resume)


def new(
    file: Annotated[Path, typer.Argument(help="Where to write the config.")],
    local: Annotated[str, typer.Option(help="Local method (silohash list local).")] = "dcmh",
    federated: Annotated[str, typer.Option(help="Federated method (silohash list federated).")] = "fedavg",
    data: Annotated[str, typer.Option(help="A named archive, or the path of a folder of your own.")] = "glyphs",
) -> None:
    """Write a commented config, ready for `silohash train`."""
    from silohash.config.template import config_template
    from silohash.files import write_text

    if file.exists():
        raise UserError(f'"{file}" is there already. Give another name, or remove it first.')
    write_text(file, config_template(file, local=local, federated=federated, data=data))
    print_status(f"Wrote {file}. Next: silohash train {file} --out runs/{file.stem}")


def train(
    config: Annotated[Path, typer.Argument(help="The run's TOML file.")],
    out: Annotated[Path | None, typer.Option(help="Folder of the run; runs/NAME by default.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="section.key=value, over the file.")] = None,
    seeds: Annotated[str, typer.Option(help="Several seeds, as 0,1,2: a run each, in OUT/seed-N.")] = "",
    smoke: Annotated[
        bool, typer.Option("--smoke", help="Two rounds of one epoch, to see that all of it works.")
    ] = False,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Write curves to RUN/tensorboard too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Train a run, evaluate it and write its report."""
    from silohash.config.load import load_resolved
    from silohash.runtime.run import Run

    overrides = [*(set_ or []), *(SMOKE if smoke else ())]
    folder = out or Path("runs") / config.stem
    chosen = [(int(seed), folder / f"seed-{int(seed)}") for seed in seed_numbers(seeds)]
    plans = [(load_resolved(config, [*overrides, f"seed={seed}"]), where) for seed, where in chosen]
    plans = plans or [(load_resolved(config, overrides), folder)]
    for _, where in plans:
        Run(where).check_free()
    finished = [train_run(resolved, where, tensorboard=tensorboard) for resolved, where in plans]
    _tell(finished, as_json=as_json)


def resume(
    run: Annotated[Path, typer.Argument(help="Folder of a run that was interrupted.")],
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Write curves to RUN/tensorboard too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Go on with a run as if it had never stopped."""
    from silohash.runtime.run import Run

    found = Run.open(run)
    with spinner("Importing torch"):
        from silohash.runtime import experiment
    experiment.resume(found, observers=observers(found, tensorboard=tensorboard))
    finish(found)
    _tell([found], as_json=as_json)


def train_run(resolved: ResolvedConfig, folder: Path, *, tensorboard: bool = False) -> Run:
    """Trains, evaluates and reports one run."""
    from silohash.runtime import experiment
    from silohash.runtime.run import Run

    print_status(f"Training into {folder}")
    run = experiment.train(
        resolved, folder, observers=observers(Run(folder), tensorboard=tensorboard), notify=print_status
    )
    finish(run)
    return run


def finish(run: Run) -> None:
    """Writes a run's figures and its report."""
    from silohash.report.finish import finish_run

    with spinner("Evaluating"):
        finish_run(run)


def observers(run: Run, *, tensorboard: bool) -> list[Observer]:
    """Returns who is told of the rounds."""
    from silohash.runtime.events import ConsoleProgress, TensorBoard

    everyone: list[Observer] = [ConsoleProgress(console())]
    if tensorboard:
        everyone.append(TensorBoard(run.folder / "tensorboard"))
    return everyone


def _tell(finished: list[Run], *, as_json: bool) -> None:
    from silohash.report.tables import console as as_table
    from silohash.report.tables import read_results

    rows = [row for run in finished for row in read_results(run.results_path)]
    if as_json:
        from dataclasses import asdict

        print_json({"runs": [str(run.folder) for run in finished], "results": [asdict(row) for row in rows]})
        return
    console(err=False).print(as_table(rows, percent=True))
    for run in finished:
        print_result(f"Report: {run.report_path}")
        print_status(f'Next: silohash index {run.folder}; silohash search {run.folder} "…"')


def seed_numbers(text: str) -> list[int]:
    """Returns the seeds of ``0,1,2``.

    Raises:
        UserError: if they are no whole numbers, or one stands twice.
    """
    try:
        numbers = [int(part) for part in text.split(",") if part.strip()]
    except ValueError as error:
        raise UserError(f'--seeds "{text}" is no list of whole numbers, as 0,1,2.') from error
    if len(set(numbers)) != len(numbers) or any(number < 0 for number in numbers):
        raise UserError(f'--seeds "{text}": each seed once, none below 0.')
    return numbers
