"""Runs compared query by query: differences known beforehand, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from silohash.base.errors import MissingFile, NotMeasured, RunsDiffer, TooFew, UnknownName, UnsuitableMeasure
from silohash.base.files import write_arrays
from silohash.report.tables import write_results
from silohash.run.folder import Run
from silohash.study.compare import EvaluatedRun, compare_runs, read_evaluated
from tests.reports import row
from tests.runs import write_archive, write_config

NOISE = np.random.default_rng(0).normal(size=200)
NOISE -= NOISE.mean()


def measured(name, mean, *, evaluation="GG", measure="mAP@all", spread=0.1, queries="the same", **changed):
    """Returns a run whose figures over queries have exactly that mean."""
    values = {(evaluation, task, measure): mean + spread * NOISE for task in ("i2t", "t2i")}
    return EvaluatedRun(name, (row(**{"run": name, "population": 100, "no_hits": "skip", **changed}),), values, queries)


def test_a_difference_with_its_interval_and_p_value():
    found = compare_runs([measured("a", 0.6), measured("b", 0.5, spread=0.3)])
    assert [(d.first, d.second, d.task) for d in found] == [("a", "b", "i2t"), ("a", "b", "t2i")]
    for difference in found:
        assert difference.difference == pytest.approx(0.1)
        assert (difference.first_mean, difference.second_mean) == pytest.approx((0.6, 0.5))
        # The differences spread by 0.2, so their mean by 0.2 / sqrt(200).
        half = 1.96 * 0.2 * NOISE.std() / np.sqrt(200)
        assert difference.low == pytest.approx(0.1 - half, abs=0.004)
        assert difference.high == pytest.approx(0.1 + half, abs=0.004)
        assert difference.p_value < 0.001
        assert difference.queries == 200


def test_noise_is_no_difference():
    other = measured("b", 0.6)
    shuffled = {key: np.random.default_rng(1).permutation(values) for key, values in other.per_query.items()}
    found = compare_runs([measured("a", 0.6), replace(other, per_query=shuffled)])
    assert found[0].difference == pytest.approx(0)
    assert found[0].p_value > 0.9


def test_every_two_of_several_runs():
    found = compare_runs([measured(name, 0.5) for name in "abc"])
    assert [(d.first, d.second) for d in found if d.task == "i2t"] == [("a", "b"), ("a", "c"), ("b", "c")]


def test_queries_that_one_does_not_count_are_left_out():
    first, second = measured("a", 0.6), measured("b", 0.5)
    gaps = {key: np.where(np.arange(200) < 20, np.nan, values) for key, values in first.per_query.items()}
    found = compare_runs([replace(first, per_query=gaps), second])
    assert found[0].queries == 180
    assert found[0].difference == pytest.approx(0.1)


def test_global_and_personal_models_compare_but_not_with_xs():
    found = compare_runs([measured("a", 0.6), measured("b", 0.5, evaluation="PG")])
    assert {d.evaluation for d in found} == {"GG/PG"}
    with pytest.raises(RunsDiffer, match=r"GG.*i2t.*mAP@all"):
        compare_runs([measured("a", 0.6), measured("b", 0.5, evaluation="XS")])


def test_figures_of_another_task_or_measure_are_not_compared():
    one, other = measured("a", 0.6), measured("b", 0.5)
    kept = {key: values for key, values in other.per_query.items() if key[1] == "t2i"}
    assert [d.task for d in compare_runs([one, replace(other, per_query=kept)])] == ["t2i"]
    only = {key: values for key, values in one.per_query.items() if key[1] == "i2t"}
    with pytest.raises(RunsDiffer):
        compare_runs([replace(one, per_query=only), replace(other, per_query=kept)])


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"dataset": "coco18"}, r"glyphs.*coco18"),
        ({"protocol": "fedcafe"}, r"protocol.*default.*fedcafe"),
        ({"no_hits": "zero"}, r"conditions.*count.*0"),
        ({"queries": "others"}, "glyphs"),
    ],
)
def test_runs_that_were_measured_differently_are_refused(changed, says):
    with pytest.raises(RunsDiffer, match=says):
        compare_runs([measured("a", 0.6), measured("b", 0.5, **changed)])


def test_each_may_choose_its_round_its_own_way():
    assert compare_runs([measured("a", 0.6, round_by="last"), measured("b", 0.5, round_by="validation")])


def test_measures_that_nobody_has_are_named():
    runs = [measured("a", 0.6), measured("b", 0.5)]
    assert len(compare_runs(runs, ["mAP@all"])) == 2
    with pytest.raises(UnknownName, match=r"P@10.*mAP@all"):
        compare_runs(runs, ["P@10"])
    with pytest.raises(TooFew):
        compare_runs(runs[:1])


def test_a_run_without_figures_says_what_to_do(tmp_path):
    archive = write_archive(tmp_path / "archive", count=12)
    (tmp_path / "run").mkdir()
    write_config(tmp_path / "run" / "config.toml", archive)
    with pytest.raises(MissingFile, match=r"results.csv"):
        read_evaluated([Run(tmp_path / "run")])


def finished(folder, archive, values=(0.5,)):
    """Writes the files of an evaluated run, and returns it."""
    folder.mkdir(parents=True)
    write_config(folder / "config.toml", archive)
    run = Run(folder)
    write_results(run.results_path, [row(run=folder.name, value=value) for value in values])
    return run


def test_runs_of_one_name_are_told_apart_by_their_folders(tmp_path, monkeypatch):
    monkeypatch.setattr(Run, "check", lambda self: None)
    archive = write_archive(tmp_path / "archive", count=12)
    runs = [finished(tmp_path / place / name, archive) for place, name in (("x", "a"), ("y", "a"), ("x", "b"))]
    for run in runs:
        write_arrays(run.per_query_path, {}, {"queries": "digest"})
    assert [found.name for found in read_evaluated(runs)] == [str(runs[0].folder), str(runs[1].folder), "b"]
    assert [found.queries for found in read_evaluated(runs)] == ["digest"] * 3


def test_runs_without_figures_per_query_or_without_any_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(Run, "check", lambda self: None)
    archive = write_archive(tmp_path / "archive", count=12)
    run = finished(tmp_path / "a", archive)
    with pytest.raises(NotMeasured, match="has no figures per query"):
        read_evaluated([run])
    empty = finished(tmp_path / "b", archive, values=())
    write_arrays(empty.per_query_path, {}, {"queries": "digest"})
    with pytest.raises(NotMeasured, match=r"has no figures\. Evaluate it"):
        read_evaluated([empty])


def test_queries_that_only_one_run_counts_compare_nothing():
    first, second = measured("a", 0.6), measured("b", 0.5)
    odd, even = (np.where(np.arange(200) % 2 == side, np.nan, 0.5) for side in (0, 1))
    gaps = [
        replace(run, per_query=dict.fromkeys(run.per_query, values)) for run, values in ((first, odd), (second, even))
    ]
    with pytest.raises(RunsDiffer):
        compare_runs(gaps)


def test_medians_are_not_compared_by_a_test_of_means():
    runs = [measured(name, 0.5) for name in "ab"]
    ranked = [replace(run, per_query={**run.per_query, ("GG", "i2t", "MedR[by=pairs]"): 9 + NOISE}) for run in runs]
    assert {difference.measure for difference in compare_runs(ranked)} == {"mAP@all"}
    with pytest.raises(UnsuitableMeasure, match=r"MedR\[by=pairs"):
        compare_runs(ranked, ["MedR[by=pairs]"])
