"""What figures show of a run: its curves, and what its model gives, which is kept and the same as its evaluation gives."""

from __future__ import annotations

import shutil
from dataclasses import replace
from math import nan
from pathlib import Path

import numpy as np
import pytest

from silohash.base.errors import DamagedFile, LabelsNeeded, ModelMissing, NotMeasured, TooFew, UnknownName
from silohash.base.files import write_json
from silohash.index.codes import unpack
from silohash.measure.evaluation import evaluate_run
from silohash.run.codes import RunCodes
from silohash.run.events import RoundRecord, SiloRecord
from silohash.run.folder import Run
from silohash.study.figures import Figure
from silohash.study.results import RunResult
from silohash.study.run_data import (
    FOLDER,
    LabeledCodes,
    in_plane,
    labeled_codes,
    over_rounds,
    store,
    top_rows,
    within_radius,
)
from tests.runs import train, write_archive
from tests.synthetic_studies import records

TOP = Figure(kind="top_n", first=(1, 5, 20))
PLANE = Figure(kind="tsne", split="train", items=20, perplexity=3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("run-data")


@pytest.fixture(scope="module")
def archive(folder: Path) -> Path:
    return write_archive(folder / "archive")


@pytest.fixture(scope="module")
def alone(folder: Path, archive: Path) -> Run:
    """A run of which every silo deploys its own model."""
    return train(archive, folder / "local", federated={"name": "local", "rounds": 1})


@pytest.fixture
def run(alone: Run, tmp_path: Path) -> Run:
    return Run(Path(shutil.copytree(alone.folder, tmp_path / "run", ignore=shutil.ignore_patterns(FOLDER))))


def kept(run: Run) -> list[Path]:
    return sorted((run.folder / FOLDER).iterdir())


def test_nearest_items_as_the_evaluation_measures_them(run: Run) -> None:
    found = {(row.evaluation, row.task, row.measure): row.value for row in top_rows(run, TOP)}
    measured = evaluate_run(run, measures=["P@5", "R@20"]).rows
    assert measured
    assert all(found[row.evaluation, row.task, row.measure] == row.value for row in measured)
    assert {measure for _, _, measure in found} == {"P@1", "P@5", "P@20", "R@1", "R@5", "R@20"}


def test_kept_data_is_read_again_without_the_model(run: Run) -> None:
    store(run, [TOP, PLANE, Figure(kind="rounds"), PLANE.model_copy(update={"seed": 3})])
    assert [path.suffix for path in kept(run)] == [".safetensors", ".csv"]
    rows, codes = top_rows(run, TOP), labeled_codes(run, PLANE)
    shutil.rmtree(run.model_folder)
    again = Run(run.folder)
    assert top_rows(again, TOP) == rows
    assert (labeled_codes(again, PLANE).signs == codes.signs).all()
    for figure in (Figure(kind="top_n", first=(1, 2)), PLANE.model_copy(update={"items": 21})):
        with pytest.raises(ModelMissing, match="run the study again"):
            store(again, [figure])


def test_codes_are_those_of_the_model_of_their_silo(run: Run) -> None:
    codes = labeled_codes(run, PLANE)
    assert codes.signs.shape == (20, run.config.local.bits)
    place = {str(name): row for row, name in enumerate(run.archive.ids)}
    assert run.archive.labels is not None
    for item, signs, label in zip(codes.items, codes.signs, codes.label, strict=True):
        row = place[item]
        assert row in run.archive.split("train")
        assert set(run.archive.labels_of(row)) & set(codes.labels) == {codes.labels[label]}
        (silo,) = [silo for silo in run.partition.silos if row in silo.rows]
        words = RunCodes(run, np.array([row])).words(silo.name, "image", np.array([row]))
        assert (unpack(words, run.config.local.bits)[0] == signs).all()


def test_labels_by_name_and_by_frequency(run: Run) -> None:
    chosen = labeled_codes(run, PLANE.model_copy(update={"labels": ("violin", "parrot")}))
    assert chosen.labels == ("violin", "parrot")
    assert set(chosen.label.tolist()) == {0, 1}
    by_count = labeled_codes(run, PLANE).labels
    counts = dict(
        zip(run.archive.label_names, (run.archive.labels > 0)[run.archive.split("train")].sum(0), strict=True)
    )
    assert [counts[name] for name in by_count] == sorted(counts.values(), reverse=True)[:6]
    with pytest.raises(UnknownName, match='did you mean "violin"'):
        labeled_codes(run, PLANE.model_copy(update={"labels": ("violn",)}))


def test_an_archive_without_labels_has_neither(tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "archive", labeled=False)
    run = train(
        archive, tmp_path / "run", local={"name": "djsrh"}, federated={"rounds": 1},
        evaluate={"measures": ["R@5[by=pairs]"], "validation": 0.0},
    )  # fmt: skip
    for figure in (TOP, PLANE):
        with pytest.raises(LabelsNeeded):
            store(run, [figure])


def test_a_damaged_file_is_named(run: Run) -> None:
    store(run, [PLANE])
    (path,) = kept(run)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(DamagedFile, match=path.name):
        labeled_codes(run, PLANE)


def clusters(count: int) -> LabeledCodes:
    """Returns codes around two opposite ones."""
    random = np.random.default_rng(0)
    label = np.arange(count) % 2
    signs = np.where(label[:, None] == 0, 1, -1) * np.where(random.random((count, 32)) < 0.1, -1, 1)
    return LabeledCodes(signs.astype(np.int8), label, tuple(map(str, range(count))), ("a", "b"))


def test_near_codes_are_near_in_the_plane_and_every_time_at_the_same_place() -> None:
    codes = clusters(24)
    points = in_plane(codes, PLANE, "run")
    assert points.shape == (24, 2)
    apart = np.linalg.norm(points[:, None] - points[None], axis=-1)
    same = codes.label[:, None] == codes.label[None]
    assert np.median(apart[~same]) > 2 * np.median(apart[same])
    assert (in_plane(codes, PLANE, "run") == points).all()


def test_equal_codes_have_finite_places_and_few_are_refused() -> None:
    equal = LabeledCodes(np.ones((12, 8), np.int8), np.zeros(12, np.int64), tuple("abcdefghijkl"), ("a",))
    assert np.isfinite(in_plane(equal, PLANE, "run")).all()
    with pytest.raises(TooFew, match="the run has 9 items"):
        in_plane(clusters(9), PLANE, "the run")
    assert in_plane(clusters(10), PLANE, "the run").shape == (10, 2)


def run_with(*rounds: RoundRecord, folder: Path = Path("run")) -> RunResult:
    return RunResult({}, 0, folder, (), {}, rounds)


def test_values_of_each_curve_over_the_rounds() -> None:
    run = run_with(*records(3))
    assert over_rounds(run, "rounds", "loss") == (range(1, 4), pytest.approx([2.0, 1.0, 2 / 3]))
    assert over_rounds(run, "rounds", "relative loss")[1] == pytest.approx([1.0, 0.5, 1 / 3])
    assert over_rounds(run, "rounds", "validation")[1] == pytest.approx([0.3, 0.4, 0.5])


def test_rounds_without_a_loss_or_a_score() -> None:
    first, *others = records(3)
    run = run_with(replace(first, loss=None, validation=None), *others)
    assert over_rounds(run, "rounds", "loss")[1] == pytest.approx([nan, 1.0, 2 / 3], nan_ok=True)
    assert over_rounds(run, "rounds", "validation")[1] == pytest.approx([nan, 0.4, 0.5], nan_ok=True)
    assert np.isnan(over_rounds(run, "rounds", "relative loss")[1]).all()
    without = run_with(replace(first, loss=0.0), *others)
    assert np.isnan(over_rounds(without, "rounds", "relative loss")[1]).all()
    assert over_rounds(run_with(), "seconds", "relative loss") == ([], [])


def test_seconds_are_those_of_the_training_of_all_silos() -> None:
    silos = [SiloRecord("a", 1, 0.0, 1.5), SiloRecord("b", 1, 0.0, 0.25)]
    run = run_with(*(replace(record, silos=silos) for record in records(3)))
    assert over_rounds(run, "seconds", "loss")[0] == [1.75, 3.5, 5.25]


def test_recall_and_precision_of_a_task_as_they_were_stored(tmp_path: Path) -> None:
    run = run_with(folder=tmp_path)
    with pytest.raises(NotMeasured, match="silohash evaluate"):
        within_radius(run, "i2t")
    stored = [{"task": "i2t", "precision": [None, 0.5], "recall": [0.0, 1.0], "prior": 0.5}]
    write_json(Run(tmp_path).curves_path, stored)
    recall, precision = within_radius(run, "i2t")
    assert recall == (0.0, 1.0)
    assert precision == pytest.approx((nan, 0.5), nan_ok=True)
    assert within_radius(run, "t2i") == ((), ())
