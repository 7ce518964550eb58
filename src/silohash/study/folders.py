"""What the runs' folders of a study hold before it starts: what is finished, what goes on, what is in the way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from silohash.data.partition.base import Partition
from silohash.files import explaining_disk_errors, read_json
from silohash.report.tables import read_results
from silohash.runtime.checkpoint import has_checkpoint, load_checkpoint
from silohash.runtime.config import DECIDING_NOTHING, RunConfig
from silohash.runtime.per_query import read_per_query
from silohash.runtime.run import Run
from silohash.study.child import LOCK_SECONDS
from silohash.study.locks import locked
from silohash.study.pool import Job
from silohash.types import Notify, UserError

State = Literal["new", "begun", "finished"]
DIFFERENCES_SHOWN = 3
UNDECIDED = tuple(f"train.{name}" for name in DECIDING_NOTHING)


def unfinished(jobs: Sequence[Job], notify: Notify, *, fresh: bool = False) -> list[Job]:
    """Returns the runs that are to be started or gone on with.

    A folder that cannot be gone on with is set aside and the run begun anew.

    Args:
        jobs: all runs.
        notify: told what is set aside.
        fresh: whether runs whose settings have changed since are set aside as well.

    Raises:
        UserError: if a folder holds a run of other settings, and they are not to be set aside; nothing is moved then.
    """
    for job in jobs:
        if job.folder.exists():  # a run that was left behind by a killed study has to end first
            with locked(job.folder, f"Another process is at work in {job.folder}.", wait_seconds=LOCK_SECONDS):
                pass
    changed = {job.name: difference for job in jobs if (difference := changes(job))}
    if changed and not fresh:
        name, difference = next(iter(changed.items()))
        others = f" (and {len(changed) - 1} more)" if len(changed) > 1 else ""
        raise UserError(
            f"The run {name}{others} was started with other settings: {difference}. Put the study back as it was, give "
            "another --out, or run what has changed anew: --fresh."
        )
    left = []
    for job in jobs:
        reason = f"its settings have changed: {changed[job.name]}" if job.name in changed else damage(job)
        if reason:
            aside = set_aside(job.folder)
            notify(f"{job.name}: set aside as {aside.name} and begun anew ({reason})")
        if state_of(job) != "finished":
            left.append(job)
    return left


def state_of(job: Job) -> State:
    """Returns how far a run is; figures that cannot be read are made anew from what was trained."""
    run = Run(job.folder)
    if not run.config_path.exists():
        return "new"
    if not job.figures:
        rounds = job.config.federated.rounds
        done = len(run.rounds()) >= rounds and (run.model_folder / "model.json").exists()
        return "finished" if done else "begun"
    try:
        read_results(run.results_path)
        read_per_query(run.per_query_path)
    except UserError:
        return "begun"
    return "finished" if run.report_path.exists() else "begun"


def damage(job: Job) -> str:
    """Returns why a run cannot be gone on with; an empty string if it can, or nothing was begun."""
    run = Run(job.folder)
    if not run.config_path.exists():
        left = [path for path in (run.checkpoint, run.model_folder, run.results_path) if path.exists()]
        return f"it has no config.toml beside {left[0].name}" if left else ""
    try:
        _ = run.config
        Partition.from_json(read_json(run.folder / "partition.json"))
        run.rounds()
        if has_checkpoint(run.checkpoint):
            load_checkpoint(run.checkpoint, run.config.digest())
    except (UserError, KeyError, TypeError, ValueError) as error:
        return str(error)
    return ""


def changes(job: Job) -> str:
    """Returns where the settings of a run that was begun differ from those that it should have; an empty string if not."""
    run = Run(job.folder)
    if not run.config_path.exists():
        return ""
    try:
        begun = run.config
    except UserError:
        return ""
    return "" if begun.digest() == job.config.digest() else difference(begun, job.config)


def difference(before: RunConfig, now: RunConfig) -> str:
    """Returns in words which settings of two runs differ."""
    old, new = _flat(before.to_json()), _flat(now.to_json())
    keys = [key for key in {**old, **new} if old.get(key) != new.get(key) and key not in UNDECIDED]
    shown = [f"{key} was {_word(old, key)} and is {_word(new, key)}" for key in keys[:DIFFERENCES_SHOWN]]
    return "; ".join(shown) + (f"; and {len(keys) - DIFFERENCES_SHOWN} more" if len(keys) > DIFFERENCES_SHOWN else "")


def set_aside(folder: Path) -> Path:
    """Renames a folder to a name beside it that is free, and returns that."""
    number = 1
    while (aside := folder.with_name(f"{folder.name}.aside-{number}")).exists():
        number += 1
    with explaining_disk_errors(folder):
        folder.rename(aside)
    return aside


def _flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, inner in value.items():
        flat |= _flat(inner, f"{prefix}{name}.") if isinstance(inner, Mapping) else {f"{prefix}{name}": inner}
    return flat


def _word(values: Mapping[str, Any], key: str) -> str:
    return repr(values[key]) if key in values else "not set"
