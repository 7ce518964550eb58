"""The encoder: codes of archives, queries and vectors, checked against a network whose outputs are computed by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from silohash.base.errors import ArchiveUnsuitable, CannotEncode, LabelsNeeded, QueryUnsuitable
from silohash.base.types import MODALITIES, Modality, Side
from silohash.index.codes import unpack
from silohash.run.folder import Run
from silohash.run.model.encoder import OnnxTowers
from silohash.run.model.trained import Weights
from tests.linear import BITS, archive, encoder_of, expected, linear_onnx
from tests.runs import train, write_archive


@pytest.mark.parametrize("modality", MODALITIES)
@pytest.mark.parametrize("shift", [0.0, 0.75])
def test_the_code_is_the_sign_of_the_adapted_output(modality: Modality, shift: float) -> None:
    toy, rows = archive(), np.array([4, 0, 2])
    codes = encoder_of(shift).codes(toy, rows, modality)
    outputs = expected(toy.values(modality)[rows], shift)
    assert np.array_equal(unpack(codes.words, BITS), np.where(outputs >= 0, 1, -1))
    assert (codes.bits, codes.modality, codes.model_digest) == (BITS, modality, "abc")
    assert codes.ids.tolist() == ["item-4", "item-0", "item-2"]


def test_no_vectors_have_no_outputs() -> None:
    encoder = encoder_of()
    assert encoder.outputs(np.zeros((0, 3), np.float32), "text").shape == (0, BITS)
    assert encoder.codes(archive(), np.zeros(0, np.int64), "text").words.shape == (0, 1)
    assert encoder.towers.model.model.sizes == []


def test_an_output_of_zero_is_a_set_bit() -> None:
    codes = encoder_of().codes_of(np.zeros((1, 3), np.float32), "image", np.array(["zero"]))
    assert unpack(codes.words, BITS).tolist() == [[1] * BITS]


def test_a_query_has_the_code_of_the_same_item() -> None:
    encoder, toy = encoder_of(), archive()
    for row in range(len(toy)):
        one = encoder.encode(toy.image[row], "image")
        assert np.array_equal(one.words, encoder.codes(toy, np.array([row]), "image").words)
        assert (one.ids.tolist(), one.modality, one.model_digest) == (["query"], "image", "abc")


@pytest.mark.parametrize("weight", [0.0, 0.3, 0.5, 1.0])
def test_a_picture_and_a_text_have_the_code_of_their_weighted_directions(weight: float) -> None:
    encoder, toy = encoder_of(0.75), archive()
    for row in range(len(toy)):
        values: dict[Modality, np.ndarray] = {side: toy.values(side)[row] for side in MODALITIES}
        outputs = {side: expected(value[None], 0.75)[0].astype(np.float64) for side, value in values.items()}
        units = {side: found / np.sqrt(found @ found) for side, found in outputs.items()}
        total = (1 - weight) * units["image"] + weight * units["text"]
        both = encoder.encode_all(values, weight)
        assert np.array_equal(unpack(both.words, BITS)[0], np.where(total >= 0, 1, -1))
        assert np.array_equal(both.magnitudes[0], np.rint(np.abs(total) / np.abs(total).max() * 255))
        for side in MODALITIES:
            alone = encoder.encode_all({side: values[side]}, weight)
            assert np.array_equal(alone.words, encoder.encode(values[side], side).words)
            if weight == {"image": 0.0, "text": 1.0}[side]:
                assert np.array_equal(both.words, alone.words)


@pytest.mark.parametrize(("there", "missing"), [("image", "text"), ("text", "image")])
def test_a_modality_that_the_model_does_not_have(there: Modality, missing: Modality) -> None:
    encoder = encoder_of(modalities=[there])
    message = f"trained without {missing} data and encodes only {there}. .* {there} instead"
    with pytest.raises(CannotEncode, match=message):
        encoder.encode(np.zeros(3, np.float32), missing)
    with pytest.raises(CannotEncode, match=message):
        encoder.codes(archive(), np.arange(2), missing)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("encoder")
    return train(write_archive(folder / "archive", text="words"), folder / "run", federated={"rounds": 1})


@pytest.mark.whole_run
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


@pytest.mark.whole_run
def test_queries_of_the_wrong_kind(run: Run) -> None:
    encoder = run.model.encoder()
    with pytest.raises(ArchiveUnsuitable, match="16"):
        encoder.encode(np.zeros(7, np.float32), "image")
    with pytest.raises(QueryUnsuitable):
        encoder.encode("words", "image")
    with pytest.raises(QueryUnsuitable):
        encoder.encode(np.zeros(16, np.float32), "text")


@pytest.mark.whole_run
def test_a_trained_model_of_one_modality(run: Run) -> None:
    trained = run.model.trained
    spec = replace(trained.spec, towers={"text": trained.spec.towers["text"]})
    params = {n: a for n, a in trained.weights["global"].params.items() if n.startswith("text.")}
    texts = {"text": trained.featurizers["text"]}
    only = replace(trained, spec=spec, featurizers=texts, weights={"global": Weights(params, {})}).encoder()
    with pytest.raises(CannotEncode, match=r"image.*text"):
        only.encode(np.zeros(16, np.float32), "image")


@pytest.mark.parametrize(
    ("sides", "query", "database"),
    [((), False, False), (("database",), False, True), (("query", "database"), True, True)],
)
def test_labels_are_those_of_the_sides_that_need_them(sides: tuple[Side, ...], query: bool, database: bool) -> None:
    encoder, toy = encoder_of(), replace(archive(), labels=np.eye(5, 2, dtype=np.uint8), label_names=("a", "b"))
    encoder.label_sides, encoder.label_free = sides, 'local.labels = "label-free"'
    rows = np.array([3, 0])
    for side, needed in (("query", query), ("database", database)):
        found = encoder.labels_for(side, toy, rows)
        assert (found is not None) == needed
        if found is not None:
            assert found.tolist() == [[0, 0], [1, 0]]
    value = np.zeros(3, np.float32)
    if query:
        with pytest.raises(CannotEncode, match="label-free"):
            encoder.encode(value, "image")
    else:
        assert encoder.encode(value, "image").bits == BITS
    if sides:
        with pytest.raises(CannotEncode, match=f"refused.*{' and the '.join(sides)}"):
            encoder.check_without_labels("This is refused,")
    else:
        encoder.check_without_labels("This is refused,")


def test_labels_that_are_needed_and_missing() -> None:
    encoder = encoder_of()
    encoder.label_sides, encoder.label_free = ("database",), 'local.labels = "label-free"'
    with pytest.raises(LabelsNeeded, match=r'"toy" has no labels, with which .*label-free'):
        encoder.codes(archive(), np.arange(2), "image")


@pytest.mark.parametrize("modality", MODALITIES)
def test_warming_up_runs_the_tower_with_one_item(modality: Modality) -> None:
    encoder = encoder_of()
    encoder.warm_up(modality)
    assert encoder.towers.model.model.sizes == [1]
    with pytest.raises(CannotEncode, match="image"):
        encoder_of(modalities=["text"]).warm_up("image")


def test_a_file_is_read_when_its_modality_is_first_encoded() -> None:
    content = linear_onnx()
    read: list[str] = []

    def file(modality: str) -> bytes:
        """Return the same network for every modality."""
        read.append(modality)
        return content

    towers = OnnxTowers(file)
    assert read == []
    values = np.ones((2, 3), np.float32)
    for modality in ("text", "text", "image"):
        np.testing.assert_allclose(towers.outputs(values, modality), expected(values), rtol=1e-5, atol=1e-6)  # type: ignore[arg-type]
    assert read == ["text", "image"]
