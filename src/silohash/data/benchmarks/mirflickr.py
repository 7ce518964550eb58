"""MIRFlickr-25K: its card, its layouts, and the reader of the collectors' release."""

import re
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from silohash.base.errors import MissingFile, OutOfRange
from silohash.data.benchmarks.dataset import described
from silohash.data.benchmarks.layouts import matlab_arrays, reading
from silohash.data.benchmarks.layouts.matlab_arrays import Named
from silohash.data.benchmarks.layouts.picture_lists import LISTS, picture_list_layout
from silohash.data.benchmarks.layouts.reading import layout
from silohash.data.catalogue import check_option
from silohash.data.protocols.contents import PROMINENT, Contents

ITEMS = (20_015,)
CLASSES = 24
CONCEPTS = (CLASSES, 38)


def read_collectors_files(root: Path, *, concepts: int = CLASSES) -> Contents:
    """Read the collectors' release: pictures, tags, and one file of picture numbers per concept.

    An item's text is its tags joined with spaces. Which tags are frequent enough to count is left to the protocol. Of the 38
    concepts, 24 mark the pictures in which they are visible, and 14, named ``_r1``, only those in which they are prominent.
    """
    check_option("concepts", concepts, CONCEPTS)
    folder = reading.find_one(root, "**/im*.jpg").parent
    names = {_number(path): path.name for path in folder.glob("im*.jpg") if _number(path)}
    pictures_of = _read_concepts(root, concepts)
    tags = reading.find_one(root, "**/tags/tags*.txt").parent
    tag_files = {_number(path): path for path in tags.glob("tags*.txt") if _number(path)}
    numbers = np.unique(np.concatenate([np.array([*names, *tag_files], np.int64), *pictures_of.values()]))
    labels = np.zeros((len(numbers), len(pictures_of)), np.uint8)
    for column, of_concept in enumerate(pictures_of.values()):
        labels[np.searchsorted(numbers, of_concept), column] = 1
    items = numbers.tolist()
    image, picture_notes = reading.check_picture_files(
        folder, [names.get(number, "") for number in items], "Restore the pictures im1.jpg, im2.jpg, ..."
    )
    text, text_notes = reading.text_column([_read_tags(tag_files.get(number)) for number in items])
    counts = {
        "items without a file of tags": len(numbers) - len(tag_files),
        "items without any of the concepts": int((~labels.any(axis=1)).sum()),
    }
    return Contents(
        ids=np.array([f"im{number}" for number in items], np.str_), image=image, text=text, labels=labels,
        label_names=tuple(pictures_of),
        notes={
            "concepts": f"{concepts}, in alphabetical order of their files",
            "tags": "all of them, joined with spaces",
            **picture_notes,
            **reading.count_notes(counts),
            **text_notes,
        },
    )  # fmt: skip


def _number(path: Path) -> int:
    found = re.fullmatch(r"(?:im|tags)(\d+)", path.stem)
    return int(found[1]) if found else 0


def _read_concepts(root: Path, concepts: int) -> dict[str, npt.NDArray[np.int64]]:
    """Return concept -> the numbers of its pictures, in alphabetical order of the concepts."""
    folder = reading.find_one(root, "**/mirflickr25k_annotations*/*.txt").parent
    files = {path.stem: path for path in reading.find(folder, "*.txt") if path.stem.lower() != "readme"}
    wanted = sorted(name for name in files if concepts == max(CONCEPTS) or not name.endswith(PROMINENT))
    if len(wanted) != concepts:
        raise MissingFile(
            f"{folder} has {len(wanted)} files of concepts where {concepts} were expected: {', '.join(wanted)}. "
            "Unpack the annotations again, and keep other text files out of the folder."
        )
    pictures_of = {name: reading.read_numbers(files[name], 1)[:, 0] for name in wanted}
    for name, numbers in pictures_of.items():
        if numbers.min(initial=1) < 1:
            raise OutOfRange(f"{files[name]} names the picture {numbers.min()}, but they start at 1. Restore the file.")
    return pictures_of


def _read_tags(path: Path | None) -> str:
    """Return the tags of a file, separated by spaces. Spaces within a tag are removed, as Flickr does."""
    lines = reading.read_text(path).splitlines() if path else []
    return " ".join("".join(line.split()) for line in lines if line.strip())


_MERGED = matlab_arrays.ArrayFiles(
    image=Named("FLICKR-25K.mat", ("images", "IAll")),
    text=Named("FLICKR-25K.mat", ("YAll", "tags")),
    labels=Named("FLICKR-25K.mat", ("LAll", "labels")),
    names=Named("FLICKR-25K.mat", ("FAll",)),
    items=ITEMS,
    classes=CLASSES,
)

MIRFLICKR25K = described(
    "mirflickr25k",
    matlab_arrays.picture_layout("dcmh-mat", "mirflickr25k", items=ITEMS, classes=CLASSES),
    layout("dcmh-merged", partial(matlab_arrays.read_pictures, _MERGED)),
    matlab_arrays.feature_layout("ucch-mat", "mirflickr25k", ("iall-vgg",), items=ITEMS, classes=CLASSES),
    picture_list_layout({CLASSES: ITEMS}),
    LISTS,
    layout("mirflickr25k/raw", read_collectors_files),
)
