"""Archives are found by name or path, and a mistyped name, option or value is answered with the nearest."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from silohash.base.errors import MissingFile, OneInputNeeded, UnknownName, UnknownOption, UserError, WrongChoice
from silohash.base.registry import added_members
from silohash.data.benchmarks.dataset import benchmarks
from silohash.data.catalogue import (
    _checked,
    link_options,
    named_or_folder,
    open_archive,
    summary_of,
)
from silohash.data.formats.native import write_native
from silohash.data.glyphs.archive import glyphs
from silohash.data.partitions import PARTITIONS
from silohash.data.partitions.base import partition
from tests.archives import made_up_archive
from tests.runs import silohash


def test_by_name_with_options():
    archive = open_archive("glyphs", options={"faces": 1, "limit": 50})
    assert archive.card.name == "glyphs"
    assert 0 < len(archive) <= 50


@pytest.mark.parametrize(
    ("arguments", "kind", "words"),
    [
        ({"name": "glyph"}, UnknownName, None),
        ({"name": "glyphs", "options": {"face": 1}}, UnknownOption, None),
        ({"name": "wiki-sift-lda", "options": {"image": "jpeg"}}, UnknownOption, "database"),
        ({"name": None}, OneInputNeeded, "neither is set"),
        ({"name": "glyphs", "path": Path("x")}, OneInputNeeded, "glyphs"),
        ({"name": "coco18", "options": {"text": "minlm"}}, WrongChoice, r"minlm.*minilm"),
        ({"name": None, "path": Path("x"), "options": {"labls": ()}}, UnknownOption, "labls"),
    ],
)
def test_mistakes_are_named(arguments, kind: type[UserError], words: str | None):
    with pytest.raises(kind, match=words):
        open_archive(**arguments)


@pytest.mark.parametrize(
    ("name", "summary"), [("glyphs", "characters"), ("coco18", "12,000 photos"), ("pascal-sentence", "1,000 photos")]
)
def test_every_archive_has_one_summary_line(name, summary):
    text = summary_of(name)
    assert summary in text
    assert "\n" not in text


def test_archives_by_name_or_by_folder(tmp_path):
    assert named_or_folder("glyphs", {"faces": 1, "limit": 20}).card.name == "glyphs"
    for archive, words in (
        ("glyph", "glyphs"),
        (str(tmp_path / "x"), "nor"),
    ):
        with pytest.raises(UnknownName, match=words):
            named_or_folder(archive)
    made_up = made_up_archive(20)
    write_native(tmp_path / "native", made_up)
    for opened in (named_or_folder(str(tmp_path / "native")), open_archive(None, tmp_path / "native")):
        assert opened.ids.tolist() == made_up.ids.tolist()
    with pytest.raises(MissingFile, match="metadata"):
        open_archive(None, tmp_path)


def test_links_are_followed_only_if_asked_for():
    assert link_options(follow_links=True) == {"follow_links": True}
    assert link_options(follow_links=False) == {}


def test_options_are_those_that_the_opener_has():
    def keyword(path, *, faces=1):
        return path, faces

    def nothing():
        return None

    def anything(**options):
        return options

    assert _checked("It", keyword, {"faces": 2}) == {"faces": 2}
    assert _checked("It", anything, {"faces": 2}) == {"faces": 2}
    assert _checked("It", nothing, None) == {}
    for opener, option, says in (
        (keyword, "path", "its options are: faces"),
        (nothing, "faces", "it has none"),
    ):
        with pytest.raises(UnknownOption, match=f"{option}.*{says}"):
            _checked("It", opener, {option: 1})


def test_the_summary_is_the_first_sentence_of_the_description():
    assert summary_of("glyphs") == (inspect.getdoc(glyphs) or "").split("\n\n")[0].replace("\n", " ")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An installed package ``outside_data`` that adds an archive and a kind of partition."""
    folder = tmp_path / "outside_data"
    folder.mkdir()
    (folder / "__init__.py").write_text(
        """from silohash.data.partitions.kinds import NESTED as OURS
from tests.archives import made_up_archive
from tests.runs import silohash

def few(*, count: int = 12):
    \"\"\"Open a few made-up items.\"\"\"
    return made_up_archive(count)
"""
    )
    about = tmp_path / "outside_data-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: outside-data\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(
        "[silohash.data]\nfew = outside_data:few\nlost = outside_data:lost\ncoco = outside_data:few\n"
        "[silohash.partition]\nours = outside_data:OURS\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    added_members.cache_clear()
    yield folder
    added_members.cache_clear()
    sys.modules.pop("outside_data", None)


@pytest.mark.usefixtures("package")
def test_a_package_can_add_archives_and_kinds_of_partition() -> None:
    assert len(open_archive("few", options={"count": 20})) == 20
    assert summary_of("few") == "Open a few made-up items."
    with pytest.raises(UnknownOption, match=r"number.*count"):
        open_archive("few", options={"number": 20})
    made = partition(open_archive("few"), "ours", 2, 0)
    assert (made.kind, made.disjoint, len(made.silos[-1].rows)) == ("ours", False, 12)
    assert "ours" in PARTITIONS.names()
    listed = {entry["key"]: entry for entry in silohash("list", "data", "--json").document()["data"]}
    assert listed["few"]["summary"] == "Open a few made-up items."
    assert "does not define it" in listed["lost"]["summary"]
    assert "not used" in listed["coco"]["conflict"]
    shown = {entry["key"]: entry for entry in silohash("data", "list", "--json").document()["archives"]}
    assert shown["few"]["files"] == "embedded"
    assert shown["lost"]["title"].startswith("broken: ")
    assert "coco" in benchmarks()
    assert silohash("data", "check", "few").code == 0
