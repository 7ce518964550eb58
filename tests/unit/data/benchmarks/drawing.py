"""Small pictures in files, for folders in the layouts of data sets."""

from __future__ import annotations

from pathlib import Path

from PIL import Image


def draw(folder: Path, *names: str) -> None:
    """Writes a picture file of its own color for each name."""
    for shade, name in enumerate(names):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (6, 4), (10 + 20 * shade % 240, 0, 0)).save(path)


def write(folder: Path, name: str, *lines: str, encoding: str = "utf-8") -> None:
    """Writes a text file of lines."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding=encoding)
