"""Characters of MATLAB files, which are units of UTF-16: a character beyond U+FFFF takes two of them.

scipy decodes the units of a whole array at once. It fails if characters take two units, because fewer characters are left
than the array has, and it reads only one byte of each unit if the file calls them numbers. `read_units` lets it read one
character per unit, and `joined` makes characters of them afterwards.
"""

from __future__ import annotations

import codecs
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import Buffer

UTF16 = 17
"""The type of an element that holds units of UTF-16."""

ORDERS = {"<": "le", ">": "be"}
PREFIX = "silohash_units_"


def joined(units: str) -> str:
    r"""Return a text whose characters are units of UTF-16. Half of a pair without the other becomes U+FFFD.

    Example:
        >>> joined("a \ud83d\ude00"), joined("\ud83d b")
        ('a 😀', '\ufffd b')
    """
    return units.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def read_units(path: Path, parameters: Any) -> str:  # noqa: ANN401  a module of scipy, which has no types
    """Let scipy read one character per unit, and return the codec that does so for the byte order of a file.

    Args:
        path: A file of version 5 to 7.
        parameters: The module ``scipy.io.matlab._mio5_params`` with the codecs by byte order and type of element, which no
            argument of ``scipy.io.loadmat`` can replace (scipy 1.14 to 1.17).
    """
    for order, name in ORDERS.items():
        parameters.MDTYPES[order]["codecs"][UTF16] = PREFIX + name
    with path.open("rb") as stream:
        return PREFIX + ("be" if stream.read(128)[126:] == b"MI" else "le")


def _find_codec(name: str) -> codecs.CodecInfo | None:
    """Return the codec of one byte order, by its name."""
    if not name.startswith(PREFIX):
        return None
    encoding = f"utf-16-{name[-2:]}"
    unit = np.dtype("<u2" if name.endswith("le") else ">u2")

    def encode(text: str, _: str = "strict", /) -> tuple[bytes, int]:
        """Return the units of a text."""
        return text.encode(encoding, "surrogatepass"), len(text)

    def decode(content: Buffer, _: str = "strict", /) -> tuple[str, int]:
        """Return one character per unit."""
        units = np.frombuffer(bytes(content), unit)
        return "".join(map(chr, units.tolist())), units.nbytes

    return codecs.CodecInfo(encode, decode, name=name)


codecs.register(_find_codec)
