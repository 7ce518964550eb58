"""The towers as torch runs them: batches, standardized pixels, no dropout."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from silohash.features.image import PixelFeatures
from silohash.models.towers import Adapted
from silohash.run.model import torch_towers as module
from silohash.run.model.torch_towers import TorchTowers
from tests.linear import BITS, Linear, Shifted, archive, encoder_of, expected


def test_outputs_are_real_values_without_dropout() -> None:
    values = archive().text[:4]
    outputs = encoder_of(0.25).towers.outputs(values, "text")
    assert outputs.dtype == np.float32
    np.testing.assert_allclose(outputs, expected(values, 0.25), rtol=1e-5, atol=1e-6)
    assert np.array_equal(outputs, encoder_of(0.25).towers.outputs(values, "text"))


@pytest.mark.parametrize(
    ("rows", "sizes"), [(0, []), (1, [1]), (3, [3]), (4, [4]), (5, [4, 1]), (8, [4, 4]), (9, [4, 4, 1])]
)
def test_batches_hold_every_row_once(rows: int, sizes: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BATCH_ROWS", 4)
    encoder = encoder_of()
    values = np.random.default_rng(rows).normal(size=(rows, 3)).astype(np.float32)
    outputs = encoder.outputs(values, "text")
    assert encoder.towers.model.model.sizes == sizes
    assert outputs.shape == (rows, BITS)
    assert outputs.dtype == np.float32
    np.testing.assert_allclose(outputs, expected(values), rtol=1e-5, atol=1e-6)


def test_integer_pixels_are_standardized() -> None:
    sums = {"count": np.array([2]), "sum": np.array([200]), "sum_squares": np.array([20_032])}
    pixels = PixelFeatures(8, 1, sums, None)  # a mean of 100 and a variance of 16 per pixel
    model = Adapted(Linear(), Shifted(), {"shift": np.zeros(BITS, np.float32)})
    towers = TorchTowers(model, {"image": pixels}, torch.device("cpu"))
    batch = towers.batch(torch.tensor([[[[100, 104, 92]]]], dtype=torch.uint8), "image")
    assert batch.image.flatten().tolist() == [0.0, 1.0, -2.0]
    assert (batch.has_image.tolist(), batch.has_text.tolist(), batch.text) == ([True], [False], None)
    values = pixels.encode_one(Image.new("L", (8, 8), 108))
    assert towers.batch(torch.from_numpy(values.copy()), "image").image.unique().tolist() == [2.0]


def test_vectors_are_not_standardized_a_second_time() -> None:
    towers = encoder_of().towers
    assert towers.pixels == {}
    values = torch.tensor([[3.0, -1.0, 0.5]])
    batch = towers.batch(values, "text")
    assert torch.equal(batch.text, values)
    assert (batch.image, batch.has_text.tolist(), batch.has_image.tolist()) == (None, [True], [False])
