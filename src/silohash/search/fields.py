"""Types of the fields of messages between a hub and the silos, with their limits.

A message is declared once, by the class of the value that it carries. The annotations of the class say what each field looks
like in the message. `silohash.search.wire` derives the form of the message from them.
"""

from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Annotated, Any, Literal, NotRequired, TypeAlias

import numpy as np
from pydantic import Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from silohash.base.errors import BitsDiffer, ConflictingOptions, WrongForm, WrongShape
from silohash.base.types import MODALITIES, Modality
from silohash.base.visible import visible
from silohash.index.base import MOST_COLUMNS
from silohash.index.codes import BITS_HIGHEST, BITS_LOWEST, Words, byte_count, check_words, from_bytes, to_bytes

MOST_CHARACTERS = 4_096
"""Most characters of an id, a label, a file name or a reason."""

MOST_ITEMS = 1 << 31
"""Every count in a message is smaller."""

MOST_CONTENT_BYTES = 1 << 19
"""Most bytes of the words or regions of a query."""

MOST_CAPTION = 1 << 16
"""Most characters of a caption. A silo cuts longer ones before it sends them."""

MOST_PREVIEW = 1 << 18
"""Most characters of a preview, which is a data URL. A silo leaves longer ones out."""

MOST_LABELS = 1_000
"""Most labels of an item. A silo leaves further ones out."""

MOST_FACET_VALUES = 1_000
"""Most values of a column that a silo counts, and most labels in its summary."""

Text: TypeAlias = Annotated[str, Field(max_length=MOST_CHARACTERS)]
Count: TypeAlias = Annotated[int, Field(ge=0, lt=MOST_ITEMS)]
Place: TypeAlias = Annotated[int, Field(gt=-2 * MOST_ITEMS - 1, lt=MOST_ITEMS)]
Bits: TypeAlias = Annotated[int, Field(ge=BITS_LOWEST, le=BITS_HIGHEST)]
RequestId: TypeAlias = Annotated[str, Field(max_length=64)]
Seconds: TypeAlias = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Score: TypeAlias = Annotated[float, Field(allow_inf_nan=False)]
Digest: TypeAlias = Annotated[str, Field(max_length=128)]
Hexadecimal: TypeAlias = Annotated[str, Field(max_length=BITS_HIGHEST // 4, pattern="^([0-9a-f]{2})*$")]


FoundBy: TypeAlias = Literal["", "image", "text", "both"]

_MODALITIES: Mapping[str, tuple[Modality, ...]] = {"": (), "image": ("image",), "text": ("text",), "both": MODALITIES}
"""The modalities by which an item was found, by their name in an answer. There are none if they are not known."""

_NAMES: Mapping[tuple[Modality, ...], str] = {modalities: name for name, modalities in _MODALITIES.items()}


class Unsent:
    """Mark a field that never leaves the process. It has its default at the receiver."""


class Sometimes:
    """Mark a field that a message need not have. A field that is None is left out."""


@dataclass(frozen=True)
class Sent:
    """Mark a field whose value has another form or name in a message.

    Attributes:
        form: Type of the value in the message.
        encode: Returns the value in the message, given the value and the other fields by name.
        decode: Returns the value, given the value in the message and the other fields of the message by name.
        name: Name of the field in the message; empty if it is that of the attribute.
    """

    form: Any
    encode: Callable[[Any, Mapping[str, Any]], Any] = lambda value, _: value
    decode: Callable[[Any, Mapping[str, Any]], Any] = lambda value, _: value
    name: str = ""


class Payload(TypedDict):
    """The fields of an item that a silo can release, see `silohash.index.base.FIELDS`, and further columns by name."""

    caption: NotRequired[Annotated[str, Field(max_length=MOST_CAPTION)]]
    labels: NotRequired[Annotated[list[Text], Field(max_length=MOST_LABELS)]]
    preview: NotRequired[Annotated[str, Field(max_length=MOST_PREVIEW)]]
    file: NotRequired[Text]
    columns: NotRequired[Annotated[dict[Text, Text], Field(max_length=MOST_COLUMNS)]]


class _Content(TypedDict):
    type: Literal["int32", "float16", "float32"]
    shape: Annotated[tuple[Annotated[int, Field(ge=1, le=MOST_CONTENT_BYTES)], ...], Field(min_length=2, max_length=3)]
    values: Annotated[str, Field(max_length=2 * MOST_CONTENT_BYTES)]


def hexadecimal(words: Words, bits: int) -> str:
    """Return a code, ``(W,)`` words, in hexadecimal form without padding."""
    return to_bytes(words[None], bits).tobytes().hex()


def words_of(code: str, bits: int) -> Words:
    """Return the ``(W,)`` words of a code in hexadecimal form.

    Raises:
        UserError: If the code does not have ``bits`` bits.
    """
    packed = np.frombuffer(bytes.fromhex(code), np.uint8)
    if len(packed) != byte_count(bits):
        raise BitsDiffer(f"{len(packed)} bytes are not a code of {bits} bits.")
    return np.asarray(check_words(from_bytes(packed[None], bits), bits)[0])


def _sent_content(content: np.ndarray, _: Mapping[str, Any]) -> dict[str, Any]:
    """Return the words or regions of a query as a part of a message."""
    values = content.astype(content.dtype.newbyteorder("<")).tobytes()
    return {"type": content.dtype.name, "shape": content.shape, "values": b64encode(values).decode()}


def _content_of(content: _Content, fields: Mapping[str, Any]) -> np.ndarray:
    """Return the words or regions of a query, ``(1, ...)``, if they are for one modality and have their type and shape."""
    if fields["target"] == "item":
        raise ConflictingOptions("it has words or regions, with which pictures or texts are scored, and asks for both")
    form, shape = np.dtype(content["type"]).newbyteorder("<"), content["shape"]
    wanted = prod(shape) * form.itemsize
    try:
        values = b64decode(content["values"], validate=True)
    except ValueError as error:
        raise WrongForm("content is not in base64") from error
    if wanted > MOST_CONTENT_BYTES or len(values) != wanted:
        raise WrongShape(
            f"content has {len(values):,} bytes, its shape needs {wanted:,}, and the limit is {MOST_CONTENT_BYTES:,}"
        )
    return np.frombuffer(values, form).astype(form.newbyteorder("=")).reshape(shape)


def sent_payload(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a payload that fit the limits of a message. Longer captions and lists of labels are cut."""
    limited: dict[str, Any] = {}
    if (caption := payload.get("caption")) is not None:
        limited["caption"] = str(caption)[:MOST_CAPTION]
    if isinstance(labels := payload.get("labels"), list | tuple):
        limited["labels"] = [str(label)[:MOST_CHARACTERS] for label in labels[:MOST_LABELS]]
    for name, most in (("preview", MOST_PREVIEW), ("file", MOST_CHARACTERS)):
        if isinstance(value := payload.get(name), str) and len(value) <= most:
            limited[name] = value
    if isinstance(columns := payload.get("columns"), dict):
        limited["columns"] = {name[:MOST_CHARACTERS]: str(value)[:MOST_CHARACTERS] for name, value in columns.items()}
    return limited


def _sent_payloads(payloads: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """Return the fields of payloads that fit the limits of a message."""
    try:
        # One check of all payloads takes a fraction of the time of cutting each, and nearly all of them fit.
        return _payloads().validate_python(payloads, strict=True)
    except ValidationError:
        return [sent_payload(payload) for payload in payloads]


@cache
def _payloads() -> TypeAdapter[tuple[Payload, ...]]:
    return TypeAdapter(tuple[Payload, ...])


CODE = Sent(
    Hexadecimal,
    lambda words, fields: hexadecimal(words, fields["bits"]),
    lambda code, fields: words_of(code, fields["bits"]),
    "code",
)
MAGNITUDES = Sent(
    Annotated[str, Field(max_length=2 * BITS_HIGHEST, pattern="^([0-9a-f]{2})*$")],
    lambda magnitudes, _: magnitudes.tobytes().hex(),
    lambda text, _: np.frombuffer(bytes.fromhex(text), np.uint8),
)
KEY = Sent(Hexadecimal, lambda key, _: key.hex(), lambda key, _: bytes.fromhex(key))
CONTENT = Sent(_Content, _sent_content, _content_of)
PAYLOAD = Sent(Payload, lambda payload, _: sent_payload(payload))
REASON = Sent(Text, lambda text, _: visible(text)[:MOST_CHARACTERS], lambda text, _: visible(text))
PAYLOADS = Sent(tuple[Payload, ...], lambda payloads, _: _sent_payloads(payloads))
FOUND_BY = Sent(
    tuple[FoundBy, ...],
    lambda found_by, fields: [_NAMES[modalities] for modalities in found_by or ((),) * len(fields["ids"])],
    lambda names, _: tuple(map(_MODALITIES.__getitem__, names)),
)
LEFT_OUT = Sent(
    tuple[tuple[Place, Count], ...], lambda left_out, _: tuple(left_out.items()), lambda pairs, _: dict(pairs)
)
LIMITED = Sent(
    Text,
    lambda limited, _: REASON.encode(next(iter(limited.values()), ""), {}),
    lambda text, fields: {fields["silo"]: visible(text)} if text else {},
    "limited",
)
FACETS = Sent(
    Annotated[
        dict[Text, Annotated[dict[Text, Count], Field(max_length=MOST_FACET_VALUES)]], Field(max_length=MOST_COLUMNS)
    ],
    decode=lambda facets, fields: {
        name: {fields["silo"]: sum(counts.values())} if name == "silo" else counts for name, counts in facets.items()
    },
)
MODELS = Sent(Digest, lambda models, _: next(iter(models), ""), lambda model, _: frozenset({model}), "model")
Model: TypeAlias = Annotated[str, Sent(Digest, name="model")]
SecondsLeft: TypeAlias = Annotated[Seconds | None, Sometimes]
