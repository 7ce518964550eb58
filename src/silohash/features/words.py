"""The words of a text, and their digests, which do not need a shared vocabulary."""

from __future__ import annotations

import hashlib
import re
import sys
import unicodedata
from dataclasses import dataclass
from functools import cache, lru_cache

_COMMON_LINE = (
    "a an and are as at be been being but by for from has have he her him his in into is it its of on or she some than "
    "that the their them there these they this those to up was were which while who with"
)
COMMON_WORDS = frozenset(_COMMON_LINE.split())
"""Words that say almost nothing about a picture. They are ignored unless `WordRule.common_words` is set."""


@dataclass(frozen=True)
class WordRule:
    """The rule that splits a text into words.

    Texts are lowercased, and ``'s`` and apostrophes are removed. A word is a run of letters of any script, with at least
    two letters if the script has upper and lower case.

    Attributes:
        numbers: Whether runs of digits are words too.
        single_letters: Whether single letters and digits are words.
        common_words: Whether to keep the most common English words.
    """

    numbers: bool = False
    single_letters: bool = False
    common_words: bool = False

    def words(self, text: str) -> list[str]:
        """Return the words of a text in order.

        Example:
            >>> WordRule().words("The dog's bowl isn't full: 2 dogs, a Café!")
            ['dog', 'bowl', 'isnt', 'full', 'dogs', 'café']
            >>> WordRule(numbers=True, single_letters=True).words("Letter A with 2 hooks")
            ['letter', 'a', '2', 'hooks']
        """
        plain = _APOSTROPHES.sub("", unicodedata.normalize("NFKC", text).lower())
        found = (_ASCII_WORDS if plain.isascii() else _unicode_words()).findall(plain)
        return [word for word in found if self._keeps(word)]

    def _keeps(self, word: str) -> bool:
        if not self.numbers and word[0].isdecimal():
            return False
        if len(word) == 1 and (word.isdecimal() or word.upper() != word):
            return self.single_letters
        return self.common_words or word not in COMMON_WORDS


_APOSTROPHES = re.compile(r"['’]s\b|['’]")
_ASCII_WORDS = re.compile(r"[a-z]+|[0-9]+")


@cache
def _unicode_words() -> re.Pattern[str]:
    """Return a pattern of runs of letters with their combining marks (vowel signs, accents), and of runs of digits."""
    marks = [chr(code) for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code))[0] == "M"]
    return re.compile(rf"(?:[^\W\d_][{re.escape(''.join(marks))}]*)+|\d+")


@lru_cache(maxsize=1 << 17)
def digest_of(word: str) -> int:
    """Return a 64-bit digest of a word, which is the same on all machines and in all processes.

    Digests do not keep words secret: anyone with a dictionary can invert them.
    """
    return int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "little")


def bucket_of(word: str, buckets: int) -> int:
    """Return the bucket of a word, from 0 to ``buckets - 1``."""
    return digest_of(word) % buckets
