from __future__ import annotations

import csv
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from silohash.base.analysis import WORDS, Analysis
from silohash.base.errors import (
    ArchiveUnsuitable,
    MissingFile,
    OutOfRange,
    QueryUnsuitable,
    RepeatedValue,
    UnknownWords,
    UnsuitableFeatures,
    UserError,
    WrongForm,
    WrongType,
)
from silohash.features.base import add_statistics
from silohash.features.text import BagOfWords, query_text
from silohash.features.words import WordRule, bucket_of, digest_of

TEXTS = np.array(["two red parrots, red!", "", "A parrot's cage", "the harbour by night", "red night red night red"])
ALL = np.arange(5)


def fitted(bag: BagOfWords, texts: np.ndarray = TEXTS) -> BagOfWords:
    return bag.fitted(bag.statistics(texts, np.arange(len(texts))))


def test_counts_and_presence():
    words = ("red", "parrots", "night", "cage")
    counts = BagOfWords(weighting="count", vocabulary=words).transform(TEXTS, ALL)
    np.testing.assert_array_equal(counts, [[2, 1, 0, 0], [0] * 4, [0, 0, 0, 1], [0, 0, 1, 0], [3, 0, 2, 0]])
    binary = BagOfWords(weighting="binary", vocabulary=words).transform(TEXTS, ALL)
    np.testing.assert_array_equal(binary, counts > 0)
    assert counts.dtype == np.float32


@pytest.mark.parametrize("log_tf", [False, True])
def test_tfidf_against_a_loop(log_tf):
    words = ("red", "parrots", "night", "cage")
    bag = fitted(BagOfWords(vocabulary=words, log_tf=log_tf))
    found = bag.transform(TEXTS, ALL)
    frequency = {"red": 2, "parrots": 1, "night": 2, "cage": 1}
    for row, text in enumerate(TEXTS):
        expected = []
        for word in words:
            count = WordRule(analysis=WORDS).words(str(text)).count(word)
            damped = (1 + math.log(count) if count else 0) if log_tf else count
            expected.append(damped * (math.log((1 + 4) / (1 + frequency[word])) + 1))
        length = math.hypot(*expected) or 1.0
        np.testing.assert_allclose(found[row], np.array(expected) / length, rtol=1e-6)


def test_buckets_hold_what_their_words_hold():
    bag = BagOfWords(buckets=64, weighting="count")
    found = bag.transform(TEXTS, ALL)
    for row, text in enumerate(TEXTS):
        expected = np.zeros(64)
        for word in WordRule(analysis=WORDS).words(str(text)):
            expected[bucket_of(word, 64)] += 1
        np.testing.assert_array_equal(found[row], expected)


@pytest.mark.parametrize("weighting", ["count", "binary", "tfidf"])
def test_a_query_is_encoded_as_the_archive_is(weighting):
    bag = fitted(BagOfWords(buckets=128, weighting=weighting))
    every = bag.transform(TEXTS, ALL)
    for row in (0, 2, 3, 4):
        np.testing.assert_array_equal(bag.encode_one(str(TEXTS[row]))[0], every[row])


def test_silos_sums_give_the_pooled_fit():
    bag = BagOfWords(buckets=128)
    parts = [bag.statistics(TEXTS, rows) for rows in (np.array([0, 3]), np.array([], int), np.array([1, 2, 4]))]
    federated, pooled = bag.fitted(add_statistics(parts)), fitted(bag)
    np.testing.assert_array_equal(federated.transform(TEXTS, ALL), pooled.transform(TEXTS, ALL))
    assert parts[0]["document_frequency"].dtype == np.int64


def test_blocks_do_not_show(monkeypatch):
    whole = fitted(BagOfWords(buckets=128)).transform(TEXTS, ALL[::-1])
    monkeypatch.setattr("silohash.features.text.BLOCK_ROWS", 2)
    np.testing.assert_array_equal(fitted(BagOfWords(buckets=128)).transform(TEXTS, ALL[::-1]), whole)


def test_a_query_that_says_nothing_is_refused():
    bag = fitted(BagOfWords())
    with pytest.raises(UnknownWords, match="7"):
        bag.encode_one("of the 7")
    with pytest.raises(QueryUnsuitable, match="vector"):
        bag.encode_one(np.zeros(3))
    with pytest.raises(ArchiveUnsuitable):
        bag.transform(np.zeros((2, 3), np.float32), ALL[:2])


HASHED = BagOfWords(buckets=8)
GIVEN = BagOfWords(vocabulary=("red", "zebra", "night"))


def test_words_of_the_training_texts_are_kept_as_digests():
    rule = WordRule(analysis=WORDS)
    words = {word for text in TEXTS for word in rule.words(str(text))}
    kept = HASHED.statistics(TEXTS, ALL)["word_digests"]
    assert kept.tolist() == sorted(digest_of(word) for word in words)
    assert kept.dtype == np.uint64
    assert "word_digests" not in GIVEN.statistics(TEXTS, ALL)


def test_silos_words_are_united():
    parts = [HASHED.statistics(TEXTS, rows) for rows in (np.array([0, 3]), np.array([4]), np.array([], int))]
    united = HASHED.fitted(add_statistics(parts))
    pooled = HASHED.statistics(TEXTS, np.array([0, 3, 4]))
    np.testing.assert_array_equal(united.summed["word_digests"], pooled["word_digests"])
    assert [united.knows(word) for word in ("red", "harbour", "cage")] == [True, True, False]


@pytest.mark.parametrize("bag", [HASHED, GIVEN])
def test_words_that_no_training_text_held_are_named_once(bag):
    words = fitted(bag).query_words("A Zebra, ZEBRA and a quagga by night: red")
    assert words.known == ("night", "red")
    assert words.unknown == ("zebra", "quagga")


@pytest.mark.parametrize("bag", [HASHED, GIVEN])
@pytest.mark.parametrize("weighting", ["count", "binary", "tfidf"])
def test_unknown_words_carry_no_weight(bag, weighting):
    bag = fitted(replace(bag, weighting=weighting))
    np.testing.assert_array_equal(bag.encode_one("red zebra night quagga"), bag.encode_one("red night"))
    with pytest.raises(UnknownWords, match=r"zebra.*quagga"):
        bag.encode_one("the Zebra's quagga")


@pytest.mark.parametrize("bag", [HASHED, GIVEN])
def test_texts_with_a_known_word(bag):
    texts = np.array(["zebra", "the 7", "zebra at night", "", "RED"])
    assert fitted(bag).has_known_word(texts, np.array([0, 1, 2, 3, 4])).tolist() == [False, False, True, False, True]
    assert fitted(bag).has_known_word(texts, np.array([4, 0])).tolist() == [True, False]


def test_words_of_a_query_are_named_as_they_are_written():
    english = WordRule(analysis=Analysis(languages=("en",)))
    bag = BagOfWords(rule=english)
    texts = np.array(["two boats", "a harbor"])
    words = bag.fitted(bag.statistics(texts, np.arange(2))).query_words("Airplanes over a boat, airplane, boats")
    assert (words.known, words.unknown) == (("boat",), ("airplanes", "over"))


def test_a_given_vocabulary_is_known_before_it_is_fitted():
    assert BagOfWords(weighting="count", vocabulary=("zebra",)).query_words("zebra quagga").unknown == ("quagga",)


def test_state_keeps_the_words():
    bag = fitted(HASHED)
    again = BagOfWords.from_state(*bag.state())
    assert again.query_words("zebra cage").unknown == ("zebra",)


def test_tfidf_needs_its_fit():
    with pytest.raises(RuntimeError, match="not fitted"):
        BagOfWords().transform(TEXTS, ALL)


@pytest.mark.parametrize(
    ("settings", "kind", "message"),
    [
        ({"buckets": 1}, OutOfRange, "1"),
        ({"buckets": 3.5}, OutOfRange, r"3.5"),
        ({"vocabulary": ("a", "a")}, RepeatedValue, "twice"),
        ({"vocabulary": ()}, RepeatedValue, "empty"),
    ],
)
def test_settings_out_of_range(settings, kind: type[UserError], message: str):
    with pytest.raises(kind, match=message):
        BagOfWords(**settings)


def stored_texts(folder: Path, column: str) -> np.ndarray:
    if (folder / "pairs.jsonl").is_file():
        lines = (folder / "pairs.jsonl").read_text(encoding="utf-8").splitlines()
        return np.array([json.loads(line)[column] for line in lines])
    with (folder / "pairs.csv").open(encoding="utf-8", newline="") as stream:
        return np.array([row[column] for row in csv.DictReader(stream)])


@pytest.mark.parametrize(
    ("name", "column", "rule"),
    [
        ("coco18", "caption", WordRule(analysis=WORDS)),
        ("fashion", "title", WordRule(analysis=WORDS)),
        ("nlvr-graphs", "sentence", WordRule(numbers=True, single_letters=True, common_words=True, analysis=WORDS)),
    ],
)
def test_the_counts_that_come_with_the_real_data(shared_data, name, column, rule):
    """Made by another program under the same rule."""
    features = shared_data / name / "features"
    with np.load(features / "text_bow.npz", allow_pickle=False) as stored:
        expected = stored["bow"]
    texts = stored_texts(shared_data / name, column)
    words = tuple((features / "vocab.txt").read_text(encoding="utf-8").split())
    found = BagOfWords(weighting="count", vocabulary=words, rule=rule).transform(texts, np.arange(len(texts)))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("least", [0, -1, 1.0, True, "2"])
def test_the_least_number_of_texts_is_an_integer_of_at_least_1(least):
    with pytest.raises(OutOfRange, match=r"\[features\] min_texts is .*at least 1"):
        BagOfWords(min_texts=least)


def test_defaults():
    bag = BagOfWords()
    assert (bag.buckets, bag.weighting, bag.vocabulary, bag.log_tf) == (2048, "tfidf", None, False)
    assert bag.rule == WordRule(numbers=False, single_letters=False, common_words=False, analysis=WORDS)
    assert bag.shape == (2048,)
    switches = ("log_tf", "numbers", "single_letters", "common_words")
    others = {"buckets": 2048, "vocabulary": None, "min_texts": 1, "analysis": None, "languages": None}
    assert BagOfWords.options == others | dict.fromkeys(switches, False)


def test_numbers_of_buckets_at_the_bounds():
    assert [BagOfWords(buckets=buckets).shape for buckets in (2, 1 << 20)] == [(2,), (1 << 20,)]
    with pytest.raises(OutOfRange, match="1,048,576"):
        BagOfWords(buckets=(1 << 20) + 1)
    with pytest.raises(OutOfRange, match="True"):
        BagOfWords(buckets=True)


def test_statistics_count_texts_that_are_not_blank():
    texts = np.array(["red red parrot", " \n", "", "red"])
    found = BagOfWords(vocabulary=("red", "parrot", "cage")).statistics(texts, np.arange(4))
    assert {name: sums.tolist() for name, sums in found.items()} == {"texts": [2], "document_frequency": [2, 1, 0]}


OPTIONS = {**BagOfWords.options, "buckets": 16}


@pytest.mark.parametrize("switch", ["numbers", "single_letters", "common_words"])
def test_each_switch_sets_its_own_rule(switch):
    bag = BagOfWords.make("count", "text", TEXTS, {**OPTIONS, switch: True})
    assert bag.rule == WordRule(**{switch: True}, analysis=WORDS)
    assert (bag.log_tf, bag.kind, bag.buckets) == (False, "count", 16)
    again = BagOfWords.from_state(*bag.state())
    assert (again.rule, again.kind, again.shape, again.summed) == (bag.rule, "count", (16,), None)


def test_a_fitted_bag_comes_back_from_its_state():
    bag = fitted(BagOfWords.make("tfidf", "text", TEXTS, {**OPTIONS, "log_tf": True, "vocabulary": ["red", "night"]}))
    again = BagOfWords.from_state(*bag.state())
    assert (again.log_tf, again.vocabulary) == (True, ("red", "night"))
    np.testing.assert_array_equal(again.transform(TEXTS, ALL), bag.transform(TEXTS, ALL))


@pytest.mark.parametrize(
    ("modality", "column", "options", "kind", "message"),
    [
        ("image", TEXTS, {}, UnsuitableFeatures, None),
        ("text", list(TEXTS), {}, UnsuitableFeatures, None),
        ("text", np.zeros((2, 3), np.float32), {}, UnsuitableFeatures, None),
        ("text", TEXTS, {"log_tf": 1}, WrongType, r"log_tf.*1"),
        ("text", TEXTS, {"numbers": "yes"}, WrongType, "numbers is 'yes'"),
        ("text", TEXTS, {"vocabulary": [1, 2]}, WrongType, None),
        ("text", TEXTS, {"vocabulary": "nowhere.txt"}, MissingFile, "nowhere.txt"),
    ],
)
def test_columns_and_options_that_do_not_fit(modality, column, options, kind: type[UserError], message: str | None):
    with pytest.raises(kind, match=message):
        BagOfWords.make("count", modality, column, {**OPTIONS, **options})


def test_a_vocabulary_is_read_from_a_file(tmp_path):
    (tmp_path / "words.txt").write_text("red\n\n parrot \n", encoding="utf-8")
    bag = BagOfWords.make("count", "text", TEXTS, {**OPTIONS, "vocabulary": str(tmp_path / "words.txt")})
    assert bag.vocabulary == ("red", "parrot")


def test_a_picture_is_not_a_text_and_long_queries_are_cut():
    bag = BagOfWords(weighting="count", vocabulary=("red",))
    with pytest.raises(QueryUnsuitable):
        bag.encode_one(object())
    with pytest.raises(UnknownWords, match=f'"{"7" * 80}" does not'):
        bag.encode_one("7" * 90)
    with pytest.raises(ArchiveUnsuitable):
        bag.transform(np.array([["red"]]), ALL[:1])


def test_at_most_ten_unknown_words_are_named():
    bag = BagOfWords(weighting="count", vocabulary=("red",))
    with pytest.raises(UnknownWords, match=r"words of the query: aa, bb, cc, dd, ee, ff, gg, hh, ii, jj\. Use"):
        bag.encode_one(" ".join(letter * 2 for letter in "abcdefghijk"))


def test_words_are_known_by_their_columns_or_digests():
    given = fitted(BagOfWords(weighting="count", vocabulary=("red", "cage", "glacier")))
    hashed = fitted(BagOfWords(weighting="count", buckets=16))
    for bag in (given, hashed):
        assert [bag.knows(word) for word in ("red", "cage", "glacier", "tram")] == [True, True, False, False]
    assert BagOfWords(vocabulary=("red",)).knows("red")
    assert given.has_known_word(np.array(["", "a tram", "red tram"]), np.array([2, 0, 1])).tolist() == [
        True,
        False,
        False,
    ]


@pytest.mark.parametrize("weighting", ["count", "binary", "tfidf"])
def test_words_of_few_texts_are_left_out(weighting):
    words = ("red", "parrots", "night", "cage")
    bag = fitted(BagOfWords(weighting=weighting, vocabulary=words, min_texts=2))
    assert bag.summed["document_frequency"].tolist() == [2, 1, 2, 1]
    everything = fitted(BagOfWords(weighting=weighting, vocabulary=("red", "night")))
    np.testing.assert_array_equal(bag.transform(TEXTS, ALL)[:, [0, 2]], everything.transform(TEXTS, ALL))
    assert not bag.transform(TEXTS, ALL)[:, [1, 3]].any()
    assert bag.query_words("red parrots").unknown == ("parrots",)
    assert bag.has_known_word(TEXTS, ALL).tolist() == [True, False, False, True, True]


def test_hashed_words_of_few_texts_are_left_out_by_their_bucket():
    bag = fitted(BagOfWords(buckets=1 << 16, min_texts=2))
    assert (bag.knows("red"), bag.knows("night"), bag.knows("cage"), bag.knows("zebra")) == (True, True, False, False)
    dense = bag.transform(TEXTS, ALL)
    assert sorted(np.flatnonzero(dense.any(axis=0))) == sorted(bucket_of(w, 1 << 16) for w in ("red", "night"))
    restored = BagOfWords.from_state(*bag.state())
    np.testing.assert_array_equal(restored.transform(TEXTS, ALL), dense)
    assert "min_texts" not in BagOfWords().state()[1]
    assert BagOfWords(min_texts=3).knows("never read")


@pytest.mark.parametrize("text", ["red \ud83d tree", "red \udcff"])
def test_queries_that_are_not_unicode_are_refused(text):
    with pytest.raises(WrongForm, match=r"red.*⟨U\+D"):
        query_text(text)
    assert query_text("red 😀") == "red 😀"


@pytest.mark.parametrize("vocabulary", [None, ("boat", "sea", "the")])
def test_the_known_share_of_a_query_weighs_rare_words_more(vocabulary):
    texts = np.array(["the boat", "the sea", "the boat at sea"])
    rule = WordRule(analysis=WORDS, common_words=True)
    bag = BagOfWords(vocabulary=vocabulary, rule=rule)
    known_share = fitted(bag, texts).known_share
    rare, common, unknown = np.log(4 / 3) + 1, np.log(4 / 4) + 1, np.log(4) + 1
    assert known_share("boat") == known_share("the sea") == 1
    assert known_share("submarine") == known_share("!") == 0
    assert known_share("the boat submarine") == pytest.approx((rare + common) / (rare + common + unknown))
    assert known_share("the submarine") < known_share("boat submarine") < 0.5
    if vocabulary:
        assert bag.known_share("boat submarine") == 0.5
