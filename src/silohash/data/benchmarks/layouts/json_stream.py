"""JSON files of hundreds of MiB, read element by element."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ijson

from silohash.data.benchmarks.layouts.reading import RESTORE, unreadable
from silohash.types import UserError

BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def elements(path: Path, key: str) -> Iterator[Any]:
    """Yield the elements of the list that a JSON object has under ``key``; nothing if it has none.

    Raises:
        UserError: if the file is missing, damaged, or not a JSON object.
    """
    try:
        with path.open("rb") as stream:
            start = len(BYTE_ORDER_MARK) if stream.read(len(BYTE_ORDER_MARK)) == BYTE_ORDER_MARK else 0
            stream.seek(start)
            if next(iter(ijson.basic_parse(stream)))[0] != "start_map":
                raise ijson.JSONError("it holds another value")
            stream.seek(start)
            yield from ijson.items(stream, f"{key}.item", use_float=True)
    except OSError as error:
        raise unreadable(path, error) from error
    except (ijson.JSONError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{path} is damaged or not a JSON object ({reason}). {RESTORE}") from error
