"""What a silo stores between rounds, on its own disk.

The server receives a reference in place of the arrays, keeps it like the arrays of a run on one machine, and returns it with
the silo's next task. A silo therefore continues from the round that the server continues from, even if the server has lost
later rounds.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from silohash.base.files import read_arrays, write_arrays
from silohash.base.types import Arrays, ReadArrays, UserError
from silohash.methods.federated.refusal import infinite_array

REFERENCE = "stored"
"""Name of the array that refers to a file: ``(2,)`` int64, the round and the number of the task within the round."""


class KeptArrays:
    """The arrays that a silo keeps, one file per task that keeps any.

    Args:
        folder: The folder of the files.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def load(self, reference: ReadArrays) -> Arrays:
        """Return the arrays that a reference stands for. An empty reference stands for no arrays.

        Raises:
            UserError: If the file is missing or damaged, or the reference is not one of `store`.
        """
        if not reference:
            return {}
        return read_arrays(self._path(*self._place(reference)))[0]

    def store(self, arrays: ReadArrays, *, round: int, finishing: bool) -> Arrays:  # noqa: A002  the field's word
        """Write arrays, and return the reference to them. Nobody but the owner of the file may read it.

        Args:
            arrays: The arrays. If there are none, nothing is written, and the reference is empty.
            round: The round that ends with them.
            finishing: Whether they replace those of the same round, in which the silo waited for merged statistics.

        Raises:
            UserError: If they are not finite, because no later round could use them, or the disk is full.
        """
        if not arrays:
            return {}
        reason = infinite_array("its stored ", arrays)
        if reason is not None:
            raise UserError(
                f"{reason[0].upper()}{reason[1:]}. Lower train.learning_rate, or set train.clip_norm = 1.0."
            )
        place = (round, int(finishing))
        self.folder.mkdir(parents=True, exist_ok=True)
        write_arrays(self._path(*place), {name: arrays[name] for name in arrays}, private=True)
        return {REFERENCE: np.array(place, np.int64)}

    def remove_all_but(self, *references: ReadArrays) -> None:
        """Remove all files but those that references stand for.

        When a round begins, the server has saved the state that it begins with. A run can only continue from that state
        and from the best one, so no other file is needed.
        """
        spared = {self._path(*self._place(reference)).name for reference in references if reference}
        for path in self.folder.glob("*.safetensors"):
            if path.name not in spared:
                path.unlink(missing_ok=True)

    def _place(self, reference: ReadArrays) -> tuple[int, int]:
        place = reference.get(REFERENCE)
        if place is None or place.shape != (2,) or place.dtype != np.int64 or (place < 0).any():
            raise UserError(
                "The server sent a reference to stored arrays that this silo did not make. Install the same version of "
                "silohash everywhere, and train a new run."
            )
        return int(place[0]), int(place[1])

    def _path(self, round: int, task: int) -> Path:  # noqa: A002  the field's word
        return self.folder / f"{round:08d}-{task}.safetensors"
