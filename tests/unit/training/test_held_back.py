"""The counts of held-back queries equal those of plain loops, are sent by silos with enough of them, and add up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
import torch

from silohash.evaluate.calibration import Calibration, HitCounts
from silohash.methods.local import LOCAL_METHODS
from silohash.methods.local.base import SiloData, outputs_of
from silohash.training import held_back as module
from silohash.training.engines.port import SiloTask
from silohash.training.held_back import calibrations, code_uses, silo_code_counts, silo_counts
from silohash.training.updates.bounds import Announced
from silohash.training.worker import Worker
from tests.runs import model_spec, prepared, silo_data

BITS = 16


def network() -> torch.nn.Module:
    kind = LOCAL_METHODS.resolve("dcmh")
    torch.manual_seed(0)
    return kind(kind.Params()).build(model_spec(), BITS)


def signs(model: torch.nn.Module, items: SiloData) -> Mapping[str, np.ndarray]:
    return {m: np.where(v.numpy() >= 0, 1, -1) for m, v in outputs_of(model, replace(items, labels=None)).items()}


def plain_counts(distances: np.ndarray, right: np.ndarray) -> HitCounts:
    """Count the first hits of each query by rank and distance, tied ones as in the mean over their orders."""
    found = HitCounts(*np.zeros((2, module.HITS_COUNTED, BITS + 1)), np.array([distances.shape[1]], float))
    for row, relevant in zip(distances, right, strict=True):
        for rank, distance in enumerate(np.sort(row)[: module.HITS_COUNTED]):
            found.items[rank, distance] += 1
            found.right[rank, distance] += relevant[row == distance].mean()
    return found


def counts_in(arrays: Mapping[str, np.ndarray], task: str) -> HitCounts:
    return HitCounts(*(arrays[f"{task}/{name}"] for name in HitCounts._fields))


def test_counts_by_labels_are_those_of_plain_loops() -> None:
    model, database, queries = network(), silo_data(40), silo_data(10, seed=1)
    database.has_text[:7] = False
    searched, asked = signs(model, database), signs(model, queries)
    found = silo_counts(model, database, queries, BITS)
    right = (queries.labels @ database.labels.T > 0).numpy()
    image, text = ((BITS - asked["text"] @ searched[m].T) // 2 for m in ("image", "text"))
    nearer = np.where(database.has_text.numpy(), np.minimum(image, text), image)
    assert {name.split("/")[0] for name in found} == set(module.SEARCHES)
    for task, distances, rows in (
        ("t2i", image, slice(None)),
        ("t2t", text, slice(7, None)),
        ("t2item", nearer, slice(None)),
    ):
        for counts, wanted in zip(
            counts_in(found, task), plain_counts(distances[:, rows], right[:, rows]), strict=True
        ):
            assert counts == pytest.approx(wanted), task


def test_partners_of_held_back_pairs_are_searched_for_by_their_other_modality() -> None:
    model, database, queries = network(), silo_data(30), silo_data(8, seed=1)
    database, queries = replace(database, pictures=torch.arange(30)), replace(queries, pictures=torch.arange(30, 38))
    found = silo_counts(model, database, replace(queries, labels=None), BITS)
    assert {name.split("/")[0] for name in found} == {"i2t", "t2i", "i2item", "t2item"}
    own, others, asked = signs(model, queries), signs(model, database), signs(model, queries)["text"]
    partners = (BITS - asked @ own["image"].T) // 2
    far = np.minimum(*((BITS - asked @ others[m].T) // 2 for m in ("image", "text")))
    right = np.hstack([np.zeros(far.shape, bool), np.eye(8, dtype=bool)])
    wanted = plain_counts(np.hstack([far, partners]), right)
    for counts, expected in zip(counts_in(found, "t2item"), wanted, strict=True):
        assert counts == pytest.approx(expected)


@pytest.mark.parametrize("lacking", ["queries", "items", "answers"])
def test_silos_with_too_little_send_nothing(lacking: str) -> None:
    model, database, queries = network(), silo_data(40), silo_data(10, seed=1)
    nothing = torch.arange(0)
    assert silo_counts(model, database, queries, BITS)
    few = {
        "queries": (database, queries.take(torch.arange(module.FEWEST_QUERIES - 1))),
        "items": (database.take(nothing), queries),
        "answers": (database, replace(queries, labels=None)),
    }
    assert silo_counts(model, *few[lacking], BITS) == {}
    queries.has_text[module.FEWEST_QUERIES - 1 :] = False
    assert {name[0] for name in silo_counts(model, database, queries, BITS)} == {"i"}


def test_a_worker_counts_by_what_the_config_names() -> None:
    inputs = prepared((20, 20), validation=8)
    inputs = replace(inputs, arrays={**inputs.arrays, "ignored_labels": np.array([1])})
    worker = Worker(inputs, torch.device("cpu"))
    state = inputs.resolved.federated.init_server(worker.model, inputs.info())
    broadcast = inputs.resolved.federated.broadcast(state, 1, round=0)
    update = worker.do(SiloTask("calibrate", 1, broadcast)).update
    train, held = inputs.silo(1, torch.device("cpu"))
    hits, codes = silo_counts(worker.model, train, held, BITS, ignore=(1,)), silo_code_counts(worker.model, train, BITS)
    assert hits
    assert codes
    wanted = hits | codes
    assert update.sums.keys() == wanted.keys()
    assert all(np.array_equal(update.sums[name], wanted[name]) for name in wanted)
    assert update.arrays().keys() == {f"sums/{name}" for name in wanted}


def arrays_of(
    right: float = 3.0, items: float = 10.0, queries: float = 5.0, searched: float = 90.0
) -> dict[str, np.ndarray]:
    """Return the counts of queries whose nearest items are at distance 0, and whose other items are at distance 1."""
    shape = (module.HITS_COUNTED, 2)
    first = HitCounts(np.zeros(shape), np.zeros(shape), np.array([searched]))
    first.items[0, 0], first.items[1, 1] = queries, items - queries
    first.right[1, 1] = right
    return {f"t2i/{name}": array for name, array in first._asdict().items()}


def test_calibrations_are_learned_from_the_counts_of_all_silos() -> None:
    first, second = arrays_of(), arrays_of(1.0, 12.0, 6.0, 400.0)
    most = Announced(training=380, validation=20)
    found = calibrations([(first, None), (second, most), ({}, most)], 1)
    assert found == {"t2i": Calibration.learned([counts_in(first, "t2i"), counts_in(second, "t2i")])}
    assert calibrations([({}, None)], 1) == {}


@pytest.mark.parametrize(
    "sent",
    [
        arrays_of(queries=6.0),
        arrays_of(searched=100.0),
        arrays_of(searched=0.0),
        arrays_of(searched=np.nan),
        arrays_of(right=6.0),
        arrays_of(right=-1.0),
        arrays_of(right=np.nan),
        arrays_of(items=11.0),
        {**arrays_of(), "t2i/right": np.zeros((module.HITS_COUNTED, 3))},
        {**arrays_of(), "t2i/right": np.zeros((module.HITS_COUNTED, 2), np.int64)},
        {name: array for name, array in arrays_of().items() if name != "t2i/items"},
    ],
)
def test_impossible_counts_are_left_out(sent: dict[str, np.ndarray]) -> None:
    honest, most = arrays_of(2.0), Announced(training=90, validation=5)
    wanted = calibrations([(honest, most)], 1)
    assert calibrations([(honest, most), (sent, most)], 1) == wanted != {}


def test_codes_are_counted_with_their_distinct_inputs() -> None:
    model, items = network(), silo_data(40)
    items.text[5:10] = items.text[4]
    items.has_image[:3] = False
    found = silo_code_counts(model, items, BITS)
    text, image = (signs(model, items)[name] > 0 for name in ("text", "image"))
    assert found["text/totals"].tolist() == [40, 35, len({row.tobytes() for row in text})]
    assert found["image/totals"][0] == 37
    for name, places in (("text", text), ("image", image[3:])):
        wanted = [[(places[:, a] & places[:, b]).sum() for a in range(BITS)] for b in range(BITS)]
        assert found[f"{name}/together"].tolist() == wanted
    assert silo_code_counts(model, items.take(torch.arange(BITS - 1)), BITS) == {}


def test_impossible_counts_of_codes_are_left_out() -> None:
    honest, most = silo_code_counts(network(), silo_data(40), BITS), Announced(training=40)
    wanted = code_uses([(honest, most)], BITS)
    assert wanted.keys() == {"image", "text"}
    wrong: list[dict[str, np.ndarray]] = [
        {name: array * factor for name, array in honest.items()} for factor in (2.0, -1.0, np.nan)
    ]
    wrong += [{**honest, f"{name}/together": np.full((BITS, BITS), 41.0)} for name in ("image", "text")]
    kept = [code_uses([(honest, most), (sent, most)], BITS) for sent in wrong]
    assert kept[:3] == [wanted] * 3
    assert [each[name] for each, name in zip(kept[3:], ("image", "text"), strict=True)] == [
        wanted["image"],
        wanted["text"],
    ]
