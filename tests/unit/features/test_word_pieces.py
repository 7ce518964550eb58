"""Word pieces: padded with -1, truncated at the model's limit, read from a folder once."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import tokenizers

from silohash.base.errors import (
    ArchiveUnsuitable,
    DamagedFile,
    MissingFile,
    OutOfRange,
    QueryUnsuitable,
    UnsuitableFeatures,
    UserError,
)

pytest.importorskip("transformers")


from silohash.features import featurizer, load, save
from silohash.features.word_pieces import LONGEST, PADDING, TokenFeatures, WordPieces, read_word_pieces
from tests import backbones

BEGIN, END = 2, 3  # of the tiny tokenizer: [PAD], [UNK], [CLS], [SEP], then the words


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return backbones.bert(tmp_path_factory.mktemp("pieces") / "bert")


def ids_of(*words: str) -> list[int]:
    return [BEGIN, *(4 + backbones.WORDS.index(word) for word in words), END]


def test_rows_are_as_wide_as_the_longest_text(folder: Path) -> None:
    found = read_word_pieces(folder).ids(["two parrots", "the red tree"])
    assert found.tolist() == [[*ids_of("two", "parrots"), PADDING], ids_of("the", "red", "tree")]
    assert found.dtype.name == "int32"
    assert PADDING == -1


def test_a_width_may_be_given(folder: Path) -> None:
    found = read_word_pieces(folder).ids(["a tree"], width=7)
    assert found.tolist() == [[*ids_of("a", "tree"), PADDING, PADDING, PADDING]]


def test_no_texts(folder: Path) -> None:
    assert read_word_pieces(folder).ids([]).shape == (0, 0)
    assert read_word_pieces(folder).ids([], width=5).shape == (0, 5)


def test_long_texts_keep_both_ends(folder: Path) -> None:
    pieces = read_word_pieces(folder, 4)
    assert pieces.most == 4
    assert pieces.ids(["red blue tree violin"]).tolist() == [ids_of("red", "blue")]


def test_the_end_that_is_not_read_is_returned_as_it_was_written(folder: Path) -> None:
    texts = ["red Blue  tree, Violin", "red blue", "", "two ÄÖ 😀 parrots"]
    assert read_word_pieces(folder, 4).unread(texts) == ["tree, Violin", "", "", "😀 parrots"]
    assert read_word_pieces(folder).unread([]) == []


def test_a_character_that_is_read_in_part_is_named() -> None:
    letters = tokenizers.Tokenizer(tokenizers.models.BPE({piece: n for n, piece in enumerate("aðŁĲ¶")}, []))
    letters.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    cut = WordPieces(letters.to_str(), 3, 0)
    assert cut.unread(["a\U0001f436", "aa", "aaa   "]) == ["\U0001f436", "", ""]


def test_the_limit_of_the_model_counts(folder: Path) -> None:
    assert read_word_pieces(folder).most == 12
    assert read_word_pieces(folder, 13).most == 12
    assert read_word_pieces(folder, 11).most == 11


@pytest.mark.parametrize(
    ("changes", "most"),
    [
        ({"model_type": "roberta", "max_position_embeddings": 20}, 19),
        ({"model_type": "bert", "max_position_embeddings": 20}, 20),
        ({"max_position_embeddings": None}, LONGEST),
        ({"max_position_embeddings": 9000}, LONGEST),
        ({"text_config": {"model_type": "clip_text_model", "max_position_embeddings": 9}}, 9),
    ],
)
def test_positions_of_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: Path, changes, most) -> None:
    from transformers import AutoTokenizer

    found = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    monkeypatch.setattr(AutoTokenizer, "from_pretrained", lambda *_, **__: found)
    (tmp_path / "config.json").write_text(json.dumps(changes))
    assert read_word_pieces(tmp_path).most == most
    assert read_word_pieces(tmp_path).padding == 0


def test_a_tokenizer_needs_no_folder(folder: Path) -> None:
    read = read_word_pieces(folder)
    again = WordPieces(read.tokenizer, read.most, read.padding)
    assert again.ids(["the blue violin"]).tolist() == read.ids(["the blue violin"]).tolist()


def test_a_folder_without_a_tokenizer(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "vit"}))
    with pytest.raises(DamagedFile):
        read_word_pieces(tmp_path)


def test_texts_with_more_pieces_than_the_limit_have_an_end(folder: Path) -> None:
    pieces = read_word_pieces(folder, 5)
    texts = ["", "a", "a red tree", "a red tree on", "a red tree on the tree"]
    assert [bool(end) for end in pieces.unread(texts)] == [0, 0, 0, 1, 1]


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
    ("options", "kind", "message"),
    [({"length": 2}, OutOfRange, "2"), ({"model": "./nowhere"}, MissingFile, "the folder .* does not exist")],
)
def test_options_that_do_not_fit(options, kind: type[UserError], message: str):
    with pytest.raises(kind, match=message):
        featurizer("text", TEXTS, {"kind": "tokens", **options})


def test_columns_that_do_not_fit(tmp_path):
    with pytest.raises(UnsuitableFeatures):
        featurizer("text", np.zeros((3, 4), np.float32), {"kind": "tokens"})
    features = made(backbones.bert(tmp_path / "bert"))
    with pytest.raises(ArchiveUnsuitable, match=r"does not (have|hold) any"):
        features.transform(np.zeros((3, 4), np.float32), np.arange(2))
    with pytest.raises(QueryUnsuitable):
        features.encode_one(np.zeros(3))


def test_defaults_and_the_shortest_length(tmp_path):
    assert TokenFeatures.options == {"model": "", "length": 64, "download": False}
    folder = backbones.bert(tmp_path / "bert")
    features = made(folder, length=3)
    assert features.shape == (3,)
    assert features.transform(TEXTS, ROWS).shape == (COUNT, 3)
    assert features.statistics(TEXTS, ROWS[:7])["texts"].tolist() == [7]
    for length in (3.0, True):
        with pytest.raises(OutOfRange):
            made(folder, length=length)
    with pytest.raises(UnsuitableFeatures):
        TokenFeatures.make("tokens", "image", TEXTS, {})
    with pytest.raises(UnsuitableFeatures):
        TokenFeatures.make("tokens", "text", list(TEXTS), {})
