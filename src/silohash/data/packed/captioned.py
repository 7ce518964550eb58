"""Readers of the data sets without a class for each item: flickr8k-1k, coco-mini and nlvr-graphs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from silohash.data.archive import Archive, ArchiveCard
from silohash.data.packed.files import TEXT_OPTIONS, Shown, choice, need, rows_where, shown, table
from silohash.data.pictures.packing import PictureFiles
from silohash.data.splits import default_splits
from silohash.types import Rows, UserError

IMAGE_OPTIONS = ("mobilenet", "jpeg")
CAPTION_OPTIONS = ("each", "first")


def _captioned(dataset: str, *, image: str, text: str, captions: str) -> tuple[Shown, Rows, list[str], list[str]]:
    """Returns the columns, each item's row in ``images.csv``, the items' picture names and their ids."""
    choice(dataset, "image", image, IMAGE_OPTIONS)
    choice(dataset, "text", text, TEXT_OPTIONS)
    choice(dataset, "captions", captions, CAPTION_OPTIONS)
    picture_row = {row["file"]: number for number, row in enumerate(table(dataset, "images.csv"))}
    rows = table(dataset, "captions.csv")
    kept = [number for number, row in enumerate(rows) if captions == "each" or row["caption_no"] == "0"]
    names = [rows[number]["file"] for number in kept]
    of_picture = np.array([picture_row[name] for name in names], dtype=np.int64)
    columns = shown(
        dataset,
        PictureFiles(need(dataset, "images"), names),
        [rows[number]["caption"] for number in kept],
        image=image,
        text=text,
        item_rows=(of_picture, np.array(kept, dtype=np.int64)),
    )
    return columns, of_picture, names, [f"{rows[number]['file']}#{rows[number]['caption_no']}" for number in kept]


def flickr8k_1k(*, image: str = "mobilenet", text: str = "caption", captions: str = "each") -> Archive:
    """Opens flickr8k-1k: 1,000 photos with five captions each, without labels.

    Its 300 test photos are the queries, for exact-pair retrieval among themselves; the others are the database.

    Args:
        image: ``mobilenet`` (given features) or ``jpeg``.
        text: ``caption``, ``bow`` or ``minilm``.
        captions: ``each`` (an item a caption; the column ``picture`` tells which belong together) or ``first``.
    """
    columns, of_picture, names, ids = _captioned("flickr8k-1k", image=image, text=text, captions=captions)
    split_of_picture = [row["split"] for row in table("flickr8k-1k", "images.csv")]
    split = [split_of_picture[row] for row in of_picture]
    return Archive(
        ids=np.array(ids, dtype=np.str_),
        image=columns.image,
        text=columns.text,
        labels=None,
        label_names=(),
        splits={
            "query": rows_where(split, "test"),
            "database": rows_where(split, "train", "val"),
            "train": rows_where(split, "train"),
        },
        card=ArchiveCard(
            name="flickr8k-1k",
            source="Hodosh, Young, Hockenmaier, Framing Image Description as a Ranking Task, JAIR 47, 2013, as "
            "github.com/quantumnaan/sic_translator gives a part of it",
            licence="non-commercial research and education; photos belong to their Flickr authors",
            protocol=f"flickr8k-1k/600-700/{captions}-caption",
            notes={"relevant": "captions of the same picture, by the column picture"},
        ),
        columns={"picture": np.array(names, dtype=np.str_)},
        captions=columns.captions,
        preview=columns.preview,
    ).with_digest()


def coco_mini(*, image: str = "mobilenet", text: str = "caption", captions: str = "each") -> Archive:
    """Opens coco-mini: 239 photos with five captions each; 159 have labels of 80 categories from their boxed regions.

    Args:
        image: ``mobilenet`` (given features) or ``jpeg``.
        text: ``caption``, ``bow`` or ``minilm``.
        captions: ``each`` (an item a caption; the column ``picture`` tells which belong together) or ``first``.
    """
    columns, _, names, ids = _captioned("coco-mini", image=image, text=text, captions=captions)
    categories = tuple(row["name"] for row in table("coco-mini", "categories.csv"))
    regions = {
        str(row["file"]): [region["category"] for region in row["regions"]]
        for row in _lines("coco-mini", "regions.jsonl")
    }
    return Archive(
        ids=np.array(ids, dtype=np.str_),
        image=columns.image,
        text=columns.text,
        labels=_many_hot([regions.get(name, []) for name in names], categories),
        label_names=categories,
        splits=default_splits(names),
        card=ArchiveCard(
            name="coco-mini",
            source="Photos, boxes, captions of Microsoft COCO (Lin et al., ECCV 2014; Chen et al., arXiv 1504.00325), "
            "as github.com/Obmutescence/COCO-MINI and github.com/ruizewang/evaluate give them",
            licence="annotations CC BY 4.0; each photo under its Flickr licence, many non-commercial",
            protocol=f"coco-mini/default/{captions}-caption",
            notes={"relevant": "items that share a label; photos without regions have none"},
        ),
        columns={"picture": np.array(names, dtype=np.str_)},
        captions=columns.captions,
        preview=columns.preview,
    ).with_digest()


def nlvr_graphs(*, image: str = "mobilenet", text: str = "caption", labels: str = "group") -> Archive:
    """Opens nlvr-graphs: 989 drawn scenes with a sentence that is true or false of them.

    Args:
        image: ``mobilenet`` (given features) or ``png``.
        text: ``caption`` (the sentence), ``bow`` or ``minilm``.
        labels: ``group`` (scenes that were shown with the same sentence) or ``objects`` (colour and shape of what is
            in the scene).
    """
    choice("nlvr-graphs", "image", image, ("mobilenet", "png"))
    choice("nlvr-graphs", "text", text, TEXT_OPTIONS)
    choice("nlvr-graphs", "labels", labels, ("group", "objects"))
    rows = _lines("nlvr-graphs", "pairs.jsonl")
    if labels == "group":
        kinds = [[str(row["group"])] for row in rows]
    else:
        kinds = [[f"{region['colour']} {region['shape']}" for region in row["regions"]] for row in rows]
    names = tuple(sorted({kind for row in kinds for kind in row}))
    pictures = PictureFiles(need("nlvr-graphs", "images").parent, [str(row["file"]) for row in rows])
    columns = shown("nlvr-graphs", pictures, [str(row["sentence"]) for row in rows], image=image, text=text)
    ids = [str(row["id"]) for row in rows]
    return Archive(
        ids=np.array(ids, dtype=np.str_),
        image=columns.image,
        text=columns.text,
        labels=_many_hot(kinds, names),
        label_names=names,
        splits=default_splits(ids),
        card=ArchiveCard(
            name="nlvr-graphs",
            source="Suhr, Lewis, Yeh, Artzi, A Corpus of Natural Language for Visual Reasoning, ACL 2017 "
            "(github.com/lil-lab/nlvr)",
            licence="CC BY 4.0",
            protocol=f"nlvr-graphs/default/{labels}",
            notes={"relevant": "items of the same group" if labels == "group" else "items that share a kind of object"},
        ),
        columns={
            "group": np.array([str(row["group"]) for row in rows], dtype=np.str_),
            "true": np.array(["yes" if row["true"] else "no" for row in rows], dtype=np.str_),
        },
        captions=columns.captions,
        preview=columns.preview,
    ).with_digest()


def _lines(dataset: str, file: str) -> list[dict[str, Any]]:
    path = need(dataset, file)
    try:
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise UserError(f"{path} is damaged ({error}). Restore the file.") from error


def _many_hot(kinds: Sequence[Sequence[str]], names: Sequence[str]) -> npt.NDArray[np.uint8]:
    column = {name: position for position, name in enumerate(names)}
    labels = np.zeros((len(kinds), len(names)), dtype=np.uint8)
    for row, of_row in enumerate(kinds):
        labels[row, [column[kind] for kind in of_row]] = 1
    return labels
