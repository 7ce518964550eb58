"""Texts as sequences of numbers: known and unknown words, cuts, silos, vocabularies, and what is restored."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from silohash import features
from silohash.base.errors import MissingFile, OutOfRange, UnknownWords, UnsuitableFeatures, WrongType
from silohash.features.base import add_statistics
from silohash.features.nodes.word_ids import END, PADDING, START, UNKNOWN, UNPARSED, WordSequences

TEXTS = np.array(["A dog runs after 2 dogs.", "the dog", "A cat", ""])
ALL = np.arange(4)


def made(**options: object) -> WordSequences:
    found = features.featurizer("text", TEXTS, {"kind": "words", **options})
    assert isinstance(found, WordSequences)
    return found


def fitted(rows: np.ndarray = ALL, **options: object) -> WordSequences:
    unfitted = made(**options)
    return unfitted.fitted(unfitted.statistics(TEXTS, rows))


def test_every_word_has_a_number_in_order() -> None:
    words = fitted(length=8)
    found = words.transform(TEXTS, ALL)
    assert (found.dtype, found.shape, words.size) == (np.int32, (4, 8), 3 + 8)
    assert found[0, 0] == START
    assert found[0, 7] == END
    assert found[3].tolist() == [START, END, *[PADDING] * 6]
    assert found[0, 2] == found[1, 2]  # dog
    assert found[0, 1] == found[2, 1]  # a
    assert len(set(found[0, 1:7].tolist())) == 6
    assert found[:, 1:].max() == words.size - 1


def test_long_texts_are_cut_before_their_end() -> None:
    words = fitted(length=4)
    assert words.transform(TEXTS, ALL)[0, -1] == END
    assert words.unread(["a Dog, the cat's 2 toys", "a dog"]) == ["the cat 2 toys", ""]
    assert words.encode_one("a dog the cat").tolist() == words.encode_one("a dog").tolist()


def test_words_of_no_training_text_are_unknown() -> None:
    words = fitted(rows=ALL[1:2])
    assert words.transform(TEXTS, ALL)[2, :4].tolist() == [START, UNKNOWN, UNKNOWN, END]
    assert words.encode_one("the cat").tolist()[0][2] == UNKNOWN
    with pytest.raises(UnknownWords, match="cat"):
        words.encode_one("a cat")


def test_rare_words_are_unknown() -> None:
    found = fitted(min_texts=2).transform(TEXTS, ALL)
    assert (found[0] == UNKNOWN).sum() == 4
    assert found[0, 2] > UNKNOWN


def test_numbers_do_not_depend_on_how_texts_are_divided() -> None:
    unfitted = made()
    silos = unfitted.fitted(add_statistics([unfitted.statistics(TEXTS, ALL[start::2]) for start in (1, 0)]))
    np.testing.assert_array_equal(silos.transform(TEXTS, ALL), fitted().transform(TEXTS, ALL))


def test_a_vocabulary_gives_the_numbers() -> None:
    words = fitted(vocabulary=["dog", "the"], length=5)
    assert words.size == 5
    assert words.transform(TEXTS, ALL[1:2]).tolist() == [[START, 4, 3, END, PADDING]]


def test_a_restored_featurizer_gives_the_same_numbers() -> None:
    words = fitted(length=6, min_texts=2)
    arrays, about = words.state()
    restored = WordSequences.from_state(arrays, about)
    assert (restored.kind, restored.shape, restored.size) == ("words", (6,), words.size)
    np.testing.assert_array_equal(restored.transform(TEXTS, ALL), words.transform(TEXTS, ALL))


def test_wrong_options_and_inputs_are_refused() -> None:
    with pytest.raises(OutOfRange, match="2"):
        made(length=2)
    with pytest.raises(UnsuitableFeatures, match="words"):
        features.featurizer("text", np.zeros((2, 2), np.float32), {"kind": "words"})


def test_parsed_texts_have_the_places_of_heads(tmp_path: Path) -> None:
    file = tmp_path / "parses.jsonl"
    file.write_text(
        '{"words": ["A", "dog", "runs", "after", "2", "dogs", "."], "heads": [2, 3, 0, 6, 6, 3, 3]}\n'
        '{"words": ["the", "dog"], "heads": [2, 0]}\n'
    )
    plain = fitted(length=6).transform(TEXTS, ALL)
    words = fitted(length=6, parses=str(file))
    found = words.transform(TEXTS, ALL)
    assert (found.dtype, found.shape, words.shape) == (np.int32, (4, 2, 6), (2, 6))
    np.testing.assert_array_equal(found[:, 0], plain)
    assert found[0, 1].tolist() == [-1, 2, 3, -1, -1, -1], "the head of the last word that is kept is not"
    assert found[1, 1].tolist() == [-1, 2, -1, -1, -1, -1]
    assert (found[2:, 1] == UNPARSED).all()
    restored = WordSequences.from_state(*words.state())
    np.testing.assert_array_equal(restored.transform(TEXTS, ALL), found)
    file.unlink()
    query = restored.encode_one("the dog")
    np.testing.assert_array_equal(query[0, 0], plain[1])
    assert (query[0, 1] == UNPARSED).all(), "queries of a search have no parse"
    assert "parses" not in fitted().state()[1]


def test_a_missing_file_of_parses_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingFile, match=r"none\.jsonl"):
        fitted(parses=str(tmp_path / "none.jsonl")).transform(TEXTS, ALL)
    with pytest.raises(WrongType, match=r"parses.*3"):
        made(parses=3)
