"""Codes in the forms in which they are held, read only where the form is certain.

=============================  =========================================================================
form, ``(items, bits)``        a bit is set where
=============================  =========================================================================
0 and 1, or booleans           the value is 1
-1 and +1                      the value is +1
real outputs                   the value is at least 0; each side needs values below 0 and above 0, except that a single
                               item among outputs on the other side can have any values that are not all from 0 to 1
packed bytes, with ``bits=``   it is set in ``(items, ceil(bits / 8))`` integers from 0 to 255 or int8, in a row of
                               ``bytes``, or in integers of another size that hold ``bits`` bits per row on both sides
`Codes`                        it is set in the words
=============================  =========================================================================

Numbers can have any type, so 0.0 and 1.0 are bits. Queries and database have the same form, because 0 is a clear bit in the
first form and a set one in the third.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from silohash.base.arrays import Given, same_columns, table, whole
from silohash.base.errors import AmbiguousForm, BitsDiffer, ModelsDiffer, NotFinite, UserError, WrongShape
from silohash.index.codes import BITS_LOWEST, BLOCK_ROWS, CodeBytes, Codes, Words, byte_count, pack_bits, word_type

Form: TypeAlias = Literal["Codes", "0 and 1", "-1 and +1", "real outputs", "only 0", "only 1", "nothing", "unclear"]
Table: TypeAlias = npt.NDArray[Any]

FORMS = (
    "Give a table of shape (items, bits) of 0 and 1, of -1 and +1, or of real outputs below and above 0, "
    "or packed bytes and their number of bits (bits=64)."
)


def packed_codes(queries: Codes | Given, database: Codes | Given, bits: int | None = None) -> tuple[Words, Words, int]:
    """Return the packed codes of both sides, ``(Q, W)`` and ``(N, W)``, and the code length.

    Packed bytes need the number of bits. It is checked for codes in another form.

    Raises:
        UserError: If the form is ambiguous or differs between the sides, or the codes cannot be compared.
    """
    length = None if bits is None else whole("bits", bits, BITS_LOWEST)
    sides = _tables(queries, database)
    if length is not None:
        words = len({None if isinstance(side, Codes) else (side.dtype, side.shape[1]) for side in sides}) == 1
        packed = [_as_bytes(side, length, words=words) for side in sides]
        if packed[0] is not None and packed[1] is not None:
            first, second = _unpacked([packed[0], packed[1]], length)
            return pack_bits(first), pack_bits(second), length
    common = _common_length(sides, length)
    signed = _are_signed(sides)
    first_words, second_words = (
        side.words if isinstance(side, Codes) else pack_bits(side >= 0 if signed else side > 0) for side in sides
    )
    return first_words, second_words, common


def _tables(queries: Codes | Given, database: Codes | Given) -> list[Codes | Table]:
    """Return both sides as `Codes` or as tables of numbers whose columns are joined."""
    if isinstance(queries, Codes) and isinstance(database, Codes):
        if queries.model_digest != database.model_digest:
            raise ModelsDiffer(
                f"The codes come from different models ({queries.model_digest[:12]}, {database.model_digest[:12]}) and "
                "cannot be compared. Encode both with one model."
            )
        return [queries, database]
    first, second = (side if isinstance(side, Codes) else _table(side) for side in (queries, database))
    if isinstance(queries, Given) and isinstance(database, Given):
        order = same_columns(queries, database)
        second = second if order is None else np.asarray(second)[:, order]
    return [first, second]


def _table(side: Given) -> Table:
    if isinstance(side.values, list) and all(isinstance(row, bytes) for row in side.values):
        side = replace(side, values=list(map(bytearray, side.values)))  # which NumPy reads as integers
    return table(side, FORMS)


def _as_bytes(side: Codes | Table, bits: int, *, words: bool) -> CodeBytes | None:
    """Return a side as bytes if it holds packed codes of this length, in bytes or, without padding, in words."""
    if isinstance(side, Codes) or side.dtype.kind not in "iu":
        return None
    width = byte_count(bits)
    if side.dtype == np.int8 or (words and bits % 8 == 0 and side.dtype.itemsize * side.shape[1] == width):
        side = np.ascontiguousarray(side).view(np.uint8)
    fits = side.shape[1] == width and side.min(initial=0) >= 0 and side.max(initial=0) <= 255
    return side.astype(np.uint8) if fits else None


def _unpacked(packed: list[CodeBytes], bits: int) -> list[npt.NDArray[np.bool_]]:
    """Return packed bytes as bits. Distances do not depend on the order of the bits in a byte, but the padding does."""
    word_type(bits)
    orders: dict[Literal["big", "little"], int] = {"big": (1 << -bits % 8) - 1, "little": 0xFF & ~(0xFF >> -bits % 8)}
    for order, unused in orders.items():
        if not any((side[:, -1] & np.uint8(unused)).any() for side in packed):
            return [np.unpackbits(side, axis=1, count=bits, bitorder=order).astype(bool) for side in packed]
    raise BitsDiffer(
        f"Some packed codes have bits set beyond bit {bits}, or the two sides are packed in different bit orders. "
        "Check the number of bits, and pack both sides with the same bitorder."
    )


def _common_length(sides: list[Codes | Table], bits: int | None) -> int:
    first, second = (side.bits if isinstance(side, Codes) else side.shape[1] for side in sides)
    if bits is not None and not first == second == bits:
        shapes = " and ".join("Codes" if isinstance(side, Codes) else f"{side.dtype} {side.shape}" for side in sides)
        raise WrongShape(
            f"bits is {bits}, and the codes are {shapes}. Give both sides unpacked, (items, {bits}), or both packed, "
            f"(items, {byte_count(bits)}) of 0 to 255."
        )
    if first != second:
        raise BitsDiffer(f"The queries have {first} bits and the database has {second}. Use codes of one length.")
    return int(first)


def _form(values: Codes | Table, side: str) -> Form:
    if isinstance(values, Codes):
        return "Codes"
    if not values.size:
        return "nothing"
    low, high = values.min(), values.max()
    if not np.isfinite([low, high]).all():
        row = int(np.argmin(np.isfinite(values).all(axis=1)))
        raise NotFinite(f"The codes of the {side} hold NaN or infinity in row {row}. Check what computed them.")
    if _every(values, lambda part: (part == 1) | (part == 0)):
        return "only 0" if high == 0 else "only 1" if low == 1 else "0 and 1"
    if _every(values, lambda part: (part == 1) | (part == -1)):
        return "-1 and +1"
    is_signed = values.dtype.kind == "f" and low < 0 < high
    if is_signed and (max(-low, high) <= 1 or not _every(values, lambda part: np.asarray(part == np.rint(part)))):
        return "real outputs"
    return "unclear"


def _every(values: Table, holds: Callable[[Table], Table]) -> bool:
    starts = range(0, len(values), BLOCK_ROWS)
    return all(bool(holds(values[start : start + BLOCK_ROWS]).all()) for start in starts)


def _is_one_output(values: Any) -> bool:  # noqa: ANN401  a table
    """Return whether a table holds a single item, whose numbers are not those of a sigmoid or of packed bytes."""
    return values.dtype.kind == "f" and len(values) == 1 and not (values.min() >= 0 and values.max() <= 1)


def _unclear(values: Any, side: str) -> UserError:  # noqa: ANN401  a table
    """Return an error that says why numbers are not certain to be codes."""
    low, high = values.min(), values.max()
    if values.dtype.kind in "iu":
        why = "which are neither 0 and 1 nor -1 and +1"
    elif low >= 0:
        why = "none of them below 0 (give outputs > 0.5 if they come from a sigmoid)"
    else:
        why = f"{'none of them above 0' if high <= 0 else 'all of them whole'} (give outputs >= 0 if their signs count)"
    return AmbiguousForm(f"The codes of the {side} are numbers from {low:g} to {high:g}, {why}. {FORMS}")


def _are_signed(sides: list[Codes | Table]) -> bool:
    """Return whether 0 is a set bit, as among outputs, and not a clear one."""
    queries, database = (_form(values, side) for values, side in zip(sides, ("queries", "database"), strict=True))
    forms = {queries, database}
    for values, form, side in zip(sides, (queries, database), ("queries", "database"), strict=True):
        if form == "unclear" and not ("real outputs" in forms and _is_one_output(values)):
            raise _unclear(values, side)
    signed = not forms.isdisjoint({"-1 and +1", "real outputs"})
    floats = all(not isinstance(side, Codes) and side.dtype.kind == "f" for side in sides)
    clear = "0 and 1" in forms or ("only 0" in forms and not floats)
    if (signed and clear) or forms == {"only 0", "Codes"}:
        raise AmbiguousForm(
            f"The queries are {queries} and the database is {database}, so that 0 can be a clear bit or an "
            "output of at least 0. Give both sides in one form, such as -1 and +1."
        )
    return signed
