"""Every command works on a run over an archive without labels, or states why not."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest
import tomlkit

from silohash.evaluate.measures import PAIR_MEASURES
from tests.runs import silohash, write_archive, write_config

pytestmark = pytest.mark.whole_run


def said(*arguments: object) -> str:
    """Return the output of a command that must succeed."""
    done = silohash(*arguments)
    assert done.code == 0, (arguments, done.err)
    return done.out + done.err


@pytest.mark.whole_run
def test_every_command_works_without_labels(tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "archive", count=60, labeled=False, text="words")
    settings = {"local": {"name": "ucch"}, "federated": {"rounds": 2, "local_epochs": 1}}
    config = write_config(tmp_path / "run.toml", archive, **settings)
    run, other = tmp_path / "run", tmp_path / "other"
    trained = said("train", config, "--out", run)
    assert "has no labels, so mAP@all, P@5 cannot be measured" in trained
    assert "finds the right partner among the first 10 results" in trained
    said("train", config, "--out", other, "--set", "federated.name=local")
    with (run / "results.csv").open(encoding="utf-8", newline="") as table:
        assert {row["measure"] for row in csv.DictReader(table)} == set(PAIR_MEASURES)
    figures = silohash("evaluate", run, "--json").document()["results"]
    assert {row["measure"] for row in figures} == set(PAIR_MEASURES)
    assert "mAP@all[by=pairs]" in said("evaluate", run, "--measure", "mAP@all[by=pairs]")
    refused = silohash("evaluate", run, "--measure", "mAP@all")
    assert (refused.code, "needs labels" in refused.err) == (2, True)
    said("report", run, other, "--out", tmp_path / "both.html")
    for page in (run / "report.html", tmp_path / "both.html"):
        text = re.sub(r"<style>.*?</style>", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        assert not re.search(r">\s*nan\b", text, flags=re.IGNORECASE)
        assert "<tbody>\n    </tbody>" not in text
        assert "label drift" not in text
        assert "reciprocal rank of held-back pairs" in text
    assert "R@10[by=pairs]" in said("compare", run, other)
    said("index", run)
    assert "item-" in said("search", run, "parrot harbour", "-k", "3")
    said("export", run, "--onnx")
    said("data", "check", archive)
    said("partition", config)
    refused = silohash("partition", config, "--plot", tmp_path / "plot.svg")
    assert (refused.code, "has no labels" in refused.err) == (2, True)


@pytest.mark.whole_run
def test_a_study_without_labels_shows_recall_of_pairs(tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "archive", count=60, labeled=False)
    config = write_config(tmp_path / "run.toml", archive, local={"name": "cmfh"}, federated={"rounds": 2})
    methods = [{"name": name, "set": {"federated.name": name}} for name in ("fedavg", "local")]
    study = {"base": {"recipe": str(config)}, "axis": [{"name": "method", "choice": methods}]}
    (tmp_path / "study.toml").write_text(tomlkit.dumps(study), encoding="utf-8")
    said("study", tmp_path / "study.toml", "--out", tmp_path / "study", "--processes", 1)
    text = (tmp_path / "study" / "tables" / "table.md").read_text(encoding="utf-8")
    assert "R@10[by=pairs]" in text
    assert "not measured" not in text
    assert "nan" not in text.lower()
