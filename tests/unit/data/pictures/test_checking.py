"""Picture files are checked once, and again when they change."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from PIL import Image

from silohash.data.formats.folder import read_folder
from silohash.data.pictures import checking as picture_check
from tests.unit.data.formats.user_folders import pictures, write_csv

pytestmark = pytest.mark.usefixtures("private_cache")


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


def test_links_are_followed_unless_they_may_not_lead_out(tmp_path):
    outside = tmp_path / "outside.png"
    Image.new("RGB", (4, 4)).save(outside)
    folder = tmp_path / "archive"
    folder.mkdir()
    (folder / "link.png").symlink_to(outside)
    assert picture_check.check_pictures(folder, ["link.png"])["link.png"].problem == ""
    refused = picture_check.check_pictures(folder, ["link.png"], follow_links=False)["link.png"]
    assert "link" in refused.problem
