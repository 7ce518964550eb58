"""The codes of a run's items: those of the encoder, computed once per model and modality."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from silohash.base.types import MODALITIES
from silohash.features.vectors import vectors
from silohash.index.codes import pack
from silohash.run.codes import RunCodes
from silohash.run.folder import Run
from silohash.run.model.encoder import Encoder
from tests.runs import train, write_archive

pytestmark = pytest.mark.whole_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder: Path = tmp_path_factory.mktemp("codes")
    archive = write_archive(folder / "archive", count=60)
    return train(archive, folder / "run", federated={"name": "local", "rounds": 1})


def test_codes_are_those_of_the_named_models_encoder(run: Run) -> None:
    codes = RunCodes(run, np.array([3, 8, 9, 20]))
    for name in run.model.names:
        for modality in MODALITIES:
            for rows in ([20, 3], [9], [8, 8], []):
                found = codes.words(name, modality, np.array(rows, np.int64))
                expected = run.model.encoder(name).codes(run.archive, np.array(rows, np.int64), modality)
                assert np.array_equal(found, expected.words)


def test_given_outputs_take_the_place_of_all_models(run: Run) -> None:
    rows, names = np.array([3, 8, 20]), run.model.names
    outputs = {m: np.random.default_rng(n).normal(size=(60, 16)) for n, m in enumerate(MODALITIES)}
    codes = RunCodes(run, rows, outputs)
    for name in names:
        for modality in MODALITIES:
            assert np.array_equal(codes.words(name, modality, rows[1:], "query"), pack(outputs[modality][rows[1:]]))
    both = codes.unified(names[0], rows, [np.ones(3, bool), np.array([True, True, False])])
    summed = pack(outputs["image"][rows] + outputs["text"][rows])
    assert np.array_equal(both[:2], summed[:2])
    assert np.array_equal(both[2], pack(outputs["image"][rows])[2])


def test_each_model_and_modality_is_encoded_once(run: Run) -> None:
    codes = RunCodes(run, np.arange(10))
    first, second = (silo.name for silo in run.partition.silos[:2])
    with mock.patch.object(Encoder, "outputs", autospec=True, side_effect=Encoder.outputs) as encode:
        for _ in range(2):
            for name in (first, second):
                for modality in MODALITIES:
                    codes.words(name, modality, np.arange(5))
    assert encode.call_count == 4


def test_unified_codes_are_the_signs_of_the_sum_of_the_outputs(run: Run) -> None:
    rows = np.array([5, 2, 9, 7])
    codes, encoder = RunCodes(run, np.arange(12)), run.model.encoder("silo-1")
    outputs = {m: encoder.outputs(vectors(run.archive, encoder.featurizers[m], rows), m) for m in MODALITIES}
    only = {modality: codes.words("silo-1", modality, rows) for modality in MODALITIES}
    image, text = np.array([True, True, False, True]), np.array([True, False, True, True])
    found = codes.unified("silo-1", rows, [image, text])
    both = pack(outputs["image"] + outputs["text"])
    assert np.array_equal(found, np.stack([both[0], only["image"][1], only["text"][2], both[3]]))
    assert not np.array_equal(both, only["image"])
    assert not np.array_equal(both, only["text"])
    assert np.array_equal(codes.unified("silo-1", rows[:0], [image[:0], text[:0]]), found[:0])


def test_unified_codes_are_computed_once_per_model(run: Run) -> None:
    codes = RunCodes(run, np.arange(10))
    with mock.patch.object(Encoder, "outputs", autospec=True, side_effect=Encoder.outputs) as encode:
        for _ in range(2):
            codes.unified("global", np.arange(5), [np.ones(5, bool)] * 2)
            for modality in MODALITIES:
                codes.words("global", modality, np.arange(5))
    assert encode.call_count == 2


def test_items_without_the_modality_are_encoded_from_zeros(run: Run) -> None:
    has_text = run.archive.has_text.copy()
    has_text[4] = False
    other = Run(run.folder)
    other.__dict__.update(archive=replace(run.archive, has_text=has_text), model=run.model)
    codes = RunCodes(other, np.arange(6))
    encoder = run.model.encoder()
    zeros = encoder.codes_of(np.zeros((1, 16), np.float32), "text", np.array(["zero"]))
    assert np.array_equal(codes.words("global", "text", np.array([4])), zeros.words)
    held = encoder.codes(run.archive, np.array([5]), "text")
    assert np.array_equal(codes.words("global", "text", np.array([5])), held.words)
