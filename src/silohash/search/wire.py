"""Requests to silos as bytes: JSON documents with a version, which are checked when they are read.

A hub sends a request to a silo, and the silo sends an answer (see `silohash.search.answers`). Neither trusts the other.
Whatever the bytes are, reading them returns a value that has been checked, or raises `WireError`. Unknown keys are ignored,
so that a later version can add some.
"""

from __future__ import annotations

import math
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NotRequired, TypeAlias, TypeVar

import numpy as np
from pydantic import Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from silohash.base.forms import fault
from silohash.base.types import Modality, Target, UserError
from silohash.index.codes import BITS_HIGHEST, BITS_LOWEST, Words, byte_count, check_words, from_bytes, to_bytes
from silohash.search.hits import Query

VERSION = 2
"""Version of the messages. A message of another version is refused."""

MOST_REQUEST_BYTES = 1 << 20
"""Most bytes of a request. A longer one is neither sent nor read."""

TIME_BYTES = 64
"""Bytes of a request that are kept for the time that its sender waits, see `with_time_left`."""

MOST_CONTENT_BYTES = 1 << 19
"""Most bytes of the words or regions of a query."""

MOST_CHARACTERS = 4_096
"""Most characters of an id, a label, a file name or a reason."""

MOST_ITEMS = 1 << 31
"""Every count in a message is smaller."""

Text: TypeAlias = Annotated[str, Field(max_length=MOST_CHARACTERS)]
Count: TypeAlias = Annotated[int, Field(ge=0, lt=MOST_ITEMS)]
Bits: TypeAlias = Annotated[int, Field(ge=BITS_LOWEST, le=BITS_HIGHEST)]
RequestId: TypeAlias = Annotated[str, Field(max_length=64)]
Seconds: TypeAlias = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Digest: TypeAlias = Annotated[str, Field(max_length=128)]
Hexadecimal: TypeAlias = Annotated[str, Field(max_length=BITS_HIGHEST // 4, pattern="^([0-9a-f]{2})*$")]
Version: TypeAlias = Literal[2]
ContentType: TypeAlias = Literal["int32", "float16", "float32"]
T = TypeVar("T")


class WireError(UserError):
    """A message that cannot be used. The text of an answer's error tells what the silo did: ``It answered with ...``."""


@dataclass(frozen=True)
class ItemRequest:
    """Request what a silo releases of one item, by the id of the item. The other values are as in `Query`."""

    id: str
    asker: str = ""
    request_id: str = ""
    seconds_left: float | None = None


@dataclass(frozen=True)
class CodeRequest:
    """Request the code of one item, by the id of the item. None stands for the code of its picture if it has one.

    ``model_digest`` is the digest of the model whose code is requested, for silos that answer with two models; empty for
    any. The other values are as in `Query`.
    """

    id: str
    modality: Modality | None = None
    asker: str = ""
    request_id: str = ""
    model_digest: str = ""
    seconds_left: float | None = None


@dataclass(frozen=True)
class StatusRequest:
    """Request the summary of a silo. The values are as in `Query`."""

    request_id: str = ""
    seconds_left: float | None = None


Request: TypeAlias = Query | ItemRequest | CodeRequest | StatusRequest


class _Content(TypedDict):
    type: ContentType
    shape: Annotated[tuple[Annotated[int, Field(ge=1, le=MOST_CONTENT_BYTES)], ...], Field(min_length=2, max_length=3)]
    values: Annotated[str, Field(max_length=2 * MOST_CONTENT_BYTES)]


class _Search(TypedDict):
    version: Version
    kind: Literal["search"]
    code: Hexadecimal
    bits: Bits
    model: Digest
    target: Target
    k: Annotated[int, Field(ge=1, lt=MOST_ITEMS)]
    offset: Count
    radius_bits: Count | None
    label: Text | None
    previews: bool
    tie_key: Hexadecimal
    content: NotRequired[_Content]
    asker: NotRequired[Text]
    request_id: NotRequired[RequestId]
    seconds_left: NotRequired[Seconds]


class _Item(TypedDict):
    version: Version
    kind: Literal["item"]
    id: Text
    asker: NotRequired[Text]
    request_id: NotRequired[RequestId]
    seconds_left: NotRequired[Seconds]


class _Code(TypedDict):
    version: Version
    kind: Literal["code"]
    id: Text
    modality: Modality | None
    asker: NotRequired[Text]
    request_id: NotRequired[RequestId]
    seconds_left: NotRequired[Seconds]
    model: NotRequired[Digest]


class _Status(TypedDict):
    version: Version
    kind: Literal["status"]
    request_id: NotRequired[RequestId]
    seconds_left: NotRequired[Seconds]


class _AnyVersion(TypedDict):
    version: int


_REQUEST: TypeAdapter[Any] = TypeAdapter(Annotated[_Search | _Item | _Code | _Status, Field(discriminator="kind")])
_DOCUMENT: TypeAdapter[dict[str, Any]] = TypeAdapter(dict[str, Any])
_ANY_VERSION: TypeAdapter[_AnyVersion] = TypeAdapter(_AnyVersion)


def encode_request(request: Request) -> bytes:
    """Return a request as bytes, without ``seconds_left``, which is added whenever it is sent (`with_time_left`).

    Raises:
        WireError: If it has too many bytes (`MOST_REQUEST_BYTES`), or text that cannot be written as UTF-8.
    """
    content, limit = as_json(_document(request), "The request"), MOST_REQUEST_BYTES - TIME_BYTES
    if len(content) > limit:
        raise WireError(f"The request has {len(content):,} bytes, and the limit is {limit:,}. Shorten it.")
    return content


def with_time_left(content: bytes, seconds: float) -> bytes:
    """Return a request with the time for which its sender will wait, so that a silo does not work for nobody.

    Bytes that are not a JSON object are returned unchanged.

    Args:
        content: The result of `encode_request`.
        seconds: The time from now.

    Example:
        >>> with_time_left(b'{"version":2,"kind":"status"}', 2.5)
        b'{"seconds_left":2.500,"version":2,"kind":"status"}'
    """
    return b'{"seconds_left":%.3f,' % seconds + content[1:] if content.startswith(b"{") else content


def decode_request(content: bytes) -> Request:
    """Return the request that some bytes hold.

    Raises:
        WireError: If the bytes are not a request of this version.
    """
    document = checked(content, _REQUEST, MOST_REQUEST_BYTES, "The request")
    asker, request_id = document.get("asker", ""), document.get("request_id", "")
    seconds_left = document.get("seconds_left")
    if document["kind"] == "item":
        return ItemRequest(document["id"], asker, request_id, seconds_left)
    if document["kind"] == "code":
        model = document.get("model", "")
        return CodeRequest(document["id"], document["modality"], asker, request_id, model, seconds_left)
    if document["kind"] == "status":
        return StatusRequest(request_id, seconds_left)
    return Query(
        words=words_of(document["code"], document["bits"], "The request"),
        bits=document["bits"],
        model_digest=document["model"],
        target=document["target"],
        k=document["k"],
        offset=document["offset"],
        radius_bits=document["radius_bits"],
        label=document["label"],
        previews=document["previews"],
        tie_key=bytes.fromhex(document["tie_key"]),
        content=_content_of(document),
        asker=asker,
        request_id=request_id,
        seconds_left=seconds_left,
    )


def _document(request: Request) -> dict[str, Any]:
    if isinstance(request, StatusRequest):
        return {"kind": "status", "request_id": request.request_id}
    sender = {"asker": request.asker, "request_id": request.request_id}
    if isinstance(request, ItemRequest):
        return {"kind": "item", "id": request.id, **sender}
    if isinstance(request, CodeRequest):
        model = {"model": request.model_digest} if request.model_digest else {}
        return {"kind": "code", "id": request.id, "modality": request.modality, **model, **sender}
    return {
        "kind": "search",
        "code": hexadecimal(request.words, request.bits),
        "bits": request.bits,
        "model": request.model_digest,
        "target": request.target,
        "k": request.k,
        "offset": request.offset,
        "radius_bits": request.radius_bits,
        "label": request.label,
        "previews": request.previews,
        "tie_key": request.tie_key.hex(),
        **({} if request.content is None else {"content": _sent_content(request.content)}),
        **sender,
    }


def _sent_content(content: np.ndarray) -> dict[str, Any]:
    """Return the words or regions of a query as a part of a document."""
    values = content.astype(content.dtype.newbyteorder("<")).tobytes()
    return {"type": content.dtype.name, "shape": content.shape, "values": b64encode(values).decode()}


def _content_of(document: Mapping[str, Any]) -> np.ndarray | None:
    """Return the words or regions of a query, ``(1, ...)``, or None if there are none.

    Raises:
        WireError: If their bytes are not those of an array of their type and shape, or the query is for both sides of items.
    """
    content = document.get("content")
    if content is None:
        return None
    form, shape = np.dtype(content["type"]).newbyteorder("<"), content["shape"]
    wanted = math.prod(shape) * form.itemsize
    try:
        values = b64decode(content["values"], validate=True)
    except ValueError as error:
        raise WireError("The request does not have the expected form (content is not in base64).") from error
    if wanted > MOST_CONTENT_BYTES or len(values) != wanted:
        raise WireError(
            f"The request does not have the expected form (content has {len(values):,} bytes, its shape needs {wanted:,}, "
            f"and the limit is {MOST_CONTENT_BYTES:,})."
        )
    if document["target"] == "item":
        raise WireError("The request has words or regions, with which pictures or texts are scored, and asks for both.")
    return np.frombuffer(values, form).astype(form.newbyteorder("=")).reshape(shape)


def as_json(document: dict[str, Any], name: str) -> bytes:
    """Return a message of this version as bytes.

    Args:
        document: The content of the message.
        name: Name of the message at the beginning of a sentence.

    Raises:
        WireError: If it holds text that cannot be written as UTF-8.
    """
    try:
        return _DOCUMENT.dump_json({"version": VERSION, **document})
    except ValueError as error:
        raise WireError(f"{name} holds text that cannot be written as UTF-8.") from error


def checked(content: bytes, form: TypeAdapter[T], most_bytes: int, name: str) -> T:
    """Return the document that some bytes hold, after checking their number, the version and the form.

    Args:
        content: The bytes.
        form: The form.
        most_bytes: Limit on the number of bytes.
        name: Name of the message at the beginning of a sentence.

    Raises:
        WireError: If any of them is wrong.
    """
    if len(content) > most_bytes:
        raise WireError(f"{name} has {len(content):,} bytes, and the limit is {most_bytes:,}.")
    try:
        return form.validate_json(content, strict=True)
    except ValidationError as error:
        version = _version(content)
        if version not in (None, VERSION):
            raise WireError(
                f"{name} has version {version}, and this silohash reads version {VERSION}. Install the same version of "
                "silohash at the hub and at the silo."
            ) from error
        raise WireError(f"{name} does not have the expected form ({fault(error)}).") from error


def _version(content: bytes) -> int | None:
    """Return the version of a message, or None if it does not have one."""
    try:
        return _ANY_VERSION.validate_json(content, strict=True)["version"]
    except ValidationError:
        return None


def hexadecimal(words: Words, bits: int) -> str:
    """Return a code, ``(W,)`` words, in hexadecimal form without padding."""
    return to_bytes(words[None], bits).tobytes().hex()


def words_of(code: str, bits: int, name: str) -> Words:
    """Return the ``(W,)`` words of a code in hexadecimal form.

    Args:
        code: The result of `hexadecimal`.
        bits: Code length.
        name: Name of the message at the beginning of a sentence.

    Raises:
        WireError: If the code does not have this length.
    """
    packed = np.frombuffer(bytes.fromhex(code), np.uint8)
    try:
        if len(packed) != byte_count(bits):
            raise UserError(f"{len(packed)} bytes are not a code of {bits} bits.")
        return np.asarray(check_words(from_bytes(packed[None], bits), bits)[0])
    except UserError as error:
        raise WireError(f"{name} does not have the expected form. {error}") from error
