"""Whether codes collapse: how many of them are distinct, and how much their bits tell of each other.

Silos count, over their training items, the distinct codes and how often two bits are set together. These counts add up.

Source: T. Cover, J. Thomas, "Elements of Information Theory", 2nd edition 2006, section 2.3, for mutual information.
"""

from dataclasses import dataclass
from typing import Annotated, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field

LEAST_DISTINCT = 0.5
"""Smallest share of distinct codes of a model whose codes have not collapsed."""

MOST_REPEATED = 0.5
"""Largest mutual information per bit of such a model."""

COLLAPSED = (
    "A search cannot put items with the same code in order. Lower the learning rate or the weight of the quantization loss, "
    "make codes shorter, or choose a local method whose codes tell items of one class apart."
)
"""What follows from codes that collapsed, and what to do."""

Share = Annotated[float, Field(ge=0, le=1)]


class CodeCounts(NamedTuple):
    """Counts over the items of one modality, as float64.

    Attributes:
        totals: Number of items, of their distinct inputs and of their distinct codes, ``(3,)``.
        together: Number of items with both of two bits set, ``(bits, bits)``, and with one bit on the diagonal.
    """

    totals: npt.NDArray[np.float64]
    together: npt.NDArray[np.float64]


@dataclass(frozen=True)
class CodeUse:
    """How much of their length the codes of a modality use.

    Attributes:
        distinct: Number of distinct codes per distinct input, counted within each silo, from 0 to 1.
        repeated: Mean over bits of the largest mutual information with another bit, in bits: 0 if no bit tells anything of
            another one, and 1 if all bits are balanced and have a copy.
    """

    distinct: Share
    repeated: Share

    @classmethod
    def learned(cls, counts: CodeCounts) -> Self:
        """Return the use of the codes from the sums of the counts of at least one item."""
        items, inputs, distinct = counts.totals.tolist()
        both, one = counts.together / items, np.diag(counts.together) / items
        cells = np.stack([both, one[:, None] - both, one - both, 1 - one[:, None] - one + both])
        joint = -(cells * np.log2(np.where(cells > 0, cells, 1))).sum(0)
        shared = np.diag(joint)[:, None] + np.diag(joint) - joint
        np.fill_diagonal(shared, 0)
        return cls(min(1.0, distinct / inputs), float(np.clip(shared.max(axis=1), 0, 1).mean()))

    @property
    def words(self) -> str:
        """The two values, in words."""
        return f"{100 * self.distinct:.0f} % distinct, {self.repeated:.2f} bits of mutual information per bit"

    @property
    def collapsed(self) -> bool:
        """Whether many items share a code that should not, or bits mostly repeat each other."""
        return self.distinct < LEAST_DISTINCT or self.repeated > MOST_REPEATED
