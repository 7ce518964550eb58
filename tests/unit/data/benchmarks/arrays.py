"""Small arrays of pictures, features, tags and labels that belong together, and files of them."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy.io

from silohash.data.benchmarks.dataset import benchmarks
from silohash.data.protocols.contents import Contents
from tests.unit.data.formats.matlab_files import cell, photographs, write_v73


class Items(NamedTuple):
    """Pictures, their features, tags and labels that belong together, and names."""

    pictures: np.ndarray
    features: np.ndarray
    tags: np.ndarray
    labels: np.ndarray
    names: list[str]


def items(count: int = 30, classes: int = 4, size: int = 16) -> Items:
    """Returns items whose kind shows in the picture's color, in the features and in the tags."""
    draws = np.random.default_rng(count)
    kinds = draws.integers(0, classes, count)
    labels = np.eye(classes, dtype=np.uint8)[kinds]
    labels[np.arange(count), draws.integers(0, classes, count)] = 1
    pictures = photographs(count, size, size)
    pictures[..., 0] = (pictures[..., 0] // 4 + 40 * kinds[:, None, None]).astype(np.uint8)
    features = labels @ draws.normal(size=(classes, 10)) + draws.normal(size=(count, 10)) / 4
    tags = (labels @ draws.random((classes, 14)) + draws.random((count, 14)) > 1).astype(np.float64)
    numbers = draws.permutation(count)
    return Items(pictures, features, tags, labels, [f"im{number}.jpg" for number in numbers])


def save(path: Path, **variables: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    scipy.io.savemat(path, variables, appendmat=False)


def read(root: Path, of: str, name: str, **options: object) -> Contents:
    """Reads one layout of a data set, whose files must be complete."""
    layout = next(one for one in benchmarks()[of].layouts if one.name == name)
    assert not layout.missing(root)
    return layout.read(root, **options)


def pixels(raw: Contents) -> np.ndarray:
    return np.stack([np.asarray(raw.image.picture(row)) for row in range(len(raw))])


def check(raw: Contents, some: Items, *, features: bool = False) -> None:
    if features:
        assert np.array_equal(raw.image, some.features.astype(np.float32))
    else:
        assert np.array_equal(pixels(raw), some.pictures)
    assert np.array_equal(raw.text, some.tags.astype(np.float32))
    assert np.array_equal(raw.labels, some.labels)
    assert raw.label_names == tuple(f"class {number}" for number in range(some.labels.shape[1]))
    assert raw.text.dtype == np.float32
    assert raw.labels.dtype == np.uint8


def dcmh(root: Path, some: Items, stem: str = "mirflickr25k", names: bool = True) -> None:
    root.mkdir(exist_ok=True)
    write_v73(root / f"{stem}-iall.mat", {"IAll": some.pictures.transpose(1, 2, 3, 0)})
    save(root / f"{stem}-yall.mat", YAll=some.tags)
    save(root / f"{stem}-lall.mat", LAll=some.labels)
    if names:
        save(root / f"{stem}-fall.mat", FAll=cell(some.names))


def ucch(root: Path, some: Items, end: str = "", stem: str = "mirflickr25k", part: str = "iall-vgg") -> None:
    save(root / f"{stem}-{part}{end}.mat", XAll=some.features)
    save(root / f"{stem}-yall{end}.mat", YAll=some.tags)
    save(root / f"{stem}-lall{end}.mat", LAll=some.labels)


def dscmr(root: Path, some: Items, train: int, first: int = 0) -> np.ndarray:
    numbers = some.labels.argmax(axis=1)
    for part, rows in (("train", slice(train)), ("test", slice(train, None))):
        save(root / f"{part}_img.mat", **{f"{part}_img": some.features[rows]})
        save(root / f"{part}_txt.mat", **{f"{part}_txt": some.tags[rows]})
        save(root / f"{part}_img_lab.mat", **{f"{part}_img_lab": numbers[rows, None] + first})
    return np.eye(numbers.max() + 1, dtype=np.uint8)[numbers]
