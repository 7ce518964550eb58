"""The files of the data sets that ``SILOHASH_DATA`` names: where they are, how tables and features are read."""

from __future__ import annotations

import csv
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from silohash.data.archive import Features, Pictures, Texts, as_texts
from silohash.data.pictures.packing import read_npz
from silohash.registry import suggestion
from silohash.types import Rows, UserError

MOBILENET_STEP = 0.023528477
"""What one unit of the 8-bit activations stands for."""

TEXT_OPTIONS = ("caption", "bow", "minilm")


def data_root() -> Path:
    """Returns the folder of data sets: ``SILOHASH_DATA``, else ``../shared/data`` from here or from the repository.

    Raises:
        UserError: if there is none.
    """
    named = os.environ.get("SILOHASH_DATA")
    if named:
        if not Path(named).is_dir():
            raise UserError(
                f"SILOHASH_DATA is {named}, which is no folder. Set it to the folder that holds coco18, fashion, …"
            )
        return Path(named)
    for start in (Path.cwd(), Path(__file__).resolve().parents[3]):
        candidate = start.parent / "shared" / "data"
        if candidate.is_dir():
            return candidate
    raise UserError(
        "The data sets are not here: there is no folder ../shared/data. "
        "Set SILOHASH_DATA to the folder that holds coco18, fashion, …, or use the embedded archive glyphs."
    )


def need(dataset: str, file: str) -> Path:
    """Returns the path of a data set's file.

    Raises:
        UserError: if it is missing; names the file and ``SILOHASH_DATA``.
    """
    path = data_root() / dataset / file
    if not path.exists():
        raise UserError(
            f"{path} is missing, and {dataset} needs it. Put it there, or set SILOHASH_DATA to where it lies."
        )
    return path


def choice(dataset: str, option: str, value: object, known: Sequence[str]) -> str:
    """Returns an option's value.

    Raises:
        UserError: if it is none of the known ones.
    """
    if value not in known:
        near = suggestion(str(value), known)
        raise UserError(f'{dataset}: {option} cannot be "{value}"{near}; it can be: {", ".join(known)}.')
    return str(value)


def table(dataset: str, file: str) -> list[dict[str, str]]:
    """Reads a CSV table.

    Raises:
        UserError: if it is missing or damaged.
    """
    path = need(dataset, file)
    try:
        with path.open(encoding="utf-8", newline="") as stream:
            return list(csv.DictReader(stream, strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{path} is damaged ({error}). Restore the file.") from error


def array(dataset: str, file: str) -> np.ndarray:
    """Reads an ``.npy`` file, never a pickled one.

    Raises:
        UserError: if it is missing or damaged.
    """
    path = need(dataset, file)
    try:
        loaded: np.ndarray = np.load(path, allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise UserError(f"{path} is damaged or of another kind ({error}). Restore the file.") from error
    return loaded


def arrays(dataset: str, file: str, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Reads named arrays of an ``.npz`` file."""
    return read_npz(need(dataset, file), names)


def mobilenet(dataset: str) -> Features:
    """Returns the MobileNetV2 activations of a data set's pictures, ``(N, 1280)`` float32 from 0 to 6."""
    return array(dataset, "features/image_mobilenetv2.npy").astype(np.float32) * np.float32(MOBILENET_STEP)


def text_features(dataset: str, text: str) -> Features:
    """Returns given features of a data set's texts, ``(M, V)`` float32: word counts or sentence vectors."""
    if text == "bow":
        return arrays(dataset, "features/text_bow.npz", ("bow",))["bow"].astype(np.float32)
    return array(dataset, "features/text_minilm.npy").astype(np.float32)


@dataclass(frozen=True)
class Shown:
    """The two columns of an archive as its options choose them, and what people are shown in their place."""

    image: Pictures | Features
    text: Texts | Features
    captions: Texts | None
    preview: Pictures | None


def shown(
    dataset: str,
    pictures: Pictures,
    captions: Sequence[str],
    *,
    image: str,
    text: str,
    item_rows: tuple[Rows, Rows] | None = None,
) -> Shown:
    """Chooses the columns of a data set that has pictures, captions and features of both.

    Args:
        dataset: its folder's name.
        pictures: one an item.
        captions: one an item.
        image: ``mobilenet`` for given features, anything else for the pictures.
        text: one of `TEXT_OPTIONS`.
        item_rows: the rows of the picture features and of the text features that belong to each item.
    """
    words, _ = as_texts(captions)
    image_features = mobilenet(dataset) if image == "mobilenet" else None
    text_given = text_features(dataset, text) if text != "caption" else None
    if item_rows is not None:
        image_features = image_features[item_rows[0]] if image_features is not None else None
        text_given = text_given[item_rows[1]] if text_given is not None else None
    return Shown(
        image=pictures if image_features is None else image_features,
        text=words if text_given is None else text_given,
        captions=None if text_given is None else words,
        preview=None if image_features is None else pictures,
    )


def one_hot(values: Sequence[str]) -> tuple[npt.NDArray[np.uint8], tuple[str, ...]]:
    """Returns one label an item as ``(N, C)`` uint8, and the C names in alphabetical order."""
    names, column = np.unique(np.array(values, dtype=np.str_), return_inverse=True)
    labels = np.zeros((len(values), len(names)), dtype=np.uint8)
    labels[np.arange(len(values)), column] = 1
    return labels, tuple(names.tolist())


def columns_of(rows: Sequence[dict[str, str]], names: Sequence[str]) -> dict[str, npt.NDArray[np.str_]]:
    """Returns columns of a table, ``(N,)`` strings each."""
    return {name: np.array([row[name] for row in rows], dtype=np.str_) for name in names}


def rows_where(values: Sequence[str], *wanted: str) -> Rows:
    """Returns the rows whose value is one of those wanted, ascending."""
    return np.flatnonzero(np.isin(np.array(values, dtype=np.str_), wanted))


def numbered(prefix: str, count: int) -> npt.NDArray[np.str_]:
    """Returns ids of a prefix and a number."""
    return np.array([f"{prefix}-{number}" for number in range(count)], dtype=np.str_)
