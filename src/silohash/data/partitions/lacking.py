"""The silos of a partition that lack pictures, texts or pairs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from silohash.base.seeds import numpy_generator
from silohash.base.types import Rows, UserError
from silohash.data.partitions.kinds import share

LACKING: Mapping[str, str] = {"missing_image": "pictures", "missing_text": "texts", "unpaired": "pairs"}
"""Setting of a partition, the share of the silos that lack something -> what they lack."""


def affected(part: float, silos: int) -> int:
    """Return a share of the silos as a number: rounded half up, and at least one if the share is above 0."""
    return max(1, math.floor(part * silos + 0.5)) if part > 0 else 0


def silos_that_lack(settings: Mapping[str, Any], silos: int, seed: int) -> dict[str, Rows]:
    """Choose the silos that each setting of `LACKING` affects, at random. No silo is affected by two of them.

    Args:
        settings: The settings of the partition.
        silos: Number of silos.
        seed: Seed of the partition.

    Returns:
        Setting -> positions of the silos.

    Raises:
        UserError: If a setting is not a share, or they affect more silos than there are.
    """
    counts = {name: affected(share(settings, name), silos) for name in LACKING}
    if sum(counts.values()) > silos:
        taken = ", ".join(f"{name} takes the {LACKING[name]} of {count}" for name, count in counts.items() if count)
        raise UserError(
            f"[partition] {taken} silos, and each of the {silos} silos can lack one of these only. Lower one of them."
        )
    order = numpy_generator(seed, "partition missing modality").permutation(silos)
    ends = np.cumsum(list(counts.values()))
    return dict(zip(counts, np.split(order[: ends[-1]], ends[:-1]), strict=True))
