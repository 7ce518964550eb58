"""A small run with pictures and texts, for tests of the service."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
from PIL import Image

from silohash.api.runs import train
from tests.pictures import COLORS, small_config

SHAPES = ("square", "stripes", "frame")
SIDE = 24


def drawn(color: str, shape: str) -> Image.Image:
    """Return a picture of a shape in a color on white."""
    pixels = np.full((SIDE, SIDE, 3), 255, np.uint8)
    ink = COLORS[color]
    if shape == "square":
        pixels[6:18, 6:18] = ink
    elif shape == "stripes":
        pixels[::4] = ink
    else:
        pixels[3:21, 3:21] = ink
        pixels[7:17, 7:17] = 255
    return Image.fromarray(pixels)


def write_pictures(folder: Path, *, each: int = 4) -> Path:
    """Write a folder with ``each`` pictures of every color and shape, their texts and labels."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for color in COLORS:
        for shape in SHAPES:
            for number in range(each):
                name = f"{color}-{shape}-{number}"
                drawn(color, shape).save(folder / f"{name}.png")
                rows.append(
                    {"file_name": f"{name}.png", "id": name, "text": f"{color} {shape}", "labels": f"{color}|{shape}"}
                )
    with (folder / "metadata.csv").open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return folder


def served_run(folder: Path) -> Path:
    """Train and index a run of two silos on the pictures of `write_pictures`, and return its folder."""
    pictures = write_pictures(folder / "shapes")
    config = folder / "run.toml"
    config.write_text(small_config(pictures.as_posix(), rounds=2, local_epochs=8), encoding="utf-8")
    train(config, folder / "run", report=False)
    return folder / "run"
