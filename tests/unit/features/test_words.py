from __future__ import annotations

import hashlib
import subprocess
import sys

import pytest

from silohash.base.analysis import COMMON_WORDS, WORDS
from silohash.features.words import WordRule, bucket_of


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The dog's bowl isn't full", ["dog", "bowl", "isnt", "full"]),
        ("a b cc 4 44 4x4", ["cc"]),
        ("Ünïted ÉTÉ", ["ünïted", "été"]),
        ("e\u0301te\u0301", ["été"]),
        ("日 本語 я да", ["日", "本語", "да"]),
        ("हिन्दी भाषा", ["हिन्दी", "भाषा"]),
        ("snake_case rock’n’roll", ["snake", "case", "rocknroll"]),
        ("", []),
    ],
)
def test_words(text, words):
    assert WordRule(analysis=WORDS).words(text) == words


def test_what_else_can_be_kept():
    text = "the letter a has 2 of 44 x2"
    assert WordRule(numbers=True, analysis=WORDS).words(text) == ["letter", "44"]
    assert WordRule(single_letters=True, analysis=WORDS).words(text) == ["letter", "a", "x"]
    everything = WordRule(numbers=True, single_letters=True, common_words=True, analysis=WORDS).words(text)
    assert everything == ["the", "letter", "a", "has", "2", "of", "44", "x", "2"]


def test_one_letter_is_kept_for_its_own_sake():
    assert "a" in COMMON_WORDS
    assert WordRule(single_letters=True, analysis=WORDS).words("latin small letter a") == [
        "latin",
        "small",
        "letter",
        "a",
    ]


@pytest.mark.whole_run
def test_buckets_are_the_same_in_every_process():
    code = "from silohash.features.words import bucket_of; print([bucket_of(w, 1000) for w in ('parrot', 'été')])"
    command = [sys.executable, "-c", code]
    outputs = {
        subprocess.run(command, capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": salt}).stdout.strip()
        for salt in ("1", "2")
    }
    assert outputs == {str([bucket_of("parrot", 1000), bucket_of("été", 1000)])}


def test_a_bucket_is_a_digest_of_the_word():
    digest = hashlib.blake2b(b"parrot", digest_size=8).digest()
    assert bucket_of("parrot", 1000) == int.from_bytes(digest, "little") % 1000
