"""Split the icons so that nothing like a query is trained on, and store the split and the numbers in the package.

Only who changes the lock or the concepts runs this, because every build uses the stored split: pictures may differ between
processors in their last gray level. Rejecting further votes or labels needs no new split, only new numbers.

Usage: python -m tests.split_icons FOLDER-OF-PACKAGES
"""

from __future__ import annotations

import gzip
import hashlib
import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import numpy.typing as npt
from PIL import Image

from silohash.base.files import read_json
from silohash.data.build.icons.builder import FACTS, LOCK, SIZE, SPLIT, TABLES, build_icons, draw, labeled_icons
from silohash.data.build.icons.concepts import Labels, subject_of
from silohash.data.build.icons.libraries import COLORED, Icon
from silohash.data.build.packages import Pin, verified

QUERY_BELOW, DATABASE_BELOW = 0.1, 0.3
LEAST_QUERIES, LARGEST_GROUP = 12, 12
"""Number of queries that each concept gets, and of items of a group that is moved to the queries for it."""

SAME_PICTURE, LIKE_A_QUERY = 0.99, 0.97
"""Least cosine of the ink of two pictures of one group, and of a picture that is not trained on because of a query."""

COMPARED_SIZE, WHITE, BLOCK, SALT = 32, 255, 1024, "icons-1"
Ink = npt.NDArray[np.float32]


def split(icons: Sequence[Icon], labels: Labels, ink: Ink) -> dict[str, str]:
    """Returns the split of each icon, query, database or train, by its key. The ink is that of `ink_of`, (N, 1024).

    Icons of one name, or of nearly the same picture, stay together; but one to train on with the text of a query, or a
    picture much like it, is moved to the database.
    """
    groups = groups_of(icons, near_pairs(ink, SAME_PICTURE))
    part: dict[str, str] = {}
    for name, rows in groups.items():
        drawn = draw_number(name)
        chosen = "query" if drawn < QUERY_BELOW else "database" if drawn < DATABASE_BELOW else "train"
        part |= dict.fromkeys([icons[row].key for row in rows], chosen)
    order = sorted(groups, key=draw_number)
    add_queries(part, [[icons[row].key for row in groups[name]] for name in order], labels)
    queries = np.array([row for row, icon in enumerate(icons) if part[icon.key] == "query"], np.int64)
    texts = {icons[row].text for row in queries}
    like = {row for row, _ in near_pairs(ink, LIKE_A_QUERY, ink[queries])}
    for row, icon in enumerate(icons):
        if part[icon.key] == "train" and (row in like or icon.text in texts):
            part[icon.key] = "database"
    return part


def name_of_group(icon: Icon) -> str:
    return " ".join(sorted(subject_of(icon)))


def draw_number(name: str) -> float:
    """Returns a number from 0 to 1 that depends only on a name."""
    return int.from_bytes(hashlib.sha256(f"{SALT}|{name}".encode()).digest()[:4]) / 2**32


def groups_of(icons: Sequence[Icon], pairs: Iterable[tuple[int, int]]) -> dict[str, list[int]]:
    """Returns the rows of each group of icons, by the first of the names of the group."""
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


def add_queries(part: dict[str, str], groups: Sequence[Sequence[str]], labels: Labels) -> None:
    """Turns further groups into queries, in their order, until each concept has enough; the rarest concept first."""
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


def ink_of(picture: npt.NDArray[np.uint8]) -> Ink:
    """Returns the ink of a picture at a quarter of its area as a vector of length 1, (1024,); zeros if it is blank."""
    small = Image.fromarray(picture).convert("L").reduce(SIZE // COMPARED_SIZE)
    ink = WHITE - np.asarray(small, np.float32).reshape(-1)
    length = np.float32(np.linalg.norm(ink))
    return ink / length if length else ink


def near_pairs(ink: Ink, least: float, others: Ink | None = None) -> Iterator[tuple[int, int]]:
    """Yields the pairs of rows of one or two sets of pictures whose ink has at least this cosine, in order."""
    against = ink if others is None else others
    for start in range(0, len(ink), BLOCK):
        near = np.argwhere(ink[start : start + BLOCK] @ against.T >= least)
        near[:, 0] += start
        yield from map(tuple, near[near[:, 0] < near[:, 1]].tolist() if others is None else near.tolist())


def store_split(packages: Path, tables: Path = TABLES) -> None:
    """Writes the split and the expected numbers of a build."""
    icons, labels = labeled_icons(verified(read_json(tables / LOCK, list[Pin]), packages), tables)
    drawn = [draw(icon.svg, color=icon.silo in COLORED) for icon in icons]
    part = split(icons, labels, np.stack([ink_of(picture) for picture in drawn]))
    lines = "".join(f"{icon.key},{part[icon.key]}\n" for icon in icons)
    (tables / SPLIT).write_bytes(gzip.compress(lines.encode(), mtime=0))
    store_facts(packages, tables)


def store_facts(packages: Path, tables: Path = TABLES) -> None:
    """Writes the expected numbers of a build."""
    path = tables / FACTS
    path.write_text(path.read_text() if path.is_file() else "{}")
    with TemporaryDirectory() as folder:
        facts = build_icons(Path(folder) / "icons", source=packages, registry="", cap=0, said=print, tables=tables)
    path.write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    store_split(Path(sys.argv[1]))
