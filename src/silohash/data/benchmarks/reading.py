"""What the readers of lists and annotations share: finding files, reading columns of 0 and 1, checking pictures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from silohash.data.pictures.checking import check_pictures
from silohash.data.pictures.packing import PictureFiles
from silohash.registry import suggestion
from silohash.types import Rows, UserError

BLOCK_BYTES = 1 << 18
SHOWN = 60
CAPTIONS = ("first", "all", "each")
"""``first``: an item a picture, with its first caption; ``all``: with all joined; ``each``: an item a caption."""

Number = TypeVar("Number", np.uint8, np.float32)


def one_of(what: str, value: object, known: Sequence[object]) -> None:
    """Checks an option's value.

    Raises:
        UserError: if it is none of the known ones.
    """
    if value not in known:
        near = suggestion(str(value), [str(name) for name in known])
        raise UserError(f'{what} cannot be "{value}"{near}; it can be: {", ".join(str(name) for name in known)}.')


def find(root: Path, pattern: str) -> list[Path]:
    """Returns the files that match a glob, the least deep first, then by name; the order of the disk plays no part."""
    return sorted(root.glob(pattern), key=lambda path: (len(path.parts), str(path)))


def find_one(root: Path, pattern: str, what: str) -> Path:
    """Returns the least deep file that matches a glob.

    Raises:
        UserError: if there is none; says what should stand in it.
    """
    found = find(root, pattern)
    if not found:
        raise UserError(f"{root} has no file {pattern} ({what}). Put it there, or give the folder that holds it.")
    return found[0]


def text_of(path: Path) -> str:
    """Reads a text file as UTF-8, or as Latin-1 where it is no UTF-8, as older collections are.

    Raises:
        UserError: if it cannot be read.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror or error}). Restore the file.") from error
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return content.decode("latin-1")


def lines_of(path: Path) -> list[str]:
    """Returns the lines of a text file without white space at their ends; empty lines at the file's end are left out."""
    lines = [line.strip() for line in text_of(path).split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    return lines


def numbers_of(path: Path, columns: int | None = None) -> npt.NDArray[np.int64]:
    """Reads whole numbers, as many in every line; empty lines are left out.

    Args:
        path: the file.
        columns: how many stand in a line; as many as in the first line if None.

    Returns:
        ``(lines, columns)``.

    Raises:
        UserError: if a line holds something else, or another count; names the file and the line.
    """
    rows: list[list[int]] = []
    for number, line in enumerate(lines_of(path), start=1):
        cells = line.replace(",", " ").split()
        if not cells:
            continue
        columns = len(cells) if columns is None else columns
        if len(cells) != columns or not all(cell.lstrip("-").isdecimal() for cell in cells):
            raise UserError(
                f'{path}, line {number}: "{line[:SHOWN]}" is not {columns} whole number{"s" if columns > 1 else ""}. '
                "Correct the line, or restore the file."
            )
        rows.append([int(cell) for cell in cells])
    return np.array(rows, np.int64).reshape(len(rows), columns or 0)


def zero_one_table(path: Path, kind: type[Number], *, columns: int | None = None) -> npt.NDArray[Number]:
    """Reads lines of 0 and 1 with white space between, a block at a time.

    Args:
        path: the file.
        kind: the type of the table, ``numpy.uint8`` or ``numpy.float32``.
        columns: how many stand in a line; as many as in the first line if None.

    Returns:
        ``(lines, columns)``.

    Raises:
        UserError: if a line holds anything else, or another count; names the file and the line.
    """
    try:
        count = sum(block.count(b"\n") for block in _blocks(path))
        table = np.empty((0, 0), kind)
        filled, number, blank = 0, 1, 0
        for block in _blocks(path):
            cells = _Cells.of(path, block, number)
            empty = np.flatnonzero(cells.counts == 0)
            if columns is None:
                columns = int(cells.counts[0])
            if not len(table):
                table = np.empty((count, columns), kind)
            wrong = np.flatnonzero((cells.counts != columns) & (cells.counts != 0))
            last = np.flatnonzero(cells.counts)
            if len(last) and (blank or (len(empty) and empty[0] < last[-1])):
                raise UserError(
                    f"{path}, line {blank or number + int(empty[0])} is empty. Restore the file: without the line all "
                    "later ones would belong to other items."
                )
            if len(wrong):
                raise UserError(
                    f"{path}, line {number + int(wrong[0])} has {cells.counts[wrong[0]]:,} columns where {columns:,} "
                    "were expected. Restore the file."
                )
            table[filled : filled + len(last)] = cells.values.reshape(len(last), columns)
            blank = blank or (number + int(empty[0]) if len(empty) else 0)
            filled, number = filled + len(last), number + len(cells.counts)
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror or error}). Restore the file.") from error
    return table[:filled]


@dataclass(frozen=True)
class _Cells:
    """The digits of some whole lines, ``(n,)`` uint8, and how many stand in each line."""

    values: npt.NDArray[np.uint8]
    counts: npt.NDArray[np.int64]

    @classmethod
    def of(cls, path: Path, block: bytes, first_line: int) -> _Cells:
        """Returns the digits of a block of whole lines; names the first line that holds anything else."""
        characters = np.frombuffer(block, np.uint8)
        solid = characters > ord(" ")
        digit = (characters == ord("0")) | (characters == ord("1"))
        bad = solid & ~digit
        bad[1:] |= solid[1:] & solid[:-1]
        if bad.any():
            place = int(np.argmax(bad))
            line = block[block.rfind(b"\n", 0, place) + 1 : block.find(b"\n", place)].decode("latin-1").strip()
            number = first_line + block.count(b"\n", 0, place)
            raise UserError(
                f'{path}, line {number}: "{line[:SHOWN]}" holds something other than 0 and 1 with spaces between. '
                "Restore the file."
            )
        ends = np.flatnonzero(characters == ord("\n"))
        counts = np.add.reduceat(digit, np.concatenate([[0], ends[:-1] + 1]), dtype=np.int64)
        return cls(characters[digit] - np.uint8(ord("0")), counts)


def _blocks(path: Path) -> Iterator[bytes]:
    """Yields a file in blocks of whole lines, each line ended."""
    with path.open("rb") as stream:
        while block := stream.read(BLOCK_BYTES):
            block += stream.readline()
            yield block if block.endswith(b"\n") else block + b"\n"


def checked_pictures(folder: Path, names: Sequence[str], remedy: str) -> tuple[PictureFiles, dict[str, str]]:
    """Reads the named pictures to their end once (the verdicts are kept), and leaves out those that cannot be used.

    Args:
        folder: the folder that the names are relative to.
        names: one name an item, empty where it has none.
        remedy: what to do where not a single one is there.

    Returns:
        The pictures, with an empty name for each that is missing or damaged, and a note of how many those are.

    Raises:
        UserError: if none can be used.
    """
    verdicts = check_pictures(folder, [name for name in names if name])
    good = [name if name and not verdicts[name].problem else "" for name in names]
    lacking = [row for row, name in enumerate(good) if not name]
    problems = [verdicts[names[row]].problem for row in lacking if names[row]]
    if names and len(lacking) == len(names):
        first = f": {problems[0]}" if problems else ""
        raise UserError(f"None of the {len(names):,} pictures under {folder} can be used{first}. {remedy}")
    first = f", the first: {problems[0]}" if problems else ""
    notes = {"items whose picture is missing or damaged": f"{len(lacking):,}{first}"} if lacking else {}
    return PictureFiles(folder, good, [verdicts[name].digest if name else "" for name in good]), notes


def counts(numbers: Mapping[str, int]) -> dict[str, str]:
    """Returns notes of those counts that are not zero."""
    return {what: f"{number:,}" for what, number in numbers.items() if number}


def unique_ids(names: Sequence[str]) -> npt.NDArray[np.str_]:
    """Returns ``(N,)`` ids, each once: the second of a name becomes ``name#2``."""
    used: Counter[str] = Counter()
    ids: list[str] = []
    for name in names:
        used[name] += 1
        ids.append(name if used[name] == 1 else f"{name}#{used[name]}")
    return np.array(ids, np.str_)


def multi_hot(of_item: Sequence[Sequence[int]], classes: int) -> npt.NDArray[np.uint8]:
    """Returns ``(N, classes)`` uint8 of each item's class numbers."""
    labels = np.zeros((len(of_item), classes), np.uint8)
    for row, numbers in enumerate(of_item):
        labels[row, list(numbers)] = 1
    return labels


@dataclass(frozen=True)
class Spread:
    """Pictures with several captions each, as items.

    Attributes:
        rows: each item's picture, ``(items,)`` int64.
        ids: each item's id.
        texts: each item's text; empty where its picture has no caption.
    """

    rows: Rows
    ids: list[str]
    texts: list[str]


def spread(pictures: Sequence[str], sentences: Sequence[Sequence[str]], captions: str) -> Spread:
    """Makes items of pictures with captions.

    Args:
        pictures: an id a picture.
        sentences: the captions of each picture.
        captions: one of `CAPTIONS`.

    Raises:
        UserError: if it is none of them.
    """
    one_of("captions", captions, CAPTIONS)
    if captions != "each":
        texts = [" ".join(of_picture if captions == "all" else of_picture[:1]) for of_picture in sentences]
        return Spread(np.arange(len(pictures), dtype=np.int64), list(pictures), texts)
    rows = [row for row, of_picture in enumerate(sentences) for _ in of_picture or ("",)]
    ids = [
        f"{pictures[row]}#{k}" for row, of_picture in enumerate(sentences) for k, _ in enumerate(of_picture or ("",))
    ]
    texts = [caption for of_picture in sentences for caption in of_picture or ("",)]
    return Spread(np.array(rows, np.int64), ids, texts)
