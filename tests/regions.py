"""A tiny data set with regions of pictures and five captions each, in the files of ``flickr8k-1k``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

THINGS = ("dog", "cat", "boat", "tree", "ball", "bike", "hat", "car", "bird", "cup", "lamp", "fish")
WIDTH = 6


def write_region_set(root: Path, *, pictures: int = 100, seed: int = 0) -> Path:
    """Write the data set into a folder, for ``SILOHASH_DATA``. A picture shows three things, and its captions name them."""
    folder = root / "flickr8k-1k"
    (folder / "features").mkdir(parents=True)
    (folder / "images").mkdir()
    generator = np.random.default_rng(seed)
    looks = generator.normal(size=(len(THINGS), WIDTH))
    shown = np.array([generator.permutation(len(THINGS))[:3] for _ in range(pictures)])
    regions = looks[shown.repeat(12, axis=1)] + 0.2 * generator.normal(size=(pictures, 36, WIDTH))
    boxes = np.tile(np.array([0, 0, 2, 2], np.float32), (pictures, 36, 1))
    np.save(folder / "features/regions_grid36.npy", regions.astype(np.float16))
    np.save(folder / "features/regions_grid36_boxes.npy", boxes)
    np.save(folder / "features/image_sizes.npy", np.full((pictures, 2), 4, np.int32))
    images, captions = ["file,split,width,height"], ["file,caption_no,caption"]
    for number, things in enumerate(shown):
        split = ("test", "train", "train", "train")[number % 4]
        Image.new("RGB", (4, 4), (number, 0, 0)).save(folder / f"images/{number}.jpg")
        images.append(f"{number}.jpg,{split},4,4")
        for caption in range(5):
            words = " and a ".join(THINGS[thing] for thing in generator.permutation(things))
            captions.append(f"{number}.jpg,{caption},A {words}.")
    (folder / "images.csv").write_text("\n".join(images) + "\n")
    (folder / "captions.csv").write_text("\n".join(captions) + "\n")
    return root


def write_split(root: Path, name: str, pictures: int, *, repeated: bool = False, captions: int = 5) -> np.ndarray:
    """Write the region arrays and the captions of a part, as papers distribute them, and return the features."""
    features = np.random.default_rng(pictures).normal(size=(pictures, 4, 6)).astype(np.float32)
    np.save(root / f"{name}_ims.npy", np.repeat(features, 5, axis=0) if repeated else features)
    lines = [f"{name} {row} caption {k}" for row in range(pictures) for k in range(captions)]
    (root / f"{name}_caps.txt").write_text("\n".join(lines) + "\n")
    return features


def matching_config(**sections: dict[str, Any]) -> dict[str, Any]:
    """Return the config of a small run on the data set. Sections are changed by their keys."""
    config: dict[str, dict[str, Any]] = {
        "data": {"name": "flickr8k-1k", "options": {"image": "regions"}},
        "features": {"text": {"kind": "words", "length": 12}},
        "model": {"hidden": 16, "dropout": 0.0},
        "partition": {"kind": "iid", "silos": 2},
        "local": {"name": "vsepp", "word_width": 8},
        "federated": {"name": "fedavg", "rounds": 3, "local_epochs": 4},
        "train": {"batch": 16, "learning_rate": 0.01, "device": "cpu", "threads": 1},
        "evaluate": {"measures": ["R@1[by=pairs]", "RSum[by=pairs]", "MedR[by=pairs]"], "validation": 0.2},
    }
    return {name: {**config.get(name, {}), **sections.get(name, {})} for name in {**config, **sections}}
