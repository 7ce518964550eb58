"""Read a user's folder: ``metadata.csv``, ``.jsonl`` or ``.parquet``, and pictures or given features.

The metadata has the columns ``file_name`` (relative to the folder), ``text``, and optionally ``labels`` (joined with
``|``, or a list), ``id`` and ``split``. Every other column is kept and can be partitioned by. ``image.npy`` and
``text.npy`` beside it hold given features in the order of the rows; a row of NaN stands for a missing modality.
``labels.txt`` lists the allowed labels, one per line. A row that cannot be used is left out and named on the archive's
card.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from silohash.data.archive import Archive, ArchiveCard, Features, Texts, as_texts, multi_hot
from silohash.data.formats.metadata import KNOWN, MetadataRow, find_metadata, read_metadata
from silohash.data.pictures.checking import Verdict, check_pictures
from silohash.data.pictures.packing import PictureFiles
from silohash.data.splits import default_splits, splits_of
from silohash.types import Modality, Rows, UserError

MOST_LABELS = 4096
Column = TypeVar("Column", PictureFiles, Texts)
SPLIT_OF = {
    "query": "query",
    "test": "query",
    "database": "database",
    "validation": "database",
    "train": "train",
}
"""Values of the column ``split``, and the split that each means. Items to train on are searched as well."""


@dataclass(frozen=True)
class _Given:
    """Given features of one modality: the file, ``(N, D)`` values, and which rows are present or broken, ``(N,)``."""

    path: Path
    values: Features
    present: npt.NDArray[np.bool_]
    broken: npt.NDArray[np.bool_]


@dataclass(frozen=True)
class _Item:
    """A row of the metadata, and its place among all rows of the file."""

    place: int
    row: MetadataRow
    id: str
    has_image: bool
    has_text: bool

    @property
    def file_name(self) -> str:
        """Name of the picture, or an empty string."""
        return self.row.values.get("file_name", "")


@dataclass(frozen=True)
class _Folder:
    """What is read of a folder before its rows are judged."""

    path: Path
    metadata: Path
    rows: list[MetadataRow]
    given: Mapping[Modality, _Given]
    allowed: tuple[str, ...] | None
    verdicts: Mapping[str, Verdict]


def read_folder(
    path: Path, *, image: str | None = None, text: str | None = None, labels: Sequence[str] | None = None
) -> Archive:
    """Open a user's folder.

    Args:
        path: the folder.
        image: file of given picture features, relative to the folder; by default ``image.npy`` if it exists.
        text: file of given text features; by default ``text.npy`` if it exists.
        labels: the allowed labels, in the order of the columns; by default the lines of ``labels.txt`` if it exists,
            otherwise every label that occurs, in alphabetical order.

    Raises:
        UserError: if the metadata is missing or unreadable, given features do not fit it, or no row can be used.
    """
    metadata = find_metadata(path)
    rows = read_metadata(metadata)
    given: dict[Modality, _Given] = {}
    files: tuple[tuple[Modality, str | None], ...] = (("image", image), ("text", text))
    for modality, named in files:
        file = path / (named or f"{modality}.npy")
        if named is not None or file.is_file():
            given[modality] = _given(file, metadata, len(rows))
    names = [row.values["file_name"] for row in rows if row.values.get("file_name")]
    verdicts = check_pictures(path, names) if "image" not in given else {}
    folder = _Folder(path, metadata, rows, given, _allowed_labels(path, labels), verdicts)
    items, skipped = _judged(folder)
    if not items:
        raise UserError(f"None of the {len(rows):,} rows of {metadata} can be used. The first: {skipped[0]}.")
    return _archive(folder, items, skipped)


def _given(path: Path, metadata: Path, count: int) -> _Given:
    if not path.is_file():
        raise UserError(
            f"{path} is missing. Give the file of features relative to {metadata.parent}, or leave the option out."
        )
    try:
        values = np.load(path, allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise UserError(f"{path} is damaged or not a plain numpy file ({error}). Write it with numpy.save.") from error
    if values.ndim != 2 or not values.size or values.dtype.kind not in "fiub":
        raise UserError(
            f"{path} holds {values.dtype} of shape {values.shape}. It must hold numbers of shape (rows, features)."
        )
    if len(values) != count:
        raise UserError(
            f"{path} has {len(values):,} rows and {metadata} has {count:,}. "
            "The features need one row per row of the metadata, in the same order."
        )
    with np.errstate(over="ignore"):
        values = values.astype(np.float32)
    finite = np.isfinite(values).all(axis=1)
    return _Given(path, values, finite, ~finite & ~np.isnan(values).all(axis=1))


def _allowed_labels(folder: Path, labels: Sequence[str] | None) -> tuple[str, ...] | None:
    if labels is not None:
        return tuple(labels.split("|") if isinstance(labels, str) else labels)
    path = folder / "labels.txt"
    if not path.is_file():
        return None
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 ({error}). Save it as UTF-8.") from error
    return tuple(dict.fromkeys(line.strip() for line in lines if line.strip()))


def _judged(folder: _Folder) -> tuple[list[_Item], list[str]]:
    """Return the items that can be used, and one sentence per row that cannot."""
    items: list[_Item] = []
    skipped: list[str] = []
    seen: set[str] = set()
    used: Counter[str] = Counter()
    for place, row in enumerate(folder.rows):
        item = _item(folder, place, row, used)
        problem = next(_problems(folder, item, seen), "")
        if problem:
            skipped.append(f"{folder.metadata.name}, row {row.number}: {problem}; left out")
        else:
            items.append(item)
            seen.add(item.id)
    return items, skipped


def _item(folder: _Folder, place: int, row: MetadataRow, used: Counter[str]) -> _Item:
    identity = row.values.get("id", "")
    if not identity:
        identity = row.values.get("file_name") or f"row-{row.number}"
        used[identity] += 1
        if used[identity] > 1:
            identity = f"{identity}#{used[identity]}"

    def has(modality: Modality, column: str) -> bool:
        given = folder.given.get(modality)
        return bool(row.values.get(column)) if given is None else bool(given.present[place])

    return _Item(place, row, identity, has("image", "file_name"), has("text", "text"))


def _problems(folder: _Folder, item: _Item, seen: set[str]) -> Iterator[str]:
    """Yield the reasons why an item cannot be used."""
    if item.row.problem:
        yield item.row.problem
    for features in folder.given.values():
        if features.broken[item.place]:
            yield f"{features.path.name} holds NaN or infinity in some of its features"
    verdict = folder.verdicts.get(item.file_name)
    if verdict is not None and verdict.problem:
        yield verdict.problem
    if not item.has_image and not item.has_text:
        yield "there is neither a picture nor a text"
    yield from _problems_of_values(folder, item, seen)


def _problems_of_values(folder: _Folder, item: _Item, seen: set[str]) -> Iterator[str]:
    if item.id in seen:
        yield f'the id "{item.id}" occurs in an earlier row'
    split = item.row.values.get("split")
    if split is not None and split.lower() not in SPLIT_OF:
        yield f'the split "{split}" is not one of {", ".join(SPLIT_OF)}'
    if folder.allowed is not None:
        yield from (f'the label "{label}" is not allowed' for label in item.row.labels if label not in folder.allowed)


def _archive(folder: _Folder, items: Sequence[_Item], skipped: Sequence[str]) -> Archive:
    has_image = np.array([item.has_image for item in items])
    has_text = np.array([item.has_text for item in items])
    words, cut = as_texts([item.row.values.get("text", "") for item in items])
    image, text = _features(folder, "image", items), _features(folder, "text", items)
    labels, names = _labels(folder, items)
    splits, kind = _splits(items, has_image & has_text)
    files = _files(folder, items)
    return Archive(
        ids=np.array([item.id for item in items], dtype=np.str_),
        image=_present(files, has_image) if image is None else image,
        text=_present(words, has_text) if text is None else text,
        labels=labels,
        label_names=names,
        splits=splits,
        card=ArchiveCard(
            name=folder.path.resolve().name,
            source="the user's own folder",
            licence="the user's own",
            protocol=f"folder/{kind}-splits",
            skipped=tuple(skipped),
            notes=_notes(has_image, has_text, cut),
        ),
        columns=_columns(items),
        has_image=has_image,
        has_text=has_text,
        captions=None if text is None else words,
        preview=None if image is None else _preview(files),
    ).with_digest()


def _present(column: Column, present: npt.NDArray[np.bool_]) -> Column | None:
    return column if present.any() else None


def _notes(has_image: npt.NDArray[np.bool_], has_text: npt.NDArray[np.bool_], cut: int) -> dict[str, str]:
    counts = {
        "items without a picture": int((~has_image).sum()),
        "items without a text": int((~has_text).sum()),
        "texts that were cut": cut,
    }
    return {what: f"{count:,}" for what, count in counts.items() if count}


def _features(folder: _Folder, modality: Modality, items: Sequence[_Item]) -> Features | None:
    given = folder.given.get(modality)
    return None if given is None else given.values[[item.place for item in items]]


def _files(folder: _Folder, items: Sequence[_Item]) -> PictureFiles:
    digests = None
    if "image" not in folder.given:
        digests = [folder.verdicts[item.file_name].digest if item.file_name else "" for item in items]
    return PictureFiles(folder.path, [item.file_name for item in items], digests)


def _preview(files: PictureFiles) -> PictureFiles | None:
    """Return the pictures to look at beside given features, if every item has one that can be decoded."""
    names = dict.fromkeys(files.names)
    if "" in names or any(verdict.problem for verdict in check_pictures(files.folder, tuple(names)).values()):
        return None
    return files


def _labels(folder: _Folder, items: Sequence[_Item]) -> tuple[npt.NDArray[np.uint8] | None, tuple[str, ...]]:
    of_item = [item.row.labels for item in items]
    if not any(of_item):
        return None, ()
    names = folder.allowed or tuple(sorted({label for labels in of_item for label in labels}))
    if len(names) > MOST_LABELS:
        raise UserError(
            f"{folder.path} has {len(names):,} different labels, more than {MOST_LABELS:,}. Labels are kinds that many "
            "items share, joined with |. Put free text into the column text."
        )
    return multi_hot(of_item, names), names


def _splits(items: Sequence[_Item], whole: npt.NDArray[np.bool_]) -> tuple[dict[str, Rows], str]:
    if not any("split" in item.row.values for item in items):
        return default_splits([item.file_name or item.id for item in items], whole), "default"
    return splits_of([SPLIT_OF[item.row.values.get("split", "database").lower()] for item in items]), "given"


def _columns(items: Sequence[_Item]) -> dict[str, npt.NDArray[np.str_]]:
    names = dict.fromkeys(name for item in items for name in item.row.values if name not in KNOWN)
    return {name: as_texts([item.row.values.get(name, "") for item in items])[0] for name in names}
