"""Give each icon its labels: concepts that its name, category or tags say, or that the same word means in other silos.

An icon has a concept if

- a word of its name, or two adjacent ones, is a key word of the concept,
- or a word of its category is,
- or a word of its name votes for it: in at least two silos, at least `VOTE` of the icons with this word have the concept by
  their own words, and so does the mean over silos,
- or its own tag says so, and a word of its name votes for it with a mean of at least `WEAK_VOTE`, or none of these words
  occurs in two silos.

`REJECTED_VOTES` and `REJECTED_LABELS` hold what people who read the results found wrong.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TypeAlias

from silohash.base.files import read_text
from silohash.base.forms import REINSTALL
from silohash.data.build.icons.libraries import Icon, words_of

VOTE, WEAK_VOTE = 0.67, 0.34
LEAST_ITEMS, LEAST_SILOS = 60, 4
"""Numbers of icons and of silos that a concept needs."""

CONCEPTS, REJECTED_VOTES, REJECTED_LABELS = "concepts.txt", "rejected_votes.txt", "rejected_labels.txt"
Labels: TypeAlias = Mapping[str, frozenset[str]]
"""Concepts by what has them, such as the key of an icon."""


def read_table(path: Path) -> dict[str, frozenset[str]]:
    """Read a table of lines ``key: word word ...``; lines that begin with ``#`` are comments."""
    lines = read_text(path, remedy=REINSTALL, missing=REINSTALL).splitlines()
    entries = [line.partition(": ") for line in lines if line and not line.startswith("#")]
    return {key: frozenset(words.split()) for key, _, words in entries}


IGNORED = read_table(Path(__file__).with_name("ignored.txt"))
MODIFIERS, COARSE = IGNORED["modifiers"], IGNORED["categories"]


def singular(word: str) -> str:
    """Return an English word in the singular, by its ending.

    Example:
        >>> [singular(word) for word in ("berries", "boxes", "axes", "glasses", "bus", "houses", "chess")]
        ['berry', 'box', 'axe', 'glass', 'bus', 'house', 'chess']
    """
    if len(word) < 4 or word.endswith(("ss", "us", "is")):
        return word
    if word.endswith("ies"):
        return word[:-3] + ("ie" if len(word) == 4 else "y")
    if word.endswith(("sses", "shes", "ches", "oxes")):
        return word[:-2]
    return word.removesuffix("s")


@dataclass(frozen=True)
class Vote:
    """How many icons with a word have a concept by their own words, as a share per silo that has the word."""

    shares: tuple[float, ...]
    icons: int

    def passes(self, mean: float) -> bool:
        """Return whether two silos are in favor, and the mean over silos reaches this value."""
        in_favor = sum(share >= max(mean, 0.5) for share in self.shares)
        return in_favor >= LEAST_IN_FAVOR and sum(self.shares) / len(self.shares) >= mean


LEAST_IN_FAVOR = 2


def subject_of(icon: Icon) -> frozenset[str]:
    """Return the words of an icon's name without modifiers, in the singular; all of them if there are only modifiers."""
    words = frozenset(map(singular, words_of(icon.title)))
    return words - MODIFIERS or words


def _terms(parts: Iterable[str]) -> Iterator[str]:
    """Yield the words of texts in the singular, and the pairs of adjacent words, joined with ``-``."""
    for part in parts:
        words = list(map(singular, words_of(part)))
        yield from words
        yield from map("-".join, pairwise(words))


class Concepts:
    """The concepts by their key words."""

    def __init__(self, table: Labels) -> None:
        self._of_name: dict[str, set[str]] = defaultdict(set)
        self._of_any: dict[str, set[str]] = defaultdict(set)
        for concept, words in table.items():
            for word in words:
                key = "-".join(map(singular, word.lstrip("=").split("-")))
                self._of_name[key].add(concept)
                if not word.startswith("="):
                    self._of_any[key].add(concept)

    def by_name(self, icon: Icon) -> set[str]:
        """Return the concepts that an icon's name says."""
        return _found(self._of_name, [icon.title])

    def by_category(self, icon: Icon) -> set[str]:
        """Return the concepts that an icon's categories say."""
        return _found(self._of_any, [name for name in icon.categories if "-".join(words_of(name)) not in COARSE])

    def by_tags(self, icon: Icon) -> set[str]:
        """Return the concepts that an icon's tags say."""
        return _found(self._of_any, icon.tags)


def _found(keys: Mapping[str, set[str]], parts: Iterable[str]) -> set[str]:
    return set().union(*(keys[term] for term in _terms(parts) if term in keys))


def votes_of(icons: Sequence[Icon], concepts: Concepts) -> dict[tuple[str, str], Vote]:
    """Return the vote of each word for each concept that an icon with the word has by its own words."""
    total: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    having: dict[tuple[str, str], dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for icon in icons:
        own = concepts.by_name(icon) | concepts.by_category(icon) | concepts.by_tags(icon)
        for word in subject_of(icon) - MODIFIERS:
            total[word][icon.silo] += 1
            for concept in own:
                having[word, concept][icon.silo] += 1
    return {
        (word, concept): Vote(tuple(counts[silo] / n for silo, n in total[word].items()), sum(total[word].values()))
        for (word, concept), counts in having.items()
    }


def labels_of(icons: Sequence[Icon], folder: Path) -> dict[str, frozenset[str]]:
    """Return the concepts of each icon that has any, by its key. The folder holds the tables of this module."""
    concepts = Concepts(read_table(folder / CONCEPTS))
    rejected, wrong = read_table(folder / REJECTED_VOTES), read_table(folder / REJECTED_LABELS)
    none: frozenset[str] = frozenset()
    votes = votes_of(icons, concepts)
    strong, weak, shared = defaultdict(set), defaultdict(set), set()
    for (word, concept), vote in votes.items():
        if len(vote.shares) >= LEAST_IN_FAVOR:
            shared.add(word)
        if concept not in rejected.get(word, none):
            strong[word] |= {concept} if vote.passes(VOTE) else none
            weak[word] |= {concept} if vote.passes(WEAK_VOTE) else none
    found = {}
    for icon in icons:
        words = subject_of(icon) - MODIFIERS
        voted = set().union(*(strong[word] for word in words))
        allowed = set().union(*(weak[word] for word in words))
        tagged = concepts.by_tags(icon)
        of_icon = concepts.by_name(icon) | concepts.by_category(icon) | voted
        of_icon |= tagged if words.isdisjoint(shared) else tagged & allowed
        found[icon.key] = frozenset(of_icon - wrong.get(icon.key, none))
    return _frequent(found)


def _frequent(labels: Labels) -> dict[str, frozenset[str]]:
    """Return the labels without concepts that too few icons or silos have, and without icons that then have none."""
    having: dict[str, list[str]] = defaultdict(list)
    for key, concepts in labels.items():
        for concept in concepts:
            having[concept].append(key.partition("/")[0])
    kept = {name for name, silos in having.items() if len(silos) >= LEAST_ITEMS and len(set(silos)) >= LEAST_SILOS}
    return {key: concepts & kept for key, concepts in labels.items() if concepts & kept}
