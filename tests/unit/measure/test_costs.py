"""Figures of real-valued vectors and of ITQ beside those of a run, against cosines and rankings by loops."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from silohash.base.errors import UnsuitableMethod
from silohash.base.types import ResultRow, database_modalities, query_modality
from silohash.evaluate.significance import bootstrap_interval
from silohash.features.network import NetworkFeatures
from silohash.features.vectors import vectors
from silohash.measure.costs import costs_of, is_compared, one_network
from silohash.measure.evaluation import evaluate_run
from silohash.methods.local.closed_form.itq import canonical_maps
from silohash.run.folder import Run
from tests.runs import BITS, train, write_archive

TASKS = ("i2t", "t2i", "i2i", "t2item", "i2unified")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory):
    return tmp_path_factory.mktemp("costs")


@pytest.fixture(scope="module")
def archive(folder):
    return write_archive(folder / "archive", count=90)


@pytest.fixture(scope="module")
def run(folder, archive) -> Run:
    return train(archive, folder / "run")


@pytest.fixture(scope="module")
def found(run: Run) -> dict[tuple[str, str], ResultRow]:
    settings = run.config.evaluate.model_copy(update={"tasks": TASKS, "measures": ("mAP@all", "P@radius2")})
    return {(row.run, row.task): row for row in costs_of(run, settings)}


def unit(values: np.ndarray) -> np.ndarray:
    return values / np.linalg.norm(values, axis=1, keepdims=True)


def precisions(run: Run, scores: np.ndarray) -> list[float]:
    """The average precision of every query, with the items in the order of its scores."""
    queries, items = run.archive.splits["query"], run.archive.split("database")
    labels = run.archive.labels.astype(int)
    values = []
    for query, line in zip(queries, scores, strict=True):
        relevant = (labels[items] @ labels[query] > 0)[np.argsort(-line)]
        places = np.flatnonzero(relevant) + 1
        values.append(float(np.mean(np.arange(1, len(places) + 1) / places)) if len(places) else 0.0)
    return values


def canonical(run: Run) -> dict[str, np.ndarray]:
    """Canonical variables of all rows, fitted to the pairs that silos trained on or held back."""
    rows = np.arange(len(run.archive))
    given = {m: vectors(run.archive, kind, rows).astype(float) for m, kind in run.model.featurizers.items()}
    train_rows = run.archive.split("train")
    centered = {m: values - values[train_rows].mean(0) for m, values in given.items()}
    pairs = np.concatenate([centered["image"], centered["text"]], axis=1)[train_rows]
    width = centered["image"].shape[1]
    maps = canonical_maps(pairs.T @ pairs, width, components=width, penalty=1.0, power=2.0)
    return {m: values @ maps[m] for m, values in centered.items()}


def test_a_modality_is_ranked_by_the_vectors_as_they_are(run: Run, found: dict[tuple[str, str], ResultRow]) -> None:
    image = unit(np.asarray(run.archive.image, float))
    expected = precisions(run, image[run.archive.splits["query"]] @ image[run.archive.split("database")].T)
    row = found["cosine, no codes", "i2i"]
    assert row.value == pytest.approx(np.mean(expected))
    assert (row.low, row.high) == pytest.approx(bootstrap_interval(expected, run.config.seed))
    assert (row.best, row.worst) == pytest.approx((row.value, row.value))


@pytest.mark.parametrize("task", ["i2t", "t2i", "t2item", "i2unified"])
def test_across_modalities_canonical_variables_are_compared(
    run: Run, found: dict[tuple[str, str], ResultRow], task: str
) -> None:
    space = {m: unit(values) for m, values in canonical(run).items()}
    queries, items = run.archive.splits["query"], run.archive.split("database")
    searched = [space[modality][items] for modality in database_modalities(task)]
    if task == "i2unified":
        searched = [unit(searched[0] + searched[1])]
    scores = np.max([space[query_modality(task)][queries] @ values.T for values in searched], axis=0)
    assert found["CCA, no codes", task].value == pytest.approx(np.mean(precisions(run, scores)), abs=2e-3)


def test_each_task_has_three_figures_on_the_same_queries(run: Run, found: dict[tuple[str, str], ResultRow]) -> None:
    assert [name for name, task in found if task == "t2i"] == ["CCA, no codes", "ITQ", run.name]
    assert len(found) == 3 * len(TASKS)
    assert {(row.evaluation, row.bits, row.queries, row.measure) for row in found.values()} == {
        ("GG", BITS, 15, "mAP@all")
    }
    own = evaluate_run(run, evaluations=["GG"], tasks=TASKS, measures=["mAP@all"]).rows
    assert [row.value for row in own] == [found[run.name, task].value for task in TASKS]
    assert all(found["ITQ", task].value > 1.1 * found["ITQ", task].prior for task in TASKS)
    assert found["ITQ", "t2i"].best > found["ITQ", "t2i"].value > found["ITQ", "t2i"].worst


def test_personal_models_are_compared_by_their_mean(folder, archive) -> None:
    alone = train(archive, folder / "alone", federated={"name": "local", "rounds": 1})
    rows = costs_of(alone, alone.config.evaluate)
    assert {row.evaluation for row in rows} == {"PG"}
    own = evaluate_run(alone, evaluations=["PG"]).rows
    assert [row.value for row in rows if row.run == alone.name] == [row.value for row in own]


def test_a_model_of_one_modality_is_compared_by_its_vectors(folder) -> None:
    only = train(
        write_archive(folder / "texts", count=60, image=None), folder / "only", evaluate={"tasks": ["t2t"]},
        federated={"rounds": 1},
    )  # fmt: skip
    assert [row.run for row in costs_of(only, only.config.evaluate)][:3] == ["cosine, no codes", "ITQ", only.name]
    assert not is_compared(only)


def test_scores_of_pairs_and_word_ids_have_no_costs() -> None:
    for scores, kind in ((True, "words"), (False, "tokens")):
        model = SimpleNamespace(
            featurizers={"text": SimpleNamespace(kind=kind)}, personalized=False,
            record=SimpleNamespace(spec=SimpleNamespace(scores_pairs=scores)),
        )  # fmt: skip
        with pytest.raises(UnsuitableMethod):
            costs_of(SimpleNamespace(model=model, folder="run"), None)


def network(modality: str, **options: str) -> NetworkFeatures:
    about = {"kind": "huggingface", "modality": modality, "width": 4, "key": "k", "half": False, "draft": False}
    return NetworkFeatures.from_state({}, {**about, "options": options, "whiten": False})


@pytest.mark.parametrize(
    ("image", "text", "expected"),
    [
        ({"model": "/clip"}, {"model": "/clip"}, True),
        ({"model": "/clip", "pooling": "tokens"}, {"model": "/clip", "pooling": "projection"}, True),
        ({"model": "/clip", "pooling": "pooler"}, {"model": "/clip"}, False),
        ({"model": "/dinov2"}, {"model": "/minilm"}, False),
    ],
)
def test_one_network_is_one_model_with_its_projections(
    image: dict[str, str], text: dict[str, str], expected: bool
) -> None:
    featurizers = {"image": network("image", **image), "text": network("text", **text)}
    assert one_network(featurizers) is expected
    assert not one_network({"image": featurizers["image"]})
