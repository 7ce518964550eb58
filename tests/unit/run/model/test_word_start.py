"""Trainings start from pretrained vectors of words, and their models are loaded without the file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from silohash.base.errors import BadLine, MissingFile, UnknownWords, UserError, WrongShape
from silohash.base.files import read_arrays
from silohash.methods.local.matching.sgm import SGM, SGMParams
from silohash.models.nodes import word_tables
from silohash.run.config.load import load_resolved
from silohash.run.folder import Run
from silohash.run.model.word_start import read_word_vectors, start_from_word_vectors
from silohash.testing.inputs import node_spec
from silohash.training import experiment
from tests.regions import matching_config, write_region_set


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A run of one step with a tiny rate, which started from the vectors of two words."""
    monkeypatch.setenv("SILOHASH_DATA", str(write_region_set(tmp_path / "data", pictures=24)))
    (tmp_path / "glove.txt").write_text("dog 1 1 1 1 1 1 1 1\nboat 2 2 2 2 2 2 2 2\nunheard 3 3 3 3 3 3 3 3\n")
    config = matching_config(
        federated={"rounds": 1, "local_epochs": 1},
        features={"text": {"kind": "words", "length": 12, "vectors": str(tmp_path / "glove.txt")}},
        train={"learning_rate": 1e-6},
    )
    return experiment.train(load_resolved(config), tmp_path / "run")


@pytest.mark.whole_run
def test_known_words_start_from_their_vectors(run: Run, tmp_path: Path) -> None:
    (tmp_path / "glove.txt").unlink()
    [table] = word_tables(run.model.trained.network())
    featurizer = run.model.featurizers["text"]
    weight = table.weight.detach().numpy()
    for word, value in (("dog", 1), ("boat", 2)):
        np.testing.assert_allclose(weight[featurizer.known_number(word)], value, atol=1e-3)
    assert abs(weight[featurizer.known_number("cat")]).max() < 0.11
    assert featurizer.known_number("unheard") is None
    stored = read_arrays(run.model_folder / "weights-000.safetensors")[0]
    assert any(name.endswith("words.weight") for name in stored)


def test_every_table_of_words_is_filled() -> None:
    tables = word_tables(SGM(SGMParams(word_width=4)).build(node_spec(), 16))
    assert [table.embedding_dim for table in tables] == [4, 4]


@pytest.mark.whole_run
def test_without_a_file_nothing_changes(run: Run) -> None:
    network = run.model.trained.network()
    before = word_tables(network)[0].weight.clone()
    start_from_word_vectors(network, run.model.featurizers["text"])
    assert (word_tables(network)[0].weight == before).all()


NUMBERS = {"dog": 5, "a": 3, "new york": 7}


def written(folder: Path, text: str) -> Path:
    (folder / "vectors.txt").write_text(text, encoding="utf-8")
    return folder / "vectors.txt"


def test_vectors_of_needed_words_are_kept(tmp_path: Path) -> None:
    path = written(tmp_path, "the 1 2\ndog 0.5 -1e-1\nnew york 3 4\ndog 9 9\n")
    numbers, vectors = read_word_vectors(path, NUMBERS.get, 2)
    assert dict(zip(numbers.tolist(), vectors.tolist(), strict=True)) == {5: pytest.approx([0.5, -0.1]), 7: [3, 4]}
    assert vectors.dtype == "float32"


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("dog 1 2 3\n", WrongShape, r"1.*3.*2.*3"),
        ("dog 1\n", WrongShape, r"1.*1"),
        ("a 1 2\ndog 1 x\n", BadLine, "2"),
        ("dog 1 nan\n", BadLine, "1"),
        ("cat 1 2\n", UnknownWords, None),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path: Path, text: str, kind: type[UserError], message: str | None) -> None:
    with pytest.raises(kind, match=message):
        read_word_vectors(written(tmp_path, text), NUMBERS.get, 2)


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(MissingFile, match=r"none\.txt.*features\.text\.vectors"):
        read_word_vectors(tmp_path / "none.txt", NUMBERS.get, 2)
