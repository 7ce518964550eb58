"""The end of a training: which files it leaves, and that measuring again leaves the same ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from silohash.report import finish
from silohash.report.finish import finish_run, measure_run
from silohash.report.tables import read_results
from silohash.runtime.run import Run
from tests import runs

FILES = ("results_path", "curves_path", "per_query_path", "examples_path", "card_path", "report_path")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("finish")
    trained = runs.train(runs.write_archive(folder / "archive"), folder / "run", federated={"rounds": 1})
    finish_run(trained)
    return trained


def test_every_file_is_written(run: Run) -> None:
    assert all(getattr(run, name).stat().st_size for name in FILES)
    assert "Example searches" in run.report_path.read_text(encoding="utf-8")


def test_measuring_again_gives_the_same_files(run: Run) -> None:
    before = {name: getattr(run, name).read_bytes() for name in FILES}
    for name in FILES:
        getattr(run, name).unlink()
    figures = measure_run(Run(run.folder))
    assert figures.rows == read_results(run.results_path)
    assert not run.report_path.exists()
    finish_run(Run(run.folder))
    assert {name: getattr(run, name).read_bytes() for name in FILES} == before


def test_run_is_complete_only_once_its_results_are_there(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model").symlink_to(run.model_folder)
    for path in (run.config_path, run.folder / "partition.json", run.folder / "environment.json", run.rounds_path):
        (tmp_path / path.name).symlink_to(path)

    def full_disk(*_: object) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(finish, "write_examples", full_disk)
    with pytest.raises(OSError, match="the disk is full"):
        measure_run(Run(tmp_path))
    assert Run(tmp_path).curves_path.exists()
    assert not Run(tmp_path).results_path.exists()
