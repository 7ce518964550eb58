"""What a silo answers besides hits: one of its items, the code of an item, a summary of its index, or a refusal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import numpy as np
import numpy.typing as npt
from pydantic import Field
from typing_extensions import TypedDict

from silohash.base.errors import NotFound, NotSearchable, UserError
from silohash.base.types import Modality
from silohash.index.preview import preview_url
from silohash.search.fields import (
    CODE,
    MOST_CHARACTERS,
    PAYLOAD,
    REASON,
    Bits,
    Count,
    Digest,
    Model,
    Payload,
    Sent,
    Sometimes,
    Text,
    Unsent,
)
from silohash.search.hits import Shown, shown_of
from silohash.search.loaded_index import LoadedIndex
from silohash.search.node import SiloNode

MOST_EXAMPLES = 8
"""Number of example items in a summary."""

MOST_SUMMARY_LABELS = 1_000
"""Number of labels in a summary, which would otherwise exceed the limit of an answer if an archive has free keywords."""


@dataclass(frozen=True, kw_only=True)
class Item:
    """Describe one item, as far as the policy of its silo releases it.

    Attributes:
        id: Id of the item within its silo.
        silo: Name of the silo.
        modalities: The modalities of which the silo has a code of the item.
        payload: The released fields.
        path: The item's picture file on this machine; None if it is not released or does not exist here.
    """

    id: Text
    silo: Annotated[str, Unsent] = ""
    modalities: Annotated[tuple[Modality, ...], Field(min_length=1)] = ()
    payload: Annotated[Mapping[str, Any], PAYLOAD] = field(default_factory=dict)
    path: Annotated[Path | None, Unsent] = None

    @cached_property
    def _shown(self) -> Shown:
        return shown_of(self.payload)

    @property
    def caption(self) -> str:
        """Text of the item, empty if it is not released."""
        return self._shown.caption

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the item's labels, empty if they are not released."""
        return self._shown.labels

    @property
    def preview_url(self) -> str | None:
        """Small picture of the item as a data URL; None without one."""
        return self._shown.preview_url


class _Example(TypedDict):
    """An item in the summary of its silo."""

    id: Text
    modalities: Annotated[tuple[Modality, ...], Field(min_length=1)]
    payload: Payload


_Examples: TypeAlias = Annotated[tuple[_Example, ...], Field(max_length=100)]


def _sent_examples(items: Sequence[Item], _: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the examples of a summary, without the names of their files."""
    sent = [(item, PAYLOAD.encode(item.payload, {})) for item in items]
    return [
        {"id": item.id, "modalities": item.modalities, "payload": {k: v for k, v in payload.items() if k != "file"}}
        for item, payload in sent
    ]


def _examples_of(examples: Sequence[_Example], fields: Mapping[str, Any]) -> tuple[Item, ...]:
    return tuple(Item(silo=fields["silo"], **example) for example in examples)


def _sent_labels(labels: Mapping[str, int], _: Mapping[str, Any]) -> dict[str, int]:
    return {label[:MOST_CHARACTERS]: count for label, count in labels.items()}


@dataclass(frozen=True, kw_only=True, eq=False)
class Code:
    """Hold a code to search for.

    Attributes:
        words: ``(W,)`` packed code, as `silohash.index.codes.pack` returns it.
        bits: Code length.
        model_digest: Digest of the model that computed the code. Silos with codes of another model do not answer.
        modality: The modality of the item that was encoded; None if it is not the code of an item.
    """

    bits: Bits
    words: Annotated[npt.NDArray[np.unsignedinteger], CODE]
    model_digest: Model
    modality: Annotated[Modality | None, Sent(Modality)] = None


@dataclass(frozen=True)
class Refusal:
    """Hold why a silo does not answer.

    Attributes:
        reason: A sentence.
        not_found: Whether a silo or an item that the request names does not exist.
    """

    reason: Annotated[str, REASON]
    not_found: bool = False


@dataclass(frozen=True, kw_only=True)
class SiloStatus:
    """Describe a silo, as far as its policy allows.

    Attributes:
        name: Name of the silo.
        items: Maps each modality that can be searched to the number of its codes.
        model_digest: Digest of the model that computed the codes; empty if it is not known.
        reason: Why the silo cannot be searched, or only in part; empty if it can.
        reachable: Whether the silo answers.
        fields: The fields of an item that the silo releases.
        labels: Maps the most frequent labels of the silo's items to the number of items; empty if they are not released.
        examples: A few items of the silo, spread over its index.
        models: Digests of all models with which the silo can be searched. There are two while it changes to a new model.
        accepts_content: Whether the silo's policy lets hubs send it the words or regions of queries.
    """

    name: Annotated[str, Unsent] = ""
    items: Annotated[Mapping[Modality, int], Sent(dict[Modality, Count])] = field(default_factory=dict)
    model_digest: Model = ""
    reason: Annotated[str, REASON] = ""
    reachable: bool = True
    fields: tuple[Text, ...] = ()
    labels: Annotated[Mapping[str, int], Sent(dict[Text, Count], _sent_labels)] = field(default_factory=dict)
    examples: Annotated[tuple[Item, ...], Sent(_Examples, _sent_examples, _examples_of)] = ()
    models: Annotated[tuple[Digest, ...], Field(max_length=10), Sometimes] = ()
    accepts_content: Annotated[bool, Sometimes] = False


def released_item(node: SiloNode, name: str) -> Item:
    """Return what a silo releases of an item, with its preview.

    Args:
        node: The silo.
        name: Id of the item.

    Raises:
        NotFound: If the silo does not have the item, or does not allow searching for it.
        UserError: If the silo's index cannot be used.
    """
    usable = _indexes(node)
    indexes = {held: loaded for held, loaded in usable.items() if node.approves(name) and loaded.store.has(name)}
    if not indexes:
        raise NotFound(f'The silo {node.name} does not have an item "{name}". Check its id.')
    first = next(iter(indexes.values()))
    payload = first.store.payloads(first.store.keys_of([name]))[0]
    pictures = node.previews([name]) if "preview" in node.policy.fields else {}
    if name in pictures:
        payload["preview"] = preview_url(pictures[name])
    return Item(id=name, silo=node.name, modalities=tuple(indexes), payload=node.policy.released(payload))


def item_code(node: SiloNode, name: str, modality: Modality | None = None) -> Code:
    """Return the code of an item.

    Args:
        node: The silo.
        name: Id of the item.
        modality: Whose code; None for that of the picture if there is one, otherwise that of the text.

    Raises:
        NotFound: If the silo does not have the code.
        UserError: If the silo's index cannot be used.
    """
    indexes = _indexes(node) if node.approves(name) else {}
    for held, loaded in indexes.items():
        if modality in (None, held) and loaded.store.has(name):
            manifest = loaded.store.manifest
            return Code(
                words=loaded.words(name),
                bits=manifest.bits,
                model_digest=manifest.model_digest,
                modality=held,
            )
    what = "a code" if modality is None else f"the code of {'a picture' if modality == 'image' else 'a text'}"
    raise NotFound(f'The silo {node.name} does not have {what} for the item "{name}". Check its id.')


def silo_status(node: SiloNode) -> SiloStatus:
    """Return the summary of a silo. A silo that cannot be searched gives the reason instead of an error."""
    indexes, unusable = node.indexes()
    reasons = [reason for modality, reason in unusable.items() if node.has(modality)]
    try:
        digest = node.model_digest
        first = next(iter(indexes.values()), None)
        return SiloStatus(
            name=node.name,
            items={modality: len(loaded.index) for modality, loaded in indexes.items()},
            model_digest=digest,
            reason=" ".join(dict.fromkeys(reasons)),
            reachable=bool(indexes),
            fields=node.policy.fields,
            labels={} if first is None else _labels(node, first),
            examples=() if first is None else _examples(node, first),
            models=(digest, *node.other_models),
            accepts_content=node.policy.accept_query_content,
        )
    except UserError as error:
        return SiloStatus(name=node.name, reason=str(error), reachable=False)


def _indexes(node: SiloNode) -> dict[Modality, LoadedIndex]:
    """Return the indexes of a silo that can be searched."""
    indexes, reasons = node.indexes()
    if not indexes:
        raise NotSearchable(" ".join(dict.fromkeys(reasons.values())))
    return indexes


def _examples(node: SiloNode, loaded: LoadedIndex) -> tuple[Item, ...]:
    """Return some items of a silo, as far as its policy approves them."""
    return tuple(released_item(node, name) for name in _example_ids(loaded) if node.approves(name))


def _labels(node: SiloNode, loaded: LoadedIndex) -> dict[str, int]:
    """Return the labels of the items that a silo releases, in their order; the most frequent ones if there are too many."""
    if "labels" not in node.policy.fields:
        return {}
    labels = loaded.labels(node.approved_ids())
    if len(labels) <= MOST_SUMMARY_LABELS:
        return labels
    frequent = {*sorted(labels, key=lambda label: -labels[label])[:MOST_SUMMARY_LABELS]}
    return {label: count for label, count in labels.items() if label in frequent}


def _example_ids(loaded: LoadedIndex) -> list[str]:
    """Return the ids of at most `MOST_EXAMPLES` items, spread evenly over the index."""
    keys = loaded.index.keys
    count = min(MOST_EXAMPLES, len(keys))
    return loaded.store.item_ids(keys[(2 * np.arange(count) + 1) * len(keys) // (2 * count)]) if count else []
