"""What each packed data set takes from its official source, given the facts: ids, order, splits, sizes and digests."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from silohash.base.forms import of_json, reading
from silohash.data.benchmarks.layouts.reading import read_lines
from silohash.data.build.packed import sources
from silohash.data.build.packed.sources import Row, Source
from silohash.data.formats.matlab import open_mat

Facts: TypeAlias = dict[str, list[Row]]

SCENE_STEP, BLUE = 150, "#0099ff"
"""Distance between the left edges of the boxes of a scene, in pixels, and what its source calls blue."""


class Content(NamedTuple):
    """Tables by file, pictures with rows of stored size and file, texts with whether they decide the vocabulary, and arrays."""

    tables: Facts
    photos: Sequence[tuple[Path, Row]] = ()
    texts: Sequence[tuple[str, bool]] = ()
    arrays: Mapping[str, Mapping[str, np.ndarray]] = {}


def _coco_photos(source: Source) -> tuple[dict[int, Path], list[tuple[int, str]]]:
    """Return the path of each photo of COCO, and the photo and the text of each caption."""
    parts, photos = source.coco("captions"), dict[int, Path]()
    for part, content in parts.items():
        for image in content["images"]:
            photos.setdefault(image["id"], source.folder / part / image["file_name"])
    captions = (one for content in parts.values() for one in content["annotations"])
    return photos, [(one["image_id"], " ".join(one["caption"].split())) for one in captions]


def coco18(source: Source, facts: Facts) -> Content:
    """Find each row's photo by its caption, and among photos with equal captions by its look."""
    rows, (photos, captions) = facts["pairs.csv"], _coco_photos(source)
    found: dict[str, dict[Path, str]] = {row["caption"]: {} for row in rows}
    for number, text in captions:
        if (digest := sources.digest_of(text)) in found and photos[number].is_file():
            found[digest].setdefault(photos[number], text)
    chosen = []
    for row in rows:
        look, candidates = row.pop("look"), found[row["caption"]]
        if candidates:
            path = min(sorted(candidates), key=partial(sources.distance, look=look))
            row["caption"] = candidates[path]
            chosen.append((path, row))
        else:
            source.lacking.append(f"{row['source_id']} (no photo with its caption)")
    texts = [(row["caption"], row["split"] != "query") for row in rows]
    return Content(tables=facts, photos=chosen, texts=texts)


def fashion(source: Source, facts: Facts) -> Content:
    """Take the products by their numbers; titles are compared."""
    rows, folder = facts["pairs.csv"], source.find("images")
    products = {product["id"]: product for product in sources.read_table(source.find("styles.csv"))}
    titles = ((key, product["productDisplayName"].strip()) for key, product in products.items())
    source.fill(rows, "source_id", "title", titles)
    for row in rows:
        # The source writes masterCategory for master_category.
        for name, value in products.get(row["source_id"], {}).items():
            column = re.sub("([A-Z])", r"_\1", name).lower()
            row |= {column: value} if column in row else {}
    photos = source.files(folder / f"{row['source_id']}.jpg" for row in rows)
    texts = [(row["title"], row["split"] != "query") for row in rows]
    return Content(tables=facts, photos=[(path, {"width": 112, "height": 112}) for path in photos], texts=texts)


def flickr8k(source: Source, facts: Facts) -> Content:
    """Take the captions by the files of their photos."""
    images, captions = facts["images.csv"], facts["captions.csv"]
    folder = source.find("Images", "Flicker8k_Dataset")
    path = source.find("captions.txt", "Flickr8k.token.txt")
    if path.name == "captions.txt":
        texts = [(row["image"], " ".join(row["caption"].split())) for row in sources.read_table(path)]
    else:
        cells = (line.partition("\t") for line in read_lines(path))
        texts = [(name.partition("#")[0], " ".join(text.split())) for name, _, text in cells]
    source.fill(captions, "file", "caption", texts)
    train = {row["file"] for row in images if row["split"] == "train"}
    photos = source.files(folder / row["file"] for row in images)
    counted = [(row["caption"], row["file"] in train) for row in captions]
    return Content(tables=facts, photos=list(zip(photos, images, strict=True)), texts=counted)


def clothing10(source: Source, facts: Facts) -> Content:
    """Take the pictures of two of the three parts. All of the table are facts."""
    rows, parts = facts["images.csv"], {"database": source.find("train"), "query": source.find("validation")}
    photos = source.files(parts[row["split"]] / row["class"] / f"{row['source_id']}.jpg" for row in rows)
    return Content(tables=facts, photos=list(zip(photos, rows, strict=True)))


def wiki_sift_lda(source: Source, facts: Facts) -> Content:
    """Take the features and the lists. The facts are digests only."""
    features, names = open_mat(source.find("raw_features.mat")), read_lines(source.find("categories.list"))
    items: list[Row] = []
    classes: list[Row] = [{"label": label, "name": name} for label, name in enumerate(names)]
    arrays: dict[str, np.ndarray] = {}
    for part in ("train", "test"):
        pairs = [line.split() for line in read_lines(source.find(f"{part}set_txt_img_cat.list"))]
        for modality in ("image", "text"):
            found = features.variable(f"{modality[0].upper()}_{part[:2]}").array(len(pairs))
            arrays[f"{modality}_{part}"] = found.astype(np.float32)
        arrays[f"label_{part}"] = labels = np.array([int(category) - 1 for _, _, category in pairs], np.int64)
        for row, (text, image, category) in enumerate(pairs):
            items.append({"split": part, "row": row, "text_id": text, "image_id": image, "label": int(category) - 1})
        for one, count in zip(classes, np.bincount(labels, minlength=len(names)), strict=True):
            one[part] = count
    return Content(tables={**facts, "items.csv": items, "classes.csv": classes}, arrays={"wiki.npz": arrays})


def coco_mini(source: Source, facts: Facts) -> Content:
    """Take the photos by their numbers, with the boxes of those that have regions."""
    images, captions, (photos, texts) = facts["images.csv"], facts["captions.csv"], _coco_photos(source)
    files = {int(Path(row["file"]).stem): row["file"] for row in images}
    source.fill(captions, "file", "caption", ((files[number], text) for number, text in texts if number in files))
    kinds = {int(row["category_id"]): (row["name"], row["supercategory"]) for row in facts["categories.csv"]}
    objects: dict[str, list[Row]] = {row["file"]: [] for row in images if row["has_regions"] == "1"}
    for one in (one for content in source.coco("instances").values() for one in content["annotations"]):
        if (file := files.get(one["image_id"])) in objects:
            kind = dict(zip(("category", "supercategory"), kinds[one["category_id"]], strict=True))
            box = {"bbox": [round(value, 2) for value in one["bbox"]], "area": round(one["area"], 1)}
            objects[file].append({"category_id": one["category_id"], **kind, **box, "iscrowd": one["iscrowd"]})
    size = {row["file"]: {side: int(row[f"original_{side}"]) for side in ("width", "height")} for row in images}
    regions = [{"file": file, **size[file], "regions": found} for file, found in objects.items()]
    known = source.files(photos.get(number, source.folder / "train2017" / file) for number, file in files.items())
    tables = {**facts, "regions.jsonl": regions}
    counted = [(row["caption"], False) for row in captions]
    return Content(tables=tables, photos=list(zip(known, images, strict=True)), texts=counted)


def nlvr_graphs(source: Source, facts: Facts) -> Content:
    """Take the scenes from their structured representation, with the boxes in the first of six orders."""
    rows, path, folder = facts.pop("pairs.csv"), source.find("dev/dev.json"), source.find("dev/images")
    with reading(path, remedy=sources.DOWNLOAD_AGAIN):
        lines = [of_json(line, dict[str, Any]) for line in path.read_bytes().splitlines() if line.strip()]
    known = {one["identifier"]: one for one in lines}
    source.fill(rows, "id", "sentence", ((key, " ".join(one["sentence"].split())) for key, one in known.items()))
    there = {picture.name: picture for picture in folder.glob("*/*.png")}
    photos = source.files(there.get(name, folder / name) for row in rows if (name := f"dev-{row['id']}-0.png"))
    scenes = [_scene(known[row["id"]], row["sentence"]) for row in rows if row["id"] in known]
    sizes = [{"width": 400, "height": 100, "file": f"dev-{row['id']}.png"} for row in rows]
    texts, pictures = [(row["sentence"], True) for row in rows], list(zip(photos, sizes, strict=True))
    return Content(tables={"pairs.jsonl": scenes}, photos=pictures, texts=texts)


def _scene(one: Row, sentence: str) -> Row:
    key, votes, objects = one["identifier"], list(one["evals"].values()), []
    for box, thing in ((box, thing) for box, things in enumerate(one["structured_rep"]) for thing in things):
        size, color = thing["size"], thing["color"].lower().replace(BLUE, "blue")
        place = [SCENE_STEP * box + thing["x_loc"], thing["y_loc"], size, size]
        objects.append({"box": box, "shape": thing["type"], "colour": color, "size": size, "bbox": place})
    about = {"id": key, "group": key.split("-")[0], "file": f"images/dev-{key}.png", "sentence": sentence}
    truth = {"true": one["label"] == "true", "votes_true": votes.count("true"), "votes": len(votes)}
    return {**about, **truth, "regions": objects}
