"""Trainings start from pretrained vectors of words, and their models are loaded without the file."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from silohash.base.errors import BadLine, DataChanged, MissingFile, NoEffect, UnknownWords, UserError, WrongShape
from silohash.base.files import digest_file, read_arrays, read_json
from silohash.methods.local import LOCAL_METHODS
from silohash.methods.local.matching.sgm import SGM, SGMParams
from silohash.models.matching_net import nodes_of
from silohash.models.nodes import WordTable, word_tables
from silohash.models.specs import TowerSpec
from silohash.run.config.load import load_resolved
from silohash.run.folder import Run
from silohash.run.model.word_start import install_word_vectors, read_word_vectors
from silohash.testing.inputs import node_spec
from silohash.training import experiment
from tests.regions import matching_config, write_region_set


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A run of one step with a tiny rate, which started from the vectors of two words."""
    monkeypatch.setenv("SILOHASH_DATA", str(write_region_set(tmp_path / "data", pictures=24)))
    return trained(tmp_path)


def trained(tmp_path: Path, **sections: dict[str, object]) -> Run:
    """Train one step from the vectors of two words."""
    (tmp_path / "glove.txt").write_text("dog 1 1 1 1 1 1 1 1\nboat 2 2 2 2 2 2 2 2\nunheard 3 3 3 3 3 3 3 3\n")
    text = {"kind": "words", "length": 12, "vectors": str(tmp_path / "glove.txt"), **sections.pop("text", {})}
    config = matching_config(
        **{
            "federated": {"rounds": 1, "local_epochs": 1},
            "features": {"text": text},
            "train": {"learning_rate": 1e-6},
            **sections,
        }
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
def test_the_share_of_words_is_said_and_the_file_is_recorded(run: Run, tmp_path: Path) -> None:
    [first] = [json.loads(line) for line in run.rounds_path.read_text().splitlines()]
    assert "vectors of 2 of the 14 known words (14%). The others start from random numbers." in " ".join(
        first["warnings"]
    )
    recorded = read_json(run.folder / "environment.json", dict[str, Any])["files"]
    assert recorded == {"features.text.vectors": digest_file(tmp_path / "glove.txt")}


@pytest.mark.whole_run
def test_a_file_that_changed_before_the_first_round_is_refused(run: Run, tmp_path: Path) -> None:
    shutil.rmtree(run.checkpoint)
    shutil.rmtree(run.model_folder)
    (tmp_path / "glove.txt").write_text("dog 1 1 1 1 1 1 1 2\n")
    with pytest.raises(DataChanged, match=r"glove\.txt"):
        experiment.resume(Run.open(run.folder))


@pytest.mark.whole_run
@pytest.mark.parametrize("use", ["fixed", "beside"])
def test_fixed_vectors_are_kept_with_the_model_and_not_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, use: str
) -> None:
    monkeypatch.setenv("SILOHASH_DATA", str(write_region_set(tmp_path / "data", pictures=24)))
    run = trained(tmp_path, text={"vectors_as": use}, train={"learning_rate": 0.01, "threads": 1})
    (tmp_path / "glove.txt").unlink()
    run = Run.open(run.folder)
    [table] = word_tables(run.model.trained.network())
    featurizer = run.model.featurizers["text"]
    for word, value in (("dog", 1), ("boat", 2)):
        assert table.given[featurizer.known_number(word)].tolist() == [value] * 8
    assert bool(table.given[featurizer.known_number("cat")].any()) == (use == "fixed")
    assert table.width == (8 if use == "fixed" else 16)
    assert (0 < abs(table.given[2]).max() <= 0.1) == (use == "fixed")
    # Silos send learned vectors only.
    [first] = [json.loads(line) for line in run.rounds_path.read_text().splitlines()]
    assert first["uplink_bytes"] < first["downlink_bytes"]
    encoded = run.model.encoder().encode("a dog and a boat", "text")
    assert encoded.words.any()


def test_beside_and_fixed_vectors_enter_the_network() -> None:
    spec = TowerSpec("words", (6,), hidden=4, settings={"words": 5, "vectors": "beside"})
    table = WordTable(spec, 3)
    table.given[2] = torch.tensor([1.0, 2.0, 3.0])
    numbers = torch.tensor([[2, 4]])
    found = table(numbers)
    assert found.shape == (1, 2, 6)
    assert found[0, :, :3].tolist() == [[1, 2, 3], [0, 0, 0]]
    assert torch.equal(found[0, :, 3:], table.weight[numbers[0]])
    only = WordTable(replace(spec, settings={"words": 5, "vectors": "fixed"}), 3)
    assert not list(only.parameters())
    assert torch.equal(only(numbers), only.given[numbers])


SMALL = {"gsmn": {"blocks": 4}, "saem": {"heads": 2}, "joint_attention": {"heads": 2}}
MATCHING = [name for name in LOCAL_METHODS.table if LOCAL_METHODS.resolve(name).traits.scores_pairs]


@pytest.mark.parametrize("name", MATCHING)
@pytest.mark.parametrize("use", ["fixed", "beside"])
def test_every_method_takes_fixed_vectors(name: str, use: str) -> None:
    spec = node_spec()
    text = spec.towers["text"]
    spec = replace(spec, towers={**spec.towers, "text": replace(text, settings={**text.settings, "vectors": use})})
    method = LOCAL_METHODS.resolve(name)
    model = method(method.Params(**SMALL.get(name, {}), word_width=4)).build(spec, 16)
    assert all(table.learned == (use == "beside") for table in word_tables(model))
    nodes = nodes_of(model, torch.tensor([[0, 3, 4, 1] + [-1] * (text.shape[-1] - 4)], dtype=torch.int32), "text")
    assert nodes.values.isfinite().all()


def test_vectors_need_words(tmp_path: Path) -> None:
    model = SGM(SGMParams(word_width=4)).build(node_spec(), 16)
    with pytest.raises(NoEffect):
        install_word_vectors(model, None, tmp_path / "vectors.txt", None)


@pytest.mark.parametrize("text", ["2 2\ndog 1 2\n", "\ufeffdog 1 2\r\n\r\n", "2 2\r\ndog 1 2 \r\nthe 3 4"])
def test_headers_line_ends_and_empty_lines_are_no_words(tmp_path: Path, text: str) -> None:
    path = tmp_path / "vectors.txt"
    path.write_bytes(text.encode())
    numbers, vectors, repeated = read_word_vectors(path, NUMBERS.get, 2)
    assert (numbers.tolist(), vectors.tolist(), repeated) == ([5], [[1, 2]], 0)


NUMBERS = {"dog": 5, "a": 3, "new york": 7}


def written(folder: Path, text: str) -> Path:
    (folder / "vectors.txt").write_text(text, encoding="utf-8")
    return folder / "vectors.txt"


def test_vectors_of_needed_words_are_kept(tmp_path: Path) -> None:
    path = written(tmp_path, "the 1 2\ndog 0.5 -1e-1\nnew york 3 4\ndog 9 9\n")
    numbers, vectors, repeated = read_word_vectors(path, NUMBERS.get, 2)
    assert repeated == 1
    assert dict(zip(numbers.tolist(), vectors.tolist(), strict=True)) == {5: pytest.approx([0.5, -0.1]), 7: [3, 4]}
    assert vectors.dtype == "float32"


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("dog 1 2 3\n", WrongShape, r"1.*3.*2.*3"),
        ("7 300\ndog 1 2\n", WrongShape, "word_width = 300"),
        ("a 1 2\ndog 1\n", BadLine, r"line 2 has 1 numbers instead of 2"),
        ("a 1 2\ndog 1 2 3\nboat 1", BadLine, r"line 3"),
        ("dog 1 1e99\n", BadLine, "1"),
        ("dog 1\n", WrongShape, r"1.*1"),
        ("a 1 2\ndog 1 x\n", BadLine, "2"),
        ("dog 1 nan\n", BadLine, "1"),
        ("cat 1 2\n", UnknownWords, None),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path: Path, text: str, kind: type[UserError], message: str | None) -> None:
    with pytest.raises(kind, match=message):
        read_word_vectors(written(tmp_path, text), NUMBERS.get, 2)


def test_no_run_is_created_without_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SILOHASH_DATA", str(write_region_set(tmp_path / "data", pictures=24)))
    with pytest.raises(MissingFile, match=r"none\.txt.*features\.text\.vectors"):
        trained(tmp_path, text={"vectors": str(tmp_path / "none.txt")})
    assert not (tmp_path / "run").exists()


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(MissingFile, match=r"none\.txt.*features\.text\.vectors"):
        read_word_vectors(tmp_path / "none.txt", NUMBERS.get, 2)
