"""The encoder: codes of archives, queries and vectors, checked against a network whose outputs are computed by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from silohash.data.archive import Archive, ArchiveCard
from silohash.encode import encoder as module
from silohash.encode.encoder import Encoder
from silohash.encode.trained import Weights
from silohash.features.given import GivenFeatures
from silohash.features.image import PixelFeatures
from silohash.index.codes import unpack
from silohash.models.towers import Adapted
from silohash.runtime.run import Run
from silohash.types import MODALITIES, Modality, Outputs, PairBatch, UserError
from tests.runs import train, write_archive

BITS = 8
MATRIX = np.random.default_rng(0).normal(size=(3, BITS)).astype(np.float32)
"""The only parameters of `Linear`: vectors of three numbers become eight outputs."""


class Linear(nn.Module):
    """A network without a bias, which also counts the rows of each batch and drops outputs during training."""

    modalities: tuple[Modality, ...] = ("image", "text")

    def __init__(self) -> None:
        super().__init__()
        self.matrix = nn.Parameter(torch.from_numpy(MATRIX))
        self.dropout = nn.Dropout(0.5)
        self.sizes: list[int] = []

    def forward(self, batch: PairBatch, modalities: Sequence[Modality] | None = None) -> Outputs:
        given = {name: batch.values(name) for name in modalities or self.modalities}
        self.sizes.append(len(batch.row))
        code: dict[Modality, Tensor] = {
            name: self.dropout(values.flatten(1) @ self.matrix) for name, values in given.items() if values is not None
        }
        return Outputs(feature=code, logit=code, code=code, class_logit={})


class Shifted:
    """Add the extra ``shift`` to every output."""

    adapts_training = False

    def adapt_outputs(self, outputs: Outputs, extras: Mapping[str, Tensor]) -> Outputs:
        return replace(outputs, code={name: values + extras["shift"] for name, values in outputs.code.items()})


def given(modality: Modality) -> GivenFeatures:
    """Return a featurizer for three columns, each with mean 0 and variance 1."""
    sums = {"count": np.full(3, 4.0), "sum": np.zeros(3), "sum_squares": np.full(3, 4.0)}
    return GivenFeatures(modality, 3, sums)


def encoder_of(shift: float = 0.0, modalities: Sequence[Modality] = MODALITIES) -> Encoder:
    model = Adapted(Linear().train(), Shifted(), {"shift": np.full(BITS, shift, np.float32)})
    featurisers = {name: given(name) for name in modalities}
    return Encoder(model, featurisers, bits=BITS, digest="abc", device=torch.device("cpu"))


def archive(rows: int = 5) -> Archive:
    values = np.random.default_rng(1).normal(size=(2, rows, 3)).astype(np.float32)
    everything = np.arange(rows)
    return Archive(
        ids=np.array([f"item-{row}" for row in range(rows)]), image=values[0], text=values[1], labels=None, label_names=(),
        splits={"query": everything[:1], "database": everything[1:], "train": everything[1:]},
        card=ArchiveCard(name="toy", source="this test", licence="CC0"),
    )  # fmt: skip


def expected(values: np.ndarray, shift: float = 0.0) -> np.ndarray:
    """Return the outputs of `Linear` for some vectors, with explicit loops in float64."""
    outputs = np.full((len(values), BITS), shift)
    for row, vector in enumerate(values):
        for bit in range(BITS):
            for column in range(3):
                outputs[row, bit] += float(vector[column]) * float(MATRIX[column, bit])
    return outputs


@pytest.mark.parametrize("modality", MODALITIES)
@pytest.mark.parametrize("shift", [0.0, 0.75])
def test_the_code_is_the_sign_of_the_adapted_output(modality: Modality, shift: float) -> None:
    toy, rows = archive(), np.array([4, 0, 2])
    codes = encoder_of(shift).codes(toy, rows, modality)
    outputs = expected(toy.values(modality)[rows], shift)
    assert np.array_equal(unpack(codes.words, BITS), np.where(outputs >= 0, 1, -1))
    assert (codes.bits, codes.modality, codes.model_digest) == (BITS, modality, "abc")
    assert codes.ids.tolist() == ["item-4", "item-0", "item-2"]


def test_outputs_are_real_values_without_dropout() -> None:
    values = archive().text[:4]
    outputs = encoder_of(0.25).outputs(values, "text")
    assert outputs.dtype == np.float32
    np.testing.assert_allclose(outputs, expected(values, 0.25), rtol=1e-5, atol=1e-6)
    assert np.array_equal(outputs, encoder_of(0.25).outputs(values, "text"))


def test_an_output_of_zero_is_a_set_bit() -> None:
    codes = encoder_of().codes_of(np.zeros((1, 3), np.float32), "image", np.array(["zero"]))
    assert unpack(codes.words, BITS).tolist() == [[1] * BITS]


@pytest.mark.parametrize(
    ("rows", "sizes"), [(0, []), (1, [1]), (3, [3]), (4, [4]), (5, [4, 1]), (8, [4, 4]), (9, [4, 4, 1])]
)
def test_batches_hold_every_row_once(rows: int, sizes: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BATCH_ROWS", 4)
    encoder = encoder_of()
    values = np.random.default_rng(rows).normal(size=(rows, 3)).astype(np.float32)
    outputs = encoder.outputs(values, "text")
    assert encoder.model.model.sizes == sizes
    assert outputs.shape == (rows, BITS)
    assert outputs.dtype == np.float32
    np.testing.assert_allclose(outputs, expected(values), rtol=1e-5, atol=1e-6)
    codes = encoder.codes_of(values, "text", np.array([str(row) for row in range(rows)], np.str_))
    assert codes.words.shape == (rows, 1)


def test_a_query_has_the_code_of_the_same_item() -> None:
    encoder, toy = encoder_of(), archive()
    for row in range(len(toy)):
        one = encoder.encode(toy.image[row], "image")
        assert np.array_equal(one.words, encoder.codes(toy, np.array([row]), "image").words)
        assert (one.ids.tolist(), one.modality, one.model_digest) == (["query"], "image", "abc")


def test_integer_pixels_are_standardized() -> None:
    sums = {"count": np.array([2]), "sum": np.array([200]), "sum_squares": np.array([20_032])}
    pixels = PixelFeatures(8, 1, sums, None)  # a mean of 100 and a variance of 16 per pixel
    model = Adapted(Linear(), Shifted(), {"shift": np.zeros(BITS, np.float32)})
    encoder = Encoder(model, {"image": pixels}, bits=BITS, digest="abc", device=torch.device("cpu"))
    batch = encoder.batch(torch.tensor([[[[100, 104, 92]]]], dtype=torch.uint8), "image")
    assert batch.image.flatten().tolist() == [0.0, 1.0, -2.0]
    assert (batch.has_image.tolist(), batch.has_text.tolist(), batch.text) == ([True], [False], None)
    values = pixels.encode_one(Image.new("L", (8, 8), 108))
    assert encoder.batch(torch.from_numpy(values.copy()), "image").image.unique().tolist() == [2.0]


def test_vectors_are_not_standardized_a_second_time() -> None:
    encoder = encoder_of()
    assert encoder.pixels == {}
    values = torch.tensor([[3.0, -1.0, 0.5]])
    batch = encoder.batch(values, "text")
    assert torch.equal(batch.text, values)
    assert (batch.image, batch.has_text.tolist(), batch.has_image.tolist()) == (None, [True], [False])


@pytest.mark.parametrize(("there", "missing"), [("image", "text"), ("text", "image")])
def test_a_modality_that_the_model_does_not_have(there: Modality, missing: Modality) -> None:
    encoder = encoder_of(modalities=[there])
    message = f"trained without {missing} data and encodes only {there}. .* {there} instead"
    with pytest.raises(UserError, match=message):
        encoder.encode(np.zeros(3, np.float32), missing)
    with pytest.raises(UserError, match=message):
        encoder.codes(archive(), np.arange(2), missing)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("encoder")
    return train(write_archive(folder / "archive", text="words"), folder / "run", federated={"rounds": 1})


@pytest.mark.parametrize("modality", MODALITIES)
def test_one_query_of_a_trained_model_is_coded_as_the_archive_is(run: Run, modality: Modality) -> None:
    encoder = run.model.encoder()
    rows = run.archive.split("query")[:4]
    codes = encoder.codes(run.archive, rows, modality)
    for place, row in enumerate(rows):
        one = encoder.encode(run.archive.values(modality)[row], modality)
        assert np.array_equal(one.words, codes.words[place : place + 1])
        assert one.model_digest == codes.model_digest
    none = encoder.codes(run.archive, rows[:0], modality)
    assert none.words.shape == (0, codes.words.shape[1])


def test_queries_of_the_wrong_kind(run: Run) -> None:
    encoder = run.model.encoder()
    with pytest.raises(UserError, match="16"):
        encoder.encode(np.zeros(7, np.float32), "image")
    with pytest.raises(UserError):
        encoder.encode("words", "image")
    with pytest.raises(UserError):
        encoder.encode(np.zeros(16, np.float32), "text")


def test_a_trained_model_of_one_modality(run: Run) -> None:
    spec = replace(run.model.spec, towers={"text": run.model.spec.towers["text"]})
    params = {n: a for n, a in run.model.weights["global"].params.items() if n.startswith("text.")}
    texts = {"text": run.model.featurisers["text"]}
    only = replace(run.model, spec=spec, featurisers=texts, weights={"global": Weights(params, {})}).encoder()
    with pytest.raises(UserError, match="trained without image data and encodes only text"):
        only.encode(np.zeros(16, np.float32), "image")
