"""Read the cells of a table of metadata: texts, numbers, lists that other tools wrote as text, and embedded pictures."""

import ast
import json
import re
import sys
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from functools import lru_cache

from silohash.base.names import tidy
from silohash.base.visible import visible
from silohash.data.formats.columns import KNOWN

LARGEST_WHOLE = 1 << 53
LONGEST_SHOWN = 60

ONE_ROW_EACH = {
    "file_name": "Write one row per picture",
    "text": "Write one row per text, each with the same file_name",
}
WRITE_LABELS = 'Write labels as bird|tree, or as a list such as ["bird", "tree"]'
SAVE_PICTURES = "Save the pictures as files in the folder, and write the names of the files into the column file_name"

_PICTURE_BYTES = (b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"RIFF", b"BM", b"II*\0", b"MM\0*", b"\0\0\0")
"""How picture files begin. JPEG 2000, AVIF and HEIC files begin with the length of a box."""

_PICTURE_TEXT = re.compile(
    r"""b['"](?:\\x89PNG|\\xff\\xd8|GIF8|RIFF|BM|II\*|MM\\x00|\\x00\\x00\\x00)"""
    r"""|\{\s*['"](?:bytes|path)['"]\s*:.*['"]bytes['"]\s*:\s*b?['"]|\{\s*['"]bytes['"]\s*:\s*b?['"]"""
    r"""|data:image/|iVBORw0KGgo|/9j/4|<PIL\.""",
    re.DOTALL,
)
"""How pictures look in a table of text: the bytes as Python shows them, a data URL, Base64, or a picture object."""

_CALL = re.compile(r"(?:array|frozenset|list|set|tuple)\(((?:[\[({].*[\])}])?)(?:,\s*dtype=[\w.<>'\"]+)?\)", re.DOTALL)
_QUOTED = r"""(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""
_SPACED = re.compile(rf"\[\s*({_QUOTED}(?:\s+{_QUOTED})+)\s*\]", re.DOTALL)
_SPACED_NUMBERS = re.compile(r"\[\s*[-+]?\d+\.?\d*(?:\s+[-+]?\d+\.?\d*)*\s*\]")
_SCALAR = re.compile(r"\bnp\.\w+\(([^()]*)\)")
_TUPLE_OR_SET = re.compile(r"""[({]\s*['"]""")
_BYTES = re.compile(r"""b(['"]).*\1""", re.DOTALL)
_LISTS = ("[", "(", "{", "array(", "frozenset(", "list(", "set(", "tuple(", "c(", "b'", 'b"')
"""How cells begin that are not plain text."""

_UNREADABLE = re.compile(r"""(?:\[.*\]|\{.*\}|c\(.*\))""", re.DOTALL)
_SEVERAL = re.compile(r"""[,;]|['"]\s+['"]|\.\.\.""")


class CellError(ValueError):
    """A cell cannot be used. The message says why, and what to write instead."""


def parsed(cell: str) -> object:
    """Return the list, object or bytes that a cell shows, in the notation of JSON, Python or NumPy, or the cell itself.

    Example:
        >>> parsed('["a dog", "two"]'), parsed("['a' 'b']"), parsed("[sic]")
        (['a dog', 'two'], ['a', 'b'], '[sic]')
    """
    cell = cell.strip()
    if call := _CALL.fullmatch(cell):
        cell = call[1] or "[]"
    if cell in {"()", "{}"}:
        return []
    if "np." in cell:
        cell = _SCALAR.sub(r"\1", cell)
    is_list = cell.startswith("[") and cell.endswith("]")
    return _evaluated(cell) if is_list or _TUPLE_OR_SET.match(cell) or _BYTES.fullmatch(cell) else cell


def _evaluated(cell: str) -> object:
    """Return what a cell shows in one of the notations, or the cell itself."""
    if spaced := _SPACED.fullmatch(cell):
        return [ast.literal_eval(quoted) for quoted in re.findall(_QUOTED, spaced[1], re.DOTALL)]
    if _SPACED_NUMBERS.fullmatch(cell):
        return [float(number) for number in cell[1:-1].split()]
    for parse in (json.loads, ast.literal_eval):
        with suppress(ValueError, SyntaxError, TypeError, RecursionError, MemoryError), warnings.catch_warnings():
            # Python warns of escapes that it does not know.
            warnings.simplefilter("ignore")
            value = parse(cell)
            # The order of a set is not that of the cell.
            if isinstance(value, set):
                value = ast.literal_eval(f"[{cell[1:-1]}]")
            return (
                list(value) if isinstance(value, tuple) else value if isinstance(value, list | dict | bytes) else cell
            )
    return cell


def labels_of(value: object) -> tuple[str, ...]:
    """Return the labels of a cell, each once.

    Raises:
        CellError: If it holds an object, lists within a list, one number per label, or a list that cannot be read.
    """
    return _labels_of_list(value) if isinstance(value, list | tuple | dict) else _labels_of_text(text_of(value))


@lru_cache(maxsize=1 << 16)
def _labels_of_text(cell: str) -> tuple[str, ...]:
    """Return the labels of a cell of text. Many cells have the same ones, which are kept in memory once."""
    cell = cell.strip()
    value = parsed(cell) if cell.startswith(_LISTS) else cell
    if isinstance(value, list | dict):
        return _labels_of_list(value)
    if _UNREADABLE.fullmatch(cell) and _SEVERAL.search(cell):
        raise CellError(f"the labels {_shown(cell)} look like a list that cannot be read. {WRITE_LABELS}")
    return _tidied(text_of(value).split("|"))


def _labels_of_list(value: Sequence[object] | Mapping[str, object]) -> tuple[str, ...]:
    if isinstance(value, Mapping):
        raise CellError(f"the labels {_shown(value)} are an object. {WRITE_LABELS}")
    if any(isinstance(parsed(one) if isinstance(one, str) else one, list | tuple | dict) for one in value):
        raise CellError(f"the labels {_shown(value)} are a list of lists or objects. {WRITE_LABELS}")
    if what := _for_each_label(value):
        raise CellError(f"the labels {_shown(value)} look like a {what} for each label. Write the names of the labels")
    return _tidied(map(text_of, value))


def _for_each_label(value: Sequence[object]) -> str:
    """Return what a list holds for each label instead of the names of labels, or an empty string."""
    numbers = [one for one in value if isinstance(one, int | float)]
    if not 1 < len(value) == len(numbers):
        return ""
    if {*numbers} <= {0, 1} and len({*numbers}) < len(value):
        return "zero or one"
    return "score" if any(one % 1 for one in numbers) else ""


def _tidied(labels: Iterable[str]) -> tuple[str, ...]:
    """Return labels without empty and repeated ones. One with a line break or a tab, which may be several, is refused."""
    labels = [label.strip() for label in labels]
    if broken := next((label for label in labels if "\t" in label or len(label.splitlines()) > 1), ""):
        raise CellError(f"the label {_shown(broken)} has a line break or a tab. {WRITE_LABELS}")
    return tuple(dict.fromkeys(map(sys.intern, filter(None, map(tidy, labels)))))


def cell_of(name: str, value: object) -> str:
    """Return the text of a cell in a column other than ``labels``.

    Raises:
        CellError: If a column with a meaning holds several values, an object or an embedded picture.
    """
    if name not in KNOWN:
        return text_of(value, known=False)
    if isinstance(value, str) and value.startswith(_LISTS) and not holds_picture(value):
        value = _list_in_text(name, value)
    value = _only_value(name, _path_of(value) if name == "file_name" else value)
    return tidy(text_of(value)) if name in {"id", "split"} else text_of(value)


def _list_in_text(name: str, cell: str) -> object:
    """Return the list that a cell shows, or the cell itself. A text such as "[1]" is not a list."""
    value = parsed(cell)
    is_text = (
        name == "text" and value and isinstance(value, list) and all(isinstance(one, int | float) for one in value)
    )
    return cell if is_text else value


def _only_value(name: str, value: object) -> object:
    """Return the only value of a list, an empty text for an empty list, and anything but lists and objects unchanged."""
    if isinstance(value, list | tuple):
        if len(value) > 1:
            remedy = ONE_ROW_EACH.get(name, "Write one value")
            raise CellError(f'column "{name}" holds a list of {len(value):,} values, {_shown(value)}. {remedy}')
        value = value[0] if value else ""
    if isinstance(value, list | tuple | dict):
        raise CellError(f'column "{name}" holds an object, {_shown(value)}. Write one value')
    return value


def _path_of(value: object) -> object:
    """Return the path of a picture out of an object that also has room for its bytes, and anything else unchanged."""
    if holds_picture(value):
        raise CellError(f'column "file_name" holds a picture itself. {SAVE_PICTURES}')
    return value["path"] if isinstance(value, dict) and "path" in value else value


def holds_picture(value: object) -> bool:
    """Return whether a cell holds the content of a picture file, or an object or a list with one."""
    if isinstance(value, bytes):
        return value.startswith(_PICTURE_BYTES)
    if isinstance(value, str):
        return value[:1] in {"b", "{", "d", "i", "/", "<"} and _PICTURE_TEXT.match(value) is not None
    if isinstance(value, dict):
        return any(isinstance(one, bytes | str) and bool(one) for one in [value.get("bytes")])
    return isinstance(value, list) and bool(value) and holds_picture(value[0])


def text_of(value: object, *, known: bool = True) -> str:
    """Return a value as text. A whole number is written without decimals, whatever its type.

    Bytes of a column that is not ``known``, such as embedded pictures, become an empty string.
    """
    if isinstance(value, str):
        return value.strip()
    if value is None or value != value:
        return ""
    if isinstance(value, float | Decimal) and -LARGEST_WHOLE <= value <= LARGEST_WHOLE and value == int(value):
        return str(int(value))
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape").strip() if known else ""
    if isinstance(value, list | dict):
        return json.dumps(
            value, ensure_ascii=False, default=lambda inner: "" if isinstance(inner, bytes) else str(inner)
        )
    return str(value)


def _shown(value: object) -> str:
    text = visible(value if isinstance(value, str) else text_of(value))
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"
