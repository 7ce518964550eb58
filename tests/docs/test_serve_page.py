"""The pictures of the search page: each is shown in a document with words for those who do not see it, and is small."""

from __future__ import annotations

import re

import pytest
from PIL import Image

from tests.docs.serve_page import MOST_BYTES, PICTURES, STATES
from tests.docs.test_links import PAGES

SHOWN = re.compile(r"!\[([^\]]*)\]\(([^)\s]+\.png)\)")


@pytest.fixture(scope="module")
def shown() -> dict[str, list[str]]:
    """The alternative texts of each picture that a document shows, by the name of its file."""
    found: dict[str, list[str]] = {}
    for page in PAGES:
        for text, target in SHOWN.findall(page.read_text(encoding="utf-8")):
            path = (page.parent / target).resolve()
            assert path.is_file(), f"{page.name}: {target} does not exist; run: python -m tests.docs.serve_page RUN"
            found.setdefault(path.name, []).append(text)
    return found


def test_each_state_has_a_picture_and_each_picture_is_shown(shown: dict[str, list[str]]) -> None:
    names = {path.name for path in PICTURES.iterdir()}
    assert names == {f"{state}.png" for state in STATES} == {*shown}


def test_alternative_texts_say_what_is_seen(shown: dict[str, list[str]]) -> None:
    assert all(len(text.split()) >= 10 for texts in shown.values() for text in texts)


@pytest.mark.parametrize("path", sorted(PICTURES.iterdir()), ids=lambda path: path.name)
def test_pictures_are_small(path) -> None:
    assert path.stat().st_size < MOST_BYTES
    with Image.open(path) as picture:
        assert picture.mode == "P"
