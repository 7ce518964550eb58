"""Partition by the values of a column: one silo per value, or per group of values."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain, count

import numpy as np
import numpy.typing as npt

from silohash.base.errors import ConflictingOptions, RepeatedValue, SettingNeeded, TooFew, UnknownName, WrongType
from silohash.base.names import canonical, describe_near, one_spelling, tidy
from silohash.base.registry import suggestion
from silohash.base.types import Rows
from silohash.data.archive import Archive
from silohash.data.formats.doubts import stands_for_nothing

REST = "*"
"""In ``groups``: every value that no silo names."""


def silos_of_values(
    archive: Archive, column: object, groups: object, silos: int | None
) -> tuple[list[str], npt.NDArray[np.int64]]:
    """Return the names of the silos, and the silo of each item by its value of a column.

    Without ``groups``, each of the ``silos`` largest values gets a silo of its own, named after the value. The values that
    are left go, largest first, to the silo that holds the fewest items so far. With ``groups`` (silo name -> values, where
    ``"*"`` stands for all values that no silo names), every value must have a place. Without a number of silos, there is
    one per value or group.

    Raises:
        UserError: If the column does not exist, it has too few values, or a value has no place.
    """
    listed = ", ".join(archive.columns) or "no columns"
    if column is None:
        raise SettingNeeded(f"[partition] column is not set. Set it to a column of the archive, which has: {listed}.")
    if column not in archive.columns:
        near = suggestion(str(column), archive.columns)
        raise UnknownName(f'Archive "{archive.card.name}" has no column "{column}"{near}; it has: {listed}.')
    names, inverse, sizes = values_of(archive.columns[str(column)])
    if groups is None:
        silo_names, silo_of = _by_size(names, sizes, silos, str(column))
    else:
        checked = _checked_groups(groups, silos)
        silo_names, silo_of = list(checked), _by_groups(names, checked, str(column))
    return folder_names(silo_names), silo_of[inverse]


def remark_on_values(archive: Archive, column: object) -> str:
    """Return sentences if values of a partition's column are missing, or look similar and the card does not say so."""
    if column not in archive.columns:
        return ""
    what, (values, _, sizes) = f'values of column "{column}"', values_of(archive.columns[str(column)])
    near = "" if any(what in warning for warning in archive.card.warnings) else describe_near(what, values)
    without = sum(
        size for value, size in zip(values, sizes.tolist(), strict=True) if not value or stands_for_nothing(value)
    )
    missing = f'Some items ({without:,}) have no value in column "{column}" and are one group.' if without else ""
    return " ".join(filter(None, [near, missing]))


def values_of(column: npt.NDArray[np.str_]) -> tuple[list[str], Rows, Rows]:
    """Return the different values of a column in alphabetical order, the place of each item's value, and their counts.

    Values that differ only in how they were typed are one (`silohash.base.names`).
    """
    typed, inverse, sizes = np.unique(column, return_inverse=True, return_counts=True)
    names = [tidy(str(value)) for value in typed]
    uses: Counter[str] = Counter()
    for name, size in zip(names, sizes.tolist(), strict=True):
        uses[name] += size
    spelling = one_spelling(uses)
    chosen = [spelling.get(name, name) for name in names]
    values, place = np.unique(np.array(chosen, dtype=np.str_), return_inverse=True)
    of_item = place[inverse.reshape(-1)]
    return [str(value) for value in values], of_item, np.bincount(of_item, minlength=len(values))


def _by_size(
    values: list[str], sizes: npt.NDArray[np.int64], silos: int | None, column: str
) -> tuple[list[str], npt.NDArray[np.int64]]:
    wanted = len(values) if silos is None else silos
    if wanted > len(values):
        raise TooFew(
            f'[partition] silos is {wanted}, and the number of different values in column "{column}" is {len(values)}. '
            f"Set silos = {len(values)} or fewer, or use another column."
        )
    order = np.argsort(-sizes, kind="stable")
    silo_of = np.argsort(order)
    load = sizes[order[:wanted]]
    for value in order[wanted:]:
        silo_of[value] = load.argmin()
        load[silo_of[value]] += sizes[value]
    return [values[value] for value in order[:wanted]], silo_of


def _checked_groups(groups: object, silos: int | None) -> dict[str, Sequence[str]]:
    if not isinstance(groups, Mapping) or not groups or any(isinstance(named, str) for named in groups.values()):
        raise WrongType(
            '[partition] groups must name silos and lists of values, as groups = {north = ["no", "se"], rest = ["*"]}.'
        )
    if silos is not None and silos != len(groups):
        raise ConflictingOptions(
            f"[partition] silos is {silos} and groups names {len(groups)}. Set silos = {len(groups)}."
        )
    return {str(name): named for name, named in groups.items()}


def _by_groups(values: list[str], groups: Mapping[str, Sequence[str]], column: str) -> npt.NDArray[np.int64]:
    place: dict[str, int] = {}
    known = {canonical(value): value for value in (*values, REST)}
    for silo, named in enumerate(groups.values()):
        for given in named:
            value = known.get(canonical(str(given)))
            if value is None:
                near = suggestion(str(given), values)
                raise UnknownName(f'[partition] groups names "{given}"{near}, and column "{column}" has no such value.')
            if value in place:
                raise RepeatedValue(f'[partition] groups names "{value}" more than once. Give each value one silo.')
            place[value] = silo
    without = [value for value in values if value not in place]
    if without and REST not in place:
        raise SettingNeeded(
            f'[partition] groups leaves out {len(without)} values of column "{column}", "{without[0]}" among them. '
            f'Name them, or give one silo the value "{REST}" (all others).'
        )
    return np.array([place.get(value, place.get(REST, 0)) for value in values], np.int64)


def folder_names(names: Sequence[str]) -> list[str]:
    """Return names that can be the names of folders, all different, in the same order.

    Example:
        >>> folder_names(["Latin", "a/b", "a:b", ""])
        ['Latin', 'a-b', 'a-b-2', 'none']
    """
    found: list[str] = []
    taken: set[str] = set()
    for name in names:
        stem = re.sub(r"[^\w .-]+", "-", name).strip(" .-")[:60] or "none"
        numbered = chain([stem], (f"{stem}-{number}" for number in count(2)))
        candidate = next(name for name in numbered if name.casefold() not in taken)
        taken.add(candidate.casefold())
        found.append(candidate)
    return found
