"""Small files as Matlab and Python write them, for the tests of their readers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import scipy.io
import scipy.sparse

from silohash.data.formats.matlab import MatFile, open_mat

USER_BLOCK_BYTES = 512
CLASSES = {"f8": "double", "f4": "single", "u1": "uint8", "i8": "int64", "b1": "logical"}


def write_v73(path: Path, variables: Mapping[str, Any]) -> None:
    """Writes what Matlab's ``save -v7.3`` would: a user block, reversed axes, classes, cells as references."""
    with h5py.File(path, "w", userblock_size=USER_BLOCK_BYTES) as file:
        for name, value in variables.items():
            _put(file, file, name, value)
    header = b"MATLAB 7.3 MAT-file, Platform: GLNXA64, Created on: Mon Jan  1 00:00:00 2018 HDF5 schema 1.00 ."
    with path.open("r+b") as stream:
        stream.write(header.ljust(124) + b"\x00\x02IM")


def _put(file: h5py.File, group: h5py.Group, name: str, value: Any) -> None:
    if isinstance(value, Mapping):
        inner = group.create_group(name)
        inner.attrs["MATLAB_class"] = np.bytes_("struct")
        for field, content in value.items():
            _put(file, inner, field, content)
    elif scipy.sparse.issparse(value):
        columns = value.tocsc()
        inner = group.create_group(name)
        inner.attrs["MATLAB_class"] = np.bytes_("double")
        inner.attrs["MATLAB_sparse"] = np.uint64(columns.shape[0])
        inner["jc"] = columns.indptr.astype(np.uint64)
        if columns.nnz:
            inner["data"], inner["ir"] = columns.data.astype(np.float64), columns.indices.astype(np.uint64)
    elif isinstance(value, np.ndarray) and value.dtype.kind in "OU":
        references = np.empty(value.shape[::-1], dtype=h5py.ref_dtype)
        for place, text in np.ndenumerate(value):
            references[place[::-1]] = _characters(file, text)
        dataset = group.create_dataset(name, data=references, dtype=h5py.ref_dtype)
        dataset.attrs["MATLAB_class"] = np.bytes_("cell")
    else:
        dataset = group.create_dataset(name, data=np.asarray(value).T)
        dataset.attrs["MATLAB_class"] = np.bytes_(CLASSES[np.asarray(value).dtype.str[1:]])


def _characters(file: h5py.File, text: str) -> h5py.Reference:
    cells = file.require_group("#refs#")
    name = f"cell{len(cells)}"
    if text:
        dataset = cells.create_dataset(name, data=np.array([[ord(letter)] for letter in text], dtype=np.uint16))
    else:
        dataset = cells.create_dataset(name, data=np.zeros(2, np.uint64))
        dataset.attrs["MATLAB_empty"] = np.uint8(1)
    dataset.attrs["MATLAB_class"] = np.bytes_("char")
    return dataset.ref


def write_hdf5(path: Path, variables: Mapping[str, Any]) -> None:
    """Writes what Python would: plain arrays in their natural order."""
    with h5py.File(path, "w") as file:
        for name, value in variables.items():
            file[name] = value


def write_mat(kind: str, path: Path, variables: Mapping[str, Any]) -> MatFile:
    """Writes a file of the kind ``v5``, ``v7.3`` or ``hdf5``, and opens it."""
    if kind == "v5":
        scipy.io.savemat(path, variables, appendmat=False, do_compression=True)
    else:
        {"v7.3": write_v73, "hdf5": write_hdf5}[kind](path, variables)
    return open_mat(path)


def cell(texts: Sequence[Any]) -> np.ndarray:
    """Returns a column of cells, ``(N, 1)``, or ``(N, k)`` of several strings an item."""
    rows = [[text] if isinstance(text, str) else list(text) for text in texts]
    cells = np.empty((len(rows), len(rows[0])), dtype=object)
    for place in np.ndindex(cells.shape):
        cells[place] = rows[place[0]][place[1]]
    return cells


def photographs(count: int, height: int = 16, width: int = 12, seed: int = 0) -> np.ndarray:
    """Returns pictures with a bright top of changing brightness, as photographs have, ``(N, H, W, 3)`` uint8."""
    draws = np.random.default_rng(seed)
    pictures = draws.integers(0, 60, (count, height, width, 3))
    sky = draws.integers(0, 190, (count, 1, 1, 3))
    pictures[:, : height // 2] += sky
    return pictures.astype(np.uint8)
