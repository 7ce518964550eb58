"""A layout, the files that one distributor provides for a data set, and the helpers of the function that reads them.

A reader's options are described where its `Layout` is made. The functions that read raise a `UserError` if an option has no
such value, or a file is missing or damaged; it names the file and, if there is one, the damaged line.
"""

import html
import re
import string
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from silohash.base.errors import BadLine, MissingFile, NothingUsable, UnreadableFile, UserError
from silohash.base.files import read_toml
from silohash.base.forms import REINSTALL
from silohash.base.types import Rows
from silohash.data.archive import Texts, as_texts
from silohash.data.catalogue import check_option
from silohash.data.pictures.checking import NO_FILE, check_pictures, describe_assumptions
from silohash.data.pictures.reading import PictureFiles
from silohash.data.protocols.contents import Contents

RESTORE = "Restore the file."
SHOWN = 60
"""Characters of a damaged line that an error shows."""

CAPTIONS = ("first", "all", "each")
"""``first``: one item per picture, with its first caption; ``all``: with all captions joined; ``each``: one item per
caption, with the picture's id in the column ``picture``."""


TAG = re.compile(r"<[^>]*>")
DECLARATION = re.compile(r"<[?!][^>]*>")

LAYOUTS = read_toml(Path(__file__).with_name("layouts.toml"), remedy=REINSTALL, missing=REINSTALL)
"""The texts of the layouts, by key, and the meanings of options that several layouts have."""

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class Need:
    """A file that a layout needs: a glob relative to the data set's folder, and what the file holds. One match is enough."""

    pattern: str
    what: str
    optional: bool = False


@dataclass(frozen=True)
class Layout:
    """A set of files in which a data set is distributed.

    The ``name`` is the value of the option ``layout``, such as ``dcmh-mat``. The summary says in one line who distributes
    the files and what they hold. The reader is called as ``read(root, **options)``; each option has its meaning beside it.
    """

    name: str
    summary: str
    needs: tuple[Need, ...]
    read: Callable[..., Contents]
    options: Mapping[str, str] = field(default_factory=dict)

    def files(self, root: Path) -> dict[Need, list[Path]]:
        """Return the files in a folder that match each need, in alphabetical order."""
        return {need: sorted(path for path in root.glob(need.pattern) if path.is_file()) for need in self.needs}

    def missing(self, root: Path) -> list[Need]:
        """Return the required files that are not in the folder."""
        return [need for need in self.needs if not need.optional and not any(root.glob(need.pattern))]


def layout(key: str, read: Callable[..., Contents], name: str = "", **values: object) -> Layout:
    """Return the layout that ``layouts.toml`` describes under a key, whose name is the key without the data set.

    Args:
        key: Name of a table: a layout, such as ``lists``, or a data set, a slash and a layout.
        read: Reads the contents from the data set's folder.
        name: Another name for the layout.
        values: What the words in braces in the texts stand for.
    """
    facts = LAYOUTS[key]
    needs = [
        Need(need["pattern"].format(**values), need["what"].format(**values), need.get("optional", False))
        for need in facts["needs"]
    ]
    options = {
        option: (meaning or LAYOUTS["options"][option]).format(**values)
        for option, meaning in facts.get("options", {}).items()
    }
    return Layout(name or key.rpartition("/")[2], facts["summary"].format(**values), tuple(needs), read, options)


def find(root: Path, pattern: str) -> list[Path]:
    """Return the files that match a glob, by depth and then by name, so that the order of the disk does not matter."""
    return sorted(root.glob(pattern), key=lambda path: (len(path.parts), str(path)))


def find_one(root: Path, pattern: str, what: str = "") -> Path:
    """Return the match of a glob that is nearest to the root; ``what`` says what an optional file of a layout holds.

    Raises:
        UserError: If no file matches.
    """
    found = find(root, pattern)
    if not found:
        raise MissingFile(
            f"{root} has no file {pattern}{f' ({what})' if what else ''}. Add it, or name the folder that holds it."
        )
    return found[0]


def first_by(key: Callable[[Path], Key], paths: Iterable[Path]) -> dict[Key, Path]:
    """Return the first path of each key."""
    found: dict[Key, Path] = {}
    for path in paths:
        found.setdefault(key(path), path)
    return found


def read_text(path: Path) -> str:
    """Read a text file as UTF-8, or as Latin-1 if it is not valid UTF-8, as in older collections."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise unreadable(path, error) from error
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return content.decode("latin-1")


def unreadable(path: Path, error: OSError) -> UserError:
    """Return the error for a file that the system cannot read."""
    return UnreadableFile(f"{path} cannot be read ({error.strerror or error}). {RESTORE}")


def read_lines(path: Path) -> list[str]:
    """Return the lines of a text file, stripped, without the empty lines at its end."""
    lines = [line.strip() for line in read_text(path).split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    return lines


def damaged_line(path: Path, number: int, line: str, expected: str, remedy: str = RESTORE) -> UserError:
    """Return the error for a line of a text file that is not what it should be."""
    return BadLine(f'{path}, line {number}: "{line[:SHOWN]}" is not {expected}. {remedy}')


def plain_text(marked: str) -> str:
    """Return a text without its tags, with entities resolved and each run of white space replaced by one space."""
    return " ".join(html.unescape(TAG.sub(" ", DECLARATION.sub(" ", marked))).split())


def read_numbers(path: Path, columns: int) -> npt.NDArray[np.int64]:
    """Read whole numbers, the same count per line, ignoring empty lines, as ``(lines, columns)``."""
    rows: list[list[int]] = []
    for number, line in enumerate(read_lines(path), start=1):
        cells = line.replace(",", " ").split()
        if cells and (len(cells) != columns or not all(cell.lstrip("-").isdecimal() for cell in cells)):
            expected = f"{columns} whole number{'s' if columns > 1 else ''}"
            raise damaged_line(path, number, line, expected, "Correct the line, or restore the file.")
        rows += [[int(cell) for cell in cells]] if cells else []
    return np.array(rows, np.int64).reshape(len(rows), columns)


def read_zero_one(path: Path, *, columns: int | None = None) -> npt.NDArray[np.uint8]:
    """Read a table of 0 and 1 separated by white space, as ``(lines, columns)`` uint8.

    Without ``columns``, there must be as many values per line as in the first one.

    Raises:
        UserError: If the file cannot be read, a value is neither 0 nor 1, the lines differ in length, or a line before
            others is empty.
    """
    # One byte per value as it is read, because a published table of tags has 270 million.
    digits, width, empty = bytearray(), columns or 0, 0
    try:
        with path.open("rb") as stream:
            for number, line in enumerate(stream, start=1):
                cells = _zeros_and_ones(path, number, line)
                if not cells:
                    empty = empty or number
                    continue
                width = width or len(cells)
                if empty:
                    raise BadLine(
                        f"{path}, line {empty} is empty, so all later lines would belong to other items. {RESTORE}"
                    )
                if len(cells) != width:
                    expected = f"{len(cells):,} columns where {width:,} were expected"
                    raise BadLine(f"{path}, line {number} has {expected}. {RESTORE}")
                digits += cells
    except OSError as error:
        raise unreadable(path, error) from error
    table = np.frombuffer(digits, np.uint8).reshape(-1, width or 1)
    table &= 1
    return table


def _zeros_and_ones(path: Path, number: int, line: bytes) -> bytes:
    """Return the digits of a line of 0 and 1 with white space between them."""
    digits = line.translate(None, string.whitespace.encode())
    adjacent = b"00" in line.replace(b"1", b"0")
    if adjacent or digits.translate(None, b"01"):
        shown = line.decode("latin-1").strip()[:SHOWN]
        raise BadLine(f'{path}, line {number}: "{shown}" holds something other than 0 and 1. {RESTORE}')
    return digits


def check_picture_files(folder: Path, names: Sequence[str], remedy: str) -> tuple[PictureFiles, dict[str, str]]:
    """Decode every picture file once (the verdicts are cached), and leave out the unusable ones.

    Names are relative to the folder, and empty for items without a picture, as they become for missing and damaged
    pictures. A note counts those.

    Raises:
        UserError: If there are names and none of the pictures can be used. The error ends with ``remedy``.
    """
    verdicts = {**check_pictures(folder, list(filter(None, names))), "": NO_FILE}
    digests = [verdicts[name].digest for name in names]
    lacking = [name for name, digest in zip(names, digests, strict=True) if not digest]
    first = next((verdicts[name].problem for name in lacking if name), "")
    if names and len(lacking) == len(names):
        raise NothingUsable(
            f"None of the {len(names):,} pictures in {folder} can be used ({first or 'no names'}). {remedy}"
        )
    usable = [name if digest else "" for name, digest in zip(names, digests, strict=True)]
    missing = f"{len(lacking):,}{f', the first: {first}' * bool(first)}" * bool(lacking)
    found = {
        "items whose picture is missing or damaged": missing,
        "pictures of more than 8 bits": describe_assumptions(verdicts),
    }
    return PictureFiles(folder, usable, digests), {what: words for what, words in found.items() if words}


def check_found_pictures(root: Path, paths: Sequence[Path | None], remedy: str) -> tuple[PictureFiles, dict[str, str]]:
    """Check picture files as `check_picture_files` does, given their paths below the root, or None for no picture."""
    names = [path.relative_to(root).as_posix() if path else "" for path in paths]
    return check_picture_files(root, names, remedy)


def text_column(texts: Sequence[str]) -> tuple[Texts, dict[str, str]]:
    """Return texts as a column, and a note on how many had to be truncated."""
    column, truncated = as_texts(texts)
    return column, count_notes({"texts that were truncated": truncated})


def count_notes(numbers: Mapping[str, int]) -> dict[str, str]:
    """Return a note for each count that is not zero."""
    return {what: f"{number:,}" for what, number in numbers.items() if number}


def unique_ids(names: Sequence[str]) -> npt.NDArray[np.str_]:
    """Return ``(N,)`` unique ids: the second occurrence of a name becomes ``name#2``."""
    used: Counter[str] = Counter()
    ids: list[str] = []
    for name in names:
        used[name] += 1
        ids.append(name if used[name] == 1 else f"{name}#{used[name]}")
    return np.array(ids, np.str_)


class Captioned(NamedTuple):
    """Items made of pictures with captions: each one's picture, id and text, perhaps empty, ``(items,)``, and notes."""

    rows: Rows
    ids: npt.NDArray[np.str_]
    text: Texts
    notes: dict[str, str]


def spread_captions(pictures: Sequence[str], captions_of: Sequence[Sequence[str]], captions: str) -> Captioned:
    """Make items of pictures, given by their ids, with the captions of each, as one of `CAPTIONS` says."""
    check_option("captions", captions, CAPTIONS)
    rows, ids = list(range(len(pictures))), list(pictures)
    texts = [" ".join(of_one if captions == "all" else of_one[:1]) for of_one in captions_of]
    if captions == "each":
        items = [(row, k, text) for row, of_one in enumerate(captions_of) for k, text in enumerate(of_one or ("",))]
        rows, texts = [row for row, _, _ in items], [text for _, _, text in items]
        ids = [f"{pictures[row]}#{k}" for row, k, _ in items]
    return Captioned(np.array(rows, np.int64), np.array(ids, np.str_), *text_column(texts))
