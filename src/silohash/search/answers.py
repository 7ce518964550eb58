"""Answers of silos as bytes, see `silohash.search.wire`.

The hub compares an answer with its request: the name of the silo, the digest of the model, the number of hits, and the
range and order of their distances. If any check fails, nothing of the answer is used, and the silo is listed as missing
with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, NotRequired, TypeAlias

from pydantic import Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from silohash.base.types import MODALITIES, Modality, UserError, sides_of
from silohash.base.visible import visible
from silohash.search.hits import Hits, Query, silent
from silohash.search.released import Item, ItemCode, NotFound, SiloStatus, as_item
from silohash.search.wire import (
    MOST_CHARACTERS,
    Bits,
    CodeRequest,
    Count,
    Digest,
    Hexadecimal,
    ItemRequest,
    Text,
    Version,
    WireError,
    as_json,
    checked,
    hexadecimal,
    words_of,
)

MOST_ANSWER_BYTES = 8 << 20
"""Most bytes of an answer. A longer one is neither sent nor read."""

MOST_CAPTION = 1 << 16
"""Most characters of a caption. A silo cuts longer ones before it sends them."""

MOST_PREVIEW = 1 << 18
"""Most characters of a preview, which is a data URL. A silo leaves longer ones out."""

MOST_LABELS = 1_000
"""Most labels of an item. A silo leaves further ones out."""


@dataclass(frozen=True)
class ReleasedItem:
    """Hold what a silo releases of one item.

    Attributes:
        id: Id of the item.
        modalities: The modalities of which the silo has a code of the item.
        payload: The released fields.
    """

    id: str
    modalities: tuple[Modality, ...]
    payload: Mapping[str, Any]


Answer: TypeAlias = Hits | ReleasedItem | ItemCode | SiloStatus
FoundBy: TypeAlias = Literal["", "image", "text", "both"]
Score: TypeAlias = Annotated[float, Field(allow_inf_nan=False)]

_SIDES: Mapping[FoundBy, tuple[Modality, ...]] = {"": (), "image": ("image",), "text": ("text",), "both": MODALITIES}
"""The sides by which an item was found, by their name in an answer. There are none if they are not known."""

_NAMES_OF_SIDES: Mapping[tuple[Modality, ...], FoundBy] = {sides: name for name, sides in _SIDES.items()}


class _Payload(TypedDict):
    """The fields of an item that a silo can release, see `silohash.index.base.FIELDS`."""

    caption: NotRequired[Annotated[str, Field(max_length=MOST_CAPTION)]]
    labels: NotRequired[Annotated[list[Text], Field(max_length=MOST_LABELS)]]
    preview: NotRequired[Annotated[str, Field(max_length=MOST_PREVIEW)]]
    file: NotRequired[Text]


class _Hits(TypedDict):
    version: Version
    kind: Literal["hits"]
    silo: Text
    model: Digest
    ids: tuple[Text, ...]
    distances: tuple[Count, ...]
    found_by: tuple[FoundBy, ...]
    scores: NotRequired[tuple[Score, ...]]
    payloads: tuple[_Payload, ...]
    left_out: tuple[tuple[Count, Count], ...]
    limited: Text


class _Item(TypedDict):
    id: Text
    modalities: Annotated[tuple[Modality, ...], Field(min_length=1)]
    payload: _Payload


class _ReleasedItem(_Item):
    version: Version
    kind: Literal["released"]
    silo: Text


class _ItemCode(TypedDict):
    version: Version
    kind: Literal["item code"]
    silo: Text
    code: Hexadecimal
    bits: Bits
    model: Digest
    modality: Modality


class _SiloStatus(TypedDict):
    version: Version
    kind: Literal["summary"]
    silo: Text
    items: dict[Modality, Count]
    model: Digest
    reason: Text
    reachable: bool
    fields: tuple[Text, ...]
    labels: dict[Text, Count]
    examples: Annotated[tuple[_Item, ...], Field(max_length=100)]
    models: NotRequired[Annotated[tuple[Digest, ...], Field(max_length=10)]]
    accepts_content: NotRequired[bool]


class _Refusal(TypedDict):
    version: Version
    kind: Literal["refusal"]
    silo: Text
    reason: Text
    not_found: bool


_ANSWER: TypeAdapter[Any] = TypeAdapter(
    Annotated[_Hits | _ReleasedItem | _ItemCode | _SiloStatus | _Refusal, Field(discriminator="kind")]
)
_PAYLOADS: TypeAdapter[tuple[_Payload, ...]] = TypeAdapter(tuple[_Payload, ...])


def encode_answer(silo: str, answer: Answer, *, most_bytes: int = MOST_ANSWER_BYTES) -> bytes:
    """Return the answer of a silo as bytes. A search that the silo refused becomes a refusal.

    If hits have more previews than fit, only the first hits keep theirs, and ``limited_silos`` has the reason.

    Args:
        silo: Name of the silo.
        answer: The answer.
        most_bytes: Limit on the number of bytes.

    Raises:
        WireError: If the answer does not fit, or holds text that cannot be written as UTF-8.
    """
    if isinstance(answer, Hits) and silo in answer.missing_silos:
        return _refusal(silo, answer.missing_silos[silo], not_found=False)
    limit = min(most_bytes, MOST_ANSWER_BYTES)
    content = _encoded(silo, answer)
    if len(content) > limit and isinstance(answer, Hits):
        content = _encoded(silo, _with_fewer_previews(answer, silo, len(content) - limit))
    if len(content) > limit:
        raise WireError(f"Its answer has {len(content):,} bytes, and the limit is {limit:,}. Request fewer items.")
    return content


def encode_refusal(silo: str, error: Exception) -> bytes:
    """Return the refusal of a silo as bytes.

    Args:
        silo: Name of the silo.
        error: Why the silo does not answer. The hub gets the text of a `UserError`, and only the type of other errors.
    """
    reason = (
        str(error) if isinstance(error, UserError) else f"It failed ({type(error).__name__}). Its log has the cause."
    )
    return _refusal(silo, reason, not_found=isinstance(error, NotFound))


def decode_hits(content: bytes, query: Query, silo: str) -> Hits:
    """Return the hits that a silo answered.

    Args:
        content: The answer.
        query: The query that was sent.
        silo: Name of the silo to which it was sent.

    Returns:
        The hits, or a silent result with the reason if the silo refused the query.

    Raises:
        WireError: If the bytes are not an answer of the silo to the query.
    """
    document = _answer_of(content, silo, "hits")
    if document["kind"] == "refusal":
        return silent(silo, visible(document["reason"]))
    if flaw := next((flaw for check in _CHECKS if (flaw := check(document, query))), ""):
        raise WireError(flaw)
    return Hits(
        ids=document["ids"],
        distances=document["distances"],
        silos=(silo,) * len(document["ids"]),
        payloads=document["payloads"],
        found_by=tuple(map(_SIDES.__getitem__, document["found_by"])),
        left_out=dict(document["left_out"]),
        limited_silos={silo: visible(document["limited"])} if document["limited"] else {},
        model_digests=frozenset({document["model"]}),
        scores=document.get("scores"),
    )


def decode_item(content: bytes, request: ItemRequest, silo: str) -> ReleasedItem:
    """Return the item that a silo released.

    Raises:
        NotFound: If the silo does not have the item.
        WireError: If it refused, or the bytes are not its answer to the request.
    """
    document = _granted(content, silo, "released")
    if document["id"] != request.id:
        raise WireError("It answered with another item.")
    return ReleasedItem(document["id"], document["modalities"], document["payload"])


def decode_code(content: bytes, request: CodeRequest, silo: str) -> ItemCode:
    """Return the code of an item that a silo released. The exceptions are those of `decode_item`."""
    document = _granted(content, silo, "item code")
    modality: Modality = document["modality"]
    if request.modality not in (None, modality):
        raise WireError(f"It answered with the code of the item's {modality} instead of its {request.modality}.")
    words = words_of(document["code"], document["bits"], "Its answer")
    return ItemCode(words=words, bits=document["bits"], model_digest=document["model"], modality=modality)


def decode_status(content: bytes, silo: str) -> SiloStatus:
    """Return the summary of a silo.

    Raises:
        WireError: If it refused, or the bytes are not its summary.
    """
    document = _granted(content, silo, "summary")
    items = [as_item(silo, item["id"], item["modalities"], item["payload"]) for item in document["examples"]]
    return SiloStatus(
        name=silo,
        items=document["items"],
        model_digest=document["model"],
        reason=visible(document["reason"]),
        reachable=document["reachable"],
        fields=document["fields"],
        labels=document["labels"],
        examples=tuple(items),
        models=document.get("models", ()),
        accepts_content=document.get("accepts_content", False),
    )


def _granted(content: bytes, silo: str, kind: str) -> dict[str, Any]:
    """Return the document of an answer that is not a refusal."""
    document = _answer_of(content, silo, kind)
    if document["kind"] == "refusal":
        raise (NotFound if document["not_found"] else WireError)(visible(document["reason"]))
    return document


def _answer_of(content: bytes, silo: str, kind: str) -> dict[str, Any]:
    """Return the document of an answer of a kind, or of a refusal, after checking who sent it."""
    document: dict[str, Any] = checked(content, _ANSWER, MOST_ANSWER_BYTES, "Its answer")
    if document["silo"] != silo:
        raise WireError(f'It answered in the name of another silo, "{document["silo"]}".')
    if document["kind"] not in (kind, "refusal"):
        raise WireError(f"It answered with {document['kind']} instead of {kind}.")
    return document


def _flaw_of_model(document: Mapping[str, Any], query: Query) -> str:
    if document["model"] == query.model_digest:
        return ""
    return f"It answered with codes of another model ({document['model'][:12]} instead of {query.model_digest[:12]})."


def _flaw_of_columns(document: Mapping[str, Any], query: Query) -> str:
    columns = ("ids", "distances", "found_by", "payloads", "scores")
    lengths = {len(document[column]) for column in columns if column in document}
    if len(lengths) > 1:
        return "It answered with columns of unequal length."
    count = len(document["ids"])
    if count > query.reach:
        return f"It answered with {count:,} hits when {query.reach:,} were requested."
    return "" if len(set(document["ids"])) == count else "It answered with the same item twice."


def _flaw_of_distances(document: Mapping[str, Any], query: Query) -> str:
    reach_bits = query.bits if query.radius_bits is None else min(query.bits, query.radius_bits)
    distances: Sequence[int] = document["distances"]
    farthest = max(distances, default=0)
    if "scores" not in document and sorted(distances) != [*distances]:
        return "It answered with distances that are not in ascending order."
    if farthest > reach_bits:
        return f"It answered with a distance of {farthest} bits, beyond the limit of {reach_bits} bits."
    if any(distance > reach_bits for distance, _ in document["left_out"]):
        return f"It answered with items left out beyond the limit of {reach_bits} bits."
    return ""


def _flaw_of_scores(document: Mapping[str, Any], query: Query) -> str:
    if "scores" not in document:
        return ""
    if query.content is None:
        return "It answered with scores, although it was sent a code only."
    if sorted(document["scores"], reverse=True) != [*document["scores"]] or document["left_out"]:
        return "It answered with scores that are not in descending order, or with items left out at a distance."
    return ""


def _flaw_of_sides(document: Mapping[str, Any], query: Query) -> str:
    sides = sides_of(query.target)
    if all(set(sides).issuperset(_SIDES[found_by]) for found_by in set(document["found_by"])):
        return ""
    return f"It answered with sides other than {' and '.join(sides)}."


_CHECKS: tuple[Callable[[Mapping[str, Any], Query], str], ...] = (
    _flaw_of_model,
    _flaw_of_columns,
    _flaw_of_distances,
    _flaw_of_scores,
    _flaw_of_sides,
)
"""Each check returns what is wrong with hits, or an empty string."""


def _encoded(silo: str, answer: Answer) -> bytes:
    """Return an answer as bytes, whatever its size."""
    return as_json({"silo": silo, **_document(silo, answer)}, "Its answer")


def _refusal(silo: str, reason: str, *, not_found: bool) -> bytes:
    text = visible(reason)[:MOST_CHARACTERS]
    return as_json({"kind": "refusal", "silo": silo, "reason": text, "not_found": not_found}, "Its answer")


def _document(silo: str, answer: Answer) -> dict[str, Any]:
    if isinstance(answer, Hits):
        return {
            "kind": "hits",
            "model": next(iter(answer.model_digests), ""),
            "ids": answer.ids,
            "distances": answer.distances,
            "found_by": [_NAMES_OF_SIDES[sides] for sides in answer.sides],
            "payloads": _sent_payloads(answer.payloads),
            **({} if answer.scores is None else {"scores": answer.scores}),
            "left_out": list(answer.left_out.items()),
            "limited": answer.limited_silos.get(silo, "")[:MOST_CHARACTERS],
        }
    if isinstance(answer, ReleasedItem):
        return {"kind": "released", **_sent_item(answer.id, answer.modalities, answer.payload)}
    if isinstance(answer, ItemCode):
        return {
            "kind": "item code",
            "code": hexadecimal(answer.words, answer.bits),
            "bits": answer.bits,
            "model": answer.model_digest,
            "modality": answer.modality,
        }
    return {
        "kind": "summary",
        "items": dict(answer.items),
        "model": answer.model_digest,
        "reason": answer.reason[:MOST_CHARACTERS],
        "reachable": answer.reachable,
        "fields": answer.fields,
        "labels": {label[:MOST_CHARACTERS]: count for label, count in answer.labels.items()},
        "examples": [_sent_example(item) for item in answer.examples],
        "models": answer.models,
        "accepts_content": answer.accepts_content,
    }


def _sent_example(item: Item) -> dict[str, Any]:
    payload = {"caption": item.caption, "labels": item.labels, "preview": item.preview_url or ""}
    return _sent_item(item.id, item.modalities, {name: value for name, value in payload.items() if value})


def _sent_item(name: str, modalities: Sequence[Modality], payload: Mapping[str, Any]) -> dict[str, Any]:
    return {"id": name, "modalities": modalities, "payload": _sent_payload(payload)}


def _sent_payloads(payloads: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """Return the fields of payloads that fit the limits of a message."""
    try:
        return _PAYLOADS.validate_python(payloads, strict=True)
    except ValidationError:
        return [_sent_payload(payload) for payload in payloads]


def _sent_payload(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a payload that fit the limits of a message. Longer captions and lists of labels are cut."""
    return {name: value for name, limited in _LIMITED.items() if (value := limited(payload.get(name))) is not None}


def _limited_caption(value: object) -> str | None:
    return None if value is None else str(value)[:MOST_CAPTION]


def _limited_labels(value: object) -> list[str] | None:
    if not isinstance(value, list | tuple):
        return None
    return [str(label)[:MOST_CHARACTERS] for label in value[:MOST_LABELS]]


def _limited_preview(value: object) -> str | None:
    return value if isinstance(value, str) and len(value) <= MOST_PREVIEW else None


def _limited_file(value: object) -> str | None:
    return value if isinstance(value, str) and len(value) <= MOST_CHARACTERS else None


_LIMITED: Mapping[str, Callable[[object], str | list[str] | None]] = {
    "caption": _limited_caption,
    "labels": _limited_labels,
    "preview": _limited_preview,
    "file": _limited_file,
}


def _with_fewer_previews(hits: Hits, silo: str, excess_bytes: int) -> Hits:
    """Return the hits without the previews of the last ones, which together have at least a number of bytes."""
    payloads, kept = list(hits.payloads), len(hits)
    reason = "It released the previews of the first {:,} items only, because its answer would have been too large."
    excess_bytes += len(reason) + MOST_CHARACTERS
    while kept and excess_bytes > 0:
        kept -= 1
        payload = dict(payloads[kept])
        excess_bytes -= len(payload.pop("preview", None) or "")
        payloads[kept] = payload
    limits = " ".join(filter(None, (hits.limited_silos.get(silo), reason.format(kept))))
    return replace(hits, payloads=tuple(payloads), limited_silos={silo: limits})
