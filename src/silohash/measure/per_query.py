"""Store a run's measures per query, for paired comparisons of two runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import cast

import numpy as np
import numpy.typing as npt

from silohash.base.files import read_arrays, write_arrays
from silohash.base.forms import damaged
from silohash.base.types import Evaluation, Task
from silohash.measure.evaluation import Figures

MEASURE_AGAIN = 'Remove it and run "silohash evaluate" on the run.'

Key = tuple[Evaluation, Task, str]
"""Evaluation, task and measure."""


def write_per_query(path: Path, figures: Figures) -> None:
    """Write ``per_query.safetensors``: one array ``evaluation/task/measure`` per figure, and the queries' digest."""
    arrays = {"/".join(key): values for key, values in figures.per_query.items()}
    write_arrays(path, arrays, {"queries": figures.queries})


def read_per_query(path: Path) -> tuple[Mapping[Key, npt.NDArray[np.float64]], str]:
    """Read a file that `write_per_query` wrote.

    Returns:
        One ``(Q,)`` float64 array per figure, with NaN for queries that are not counted, and a digest of the query
        ids.

    Raises:
        UserError: If the file is missing or damaged.
    """
    arrays, about = read_arrays(path, remedy=MEASURE_AGAIN, missing='Run "silohash evaluate" on the run first.')
    found: dict[Key, npt.NDArray[np.float64]] = {}
    for name, values in arrays.items():
        parts = name.split("/", 2)
        if len(parts) < 3 or values.ndim != 1 or values.dtype != np.float64:
            raise damaged(path, f'it holds an array "{name}" of {values.dtype} and shape {values.shape}', MEASURE_AGAIN)
        found[cast(Key, tuple(parts))] = values
    return found, str(about.get("queries", ""))
