"""Search for the parameters of a study's methods, by their validation score alone.

Every search has the same number of trials. The first trial uses the parameters of the config. A trial trains on the
silos' training items, and its score is the best validation score of its rounds; the archive's queries are never used.
The trials of a search run one after the other, and each depends only on the seed, its number and the earlier trials, so
that a search that was interrupted ends as if it had not been.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomlkit

from silohash.base.errors import DependencyMissing, RunChanged, UserError, ValidationNeeded
from silohash.base.files import digest_json, explaining_disk_errors, write_text
from silohash.base.seeds import derive
from silohash.base.types import Notify
from silohash.report.tables import csv_table
from silohash.run.config.load import resolve
from silohash.run.config.sections import RunConfig
from silohash.run.folder import Run
from silohash.study.config import Choices, Parameter, StudyConfig, Tune
from silohash.study.jobs import Chain, Job, Outcome, set_aside, unfinished
from silohash.study.plan import folder_name, run_config
from silohash.study.results import BEST

if TYPE_CHECKING:
    import optuna

FOLDER = BEST.parent
DATABASE = FOLDER / "trials.sqlite"
TABLE = FOLDER / "trials.csv"
END = 0.05
"""Share of a range at each end. A best value within it suggests that a wider range has a better one."""

RANDOM_SHARE = 3
"""One of this many trials is drawn at random, before the others follow the scores."""


@dataclass(frozen=True)
class Search:
    """A parameter search for a combination of choices; all other axes are at their first choice.

    Its name is that of its folder, and the parameters, with their ranges or values, are those that the choices have.
    """

    name: str
    choices: Choices
    parameters: Mapping[str, Parameter]


def searches(config: StudyConfig, tune: Tune) -> list[Search]:
    """Return the searches of a study, after checking the configs at both ends of every parameter.

    Raises:
        UserError: If a config is wrong, or does not hold back items for validation.
    """
    found = []
    for combined in product(*(config.axis(name).choices for name in tune.of)):
        chosen = dict(zip(tune.of, (choice.name for choice in combined), strict=True))
        choices = {axis.name: chosen.get(axis.name, axis.choices[0].name) for axis in config.axes}
        parameters = tune.parameters_of(choices)
        search = Search(folder_name(chosen), choices, parameters)
        for end in (0, -1):
            at_end = {key: ends(parameter)[end] for key, parameter in parameters.items()}
            run = run_config(config, choices, config.seeds[0], at_end)
            if not run.evaluate.validation:
                raise ValidationNeeded(
                    f"{search.name}: tuning needs validation scores, but evaluate.validation is 0. Set it, for example "
                    '"evaluate.validation" = 0.1 in base.set.'
                )
        found.append(search)
    return found


def ends(parameter: Parameter) -> tuple[Any, Any]:
    """Return the first and the last value of a parameter; integers if both ends of its range are."""
    if parameter.values:
        return parameter.values[0], parameter.values[-1]
    low, high = parameter.low or 0.0, parameter.high or 0.0
    return (int(low), int(high)) if _is_integer(parameter) else (low, high)


class Tuning:
    """The searches of a study, whose database is to be closed.

    Raises:
        UserError: If optuna is not installed, or a search was started with other settings.
    """

    def __init__(self, config: StudyConfig, tune: Tune, out: Path, notify: Notify, *, fresh: bool = False) -> None:
        self.config, self.tune, self.out, self.notify, self.fresh = config, tune, out, notify, fresh
        self.searches = searches(config, tune)
        optuna = _optuna()
        from sqlalchemy.engine import URL

        with explaining_disk_errors(out / FOLDER):
            (out / FOLDER).mkdir(parents=True, exist_ok=True)
        url = URL.create("sqlite", database=str(out / DATABASE))
        self.storage = optuna.storages.RDBStorage(url.render_as_string())
        try:
            # Refuse searches that were started with other settings, or set them aside.
            for search in self.searches:
                parameters = {key: parameter.model_dump(mode="json") for key, parameter in search.parameters.items()}
                settings = digest_json([self._config(search, {}).located_digest(), parameters, self.tune.seed])
                before = self._study(search).user_attrs.get("settings", settings)
                if before != settings and not self.fresh:
                    raise RunChanged(
                        f"The search {search.name} was started with other settings or parameters. Restore the study, choose "
                        "another --out, or search again with --fresh."
                    )
                if before != settings:
                    if (folder := self.out / FOLDER / search.name).exists():
                        aside = set_aside(folder).name
                        self.notify(f"{search.name}: the search starts again; the old folder is now {aside}")
                    _optuna().delete_study(study_name=search.name, storage=self.storage)
                self._study(search).set_user_attr("settings", settings)
        except UserError:
            self.close()
            raise

    def close(self) -> None:
        """Close the database of trials."""
        self.storage.remove_session()
        self.storage.engine.dispose()

    def _config(self, search: Search, tuned: Mapping[str, Any]) -> RunConfig:
        return run_config(self.config, search.choices, self.config.seeds[0], tuned)

    def _study(self, search: Search, number: int = 0) -> optuna.Study:
        module = _optuna()
        # The sampler draws with NumPy's legacy generator, whose seed has 32 bits.
        seed = derive(self.tune.seed, f"tune/{search.name}", round=number) % (1 << 32)
        at_random = max(2, self.tune.trials // RANDOM_SHARE)
        study: optuna.Study = module.create_study(
            study_name=search.name, storage=self.storage, direction="maximize", load_if_exists=True,
            sampler=module.samplers.TPESampler(seed=seed, n_startup_trials=at_random),
        )  # fmt: skip
        return study

    def job(self, search: Search, number: int) -> Job:
        """Return a trial as a job. The same trial is returned however often this is called."""
        study = self._study(search, number)
        if not study.trials:
            study.enqueue_trial(self._untuned(search))
        module = _optuna().trial
        started = [trial for trial in study.trials if trial.state != module.TrialState.WAITING]
        # optuna 5 has no public way to continue a trial that was started by another process.
        trial = module.Trial(study, started[number]._trial_id) if number < len(started) else study.ask()
        values = {key: suggest(trial, key, parameter) for key, parameter in search.parameters.items()}
        folder = self.out / FOLDER / search.name / f"trial-{number}"
        return Job(f"{search.name}, trial {number}", folder, self._config(search, values), figures=False)

    def _untuned(self, search: Search) -> dict[str, Any]:
        """Return the config's values of a search's parameters, except those outside their range."""
        resolved = resolve(self._config(search, {}))
        values = {key: resolved.value_of(key) for key in search.parameters}
        return {key: value for key, value in values.items() if is_allowed(search.parameters[key], value)}

    def chain(self, search: Search) -> Chain:
        """Yield the unfinished trials of a search, one after the other."""
        for number in range(self.tune.trials):
            trials = self._study(search).trials
            if number < len(trials) and trials[number].state.is_finished():
                continue
            job = self.job(search, number)
            outcome = (yield job) if unfinished([job], self.notify, fresh=self.fresh) else Outcome(job, 0, "", 0.0)
            rounds = Run(job.folder).rounds()[: job.config.federated.rounds] if outcome.code == 0 else []
            score = max((record.validation for record in rounds if record.validation is not None), default=None)
            if score is None:
                self._study(search).tell(number, state=_optuna().trial.TrialState.FAIL)
            else:
                self._study(search).tell(number, score)
                # A trial that has its score does not need its parameters, which take most of the space of a study.
                for folder in (Run(job.folder).checkpoint, Run(job.folder).model_folder):
                    shutil.rmtree(folder, ignore_errors=True)

    def left(self, chosen: Sequence[Search]) -> list[RunConfig]:
        """Return one config per unfinished trial of the chosen searches, with the parameters still untuned."""
        found = []
        for search in chosen:
            finished = sum(trial.state.is_finished() for trial in self._study(search).trials[: self.tune.trials])
            found += [self._config(search, {})] * (self.tune.trials - finished)
        return found

    def best(self) -> dict[str, dict[str, Any]]:
        """Return the best parameters of each search, and write them to ``best.toml`` and all trials to ``trials.csv``.

        A search whose trials all failed is left out.
        """
        found: dict[str, dict[str, Any]] = {}
        lines: list[list[object]] = [["search", "trial", "state", "validation", *self.tune.parameters]]
        for search in self.searches:
            trials = self._study(search).trials[: self.tune.trials]
            for trial in trials:
                values = [trial.params.get(key, "") for key in self.tune.parameters]
                lines.append([search.name, trial.number, trial.state.name.lower(), trial.value, *values])
            scored = [trial for trial in trials if trial.value is not None]
            if scored:
                # Of equal scores the earliest counts, so that further trials do not change the choice by themselves.
                best = max(scored, key=lambda trial: (trial.value or 0.0, -trial.number))
                found[search.name] = {
                    "trial": best.number, "trials": len(trials), "validation": best.value, "set": dict(best.params)
                }  # fmt: skip
                self._notify_of_ends(search, best.params)
            elif trials and all(trial.state.is_finished() for trial in trials):
                self.notify(f"{search.name}: every trial failed; their logs are in {self.out / FOLDER / search.name}")
        write_text(self.out / TABLE, csv_table(lines))
        write_text(self.out / BEST, tomlkit.dumps(found))
        return {name: search["set"] for name, search in found.items()}

    def _notify_of_ends(self, search: Search, best: Mapping[str, Any]) -> None:
        for key, value in best.items():
            if is_at_end(search.parameters[key], value):
                self.notify(
                    f"{search.name}: the best {key} = {value:g} is at an end of its range. Consider a wider one."
                )


def is_allowed(parameter: Parameter, value: object) -> bool:
    """Return whether a value is within the range or among the values of a parameter."""
    if parameter.values:
        return value in parameter.values
    low, high = ends(parameter)
    return isinstance(value, int | float) and not isinstance(value, bool) and bool(low <= value <= high)


def is_at_end(parameter: Parameter, value: object) -> bool:
    """Return whether a number lies within 5 % of a range's length from one of its ends, or is the first or last of a list.

    The length of a range is measured as its values are drawn, in the logarithm if ``log`` is set. Lists of fewer than three
    values, or of values other than numbers, have no ends.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    if parameter.values:
        return len(parameter.values) > 2 and value in (min(parameter.values), max(parameter.values))
    scale = math.log if parameter.log else float
    low, high, found = (scale(number) for number in (*ends(parameter), value))
    return high > low and not low + END * (high - low) < found < high - END * (high - low)


def suggest(trial: optuna.Trial, key: str, parameter: Parameter) -> Any:  # noqa: ANN401  as the config has it
    """Return a trial's value of a parameter."""
    if parameter.values:
        return trial.suggest_categorical(key, parameter.values)
    low, high = ends(parameter)
    if _is_integer(parameter):
        return trial.suggest_int(key, low, high, log=parameter.log)
    return trial.suggest_float(key, low, high, log=parameter.log)


def _is_integer(parameter: Parameter) -> bool:
    return isinstance(parameter.low, int) and isinstance(parameter.high, int)


def _optuna() -> Any:  # noqa: ANN401  a module
    try:
        import optuna
    except ImportError as error:
        raise DependencyMissing(
            "[tune] needs optuna, which is not installed. Run: pip install 'silohash[tune]'"
        ) from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
