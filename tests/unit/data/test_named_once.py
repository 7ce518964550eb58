"""Each data set is named in its own file and in at most three other source files.

The files of methods do not count. They cite the settings of their papers, which differ between data sets. The packed sets
and their builders are one place, and so are the tables of the benchmarks: cards, layouts and protocols.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import silohash
from silohash.data import ARCHIVES

ROOT = Path(silohash.__file__).parent
MOST_OTHER_FILES = 3
PACKED, PACKED_BUILDERS, BENCHMARKS = ROOT / "data/packed", ROOT / "data/build/packed", ROOT / "data/benchmarks"
SUFFIXES = {".py", ".toml", ".html", ".css", ".js", ".md", ".txt"}

# How archives are written, where that is not their name; the embedded glyphs have a folder of their own.
NAMED = [name for name in ARCHIVES.names() if name != "glyphs"]
PATTERNS = {name: rf"(?<![.\w-]){re.escape(name)}(?![\w-])" for name in NAMED} | {
    "museums": r"museums(?!/)",  # not the folder of a federation
    "coco18": r"coco18",
    "fashion": r"(?<![.\w])fashion(?![\w-])",  # neither fashion-clip99 nor the module of the other fashion sets
    "wiki-sift-lda": r"wiki[-_]sift[-_]lda",
    "clothing10": r"clothing10",
    "flickr8k-1k": r"flickr8k",
    "coco-mini": r"coco[-_]mini",
    "nlvr-graphs": r"nlvr",
    "fashion-clip99": r"fashion[-_]clip99",
    "pascal-deep": r"pascal[-_]deep",
    "mirflickr25k": r"mir[-_ ]?flickr",
    "nus-wide": r"nus[-_ ]?wide|\bnus\b",
    "iapr-tc12": r"iapr",
    "coco": r"\bcoco\b(?!-mini)|mscoco",
    "wikipedia": r"wikipedia",
    "fashionvc": r"fashion[-_ ]?vc",
    "ssense": r"ssense",
    "pascal-sentence": r"pascal(?![-_]deep)",
}
METHODS = ROOT / "methods"
FILES = {
    path: path.read_text(encoding="utf-8")
    for path in sorted(ROOT.rglob("*"))
    if path.suffix in SUFFIXES and not path.is_relative_to(METHODS)
}


def own_file(key: str) -> Path:
    """Returns the file of the module that opens the archive."""
    module, _ = ARCHIVES.target(key)
    return ROOT.parent.joinpath(*module.split(".")).with_suffix(".py")


def named_in(key: str) -> set[str]:
    """Returns the other files that name the archive anywhere: in code, comments or docstrings.

    All files in a folder of the archive's name are its own.
    """
    pattern, own = re.compile(PATTERNS[key], re.IGNORECASE), own_file(key)
    own = own.parent if own.parent.name == key or own.parent == PACKED else own
    found = {path for path, text in FILES.items() if pattern.search(text)}
    return {str(place.relative_to(ROOT)) for place in map(place_of, found) if not place.is_relative_to(own)}


def place_of(path: Path) -> Path:
    """Returns the place to which a file belongs."""
    if path.suffix == ".toml" and path.is_relative_to(BENCHMARKS):
        return BENCHMARKS
    return PACKED if path.is_relative_to(PACKED) or path.is_relative_to(PACKED_BUILDERS) else path


@pytest.mark.parametrize("key", NAMED)
def test_a_data_set_is_named_in_few_files(key: str) -> None:
    assert re.search(PATTERNS[key], own_file(key).read_text(encoding="utf-8"), re.IGNORECASE)
    others = named_in(key)
    assert "data/__init__.py" in others
    assert len(others) <= MOST_OTHER_FILES, sorted(others)
