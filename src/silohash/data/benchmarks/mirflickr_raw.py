"""MIRFlickr-25K as its collectors distribute it: pictures, tags, and a file of picture numbers for each concept."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import numpy.typing as npt

from silohash.data.archive import as_texts
from silohash.data.benchmarks.raw import Raw
from silohash.data.benchmarks.reading import (
    checked_pictures,
    counts,
    find,
    find_one,
    numbers_of,
    one_of,
    text_of,
)
from silohash.types import UserError

CONCEPTS = (24, 38)
ANNOTATIONS = "**/mirflickr25k_annotations*/*.txt"
PICTURES = "**/im*.jpg"
TAGS = "**/tags/tags*.txt"
RELEVANT = "_r1"


def mirflickr(root: Path, *, concepts: int = 24) -> Raw:
    """Reads MIRFlickr-25K's own files.

    The text of an item is its tags with spaces between them; which of them are frequent enough to count is a matter of
    the protocol.

    Args:
        root: the folder; pictures, annotations and tags may lie in folders of it.
        concepts: 24 (the concepts that annotators saw at all in a picture) or 38 (with the 14 ``_r1``, which hold only
            the pictures in which the concept is prominent).

    Raises:
        UserError: if pictures, annotations or tags are missing, or a line of an annotation is no picture number.
    """
    one_of("concepts", concepts, CONCEPTS)
    folder = find_one(root, PICTURES, "the pictures im1.jpg, im2.jpg, ...").parent
    names = {_number(path): path.name for path in folder.glob("im*.jpg") if _number(path)}
    pictures_of = _concepts(root, concepts)
    tag_files = _tag_files(root)
    numbers = np.unique(np.concatenate([np.array([*names, *tag_files], np.int64), *pictures_of.values()]))
    labels = np.zeros((len(numbers), len(pictures_of)), np.uint8)
    for column, of_concept in enumerate(pictures_of.values()):
        labels[np.searchsorted(numbers, of_concept), column] = 1
    pictures, notes = checked_pictures(
        folder, [names.get(number, "") for number in numbers.tolist()], "Restore the pictures im1.jpg, im2.jpg, ..."
    )
    texts, cut = as_texts([_tags(tag_files.get(number)) for number in numbers.tolist()])
    return Raw(
        ids=np.array([f"im{number}" for number in numbers.tolist()], np.str_),
        image=pictures,
        text=texts,
        labels=labels,
        label_names=tuple(pictures_of),
        notes={
            "concepts": f"{concepts}, in alphabetical order of their files",
            "tags": "joined with spaces, all of them",
            **notes,
            **counts(
                {
                    "items without a file of tags": len(numbers) - len(tag_files),
                    "items without any of the concepts": int((~labels.any(axis=1)).sum()),
                    "texts that were cut": cut,
                }
            ),
        },
    )


def _number(path: Path) -> int:
    found = re.fullmatch(r"(?:im|tags)(\d+)", path.stem)
    return int(found[1]) if found else 0


def _concepts(root: Path, concepts: int) -> dict[str, npt.NDArray[np.int64]]:
    """Returns concept -> the numbers of its pictures, in alphabetical order of the concepts."""
    folder = find_one(root, ANNOTATIONS, "one file a concept, with a picture's number in each line").parent
    files = {path.stem: path for path in find(folder, "*.txt") if path.stem.lower() != "readme"}
    wanted = sorted(name for name in files if concepts == max(CONCEPTS) or not name.endswith(RELEVANT))
    if len(wanted) != concepts:
        raise UserError(
            f"{folder} has {len(wanted)} files of concepts where {concepts} were expected: {', '.join(wanted)}. "
            "Unpack the annotations again, and keep other text files out of the folder."
        )
    pictures_of = {name: numbers_of(files[name], 1)[:, 0] for name in wanted}
    for name, of_concept in pictures_of.items():
        if len(of_concept) and of_concept.min() < 1:
            raise UserError(f"{files[name]} names the picture {of_concept.min()}; they count from 1. Restore the file.")
    return pictures_of


def _tag_files(root: Path) -> dict[int, Path]:
    folder = find_one(root, TAGS, "one file of tags a picture, a tag in each line").parent
    return {_number(path): path for path in folder.glob("tags*.txt") if _number(path)}


def _tags(path: Path | None) -> str:
    """Returns the tags of a file with a space between each two; spaces within a tag are taken out, as Flickr does."""
    if path is None:
        return ""
    return " ".join("".join(line.split()) for line in text_of(path).splitlines() if line.strip())
