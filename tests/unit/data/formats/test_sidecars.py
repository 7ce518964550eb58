"""Folders without a table: pictures, with the texts of the files beside them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from silohash.base.errors import MissingFile
from silohash.data.formats import sidecars
from silohash.data.formats.folder import read_folder
from silohash.data.formats.sidecars import names_beside, read_rows


def draw(path: Path, level: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((8, 8), level, np.uint8)).save(path)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Five pictures, three of them with a text, and files that are none of them."""
    for level, name in enumerate(("boats.png", "a/market.jpg", "a/b/bridge.png", "a/quiet.png", ".hidden/no.png")):
        draw(tmp_path / name, 40 * level)
    (tmp_path / "boats.txt").write_text("boats at\n low  tide\n", encoding="utf-8-sig")
    (tmp_path / "a/market.jpg.txt").write_text("une pêche", encoding="utf-8")
    (tmp_path / "a/b/bridge.txt").write_text("a bridge", encoding="utf-8")
    (tmp_path / "a/notes.txt").write_text("of nothing", encoding="utf-8")
    return tmp_path


def test_pictures_are_rows_with_the_texts_beside_them(photos: Path) -> None:
    archive = read_folder(photos)
    found = {
        name: (text, place)
        for name, text, place in zip(archive.ids, archive.text, archive.columns["folder"], strict=True)
    }
    assert found == {
        "a/b/bridge.png": ("a bridge", "a/b"),
        "a/market.jpg": ("une pêche", "a"),
        "a/quiet.png": ("", "a"),
        "boats.png": ("boats at low tide", ""),
    }
    assert archive.has_text.tolist() == [name != "a/quiet.png" for name in archive.ids]
    assert archive.has_image.all()


def test_pictures_of_one_folder_have_no_column_of_folders(tmp_path: Path) -> None:
    draw(tmp_path / "one.png", 10)
    (tmp_path / "one.txt").write_text("one", encoding="utf-8")
    assert "folder" not in read_folder(tmp_path).columns


def test_a_text_that_is_not_utf8_is_named(photos: Path) -> None:
    (photos / "boats.txt").write_bytes(b"caf\xe9")
    archive = read_folder(photos)
    assert "boats.png" not in archive.ids
    assert 'the text beside "boats.png" is not UTF-8; left out' in archive.card.skipped[0]


def test_a_text_that_cannot_be_read_is_named(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(path: Path) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(sidecars, "read_beside", refused)
    problems = {row.problem for row in read_rows(photos)[1]}
    assert 'the text beside "boats.png" cannot be read (Permission denied)' in problems


def test_a_table_counts_before_files_beside_pictures(photos: Path) -> None:
    (photos / "metadata.csv").write_text("file_name,text\nboats.png,from the table\n", encoding="utf-8")
    path, rows = read_rows(photos)
    assert path.name == "metadata.csv"
    assert [row.values["text"] for row in rows] == ["from the table"]


def test_pictures_without_any_text_need_a_table(tmp_path: Path) -> None:
    draw(tmp_path / "one.png", 10)
    (tmp_path / "other.txt").write_text("not beside it", encoding="utf-8")
    with pytest.raises(MissingFile, match=r"boats\.txt beside boats\.jpg"):
        read_folder(tmp_path)


def test_a_link_that_leads_out_of_the_folder_is_no_text(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    secret = tmp_path_factory.mktemp("elsewhere") / "secret.txt"
    secret.write_text("secret", encoding="utf-8")
    (photos / "a/quiet.txt").symlink_to(secret)
    assert "secret" not in read_folder(photos).text.tolist()
    assert "secret" in read_folder(photos, follow_links=True).text.tolist()


def test_names_of_text_files() -> None:
    assert names_beside("a/boats.tar.jpg") == ("a/boats.tar.txt", "a/boats.tar.jpg.txt")
