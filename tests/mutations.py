"""Damaged files: changed bytes, and JSON or TOML documents in which one value is replaced by one of another type."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

OTHER_VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 1, 3, 1e308, float("nan"), 10**30, "", "x", "0-99999999999", "../x", "\0\x1b[31m", [], {}, [[]],
    [None], {"a": 1}, [1, "a"],
)  # fmt: skip
"""Values that replace a value of a document."""

Step = str | int


@st.composite
def changed_bytes(draw: st.DrawFn, content: bytes) -> bytes:
    """Return bytes of which some are flipped, cut off, inserted, repeated or overwritten."""
    changed = bytearray(content)
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, max(0, len(changed) - 1)))
        if draw(st.booleans()):
            place = min(place, draw(st.integers(0, 200)))  # headers are where readers go wrong
        kind = draw(st.sampled_from(("flip", "cut", "insert", "repeat", "zero", "remove")))
        if kind == "flip" and changed:
            changed[place] ^= 1 << draw(st.integers(0, 7))
        elif kind == "cut":
            del changed[place:]
        elif kind == "insert":
            changed[place:place] = draw(st.binary(min_size=1, max_size=8))
        elif kind == "repeat":
            changed[place:place] = changed[place : place + draw(st.integers(1, 40))]
        elif kind == "zero":
            stop = min(len(changed), place + draw(st.integers(1, 16)))
            changed[place:stop] = bytes(stop - place)
        else:
            del changed[place : place + draw(st.integers(1, 40))]
    return bytes(changed)


@st.composite
def changed_value(draw: st.DrawFn, value: Any) -> Any:
    """Return a document of which one value is replaced or removed, or one key is renamed."""
    changed = copy.deepcopy(value)
    path = draw(st.sampled_from(list(places(value))))
    other = draw(st.sampled_from(OTHER_VALUES))
    if not path:
        return other
    owner = changed
    for step in path[:-1]:
        owner = owner[step]
    kind = draw(st.sampled_from(("replace", "replace", "replace", "remove", "rename", "wrap")))
    if kind == "remove":
        del owner[path[-1]]
    elif kind == "rename" and isinstance(owner, dict):
        owner["renamed"] = owner.pop(path[-1])
    elif kind == "wrap":
        owner[path[-1]] = [owner[path[-1]]]
    else:
        owner[path[-1]] = other
    return changed


def places(value: Any, before: tuple[Step, ...] = ()) -> Iterator[tuple[Step, ...]]:
    """Yield the path of every value of a document, the document itself first; of a long list the ends only."""
    yield before
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from places(inner, (*before, key))
    elif isinstance(value, list):
        for place in dict.fromkeys((*range(min(len(value), 3)), max(0, len(value) - 1))) if value else ():
            yield from places(value[place], (*before, place))


def changed_json(content: bytes) -> st.SearchStrategy[bytes]:
    """Return a strategy of JSON files in which one value is changed."""
    return changed_value(json.loads(content)).map(lambda value: json.dumps(value).encode())


@st.composite
def changed_json_lines(draw: st.DrawFn, content: bytes) -> bytes:
    """Return a file of JSON lines, in one of which one value is changed."""
    lines = content.splitlines()
    place = draw(st.integers(0, len(lines) - 1))
    lines[place] = draw(changed_json(lines[place]))
    return b"\n".join(lines) + b"\n"


@st.composite
def changed_safetensors(draw: st.DrawFn, content: bytes) -> bytes:
    """Return a safetensors file with one value of its header, or of the JSON object in its metadata, changed."""
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    about = json.loads(header.get("__metadata__", {}).get("about", "{}"))
    if about and draw(st.booleans()):
        header["__metadata__"]["about"] = json.dumps(draw(changed_value(about)))
    else:
        header = draw(changed_value(header))
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + content[8 + size :]
