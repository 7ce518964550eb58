"""Collections with a text file beside each picture: IAPR TC-12, the Wikipedia benchmark, Pascal Sentence."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from silohash.data.archive import as_texts
from silohash.data.benchmarks.raw import Raw
from silohash.data.benchmarks.reading import (
    SHOWN,
    checked_pictures,
    counts,
    find,
    find_one,
    lines_of,
    multi_hot,
    numbers_of,
    one_of,
    spread,
    text_of,
    unique_ids,
)
from silohash.types import Rows, UserError

FIELDS = ("title", "description", "notes", "location", "date")
CONCEPTS = (255, 275)
TAG = re.compile(r"<[^>]*>")
DECLARATION = re.compile(r"<[?!][^>]*>")
WIKIPEDIA_LISTS = {"train": "trainset_txt_img_cat.list", "query": "testset_txt_img_cat.list"}
LIST_COLUMNS = 3


def iapr_tc12(root: Path, *, concepts: int = 255, fields: str = "description") -> Raw:
    """Reads IAPR TC-12's own files, with the labels of the segments of its extension SAIAPR.

    An item has a concept if one of its segments has the label. ``concepts = 255`` keeps the labels that occur at least
    once, which are 255 of the list's 275 in the full collection; ``concepts = 275`` keeps every label of ``wlist.txt``.
    How many there really are is noted.

    Args:
        root: the folder with ``images/NN/NNNN.jpg``, ``annotations*/NN/NNNN.eng``, and somewhere below it
            ``wlist.txt`` and one or several ``labels.txt`` (picture, segment, label in each line).
        concepts: 255 or 275.
        fields: the parts of an annotation that make the text, joined with ``|``: title, description, notes, location,
            date.

    Raises:
        UserError: if pictures, annotations or labels are missing, or a line of a label file is damaged.
    """
    one_of("concepts", concepts, CONCEPTS)
    wanted = fields.split("|")
    for name in wanted:
        one_of("fields", name, FIELDS)
    files = _numbered([*find(root, "**/images/*/*.jpg"), *find(root, "**/*/images/*.jpg")])
    documents = _numbered([*find(root, "**/annotations_complete_eng/*/*.eng"), *find(root, "**/*.eng")])
    if not documents:
        find_one(root, "**/*.eng", "an annotation in English a picture")
    numbers = sorted({*files, *documents})
    labels, names, others = _segment_labels(root, numbers, concepts)
    pictures, notes = checked_pictures(
        root,
        [files[number].relative_to(root).as_posix() if number in files else "" for number in numbers],
        "Put the pictures into images/00, images/01, ... again.",
    )
    texts, cut = as_texts([_fields(documents.get(number), wanted) for number in numbers])
    return Raw(
        ids=np.array([str(number) for number in numbers], np.str_),
        image=pictures,
        text=texts,
        labels=labels,
        label_names=names,
        notes={
            "concepts": f"{len(names)} labels of segments, "
            + ("those that occur" if concepts == CONCEPTS[0] else "all of wlist.txt"),
            "text": ", ".join(wanted),
            **notes,
            **counts(
                {
                    "items without an annotation": len(numbers) - len(documents),
                    "items without any of the concepts": int((~labels.any(axis=1)).sum()),
                    "segments of pictures that are not there": others,
                    "texts that were cut": cut,
                }
            ),
        },
    )


def _numbered(paths: list[Path]) -> dict[int, Path]:
    """Returns number -> the first file of that number."""
    found: dict[int, Path] = {}
    for path in paths:
        if path.stem.isdecimal():
            found.setdefault(int(path.stem), path)
    return found


def _segment_labels(
    root: Path, numbers: list[int], concepts: int
) -> tuple[npt.NDArray[np.uint8], tuple[str, ...], int]:
    names = _label_list(find_one(root, "**/wlist.txt", "the labels of the segments: number and word in each line"))
    find_one(root, "**/labels.txt", "picture, segment and label of each segment")
    known = np.array(sorted(names), np.int64)
    table = np.zeros((len(numbers), len(known)), np.uint8)
    row_of = {number: row for row, number in enumerate(numbers)}
    others = 0
    for path in find(root, "**/labels.txt"):
        for line, (number, _, label) in enumerate(numbers_of(path, 3).tolist(), start=1):
            if label not in names:
                raise UserError(f"{path}, row {line}: the label {label} is not in wlist.txt. Restore both files.")
            if number in row_of:
                table[row_of[number], np.searchsorted(known, label)] = 1
            else:
                others += 1
    kept = np.flatnonzero(table.any(axis=0)) if concepts == CONCEPTS[0] else np.arange(len(known))
    return np.ascontiguousarray(table[:, kept]), tuple(names[number] for number in known[kept].tolist()), others


def _label_list(path: Path) -> dict[int, str]:
    names: dict[int, str] = {}
    for number, line in enumerate(lines_of(path), start=1):
        cells = line.split(maxsplit=1)
        if len(cells) == 2 and cells[0].isdecimal():
            names[int(cells[0])] = cells[1]
        elif cells:
            raise UserError(f'{path}, line {number}: "{line[:SHOWN]}" is not a number and a word. Restore the file.')
    return names


def _fields(path: Path | None, wanted: list[str]) -> str:
    """Returns the wanted elements of an annotation; the files are no strict XML, so nothing but the tags is read."""
    if path is None:
        return ""
    content = text_of(path)
    parts = [re.search(rf"<{name}>(.*?)</{name}>", content, re.DOTALL | re.IGNORECASE) for name in wanted]
    return " ".join(" ".join(_plain(part[1]) for part in parts if part).split())


def _plain(marked: str) -> str:
    """Returns a text without its tags, entities resolved and runs of white space made one space."""
    return " ".join(html.unescape(TAG.sub(" ", DECLARATION.sub(" ", marked))).split())


def wikipedia(root: Path) -> Raw:
    """Reads the Wikipedia benchmark's own files: the training list's items, then the test list's.

    The lists state the splits ``train`` and ``query``; which items are searched is the protocol's choice.

    Args:
        root: the folder with ``trainset_txt_img_cat.list``, ``testset_txt_img_cat.list``, ``texts/*.xml``,
            ``images/<category>/*.jpg`` and ``categories.list``.

    Raises:
        UserError: if a file is missing, or a line of a list is damaged.
    """
    paths = {
        split: find_one(root, f"**/{name}", "text, picture and category") for split, name in WIKIPEDIA_LISTS.items()
    }
    named = find_one(root, "**/categories.list", "the categories' names, one a line")
    names = [line for line in lines_of(named) if line]
    rows = {split: _triples(path, len(names)) for split, path in paths.items()}
    items = [item for split in paths for item in rows[split]]
    pictures_of = _by_stem(root, "**/images/**/*.jpg")
    texts_of = _by_stem(root, "**/texts/*.xml")
    pictures, notes = checked_pictures(
        root,
        [
            pictures_of[picture].relative_to(root).as_posix() if picture in pictures_of else ""
            for _, picture, _ in items
        ],
        "Put the pictures into images/<category> again.",
    )
    texts, cut = as_texts([_article(texts_of.get(text)) for text, _, _ in items])
    trained = len(rows["train"])
    stated: dict[str, Rows] = {
        "train": np.arange(trained, dtype=np.int64),
        "query": np.arange(trained, len(items), dtype=np.int64),
    }
    missing = sum(text not in texts_of for text, _, _ in items)
    return Raw(
        ids=unique_ids([text for text, _, _ in items]),
        image=pictures,
        text=texts,
        labels=multi_hot([[category - 1] for _, _, category in items], len(names)),
        label_names=tuple(names),
        stated=stated,
        notes={**notes, **counts({"items whose text is missing": missing, "texts that were cut": cut})},
        columns={"picture": np.array([picture for _, picture, _ in items], np.str_)},
    )


def _triples(path: Path, categories: int) -> list[tuple[str, str, int]]:
    triples: list[tuple[str, str, int]] = []
    for number, line in enumerate(lines_of(path), start=1):
        cells = line.split()
        if len(cells) != LIST_COLUMNS or not cells[2].isdecimal() or not 1 <= int(cells[2]) <= categories:
            raise UserError(
                f'{path}, line {number}: "{line[:SHOWN]}" is not a text, a picture and a category from 1 to '
                f"{categories}. Restore the file."
            )
        triples.append((cells[0], cells[1], int(cells[2])))
    return triples


def _by_stem(root: Path, pattern: str) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for path in find(root, pattern):
        found.setdefault(path.stem, path)
    return found


def _article(path: Path | None) -> str:
    if path is None:
        return ""
    content = text_of(path)
    inner = re.search(r"<text[^>]*>(.*?)</text>", content, re.DOTALL | re.IGNORECASE)
    return _plain(inner[1] if inner else content)


def pascal_sentence(root: Path, *, captions: str = "all") -> Raw:
    """Reads Pascal Sentence: a folder a class, with a picture and five sentences about it for each item.

    Args:
        root: the folder with ``dataset/<class>/*.jpg`` and ``sentence/<class>/*.txt``.
        captions: ``all`` (joined), ``first`` or ``each`` (an item a sentence; the column ``picture`` tells which belong
            together).

    Raises:
        UserError: if there are no pictures or no sentences.
    """
    sentences_of = _in_classes(find_one(root, "**/sentence/*/*.txt", "sentences about a picture").parents[1], "*/*.txt")
    files = _in_classes(find_one(root, "**/dataset/*/*.jpg", "the pictures of a class").parents[1], "*/*.jpg")
    keys = sorted({*files, *sentences_of})
    sentences = [[line for line in lines_of(sentences_of[key]) if line] if key in sentences_of else [] for key in keys]
    items = spread(keys, sentences, captions)
    chosen = [keys[row] for row in items.rows]
    names = tuple(sorted({key.split("/")[0] for key in keys}))
    pictures, notes = checked_pictures(
        root,
        [files[key].relative_to(root).as_posix() if key in files else "" for key in chosen],
        "Put the pictures into dataset/<class> again.",
    )
    texts, cut = as_texts(items.texts)
    return Raw(
        ids=np.array(items.ids, np.str_),
        image=pictures,
        text=texts,
        labels=multi_hot([[names.index(key.split("/")[0])] for key in chosen], len(names)),
        label_names=names,
        notes={
            "captions": captions,
            **notes,
            **counts({"pictures without a sentence": len(keys) - len(sentences_of), "texts that were cut": cut}),
        },
        columns={"picture": np.array(chosen, np.str_)},
    )


def _in_classes(folder: Path, pattern: str) -> Mapping[str, Path]:
    """Returns ``class/stem`` -> file."""
    return {f"{path.parent.name}/{path.stem}": path for path in find(folder, pattern)}
