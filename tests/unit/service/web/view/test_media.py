"""Pictures in the sizes of the page: encoded again, remembered, read again when the file changes."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest
from PIL import Image

from silohash.base.errors import UnreadablePicture
from silohash.service.web.view.media import SIZES, Media, encoded, etag


def size_of(content: bytes) -> tuple[int, int]:
    return Image.open(io.BytesIO(content)).size


def test_pictures_are_scaled_down_and_never_up() -> None:
    assert size_of(encoded(Image.new("RGB", (2000, 1000)), 480)[0]) == (480, 240)
    content, media_type = encoded(Image.new("L", (32, 32)), 480)
    assert (size_of(content), media_type) == ((32, 32), "image/png")
    assert encoded(Image.new("RGB", (129, 20)), 480)[1] == "image/jpeg"


def test_what_follows_a_picture_in_its_file_is_not_sent(tmp_path: Path) -> None:
    path = tmp_path / "a.jpg"
    Image.new("RGB", (300, 200)).save(path, comment=b"secret place")
    path.write_bytes(path.read_bytes() + b"<script>")
    content, _ = Media().picture(path, SIZES[0])
    assert b"secret" not in content
    assert b"<script>" not in content


def test_pictures_are_remembered_until_their_file_changes(tmp_path: Path) -> None:
    path, media = tmp_path / "a.png", Media()
    Image.new("RGB", (300, 200), "red").save(path)
    first = media.picture(path, 480)
    assert media.picture(path, 480) is first
    assert media.picture(path, 1600) is not first
    Image.new("RGB", (300, 200), "blue").save(path)
    os.utime(path, (1, 1))
    assert media.picture(path, 480) != first
    assert etag(first[0]) != etag(media.picture(path, 480)[0])


def test_memory_is_limited(tmp_path: Path) -> None:
    media = Media(most_bytes=1)
    Image.new("RGB", (300, 200), "red").save(tmp_path / "a.png")
    first = media.picture(tmp_path / "a.png", 480)
    assert media.picture(tmp_path / "a.png", 480) is not first


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UnreadablePicture):
        Media().picture(tmp_path / "a.png", 480)
    (tmp_path / "a.png").write_bytes(b"no picture")
    with pytest.raises(UnreadablePicture, match="not a picture"):
        Media().picture(tmp_path / "a.png", 480)
