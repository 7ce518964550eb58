"""Methods that score pairs, through the command line: they train, are measured and reported, and have no codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from silohash.config.toml import to_toml
from silohash.files import read_arrays
from silohash.report.tables import read_results
from silohash.runtime.run import Run
from tests.regions import matching_config, write_region_set
from tests.runs import same_arrays, silohash


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SILOHASH_DATA", str(write_region_set(tmp_path / "data")))
    return tmp_path


def trained(folder: Path, name: str, **sections: dict[str, object]) -> Run:
    """Train a run by its command, and return it."""
    config = folder / f"{name}.toml"
    config.write_text(to_toml(matching_config(**sections)))
    said = silohash("train", config, "--out", folder / name)
    assert said.code == 0, said.err
    return Run.open(folder / name)


def test_a_matching_run_is_measured_by_scores_and_not_indexed(folder: Path) -> None:
    run = trained(folder, "run")
    found = {(row.task, row.measure): row for row in read_results(run.results_path) if row.evaluation == "GG"}
    for task in ("i2t", "t2i"):
        recall, total = found[task, "R@1[by=pairs]"], found[task, "RSum[by=pairs]"]
        assert total.value > 3 * total.prior
        assert recall.value <= total.value <= 3
        assert (recall.bits, recall.database_code) == (0, "scores of pairs of the items of the split query")
        assert recall.round_by == "validation on pairs"
    assert found["i2t", "R@1[by=pairs]"].queries == 25
    assert found["t2i", "R@1[by=pairs]"].queries == 125
    assert not run.index_folder.exists()
    assert "64 bits" not in run.report_path.read_text()
    assert "scores pairs of a picture and a text" in (run.model_folder / "card.md").read_text()
    said = silohash("index", run.folder)
    assert said.code == 2
    assert "has no codes" in said.err
    again = silohash("evaluate", run.folder, "--json", "--measure", "R@5[by=pairs]")
    assert {row["measure"] for row in json.loads(again.out)["results"]} == {"R@5[by=pairs]"}


def test_fedbignns_weights_silos_by_size_and_recall(folder: Path) -> None:
    nested = {"kind": "nested", "silos": 2, "fractions": [0.5, 1.0]}
    federated = {"name": "fedbignns", "rounds": 2}
    run = trained(folder, "weighted", federated=federated, partition=nested)
    assert all(record.validation is not None for record in run.rounds())
    alone = trained(folder, "by-size", federated={**federated, "weighting": "examples"}, partition=nested)
    [first, second] = (read_arrays(each.model_folder / "weights-000.safetensors")[0] for each in (run, alone))
    assert not same_arrays(first, second)


def test_silos_can_keep_models_of_their_own(folder: Path) -> None:
    run = trained(folder, "own", federated={"name": "local", "rounds": 1}, evaluate={"evaluations": ["PL", "PG", "XS"]})
    assert {row.evaluation for row in read_results(run.results_path)} == {"PL", "PG"}


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"local": {"name": "dgcpn", "word_width": None}}, '"regions" gives several nodes per item'),
        ({"features": {"text": {"kind": "tfidf"}}}, 'features.text are "tfidf"'),
    ],
)
def test_features_of_the_other_kind_are_refused(
    folder: Path, sections: dict[str, dict[str, object]], message: str
) -> None:
    config = matching_config(**sections)
    config["local"] = {name: value for name, value in config["local"].items() if value is not None}
    (folder / "run.toml").write_text(to_toml(config))
    said = silohash("train", folder / "run.toml", "--out", folder / "run")
    assert said.code == 2
    assert message in said.err
