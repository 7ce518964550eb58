"""Picture files are checked once, and again when they change."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from silohash.base import stamps
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


def test_pictures_that_declare_no_range_are_named(tmp_path):
    rows = pictures(tmp_path, 9)
    for row in range(7):
        Image.fromarray(np.arange(row, row + 64, dtype=np.uint16).reshape(8, 8)).save(
            tmp_path / "pictures" / f"{row}.png"
        )
    write_csv(tmp_path, rows)
    expected = (
        "7 pictures declare no value range, so percentiles set black and white: pictures/0.png, pictures/1.png, "
        "pictures/2.png, pictures/3.png, pictures/4.png and 2 more."
    )
    for _ in range(2):  # the second time from the cache
        assert expected in read_folder(tmp_path).card.warnings
    verdicts = picture_check.check_pictures(tmp_path, ["pictures/6.png", "pictures/8.png"])
    assert picture_check.describe_assumptions(verdicts) == (
        "1 picture declares no value range, so percentiles set black and white: pictures/6.png."
    )
    assert picture_check.describe_assumptions({"a": verdicts["pictures/8.png"]}) == ""


def test_what_was_found_by_another_rule_is_not_used(tmp_path, monkeypatch):
    write_csv(tmp_path, pictures(tmp_path, 2))
    read_folder(tmp_path)
    read: list[bytes] = []
    monkeypatch.setattr(picture_check, "decode", lambda content, **_: read.append(content))
    read_folder(tmp_path)
    assert not read
    monkeypatch.setattr(stamps, "PICTURE_RULE", stamps.PICTURE_RULE + 1)
    read_folder(tmp_path)
    assert len(read) == 2


def test_a_damaged_page_is_found_behind_a_sound_reduced_one(tmp_path):
    picture, page = Image.effect_noise((320, 240), 30), Image.effect_noise((160, 120), 30)
    page.encoderinfo = {"tiffinfo": {254: 1}}
    picture.save(tmp_path / "a.tif", save_all=True, append_images=[page], compression="tiff_deflate")
    content = bytearray((tmp_path / "a.tif").read_bytes())
    with Image.open(tmp_path / "a.tif") as opened:
        start = opened.tag_v2[273][0]
    content[start : start + 20] = bytes(20)
    (tmp_path / "a.tif").write_bytes(content)
    assert "cannot be decoded" in picture_check.check_pictures(tmp_path, ["a.tif"])["a.tif"].problem
