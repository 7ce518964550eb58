"""Picture files are checked once, and again when they change."""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from PIL import Image

from silohash.data.formats.folder import read_folder
from silohash.data.pictures import checking as picture_check


@pytest.fixture(autouse=True)
def _private_cache(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    monkeypatch.setenv("SILOHASH_CACHE", str(tmp_path_factory.mktemp("cache")))


def draw(folder: Path, *names: str) -> None:
    for shade, name in enumerate(names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (6, 4), (shade, 0, 0)).save(folder / name)


def write_csv(folder: Path, rows: Sequence[Mapping[str, str]], encoding: str = "utf-8") -> None:
    with (folder / "metadata.csv").open("w", encoding=encoding, newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def pictures(folder: Path, count: int, **more: str) -> list[dict[str, str]]:
    names = [f"pictures/{number}.png" for number in range(count)]
    draw(folder, *names)
    return [{"file_name": name, "text": f"picture {number}"} | more for number, name in enumerate(names)]


def test_pictures_are_read_through_once_and_again_when_they_change(tmp_path, monkeypatch):
    write_csv(tmp_path, pictures(tmp_path, 4))
    first = read_folder(tmp_path)
    read: list[bytes] = []
    monkeypatch.setattr(picture_check, "decode", lambda content, **_: read.append(content))
    assert read_folder(tmp_path).card.digest == first.card.digest
    assert read == []
    Image.new("RGB", (9, 9)).save(tmp_path / "pictures" / "2.png")
    os.utime(tmp_path / "pictures" / "2.png", ns=(1, 1))
    assert read_folder(tmp_path).card.digest != first.card.digest
    assert len(read) == 1


def test_a_damaged_record_of_what_was_read_is_made_again(tmp_path):
    write_csv(tmp_path, pictures(tmp_path, 2))
    read_folder(tmp_path)
    (record,) = (Path(os.environ["SILOHASH_CACHE"]) / "pictures").iterdir()
    for damage in ("", "[1]", '{"pictures/0.png": 3}'):
        record.write_text(damage)
        assert len(read_folder(tmp_path)) == 2
