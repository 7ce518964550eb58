"""From a config to a run and its figures: ``new``, ``train``, ``resume``, ``evaluate`` and ``report``."""

from __future__ import annotations

import shutil
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from silohash.base.errors import AlreadyExists, ConflictingOptions, LabelsNeeded, NotSupported, RepeatedValue, WrongForm
from silohash.base.optional import require
from silohash.base.types import TASKS
from silohash.cli.console import console, print_json, print_result, print_status, print_table, spinner
from silohash.cli.help import ABOUT, AsJson, Settings, argument, flag, option

if TYPE_CHECKING:
    from silohash.base.types import ResultRow
    from silohash.measure.evaluation import Figures
    from silohash.run.config.load import ResolvedConfig
    from silohash.run.events import Observer
    from silohash.run.folder import Run

Index = Annotated[bool, flag("Build the indexes of the silos, which searches need.", "--index/--no-index")]
On = Annotated[Path | None, option("KIT", ABOUT["train --on"], "--on")]
Deadline = Annotated[float | None, option("SECONDS", "With --on, time limit for the silos in each round.", min=1.0)]
Quorum = Annotated[int | None, option("N", ABOUT["train --quorum"], min=1)]

Curves = Annotated[bool, flag("Also write the curves to RUN/tensorboard.", "--tensorboard")]

SMOKE = ("federated.rounds=2", "federated.local_epochs=1")


def new(
    file: Annotated[Path, argument("CONFIG", "Config file to write.")],
    local: Annotated[str, option("METHOD", ABOUT["new --local"])] = "",
    federated: Annotated[str, option("METHOD", "Federated method; see silohash list federated.")] = "fedavg",
    data: Annotated[str, option("ARCHIVE", "Name of an archive, or path of your own folder.")] = "glyphs",
    backbone: Annotated[str, option("NAME", ABOUT["new --backbone"])] = "",
) -> None:
    """Write a commented config for silohash train.

    Nothing is downloaded. The config of a published network has a key that permits the download.
    """
    from silohash.base.files import write_text
    from silohash.data import ARCHIVES
    from silohash.run.config.template import WITHOUT_LABELS, config_template

    if file.exists():
        raise AlreadyExists(f'"{file}" already exists. Choose another name, or remove the file first.')
    text = config_template(file, local=local, federated=federated, data=data, backbone=backbone)
    write_text(file, text)
    print_status(f"Wrote {file}. Next: silohash train {file} --out runs/{file.stem}")
    if data not in ARCHIVES.names() and not Path(data).exists():
        print_status(f'"{data}" is not the name of an archive, and not a folder yet. Create it before the training.')
    if not local and f'name = "{WITHOUT_LABELS}"' in text:
        print_status(
            f"The archive has no labels, which {WITHOUT_LABELS} does not need. Codes that are solved from sums over silos "
            "can be better, but the sums may reveal items to the server: see docs/how-to/costs.md."
        )
    if backbone:
        print_status(f"Nothing is downloaded unless {file} permits it with download = true.")


def train(
    config: Annotated[Path, argument("CONFIG", "Config of the run, a TOML file.")],
    out: Annotated[Path | None, option("FOLDER", "Folder of the run. Default: runs/NAME, after the config.")] = None,
    set_: Settings = None,
    seeds: Annotated[str, option("SEEDS", "Seeds, such as 0,1,2, for one run per seed in FOLDER/seed-N.")] = "",
    smoke: Annotated[bool, flag("Train only two rounds of one epoch, as a quick test.", "--smoke")] = False,
    tensorboard: Curves = False,
    index: Index = True,
    as_json: AsJson = False,
    on: On = None,
    silo_names: Annotated[list[str] | None, option("NAME", ABOUT["train --silo"], "--silo")] = None,
    deadline: Deadline = None,
    quorum: Quorum = None,
) -> None:
    """Train a run, measure it, write its report and index its silos.

    All silos are simulated on this machine, unless --on names a federation (silohash federation kits). Such silos train
    with their own data, and the run holds the model only.
    """
    from silohash.run.config.load import load_resolved, read_config

    numbers = seed_numbers(seeds)
    overrides = [*(set_ or []), *(SMOKE if smoke else ())]
    read_config(config, overrides)  # what can be checked without torch is checked before it is imported
    require("torch", "Training")
    from silohash.run.folder import Run

    folder = out or Path("runs") / config.stem
    if on is not None:
        if numbers:
            raise ConflictingOptions("--seeds is not possible with --on. Start one run per seed, with --set seed=N.")
        limits = (deadline, quorum or 1, quorum)
        train_on(on, load_resolved(config, overrides), folder, silo_names or [], limits, tensorboard=tensorboard)
        return
    chosen = [([*overrides, f"seed={seed}"], folder / f"seed-{seed}") for seed in numbers] or [(overrides, folder)]
    for _, where in chosen:
        Run(where).check_free()
    plans = [(load_resolved(config, settings), where) for settings, where in chosen]
    finished = [train_run(resolved, where, tensorboard=tensorboard, index=index) for resolved, where in plans]
    _print_results(finished, as_json=as_json)


def resume(
    run: Annotated[Path, argument("RUN", "Folder of an interrupted run.")],
    tensorboard: Curves = False,
    index: Index = True,
    as_json: AsJson = False,
) -> None:
    """Continue an interrupted run.

    The result equals that of an uninterrupted run.
    """
    from silohash.run.folder import Run

    found = Run.open(run)
    require("torch", "Training")
    with spinner("Importing torch"):
        from silohash.training import experiment
    with found.writing():
        experiment.resume(found, observers=observers(found, tensorboard=tensorboard), notify=print_status)
        finish(found)
        if index:
            index_silos(found)
    _print_results([found], as_json=as_json)


def retrain(
    run: Annotated[Path, argument("RUN", "Folder of a trained run.")],
    out: Annotated[Path, option("FOLDER", "Folder of the new run.")],
    without: Annotated[list[str] | None, option("SILO", "Silo to leave out. Can be repeated.")] = None,
    set_: Settings = None,
    index: Index = True,
    on: On = None,
    deadline: Deadline = None,
    quorum: Quorum = None,
) -> None:
    """Train a run again from its first round, without silos, and without items that its archive has lost.

    The config and the seed stay the same, and the model card says what is left out. With --on, silos first remove items from
    archives of their own.
    """
    from silohash.run.folder import Run

    old, silos = Run.open(run), without or []
    if (on is None) is old.trained_elsewhere:
        raise NotSupported("--on KIT is for runs whose silos hold their items on other machines, and these need it.")
    if on is not None and out.resolve().name == old.name:
        raise AlreadyExists(f'The server continues a run of the name "{old.name}". Choose another one with --out.')
    Run(out).check_free()
    require("torch", "Training")
    from silohash.search.silos import POLICIES
    from silohash.training.retraining import config_without, staying

    members, resolved = staying(old, silos), config_without(old, silos, print_status, set_ or ())
    if on is not None:
        train_on(on, resolved, out, members, (deadline, quorum or 1, quorum))
        return
    if (old.folder / POLICIES).is_dir():  # without its policy, a silo would release everything
        others = shutil.ignore_patterns(*(f"{silo}.toml" for silo in silos))
        shutil.copytree(old.folder / POLICIES, out / POLICIES, ignore=others, dirs_exist_ok=True)
    _print_results([train_run(resolved, out, index=index)], as_json=False)


def evaluate(
    run: Annotated[Path, argument("RUN", "Folder of a trained run.")],
    measure: Annotated[list[str] | None, option("MEASURE", ABOUT["evaluate --measure"])] = None,
    evaluation: Annotated[list[str] | None, option("EVALUATION", ABOUT["evaluate --evaluation"])] = None,
    task: Annotated[
        list[str] | None,
        option("TASK", f"{', '.join(TASKS[:-1])} or {TASKS[-1]}, in place of the config's. Can be repeated."),
    ] = None,
    ignore_label: Annotated[list[str] | None, option("LABEL", ABOUT["evaluate --ignore-label"])] = None,
    with_: Annotated[list[Path] | None, option("RUN", ABOUT["evaluate --with"], "--with")] = None,
    costs: Annotated[bool, flag("Compare the codes with real-valued vectors and with ITQ.", "--costs")] = False,
    as_json: AsJson = False,
) -> None:
    """Measure a trained run, per evaluation, task and measure.

    If silos trained on items of the database, a second table shows the figures over the other items. Without options, the
    run is measured as its config says, and its results.csv, results-unseen.csv and example searches are rewritten. With
    options, the figures are only printed. --costs alone also writes costs.csv.
    """
    from silohash.run.config.load import evaluate_config

    given = {"measures": measure, "evaluations": evaluation, "tasks": task, "ignore_labels": ignore_label}
    chosen = {name: value for name, value in given.items() if value}
    evaluate_config(chosen)
    from silohash.measure.measurable import unmeasured
    from silohash.run.folder import Run

    found = Run.open(run)
    if sentence := unmeasured(found.archive):
        raise LabelsNeeded(sentence)
    with spinner("Evaluating"):
        from silohash.measure.costs import costs_of
        from silohash.measure.evaluation import evaluate_run
        from silohash.report.finish import measure_run
        from silohash.report.tables import write_results

        ensemble = [Run.open(folder) for folder in with_ or ()]
        figures = evaluate_run(found, ensemble=ensemble, **chosen) if chosen or ensemble else measure_run(found)
        compared = costs_of(found, evaluate_config({**found.config.evaluate.model_dump(), **chosen})) if costs else []
        if compared and not chosen:
            write_results(found.costs_path, compared)
    _print_figures(figures, compared, as_json=as_json)


def _print_figures(figures: Figures, costs: list[ResultRow], *, as_json: bool) -> None:
    """Print figures over all items, where they differ over those that no silo trained on, and what hashing costs."""
    from silohash.measure.evaluation import UNSEEN
    from silohash.report.tables import console as as_table

    unseen = figures.unseen.rows if figures.unseen else []
    if as_json:
        kinds = {"results": figures.rows, "unseen": unseen, "costs": costs}
        print_json({name: [asdict(row) for row in rows] for name, rows in kinds.items()})
        return
    different = [row for row in unseen if row.protocol.endswith(UNSEEN)]
    print_table(as_table(figures.rows, percent=True, title="All items" if different else ""))
    if different:
        print_table(as_table(different, percent=True, title="Only items that no silo trained on"))
    if costs:
        print_table(as_table(costs, percent=True, title="What hashing costs"))


def report(
    run: Annotated[list[Path], argument("RUN", "Folders of trained runs. Several runs are compared.")],
    out: Annotated[Path | None, option("FILE", ABOUT["report --out"])] = None,
    examples: Annotated[bool, flag("Show example searches, which contain texts and pictures of the silos.")] = True,
) -> None:
    """Write the report of one or several runs as a single HTML file.

    The page shows the result in a sentence and a chart, example searches, curves, the silos and all figures. It loads
    nothing from elsewhere and does not run scripts.
    """
    from silohash.base.files import check_replaceable
    from silohash.report.gather import report_data
    from silohash.report.page import MARK, write_report
    from silohash.run.folder import Run

    found = [Run.open(folder) for folder in run]
    path = out or found[0].report_path
    check_replaceable(path, MARK)
    with spinner("Writing the report"):
        write_report(report_data(found, examples=examples), path)
    print_result(str(path))


def train_run(resolved: ResolvedConfig, folder: Path, *, tensorboard: bool = False, index: bool = True) -> Run:
    """Train and measure one run, write its report, and index its silos unless ``index`` is False."""
    from silohash.run.folder import Run
    from silohash.training import experiment

    run = Run(folder)
    run.check_free()
    with run.writing():
        print_status(f"Training into {folder}")
        listening = observers(run, tensorboard=tensorboard)
        run = experiment.train(resolved, folder, observers=listening, notify=print_status)
        finish(run)
        if index:
            index_silos(run)
    return run


def train_on(
    kit: Path,
    resolved: ResolvedConfig,
    folder: Path,
    silos: list[str],
    limits: tuple[float | None, int, int | None],
    *,
    tensorboard: bool = False,
) -> None:
    """Train a run with silos on other machines, and fetch its model. Without names, all connected silos take part.

    The limits are a round's deadline in seconds, its quorum, and the number of silos that must be there at the start.
    """
    require("nvflare", "Training on other machines")
    from silohash.run.folder import Run
    from silohash.training.engines.flare.jobs import train_in_federation
    from silohash.training.engines.port import Limits

    run = Run(folder)
    listening = observers(run, tensorboard=tensorboard)
    if not (run.trained_elsewhere and run.config.digest() == resolved.config.digest()):
        run.check_free()
    train_in_federation(kit, resolved, folder, silos, limits=Limits(*limits), observers=listening, notify=print_status)
    print_result(f"Run: {folder}")
    print_status(f"Each silo has the model, too. Next, at a silo: silohash index KIT/state/{folder.name}")


def index_silos(run: Run) -> None:
    """Build the index of every silo of a trained run."""
    from silohash.run.indexing import index_run
    from silohash.search.silos import released_fields

    with spinner("Indexing"):
        index_run(
            run, fields=released_fields(run.folder, [silo.name for silo in run.partition.silos]), notify=print_status
        )


def finish(run: Run) -> None:
    """Write the figures and the report of a trained run."""
    from silohash.report.finish import finish_run

    with spinner("Evaluating"):
        finish_run(run)


def observers(run: Run, *, tensorboard: bool) -> list[Observer]:
    """Return the observers of a training: the console, and TensorBoard if wanted."""
    from silohash.run.events import ConsoleProgress, TensorBoard

    everyone: list[Observer] = [ConsoleProgress(console())]
    if tensorboard:
        everyone.append(TensorBoard(run.folder / "tensorboard"))
    return everyone


def _print_results(finished: list[Run], *, as_json: bool) -> None:
    from silohash.report.headline import headline
    from silohash.report.tables import console as as_table
    from silohash.report.tables import read_results

    rows = [row for run in finished for row in read_results(run.results_path)]
    if as_json:
        print_json({"runs": [str(run.folder) for run in finished], "results": [asdict(row) for row in rows]})
        return
    if rows:
        print_result(headline(rows).sentence)
        print_table(as_table(rows, percent=True))
    for run in finished:
        print_result(f"Report: {run.report_path}")
        indexing = "" if run.index_folder.exists() else f"silohash index {run.folder}; "
        print_status(f"Next: {indexing}silohash search {run.folder} {_example_query(run)}")


def _example_query(run: Run) -> str:
    """Return the arguments with which `silohash search` gets a query that the model of a run takes."""
    given = run.model.modalities_of_queries(vectors=False)
    if "text" in given:
        return '"…"'
    if "image" in given:
        return "--image FILE"
    return "--vector FILE.npy" if "image" in run.model.featurizers else "--vector FILE.npy --vector-of text"


def seed_numbers(text: str) -> list[int]:
    """Return the seeds in a text such as ``0,1,2``.

    Raises:
        UserError: If one is not a whole number of at least 0, or is repeated.
    """
    try:
        numbers = [int(part) for part in text.split(",") if part.strip()]
    except ValueError as error:
        raise WrongForm(f'--seeds "{text}" is not a list of whole numbers. Write it as 0,1,2.') from error
    if len(set(numbers)) != len(numbers) or any(number < 0 for number in numbers):
        raise RepeatedValue(f'--seeds "{text}" repeats a seed or has one below 0. Give each seed once, as in 0,1,2.')
    return numbers
