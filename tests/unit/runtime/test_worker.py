"""The worker of silo tasks: the validation score, the device and the number of threads."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from silohash.config.sections import TrainConfig
from silohash.evaluate.measures import Measure, evaluate_all
from silohash.evaluate.relevance import Relevance
from silohash.features.device import choose_device
from silohash.index.codes import pack
from silohash.local import LOCAL_METHODS
from silohash.local.base import outputs_of
from silohash.runtime.worker import set_threads, validation_score
from silohash.types import UserError
from tests.runs import model_spec, silo_data


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
    assert validation_score(model, database, queries, 16) == pytest.approx((np.mean(scores), chance))
    nobody = silo_data(1)
    none = {n: getattr(nobody, n)[:0] for n in ("image", "text", "labels", "has_image", "has_text")}
    assert np.isnan(validation_score(model, database, replace(nobody, **none), 16)).all()
    assert np.isnan(validation_score(model, database, replace(queries, labels=None), 16)).all()


def test_devices_and_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose_device("cpu").type == "cpu"
    assert choose_device("auto").type in {"cpu", "cuda", "mps"}
    with pytest.raises(UserError, match='"nonsense" is not available'):
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
