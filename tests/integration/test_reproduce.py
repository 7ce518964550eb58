"""``reproduce``: every table and figure of the papers, from small files in the layouts of their data sets to its tables."""

from __future__ import annotations

import csv
import json
from functools import partial
from pathlib import Path

import pytest

from silohash.models import cnnf
from silohash.models.cnnf import CNNF
from silohash.report import finish
from silohash.study import execution
from silohash.study.jobs import Ending, Job
from silohash.study.papers import paper_tables
from silohash.study.plan import planned_runs
from silohash.study.reproduction import SMOKE_TITLE, missing_requirements, study_of, without_missing
from tests.paper_files import write_paper_data
from tests.runs import silohash
from tests.studies import InThisProcess
from tests.unit.models.test_cnnf import SMALL, small, write_mat

TABLES = {key: table for key, table in paper_tables(Path(__file__).parents[2] / "recipes").items() if table.study_path}
ONE_PER_PAPER = list({key.partition("/")[0]: key for key in reversed(TABLES)}.values())


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A folder per paper with its data sets and the weights of a narrow CNN-F."""
    found = {}
    for paper in {key.partition("/")[0] for key in TABLES}:
        studies = [table.study() for key, table in TABLES.items() if key.startswith(f"{paper}/")]
        sets = [values for one in studies for values in (one.base.set, *(c.set for a in one.axes for c in a.choices))]
        found[paper] = tmp_path_factory.mktemp(paper)
        names = {values["data.name"] for values in sets if "data.name" in values}
        write_paper_data(found[paper], names, regions=paper == "fedbignns")
        write_mat(found[paper] / "imagenet-vgg-f.mat", small())
    return found


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """Runs are done in this process, where CNN-F is narrow."""
    monkeypatch.delenv("SILOHASH_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(execution, "run_study", partial(execution.run_study, make_pool=InThisProcess))
    # The page of a run has tests of its own.
    monkeypatch.setattr(finish, "write_report", lambda data, path: path.write_text("", encoding="utf-8"))
    monkeypatch.setattr(cnnf, "CNNF", partial(CNNF, **SMALL))
    monkeypatch.setattr(cnnf, "WIDTH", SMALL["width"])
    return monkeypatch


@pytest.mark.slow
@pytest.mark.parametrize("key", TABLES)
def test_every_table_runs_to_its_end(
    key: str, folders: dict[str, Path], here: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    here.chdir(folders[key.partition("/")[0]])
    check(key, tmp_path / "out", [])


@pytest.mark.whole_run
@pytest.mark.parametrize("key", ONE_PER_PAPER)
def test_a_run_of_each_paper(key: str, folders: dict[str, Path], here: pytest.MonkeyPatch, tmp_path: Path) -> None:
    here.chdir(folders[key.partition("/")[0]])
    config = TABLES[key].study()
    check(
        key, tmp_path / "out", [f"{axis.name}={axis.choices[-1].name}" for axis in config.axes if axis.name != "bits"]
    )


@pytest.mark.whole_run
def test_an_interrupted_table_continues(folders: dict[str, Path], here: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Interrupted(InThisProcess):
        def do(self, job: Job) -> Ending:
            if "DLFFH_2" in job.name:
                raise KeyboardInterrupt
            return super().do(job)

    here.chdir(folders["dlffh"])
    out = tmp_path / "out"
    only = ("--only", "method=DLFFH", "--only", "method=DLFFH-2")
    command = ("reproduce", "dlffh/table3", "--smoke", "--out", out, *only)
    with here.context() as patch:
        patch.setattr(execution, "run_study", partial(execution.run_study.func, make_pool=Interrupted))
        assert silohash(*command).code == 130
    (first,) = out.rglob("results.csv")
    assert "-DLFFH-" in first.parent.name
    before = first.stat().st_mtime_ns
    said = silohash(*command)
    assert said.code == 0, said.err[-3000:]
    assert first.stat().st_mtime_ns == before
    text = (out / "tables" / "published.md").read_text(encoding="utf-8")
    assert "4 of 18 published figures have one of ours next to them." in text
    said = silohash("reproduce", "dlffh/table3", "--out", out, "--only", "method=DLFFH")
    assert (said.code, said.err.splitlines()[-1]) == (2, "  [run-changed]")


@pytest.mark.whole_run
def test_a_folder_of_other_files_is_left_alone(
    folders: dict[str, Path], here: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    here.chdir(folders["dlffh"])
    out = tmp_path / "mine"
    out.mkdir()
    (out / "letter.txt").write_text("Dear", encoding="utf-8")
    said = silohash("reproduce", "dlffh/table3", "--smoke", "--out", out)
    assert said.code == 2
    assert [path.name for path in out.iterdir()] == ["letter.txt"]


def check(key: str, out: Path, only: list[str]) -> None:
    """Run a table's smoke test, and check that each of its runs trained, and that its tables have their figures."""
    said = silohash("reproduce", key, "--smoke", "--out", out, *(part for one in only for part in ("--only", one)))
    assert said.code == 0, said.err[-3000:]
    assert SMOKE_TITLE in said.err
    config = study_of(TABLES[key], smoke=True)
    config = without_missing(config, missing_requirements(config))
    wanted = {f"{axis}={choice}" for axis, choice in (one.split("=") for one in only)}
    runs = [
        run for run in planned_runs(config, refuse_equal=False)
        if wanted <= {f"{axis}={choice}" for axis, choice in run.choices.items()}
    ]  # fmt: skip
    for run in runs:
        folder = out / "runs" / run.name
        rounds = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
        assert rounds
        with (folder / "results.csv").open() as stream:
            assert all(float(row["value"]) >= 0 for row in csv.DictReader(stream))
    text = (out / "tables" / "published.md").read_text(encoding="utf-8")
    assert SMOKE_TITLE in text
    assert "`federated.rounds`" in text or not TABLES[key].settings.get("federated.rounds")
    if TABLES[key].published:
        assert not text.partition(" published figures have one")[0].endswith("0 of")
    assert (out / "results.csv").stat().st_size > 100
