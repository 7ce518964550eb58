"""Results read from a study's folders: which runs count as finished, and damaged files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from silohash.base.errors import MissingFile
from silohash.base.files import write_arrays
from silohash.base.memory import write_peak
from silohash.report.tables import read_results, write_results
from silohash.run.folder import Run
from silohash.study.plan import PlannedRun, planned_runs
from silohash.study.results import collect, write_summary
from tests.reports import row
from tests.studies import study_of, tiny_study
from tests.synthetic_studies import METHODS, synthetic_study

TUNE = {"trials": 1, "of": ["method"], "parameters": {"train.batch": {"values": [8, 16]}}}


def finish(out: Path, planned: PlannedRun) -> Run:
    """Writes the files of a finished run."""
    run = Run(out / "runs" / planned.name)
    run.folder.mkdir(parents=True)
    run.config_path.write_text(planned.config.to_toml(), encoding="utf-8")
    write_results(run.results_path, [row(run=planned.name, seed=planned.seed)])
    write_arrays(run.per_query_path, {}, {"queries": "digest"})
    return run


def test_finished_runs_come_in_the_order_of_the_plan(tmp_path: Path) -> None:
    config = study_of(tiny_study(tmp_path / "archive"))
    planned = planned_runs(config)
    for number in (6, 1):
        finish(tmp_path, planned[number])
    found = collect(config, tmp_path)
    assert [run.folder.name for run in found.runs] == [planned[1].name, planned[6].name]
    assert found.missing == tuple(run.name for number, run in enumerate(planned) if number not in (1, 6))
    assert found.runs[0].peak_bytes is None
    write_peak(found.runs[1].folder / "memory.json", 9)
    assert [run.peak_bytes for run in collect(config, tmp_path).runs] == [None, 9]
    assert (found.runs[0].choices, found.runs[0].seed, found.runs[0].queries) == (planned[1].choices, 1, "digest")
    write_summary(found, tmp_path)
    assert [line.run for line in read_results(tmp_path / "results.csv")] == [planned[1].name, planned[6].name]


def test_the_table_chooses_the_database(tmp_path: Path) -> None:
    value = tiny_study(tmp_path / "archive")
    config = study_of(value)
    narrow = study_of({**value, "table": {**value["table"], "database": "unseen"}})
    run = finish(tmp_path, planned_runs(config)[0])
    with pytest.raises(MissingFile, match="silohash evaluate"):  # measured by an earlier version
        collect(narrow, tmp_path)
    write_results(run.unseen_results_path, [row(run="planned", value=0.25)])
    write_arrays(run.unseen_per_query_path, {"GG/t2i/mAP@all": np.array([0.25])}, {"queries": "digest"})
    (found,) = collect(narrow, tmp_path).runs
    assert ([line.value for line in found.rows], list(found.per_query)) == ([0.25], [("GG", "t2i", "mAP@all")])
    (every,) = collect(config, tmp_path).runs
    assert ([line.value for line in every.rows], list(every.per_query)) == ([row().value], [])


@pytest.mark.parametrize("name", ["config_path", "results_path", "per_query_path"])
def test_run_without_a_file_is_missing(name: str, tmp_path: Path) -> None:
    config = study_of(tiny_study(tmp_path / "archive"))
    run = finish(tmp_path, planned_runs(config)[0])
    assert len(collect(config, tmp_path).runs) == 1
    getattr(run, name).unlink()
    assert collect(config, tmp_path).runs == ()


def test_run_with_other_settings_or_a_damaged_config_is_missing(tmp_path: Path) -> None:
    config = study_of(tiny_study(tmp_path / "archive"))
    run = finish(tmp_path, planned_runs(config)[0])
    changed = study_of(tiny_study(tmp_path / "archive", set={"train.learning_rate": 0.5}))
    assert collect(changed, tmp_path).runs == ()
    run.config_path.write_text("[data")
    assert collect(config, tmp_path).runs == ()


def test_runs_of_a_tuned_study_count_only_with_the_tuned_parameters(tmp_path: Path) -> None:
    config = study_of(tiny_study(tmp_path / "archive", tune=TUNE))
    tuned = {"Local": {"train.batch": 8}}
    local = next(run for run in planned_runs(config, tuned) if run.choices["method"] == "Local")
    finish(tmp_path, local)
    assert collect(config, tmp_path).runs == ()
    (tmp_path / "tuning").mkdir()
    (tmp_path / "tuning" / "best.toml").write_text('[Local]\ntrial = 0\n[Local.set]\n"train.batch" = 8\n')
    found = collect(config, tmp_path)
    assert [run.folder.name for run in found.runs] == [local.name]
    assert found.tuned == tuned


def test_runs_with_some_choices_come_in_the_order_of_the_studys_seeds() -> None:
    study = synthetic_study(METHODS, seeds=(7, 2))
    mixed = replace(study, runs=tuple(reversed(study.runs)))
    found = mixed.runs_with({"method": "FedAvg", "task": "i2t"})
    assert [(run.choices["method"], run.seed) for run in found] == [("FedAvg", 7), ("FedAvg", 2)]
    assert mixed.runs_with({"task": "i2t"}) == []
