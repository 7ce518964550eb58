"""The end of a training: which files it leaves, and that measuring again leaves the same ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from silohash.features.given import GivenFeatures
from silohash.measure import costs
from silohash.report import finish
from silohash.report.finish import finish_run, measure_run
from silohash.report.tables import read_results
from silohash.run.folder import Run
from tests import runs

pytestmark = pytest.mark.whole_run

FILES = (
    "results_path", "curves_path", "per_query_path", "unseen_results_path", "unseen_per_query_path", "examples_path",
    "card_path", "report_path",
)  # fmt: skip


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


@pytest.mark.parametrize("most", [0, 100_000])
def test_a_run_of_a_published_network_is_compared_if_its_items_are_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(costs, "MOST_PAIRS", most)
    monkeypatch.setattr(costs, "NetworkFeatures", GivenFeatures)  # a network in place of the vectors that are given
    monkeypatch.setattr(finish, "costs_of", lambda run, settings: [])
    trained = runs.train(runs.write_archive(tmp_path / "archive"), tmp_path / "run", federated={"rounds": 1})
    measure_run(trained)
    assert trained.costs_path.exists() == (most > 0)


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


@pytest.fixture(scope="module")
def without_queries(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A finished run whose archive has no queries, and a column whose name looks misspelled."""
    folder = tmp_path_factory.mktemp("unmeasured")
    archive = runs.write_archive(folder / "archive", count=48)
    table = (archive / "metadata.csv").read_text(encoding="utf-8").replace(",query,", ",train,")
    (archive / "metadata.csv").write_text(table.replace("id,text,", "id,caption,"), encoding="utf-8")
    trained = runs.train(archive, folder / "run", federated={"rounds": 2})
    finish_run(trained)
    return Run(trained.folder)


def test_an_archive_without_queries_gives_a_complete_run_without_figures(without_queries: Run) -> None:
    run = without_queries
    assert all(getattr(run, name).stat().st_size for name in FILES if name != "examples_path")
    assert not run.examples_path.exists()
    assert read_results(run.results_path) == []
    assert [record.validation is not None for record in run.rounds()] == [True, True]
    page, card = (path.read_text(encoding="utf-8") for path in (run.report_path, run.card_path))
    assert "<h1>This model was trained without being measured.</h1>" in page
    assert "All figures" not in page
    for text in (page, card):
        assert "does not have items in the split" in text
    assert "not measured" in page
    assert "Figures are in percent" not in card
    assert "Protocol: " not in card
    assert "The model is from round" in card


def test_warnings_about_the_archive_are_in_the_report(without_queries: Run) -> None:
    page = without_queries.report_path.read_text(encoding="utf-8")
    assert "<b>Archive.</b> The column &#34;caption&#34; is not used (did you mean &#34;text&#34;?)." in page


def test_measuring_without_queries_again_leaves_the_same_files(without_queries: Run) -> None:
    before = without_queries.card_path.read_bytes()
    figures = measure_run(Run(without_queries.folder))
    assert (figures.rows, figures.curves) == ([], [])
    assert without_queries.card_path.read_bytes() == before
