"""One form for names that look the same: labels, files, silos and ids that were typed on different systems.

Systems write the same name in several ways: with composed or decomposed accents, with characters that are not shown, with
other spaces, or as the number 2.0 instead of 2. `tidy` is the form in which names are stored. `canonical` is the form in
which they are compared. Names that only look similar, such as "Sea" and "sea", are not the same, but worth a look
(`near_duplicates`).
"""

import posixpath
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from itertools import chain, pairwise, zip_longest

from silohash.base.visible import visible

MOST_NAMED = 5
"""Number of values that a sentence names."""

MOST_SHOWN = 3
"""Number of groups of similar names that a sentence shows."""

_NOT_SHOWN = (
    "\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180e\u200b\u2060-\u2065\u206a-\u206f"
    "\u3164\ufeff\uffa0\ufff9-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
)
"""Characters that never show and do not change those around them: zero-width spaces, fillers."""

_CONTROLS = "\0-\x08\x0e-\x1b\x7f-\x84\x86-\x9f"
_DIRECTION = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
_JOINERS = "\u200c\u200d"
"""Joiners, which change letters of Arabic and Indic scripts, and emoji. Latin, Greek and Cyrillic letters ignore them."""

_SELECTORS = "\u180b-\u180d\u180f\ufe00-\ufe0f\U000e0100-\U000e01ef"
"""Variation selectors, which choose between forms of a character."""

_TAGS = "(?<![\U0001f3f4\U000e0020-\U000e007f])[\U000e0000-\U000e007f]+"
"""Tags, which show only as the flag of a region after the emoji of a flag."""

_IGNORES_JOINERS = "\0-\u05ff\u1e00-\u1fff"
_NEVER = re.compile(f"[{_NOT_SHOWN}]+")
_ENDS = re.compile(rf"^[\s{_NOT_SHOWN}{_DIRECTION}{_JOINERS}]+|[\s{_NOT_SHOWN}{_DIRECTION}{_JOINERS}]+$")
_IGNORED = re.compile(f"[{_CONTROLS}{_DIRECTION}{_SELECTORS}]+|{_TAGS}")
_JOINED = re.compile(f"(?<=[{_IGNORES_JOINERS}])[{_JOINERS}]+|[{_JOINERS}]+(?=[{_IGNORES_JOINERS}])")
_WHOLE_NUMBER = re.compile(r"([+-]?\d+)\.0+")

_NUMBER = re.compile(r"([+\-\u2010-\u2015\u2212]?)(\d{1,20}(?:\.\d{1,20}|,\d{1,2})?(?:e[+-]?\d{1,3})?)")
"""A number as people and programs write it. Three digits after a comma are thousands."""

_TRUTH = {"true": "1", "false": "0"}
_PLURAL = re.compile("(?<=[a-z][a-z][a-z])s$")

_STEP = re.compile(r"(?:^|/)\.\.?(?:/|$)|/$")
"""A step of a path that stays in the folder or leaves it, or a slash at its end."""

_ACCENTS = re.compile(f"[\u0300-\u036f{_JOINERS}'\"`\u00b4\u2018-\u201f]+")
"""Accents of Latin letters, joiners and quotation marks. The vowel signs of other scripts are not accents."""

_SEPARATORS = re.compile(r"[\s_.\-\u2010-\u2015\u2212\u00b7]+")
_LEADING_ZEROS = re.compile(r"(?<![\d.])0+(?=\d)")
_LATIN = str.maketrans(
    "\u0430\u0432\u0435\u0456\u043a\u043c\u043d\u043e\u0440\u0441\u0442\u0443\u0445\u0455\u0458\u0501"
    "\u03b1\u03b2\u03b5\u03b6\u03b7\u03b9\u03ba\u03bc\u03bd\u03bf\u03c1\u03c4\u03c5\u03c7\u0131",
    "abeikmhopctyxsjdabezhikmnoptyxi",
)
"""Cyrillic and Greek letters that look like Latin ones, in lowercase or uppercase, and the i without a dot."""


def tidy(name: str) -> str:
    r"""Return a name as it is stored: composed accents, single spaces, and no characters that never show.

    The name looks the same as before, so joiners within it and controls of the text direction are kept.

    Example:
        >>> tidy("\u00a0Zu\u0308rich\u200b  West ")
        'Zürich West'
    """
    if not name.isascii():
        name = unicodedata.normalize("NFC", _ENDS.sub("", _NEVER.sub("", name)))
    return " ".join(name.split())


def canonical(name: str) -> str:
    r"""Return the form in which names are compared. Two names with the same form are one name.

    Example:
        >>> canonical("2.0"), canonical("bo\u200dat"), canonical("2.50")
        ('2', 'boat', '2.50')
    """
    name = _plain(name)
    number = _WHOLE_NUMBER.fullmatch(name) if name[-1:] == "0" and "." in name else None
    return number[1] if number else name


def canonical_path(path: str) -> str:
    r"""Return the form in which the paths of files are compared. Numbers in them are not numbers.

    Example:
        >>> canonical_path("./market\\\\stall.png"), canonical_path("a//2.0")
        ('market/stall.png', 'a/2.0')
    """
    if "\\" in path or "//" in path or _STEP.search(path):
        path = posixpath.normpath(path.replace("\\", "/"))
    return "/".join(map(_plain, path.split("/")))


def similar(name: str) -> str:
    """Return a coarser form, which ignores case, accents, separators, quotation marks and plurals.

    Numbers of the same value have the same form, and truth values that of 1 and 0.

    Example:
        >>> similar("Living_Room") == similar("living room") == similar("livingroom"), similar("1-2") == similar("12")
        (True, False)
    """
    name = unicodedata.normalize("NFKD", canonical(name)).casefold()
    if number := _NUMBER.fullmatch(name):
        value = Decimal(number[2].replace(",", ".")).normalize()
        return f"{value:f}" if number[1] in "+" or not value else f"-{value:f}"
    name = _ACCENTS.sub("", name).translate(_LATIN)
    name = _LEADING_ZEROS.sub("", name)
    parts = [part for part in _SEPARATORS.split(name) if part]
    digits = ("-" if left[-1].isdigit() and right[0].isdigit() else "" for left, right in pairwise(parts))
    form = _PLURAL.sub("", "".join(chain.from_iterable(zip_longest(parts, digits, fillvalue=""))) or name)
    return _TRUTH.get(form, form)


def one_spelling(names: Mapping[str, int]) -> dict[str, str]:
    """Return the spelling that replaces each of the others of the same name, given how often each is used.

    It is the most frequent one, and the first of them if several are. A name with one spelling is not in the result.

    Example:
        >>> one_spelling({"2": 1, "3": 1, "2.0": 5})
        {'2': '2.0'}
    """
    return {
        name: chosen
        for group in _groups(names, canonical)
        for chosen in [max(group, key=names.__getitem__)]
        for name in group
        if name != chosen
    }


def near_duplicates(names: Iterable[str]) -> list[list[str]]:
    """Return the groups of different names that only look similar, in alphabetical order.

    Example:
        >>> near_duplicates(["Sea", "tree", "sea", "living room", "living-room"])
        [['Sea', 'sea'], ['living room', 'living-room']]
    """
    different = {canonical(name): name for name in sorted(names, reverse=True)}
    return _groups(sorted(different.values()), similar)


def describe_near(what: str, names: Iterable[str]) -> str:
    """Return a sentence on near-duplicates among the names of ``what``, such as "labels"; empty if there are none."""
    groups = near_duplicates(names)
    if not groups:
        return ""
    shown = "; ".join(" and ".join(f'"{visible(name)}"' for name in group) for group in groups[:MOST_SHOWN])
    more = f"; and {len(groups) - MOST_SHOWN:,} more" if len(groups) > MOST_SHOWN else ""
    return f"These {what} look similar but are different: {shown}{more}. Write them the same way if they mean the same."


def listed(values: Sequence[object]) -> str:
    """Return the first values of a list, and how many more there are."""
    more = f" and {len(values) - MOST_NAMED:,} more" if len(values) > MOST_NAMED else ""
    return ", ".join(f"{value:,}" if isinstance(value, int) else str(value) for value in values[:MOST_NAMED]) + more


def _plain(name: str) -> str:
    name = tidy(name)
    if name.isascii() and name.isprintable():
        return name
    return tidy(_JOINED.sub("", _IGNORED.sub("", name)))


def _groups(names: Iterable[str], form: Callable[[str], str]) -> list[list[str]]:
    """Return the names that share a form, in groups of at least two, all in the given order."""
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(form(name), []).append(name)
    return [group for group in found.values() if len(group) > 1]
