"""Vectors of words from text files: which are kept, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from silohash.base.types import UserError
from silohash.features.nodes.word_vectors import read_word_vectors

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
    ("text", "message"),
    [
        ("dog 1 2 3\n", r"line 1 has 3 numbers, and word vectors have 2\. Set local\.word_width = 3"),
        ("dog 1\n", "line 1 has 1 numbers"),
        ("a 1 2\ndog 1 x\n", "line 2 does not hold numbers"),
        ("dog 1 nan\n", "line 1 holds a number that is not finite"),
        ("cat 1 2\n", "does not have the vector of any word"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        read_word_vectors(written(tmp_path, text), NUMBERS.get, 2)


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"none\.txt is missing\. Set features\.text\.vectors"):
        read_word_vectors(tmp_path / "none.txt", NUMBERS.get, 2)
