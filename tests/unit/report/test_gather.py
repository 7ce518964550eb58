"""What a report collects from a run's folder: facts, curves, silos and warnings."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from silohash.evaluate.calibration import hit_counts, reliability
from silohash.evaluate.collapse import COLLAPSED
from silohash.evaluate.items import counts_by_distance
from silohash.measure.evaluation import Evaluator
from silohash.report.card import card_text
from silohash.report.finish import finish_run
from silohash.report.gather import (
    MethodRun,
    ReportData,
    facts,
    label_table,
    radius_curves,
    report_data,
    round_curve,
    silo_summaries,
    validation_name,
    warnings,
)
from silohash.run.folder import Run
from tests import runs
from tests.reports import card, row

pytestmark = pytest.mark.whole_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("gather")
    trained = runs.train(
        runs.write_archive(folder / "archive"), folder / "run", federated={"rounds": 2},
        partition={"missing_text": 0.4, "unpaired": 0.3},
    )  # fmt: skip
    finish_run(trained)
    return trained


def with_records(run: Run, folder: Path, change) -> Run:
    """Return the same run with changed records of its rounds."""
    for path in run.folder.iterdir():
        if path.name != "rounds.jsonl":
            (folder / path.name).symlink_to(path)
    records = [json.loads(line) for line in run.rounds_path.read_text(encoding="utf-8").splitlines()]
    change(records)
    (folder / "rounds.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return Run(folder)


def faults(records: list[dict]) -> None:
    records[0]["warnings"] = ["all codes are equal", "silo-1: its update is 12 times as long"]
    records[1]["warnings"] = ["silo-1: its update is 34 times as long"]
    records[1]["silos"][0]["rejected"] = "not finite"


def test_report_shows_the_first_run_and_the_warnings_of_all(run: Run) -> None:
    data = report_data([run, run])
    assert data.title == "archive, 3 silos"
    assert report_data([run], title="My title").title == "My title"
    assert [found.name for found in data.runs] == ["run", "run"]
    assert len(data.examples.searches) == 6
    assert report_data([run], examples=False).examples is None


def test_warnings_that_differ_in_numbers_only_are_given_once(run: Run, tmp_path: Path) -> None:
    found = warnings(with_records(run, tmp_path, faults))
    name = tmp_path.name
    first = run.rounds()[0].silos[0].silo
    assert [(warning.kind, warning.text) for warning in found] == [
        ("rejected update", f"{name}, round 2, {first}: not finite"),
        ("training", f"{name}, all codes are equal"),
        ("training", f"{name}, silo-1: its update is 34 times as long (in 2 rounds)"),
    ]


def test_codes_that_collapsed_are_named_in_the_warnings_and_the_card(run: Run) -> None:
    uses = run.model.record.codes
    assert uses.keys() == {"image", "text"}
    assert {facts(run)[f"codes, {modality}"] for modality in uses} == {use.words for use in uses.values()}
    assert f"| codes, image | {uses['image'].words} |" in card_text(run)
    run.model.record.codes["text"] = replace(uses["text"], distinct=0.2)
    try:
        [found] = [warning for warning in warnings(run) if warning.kind == "collapsed codes"]
        assert found.text.endswith(COLLAPSED)
        assert "text: 20 % distinct" in found.text
        assert COLLAPSED in card_text(run)
    finally:
        run.model.record.codes["text"] = uses["text"]


def test_silos_have_sizes_drift_and_faults(run: Run, tmp_path: Path) -> None:
    found = silo_summaries(with_records(run, tmp_path, faults))
    partition, archive = run.partition, run.archive
    assert [silo.items for silo in found] == [len(silo.rows) for silo in partition.silos]
    assert sum(silo.train for silo in found) == len(archive.split("train"))
    assert [silo.lacks for silo in found] == [" and ".join(silo.lacks) for silo in partition.silos]
    assert {silo.lacks for silo in found} == {"", "pairs", "texts"}
    pool = archive.labels.sum(axis=0) / archive.labels.sum()
    for summary, silo in zip(found, partition.silos, strict=True):
        held = archive.labels[silo.rows].sum(axis=0) / archive.labels[silo.rows].sum()
        assert summary.drift == pytest.approx(0.5 * np.abs(held - pool).sum())
        assert summary.warnings == (2 if silo.name == "silo-1" else 0)
        assert summary.rejected == (1 if silo.name == run.rounds()[0].silos[0].silo else 0)


def test_curve_numbers_rounds_from_one_and_marks_the_kept_one(run: Run, tmp_path: Path) -> None:
    def change(records: list[dict]) -> None:
        records[0].update(loss=None, best=True, validation=0.5)
        records[1].update(loss=2.0, best=False, validation=None)

    curve = round_curve(with_records(run, tmp_path, change))
    assert (curve.rounds, curve.best_round) == ((1, 2), 1)
    assert math.isnan(curve.losses[0])
    assert curve.losses[1] == 2.0
    assert curve.validations[0] == 0.5
    assert math.isnan(curve.validations[1])


def test_rounds_without_scores_have_no_best(run: Run, tmp_path: Path) -> None:
    curve = round_curve(
        with_records(run, tmp_path, lambda records: [record.update(best=True, validation=None) for record in records])
    )
    assert curve.best_round is None


def test_the_score_that_chose_the_round_has_a_name(run: Run, tmp_path: Path) -> None:
    def by_pairs(records: list[dict]) -> None:
        for record in records:
            record["validation_by"] = "pairs"

    paired = with_records(run, tmp_path, by_pairs)
    assert validation_name([run]) == "mAP@all of held-back queries"
    assert validation_name([paired, paired]) == "reciprocal rank of held-back pairs"
    assert validation_name([run, paired]) == "score of held-back items"


def test_radius_curves_are_those_of_the_evaluation(run: Run) -> None:
    stored = json.loads(run.curves_path.read_text(encoding="utf-8"))
    curves = radius_curves(run)
    assert [curve.task for curve in curves] == [value["task"] for value in stored]
    learned = run.model.record.calibration
    evaluator = Evaluator(run, run.config.evaluate)
    for curve, value in zip(curves, stored, strict=True):
        [part] = evaluator.parts(evaluator.rules[0], "GG", curve.task)
        counts = hit_counts(counts_by_distance(*part, evaluator.bits))
        wanted = reliability(learned[curve.task], [counts]) if curve.task in learned else ()
        assert [list(each) for each in curve.reliability] == [pytest.approx(each) for each in wanted]
        assert list(curve.recall) == value["recall"]
        assert [None if math.isnan(p) else p for p in curve.precision] == value["precision"]


def test_label_table_counts_items_per_silo(run: Run) -> None:
    table = label_table(run)
    assert table.silos == tuple(silo.name for silo in run.partition.silos)
    assert table.counts.sum() == run.archive.labels.sum()


def test_facts_name_what_differs_from_plain_averaging(tmp_path: Path) -> None:
    run = runs.train(
        runs.write_archive(tmp_path / "archive"), tmp_path / "run", partition={"silos": 7},
        federated={
            "rounds": 2, "robust": {"rule": "multi_krum", "faulty": 0.25}, "server": {"optimizer": "fedavgm"},
            "weight_cap": 0.3,
        },
    )  # fmt: skip
    finish_run(run)
    known = facts(run)
    assert known["rule for faulty silos"] == "multi_krum, for 25% of the silos"
    assert known["server optimizer"] == "fedavgm"
    assert known["largest weight of a silo"] == "30%"
    assert "silos per round" not in known
    assert "multi_krum" in run.card_path.read_text(encoding="utf-8")
    named = {warning.partition(": ")[0] for record in run.rounds() for warning in record.warnings}
    assert len(named) >= 2
    texts = [warning.text for warning in warnings(run)]
    assert {name for name in named if any(f"{name}: " in text for text in texts)} == named
    assert len(texts) == len(set(texts))


def test_facts_have_the_parameters_of_a_composition(tmp_path: Path) -> None:
    methods = [{"name": "fedproc", "min_count": 1}, {"name": "moon"}]
    archive = runs.write_archive(tmp_path / "archive")
    run = runs.train(archive, tmp_path / "run", federated={"name": "compose", "methods": methods, "rounds": 1})
    finish_run(run)
    known = facts(run)
    assert known["federated method"] == "compose, preset recommended, methods fedproc (min_count 1) + moon"
    assert "rule for faulty silos" not in known
    assert "server optimizer" not in known


def test_only_a_method_that_uses_the_label_of_the_query_is_unfair():
    fair = MethodRun(name="a", rows=(row(run="a"),), cards=(card("x"), card("y")))
    unfair = MethodRun(name="b", rows=(row(run="b"),), cards=(card("x"), card("z", needs_label_at_query=True)))
    assert (fair.needs_label_at_query, unfair.needs_label_at_query) == (False, True)
    data = ReportData(title="", facts={}, runs=(fair, unfair))
    assert [found.run for found in data.rows] == ["a", "b"]
    assert [found.run for found in data.fair_rows] == ["a"]
