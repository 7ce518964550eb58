"""The words of a text, and their digests, which do not need a shared vocabulary."""

import hashlib
from dataclasses import dataclass
from functools import lru_cache

from silohash.base.analysis import UNICODE, Analysis, stop_words, term_of, words_of


@dataclass(frozen=True)
class WordRule:
    """The rule that splits a text into words: an analysis, and which of its words are used.

    Attributes:
        numbers: Whether runs of digits are words too.
        single_letters: Whether single letters and digits are words, in scripts with upper and lower case.
        common_words: Whether to keep the stop words of the analysis.
        analysis: The analysis of texts.
    """

    numbers: bool = False
    single_letters: bool = False
    common_words: bool = False
    analysis: Analysis = UNICODE

    def words(self, text: str) -> list[str]:
        """Return the terms of a text in order.

        Example:
            >>> WordRule(analysis=Analysis("words")).words("The dog's bowl isn't full: 2 dogs, a Café!")
            ['dog', 'bowl', 'isnt', 'full', 'dogs', 'café']
            >>> WordRule(analysis=Analysis(languages=("en",))).words("The dog's bowl isn't full: 2 dogs, a Café!")
            ['dog', 'bowl', 'isnt', 'full', 'dog', 'cafe']
            >>> WordRule(numbers=True, single_letters=True).words("Letter A with 2 hooks")
            ['letter', 'a', 'with', '2', 'hooks']
        """
        return [term for _, term in self.pairs(text)]

    def pairs(self, text: str) -> list[tuple[str, str]]:
        """Return the words of a text in order, each as it is written and as its term."""
        words = words_of(text, self.analysis)
        return [(word, term_of(word, self.analysis)) for word in words if self._keeps(word)]

    def _keeps(self, word: str) -> bool:
        if not self.numbers and word.isdecimal():
            return False
        if len(word) == 1 and (word.isdecimal() or word.upper() != word):
            return self.single_letters
        return self.common_words or word not in stop_words(self.analysis)


@lru_cache(maxsize=1 << 17)
def digest_of(word: str) -> int:
    """Return a 64-bit digest of a word, which is the same on all machines and in all processes.

    Digests do not keep words secret: anyone with a dictionary can invert them.
    """
    return int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "little")


def bucket_of(word: str, buckets: int) -> int:
    """Return the bucket of a word, from 0 to ``buckets - 1``."""
    return digest_of(word) % buckets
