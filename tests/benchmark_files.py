"""Small files in the layouts of data sets in circulation, for tests."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from tests.runs import labels_of, views_of

WIKIPEDIA_CLASSES = 10


def write_wikipedia(folder: Path, *, train: int = 60, test: int = 20) -> Path:
    """Writes Wikipedia's features in DSCMR's six files; features and class numbers follow each other."""
    from scipy.io import savemat

    folder.mkdir(parents=True, exist_ok=True)
    labels = labels_of(train + test, WIKIPEDIA_CLASSES, single=True)
    labels[:WIKIPEDIA_CLASSES] = np.eye(WIKIPEDIA_CLASSES, dtype=np.uint8)
    columns = {"img": views_of(labels, 12, seed=3), "txt": views_of(labels, 8, seed=4)}
    columns["img_lab"] = labels.argmax(axis=1)[:, None]
    for what, values in columns.items():
        for part, rows in (("train", values[:train]), ("test", values[train:])):
            savemat(folder / f"{part}_{what}.mat", {f"{part}_{what}": rows})
    return folder


def write_lists(folder: Path, *, count: int = 30, queries: int = 5, train: int = 8, overlap: bool = False) -> Path:
    """Writes COCO's lists of image hashing, 80 classes, with a small picture an item.

    Args:
        overlap: whether the database holds the queries and not the items to train on, as HashNet's does.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for number in range(count):
        Image.new("RGB", (8, 8), (number, 2 * number, 3 * number)).save(folder / f"{number}.jpg")
        hot = ["1" if column == number % 80 else "0" for column in range(80)]
        lines.append(f"{number}.jpg {' '.join(hot)}\n")
    asked, trained, rest = lines[:queries], lines[queries : queries + train], lines[queries + train :]
    (folder / "test.txt").write_text("".join(asked))
    (folder / "train.txt").write_text("".join(trained))
    (folder / "database.txt").write_text("".join(asked + rest if overlap else trained + rest))
    return folder
