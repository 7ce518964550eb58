"""A search for the parameters of a study's methods, on the validation figure alone.

Every search has the same number of trials, of which the first takes what the config says without tuning. A trial trains on
the silos' training items and is judged by the best validation score of its rounds: the archive's queries are never asked.
Trials of one search follow each other, and what a trial draws depends on the seed and its number only, so that a search that
was stopped ends as if it had not been.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from silohash.files import digest_json, explaining_disk_errors, write_text
from silohash.runtime.config import RunConfig, to_toml
from silohash.runtime.run import Run
from silohash.seeds import derive
from silohash.study.cells import name_of, run_config
from silohash.study.folders import set_aside, unfinished
from silohash.study.grid import Choices, Parameter, StudyConfig, Tune
from silohash.study.pool import Chain, Job, Outcome
from silohash.study.results import BEST
from silohash.types import Notify, UserError

if TYPE_CHECKING:
    import optuna

FOLDER = BEST.parent
DATABASE = FOLDER / "trials.sqlite"
TABLE = FOLDER / "trials.csv"
RANDOM_SHARE = 3
"""One trial in so many is drawn at random before the others follow what was found."""


@dataclass(frozen=True)
class Search:
    """One search: the choices that it is made for, all others at their first.

    Attributes:
        name: of the choices that it is made for; of its folder too.
        choices: of every axis.
        parameters: dotted key -> what it may be, of those that the choices have.
    """

    name: str
    choices: Choices
    parameters: Mapping[str, Parameter]


def searches(config: StudyConfig, tune: Tune) -> list[Search]:
    """Returns a study's searches; the configs at both ends of every parameter are checked.

    Raises:
        UserError: if a config is wrong, or holds no items back for validation.
    """
    found = []
    for combined in product(*(config.axis(name).choices for name in tune.of)):
        chosen = dict(zip(tune.of, (choice.name for choice in combined), strict=True))
        choices = {axis.name: chosen.get(axis.name, axis.choices[0].name) for axis in config.axes}
        parameters = tune.parameters_of(choices)
        search = Search(name_of(chosen), choices, parameters)
        for end in (0, -1):
            at_end = {key: ends(parameter)[end] for key, parameter in parameters.items()}
            run = run_config(config, choices, config.seeds[0], at_end)
            if not run.evaluate.validation:
                raise UserError(
                    f"{search.name}: tuning looks at validation figures, and evaluate.validation is 0. Set it, for example "
                    '"evaluate.validation" = 0.1 in base.set.'
                )
        found.append(search)
    return found


def ends(parameter: Parameter) -> tuple[Any, Any]:
    """Returns a parameter's first and last value; whole numbers where both ends are."""
    if parameter.values:
        return parameter.values[0], parameter.values[-1]
    low, high = parameter.low or 0.0, parameter.high or 0.0
    return (int(low), int(high)) if _whole(parameter) else (low, high)


class Tuning:
    """The searches of a study in its folder; to be closed after use, as a context.

    Args:
        config: the study.
        tune: its table.
        out: the study's folder.
        notify: told what is set aside.
        fresh: whether a search whose settings have changed since is begun anew.

    Raises:
        UserError: if optuna is not installed, or a search was begun with other settings.
    """

    def __init__(self, config: StudyConfig, tune: Tune, out: Path, notify: Notify, *, fresh: bool = False) -> None:
        self.config, self.tune, self.out, self.notify, self.fresh = config, tune, out, notify, fresh
        self.searches = searches(config, tune)
        optuna = _optuna()
        with explaining_disk_errors(out / FOLDER):
            (out / FOLDER).mkdir(parents=True, exist_ok=True)
        self.storage = optuna.storages.RDBStorage(_url(out / DATABASE))
        try:
            self._check_settings()
        except UserError:
            self.close()
            raise

    def __enter__(self) -> Tuning:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the database of trials."""
        self.storage.remove_session()
        self.storage.engine.dispose()

    def _check_settings(self) -> None:
        """Refuses searches that were begun with other settings, or sets them aside."""
        for search in self.searches:
            settings = self._settings(search)
            begun = self._study(search).user_attrs.get("settings", settings)
            if begun != settings and not self.fresh:
                raise UserError(
                    f"The search {search.name} was begun with other settings or parameters. Put the study back as it was, "
                    "give another --out, or search anew: --fresh."
                )
            if begun != settings:
                self._forget(search)
            self._study(search).set_user_attr("settings", settings)

    def _forget(self, search: Search) -> None:
        if (folder := self.out / FOLDER / search.name).exists():
            self.notify(f"{search.name}: search set aside as {set_aside(folder).name} and begun anew")
        _optuna().delete_study(study_name=search.name, storage=self.storage)

    def _settings(self, search: Search) -> str:
        config = run_config(self.config, search.choices, self.config.seeds[0], {})
        parameters = {key: parameter.model_dump(mode="json") for key, parameter in search.parameters.items()}
        return digest_json([config.digest(), parameters, self.tune.seed])

    def _study(self, search: Search, number: int = 0) -> optuna.Study:
        """Returns a search in the database, with the draws of a trial."""
        module = _optuna()
        seed = derive(self.tune.seed, f"tune/{search.name}", round=number) % (1 << 32)
        at_random = max(2, self.tune.trials // RANDOM_SHARE)
        study: optuna.Study = module.create_study(
            study_name=search.name, storage=self.storage, direction="maximize", load_if_exists=True,
            sampler=module.samplers.TPESampler(seed=seed, n_startup_trials=at_random),
        )  # fmt: skip
        return study

    def job(self, search: Search, number: int) -> Job:
        """Returns a trial as a run; the same however often it is asked for."""
        study = self._study(search, number)
        if not study.trials:
            study.enqueue_trial(self._untuned(search))
        asked = [trial for trial in study.trials if trial.state != _optuna().trial.TrialState.WAITING]
        trial = _again(study, asked[number]) if number < len(asked) else study.ask()
        values = {key: suggest(trial, key, parameter) for key, parameter in search.parameters.items()}
        config = run_config(self.config, search.choices, self.config.seeds[0], values)
        folder = self.out / FOLDER / search.name / f"trial-{number}"
        return Job(f"{search.name}, trial {number}", folder, config, figures=False)

    def _untuned(self, search: Search) -> dict[str, Any]:
        """Returns what the config says of a search's parameters, where tuning may choose it."""
        config = run_config(self.config, search.choices, self.config.seeds[0], {})
        values = {key: config.value_of(key) for key in search.parameters}
        return {key: value for key, value in values.items() if may_be(search.parameters[key], value)}

    def chain(self, search: Search) -> Chain:
        """Yields the trials that are not judged yet, one after the other."""
        for number in range(self.tune.trials):
            trials = self._study(search).trials
            if number < len(trials) and trials[number].state.is_finished():
                continue
            job = self.job(search, number)
            outcome = (yield job) if unfinished([job], self.notify, fresh=self.fresh) else Outcome(job, 0, "", 0.0)
            score = validation_figure(job.folder, job.config) if outcome.code == 0 else None
            if score is None:
                self._study(search).tell(number, state=_optuna().trial.TrialState.FAIL)
            else:
                self._study(search).tell(number, score)

    def left(self, chosen: Sequence[Search]) -> list[RunConfig]:
        """Returns a config for each trial of some searches that is not judged yet; its parameters are still open."""
        found = []
        for search in chosen:
            judged = sum(trial.state.is_finished() for trial in self._study(search).trials[: self.tune.trials])
            found += [run_config(self.config, search.choices, self.config.seeds[0], {})] * (self.tune.trials - judged)
        return found

    def best(self) -> dict[str, dict[str, Any]]:
        """Returns each search's best parameters, and writes them to ``best.toml`` and all trials to ``trials.csv``.

        A search of which every trial failed has none.
        """
        found: dict[str, dict[str, Any]] = {}
        lines: list[list[object]] = [["search", "trial", "state", "validation", *self.tune.parameters]]
        for search in self.searches:
            trials = self._study(search).trials[: self.tune.trials]
            judged = [trial for trial in trials if trial.value is not None]
            for trial in trials:
                values = [trial.params.get(key, "") for key in self.tune.parameters]
                lines.append([search.name, trial.number, trial.state.name.lower(), trial.value, *values])
            if not judged:
                if trials:
                    self.notify(
                        f"{search.name}: every trial failed; {self.out / FOLDER / search.name} holds their logs"
                    )
                continue
            best = max(judged, key=lambda trial: (trial.value or 0.0, -trial.number))
            found[search.name] = {
                "trial": best.number, "trials": len(trials), "validation": best.value, "set": dict(best.params)
            }  # fmt: skip
        stream = io.StringIO(newline="")
        csv.writer(stream, lineterminator="\n").writerows(lines)
        write_text(self.out / TABLE, stream.getvalue())
        write_text(self.out / BEST, to_toml(found))
        return {name: search["set"] for name, search in found.items()}


def may_be(parameter: Parameter, value: object) -> bool:
    """Tells whether a parameter may take a value."""
    if parameter.values:
        return value in parameter.values
    low, high = ends(parameter)
    return isinstance(value, int | float) and not isinstance(value, bool) and bool(low <= value <= high)


def suggest(trial: optuna.Trial, key: str, parameter: Parameter) -> Any:  # noqa: ANN401  as the config has it
    """Returns what a trial takes for a parameter."""
    if parameter.values:
        return trial.suggest_categorical(key, parameter.values)
    low, high = ends(parameter)
    if _whole(parameter):
        return trial.suggest_int(key, low, high, log=parameter.log)
    return trial.suggest_float(key, low, high, log=parameter.log)


def validation_figure(folder: Path, config: RunConfig) -> float | None:
    """Returns the best validation score of a run's rounds; None if there is none."""
    records = Run(folder).rounds()[: config.federated.rounds]
    return max((record.validation for record in records if record.validation is not None), default=None)


def _again(study: optuna.Study, trial: optuna.trial.FrozenTrial) -> optuna.Trial:
    """Returns a trial that was asked for before, as if it had just been: what it was given already, it keeps."""
    known: optuna.Trial = _optuna().trial.Trial(study, trial._trial_id)
    return known


def _whole(parameter: Parameter) -> bool:
    return isinstance(parameter.low, int) and isinstance(parameter.high, int)


def _optuna() -> Any:  # noqa: ANN401  a module
    try:
        import optuna
    except ImportError as error:
        raise UserError("[tune] needs optuna, which is not installed. Run: pip install 'silohash[tune]'") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def _url(path: Path) -> str:
    from sqlalchemy.engine import URL

    return URL.create("sqlite", database=str(path)).render_as_string()
