"""``compare`` and ``reproduce`` on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from silohash.study import papers
from tests.runs import silohash, write_archive, write_config

RECIPES = Path(__file__).parents[3] / "recipes"
SHOWN = {"fedcafe/table2", "dlffh/table3"}
QUICK = {"federated": {"rounds": 1, "local_epochs": 1}}


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_archive(tmp_path_factory.mktemp("data") / "archive")


@pytest.fixture(scope="module")
def runs(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("runs")
    config = write_config(folder / "run.toml", archive, **QUICK)
    found = [folder / f"bits-{bits}" for bits in (8, 16)]
    for bits, out in zip((8, 16), found, strict=True):
        said = silohash("train", config, "--out", out, "--set", f"local.bits={bits}")
        assert said.code == 0, said
    return found


@pytest.mark.whole_run
def test_runs_are_compared(runs: list[Path]) -> None:
    said = silohash("compare", *runs)
    assert said.code == 0, said
    assert "bits-8" in said.out
    found = silohash("compare", *runs, "--measure", "mAP@all", "--json").document()["differences"]
    assert {(d["evaluation"], d["task"], d["measure"]) for d in found} == {
        (evaluation, task, "mAP@all") for evaluation in ("GG", "XS") for task in ("i2t", "t2i")
    }
    for difference in found:
        assert difference["low"] <= difference["difference"] <= difference["high"]
        assert difference["difference"] == pytest.approx(difference["first_mean"] - difference["second_mean"])


@pytest.mark.whole_run
def test_a_run_is_not_compared_with_itself_alone(runs: list[Path]) -> None:
    said = silohash("compare", runs[0])
    assert said.code == 2
    assert "nothing to compare it with" in said.err


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder without any data."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SILOHASH_DATA", raising=False)
    return tmp_path


def test_papers_tables_are_listed(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    some = {key: table for key, table in papers.paper_tables(RECIPES).items() if key in SHOWN}
    monkeypatch.setattr(papers, "paper_tables", lambda recipes: some)
    listed = silohash("reproduce", "--list", "--json").document()["tables"]
    by_key = {table["key"]: table for table in listed}
    assert by_key["fedcafe/table2"]["needs"]
    assert by_key["fedcafe/table2"]["status"] in {"missing", "open"}
    assert list(empty.iterdir()) == []
    said = silohash("reproduce")
    assert said.code == 0
    assert set(by_key) == SHOWN
    assert all(f"{key}: " in said.out for key in SHOWN)
    said = silohash("reproduce", "fedcafe/table2", "--list")
    assert "mirflickr25k-iall.mat" in said.out


def test_missing_files_are_named(empty: Path) -> None:
    said = silohash("reproduce", "fedcafe/table2", "--smoke")
    assert said.code == 2
    assert "The files of mirflickr25k are missing" in said.err
    assert list(empty.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        (("fedcafe/tabel2",), "[unknown-name]"),
        (("fedcafe/table2", "--all"), "[conflicting-options]"),
        (("fedcafe/table2", "--set", "x"), "[wrong-form]"),
    ],
)
def test_wrong_options_are_refused(empty: Path, arguments: tuple[str, ...], key: str) -> None:
    said = silohash("reproduce", *arguments)
    assert said.code == 2
    assert said.err.splitlines()[-1].strip() == key
    assert list(empty.iterdir()) == []
