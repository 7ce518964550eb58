"""One check of a contract, and the error of one that fails."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from silohash.base.types import Arrays, ReadArrays


class ContractError(AssertionError):
    """A method does not fulfill its contract."""


@dataclass(frozen=True)
class Check:
    """One check of a contract.

    Attributes:
        name: The name, such as ``contrast-recommended-learns-both``.
        run: Performs the check.
    """

    name: str
    run: Callable[[], None]

    def __call__(self) -> None:
        """Perform the check.

        Raises:
            ContractError: If the method does not fulfill the contract.
        """
        self.run()

    def __str__(self) -> str:
        """Return the name."""
        return self.name


def require(condition: bool, message: str) -> None:
    """Raise `ContractError` with a message unless a condition holds."""
    if not condition:
        raise ContractError(message)


def require_finite(values: Mapping[str, object], what: str) -> None:
    """Raise `ContractError` if any of the named arrays or numbers holds NaN or infinity."""
    for name, value in values.items():
        require(value is not None and bool(np.isfinite(np.asarray(value)).all()), f"{what} {name} is not finite.")


def same_arrays(first: ReadArrays, second: ReadArrays) -> bool:
    """Return whether two mappings hold the same arrays, bit for bit."""
    return set(first) == set(second) and all(
        array.dtype == second[name].dtype and array.tobytes() == second[name].tobytes() for name, array in first.items()
    )


def first_difference(first: Arrays, second: Arrays) -> str:
    """Return the name of the first array in which two mappings differ; empty if they hold the same arrays."""
    names: Iterable[str] = sorted({*first, *second})
    one = ({name: arrays[name]} if name in arrays else {} for name in names for arrays in (first, second))
    pairs = zip(one, one, strict=True)
    return next((name for name, (a, b) in zip(names, pairs, strict=True) if not same_arrays(a, b)), "")
