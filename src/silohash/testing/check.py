"""One check of a contract, and the error of one that fails."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from silohash.base.types import Arrays, ReadArrays


class ContractError(AssertionError):
    """A method does not fulfill its contract."""


@dataclass(frozen=True)
class Check:
    """One check of a contract, with a name such as ``contrast-recommended-learns-both``."""

    name: str
    run: Callable[[], None]

    def __call__(self) -> None:
        """Perform the check, which raises `ContractError` if the method does not fulfill the contract."""
        self.run()

    def __str__(self) -> str:
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
    pairs = {name: [{name: one[name]} if name in one else {} for one in (first, second)] for name in {*first, *second}}
    return next((name for name, (one, other) in sorted(pairs.items()) if not same_arrays(one, other)), "")


def require_tower_stays(before: ReadArrays, after: ReadArrays, missing: str) -> None:
    """Require that some parameters changed, but none of the tower of a modality that the silo lacks."""
    moved = {name for name, array in after.items() if not np.array_equal(array, before[name])}
    require(bool(moved), "No parameter moves.")
    astray = sorted(name for name in moved if name.startswith(f"{missing}."))
    require(not astray, f"{', '.join(astray)} moved, although the silo has no {missing} inputs.")
