"""The demo: its configs, its table, its queries, and the sentence that it prints first."""

from __future__ import annotations

import socket
from pathlib import Path

import numpy as np
import pytest

from silohash.base.errors import MissingFile
from silohash.cli import demo
from silohash.report.headline import headline
from silohash.report.tables import read_results
from silohash.run.folder import Run
from silohash.training import experiment
from tests.reports import row
from tests.runs import silohash

SMALL = (
    *("--set", "data.options={faces = 1, limit = 600}", "--set", "federated.rounds=1"),
    *("--set", "federated.local_epochs=1", "--set", "train.workers=1", "--set", "model.hidden=16"),
    *("--set", "local.bits=16", "--set", "local.item_bits=8", "--set", "features.text.buckets=64"),
)


def test_the_three_runs_differ_in_their_method_only() -> None:
    configs = {name: resolved.config for name, resolved in demo.demo_configs(["seed=3"]).items()}
    assert {name: config.federated.name for name, config in configs.items()} == demo.METHODS
    assert {config.seed for config in configs.values()} == {3}
    pooled, alone = configs["pooled"].to_json(), configs["alone"].to_json()
    assert (pooled["train"]["workers"], alone["train"]["workers"]) == (1, 2)
    for section in ("data", "partition", "local", "evaluate"):
        assert pooled[section] == alone[section] == configs["federated"].to_json()[section]


def test_overrides_come_after_those_of_the_demo() -> None:
    assert demo.demo_configs(["train.workers=4"])["pooled"].config.train.workers == 4


def test_recipe_that_is_missing_is_an_error() -> None:
    assert demo.recipe("demo.toml").name == "demo.toml"
    with pytest.raises(MissingFile, match=r"none\.toml"):
        demo.recipe("none.toml")


@pytest.mark.whole_run
def test_a_taken_port_is_noticed_before_anything_is_trained(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused = silohash("demo", "--out", tmp_path / "out", "--serve", "--port", port)
    assert refused.code == 2
    assert f"Port {port} of 127.0.0.1 cannot be used" in refused.err
    assert "Choose another: --port N, or make SERVE=1 PORT=N demo." in refused.err
    assert "Five libraries" not in refused.err
    assert not (tmp_path / "out").exists()


def test_table_has_a_line_per_run_and_evaluation() -> None:
    both = [row(task=task, value=0.5, low=0.45, high=0.55, prior=0.2) for task in ("i2t", "t2i")]
    table = demo.comparison({"federated": [*both, row(measure="P@10")], "alone": both})
    assert [list(column.cells) for column in table.columns] == [
        ["federated", "alone"],
        ["GG", "GG"],
        ["50.0 (45.0 to 55.0)"] * 2,
        ["50.0 (45.0 to 55.0)"] * 2,
        ["20.0", "20.0"],
    ]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory):
    out = tmp_path_factory.mktemp("demo") / "out"
    said = silohash("demo", "--out", out, *SMALL)
    assert said.code == 0, said.err
    return out, said


@pytest.mark.whole_run
def test_demo_leads_with_the_sentence_of_its_report(finished) -> None:
    out, said = finished
    runs = [Run(out / name) for name in demo.METHODS]
    unseen = [each for run in runs for each in read_results(run.unseen_results_path)]
    found = headline([each for run in runs for each in read_results(run.results_path)], unseen)
    assert found.notes[-1].startswith("Without the items that silos trained on: ")
    # so short a training does not beat random codes, which the sentence says first
    assert found.sentence.startswith("Not better than random codes: training together, each silo alone, ")
    assert ". Training together finds relevant items with " in found.sentence
    lines = said.out.strip().splitlines()
    assert lines[0] == found.sentence
    assert [line.strip() for line in lines[1 : 2 + len(found.notes)]] == [found.explanation, *found.notes]
    page = (out / "report.html").read_text(encoding="utf-8")
    assert f"<h1>{found.sentence.replace(' %', chr(160) + '%')}</h1>" in page
    assert page.count("<article ") == 6
    assert f"Report: {out / 'report.html'}" in said.out
    assert "Search with a picture of a character unseen in training: " in said.out


@pytest.mark.whole_run
def test_demo_continues_instead_of_training_again(finished, monkeypatch: pytest.MonkeyPatch) -> None:
    out, first = finished

    def refused(*_: object, **__: object) -> None:
        raise AssertionError("trained again")

    monkeypatch.setattr(experiment, "train", refused)
    (out / "alone" / "results.csv").unlink()
    assert silohash("demo", "--out", out, *SMALL).out == first.out
    opened: list[tuple[Path, int]] = []
    monkeypatch.setattr(demo, "serve", lambda folder, *, port: opened.append((folder, port)))
    assert silohash("demo", "--out", out, *SMALL, "--serve", "--port", "0").code == 0
    assert opened == [(out / "federated", 0)]
    other = silohash("demo", "--out", out, *SMALL, "--set", "seed=5")
    assert other.code == 2
    assert f'"{out / "federated"}" holds a run with another config' in other.err


@pytest.mark.whole_run
def test_picture_query_falls_back_to_the_first_item(finished) -> None:
    archive = Run(finished[0] / "federated").archive
    row_of = archive.split("query")[3]
    name = archive.caption(int(row_of))
    title, picture, modality = demo.picture_query(archive, "query", name, "Title")
    assert title.endswith(name)
    assert modality == "image"
    first = next(row for row in archive.split("query") if archive.caption(int(row)) == name)
    assert np.array_equal(np.asarray(picture), np.asarray(archive.pictures().picture(int(first))))
    fallback = demo.picture_query(archive, "train", "no such character", "Title")[0]
    assert fallback.endswith(archive.caption(int(archive.split("train")[0])))


def test_recipe_of_the_checkout_is_used() -> None:
    assert demo.recipe("demo.toml") == Path(demo.__file__).parents[3] / "recipes" / "demo.toml"
