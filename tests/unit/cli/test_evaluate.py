"""``evaluate`` and ``report``: what they print, which files they change, and which they leave alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from silohash.report.finish import finish_run
from silohash.run.folder import Run
from tests.runs import silohash, train, write_archive

pytestmark = pytest.mark.whole_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("evaluate")
    trained = train(write_archive(folder / "archive", text="words"), folder / "out", federated={"rounds": 1})
    finish_run(trained)
    return trained


def test_evaluate_with_options_leaves_the_figures_alone(run: Run) -> None:
    before = run.results_path.read_bytes(), run.examples_path.stat().st_mtime_ns
    said = silohash("evaluate", run.folder, "--measure", "P@3", "--evaluation", "GL", "--task", "i2i", "--json")
    assert said.code == 0, said.err
    assert [(r["evaluation"], r["task"], r["measure"]) for r in said.document()["results"]] == [("GL", "i2i", "P@3")]
    assert (run.results_path.read_bytes(), run.examples_path.stat().st_mtime_ns) == before


def test_evaluate_without_options_writes_the_figures_again(run: Run) -> None:
    before = run.results_path.read_bytes(), run.examples_path.read_bytes()
    run.results_path.unlink()
    run.examples_path.unlink()
    said = silohash("evaluate", run.folder)
    assert said.code == 0, said.err
    assert "mAP@all" in said.out
    assert (run.results_path.read_bytes(), run.examples_path.read_bytes()) == before


def test_ignored_labels_are_named_in_the_protocol(run: Run) -> None:
    rows = silohash("evaluate", run.folder, "--ignore-label", "parrot", "--json").document()["results"]
    assert all(row["protocol"].endswith(", without parrot") for row in rows)
    refused = silohash("evaluate", run.folder, "--ignore-label", "parot")
    assert refused.code == 2
    assert "parrot" in refused.err


def test_report_of_several_runs(run: Run, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    said = silohash("report", run.folder, run.folder, "--out", page)
    assert said.code == 0, said.err
    assert said.out.strip() == str(page)
    assert 'id="comparison"' in page.read_text(encoding="utf-8")


def test_report_needs_no_model(run: Run, tmp_path: Path) -> None:
    for path in run.folder.iterdir():
        if path != run.model_folder:
            (tmp_path / path.name).symlink_to(path)
    assert silohash("report", tmp_path, "--out", tmp_path / "page.html").code == 0
    assert "Example searches" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_report_without_examples_holds_no_item(run: Run, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert silohash("report", run.folder, "--no-examples", "--out", page).code == 0
    text = page.read_text(encoding="utf-8")
    assert "Example searches" not in text
    captions = [run.archive.caption(int(row)) for row in run.archive.split("query")]
    assert not [caption for caption in captions if caption in text]


def test_report_is_written_into_the_first_run(run: Run) -> None:
    run.report_path.unlink(missing_ok=True)
    assert silohash("report", run.folder).out.strip() == str(run.report_path)
    assert run.report_path.exists()
