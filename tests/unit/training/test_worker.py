"""The worker of silo tasks: the validation score, the device and the number of threads."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from silohash.base.errors import DeviceUnavailable
from silohash.evaluate.measures import Measure, evaluate_all
from silohash.evaluate.relevance import Relevance
from silohash.features.device import choose_device
from silohash.index.codes import pack
from silohash.methods.local import LOCAL_METHODS
from silohash.methods.local.base import outputs_of
from silohash.run.config.sections import TrainConfig
from silohash.training.engines.port import SiloTask
from silohash.training.worker import Worker, pair_score, set_threads, validation_score
from tests.runs import model_spec, prepared, silo_data


def area(distances: np.ndarray, relevant: np.ndarray) -> list[float]:
    """Return the area under the ROC curve of each query, from all pairs of a relevant item and another."""
    pairs = [row[~right][None] - row[right][:, None] for row, right in zip(distances, relevant, strict=True)]
    return [float(((apart > 0) + 0.5 * (apart == 0)).mean()) for apart in pairs]


def test_validation_score_is_the_mean_over_both_tasks() -> None:
    kind = LOCAL_METHODS.resolve("dcmh")
    torch.manual_seed(0)
    model = kind(kind.Params()).build(model_spec(), 16)
    database, queries = silo_data(40), silo_data(10, seed=1)
    words = [{m: pack(v.numpy()) for m, v in outputs_of(model, data).items()} for data in (queries, database)]
    measure = Measure.parse("mAP@all")
    relevance = Relevance(*(data.labels.numpy().astype(np.uint8) for data in (queries, database)))
    chance = (queries.labels @ database.labels.T > 0).double().mean().item()
    scores = [
        evaluate_all([measure], words[0][a], words[1][b], relevance, 16)[measure].value.mean()
        for a, b in (("image", "text"), ("text", "image"))
    ]
    found = validation_score(model, database, queries, 16)
    assert found[:2] == pytest.approx((np.mean(scores), chance))
    own = queries.labels @ database.labels.T > 0
    apart = [
        np.bitwise_count(words[0][a][:, None] ^ words[1][b][None]).sum(2, dtype=int)
        for a, b in (("image", "text"), ("text", "image"))
    ]
    items = np.mean([area(distances, own.numpy()) for distances in apart], axis=0)
    assert found[2:] == pytest.approx((items.mean(), items.std(ddof=1) / np.sqrt(10), 10))
    nobody = silo_data(1)
    none = {n: getattr(nobody, n)[:0] for n in ("image", "text", "labels", "has_image", "has_text")}
    assert np.isnan(validation_score(model, database, replace(nobody, **none), 16)[:4]).all()
    assert np.isnan(validation_score(model, database, replace(queries, labels=None), 16)[:4]).all()


def test_ignored_labels_do_not_count_in_the_validation_score() -> None:
    kind = LOCAL_METHODS.resolve("dcmh")
    torch.manual_seed(0)
    model = kind(kind.Params()).build(model_spec(), 16)
    database, queries = silo_data(40), silo_data(20, seed=1)
    for data in (database, queries):
        data.labels[:3] = 0  # three items without a label besides the next
        data.labels[:, 1] = 1  # a label that all items have

    def without_label(data):
        kept = data.take(torch.tensor([row for row in range(len(data)) if data.labels[row].sum() > 1]))
        assert len(kept) <= len(data) - 3
        return replace(kept, labels=kept.labels[:, [0, 2, 3, 4, 5]])

    expected = validation_score(model, without_label(database), without_label(queries), 16)
    found = validation_score(model, database, queries, 16, ignore=(1,))
    assert found == pytest.approx(expected)
    assert found[1] < validation_score(model, database, queries, 16)[1] == 1
    assert np.isnan(validation_score(model, database, queries.take(torch.arange(3)), 16, ignore=(1,))[:4]).all()


def partner_precision(distances: np.ndarray, partner: np.ndarray) -> float:
    """The mean over queries of the average precision, over all orders of the items at equal distance."""
    values = []
    for row, relevant in zip(distances, partner, strict=True):
        found = seen = total = 0.0
        for distance in sorted(set(row.tolist())):
            group = relevant[row == distance]
            size, hits = len(group), float(group.sum())
            for place in range(1, size + 1):
                earlier = (place - 1) * (hits - 1) / (size - 1) if size > 1 else 0.0
                total += hits / size * (found + 1 + earlier) / (seen + place) if hits else 0.0
            found, seen = found + hits, seen + size
        values.append(total / relevant.sum())
    return float(np.mean(values))


def test_pair_score_is_the_mean_over_both_tasks_with_one_picture_for_its_texts() -> None:
    kind = LOCAL_METHODS.resolve("dcmh")
    torch.manual_seed(0)
    model = kind(kind.Params()).build(model_spec(), 16)
    items = silo_data(12)
    items.image[[1, 2]] = items.image[0].clone()
    items.has_text[5], items.has_image[7] = False, False
    pictures = np.array([40, 40, 40, 3, 4, 5, 6, 7, 8, 9, 10, 11])
    codes = {m: np.where(v.numpy() >= 0, 1, -1).astype(int) for m, v in outputs_of(model, items).items()}
    images, texts = [0, 3, 4, 6, 8, 9, 10, 11], [0, 1, 2, 3, 4, 6, 8, 9, 10, 11]
    distances = (16 - codes["image"][images] @ codes["text"][texts].T) // 2
    partner = pictures[images][:, None] == pictures[texts]
    expected = (partner_precision(distances, partner) + partner_precision(distances.T, partner.T)) / 2
    tied = np.zeros_like(distances)
    chance = (partner_precision(tied, partner) + partner_precision(tied.T, partner.T)) / 2
    found = pair_score(model, items, pictures, 16)
    assert found[:2] == pytest.approx((expected, chance))
    assert pair_score(model, replace(items, labels=None), pictures, 16) == found
    by_image, by_text = area(distances, partner), area(distances.T, partner.T)
    # the first picture has three texts, and is one observation with them
    observed = [np.mean([by_image[0], *by_text[:3]]), *np.mean([by_image[1:], by_text[3:]], axis=0)]
    assert found[2:] == pytest.approx((np.mean(observed), np.std(observed, ddof=1) / np.sqrt(8), 8))
    one = items.take(torch.tensor([0, 1, 2, 5]))
    assert np.isnan(pair_score(model, one, pictures[[0, 1, 2, 5]], 16)[:4]).all()
    two = items.take(torch.tensor([0, 3]))
    assert np.isfinite(pair_score(model, two, pictures[[0, 3]], 16)).all()


def test_a_worker_scores_by_what_the_config_names() -> None:
    for by in ("labels", "pairs"):
        inputs = prepared((20, 20), validation=8, evaluate={"validation_by": by})
        numbers = np.arange(len(inputs.arrays["has_image"]))
        if by == "pairs":
            inputs = replace(inputs, arrays={**inputs.arrays, "pictures": numbers})
            assert inputs.pictures(1).tolist() == [48, 49, 50, 51, 52, 53, 54, 55]
        else:
            inputs = replace(inputs, arrays={**inputs.arrays, "ignored_labels": np.array([1])})
        worker = Worker(inputs, torch.device("cpu"))
        state = inputs.resolved.federated.init_server(worker.model, inputs.info())
        broadcast = inputs.resolved.federated.broadcast(state, 1, round=0)
        update = worker.do(SiloTask("validate", 1, broadcast)).update
        train, validation = inputs.silo(1, torch.device("cpu"))
        if by == "pairs":
            expected = pair_score(worker.model, validation, numbers[48:], 16)
        else:
            expected = validation_score(worker.model, train, validation, 16, ignore=(1,))
            assert expected != validation_score(worker.model, train, validation, 16)
        assert [update.scalars[name] for name in expected._fields[:4]] == pytest.approx(expected[:4])
        assert update.counts == {"queries": 8, "judged": expected.judged}


def test_devices_and_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose_device("cpu").type == "cpu"
    assert choose_device("auto").type in {"cpu", "cuda", "mps"}
    with pytest.raises(DeviceUnavailable, match="nonsense"):
        choose_device("nonsense")
    set_threads(TrainConfig(threads=1))
    assert torch.get_num_threads() == 1
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    for workers, threads in ((1, 4), (2, 2), (3, 1), (8, 1)):
        set_threads(TrainConfig(threads=0, workers=workers))
        assert torch.get_num_threads() == threads
    set_threads(TrainConfig(threads=3, workers=2))
    assert torch.get_num_threads() == 3
    set_threads(TrainConfig(threads=1))
