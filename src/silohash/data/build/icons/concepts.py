"""Give each icon its labels: concepts that its name, category or tags say, or that the same word means in other silos.

An icon has a concept if

- a word of its name, or two adjacent ones, is a key word of the concept,
- or a word of its category is,
- or a word of its name votes for it: at least `VOTE` of the icons with this word have the concept by their own words, in at
  least two silos and as the mean over silos,
- or its own tag says so, and a word of its name votes for it with a mean of at least `WEAK_VOTE`, or none of these words
  occurs in two silos.

``rejected_votes.txt`` and ``rejected_labels.txt`` hold what people who read the results found wrong.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, pairwise
from pathlib import Path
from typing import TypeAlias

from silohash.base.files import read_text
from silohash.base.forms import REINSTALL
from silohash.data.build.icons.libraries import Icon, words_of

Labels: TypeAlias = Mapping[str, frozenset[str]]
"""The concepts of each icon by its key. Other tables have the same form."""

VOTE, WEAK_VOTE, LEAST_IN_FAVOR = 0.67, 0.34, 2
LEAST_ITEMS, LEAST_SILOS = 60, 4
"""Numbers of icons and of silos that a concept needs."""

NONE: frozenset[str] = frozenset()
TABLES = ("concepts", "rejected_votes", "rejected_labels")


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
    return word[:-2] if word.endswith(("sses", "shes", "ches", "oxes")) else word.removesuffix("s")


def subject_of(icon: Icon) -> frozenset[str]:
    """Return the words of an icon's name without modifiers, in the singular; all of them if there are only modifiers."""
    words = frozenset(map(singular, words_of(icon.title)))
    return words - MODIFIERS or words


def keys_of(table: Labels, *, of_names: bool) -> dict[str, set[str]]:
    """Return the concepts of each key word. One that begins with ``=`` counts only in names, not in tags and categories."""
    keys: dict[str, set[str]] = defaultdict(set)
    for concept, words in table.items():
        for word in words:
            if of_names or not word.startswith("="):
                keys["-".join(map(singular, word.lstrip("=").split("-")))].add(concept)
    return keys


def said_by(parts: Iterable[str], keys: Mapping[str, set[str]]) -> frozenset[str]:
    """Return the concepts whose key words are words, or pairs of adjacent words, of some texts."""
    words = [list(map(singular, words_of(part))) for part in parts]
    terms = chain(*words, *(map("-".join, pairwise(of_part)) for of_part in words))
    return NONE.union(*(keys[term] for term in terms if term in keys))


def _own(icons: Sequence[Icon], table: Labels) -> tuple[Labels, Labels]:
    """Return what the name and the categories of each icon say, and what its tags say."""
    names, others = keys_of(table, of_names=True), keys_of(table, of_names=False)
    stated = {}
    for icon in icons:
        categories = [name for name in icon.categories if "-".join(words_of(name)) not in COARSE]
        stated[icon.key] = said_by([icon.title], names) | said_by(categories, others)
    return stated, {icon.key: said_by(icon.tags, others) for icon in icons}


def votes_of(icons: Sequence[Icon], own: Labels) -> dict[str, dict[str, list[float]]]:
    """Return by word of a name and concept which share of the icons with the word has the concept by its own words.

    There is one share per silo that has the word.
    """
    total: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    having: dict[tuple[str, str], dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for icon in icons:
        for word in subject_of(icon) - MODIFIERS:
            total[word][icon.silo] += 1
            for concept in own[icon.key]:
                having[word, concept][icon.silo] += 1
    votes: dict[str, dict[str, list[float]]] = {word: {} for word in total}
    for (word, concept), counts in having.items():
        votes[word][concept] = [counts[silo] / of_silo for silo, of_silo in total[word].items()]
    return votes


def passes(shares: Sequence[float], mean: float) -> bool:
    """Return whether a vote has this mean, and two silos in which it and at least half of the icons are in favor."""
    in_favor = sum(share >= max(mean, 0.5) for share in shares)
    return in_favor >= LEAST_IN_FAVOR and sum(shares) / len(shares) >= mean


def labels_of(icons: Sequence[Icon], folder: Path) -> dict[str, frozenset[str]]:
    """Return the concepts of each icon that has any, by its key. The folder holds the tables."""
    table, rejected, wrong = (read_table(folder / f"{name}.txt") for name in TABLES)
    stated, tagged = _own(icons, table)
    votes = votes_of(icons, {key: stated[key] | tagged[key] for key in stated})
    shared = {word for word, of_word in votes.items() if any(len(shares) > 1 for shares in of_word.values())}

    def _voted(words: Iterable[str], mean: float) -> frozenset[str]:
        return frozenset(
            concept
            for word in words
            for concept, shares in votes[word].items()
            if passes(shares, mean) and concept not in rejected.get(word, NONE)
        )

    found = {}
    for icon in icons:
        key, words = icon.key, subject_of(icon) - MODIFIERS
        confirmed = tagged[key] if words.isdisjoint(shared) else tagged[key] & _voted(words, WEAK_VOTE)
        found[key] = (stated[key] | _voted(words, VOTE) | confirmed) - wrong.get(key, NONE)
    return frequent(found, LEAST_ITEMS, LEAST_SILOS)


def frequent(labels: Labels, least_items: int, least_silos: int) -> dict[str, frozenset[str]]:
    """Return the labels without those that too few items or silos have, and without items that then have none."""
    having: dict[str, list[str]] = defaultdict(list)
    for key, concepts in labels.items():
        for concept in concepts:
            having[concept].append(key.partition("/")[0])
    kept = {name for name, silos in having.items() if len(silos) >= least_items and len(set(silos)) >= least_silos}
    return {key: concepts & kept for key, concepts in labels.items() if concepts & kept}
