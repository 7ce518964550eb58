"""Figures of tiny runs against the same computed with loops over codes."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from silohash.base.errors import LabelsNeeded, NotARun, NothingUsable, UnknownName, WrongValue
from silohash.base.types import EVALUATIONS, database_modalities, query_modality
from silohash.data.partitions.base import SiloRows
from silohash.evaluate.measures import PAIR_MEASURES, Measure, PerQuery
from silohash.evaluate.scores import Scores
from silohash.features.vectors import vectors
from silohash.index.codes import unpack
from silohash.measure import evaluation
from silohash.measure.evaluation import Evaluator, evaluate_run, trained_rows
from silohash.run.folder import Run
from tests.runs import BITS, train, write_archive

pytestmark = pytest.mark.whole_run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory):
    return tmp_path_factory.mktemp("evaluation")


@pytest.fixture(scope="module")
def archive(folder):
    return write_archive(folder / "archive", count=90)


@pytest.fixture(scope="module")
def shared(folder, archive) -> Run:
    """A run of which all silos deploy one model."""
    return train(archive, folder / "fedavg")


@pytest.fixture(scope="module")
def alone(folder, archive) -> Run:
    """A run of which every silo deploys its own."""
    return train(archive, folder / "local", federated={"name": "local"})


@pytest.fixture(scope="module")
def nested(folder, archive) -> Run:
    """Silos that hold all, two thirds and a third of the same items."""
    return train(archive, folder / "nested", partition={"kind": "nested"}, federated={"name": "local"})


def signs(run: Run, name: str, modality, rows) -> np.ndarray:
    return unpack(run.model.encoder(name).codes(run.archive, rows, modality).words, BITS).astype(int)


def expected_precision(distances: np.ndarray, relevant: np.ndarray) -> float:
    """The mean average precision over all orders of tied items, group by group."""
    found = seen = total = 0.0
    for distance in sorted(set(distances.tolist())):
        group = relevant[distances == distance]
        size, hits = len(group), float(group.sum())
        for place in range(1, size + 1):
            earlier = (place - 1) * (hits - 1) / (size - 1) if size > 1 else 0.0
            total += hits / size * (found + 1 + earlier) / (seen + place) if hits else 0.0
        found, seen = found + hits, seen + size
    return total / relevant.sum() if relevant.any() else 0.0


def mean_precision(run: Run, queries, items, query_codes, item_codes, ignore=(), other_codes=None) -> float:
    """The mean over queries; with ``other_codes``, items have two codes, of which the nearer counts."""
    labels = np.delete(run.archive.labels, list(ignore), axis=1).astype(int)
    scores = []
    for query, code in zip(queries, query_codes, strict=True):
        distances = (BITS - item_codes @ code) // 2
        if other_codes is not None:
            distances = np.minimum(distances, (BITS - other_codes @ code) // 2)
        scores.append(expected_precision(distances, (labels[items] @ labels[query]) > 0))
    return float(np.mean(scores))


def value(run: Run, kind: str, task: str, **more) -> float:
    rows = evaluate_run(run, evaluations=[kind], tasks=[task], measures=["mAP@all"], **more).rows
    (row,) = rows
    assert row.worst <= row.value <= row.best
    assert row.low <= row.value <= row.high
    return row.value


@pytest.mark.parametrize("task", ["i2t", "t2i", "i2i", "t2t"])
def test_gg_of_a_shared_model(shared: Run, task) -> None:
    queries, items = shared.archive.split("query"), shared.archive.split("database")
    asking, asked = (signs(shared, "global", of(task), rows) for of, rows in
                     ((query_modality, queries), (lambda task: database_modalities(task)[0], items)))  # fmt: skip
    found = value(shared, "GG", task)
    assert found == pytest.approx(mean_precision(shared, queries, items, asking, asked), abs=1e-9)
    assert value(shared, "XS", task) == found


@pytest.mark.parametrize("task", ["i2item", "t2item"])
def test_items_are_ranked_by_the_nearer_of_their_codes(shared: Run, alone: Run, task) -> None:
    queries, items = shared.archive.split("query"), shared.archive.split("database")
    asking = signs(shared, "global", query_modality(task), queries)
    both = [signs(shared, "global", modality, items) for modality in ("image", "text")]
    found = value(shared, "GG", task)
    expected = mean_precision(shared, queries, items, asking, both[0], other_codes=both[1])
    assert found == pytest.approx(expected, abs=1e-9)
    assert value(shared, "XS", task) == found
    scores, stored = [], {modality: np.zeros((len(alone.archive), BITS), int) for modality in ("image", "text")}
    for silo in alone.partition.silos:
        own_queries, own = silo.split(alone.archive, "query"), silo.split(alone.archive, "database")
        for modality, codes in stored.items():
            codes[own] = signs(alone, silo.name, modality, own)
        codes = signs(alone, silo.name, query_modality(task), own_queries)
        scores.append(
            mean_precision(alone, own_queries, own, codes, stored["image"][own], other_codes=stored["text"][own])
        )
    assert value(alone, "PL", task) == pytest.approx(np.mean(scores), abs=1e-9)
    scores = []
    for silo in alone.partition.silos:
        codes = signs(alone, silo.name, query_modality(task), queries)
        scores.append(
            mean_precision(alone, queries, items, codes, stored["image"][items], other_codes=stored["text"][items])
        )
    assert value(alone, "XS", task) == pytest.approx(np.mean(scores), abs=1e-9)


def test_an_item_of_one_modality_is_ranked_by_its_code(shared: Run) -> None:
    first, *rest = shared.partition.silos
    parts = replace(shared.partition, silos=(SiloRows(first.name, first.rows, has_text=False), *rest))
    run = Run(shared.folder)
    run.__dict__.update(partition=parts, archive=shared.archive)
    queries, items = shared.archive.split("query"), shared.archive.split("database")
    asking, images, texts = (
        signs(shared, "global", modality, rows)
        for modality, rows in (("image", queries), ("image", items), ("text", items))
    )
    texts[np.isin(items, first.rows)] = images[np.isin(items, first.rows)]
    expected = mean_precision(shared, queries, items, asking, images, other_codes=texts)
    assert value(run, "GG", "i2item") == pytest.approx(expected, abs=1e-9)
    assert value(run, "GG", "i2item") != value(shared, "GG", "i2item")
    (local,) = evaluate_run(run, evaluations=["GL"], tasks=["i2item"], measures=["mAP@all"]).rows
    assert local.queries == len(queries)
    assert local.database_code == "the nearer of both views"


def summed(run: Run, name: str, rows) -> np.ndarray:
    """The signs of the sum of both towers' outputs."""
    encoder = run.model.encoder(name)
    outputs = [encoder.outputs(vectors(run.archive, encoder.featurizers[m], rows), m) for m in ("image", "text")]
    return np.where(outputs[0] + outputs[1] >= 0, 1, -1)


@pytest.mark.parametrize("task", ["i2unified", "t2unified"])
def test_items_are_ranked_by_one_code_of_both_views(shared: Run, alone: Run, task) -> None:
    queries, items = shared.archive.split("query"), shared.archive.split("database")
    asking = signs(shared, "global", query_modality(task), queries)
    found = value(shared, "GG", task)
    expected = mean_precision(shared, queries, items, asking, summed(shared, "global", items))
    assert found == pytest.approx(expected, abs=1e-9)
    assert value(shared, "XS", task) == found
    scores, stored = [], np.zeros((len(alone.archive), BITS), int)
    for silo in alone.partition.silos:
        own_queries, own = silo.split(alone.archive, "query"), silo.split(alone.archive, "database")
        stored[own] = summed(alone, silo.name, own)
        codes = signs(alone, silo.name, query_modality(task), own_queries)
        scores.append(mean_precision(alone, own_queries, own, codes, stored[own]))
    assert value(alone, "PL", task) == pytest.approx(np.mean(scores), abs=1e-9)
    scores = [
        mean_precision(alone, queries, items, signs(alone, silo.name, query_modality(task), queries), stored[items])
        for silo in alone.partition.silos
    ]
    assert value(alone, "XS", task) == pytest.approx(np.mean(scores), abs=1e-9)


def test_a_unified_code_holds_what_one_silo_holds(shared: Run) -> None:
    first, second, *rest = shared.partition.silos
    pictures = SiloRows(first.name, first.rows, has_text=False)
    texts = SiloRows(second.name, np.union1d(first.rows, second.rows), has_image=False)
    run = Run(shared.folder)
    run.__dict__.update(partition=replace(shared.partition, silos=(pictures, texts, *rest)), archive=shared.archive)
    queries, items = shared.archive.split("query"), shared.archive.split("database")
    codes = summed(shared, "global", items)
    for silo, modality in ((first, "image"), (second, "text")):
        own = np.isin(items, silo.rows)
        codes[own] = signs(shared, "global", modality, items)[own]
    queries = queries[~np.isin(queries, second.rows)]  # no silo has their pictures
    expected = mean_precision(shared, queries, items, signs(shared, "global", "image", queries), codes)
    (row,) = evaluate_run(run, evaluations=["GG"], tasks=["i2unified"], measures=["mAP@all"]).rows
    assert row.value == pytest.approx(expected, abs=1e-9)
    assert row.database_code == "both views"


def test_measures_with_the_order_of_the_database_rank_items(shared: Run) -> None:
    asked = {"evaluations": ["GG"], "tasks": ["t2item"], "measures": ["P@5[ties=index]", "P@5"]}
    in_order, expected = evaluate_run(shared, **asked).rows
    assert in_order.worst <= in_order.value <= in_order.best
    assert (in_order.best, in_order.worst) == (expected.best, expected.worst)


def test_gl_of_a_shared_model(shared: Run) -> None:
    scores = []
    for silo in shared.partition.silos:
        queries, items = silo.split(shared.archive, "query"), silo.split(shared.archive, "database")
        asking, asked = signs(shared, "global", "image", queries), signs(shared, "global", "text", items)
        scores.append(mean_precision(shared, queries, items, asking, asked))
    assert value(shared, "GL", "i2t") == pytest.approx(np.mean(scores), abs=1e-9)


@pytest.mark.parametrize(("name", "kinds"), [("shared", ("GF", "GA")), ("alone", ("PF", "PA"))])
def test_own_queries_search_the_items_of_others_and_of_all(request, name: str, kinds) -> None:
    run = request.getfixturevalue(name)
    every = run.archive.split("database")
    scores = []
    for silo in run.partition.silos:
        queries, own = silo.split(run.archive, "query"), silo.split(run.archive, "database")
        model = "global" if name == "shared" else silo.name
        asking, asked = signs(run, model, "text", queries), signs(run, model, "image", every)
        others = ~np.isin(every, own)
        assert others.any()
        assert not others.all()
        places = (others, np.ones(len(every), bool))
        scores.append([mean_precision(run, queries, every[which], asking, asked[which]) for which in places])
    found = [value(run, kind, "t2i") for kind in kinds]
    assert found == pytest.approx(np.mean(scores, axis=0).tolist(), abs=1e-9)


def test_pg_pl_and_xs_of_models_of_their_own(alone: Run) -> None:
    archive, silos = alone.archive, alone.partition.silos
    queries, items = archive.split("query"), archive.split("database")
    stored = np.zeros((len(archive), BITS), int)
    everywhere, here = [], []
    for silo in silos:
        own_queries, own = silo.split(archive, "query"), silo.split(archive, "database")
        stored[own] = signs(alone, silo.name, "text", own)
        asking = signs(alone, silo.name, "image", queries)
        everywhere.append(mean_precision(alone, queries, items, asking, signs(alone, silo.name, "text", items)))
        here.append(mean_precision(alone, own_queries, own, signs(alone, silo.name, "image", own_queries), stored[own]))
    across = [
        mean_precision(alone, queries, items, signs(alone, silo.name, "image", queries), stored[items])
        for silo in silos
    ]
    assert value(alone, "PG", "i2t") == pytest.approx(np.mean(everywhere), abs=1e-9)
    assert value(alone, "PL", "i2t") == pytest.approx(np.mean(here), abs=1e-9)
    assert value(alone, "XS", "i2t") == pytest.approx(np.mean(across), abs=1e-9)
    assert value(alone, "XS", "i2t") != value(alone, "PG", "i2t")


def test_figures_that_a_method_cannot_give_are_left_out(shared: Run, alone: Run) -> None:
    of_shared = {row.evaluation for row in evaluate_run(shared, evaluations=EVALUATIONS).rows}
    of_alone = {row.evaluation for row in evaluate_run(alone, evaluations=EVALUATIONS).rows}
    assert of_shared == {"GG", "GL", "GF", "GA", "XS"}
    assert of_alone == {"PL", "PG", "PF", "PA", "XS"}


def test_ignored_labels_make_nothing_relevant(shared: Run) -> None:
    archive = shared.archive
    ignored = [0, 2]
    rest = np.delete(archive.labels, ignored, axis=1).any(axis=1)
    queries, items = (rows[rest[rows]] for rows in (archive.split("query"), archive.split("database")))
    asking, asked = signs(shared, "global", "image", queries), signs(shared, "global", "text", items)
    found = value(shared, "GG", "i2t", ignore_labels=[archive.label_names[column] for column in ignored])
    assert found == pytest.approx(mean_precision(shared, queries, items, asking, asked, ignored), abs=1e-9)
    assert len(queries) < len(archive.split("query"))
    (row,) = evaluate_run(shared, evaluations=["GG"], tasks=["i2t"], measures=["P@5"], ignore_labels=["parrot"]).rows
    assert row.protocol.endswith(", without parrot")
    assert row.queries <= len(archive.split("query"))


def test_overlapping_silos_each_have_their_own_and_an_item_counts_once_across(nested: Run) -> None:
    archive, silos = nested.archive, nested.partition.silos
    assert not nested.partition.disjoint
    queries, items = archive.split("query"), archive.split("database")
    here = []
    for silo in silos:
        own_queries, own = silo.split(archive, "query"), silo.split(archive, "database")
        assert len(own_queries)
        codes = (signs(nested, silo.name, "image", own_queries), signs(nested, silo.name, "text", own))
        here.append(mean_precision(nested, own_queries, own, *codes))
    assert value(nested, "PL", "i2t") == pytest.approx(np.mean(here), abs=1e-9)
    stored = np.zeros((len(archive), BITS), int)
    for silo in reversed(silos):
        own = silo.split(archive, "database")
        stored[own] = signs(nested, silo.name, "text", own)
    held = np.unique(np.concatenate([silo.rows for silo in silos]))
    queries, items = np.intersect1d(queries, held), np.intersect1d(items, held)
    across = [
        mean_precision(nested, queries, items, signs(nested, s.name, "image", queries), stored[items]) for s in silos
    ]
    assert value(nested, "XS", "i2t") == pytest.approx(np.mean(across), abs=1e-9)


def test_what_a_silo_was_not_given_is_neither_asked_nor_found(shared: Run) -> None:
    first, *rest = shared.partition.silos
    parts = replace(shared.partition, silos=(SiloRows(first.name, first.rows, has_text=False), *rest))
    run = Run(shared.folder)
    run.__dict__.update(partition=parts, archive=shared.archive)
    others = np.concatenate([silo.rows for silo in rest])
    queries = shared.archive.split("query")
    items = np.intersect1d(shared.archive.split("database"), others)
    asking, asked = signs(shared, "global", "image", queries), signs(shared, "global", "text", items)
    assert value(run, "GG", "i2t") == pytest.approx(mean_precision(shared, queries, items, asking, asked), abs=1e-9)
    local = evaluate_run(run, evaluations=["GL"], tasks=["i2t"], measures=["mAP@all"]).rows[0]
    assert local.queries == sum(len(silo.split(shared.archive, "query")) for silo in rest)


def test_rows_say_what_was_measured(shared: Run) -> None:
    rows = evaluate_run(shared).rows
    assert [(row.evaluation, row.task, row.measure) for row in rows] == [
        (kind, task, measure) for kind in ("GG", "XS") for task in ("i2t", "t2i") for measure in ("mAP@all", "P@5")
    ]
    row = rows[0]
    assert (row.run, row.dataset, row.partition, row.local, row.federated) == (
        "fedavg",
        "archive",
        "iid-3",
        "dcmh",
        "fedavg",
    )
    assert (row.bits, row.seed, row.queries, row.config_digest) == (BITS, 0, 15, shared.config.digest())
    labels = shared.archive.labels.astype(int)
    pairs = labels[shared.archive.split("query")] @ labels[shared.archive.split("database")].T > 0
    assert row.prior == pytest.approx(pairs.mean())
    assert row.queries_without_relevant == int((~pairs.any(axis=1)).sum())


def test_rows_say_what_the_protocol_decided(shared: Run) -> None:
    row = evaluate_run(shared).rows[0]
    assert (row.population, row.no_hits, row.query_in_database) == (90, "zero", False)
    assert (row.database_code, row.round_by) == ("one view", "validation")
    config = shared.config.evaluate
    other = Run(shared.folder)
    other.__dict__["config"] = shared.config.model_copy(
        update={"evaluate": config.model_copy(update={"validation": 0})}
    )
    assert evaluate_run(other).rows[0].round_by == "last"


def without_hits(shared: Run, no_hits: str) -> Run:
    """Returns the run with a query that shares no label with any item."""
    queries = shared.archive.split("query")
    labels = shared.archive.labels.copy()
    labels[queries[0]] = 0
    run = Run(shared.folder)
    evaluate = shared.config.evaluate.model_copy(update={"no_hits": no_hits})
    run.__dict__.update(
        archive=replace(shared.archive, labels=labels),
        config=shared.config.model_copy(update={"evaluate": evaluate}),
        partition=shared.partition,
    )
    return run


def test_queries_without_hits_count_as_zero_or_are_left_out(shared: Run) -> None:
    asked = {"evaluations": ["GG"], "tasks": ["i2t"], "measures": ["mAP@all"]}
    (zero,) = evaluate_run(without_hits(shared, "zero"), **asked).rows
    (skip,) = evaluate_run(without_hits(shared, "skip"), **asked).rows
    assert zero.queries_without_relevant == skip.queries_without_relevant == 1
    assert (zero.queries, skip.queries) == (15, 14)
    assert zero.value == pytest.approx(skip.value * 14 / 15)
    assert (zero.no_hits, skip.no_hits) == ("zero", "skip")
    assert (zero.measure, skip.measure) == ("mAP@all", "mAP@all[empty=skip]")
    said = {**asked, "measures": ["mAP@all[empty=zero]"]}
    assert evaluate_run(without_hits(shared, "skip"), **said).rows[0].value == zero.value


def test_where_queries_stand_in_the_database_their_own_item_is_told_of(shared: Run) -> None:
    splits = shared.archive.splits
    queries, items = splits["query"], np.union1d(splits["query"], splits["database"])
    run = Run(shared.folder)
    run.__dict__.update(
        archive=replace(shared.archive, splits={**splits, "database": items}, query_in_database=True),
        partition=shared.partition,
    )
    asking, asked = (
        signs(shared, "global", modality, rows) for modality, rows in (("image", queries), ("text", items))
    )
    assert value(run, "GG", "i2t") == pytest.approx(mean_precision(shared, queries, items, asking, asked), abs=1e-9)
    codes = signs(shared, "global", "image", items)
    scores = []
    for query, code in zip(queries, asking, strict=True):
        others = items != query
        scores.append(mean_precision(shared, [query], items[others], [code], codes[others]))
    assert value(run, "GG", "i2i") == pytest.approx(np.mean(scores), abs=1e-9)
    texts = signs(shared, "global", "text", items)
    scores = [
        mean_precision(
            shared, [query], items[items != query], [code], codes[items != query], other_codes=texts[items != query]
        )
        for query, code in zip(queries, asking, strict=True)
    ]
    assert value(run, "GG", "i2item") == pytest.approx(np.mean(scores), abs=1e-9)
    config = run.config
    run.__dict__["config"] = config.model_copy(
        update={"evaluate": config.evaluate.model_copy(update={"own_item": "count"})}
    )
    assert value(run, "GG", "i2i") == pytest.approx(mean_precision(shared, queries, items, asking, codes), abs=1e-9)
    assert value(run, "GG", "i2i") > np.mean(scores)
    kinds = {row.task: row.query_in_database for row in evaluate_run(run, tasks=["i2t", "i2i"]).rows}
    assert kinds == {"i2t": True, "i2i": True}
    run.__dict__["config"] = config
    kinds = {row.task: row.query_in_database for row in evaluate_run(run, tasks=["i2t", "i2i"]).rows}
    assert kinds == {"i2t": True, "i2i": False}


def test_curves_are_precision_and_recall_by_radius(shared: Run) -> None:
    curves = evaluate_run(shared, evaluations=["GG"], tasks=["i2t"]).curves
    (curve,) = curves
    assert len(curve.precision) == BITS + 1
    assert curve.recall[-1] == pytest.approx(1.0)
    assert curve.precision[-1] == pytest.approx(curve.prior, abs=0.02)
    written = replace(curve, precision=(math.nan, 1.0), recall=(0.5, 1.0)).to_json()
    assert written["precision"] == [None, 1.0]


def pair_distances(run: Run, images, texts, name: str = "global") -> np.ndarray:
    """The distances between the pictures and the texts of some rows, ``(len(images), len(texts))``."""
    return (BITS - signs(run, name, "image", images) @ signs(run, name, "text", texts).T) // 2


def expected_of_pairs(distances: np.ndarray, partner: np.ndarray, k: int) -> tuple[float, float]:
    """Recall at k of one partner among ties, and the median of its expected rank."""
    recalls, ranks = [], []
    for row, relevant in zip(distances, partner, strict=True):
        nearest = row[relevant].min()
        before, tied, partners = (row < nearest).sum(), (row == nearest).sum(), (row[relevant] == nearest).sum()
        within = min(max(k - before, 0), tied)
        missed = math.comb(tied - partners, within) / math.comb(tied, within) if within else 1.0
        recalls.append(1.0 if before + tied < k and within == tied else 1.0 - missed)
        ranks.append(before + (tied + 1) / (partners + 1))
    return float(np.mean(recalls)), float(np.median(ranks))


PAIRED = ("R@5[by=pairs]", "MedR[by=pairs]")


def test_queries_search_each_other_for_their_own_partners(shared: Run) -> None:
    queries = shared.archive.split("query")
    distances = pair_distances(shared, queries, queries)
    partner = np.eye(len(queries), dtype=bool)
    figures = evaluate_run(shared, measures=["mAP@all", *PAIRED], tasks=["i2t", "t2i", "i2item"])
    assert [row.measure for row in figures.rows if row.task == "i2item"] == ["mAP@all"] * 2
    rows = {(row.evaluation, row.task, row.measure): row for row in figures.rows}
    for task, of_task in (("i2t", distances), ("t2i", distances.T)):
        for kind in ("GG", "XS"):
            found = [rows[kind, task, measure] for measure in PAIRED]
            assert [row.value for row in found] == pytest.approx(expected_of_pairs(of_task, partner, 5))
            assert [row.prior for row in found] == pytest.approx([5 / len(queries), (len(queries) + 1) / 2])
            assert all(row.low <= row.value <= row.high for row in found)
            assert all(row.query_in_database for row in found)
            assert {row.database_code for row in found} == {"one view of the items of the split query"}
            values = figures.per_query[kind, task, PAIRED[0]]
            assert values.mean() == pytest.approx(found[0].value)
    assert [curve.task for curve in figures.curves] == ["i2t", "t2i", "i2item"]
    assert rows["GG", "i2t", "mAP@all"].value == value(shared, "GG", "i2t")


def test_a_picture_with_several_texts_is_searched_once(shared: Run) -> None:
    archive, queries = shared.archive, shared.archive.split("query")
    pictures = np.array([f"picture-{row}" for row in range(len(archive))])
    pictures[queries] = [f"picture-{place // 3}" for place in range(len(queries))]
    run = Run(shared.folder)
    run.__dict__.update(archive=replace(archive, columns={"picture": pictures}), partition=shared.partition)
    images = queries[::3]
    distances = pair_distances(shared, images, queries)
    partner = pictures[images][:, None] == pictures[queries]
    found: dict[str, list] = {"i2t": [], "t2i": []}
    figures = evaluate_run(run, evaluations=["GG"], measures=PAIRED)
    for row in figures.rows:
        found[row.task].append(row)
    assert [row.queries for row in found["i2t"]] == [len(images)] * 2
    assert [row.value for row in found["i2t"]] == pytest.approx(expected_of_pairs(distances, partner, 5))
    assert [row.value for row in found["t2i"]] == pytest.approx(expected_of_pairs(distances.T, partner.T, 5))
    values = figures.per_query["GG", "i2t", PAIRED[0]]
    assert np.flatnonzero(np.isfinite(values)).tolist() == list(range(0, len(queries), 3))
    assert figures.curves == []


def test_silos_judge_pairs_among_their_own_queries(alone: Run) -> None:
    values = []
    for silo in alone.partition.silos:
        rows = silo.split(alone.archive, "query")
        distances = pair_distances(alone, rows, rows, silo.name)
        values.append(expected_of_pairs(distances, np.eye(len(rows), dtype=bool), 5))
    recall, rank = evaluate_run(alone, evaluations=["PL"], tasks=["i2t"], measures=PAIRED).rows
    assert (recall.value, rank.value) == pytest.approx(tuple(np.mean(values, axis=0)))
    assert np.isnan([rank.low, rank.high]).all()


def test_without_labels_the_measures_are_those_of_pairs(shared: Run) -> None:
    run = Run(shared.folder)
    run.__dict__.update(archive=replace(shared.archive, labels=None, label_names=()), partition=shared.partition)
    figures = evaluate_run(run)
    assert {row.measure for row in figures.rows} == set(PAIR_MEASURES)
    (same,) = evaluate_run(shared, measures=["R@1[by=pairs]"], evaluations=["GG"], tasks=["i2t"]).rows
    (found,) = (
        row for row in figures.rows if (row.evaluation, row.task, row.measure) == ("GG", "i2t", "R@1[by=pairs]")
    )
    assert found == same
    for measures in (["mAP@all"], ["R@1[by=pairs]", "R@1"]):
        with pytest.raises(LabelsNeeded, match=r"R@1\[by=pairs"):
            evaluate_run(run, measures=measures)


@pytest.mark.parametrize(
    ("changes", "round_by"),
    [
        ({"validation_by": "labels"}, "validation"),
        ({"validation_by": "pairs"}, "validation on pairs"),
        ({"validation_by": "pairs", "validation": None}, "last"),
    ],
)
def test_how_the_round_was_chosen(
    shared: Run, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], round_by: str
) -> None:
    records = [replace(record, **changes) for record in shared.rounds()]
    monkeypatch.setattr(Run, "rounds", lambda run: records)
    assert evaluate_run(shared, evaluations=["GG"], tasks=["i2t"]).rows[0].round_by == round_by


def test_silos_without_a_counted_query_do_not_lower_the_mean(shared: Run) -> None:
    def part(values: list[float]) -> PerQuery:
        array = np.array(values)
        return PerQuery(array, array, array, np.ones(len(values), bool), 0, 0.5)

    settings = shared.config.evaluate
    evaluator = Evaluator(shared, settings)
    of_silos = [part([0.5, 0.7]), part([]), part([0.2])]
    row = evaluator._row(evaluator.rules[0], "GL", "i2t", Measure.parse("mAP@all"), of_silos)
    assert row.value == pytest.approx((0.6 + 0.2) / 2)
    none = evaluator._row(evaluator.rules[0], "GL", "i2t", Measure.parse("mAP@all"), [part([])])
    assert math.isnan(none.value)
    assert none.queries == 0


def test_a_baseline_is_measured_as_one_model_of_all_silos(shared: Run, alone: Run) -> None:
    rows, model = np.arange(len(shared.archive)), shared.model
    values = {m: vectors(shared.archive, featurizer, rows) for m, featurizer in model.featurizers.items()}
    outputs = {m: model.encoder("global").outputs(value, m) for m, value in values.items()}
    settings = shared.config.evaluate.model_copy(update={"tasks": ("i2t", "t2item", "i2unified")})
    own = Evaluator(shared, settings).figures()
    for run in (shared, alone):  # which have the same items
        baseline = Evaluator(run, settings, (), outputs)
        assert baseline.personal == []
        found = {(row.evaluation, row.task, row.measure): row.value for row in baseline.figures().rows}
        expected = {(row.evaluation, row.task, row.measure): row.value for row in own.rows if row.evaluation == "GG"}
        assert {key: found[key] for key in expected} == expected
    scores = Evaluator(alone, settings, (), SimpleNamespace(of_model=lambda *_: Scores(np.eye(15, 75)))).figures()
    assert {row.bits for row in scores.rows} == {0}


def with_train(run: Run, rows: np.ndarray) -> Run:
    """The same run, as if only these items had been trained on."""
    changed = Run(run.folder)
    splits = {**run.archive.splits, "train": rows}
    changed.__dict__.update(partition=run.partition, archive=replace(run.archive, splits=splits))
    return changed


@pytest.mark.parametrize("kind", ["GG", "GL", "XS"])
def test_unseen_items_are_those_that_no_silo_trained_on(shared: Run, kind) -> None:
    queries, items = shared.archive.split("query"), shared.archive.split("database")
    run = with_train(shared, items[::3])
    rest = np.setdiff1d(items, items[::3])
    figures = evaluate_run(run, evaluations=[kind], tasks=["i2t"], measures=["mAP@all"])
    assert figures.rows == evaluate_run(shared, evaluations=[kind], tasks=["i2t"], measures=["mAP@all"]).rows
    (row,) = figures.unseen.rows
    assert row.protocol == f"{shared.archive.card.protocol}, without items that silos trained on"
    assert row.queries == len(queries)
    parts = [(queries, rest)]
    if kind == "GL":
        parts = [(silo.split(run.archive, "query"), np.intersect1d(rest, silo.rows)) for silo in shared.partition.silos]
    expected = [
        mean_precision(shared, of, where, signs(shared, "global", "image", of), signs(shared, "global", "text", where))
        for of, where in parts
    ]
    assert row.value == pytest.approx(np.mean(expected), abs=1e-9)
    assert row.value != figures.rows[0].value
    assert figures.unseen.curves == []
    assert figures.unseen.queries == figures.queries
    if kind != "GL":
        assert np.nanmean(figures.unseen.per_query[kind, "i2t", "mAP@all"]) == pytest.approx(row.value)


def test_personal_models_are_measured_on_unseen_items(alone: Run) -> None:
    queries, items = alone.archive.split("query"), alone.archive.split("database")
    rest = items[1::2]
    run = with_train(alone, items[::2])
    (row,) = evaluate_run(run, evaluations=["PG"], tasks=["t2i"], measures=["mAP@all"]).unseen.rows
    expected = [
        mean_precision(
            alone, queries, rest, signs(alone, silo.name, "text", queries), signs(alone, silo.name, "image", rest)
        )
        for silo in alone.partition.silos
    ]
    assert row.value == pytest.approx(np.mean(expected), abs=1e-9)


def test_all_items_or_none_can_be_unseen(shared: Run) -> None:
    every = evaluate_run(with_train(shared, shared.archive.split("database")[:0]))
    assert every.unseen.rows == every.rows
    assert every.unseen.per_query.keys() == every.per_query.keys()
    none = evaluate_run(shared)  # silos trained on the whole database
    assert none.rows == every.rows
    assert none.unseen.rows == []
    assert trained_rows(shared).tolist() == shared.archive.split("train").tolist()
    without = Run(shared.folder)
    rest = {name: rows for name, rows in shared.archive.splits.items() if name != "train"}
    without.__dict__.update(partition=shared.partition, archive=replace(shared.archive, splits=rest))
    assert trained_rows(without).tolist() == []


def test_items_that_only_some_silos_trained_on_are_not_unseen(nested: Run) -> None:
    """The silos hold all, two thirds and a third of the items, so one silo trained on all of them."""
    assert trained_rows(nested).tolist() == nested.archive.split("train").tolist()
    assert evaluate_run(nested, evaluations=["PG"]).unseen.rows == []


def test_refusals(shared: Run, folder) -> None:
    with pytest.raises(WrongValue, match=r"evaluate\.measures: .*mPA"):
        evaluate_run(shared, measures=["mPA@all"])
    with pytest.raises(WrongValue, match='"GX" is not one of'):
        evaluate_run(shared, evaluations=["GX"])
    with pytest.raises(UnknownName, match=r"parot.*parrot"):
        evaluate_run(shared, ignore_labels=["parot"])
    nobody = Run(shared.folder)
    nobody.__dict__["archive"] = replace(
        shared.archive, splits={**shared.archive.splits, "query": np.zeros(0, np.int64)}
    )
    with pytest.raises(NothingUsable, match="query"):
        evaluate_run(nobody)
    with pytest.raises(NotARun, match="does not hold a run"):
        evaluate_run(Run(folder / "nowhere"))
    assert evaluation.GLOBAL in shared.model.names
