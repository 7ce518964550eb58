"""Lists of picture files with labels: text lists of papers on image hashing, and torchcmh's MATLAB lists with tags."""

import re
from collections.abc import Mapping
from functools import partial
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from silohash.base.errors import BadLine, EmptyInput, FilesDiffer, MissingFile, OutOfRange
from silohash.base.types import Rows
from silohash.data.archive import multi_hot
from silohash.data.benchmarks.layouts import checks, reading
from silohash.data.benchmarks.layouts.checks import pair_notes
from silohash.data.benchmarks.layouts.matlab_arrays import MatFolder, Named, axis_notes, need_file
from silohash.data.benchmarks.layouts.reading import Layout, layout
from silohash.data.protocols.contents import Contents

STEMS = {"database": "database", "train": "train", "query": "test"}
"""Split -> beginning of its files' names. Items are numbered in this order of the files, each by its first occurrence."""

LINE = re.compile(r"(\S.*?)((?:\s+\d+)+)\s*")


class _Line(NamedTuple):
    """One line of a list: its number, the picture, and the numbers behind it."""

    number: int
    picture: str
    values: list[int]


class _List(NamedTuple):
    """One list: the file that holds its labels, and its lines."""

    path: Path
    lines: list[_Line]


def read_lists(root: Path, *, pictures: str = "", strip: str = "", classes: int = 0) -> Contents:
    """Read ``train.txt``, ``test.txt`` and ``database.txt``: a path per line, then 0 or 1 per class, or a class number.

    The splits are stated as the files have them, including overlaps. Some published lists hold their queries in the
    database as well, so each query counts as its own best answer. The note ``queries in the database`` counts them, and
    only a protocol that is named for the overlap accepts such lists.

    Raises:
        UserError: If a list is missing or damaged, or the lists are of different kinds.
    """
    lists = {split: _List(path, _parse_lines(path)) for split, path in _present(root, ".txt").items()}
    several = [found.path.name for found in lists.values() if _width(found) > 1]
    if 0 < len(several) < len(lists):
        raise FilesDiffer(
            f"{root}: {', '.join(several)} has several numbers per line and the other lists have one. "
            "Use lists of one kind."
        )
    labels = _multi_labels(lists) if several else _class_labels(lists, classes)
    return _join_lists(root, lists, labels, pictures, strip)


def read_companion_lists(root: Path, *, pictures: str = "", strip: str = "", classes: int = 0) -> Contents:
    """Read ``{database,train,test}_img.txt`` with ``_label_onehot.txt`` or, if that is missing, ``_label.txt``.

    Raises:
        UserError: If the labels are missing, or pictures and labels differ in number.
    """
    paths = _present(root, "_img.txt")
    hot, plain = _files(root, "_label_onehot.txt"), _files(root, "_label.txt")
    are_hot = paths.keys() <= hot.keys()
    if not are_hot and not paths.keys() <= plain.keys():
        missing = [f"{STEMS[split]}_label.txt" for split in paths if split not in plain]
        raise MissingFile(
            f"{root} has neither _label_onehot.txt of all lists nor {', '.join(missing)}. Add the labels beside the lists."
        )
    lists = {}
    for split, path in paths.items():
        names, source = [line for line in reading.read_lines(path) if line], (hot if are_hot else plain)[split]
        values = reading.read_zero_one(source).tolist() if are_hot else _class_numbers(source)
        if len(names) != len(values):
            raise FilesDiffer(
                f"{path} has {len(names):,} lines and {source} has {len(values):,}, but they must match line by line. "
                "Restore both."
            )
        lists[split] = _List(source, list(map(_Line, range(1, len(names) + 1), names, values)))
    labels = _multi_labels(lists) if are_hot else _class_labels(lists, classes)
    return _join_lists(root, lists, labels, pictures, strip)


def _files(root: Path, end: str) -> dict[str, Path]:
    return {split: path for split, stem in STEMS.items() if (path := root / f"{stem}{end}").is_file()}


def _present(root: Path, end: str) -> dict[str, Path]:
    """Return the list of each split that is present; the database and the queries must be."""
    found = _files(root, end)
    if missing := [f"{STEMS[split]}{end}" for split in ("database", "query") if split not in found]:
        raise MissingFile(f"{root} has no {' and no '.join(missing)}. Name the folder that holds the lists.")
    return found


def _parse_lines(path: Path) -> list[_Line]:
    lines = []
    for number, line in enumerate(reading.read_lines(path), start=1):
        found = LINE.fullmatch(line)
        if found:
            lines.append(_Line(number, found[1], [int(cell) for cell in found[2].split()]))
        elif line:
            expected = "a path followed by whole numbers"
            raise reading.damaged_line(path, number, line, expected, "Correct the line, or restore the file.")
    return lines


def _width(found: _List) -> int:
    if not found.lines:
        raise EmptyInput(f"{found.path} is empty. {reading.RESTORE}")
    width = len(found.lines[0].values)
    for line in found.lines:
        if len(line.values) != width:
            raise BadLine(
                f"{found.path}, line {line.number} has {len(line.values):,} numbers where {width:,} were expected. "
                f"{reading.RESTORE}"
            )
    return width


def _class_labels(lists: Mapping[str, _List], classes: int) -> dict[str, npt.NDArray[np.uint8]]:
    numbers = {split: [line.values for line in found.lines] for split, found in lists.items()}
    largest = {split: max(chain.from_iterable(of_list), default=0) for split, of_list in numbers.items()}
    count = classes or 1 + max(largest.values())
    for split, number in largest.items():
        if number >= count:
            raise OutOfRange(
                f"{lists[split].path} names the class {number}, but classes run from 0 to {count - 1}. Set classes."
            )
    return {split: multi_hot(of_list, range(count)) for split, of_list in numbers.items()}


def _multi_labels(lists: Mapping[str, _List]) -> dict[str, npt.NDArray[np.uint8]]:
    for path, line in ((found.path, line) for found in lists.values() for line in found.lines):
        if max(line.values) > 1:
            raise BadLine(f"{path}, line {line.number} holds {max(line.values)} instead of 0 or 1. {reading.RESTORE}")
    return {split: np.array([line.values for line in found.lines], np.uint8) for split, found in lists.items()}


def _class_numbers(path: Path) -> list[list[int]]:
    numbers = []
    for number, line in enumerate(reading.read_lines(path), start=1):
        cells = line.replace(",", " ").split()
        if not all(cell.isdecimal() for cell in cells):
            raise reading.damaged_line(path, number, line, "a list of class numbers from 0")
        numbers.append([int(cell) for cell in cells])
    return numbers


def _join_lists(
    root: Path, lists: Mapping[str, _List], tables: Mapping[str, npt.NDArray[np.uint8]], pictures: str, strip: str
) -> Contents:
    widths = {found.path.name: tables[split].shape[1] for split, found in lists.items()}
    if len(set(widths.values())) > 1:
        listed = ", ".join(f"{name} has {width:,}" for name, width in widths.items())
        raise FilesDiffer(f"The lists in {root} have different numbers of classes: {listed}. Use lists of one release.")
    row_of: dict[str, int] = {}
    rows = {
        split: np.array([row_of.setdefault(line.picture, len(row_of)) for line in found.lines], np.int64)
        for split, found in lists.items()
    }
    names = list(row_of)
    labels = _join_labels(lists, tables, rows, (len(names), next(iter(widths.values()))))
    stated = {split: np.unique(of_list) for split, of_list in rows.items()}
    image, notes = reading.check_picture_files(
        root / pictures,
        [PurePosixPath(name.replace("\\", "/").removeprefix(strip)).as_posix() for name in names],
        f'The first line names "{names[0]}". Set pictures to the folder that it is relative to, and strip to the prefix '
        "to remove.",
    )
    repeated = sum(len(rows[split]) - len(stated[split]) for split in lists)
    return Contents(
        ids=np.array(names, np.str_), image=image, text=None, labels=labels,
        label_names=checks.numbered("class", labels.shape[1]), stated=stated,
        notes={
            "texts": "none in the lists",
            **notes,
            **_overlap_notes(stated),
            **reading.count_notes({"lines that repeat a picture of their list": repeated}),
        },
    )  # fmt: skip


def _join_labels(
    lists: Mapping[str, _List],
    tables: Mapping[str, npt.NDArray[np.uint8]],
    rows_of: Mapping[str, Rows],
    shape: tuple[int, int],
) -> npt.NDArray[np.uint8]:
    """Return the labels of all items, after checking that lines about the same picture agree."""
    labels = np.zeros(shape, np.uint8)
    known = np.zeros(shape[0], np.bool_)
    for split, found in lists.items():
        rows, table = rows_of[split], tables[split]
        new = ~known[rows]
        labels[rows[new]] = table[new]
        known[rows] = True
        different = np.flatnonzero((labels[rows] != table).any(axis=1))
        if len(different):
            raise FilesDiffer(
                f'{found.path} gives "{found.lines[different[0]].picture}" other labels than an earlier line or list does '
                f"({len(different):,} such lines). Use lists of one release."
            )
    return labels


def _overlap_notes(stated: Mapping[str, Rows]) -> dict[str, str]:
    query = stated["query"]
    notes = {}
    for split, what in (("database", "database"), ("train", "training items")):
        both = len(np.intersect1d(query, stated.get(split, query[:0])))
        if both:
            notes[f"queries in the {what}"] = f"{both:,} of {len(query):,}"
    return notes


LISTS = layout("lists", read_lists)
COMPANION_LISTS = layout("companion-lists", read_companion_lists)


def read_picture_lists(
    published: Mapping[int, tuple[int, ...]], endings: tuple[str, ...], root: Path, *, pictures: str = ""
) -> Contents:
    """Read ``imgList.mat``, ``tagList.mat`` and ``labelList.mat``, all with the same ending, and check the pictures.

    ``published`` holds the published numbers of items by number of classes. The first of the endings, such as ``21`` in
    ``imgList21.mat``, that is found is read.
    """
    listed = need_file(root, *(f"imgList{ending}.mat" for ending in endings))
    end = listed.stem.removeprefix("imgList")
    folder = MatFolder(root)
    names = folder.variable_in(listed, ("FAll", "imgs"))
    variables = {
        "text": folder.variable(Named(f"tagList{end}.mat", ("YAll", "tags")), near=listed),
        "labels": folder.variable(Named(f"labelList{end}.mat", ("LAll", "labels")), near=listed),
    }
    rows = checks.common_rows({str(variable): variable.shape for variable in variables.values()})
    listed_names = names.strings(rows)
    joined = [str(name) if listed_names.ndim == 1 else "/".join(name) for name in listed_names]
    paths = [path.replace("\\", "/").lstrip("/") for path in joined]
    labels, label_notes = checks.as_labels(variables["labels"].array(rows), str(variables["labels"]))
    text = checks.as_features(variables["text"].array(rows), str(variables["text"]))
    remedy = (
        f"Set pictures to the folder that the names in {listed.name} are relative to. The first name is {paths[0]}."
    )
    image, picture_notes = reading.check_picture_files(root / pictures, paths, remedy)
    return Contents(
        ids=reading.unique_ids(paths), image=image, text=text, labels=labels,
        label_names=checks.numbered("class", labels.shape[1]),
        notes={
            **label_notes,
            **axis_notes({"names": names, **variables}, rows),
            **picture_notes,
            **pair_notes(text, labels),
            **checks.size_notes(rows, published.get(labels.shape[1], ())),
        },
    )  # fmt: skip


def picture_list_layout(published: Mapping[int, tuple[int, ...]], *, endings: tuple[str, ...] = ("",)) -> Layout:
    """Return the layout of torchcmh's lists; the arguments are those of `read_picture_lists`."""
    end = "" if endings == ("",) else "*"
    return layout("torchcmh", partial(read_picture_lists, published, endings), end=end)
