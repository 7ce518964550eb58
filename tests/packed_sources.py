"""The files of the official sources of the packed data sets, in their layouts, made from the folders of packed sets."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import scipy.io

from silohash.data.pictures.reading import PackedPictures, read_array
from tests.packed_facts import read_rows

PRODUCT_COLUMNS = {
    "id": "source_id",
    "gender": "gender",
    "masterCategory": "master_category",
    "subCategory": "sub_category",
    "articleType": "article_type",
    "baseColour": "base_colour",
    "season": "season",
    "year": "year",
    "usage": "usage",
    "productDisplayName": "title",
}
COCO18_NUMBER = 1_000_000
"""COCO's number of the photo of the first row of coco18. The published set has other numbers."""


def write_official(name: str, packed: Path, out: Path) -> Path:
    """Writes the official files of a set, and returns their folder; COCO's are the same for both of its sets."""
    {
        "coco18": _coco,
        "coco-mini": _coco,
        "fashion": _fashion,
        "flickr8k-1k": _flickr8k,
        "clothing10": _clothing10,
        "nlvr-graphs": _nlvr,
        "wiki-sift-lda": _wiki,
    }[name](packed, out)
    return out


def write(path: Path, content: bytes | str) -> None:
    """Writes a file into a folder that may be missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)


def write_csv(path: Path, columns: Iterable[str], rows: Iterable[Iterable[object]]) -> None:
    """Writes a CSV file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream).writerows([columns, *rows])


def _coco(packed: Path, out: Path) -> None:
    """Writes the photos of both sets with their captions: those of coco18 are in the part val2017, in another order."""
    photos: dict[str, list[Mapping[str, Any]]] = {"train2017": [], "val2017": []}
    pictures = PackedPictures(packed / "coco18")
    for place, row in enumerate(read_rows(packed / "coco18/pairs.csv")):
        number = COCO18_NUMBER - place
        write(out / f"val2017/{number:012}.jpg", pictures.content(place))
        photos["val2017"].append({"image_id": number, "caption": f"{row['caption']} "})
    mini = {row["file"]: row["source_split"] for row in read_rows(packed / "coco-mini/images.csv")}
    for file, part in mini.items():
        write(out / part / file, (packed / "coco-mini/images" / file).read_bytes())
    for row in read_rows(packed / "coco-mini/captions.csv"):
        photos[mini[row["file"]]].append({"image_id": int(row["file"][:-4]), "caption": row["caption"]})
    boxes: dict[str, list[Mapping[str, Any]]] = {"train2017": [], "val2017": []}
    for row in read_rows(packed / "coco-mini/regions.jsonl"):
        boxes[mini[row["file"]]] += [{**box, "image_id": int(row["file"][:-4])} for box in row["regions"]]
    for part in photos:
        write(out / f"annotations/captions_{part}.json", json.dumps({"annotations": photos[part]}))
        write(out / f"annotations/instances_{part}.json", json.dumps({"annotations": boxes[part]}))


def _fashion(packed: Path, out: Path) -> None:
    rows, pictures = read_rows(packed / "fashion/pairs.csv"), PackedPictures(packed / "fashion")
    products = [[row[column] for column in PRODUCT_COLUMNS.values()] for row in reversed(rows)]
    write_csv(out / "styles.csv", PRODUCT_COLUMNS, products)
    for place, row in enumerate(rows):
        write(out / f"images/{row['source_id']}.jpg", pictures.content(place))


def _flickr8k(packed: Path, out: Path) -> None:
    captions = ([row["file"], row["caption"]] for row in read_rows(packed / "flickr8k-1k/captions.csv"))
    write_csv(out / "captions.txt", ("image", "caption"), captions)
    for row in read_rows(packed / "flickr8k-1k/images.csv"):
        write(out / "Images" / row["file"], (packed / "flickr8k-1k/images" / row["file"]).read_bytes())


def _clothing10(packed: Path, out: Path) -> None:
    pictures, parts = PackedPictures(packed / "clothing10"), {"database": "train", "query": "validation"}
    for place, row in enumerate(read_rows(packed / "clothing10/images.csv")):
        write(out / parts[row["split"]] / row["class"] / f"{row['source_id']}.jpg", pictures.content(place))


def _nlvr(packed: Path, out: Path) -> None:
    lines = []
    for row in read_rows(packed / "nlvr-graphs/pairs.jsonl"):
        write(out / f"dev/images/0/dev-{row['id']}-0.png", (packed / "nlvr-graphs" / row["file"]).read_bytes())
        boxes: list[list[Mapping[str, Any]]] = [[], [], []]
        for one in row["regions"]:
            left, top = one["bbox"][:2]
            color = "#0099ff" if one["colour"] == "blue" else one["colour"].title()
            thing = {"y_loc": top, "size": one["size"], "type": one["shape"], "color": color}
            boxes[one["box"]].append({**thing, "x_loc": left - 150 * one["box"]})
        votes = {f"r{place}": str(place < row["votes_true"]).lower() for place in range(row["votes"])}
        about = {"identifier": row["id"], "label": str(row["true"]).lower(), "evals": votes, "structured_rep": boxes}
        lines.append(json.dumps({"sentence": f"{row['sentence']}  ", **about}))
    write(out / "dev/dev.json", "\n".join(reversed(lines)))


def _wiki(packed: Path, out: Path) -> None:
    keys = {"I_tr": "image_train", "T_tr": "text_train", "I_te": "image_test", "T_te": "text_test"}
    arrays = {name: read_array(packed / "wiki-sift-lda/wiki.npz", key).astype(float) for name, key in keys.items()}
    out.mkdir(parents=True, exist_ok=True)
    scipy.io.savemat(out / "raw_features.mat", arrays)
    names, items = (read_rows(packed / f"wiki-sift-lda/{name}.csv") for name in ("classes", "items"))
    write(out / "lists/categories.list", "\n".join(row["name"] for row in names))
    for part in ("train", "test"):
        lines = (
            f"{row['text_id']}\t{row['image_id']}\t{int(row['label']) + 1}" for row in items if row["split"] == part
        )
        write(out / f"lists/{part}set_txt_img_cat.list", "\n".join(lines))
