"""Figures query by query: what the mean is taken of, aligned with the archive's queries."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from silohash.base.errors import UserError
from silohash.base.files import write_arrays
from silohash.measure.evaluation import Figures, evaluate_run, read_per_query, write_per_query
from silohash.run.folder import Run
from tests.runs import train, write_archive


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_archive(tmp_path_factory.mktemp("data") / "archive", count=90)


@pytest.fixture(scope="module", params=["fedavg", "local"])
def run(request: pytest.FixtureRequest, archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    federated = {"name": request.param, "rounds": 1, "local_epochs": 1}
    return train(archive, tmp_path_factory.mktemp("run") / request.param, federated=federated)


@pytest.mark.whole_run
def test_means_of_the_values_are_the_figures(run: Run) -> None:
    figures = evaluate_run(run, measures=["mAP@all", "P@5"], evaluations=["GG", "GL", "PL", "PG", "XS"])
    rows = [row for row in figures.rows if row.evaluation in {"GG", "PG", "XS"}]
    assert set(figures.per_query) == {(row.evaluation, row.task, row.measure) for row in rows}
    assert rows
    for row in rows:
        values = figures.per_query[row.evaluation, row.task, row.measure]
        assert values.shape == (15,)
        assert np.isfinite(values).sum() == row.queries
        assert np.nanmean(values) == pytest.approx(row.value, abs=1e-12)


@pytest.mark.whole_run
def test_queries_that_do_not_count_are_not_numbers_in_their_places(run: Run) -> None:
    whole = evaluate_run(run, measures=["mAP@all"], evaluations=["XS"], tasks=["i2t"])
    fewer = evaluate_run(run, measures=["mAP@all"], evaluations=["XS"], tasks=["i2t"], ignore_labels=["parrot"])
    key = ("XS", "i2t", "mAP@all")
    labels = run.archive.labels[run.archive.split("query")]
    only_parrot = np.delete(labels, run.archive.label_names.index("parrot"), axis=1).sum(axis=1) == 0
    assert only_parrot.any()
    assert np.isfinite(whole.per_query[key]).all()
    assert np.array_equal(np.isnan(fewer.per_query[key]), only_parrot)
    assert whole.queries == fewer.queries


@pytest.mark.whole_run
def test_file_holds_every_bit(run: Run, tmp_path: Path) -> None:
    figures = evaluate_run(run)
    write_per_query(tmp_path / "per_query.safetensors", figures)
    read, queries = read_per_query(tmp_path / "per_query.safetensors")
    assert queries == figures.queries != ""
    assert set(read) == set(figures.per_query)
    assert all(np.array_equal(values, figures.per_query[key], equal_nan=True) for key, values in read.items())


@pytest.mark.whole_run
def test_other_queries_have_another_digest(run: Run, archive: Path, tmp_path: Path) -> None:
    fewer = train(write_archive(tmp_path / "other", count=60), tmp_path / "run", federated={"rounds": 1})
    assert evaluate_run(fewer).queries != evaluate_run(run).queries


@pytest.mark.parametrize("content", [b"", b"no tensors", None])
def test_damaged_file_is_named(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "per_query.safetensors"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=r"per_query\.safetensors"):
        read_per_query(path)


def test_foreign_array_is_named(tmp_path: Path) -> None:
    write_arrays(tmp_path / "per_query.safetensors", {"weights": np.zeros(3)})
    with pytest.raises(UserError, match='holds an array "weights"'):
        read_per_query(tmp_path / "per_query.safetensors")


def test_figures_without_values(tmp_path: Path) -> None:
    write_per_query(tmp_path / "none.safetensors", Figures(rows=[], curves=[]))
    assert read_per_query(tmp_path / "none.safetensors") == ({}, "")
