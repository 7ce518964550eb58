"""Text lists of pictures with labels, as the repositories of image hashing share them; they hold no texts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np
import numpy.typing as npt

from silohash.data.benchmarks.checks import numbered
from silohash.data.benchmarks.raw import Layout, Need, Raw
from silohash.data.benchmarks.reading import (
    SHOWN,
    checked_pictures,
    counts,
    lines_of,
    multi_hot,
    zero_one_table,
)
from silohash.data.pictures.packing import PictureFiles
from silohash.types import Rows, UserError

LISTS = {"database": "database.txt", "train": "train.txt", "query": "test.txt"}
"""Split -> file; the items stand in this order of the files, each at its first place."""
COMPANIONS = {"database": "database", "train": "train", "query": "test"}
NEEDED = ("database", "query")
LINE = re.compile(r"(\S.*?)((?:\s+\d+)+)\s*")


@dataclass(frozen=True)
class _List:
    """One list: its file, its pictures' names, and their labels ``(n, C)``."""

    path: Path
    names: list[str]
    labels: npt.NDArray[np.uint8]


def one_line_lists(root: Path, *, pictures: str = "", strip: str = "", classes: int = 0) -> Raw:
    """Reads ``train.txt``, ``test.txt`` and ``database.txt``: in each line a path and 0 or 1 a class, or one class.

    The splits are stated as the files have them, overlaps included: some lists in circulation hold their queries in
    the database as well (all 5,000 of HashNet's COCO among its 112,218), and count each query as its own best answer.
    The note ``queries in the database`` says how many; only a protocol that names the overlap may use such lists.

    Args:
        root: the folder of lists.
        pictures: the folder that the paths are relative to, itself relative to the root; the root if empty.
        strip: a beginning of the paths that is taken off, as ``../data/coco/``.
        classes: how many classes there are, where a line names one; one more than the largest number if zero.

    Raises:
        UserError: if a list is missing, a line is damaged or has another number of columns, one picture has different
            labels in two lines, or not a single picture is there.
    """
    paths = {split: root / name for split, name in LISTS.items() if (root / name).is_file()}
    _needed(root, paths, LISTS)
    entries = {split: _entries(path) for split, path in paths.items()}
    single = {split: _width(paths[split], found) == 1 for split, found in entries.items()}
    if any(single.values()):
        lists = _single_labels(paths, entries, single, classes)
    else:
        lists = {split: _multi_labels(paths[split], found) for split, found in entries.items()}
    return _raw(root, lists, pictures, strip)


def companion_lists(root: Path, *, pictures: str = "", strip: str = "", classes: int = 0) -> Raw:
    """Reads ``{database,train,test}_img.txt`` with ``_label_onehot.txt`` or, where that is missing, ``_label.txt``.

    Args:
        root: the folder of lists; ``train_img.txt`` need not be there.
        pictures: the folder that the paths are relative to, itself relative to the root; the root if empty.
        strip: a beginning of the paths that is taken off.
        classes: how many classes there are, where ``_label.txt`` names them by their numbers from 0; one more than the
            largest number if zero.

    Raises:
        UserError: if a list is missing, files of one list differ in length, a line is damaged, one picture has
            different labels in two lines, or not a single picture is there.
    """
    stems = {split: root / f"{stem}_img.txt" for split, stem in COMPANIONS.items()}
    paths = {split: path for split, path in stems.items() if path.is_file()}
    _needed(root, paths, {split: path.name for split, path in stems.items()})
    names = {split: [line for line in lines_of(path) if line] for split, path in paths.items()}
    tables, sources = _companion_labels(root, tuple(paths), classes)
    for split, path in paths.items():
        if len(names[split]) != len(tables[split]):
            raise UserError(
                f"{path} has {len(names[split]):,} lines and {sources[split]} has {len(tables[split]):,}. They belong "
                "together line by line: restore both."
            )
    return _raw(root, {split: _List(paths[split], names[split], tables[split]) for split in paths}, pictures, strip)


def _needed(root: Path, paths: Mapping[str, Path], names: Mapping[str, str]) -> None:
    missing = [names[split] for split in NEEDED if split not in paths]
    if missing:
        raise UserError(f"{root} has no {' and no '.join(missing)}. Give the folder that holds the lists.")


def _entries(path: Path) -> list[tuple[int, str, str]]:
    """Returns the number, the picture and the digits of each line."""
    entries = []
    for number, line in enumerate(lines_of(path), start=1):
        if not line:
            continue
        found = LINE.fullmatch(line)
        if not found:
            raise UserError(
                f'{path}, line {number}: "{line[:SHOWN]}" is not a path and whole numbers. Correct the line, or '
                "restore the file."
            )
        entries.append((number, found[1], found[2]))
    return entries


def _width(path: Path, entries: Sequence[tuple[int, str, str]]) -> int:
    """Returns how many numbers stand in each line of a list."""
    if not entries:
        raise UserError(f"{path} has no lines. Restore the file.")
    width = len(entries[0][2].split())
    for number, _, digits in entries:
        if len(digits.split()) != width:
            raise UserError(
                f"{path}, line {number} has {len(digits.split()):,} numbers where {width:,} were expected. "
                "Restore the file."
            )
    return width


def _single_labels(
    paths: Mapping[str, Path],
    entries: Mapping[str, Sequence[tuple[int, str, str]]],
    single: Mapping[str, bool],
    classes: int,
) -> dict[str, _List]:
    mixed = [paths[split].name for split in paths if not single[split]]
    if mixed:
        raise UserError(
            f"{paths['query'].parent}: {', '.join(mixed)} has several numbers in a line and the other lists have one. "
            "Use lists of one kind."
        )
    numbers = {split: [int(digits) for _, _, digits in found] for split, found in entries.items()}
    count = classes or 1 + max(max(of_list) for of_list in numbers.values())
    return {
        split: _List(paths[split], [name for _, name, _ in found], _checked_hot(paths[split], numbers[split], count))
        for split, found in entries.items()
    }


def _checked_hot(path: Path, numbers: Sequence[int], classes: int) -> npt.NDArray[np.uint8]:
    strange = [number for number in numbers if not 0 <= number < classes]
    if strange:
        raise UserError(f"{path} names the class {strange[0]}; they run from 0 to {classes - 1}. Set classes.")
    return multi_hot([[number] for number in numbers], classes)


def _multi_labels(path: Path, entries: Sequence[tuple[int, str, str]]) -> _List:
    labels = np.empty((len(entries), _width(path, entries)), np.uint8)
    for row, (number, _, digits) in enumerate(entries):
        cells = np.array(digits.split(), np.int64)
        if cells.max() > 1:
            raise UserError(f"{path}, line {number} holds {cells.max()} among its 0 and 1. Restore the file.")
        labels[row] = cells
    return _List(path, [name for _, name, _ in entries], labels)


def _companion_labels(
    root: Path, splits: Sequence[str], classes: int
) -> tuple[dict[str, npt.NDArray[np.uint8]], dict[str, Path]]:
    hot = {split: root / f"{COMPANIONS[split]}_label_onehot.txt" for split in splits}
    if all(path.is_file() for path in hot.values()):
        return {split: zero_one_table(path, np.uint8) for split, path in hot.items()}, hot
    plain = {split: root / f"{COMPANIONS[split]}_label.txt" for split in splits}
    missing = [path.name for path in plain.values() if not path.is_file()]
    if missing:
        raise UserError(
            f"{root} has neither {', '.join(path.name for path in hot.values())} nor {', '.join(missing)}. "
            "Put the labels beside the lists of pictures."
        )
    numbers = {
        split: [_class_numbers(path, *line) for line in enumerate(lines_of(path), start=1)]
        for split, path in plain.items()
    }
    largest = max((number for of_list in numbers.values() for of_line in of_list for number in of_line), default=0)
    count = classes or largest + 1
    if largest >= count:
        raise UserError(f"{root}: a label file names the class {largest}; they run from 0 to {count - 1}. Set classes.")
    return {split: multi_hot(of_list, count) for split, of_list in numbers.items()}, plain


def _class_numbers(path: Path, number: int, line: str) -> list[int]:
    cells = line.replace(",", " ").split()
    if not all(cell.isdecimal() for cell in cells):
        raise UserError(f'{path}, line {number}: "{line[:SHOWN]}" are no classes from 0. Restore the file.')
    return [int(cell) for cell in cells]


def _raw(root: Path, lists: Mapping[str, _List], pictures: str, strip: str) -> Raw:
    widths = {found.path.name: found.labels.shape[1] for found in lists.values()}
    if len(set(widths.values())) > 1:
        told = ", ".join(f"{name} has {width:,}" for name, width in widths.items())
        raise UserError(f"The lists of {root} have different numbers of classes: {told}. Use lists of one release.")
    row_of: dict[str, int] = {}
    for found in lists.values():
        for name in found.names:
            row_of.setdefault(name, len(row_of))
    labels = _joined_labels(lists, row_of, next(iter(widths.values())))
    stated = {split: np.unique(_rows(found, row_of)) for split, found in lists.items()}
    files, notes = _files(root, list(row_of), pictures, strip)
    return Raw(
        ids=np.array(list(row_of), np.str_),
        image=files,
        text=None,
        labels=labels,
        label_names=numbered("class", labels.shape[1]),
        stated=stated,
        notes={"texts": "the lists hold none", **notes, **_overlaps(lists, stated)},
    )


def _rows(found: _List, row_of: Mapping[str, int]) -> Rows:
    return np.array([row_of[name] for name in found.names], np.int64)


def _joined_labels(lists: Mapping[str, _List], row_of: Mapping[str, int], classes: int) -> npt.NDArray[np.uint8]:
    labels = np.zeros((len(row_of), classes), np.uint8)
    known = np.zeros(len(row_of), np.bool_)
    for found in lists.values():
        rows = _rows(found, row_of)
        fresh = ~known[rows]
        labels[rows[fresh]] = found.labels[fresh]
        known[rows] = True
        different = np.flatnonzero((labels[rows] != found.labels).any(axis=1))
        if len(different):
            raise UserError(
                f'{found.path} gives "{found.names[different[0]]}" other labels than an earlier line or list '
                f"({len(different):,} such lines). Use lists of one release."
            )
    return labels


def _overlaps(lists: Mapping[str, _List], stated: Mapping[str, Rows]) -> dict[str, str]:
    query = stated["query"]
    notes = {}
    for split in ("database", "train"):
        both = np.intersect1d(query, stated.get(split, query[:0]))
        if len(both):
            what = "database" if split == "database" else "training items"
            notes[f"queries in the {what}"] = f"{len(both):,} of {len(query):,}"
    repeated = sum(len(found.names) - len(stated[split]) for split, found in lists.items())
    return notes | counts({"lines that repeat a picture of their list": repeated})


def _files(root: Path, names: Sequence[str], pictures: str, strip: str) -> tuple[PictureFiles, dict[str, str]]:
    paths = [PurePosixPath(name.replace("\\", "/").removeprefix(strip)).as_posix() for name in names]
    return checked_pictures(
        root / pictures,
        paths,
        f'The first line names "{names[0]}". Set pictures to the folder that it is relative to, and strip to what must '
        "be taken off its beginning.",
    )


OPTIONS = {
    "pictures": "the folder that the paths are relative to, itself relative to the data set's",
    "strip": "a beginning of the paths that is taken off",
    "classes": "how many classes there are, where a line names them by number",
}

_LISTS = Layout(
    name="lists",
    summary="train.txt, test.txt and database.txt of image hashing (HashNet, DeepHash, CSQ): a path and its labels",
    needs=(
        Need("database.txt", "the searched pictures with their labels"),
        Need("test.txt", "the queries with their labels"),
        Need("train.txt", "the training pictures with their labels", optional=True),
        Need("**/*.jpg", "the pictures"),
    ),
    reader="silohash.data.benchmarks.text_lists:one_line_lists",
    options=OPTIONS,
)

_COMPANIONS = Layout(
    name="companion-lists",
    summary="database_img.txt and test_img.txt with their labels in files of their own",
    needs=(
        Need("database_img.txt", "the searched pictures"),
        Need("test_img.txt", "the queries"),
        Need("database_label*.txt", "their labels: _label_onehot.txt (0 and 1) or _label.txt (numbers from 0)"),
        Need("test_label*.txt", "their labels"),
        Need("train_img.txt", "the training pictures", optional=True),
        Need("**/*.jpg", "the pictures"),
    ),
    reader="silohash.data.benchmarks.text_lists:companion_lists",
    options=OPTIONS,
)

MIRFLICKR: tuple[Layout, ...] = (_LISTS,)
NUS_WIDE: tuple[Layout, ...] = (_LISTS, _COMPANIONS)
COCO: tuple[Layout, ...] = (_LISTS,)
