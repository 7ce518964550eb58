"""MIRFlickr-25K: its card, its layouts, the reader of the collectors' release, and its protocols."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from silohash.base.errors import MissingFile, OutOfRange
from silohash.data.benchmarks import sources
from silohash.data.benchmarks.dataset import Dataset
from silohash.data.benchmarks.layouts import matlab_arrays, reading
from silohash.data.benchmarks.layouts.matlab_arrays import Named
from silohash.data.benchmarks.layouts.picture_lists import LISTS, picture_list_layout
from silohash.data.benchmarks.layouts.reading import Layout, Need
from silohash.data.catalogue import check_option
from silohash.data.protocols.contents import PROMINENT, Contents

KEY = "mirflickr25k"
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
        ids=np.array([f"im{number}" for number in items], np.str_),
        image=image,
        text=text,
        labels=labels,
        label_names=tuple(pictures_of),
        notes={
            "concepts": f"{concepts}, in alphabetical order of their files",
            "tags": "all of them, joined with spaces",
            **picture_notes,
            **reading.count_notes(counts),
            **text_notes,
        },
    )


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

LAYOUTS = (
    matlab_arrays.picture_layout("dcmh-mat", KEY, items=ITEMS, classes=CLASSES),
    Layout(
        name="dcmh-merged",
        summary="DCMH and FedCAFE: FLICKR-25K.mat with pictures, tags and labels, in any of its three variants "
        "(by MATLAB, repacked by Python, with structs)",
        needs=(Need("**/FLICKR-25K.mat", "images, YAll and LAll"),),
        read=partial(matlab_arrays.read_pictures, _MERGED),
        options=matlab_arrays.PICTURE_OPTIONS,
    ),
    matlab_arrays.feature_layout("ucch-mat", KEY, ("iall-vgg",), items=ITEMS, classes=CLASSES),
    picture_list_layout({CLASSES: ITEMS}),
    LISTS,
    Layout(
        name="raw",
        summary="the collectors' release: im*.jpg, mirflickr25k_annotations_v080/*.txt and meta/tags/tags*.txt",
        needs=(
            Need("**/im*.jpg", "the 25,000 pictures"),
            Need("**/mirflickr25k_annotations*/*.txt", "one file per concept, with the numbers of its pictures"),
            Need("**/tags/tags*.txt", "one file of tags per picture, one tag per line"),
        ),
        read=read_collectors_files,
        options={"concepts": "24, or 38 with those that mark only the pictures in which the concept is prominent"},
    ),
)

_TAGS_ABOUT = (
    "20,015 is the number of items with at least one of 24 labels and at least one of the 1,386 tags that occur on 20 "
    "items or more. The paper says that items with fewer than 20 tags are removed, which cannot be meant: an item has "
    "about nine tags."
)

# fmt: off
_protocol = partial(sources.protocol, dataset=KEY, query=2_000, items=20_015, classes=CLASSES,
    population="frequent tags", least=20, labels="without _r1", collected=25_000)
_dcmh = partial(_protocol, train=10_000, database=18_015)

PROTOCOLS = (
    _dcmh(sources.FEDCAFE,
        about=f"{_TAGS_ABOUT} The paper says that the queries are drawn at random. Its code takes the first 2,000 rows of "
        "the file, then 10,000 for training, as the ports of DCMH do, and keeps the best round on the queries."),
    _dcmh(sources.FEDHAP,
        about="The sizes in the paper's table, with a database of 18,015 that includes the training items. The paper's "
        "text differs (fedhap-text), and its table gives 21 classes (fedhap-table-classes)."),
    _protocol(sources.FEDHAP, name="fedhap-text", database=8_015, searched="neither",
        about="The paper's text: 10,000 training items, 2,000 queries from the rest, and the remaining 8,015 items as the "
        "database. Its table says 18,015 (fedhap)."),
    _protocol(sources.FEDHAP, name="fedhap-table-classes", database=None, items=None, classes=21,
        labels="most frequent",
        about="The paper's table taken literally: 21 classes, here the most frequent of the 24. The table seems to swap "
        "the numbers of classes of two data sets; fedhap has the usual 24."),
    _protocol(sources.FEDUCH, database=18_015,
        about="Every item except the queries is searched, which is 18,015. The paper's table says 16,015 (feduch-16015)."),
    _protocol(sources.FEDUCH, name="feduch-16015", database=16_015,
        about="The paper's table taken literally: 16,015 items are searched, 2,000 fewer than remain without the queries. "
        "They may have been subtracted twice. The paper does not say which ones are missing, so they are drawn."),
    _dcmh(sources.DLFFH, about=f"{_TAGS_ABOUT} {sources.DLFFH['about']}"),
    _dcmh(sources.DCMH,
        about=f"{_TAGS_ABOUT} Rows are in the order of the file, as in the TensorFlow code and its ports. The MATLAB code "
        "draws a permutation (dcmh-matlab)."),
    _dcmh(sources.DCMH, name="dcmh-matlab", draw="seeded",
        about="As dcmh, with a permutation instead of the file's order. MATLAB's own permutation is not reproduced; the "
        "seed draws another one."),
    _protocol(sources.DCMH, name="dcmh-20-tags", train=10_000, database=None, items=None, population="many tags",
        draw="seeded", round_by="not stated",
        about="The wording of DCMH, FedCAFE and DLFFH taken literally: items with fewer than 20 tags are removed. Far "
        "fewer than 20,015 items remain in the complete files, which shows that it cannot be meant."),
    _protocol(name="dcmh-24581", source="the population without the rule about tags", train=10_000, database=22_581,
        items=24_581, population="labeled",
        about="24,581 items have at least one of the 24 labels. Of these, 4,566 have none of the frequent tags, so their "
        "text queries are empty. Figures are not comparable with those on 20,015 items."),
    _protocol(sources.DEEPHASH, query=1_000, train=4_000, database=20_000, items=25_000, classes=38, population="all",
        labels="as they are", searched="neither", reader={"concepts": 38},
        about="All 25,000 pictures under 38 concepts; 1.8 % have none of them. Lists of files state the splits, and the "
        "database does not include the training items. The best epoch is chosen on the queries."),
    _dcmh(sources.UCCH, train=18_015,
        about="The last 2,000 rows are the queries; training uses all others without labels. With pictures, the code first "
        "shuffles without a seed; with features, the file's order is kept."),
    _dcmh(sources.TORCHCMH, numpy_seed=6),
)
# fmt: on

MIRFLICKR25K = Dataset(
    key=KEY,
    title="MIRFlickr-25K",
    summary="Open MIRFlickr-25K from files that the user provides: 25,000 photos with tags and 24 or 38 labels.",
    source="Huiskes and Lew, The MIR Flickr Retrieval Evaluation, MIR 2008",
    license="each picture under its own Creative Commons license",
    layouts=LAYOUTS,
    published=PROTOCOLS,
    default_protocol="dcmh",
)
