"""The packed data sets, which ``sets.toml`` describes, and the functions that make the rows of some of them."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from silohash.base.files import read_toml
from silohash.base.forms import REINSTALL, of_value
from silohash.data.packed.reader import Choices, PackedSet, Row
from silohash.data.pictures.reading import read_array


def _caption_rows(packed: PackedSet, chosen: Choices) -> list[Row]:
    """Return one row per caption, joined with the row of its picture."""
    pictures = {row["file"]: {**row, "image_row": place} for place, row in enumerate(packed.table("images.csv"))}
    captions = enumerate(packed.table("captions.csv"))
    rows = [{**pictures[caption["file"]], **caption, "text_row": place} for place, caption in captions]
    return rows if chosen["captions"] == "each" else [row for row in rows if row["caption_no"] == "0"]


def _region_rows(packed: PackedSet, chosen: Choices) -> list[Row]:
    """Return one row per caption, with the categories of its picture's regions joined with ``|``."""
    table = packed.table("regions.jsonl")
    regions = {row["file"]: "|".join(region["category"] for region in row["regions"]) for row in table}
    return [{**row, "categories": regions.get(row["file"], "")} for row in _caption_rows(packed, chosen)]


def _scene_rows(packed: PackedSet, chosen: Choices) -> list[Row]:
    """Return one row per scene and sentence, with the objects in the scene joined with ``|``."""
    rows = [{**row, "image_row": place, "text_row": place} for place, row in enumerate(packed.table("pairs.jsonl"))]
    rows = [row for row in rows if row["true"] or chosen["labels"] != "true"]
    for row in rows:
        row["truth"] = "yes" if row["true"] else "no"
        row["objects"] = "|".join(f"{region['colour']} {region['shape']}" for region in row["regions"])
    return rows


def _article_rows(packed: PackedSet, chosen: Choices) -> list[Row]:
    """Return one row per pair; where test pairs are searched, every second of them is a query."""
    classes = [row["name"] for row in packed.table("classes.csv")]
    rows = [{**row, "part": row["split"], "class": classes[int(row["label"])]} for row in packed.table("items.csv")]
    tested = [row for row in rows if row["split"] == "test"]
    for place, row in enumerate(tested):
        row["split"] = "database" if chosen["database"] == "test" and place % 2 else "query"
    return rows


def _sentence_rows(packed: PackedSet, chosen: Choices) -> list[Row]:
    """Return one row per text; the first pair of each class is a query."""
    files = ("pairs100.npz", "text800.npz")[: 2 if chosen["texts"] == "all" else 1]
    classes = np.concatenate([read_array(packed.file(file), "label") for file in files])
    queries = set(np.unique(classes, return_index=True)[1].tolist())
    return [
        {"number": place, "class": f"class {label}", "split": "query" if place in queries else "train"}
        for place, label in enumerate(classes.tolist())
    ]


ROWS: Mapping[str, Callable[[PackedSet, Choices], list[Row]]] = {
    "caption": _caption_rows,
    "region": _region_rows,
    "scene": _scene_rows,
    "article": _article_rows,
    "sentence": _sentence_rows,
}
FACTS = read_toml(Path(__file__).with_name("sets.toml"), remedy=REINSTALL, missing=REINSTALL)


def _described(name: str) -> PackedSet:
    facts = FACTS[name]
    return of_value({"name": name, **facts, "rows": ROWS.get(facts["rows"], facts["rows"])}, PackedSet)


COCO18 = _described("coco18")
FASHION = _described("fashion")
FASHION_CLIP99 = _described("fashion-clip99")
CLOTHING10 = _described("clothing10")
FLICKR8K_1K = _described("flickr8k-1k")
COCO_MINI = _described("coco-mini")
NLVR_GRAPHS = _described("nlvr-graphs")
WIKI_SIFT_LDA = _described("wiki-sift-lda")
PASCAL_DEEP = _described("pascal-deep")
