"""``compare`` and ``reproduce`` on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runs import silohash, write_archive, write_config

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


def test_papers_tables_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SILOHASH_DATA", raising=False)
    listed = silohash("reproduce", "--list", "--json").document()["tables"]
    assert "fedcafe/table2" in {table["key"] for table in listed}
    assert all(table["needs"] and table["differs"] for table in listed)
    said = silohash("reproduce", "fedcafe/table2", "--smoke")
    assert said.code == 2
    assert "The files of mirflickr25k are missing" in said.err
    assert list(tmp_path.iterdir()) == []
