"""The compiled loop that counts items with several codes by the distance of the nearest one."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import types
from numba.extending import intrinsic

from silohash.evaluate.kernels import compiled

Words = npt.NDArray[np.uint64]


def _emit_set_bits(_context: Any, _word: Any) -> Any:  # noqa: ANN401  numba's own types
    """Define the number of set bits of a word for numba: one instruction if the processor has it."""

    def generate(_context: Any, builder: Any, _signature: Any, values: Any) -> Any:  # noqa: ANN401
        """Emit the instruction."""
        return builder.ctpop(values[0])

    return types.uint64(types.uint64), generate


_set_bits: Any = intrinsic(_emit_set_bits)


@compiled
def count_nearest(
    queries: Words,
    sides: Words,
    held: npt.NDArray[np.bool_],
    query_labels: Words,
    labels: Words,
    counts: npt.NDArray[np.int64],
) -> None:
    """Count the items at each distance from each query, by their number of shared labels.

    Args:
        queries: ``(Q, W)`` codes.
        sides: ``(S, N, W)`` codes of the items on each side.
        held: ``(S, N)``, which items have a code on each side.
        query_labels: ``(Q, L)`` bit masks.
        labels: ``(N, L)`` bit masks.
        counts: ``(Q, bits + 1, levels)``, to which the counts are added. The last level takes all higher numbers.
    """
    farthest, highest = counts.shape[1], counts.shape[2] - 1
    for query in range(len(queries)):
        for item in range(sides.shape[1]):
            nearest = np.int64(farthest)
            for side in range(len(sides)):
                if held[side, item]:
                    distance = np.int64(0)
                    for word in range(queries.shape[1]):
                        distance += np.int64(_set_bits(queries[query, word] ^ sides[side, item, word]))
                    nearest = min(nearest, distance)
            shared = np.int64(0)
            for word in range(labels.shape[1]):
                shared += np.int64(_set_bits(query_labels[query, word] & labels[item, word]))
            counts[query, nearest, min(shared, highest)] += 1
