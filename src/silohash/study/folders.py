"""The run folders of a study before it starts: which runs are finished, can be resumed, or must be set aside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from silohash.base.errors import RunChanged, UserError
from silohash.base.files import explaining_disk_errors
from silohash.base.locks import locked
from silohash.base.types import Notify
from silohash.data.partitions.base import read_partition
from silohash.measure.evaluation import read_per_query
from silohash.report.tables import read_results
from silohash.run.config.sections import EXECUTION_KEYS, RunConfig
from silohash.run.folder import Run
from silohash.study.jobs import Job
from silohash.study.worker import LOCK_SECONDS
from silohash.training.checkpoint import has_checkpoint, load_checkpoint

State = Literal["new", "started", "finished"]
DIFFERENCES_SHOWN = 3
IGNORED_KEYS = tuple(f"train.{name}" for name in EXECUTION_KEYS)
"""Settings that do not change a run's results."""


def unfinished(jobs: Sequence[Job], notify: Notify, *, fresh: bool = False) -> list[Job]:
    """Return the runs to start or resume.

    A folder that cannot be resumed is set aside, and its run starts again.

    Raises:
        UserError: If the settings of a run have changed and ``fresh`` is false. No folder is moved in that case.
    """
    _wait_for_others(jobs)
    changed = {job.name: difference for job in jobs if (difference := changes(job))}
    if changed and not fresh:
        raise RunChanged(_refusal(changed))
    for job in jobs:
        reason = f"its settings have changed: {changed[job.name]}" if job.name in changed else damage(job)
        if reason:
            aside = set_aside(job.folder)
            notify(f"{job.name}: starts again; the old folder is now {aside.name} ({reason})")
    return [job for job in jobs if state_of(job) != "finished"]


def _wait_for_others(jobs: Sequence[Job]) -> None:
    """Wait for runs that a killed study left behind and that are still stopping."""
    for job in jobs:
        if job.folder.exists():
            with locked(job.folder, wait_seconds=LOCK_SECONDS):
                pass


def _refusal(changed: Mapping[str, str]) -> str:
    name, difference = next(iter(changed.items()))
    others = f" (and {len(changed) - 1} more)" if len(changed) > 1 else ""
    return (
        f"The run {name}{others} was started with other settings: {difference}. Restore the study, choose another --out, or "
        "run the changed runs again with --fresh."
    )


def state_of(job: Job) -> State:
    """Return the state of a run. A run whose figures cannot be read counts as started, and is evaluated again."""
    run = Run(job.folder)
    if not run.config_path.exists():
        return "new"
    if not job.figures:
        return "finished" if run.is_trained else "started"
    try:
        read_results(run.results_path)
        read_per_query(run.per_query_path)
    except UserError:
        return "started"
    return "finished" if run.report_path.exists() else "started"


def damage(job: Job) -> str:
    """Return why a run cannot be resumed; empty if it can be, or was never started."""
    run = Run(job.folder)
    if not run.config_path.exists():
        left = [path for path in (run.checkpoint, run.model_folder, run.results_path) if path.exists()]
        return f"it has {left[0].name} but no config.toml" if left else ""
    try:
        started = run.config
        read_partition(run.folder / "partition.json")
        run.rounds()
        if has_checkpoint(run.checkpoint) and not run.is_trained:
            load_checkpoint(run.checkpoint, started.digest())
    except UserError as error:
        return str(error)
    return ""


def changes(job: Job) -> str:
    """Return how a started run's settings differ from the study's; empty if they do not."""
    run = Run(job.folder)
    if not run.config_path.exists():
        return ""
    try:
        before = run.config
    except UserError:
        return ""
    return "" if before.located_digest() == job.config.located_digest() else difference(before, job.config)


def difference(before: RunConfig, now: RunConfig) -> str:
    """Return the settings in which two runs differ, in words."""
    old, new = _flat(before.to_json()), _flat(now.to_json())
    keys = [key for key in {**old, **new} if old.get(key) != new.get(key) and key not in IGNORED_KEYS]
    shown = [f"{key} was {_value(old, key)} and is now {_value(new, key)}" for key in keys[:DIFFERENCES_SHOWN]]
    more = len(keys) - len(shown)
    return "; ".join([*shown, f"and {more} more"] if more else shown)


def set_aside(folder: Path) -> Path:
    """Rename a folder to an unused name next to it, and return the new path."""
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


def _value(values: Mapping[str, Any], key: str) -> str:
    return repr(values[key]) if key in values else "not set"
