"""Split icons into queries, items to search and items to train on, so that nothing like a query is trained on."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from silohash.data.build.icons.concepts import Labels, subject_of
from silohash.data.build.icons.drawing import near_pairs
from silohash.data.build.icons.libraries import Icon

QUERY_BELOW, DATABASE_BELOW = 0.1, 0.3
LEAST_QUERIES, LARGEST_GROUP = 12, 12
"""Number of queries that each concept gets, and of items of a group that is moved to the queries for it."""

SAME_PICTURE, LIKE_A_QUERY = 0.99, 0.97
"""Least cosine of the ink of two pictures of one group, and of a picture that is not trained on because of a query."""

SALT = "icons-1"


def name_of_group(icon: Icon) -> str:
    """Return the words of an icon's name by which icons belong together, sorted."""
    return " ".join(sorted(subject_of(icon)))


def split(icons: Sequence[Icon], labels: Labels, ink: npt.NDArray[np.float32]) -> dict[str, str]:
    """Return the split of each icon, ``query``, ``database`` or ``train``, by its key.

    Icons of one name, or of nearly the same picture, stay together; but one to train on with the text of a query, or a
    picture much like it, is moved to the database.

    Args:
        icons: The icons.
        labels: Their concepts.
        ink: Their pictures, ``(N, D)``, as `silohash.data.build.icons.drawing.ink_of` returns them.
    """
    groups = _groups(icons, near_pairs(ink, SAME_PICTURE))
    part: dict[str, str] = {}
    for name, rows in groups.items():
        drawn = draw(name)
        chosen = "query" if drawn < QUERY_BELOW else "database" if drawn < DATABASE_BELOW else "train"
        part |= dict.fromkeys([icons[row].key for row in rows], chosen)
    _add_queries(part, [[icons[row].key for row in rows] for _, rows in sorted(groups.items(), key=_order)], labels)
    queries = np.array([row for row, icon in enumerate(icons) if part[icon.key] == "query"], np.int64)
    texts = {icons[row].text for row in queries}
    like = {row for row, _ in near_pairs(ink, LIKE_A_QUERY, ink[queries])}
    for row, icon in enumerate(icons):
        if part[icon.key] == "train" and (row in like or icon.text in texts):
            part[icon.key] = "database"
    return part


def draw(name: str) -> float:
    """Return a number from 0 to 1 that depends only on a name."""
    return int.from_bytes(hashlib.sha256(f"{SALT}|{name}".encode()).digest()[:4]) / 2**32


def _order(group: tuple[str, list[int]]) -> float:
    return draw(group[0])


def _groups(icons: Sequence[Icon], pairs: Iterable[tuple[int, int]]) -> dict[str, list[int]]:
    """Return the rows of each group of icons, by the first of the names of the group."""
    names = [name_of_group(icon) for icon in icons]
    parent = {name: name for name in names}

    def root(name: str) -> str:
        while parent[name] != name:
            parent[name] = name = parent[parent[name]]
        return name

    for one, other in pairs:
        first, second = sorted((root(names[one]), root(names[other])))
        parent[second] = first
    groups: dict[str, list[int]] = defaultdict(list)
    for row, name in enumerate(names):
        groups[root(name)].append(row)
    return groups


def _add_queries(part: dict[str, str], groups: Sequence[Sequence[str]], labels: Labels) -> None:
    """Turn further groups into queries, in their order, until each concept has enough queries; the rarest concept first."""
    having: Mapping[str, list[str]] = defaultdict(list)
    for key, concepts in labels.items():
        for concept in concepts:
            having[concept].append(key)
    for concept, keys in sorted(having.items(), key=lambda entry: (len(entry[1]), entry[0])):
        for group in groups:
            if sum(part[key] == "query" for key in keys) >= LEAST_QUERIES:
                break
            if len(group) <= LARGEST_GROUP and part[group[0]] != "query" and any(concept in labels[k] for k in group):
                part.update(dict.fromkeys(group, "query"))
