"""What people see of a payload: values in another form than silohash writes are left out."""

from __future__ import annotations

import pytest
from PIL import Image

from silohash.index.preview import make_preview, preview_url
from silohash.search.released import Released, shown_of

PREVIEW = preview_url(make_preview(Image.new("L", (6, 4))))


def test_what_is_shown_of_a_payload():
    shown = shown_of({"caption": "two parrots", "labels": ["bird", 7], "preview": PREVIEW})
    assert shown == ("two parrots", ("bird", "7"), PREVIEW, {})


@pytest.mark.parametrize("payload", [{}, {"caption": None, "labels": "bird", "preview": "javascript:alert(1)"}])
def test_values_in_another_form_are_left_out(payload):
    assert shown_of(payload) == ("", (), None, {})


def test_a_preview_is_not_printed_and_opens_as_a_picture():
    item = Released(id="7", silo="north", payload={"caption": "two parrots", "preview": PREVIEW})
    assert PREVIEW not in repr(item)
    assert "two parrots" in repr(item)
    assert item.preview.size == (6, 4)
