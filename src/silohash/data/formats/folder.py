"""A user's own archive: a folder with ``metadata.csv``, ``.jsonl`` or ``.parquet``, and pictures or given features.

Columns of the metadata: ``file_name`` (relative to the folder), ``text``, and optionally ``labels`` (joined with ``|``,
or a list), ``id`` and ``split``; every other column is kept and can be partitioned by. ``image.npy`` and ``text.npy``
beside it hold given features in the order of the rows, in which a row of NaN stands for a missing modality.
``labels.txt`` beside it lists the labels that are allowed, one a line. A row that cannot be used is left out and named
on the archive's card.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from silohash.data.archive import Archive, ArchiveCard, Features, as_texts
from silohash.data.formats.metadata import KNOWN, MetadataRow, find_metadata, read_metadata
from silohash.data.pictures.checking import Verdict, check_pictures
from silohash.data.pictures.packing import PictureFiles
from silohash.data.splits import default_splits
from silohash.types import Rows, UserError

MOST_LABELS = 4096
SPLIT_OF = {
    "query": "query",
    "test": "query",
    "database": "database",
    "validation": "database",
    "train": "train",
}
"""What may stand in the column split, and which split it means; ``train`` is searched as well."""


@dataclass(frozen=True)
class _Given:
    """Given features of one modality: the file, ``(N, D)`` values, and which rows are whole, missing or broken."""

    path: Path
    values: Features
    present: npt.NDArray[np.bool_]
    broken: npt.NDArray[np.bool_]


@dataclass(frozen=True)
class _Item:
    """A row that can be used, and its position among all rows of the file."""

    position: int
    row: MetadataRow
    id: str
    has_image: bool
    has_text: bool

    @property
    def file_name(self) -> str:
        """Returns the picture's name, or an empty string."""
        return self.row.values.get("file_name", "")


def read_folder(
    path: Path, *, image: str | None = None, text: str | None = None, labels: Sequence[str] | None = None
) -> Archive:
    """Opens a user's own folder.

    Args:
        path: the folder.
        image: the file of given picture features, relative to the folder; ``image.npy`` if that is there.
        text: the file of given text features; ``text.npy`` if that is there.
        labels: the labels that are allowed, in the order of the columns; the lines of ``labels.txt`` if that is there,
            else every label that occurs, in alphabetical order.

    Raises:
        UserError: if the metadata is missing or unreadable, given features do not fit it, or no row can be used.
    """
    metadata = find_metadata(path)
    rows = read_metadata(metadata)
    given_image = _given(path, image, "image.npy", metadata, len(rows))
    given_text = _given(path, text, "text.npy", metadata, len(rows))
    allowed = _allowed_labels(path, labels)
    names = [row.values["file_name"] for row in rows if row.values.get("file_name")]
    verdicts = check_pictures(path, names) if given_image is None else {}
    skipped: list[str] = []
    items: list[_Item] = []
    seen: set[str] = set()
    used: Counter[str] = Counter()
    for position, row in enumerate(rows):
        item = _item(position, row, given_image, given_text, used)
        problem = _problem(item, verdicts, (given_image, given_text), allowed, seen)
        if problem:
            skipped.append(f"{metadata.name}, row {row.number}: {problem}; left out")
        else:
            items.append(item)
            seen.add(item.id)
    if not items:
        raise UserError(f"None of the {len(rows):,} rows of {metadata} can be used. The first: {skipped[0]}.")
    return _archive(path, items, skipped, (given_image, given_text), verdicts, allowed)


def _given(folder: Path, named: str | None, usual: str, metadata: Path, count: int) -> _Given | None:
    path = folder / (named or usual)
    if not path.is_file():
        if named is not None:
            raise UserError(
                f"{path} is missing. Name the file of features relative to {folder}, or leave the option out."
            )
        return None
    try:
        values = np.load(path, allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise UserError(f"{path} is damaged or no plain numpy file ({error}). Write it with numpy.save.") from error
    if values.ndim != 2 or not values.size or values.dtype.kind not in "fiub":
        raise UserError(
            f"{path} holds {values.dtype} of shape {values.shape}; it needs numbers of shape (rows, features)."
        )
    if len(values) != count:
        raise UserError(
            f"{path} has {len(values):,} rows and {metadata} has {count:,}. "
            "Each row of the features needs its row in the metadata, in the same order."
        )
    with np.errstate(over="ignore"):
        values = values.astype(np.float32)
    finite = np.isfinite(values)
    absent = np.isnan(values).all(axis=1)
    return _Given(path, values, finite.all(axis=1), ~finite.all(axis=1) & ~absent)


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


def _item(
    position: int, row: MetadataRow, given_image: _Given | None, given_text: _Given | None, used: Counter[str]
) -> _Item:
    name = row.values.get("file_name", "")
    identity = row.values.get("id", "")
    if not identity:
        identity = name or f"row-{row.number}"
        used[identity] += 1
        if used[identity] > 1:
            identity = f"{identity}#{used[identity]}"
    has_image = bool(given_image.present[position]) if given_image else bool(name)
    has_text = bool(given_text.present[position]) if given_text else bool(row.values.get("text", ""))
    return _Item(position, row, identity, has_image, has_text)


def _problem(
    item: _Item,
    verdicts: dict[str, Verdict],
    given: tuple[_Given | None, _Given | None],
    allowed: tuple[str, ...] | None,
    seen: set[str],
) -> str:
    row = item.row
    if row.problem:
        return row.problem
    for features in given:
        if features is not None and features.broken[item.position]:
            return f"{features.path.name} holds NaN or infinity in some of its features"
    if item.file_name in verdicts and verdicts[item.file_name].problem:
        return verdicts[item.file_name].problem
    if not item.has_image and not item.has_text:
        return "there is neither a picture nor a text"
    if item.id in seen:
        return f'the id "{item.id}" stands in an earlier row'
    if "split" in row.values and row.values["split"].lower() not in SPLIT_OF:
        return f'the split "{row.values["split"]}" is none of {", ".join(SPLIT_OF)}'
    unknown = [label for label in row.labels if allowed is not None and label not in allowed]
    return f'the label "{unknown[0]}" is not in the list of labels' if unknown else ""


def _archive(
    folder: Path,
    items: Sequence[_Item],
    skipped: Sequence[str],
    given: tuple[_Given | None, _Given | None],
    verdicts: dict[str, Verdict],
    allowed: tuple[str, ...] | None,
) -> Archive:
    has_image = np.array([item.has_image for item in items])
    has_text = np.array([item.has_text for item in items])
    words, cut = as_texts([item.row.values.get("text", "") for item in items])
    given_image, given_text = given
    digests = [verdicts[item.file_name].digest if item.file_name else "" for item in items] if not given_image else None
    files = PictureFiles(folder, [item.file_name for item in items], digests)
    labels, names = _labels(items, allowed, folder)
    splits, kind = _splits(items, has_image & has_text)
    pictures = files if has_image.any() else None
    texts = words if has_text.any() else None
    return Archive(
        ids=np.array([item.id for item in items], dtype=np.str_),
        image=pictures if given_image is None else _features(given_image, items),
        text=texts if given_text is None else _features(given_text, items),
        labels=labels,
        label_names=names,
        splits=splits,
        card=ArchiveCard(
            name=folder.resolve().name,
            source="the user's own folder",
            licence="the user's own",
            protocol=f"folder/{kind}-splits",
            skipped=tuple(skipped),
            notes=_notes(has_image, has_text, cut),
        ),
        columns=_columns(items),
        has_image=has_image,
        has_text=has_text,
        captions=words if given_text is not None else None,
        preview=_preview(files) if given_image is not None else None,
    ).with_digest()


def _notes(has_image: npt.NDArray[np.bool_], has_text: npt.NDArray[np.bool_], cut: int) -> dict[str, str]:
    counts = {
        "items without a picture": int((~has_image).sum()),
        "items without a text": int((~has_text).sum()),
        "texts that were cut": cut,
    }
    return {what: f"{count:,}" for what, count in counts.items() if count}


def _features(given: _Given, items: Sequence[_Item]) -> Features:
    return given.values[[item.position for item in items]]


def _preview(files: PictureFiles) -> PictureFiles | None:
    """Returns the pictures to look at beside given features, if every item has one."""
    names = dict.fromkeys(files.names)
    if "" in names or any(verdict.problem for verdict in check_pictures(files.folder, tuple(names)).values()):
        return None
    return files


def _labels(
    items: Sequence[_Item], allowed: tuple[str, ...] | None, folder: Path
) -> tuple[npt.NDArray[np.uint8] | None, tuple[str, ...]]:
    names = allowed or tuple(sorted({label for item in items for label in item.row.labels}))
    if not any(item.row.labels for item in items):
        return None, ()
    if len(names) > MOST_LABELS:
        raise UserError(
            f"{folder} has {len(names):,} different labels, more than {MOST_LABELS:,}. Labels are kinds that many "
            "items share, joined with |; put free text into the column text."
        )
    column = {name: position for position, name in enumerate(names)}
    labels = np.zeros((len(items), len(names)), dtype=np.uint8)
    for row, item in enumerate(items):
        labels[row, [column[label] for label in item.row.labels]] = 1
    return labels, names


def _splits(items: Sequence[_Item], whole: npt.NDArray[np.bool_]) -> tuple[dict[str, Rows], str]:
    if not any("split" in item.row.values for item in items):
        return default_splits([item.file_name or item.id for item in items], whole), "default"
    part = np.array([SPLIT_OF[item.row.values.get("split", "database").lower()] for item in items])
    return {
        "query": np.flatnonzero(part == "query"),
        "database": np.flatnonzero(part != "query"),
        "train": np.flatnonzero(part == "train"),
    }, "given"


def _columns(items: Sequence[_Item]) -> dict[str, npt.NDArray[np.str_]]:
    names = dict.fromkeys(name for item in items for name in item.row.values if name not in KNOWN)
    return {name: as_texts([item.row.values.get(name, "") for item in items])[0] for name in names}
