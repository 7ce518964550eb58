"""Small sets in the form of the published packed data sets, as a machine without these needs them."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from sklearn.feature_extraction.text import CountVectorizer

from silohash.base.analysis import COMMON_WORDS
from tests.packed_sources import write, write_csv

SPLITS = ("query", "train", "train", "train", "database", "train", "train", "database")
CAPTIONS = (
    "A train at a station.",
    'A blue train, with a sign reading "Go".',
    "A train and a dog.",
    "A train and a dog.",
    "The dog's train.",
    "A train in the snow.",
    "A dog on a train",
    "One train",
)
"""Captions of coco18. Two photos have equal ones."""
MINI = {"000000000007.jpg": "train2017", "000000000009.jpg": "val2017", "000000000012.jpg": "val2017"}
CATEGORIES = ((1, "person", "person"), (18, "dog", "animal"))


def write_published(root: Path) -> None:
    """Writes small forms of the seven sets, with features of words and one array that no builder makes."""
    _coco18(root / "coco18")
    _coco_mini(root / "coco-mini")
    _fashion(root / "fashion")
    _flickr8k(root / "flickr8k-1k")
    _clothing10(root / "clothing10")
    _nlvr(root / "nlvr-graphs")
    _wiki(root / "wiki-sift-lda")


def drawn(number: int, size: tuple[int, int], form: str = "JPEG") -> bytes:
    """Returns a picture of a few large fields of gray, another one for each number."""
    fields = np.random.default_rng(number).integers(0, 256, (8, 5), np.uint8)
    stream = io.BytesIO()
    Image.fromarray(fields).resize(size, Image.Resampling.NEAREST).convert("RGB").save(stream, form, quality=95)
    return stream.getvalue()


def write_table(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Writes a table with the columns of its first row, with the ends of lines of the published sets."""
    write_csv(path, rows[0], (row.values() for row in rows))
    path.write_bytes(path.read_bytes().replace(b"\r\n", b"\n"))


def _write_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    write(path, "".join(f"{json.dumps(row)}\n" for row in rows))


def _pack(folder: Path, pictures: Sequence[bytes]) -> None:
    offsets = np.cumsum([0, *map(len, pictures)], dtype=np.int64)
    data = np.frombuffer(b"".join(pictures), np.uint8)
    np.savez(folder / "images-000.npz", data=data, offsets=offsets, row=np.arange(len(pictures), dtype=np.int32))


def _count_words(folder: Path, texts: Sequence[str], fitted: Sequence[str], least: int, *, every: bool = False) -> None:
    """Writes word counts as another package makes them, and a file in place of features of a network."""
    counter = CountVectorizer(
        token_pattern=r"[a-z]+|[0-9]+" if every else r"[a-z]{2,}",
        stop_words=None if every else list(COMMON_WORDS),
        preprocessor=lambda text: text.lower().replace("'s", ""),
        min_df=least,
    ).fit(fitted)
    write(folder / "features/vocab.txt", "".join(f"{word}\n" for word in counter.get_feature_names_out()))
    np.savez(folder / "features/text_bow.npz", bow=counter.transform(texts).toarray().astype(np.uint8))
    np.save(folder / "features/image_mobilenetv2.npy", np.zeros((len(texts), 2), np.uint8))


def _coco18(folder: Path) -> None:
    rows = [
        {
            "row": place,
            "source_id": 40 + place,
            "split": split,
            "width": 40 + place,
            "height": 48,
            "labels": "train|dog" if "dog" in caption else "train",
            "caption": caption,
        }
        for place, (split, caption) in enumerate(zip(SPLITS, CAPTIONS, strict=True))
    ]
    write_table(folder / "pairs.csv", rows)
    write_table(
        folder / "classes.csv",
        [
            {"column": 0, "coco_category_id": 7, "name": "train", "count": 8},
            {"column": 1, "coco_category_id": 18, "name": "dog", "count": 4},
        ],
    )
    _pack(folder, [drawn(row["row"], (row["width"], row["height"])) for row in rows])
    _count_words(folder, CAPTIONS, CAPTIONS[1:], 5)


def _coco_mini(folder: Path) -> None:
    images = [
        {
            "file": file,
            "source_split": part,
            "width": 40,
            "height": 32 + place,
            "original_width": 400,
            "original_height": 320 + 10 * place,
            "licence": "Attribution License",
            "flickr_url": f"http://example.org/{place}",
            "has_regions": int(place < 2),
        }
        for place, (file, part) in enumerate(MINI.items())
    ]
    write_table(folder / "images.csv", images)
    for place, row in enumerate(images):
        write(folder / "images" / row["file"], drawn(100 + place, (row["width"], row["height"])))
    # Two captions of a photo differ in a comma only.
    texts = ["A girl with a helmet, near a train.", "A girl with a helmet near a train.", "Train, train and a dog"] * 3
    captions = [
        {"file": file, "caption_no": number, "caption": texts[3 * place + number]}
        for place, file in enumerate(MINI)
        for number in range(3)
    ]
    write_table(folder / "captions.csv", captions)
    kinds = [dict(zip(("category_id", "name", "supercategory"), kind, strict=True)) for kind in CATEGORIES]
    write_table(folder / "categories.csv", kinds)
    regions = [
        {
            "category_id": number,
            "category": name,
            "supercategory": group,
            "bbox": [1.5, 2.25, 30.0, 40.0],
            "area": 1000.5,
            "iscrowd": 0,
        }
        for number, name, group in CATEGORIES
    ]
    _write_lines(
        folder / "regions.jsonl",
        [
            {
                "file": row["file"],
                "width": row["original_width"],
                "height": row["original_height"],
                "regions": regions[: place + 1],
            }
            for place, row in enumerate(images[:2])
        ],
    )
    _count_words(folder, texts, CAPTIONS[1:], 5)


def _fashion(folder: Path) -> None:
    titles = ("Puma Black Shoes", "Guess, Watch for Women", "Puma Black Shirt", "Puma Men's Black Shoes")
    rows = [
        {
            "row": place,
            "source_id": 900 - place,
            "split": split,
            "master_category": "Apparel" if "Shirt" in title else "Footwear",
            "sub_category": title.split()[-1],
            "article_type": f"{title.split()[-1]}s",
            "gender": "Men",
            "base_colour": "Black",
            "season": "Fall",
            "usage": "Casual",
            "year": 2011,
            "title": title,
        }
        for place, (split, title) in enumerate(zip(SPLITS[:4], titles, strict=True))
    ]
    write_table(folder / "pairs.csv", rows)
    _pack(folder, [drawn(200 + place, (112, 112)) for place in range(len(rows))])
    _count_words(folder, titles, titles[1:], 2)


def _flickr8k(folder: Path) -> None:
    files = {f"10{place}_ab.jpg": split for place, split in enumerate(("train", "test", "train", "val"))}
    images = [{"file": file, "split": split, "width": 40, "height": 30} for file, split in files.items()]
    texts = [
        text.format("dog" if place % 2 else "girl")
        for place in range(len(files))
        for text in ('A "{}", running .', "a {} .", "The {}'s ball", "Two , three", "2 balls")
    ]
    captions = [
        {"file": file, "caption_no": number, "caption": texts[5 * place + number]}
        for place, file in enumerate(files)
        for number in range(5)
    ]
    write_table(folder / "images.csv", images)
    write_table(folder / "captions.csv", captions)
    for place, file in enumerate(files):
        write(folder / "images" / file, drawn(300 + place, (40, 30)))
    fitted = [row["caption"] for row in captions if files[row["file"]] == "train"]
    _count_words(folder, texts, fitted, 2)


def _clothing10(folder: Path) -> None:
    rows = [
        {
            "row": place,
            "source_id": f"{place:08x}-5fcd",
            "split": split,
            "width": 42,
            "height": 56,
            "label": place % 2,
            "class": ("dress", "hat")[place % 2],
        }
        for place, split in enumerate(("database", "database", "query", "database"))
    ]
    write_table(folder / "images.csv", rows)
    classes = [{"label": label, "name": name, "count": 2} for label, name in enumerate(("dress", "hat"))]
    write_table(folder / "classes.csv", classes)
    _pack(folder, [drawn(400 + place, (42, 56)) for place in range(len(rows))])


def _nlvr(folder: Path) -> None:
    rows = []
    for place in range(3):
        key = f"15{place // 2}-{place}"
        color = ("blue", "yellow", "black")[place]
        thing = {"box": place, "shape": "circle", "colour": color, "size": 20, "bbox": [150 * place + 5, 7, 20, 20]}
        sentence = ("There is a 1 box", "There is a 1 box", "a box touches the wall")[place]
        about = {"id": key, "group": key.split("-")[0], "file": f"images/dev-{key}.png", "sentence": sentence}
        rows.append({**about, "true": place < 2, "votes_true": 5 - place, "votes": 5, "regions": [thing]})
        write(folder / about["file"], drawn(500 + place, (400, 100), "PNG"))
    _write_lines(folder / "pairs.jsonl", rows)
    sentences = [row["sentence"] for row in rows]
    _count_words(folder, sentences, sentences, 2, every=True)


def _wiki(folder: Path) -> None:
    folder.mkdir(parents=True)
    labels = {"train": [0, 1, 1, 0], "test": [1, 0]}
    draw = np.random.default_rng(6)
    np.savez_compressed(
        folder / "wiki.npz",
        **{f"image_{part}": draw.random((len(of_part), 7)).astype(np.float32) for part, of_part in labels.items()},
        **{f"text_{part}": draw.random((len(of_part), 5)).astype(np.float32) for part, of_part in labels.items()},
        **{f"label_{part}": np.array(of_part, np.int64) for part, of_part in labels.items()},
    )
    items = [
        {"split": part, "row": row, "text_id": f"{part}{row}-1", "image_id": f"9{row}", "label": label}
        for part, of_part in labels.items()
        for row, label in enumerate(of_part)
    ]
    write_table(folder / "items.csv", items)
    write_table(
        folder / "classes.csv",
        [{"label": 0, "name": "art", "train": 2, "test": 1}, {"label": 1, "name": "biology", "train": 2, "test": 1}],
    )
