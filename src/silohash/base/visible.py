"""Text of other people, in a form that is safe to read: every invisible character is replaced by its code point.

Captions, labels, ids and names come from other silos. They may contain terminal escapes, line breaks, controls of the text
direction or characters without width, which change how a terminal, a page or a spreadsheet shows the text around them.
Everything that silohash prints or writes for people passes through this module. JSON documents remain exact.
"""

import json
import re
from typing import Any

_DIRECTION = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
"""Controls of the text direction."""

_WITHOUT_WIDTH = (
    "\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200d\u2060-\u2065\u206a-\u206f\u3164\ufe00-\ufe0d\ufeff"
    "\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
"""Characters that are not drawn (Unicode's ``Default_Ignorable_Code_Point``, and the interlinear annotations).

The two variation selectors U+FE0E and U+FE0F are not among them. They only choose between two forms of an emoji.
"""

_BREAKS = "\u2028\u2029"
_HALVES = "\ud800-\udfff"
"""Halves of surrogate pairs, which stand for undecodable bytes in file names and cannot be written as UTF-8."""

_INVISIBLE = re.compile(f"[\0-\x1f\x7f-\x9f{_DIRECTION}{_WITHOUT_WIDTH}{_BREAKS}{_HALVES}]")
_NOT_ESCAPED_IN_JSON = re.compile(f"[\x7f-\x9f{_DIRECTION}{_WITHOUT_WIDTH}{_BREAKS}{_HALVES}]")
_FORMULA = re.compile(r"['\s]*[=+\-@]")
_GUARDED_FORMULA = re.compile(r"'['\s]*[=+\-@]")
_MARKDOWN = re.compile(r"(\\(?=[!-/:-@\[-`{-~]|$)|[`*<]|\](?=[(\[:])|(?<!\w)_|_(?!\w))")
"""The characters that begin markup within a line. A backslash counts only where it would escape the next character."""


def visible(text: str) -> str:
    r"""Return a text on one line, in which every invisible character is replaced by its code point.

    These are control characters (terminal escapes, line breaks, tabs), controls of the text direction, characters without
    width, and surrogates.

    Example:
        >>> visible("two\tred\x1b[31m parrots\n")
        'two⟨U+0009⟩red⟨U+001B⟩[31m parrots⟨U+000A⟩'
    """
    return _INVISIBLE.sub(lambda found: f"⟨U+{ord(found[0]):04X}⟩", text)


def visible_lines(text: str) -> str:
    r"""Return a text as `visible` does, but keep its line breaks. Use it for texts of several lines that silohash made.

    Example:
        >>> visible_lines("silo  items\nnorth\x07 3")
        'silo  items\nnorth⟨U+0007⟩ 3'
    """
    return "\n".join(map(visible, text.split("\n")))


def visible_json(document: str) -> str:
    r"""Return a JSON document with invisible characters as escapes. It is parsed to the same value.

    Control characters below U+0020 are escaped already, as JSON requires.

    Example:
        >>> visible_json('"\u202eevil"')
        '"\\u202eevil"'
    """
    return _NOT_ESCAPED_IN_JSON.sub(lambda found: json.dumps(found[0])[1:-1], document)


def markdown(text: str) -> str:
    r"""Return the Markdown source of a text: on one line, with links, emphasis, code and HTML shown as they are spelled.

    Example:
        >>> print(markdown("[two](parrots) <i> snake_case"))
        [two\](parrots) \<i> snake_case
    """
    return _MARKDOWN.sub(r"\\\1", visible(text))


def csv_cell(value: Any) -> Any:  # noqa: ANN401  any value of a CSV table
    """Return a value for a CSV table. A text that a spreadsheet would run as a formula is preceded by an apostrophe.

    Numbers are returned unchanged. Use `csv_text` to get the text back.

    Example:
        >>> csv_cell("=cmd()"), csv_cell("parrot"), csv_cell(-0.5)
        ("'=cmd()", 'parrot', -0.5)
    """
    return f"'{value}" if isinstance(value, str) and _FORMULA.match(value) else value


def csv_text(cell: str) -> str:
    """Return the text for which `csv_cell` gave this cell.

    Example:
        >>> csv_text("'=cmd()"), csv_text("'tis")
        ('=cmd()', "'tis")
    """
    return cell[1:] if _GUARDED_FORMULA.match(cell) else cell
