"""The codes of a run's items: those of the encoder, computed once per model and modality."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from silohash.encode.encoder import Encoder
from silohash.runtime.codes import RunCodes
from silohash.runtime.run import Run
from silohash.types import MODALITIES
from tests.runs import train, write_archive


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


def test_each_model_and_modality_is_encoded_once(run: Run) -> None:
    codes = RunCodes(run, np.arange(10))
    first, second = (silo.name for silo in run.partition.silos[:2])
    with mock.patch.object(Encoder, "codes_of", autospec=True, side_effect=Encoder.codes_of) as encode:
        for _ in range(2):
            for name in (first, second):
                for modality in MODALITIES:
                    codes.words(name, modality, np.arange(5))
    assert encode.call_count == 4


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
