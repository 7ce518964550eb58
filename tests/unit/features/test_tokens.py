from __future__ import annotations

import shutil

import numpy as np
import pytest

pytest.importorskip("transformers")

from silohash.base.types import UserError
from silohash.features import featurizer, load, save
from silohash.features.tokens import TokenFeatures
from silohash.features.word_pieces import PADDING, read_word_pieces
from tests import backbones

COUNT = 20
ROWS = np.arange(COUNT)
TEXTS = backbones.sentences(COUNT)


def made(folder, **options):
    return featurizer("text", TEXTS, {"kind": "tokens", "model": str(folder), **options})


@pytest.mark.parametrize("name", list(backbones.TEXT_MODELS))
def test_pieces_are_those_of_the_models_own_tokenizer(tmp_path, name):
    from transformers import AutoTokenizer

    folder = backbones.TEXT_MODELS[name](tmp_path / name)
    found = made(folder, length=9).transform(TEXTS, ROWS)
    assert found.shape == (COUNT, 9)
    published = AutoTokenizer.from_pretrained(folder)
    for text, row in zip(TEXTS, found, strict=True):
        expected = published(str(text), truncation=True, max_length=9)["input_ids"]
        assert row[row != PADDING].tolist() == expected
        assert (row[len(expected) :] == PADDING).all()


def test_long_texts_are_cut_and_keep_their_end(tmp_path):
    pieces = read_word_pieces(backbones.bert(tmp_path / "bert"), 5)
    long, short = pieces.ids(["two red parrots on the tree", "violin"])
    assert len(long) == 5
    assert long[-1] == short[2] == pieces.ids([""])[0][-1]
    assert read_word_pieces(tmp_path / "bert").most == 12


def test_the_state_needs_no_folder(tmp_path):
    folder = backbones.bert(tmp_path / "bert")
    features = made(folder)
    found = features.fitted(features.statistics(TEXTS, ROWS)).transform(TEXTS, ROWS)
    save(features, tmp_path / "state.safetensors")
    shutil.rmtree(folder)
    restored = load(tmp_path / "state.safetensors")
    np.testing.assert_array_equal(restored.transform(TEXTS, ROWS), found)
    np.testing.assert_array_equal(restored.encode_one(str(TEXTS[3]))[0], found[3])
    assert restored.shape == (12,)


@pytest.mark.parametrize(
    ("options", "message"), [({"length": 2}, "length is 2"), ({"model": "./nowhere"}, "the folder .* does not exist")]
)
def test_options_that_do_not_fit(options, message):
    with pytest.raises(UserError, match=message):
        featurizer("text", TEXTS, {"kind": "tokens", **options})


def test_columns_that_do_not_fit(tmp_path):
    with pytest.raises(UserError, match="needs texts"):
        featurizer("text", np.zeros((3, 4), np.float32), {"kind": "tokens"})
    features = made(backbones.bert(tmp_path / "bert"))
    with pytest.raises(UserError, match=r"does not (have|hold) any"):
        features.transform(np.zeros((3, 4), np.float32), np.arange(2))
    with pytest.raises(UserError, match="the query is a vector"):
        features.encode_one(np.zeros(3))


def test_defaults_and_the_shortest_length(tmp_path):
    assert TokenFeatures.options == {"model": "", "length": 64, "download": False}
    folder = backbones.bert(tmp_path / "bert")
    features = made(folder, length=3)
    assert features.shape == (3,)
    assert features.transform(TEXTS, ROWS).shape == (COUNT, 3)
    assert features.statistics(TEXTS, ROWS[:7])["texts"].tolist() == [7]
    for length in (3.0, True):
        with pytest.raises(UserError, match="integer of at least 3"):
            made(folder, length=length)
    with pytest.raises(UserError, match="needs texts"):
        TokenFeatures.make("tokens", "image", TEXTS, {})
    with pytest.raises(UserError, match="needs texts"):
        TokenFeatures.make("tokens", "text", list(TEXTS), {})
