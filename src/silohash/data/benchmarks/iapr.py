"""IAPR TC-12: its card, its layouts, and the reader of the collectors' release."""

import re
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from silohash.base.errors import FilesDiffer
from silohash.data.benchmarks.dataset import described
from silohash.data.benchmarks.layouts import matlab_arrays, reading
from silohash.data.benchmarks.layouts.matlab_arrays import Named
from silohash.data.benchmarks.layouts.picture_lists import picture_list_layout
from silohash.data.benchmarks.layouts.reading import layout
from silohash.data.catalogue import check_option
from silohash.data.protocols.contents import Contents

ITEMS = (20_000,)
CONCEPTS = (255, 275)
FIELDS = ("title", "description", "notes", "location", "date")


def read_collectors_files(root: Path, *, concepts: int = 255, fields: str = "description") -> Contents:
    """Read the collectors' release, with the labels of the segments from its extension SAIAPR.

    An item has a concept if one of its segments has the label. ``concepts = 255`` keeps the labels that occur at least
    once, which are 255 of the list's 275 in the complete collection. ``concepts = 275`` keeps every label of
    ``wlist.txt``. The actual number is noted.
    """
    check_option("concepts", concepts, CONCEPTS)
    wanted = fields.split("|")
    for name in wanted:
        check_option("fields", name, FIELDS)
    files = _by_number([*reading.find(root, "**/images/*/*.jpg"), *reading.find(root, "**/*/images/*.jpg")])
    documents = _by_number(
        [*reading.find(root, "**/annotations_complete_eng/*/*.eng"), *reading.find(root, "**/*.eng")]
    )
    numbers = sorted({*files, *documents})
    labels, names, unlisted = _read_labels(root, numbers, concepts)
    remedy = "Put the pictures into images/00, images/01, ... again."
    image, picture_notes = reading.check_found_pictures(root, [files.get(number) for number in numbers], remedy)
    text, text_notes = reading.text_column([_read_fields(documents.get(number), wanted) for number in numbers])
    counts = {
        "items without an annotation": len(numbers) - len(documents),
        "items without any of the concepts": int((~labels.any(axis=1)).sum()),
        "segments of missing pictures": unlisted,
    }
    kept = "those that occur" if concepts == CONCEPTS[0] else "all of wlist.txt"
    return Contents(
        ids=np.array([str(number) for number in numbers], np.str_), image=image, text=text, labels=labels,
        label_names=names,
        notes={
            "concepts": f"{len(names)} labels of segments, {kept}",
            "text": ", ".join(wanted),
            **picture_notes,
            **reading.count_notes(counts),
            **text_notes,
        },
    )  # fmt: skip


def _by_number(paths: list[Path]) -> dict[int, Path]:
    return reading.first_by(lambda path: int(path.stem), (path for path in paths if path.stem.isdecimal()))


def _read_labels(root: Path, numbers: list[int], concepts: int) -> tuple[npt.NDArray[np.uint8], tuple[str, ...], int]:
    names = _read_label_names(reading.find_one(root, "**/wlist.txt"))
    known = np.array(sorted(names), np.int64)
    table = np.zeros((len(numbers), len(known)), np.uint8)
    row_of = {number: row for row, number in enumerate(numbers)}
    unlisted = 0
    for path in reading.find(root, "**/labels.txt"):
        for line, (number, _, label) in enumerate(reading.read_numbers(path, 3).tolist(), start=1):
            if label not in names:
                raise FilesDiffer(f"{path}, row {line}: the label {label} is not in wlist.txt. Restore both files.")
            if number in row_of:
                table[row_of[number], np.searchsorted(known, label)] = 1
            else:
                unlisted += 1
    kept = np.flatnonzero(table.any(axis=0)) if concepts == CONCEPTS[0] else np.arange(len(known))
    return np.ascontiguousarray(table[:, kept]), tuple(names[number] for number in known[kept].tolist()), unlisted


def _read_label_names(path: Path) -> dict[int, str]:
    names: dict[int, str] = {}
    for number, line in enumerate(reading.read_lines(path), start=1):
        cells = line.split(maxsplit=1)
        if len(cells) == 2 and cells[0].isdecimal():
            names[int(cells[0])] = cells[1]
        elif cells:
            raise reading.damaged_line(path, number, line, "a number and a word")
    return names


def _read_fields(path: Path | None, wanted: list[str]) -> str:
    """Return the wanted elements of an annotation; the files are not valid XML, so only the tags are parsed."""
    content = reading.read_text(path) if path else ""
    parts = [re.search(rf"<{name}>(.*?)</{name}>", content, re.DOTALL | re.IGNORECASE) for name in wanted]
    return " ".join(" ".join(reading.plain_text(part[1]) for part in parts if part).split())


_named = partial(Named, "iapr-tc12-rand.mat")
_UCCH_PARTS = matlab_arrays.PartFiles(
    database=matlab_arrays.ArrayFiles(_named(("VDatabase",)), _named(("YDatabase",)), _named(("databaseL",))),
    test=matlab_arrays.ArrayFiles(_named(("VTest",)), _named(("YTest",)), _named(("testL",))),
    items=ITEMS,
    queries=(2_000,),
)

IAPR_TC12 = described(
    "iapr-tc12",
    layout("iapr-tc12/ucch-mat", partial(matlab_arrays.read_parts, _UCCH_PARTS)),
    picture_list_layout({CONCEPTS[0]: ITEMS}),
    layout("iapr-tc12/raw", read_collectors_files),
)
