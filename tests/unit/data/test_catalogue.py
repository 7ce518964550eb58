"""Archives are found by name or path, and a mistyped name, option or value is answered with the nearest."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from silohash.data.catalogue import ARCHIVES, FOLDER, open_archive, summary_of
from silohash.types import UserError


@pytest.mark.parametrize("target", [*ARCHIVES.values(), FOLDER])
def test_every_name_leads_to_a_function(target):
    module, _, attribute = target.partition(":")
    assert callable(getattr(importlib.import_module(module), attribute))


def test_by_name_with_options():
    archive = open_archive("glyphs", options={"faces": 1, "limit": 50})
    assert archive.card.name == "glyphs"
    assert 0 < len(archive) <= 50


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"name": "glyph"}, 'no archive "glyph" .did you mean "glyphs".'),
        ({"name": "glyphs", "options": {"face": 1}}, 'no option "face" .did you mean "faces".'),
        ({"name": "wiki-sift-lda", "options": {"image": "jpeg"}}, "its options are: database"),
        ({"name": None}, "neither is set"),
        ({"name": "glyphs", "path": Path("x")}, 'both name = "glyphs" and path = "x" are set'),
        ({"name": "coco18", "options": {"text": "minlm"}}, 'text cannot be "minlm" .did you mean "minilm".'),
        ({"name": None, "path": Path("x"), "options": {"labls": ()}}, 'A folder has no option "labls"'),
    ],
)
def test_mistakes_are_named(arguments, words):
    with pytest.raises(UserError, match=words):
        open_archive(**arguments)


@pytest.mark.parametrize(
    ("name", "summary"), [("glyphs", "characters"), ("coco18", "12,000 photos"), ("pascal-sentence", "1,000 photos")]
)
def test_every_archive_has_one_summary_line(name, summary):
    text = summary_of(name)
    assert summary in text
    assert "\n" not in text
