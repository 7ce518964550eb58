"""``study`` and ``sweep``: many runs at once, with their tables and plots."""

from __future__ import annotations

import math
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from silohash.base.errors import RepeatedValue, UserError, WrongForm, WrongOverride
from silohash.base.optional import require
from silohash.cli.console import console, print_json, print_result, print_status, spinner
from silohash.cli.help import ABOUT, SETTING, AsJson, argument, flag, option
from silohash.cli.train import SMOKE, seed_numbers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from silohash.study.config import StudyConfig
    from silohash.study.execution import StudyOutcome
    from silohash.study.jobs import Outcome

Set = Annotated[list[str] | None, option(SETTING, ABOUT["study --set"], "--set")]
Only = Annotated[list[str] | None, option("AXIS=CHOICE", ABOUT["study --only"])]
Smoke = Annotated[bool, flag("Cut every run to two rounds of one epoch, to check that everything works.", "--smoke")]
Fresh = Annotated[bool, flag("Set aside runs whose settings have changed, and start them again.", "--fresh")]
Hours = Annotated[float | None, option("HOURS", ABOUT["study --hours"], min=0)]
OUT = "Folder of the study. Default: studies/NAME."
OUT_OF_STUDIES = "Folder of the study; of several studies, the folder of their folders. Default: studies/NAME."
TUNED = "tuning/best.toml of an earlier run of the study, in place of the searches of [tune]."
PROCESSES = "Number of runs at the same time. They share the cores equally."


def study(
    files: Annotated[list[Path], argument("FILE", "TOML files of studies; see docs/how-to/studies.md.")],
    out: Annotated[Path | None, option("FOLDER", OUT_OF_STUDIES)] = None,
    set_: Set = None,
    only: Only = None,
    processes: Annotated[int | None, option("N", PROCESSES, min=1, max=64)] = None,
    tuned: Annotated[Path | None, option("FILE", TUNED)] = None,
    smoke: Smoke = False,
    fresh: Fresh = False,
    tables_only: Annotated[bool, flag(ABOUT["study --tables-only"], "--tables-only")] = False,
    hours: Hours = None,
    as_json: AsJson = False,
) -> None:
    """Run every combination of a study's choices and seeds.

    The command writes tables and plots. An interrupted study is resumed. Several studies run one after the other.
    """
    with spinner("Reading the study"):
        from silohash.study.config import load_study

    overrides = [*(set_ or []), *(SMOKE if smoke else ())]
    configs = [_adapted(load_study(file, overrides), tuned, smoke=smoke, processes=processes) for file in files]
    until, outcomes = _until(hours), []
    for file, config, folder in zip(files, configs, _folders(files, out), strict=True):
        settings = {"smoke": smoke, "fresh": fresh, "tables_only": tables_only}
        try:
            outcomes.append(run_and_write(config, folder, only=only or [], until=until, **settings))
        except UserError as error:
            raise error.reworded(f"{file}: {error}") from error
    _print_outcomes(outcomes, _folders(files, out), as_json=as_json)


def _adapted(config: StudyConfig, tuned: Path | None, *, smoke: bool, processes: int | None) -> StudyConfig:
    """Return a study with the given tuned values and number of processes, and one trial per search if it is cut short."""
    config = config if tuned is None else config.tuned_by(tuned)
    if smoke and config.tune:
        config = config.model_copy(update={"tune": config.tune.model_copy(update={"trials": 1})})
    return config if processes is None else config.model_copy(update={"processes": processes})


def _folders(files: Sequence[Path], out: Path | None) -> list[Path]:
    """Return the folder of each study, after checking that no two share one."""
    if out is not None and len(files) == 1:
        return [out]
    folders = [(out or Path("studies")) / file.stem for file in files]
    twice = next((folder for number, folder in enumerate(folders) if folder in folders[:number]), None)
    if twice is not None:
        raise RepeatedValue(f'Two of the studies would share the folder "{twice}". Run them one by one, with --out.')
    return folders


def sweep(
    recipe: Annotated[Path, argument("CONFIG", "TOML file of a run.")],
    over: Annotated[list[str], option("SECTION.KEY=VALUES", ABOUT["sweep --over"])],
    seeds: Annotated[str, option("SEEDS", "Seeds, such as 0,1,2. Every value is run with each.")] = "0",
    out: Annotated[Path | None, option("FOLDER", OUT)] = None,
    set_: Set = None,
    processes: Annotated[int, option("N", PROCESSES, min=1, max=64)] = 1,
    smoke: Smoke = False,
    fresh: Fresh = False,
    hours: Hours = None,
    as_json: AsJson = False,
) -> None:
    """Run a config with several values of some settings.

    The figures are plotted over the values.
    """
    with spinner("Reading the config"):
        from silohash.study.config import make_study

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
    try:
        outcome = run_and_write(config, folder, smoke=smoke, fresh=fresh, until=_until(hours))
    except WrongOverride as error:
        key, _, setting = error.override.partition("=")
        option, typed = "--set" if key in config.set else "--over", setting.removeprefix('"').removesuffix('"')
        raise error.reworded(f'{option} "{key}={typed}": {error.reason}') from error
    _print_outcomes([outcome], [folder], as_json=as_json)


def _axis(text: str) -> dict[str, Any]:
    """Return the axis that ``section.key=value,value`` describes."""
    from silohash.run.config.load import read_override

    key, equals, values = text.partition("=")
    equals = equals if all(key.strip().split(".")) else ""
    listed = read_override(f"{key}=[{values}]")[1] if equals and values.strip() else None
    if isinstance(listed, str):  # words without quotes, such as names of methods
        listed = [read_override(f"{key}={part}")[1] for part in values.split(",")]
    if not listed:
        raise WrongForm(f'--over "{text}" is not of the form section.key=value,value, for example local.bits=16,32.')
    return {"name": key.strip(), "key": key.strip(), "values": listed}


def _until(hours: float | None) -> float:
    """Return when the time limit is reached, as given by `time.monotonic`; never without a limit."""
    return math.inf if hours is None else time.monotonic() + 3600 * hours


def run_and_write(
    config: StudyConfig,
    out: Path,
    *,
    only: Sequence[str] = (),
    smoke: bool = False,
    fresh: bool = False,
    tables_only: bool = False,
    until: float = math.inf,
) -> StudyOutcome:
    """Run a study until a time as `time.monotonic` gives it, or only write its tables and plots."""
    require("torch", "A study")
    from silohash.study.execution import StudyOutcome, run_study
    from silohash.study.plots import write_plots
    from silohash.study.results import collect, write_summary
    from silohash.study.tables import write_tables

    if tables_only:
        outcome = StudyOutcome(collect(config, out))
        write_summary(outcome.results, out)
    else:
        outcome = run_study(config, out, console(), only=only, smoke=smoke, fresh=fresh, until=until)
    if outcome.results.runs:
        with spinner("Writing tables and plots"):
            write_tables(outcome.results, out)
            plots, undrawn = write_plots(outcome.results, out)
        print_status(*(f"A figure was not drawn: {error}" for error in undrawn))
        return replace(outcome, plots=plots, undrawn=undrawn)
    return outcome


def _print_outcomes(outcomes: Sequence[StudyOutcome], folders: Sequence[Path], *, as_json: bool) -> None:
    """Print how studies ended. Exit with 2 if runs failed by user's errors only, and with 1 if they failed otherwise."""
    if as_json:
        documents = list(map(_document, outcomes, folders))
        print_json(documents[0] if len(documents) == 1 else {"studies": documents})
    else:
        for outcome, folder in zip(outcomes, folders, strict=True):
            _print_summary(outcome, folder)
    codes = {outcome.code for outcome in outcomes if outcome.code}
    if codes:
        raise typer.Exit(min(codes))


def _document(outcome: StudyOutcome, out: Path) -> dict[str, Any]:
    runs = [
        {
            "choices": dict(run.choices),
            "seed": run.seed,
            "run": str(run.folder),
            "results": [asdict(row) for row in run.rows],
        }
        for run in outcome.results.runs
    ]
    failed = [
        {"run": str(failure.job.folder), "said": failure.message, "log": str(failure.job.log_path)}
        for failure in outcome.failed
    ]
    return {
        "study": str(out), "runs": runs, "missing": outcome.results.missing, "failed": failed, "stopped": outcome.stopped,
        "plots": [str(path) for path in outcome.plots], "undrawn": [str(error) for error in outcome.undrawn],
    }  # fmt: skip


def _print_summary(outcome: StudyOutcome, out: Path) -> None:
    results = outcome.results
    print_failures(outcome.failed)
    if outcome.stopped:
        print_status("The time limit of --hours was reached. The same command continues.")
    if results.missing:
        print_status(
            f"{len(results.missing)} of {len(results.missing) + len(results.runs)} runs are not finished, or were run with "
            "other settings than those of the study now."
        )
    print_result(f"Figures: {out / 'results.csv'}")
    if results.runs:
        drawn = "".join(f"\n  {path.name}" for path in outcome.plots if path.suffix == ".svg")
        print_result(f"Tables: {out / 'tables'}\nPlots: {out / 'plots'}{drawn}")


def print_failures(failed: Sequence[Outcome]) -> None:
    """Print the name, the last message and the log of each failed run."""
    print_status(*(f"{failure.job.name} failed: {failure.message} ({failure.job.log_path})" for failure in failed))
