"""Addresses, static files, and texts of others in a page."""

from __future__ import annotations

import pytest
from fastapi import Request

from silohash.service.web.page_templates import STATIC, address, page, static_address


def test_addresses_escape_their_values() -> None:
    assert address("/") == "/"
    assert address("/", q="a&b=c#d", silo=("x", "y"), n=0, none=None) == "/?q=a%26b%3Dc%23d&silo=x&silo=y&n=0"
    assert address("/", q="\ud800") == "/?q=%3F"


def test_static_addresses_change_with_the_content() -> None:
    names = [path.name for path in STATIC.iterdir()]
    assert len({static_address(name).partition("?v=")[2] for name in names}) == len(names)
    with pytest.raises(FileNotFoundError):
        static_address("nothing.js")


def asked(path: str, query: str = "", **headers: str) -> Request:
    """Return a request for a page."""
    sent = [(name.encode(), value.encode()) for name, value in headers.items()]
    about = {"type": "http", "method": "GET", "scheme": "http", "server": ("127.0.0.1", 80), "root_path": ""}
    return Request({**about, "path": path, "query_string": query.encode(), "headers": sent})


def shown(request: Request, **values: object) -> str:
    return bytes(page(request, "error.html", 404, status=404, message="", **values).body).decode()


def test_texts_are_escaped_and_their_invisible_characters_shown() -> None:
    answer = page(asked("/"), "error.html", 404, status=404, message="<script>\u202e")
    assert answer.status_code == 404
    assert "&lt;script&gt;⟨U+202E⟩" in bytes(answer.body).decode()


def test_the_menu_of_languages_leads_to_the_same_page() -> None:
    text = shown(asked("/item", "silo=a+b&silo=c&lang=de"))
    assert '<html lang="de">' in text
    assert 'href="?silo=a+b&amp;silo=c&amp;lang=zh" lang="zh"' in text
    assert text.count('aria-current="true"') == 1
    assert 'href="/?lang=zh"' in shown(asked("/picture")), "what was sent cannot be asked for"
