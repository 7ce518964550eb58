"""Addresses, static files, and texts of others in a page."""

from __future__ import annotations

import pytest

from silohash.service.web.page_templates import STATIC, address, render, static_address


def test_addresses_escape_their_values() -> None:
    assert address("/") == "/"
    assert address("/", q="a&b=c#d", silo=("x", "y"), n=0, none=None) == "/?q=a%26b%3Dc%23d&silo=x&silo=y&n=0"
    assert address("/", q="\ud800") == "/?q=%3F"


def test_static_addresses_change_with_the_content() -> None:
    names = [path.name for path in STATIC.iterdir()]
    assert len({static_address(name).partition("?v=")[2] for name in names}) == len(names)
    with pytest.raises(FileNotFoundError):
        static_address("nothing.js")


def test_texts_are_escaped_and_their_invisible_characters_shown() -> None:
    page = render("error.html", code=404, message="<script>\u202e")
    assert "&lt;script&gt;⟨U+202E⟩" in page
