"""Picture files are checked once, and again when they change."""

from __future__ import annotations

import errno
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


def test_a_file_that_was_not_usable_is_read_again_although_it_did_not_change(tmp_path, monkeypatch):
    write_csv(tmp_path, pictures(tmp_path, 3))
    names = [f"pictures/{row}.png" for row in range(3)]
    read = Path.read_bytes
    failing = {"0.png": OSError(errno.EIO, "Input/output error")}

    def content(path):
        if path.name in failing:
            raise failing[path.name]
        return read(path)

    def decode(content, **options):
        decoded.append(content)
        return sound(content, **options)

    decoded, sound = [], picture_check.decode
    monkeypatch.setattr(picture_check, "decode", decode)
    monkeypatch.setattr(Path, "read_bytes", content)
    first = picture_check.check_pictures(tmp_path, names)
    assert "cannot be read (Input/output error)" in first[names[0]].problem
    assert len(read_folder(tmp_path)) == 2
    failing.clear()
    decoded.clear()
    second = picture_check.check_pictures(tmp_path, names)
    assert [second[name].problem for name in names] == ["", "", ""]
    assert len(decoded) == 1, "the others are not read again"
    assert len(read_folder(tmp_path)) == 3


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
