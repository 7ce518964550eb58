"""What can be asked of a federation and of its silos, and what they answer besides hits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, islice
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import Field
from typing_extensions import TypedDict

from silohash.base.errors import EmptyInput, NoEffect, OneInputNeeded
from silohash.base.types import Modality
from silohash.evaluate.collapse import CodeUse
from silohash.index.base import FIELDS, MOST_COLUMNS
from silohash.index.codes import Magnitudes
from silohash.search.fields import (
    CODE,
    KEY,
    MOST_CHARACTERS,
    MOST_FACET_VALUES,
    PAYLOAD,
    REASON,
    Bits,
    Count,
    Digest,
    Model,
    Payload,
    RequestId,
    SecondsLeft,
    Sent,
    Sometimes,
    Text,
    Unsent,
)
from silohash.search.hits import Hits, Query, SearchOptions
from silohash.search.released import Released

if TYPE_CHECKING:
    from silohash.features.base import Value
    from silohash.run.events import RoundRecord
    from silohash.search.composed import Composed

T = TypeVar("T")

Asked: TypeAlias = "Value | Code | Composed"
"""What is searched for."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Item(Released):
    """Describe one item, as far as the policy of its silo releases it.

    Attributes:
        modalities: The modalities of which the silo has a code of the item.
    """

    modalities: Annotated[tuple[Modality, ...], Field(min_length=1, max_length=2)] = ()


class _Example(TypedDict):
    """An item in the summary of its silo."""

    id: Text
    modalities: Annotated[tuple[Modality, ...], Field(min_length=1, max_length=2)]
    payload: Payload


_Examples: TypeAlias = Annotated[tuple[_Example, ...], Field(max_length=100)]

MOST_EXAMPLES = 8
"""Number of example items in a summary."""

MOST_EXAMPLE_CHARACTERS = 1 << 19
"""Most characters of all examples of a summary together, previews included."""

MOST_SUMMARY_LABELS = MOST_FACET_VALUES
"""Number of labels in a summary, which would otherwise exceed the limit of an answer if an archive has free keywords."""

MOST_LABEL_CHARACTERS = 1 << 16
"""Most characters of all labels of a summary together."""


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
        magnitudes: Magnitudes of the outputs, as in `Query`; None if they are not known.
    """

    bits: Bits
    words: Annotated[npt.NDArray[np.unsignedinteger], CODE]
    model_digest: Model
    modality: Annotated[Modality | None, Sent(Modality)] = None
    magnitudes: Annotated[Magnitudes | None, Unsent] = None


@dataclass(frozen=True)
class Refusal:
    """Hold why a silo does not answer.

    Attributes:
        reason: A sentence.
        not_found: Whether a silo or an item that the request names does not exist.
    """

    reason: Annotated[str, REASON]
    not_found: bool = False


_About: TypeAlias = Annotated[dict[Text, Text], Field(max_length=10)]


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
        columns: The further columns that the silo releases.
        labels: Maps the most frequent labels of the silo's items to the number of items; empty if they are not released.
        examples: A few items of the silo, spread over its index.
        models: Digests of all models with which the silo can be searched. There are two while it changes to a new model.
        accepts_content: Whether the silo's policy lets hubs send it the words or regions of queries.
        accepts_words: Whether the silo's policy lets hubs send it the text of queries.
        version: Version of silohash at the silo; empty if it is not known.
        about: What the silo's policy tells of all items: the address of each (``url``), ``rights`` and ``contact``.
    """

    name: Annotated[str, Unsent] = ""
    items: Annotated[Mapping[Modality, int], Sent(dict[Modality, Count])] = field(default_factory=dict)
    model_digest: Model = ""
    reason: Annotated[str, REASON] = ""
    reachable: bool = True
    fields: tuple[Text, ...] = ()
    columns: Annotated[tuple[Text, ...], Field(max_length=MOST_COLUMNS), Sometimes] = ()
    labels: Annotated[Mapping[str, int], Sent(dict[Text, Count], _sent_labels)] = field(default_factory=dict)
    examples: Annotated[tuple[Item, ...], Sent(_Examples, _sent_examples, _examples_of)] = ()
    models: Annotated[tuple[Digest, ...], Field(max_length=10), Sometimes] = ()
    accepts_content: Annotated[bool, Sometimes] = False
    accepts_words: Annotated[bool, Sometimes] = False
    version: Annotated[str, Unsent] = ""
    about: Annotated[Mapping[str, str], Sent(_About), Sometimes] = field(default_factory=dict)


def within_limits(status: SiloStatus) -> SiloStatus:
    """Return a summary without what exceeds the limits. Silos send it so, and hubs do not rely on that."""
    labels = _first(status.labels, len, MOST_SUMMARY_LABELS, MOST_LABEL_CHARACTERS)
    return replace(
        status,
        fields=tuple(name for name in dict.fromkeys(status.fields) if name in FIELDS),
        labels={label: status.labels[label] for label in labels},
        examples=tuple(_first(status.examples, _characters, MOST_EXAMPLES, MOST_EXAMPLE_CHARACTERS)),
    )


def _characters(item: Item) -> int:
    return len(item.id) + sum(len(str(value)) for value in item.payload.values())


def _first(values: Iterable[T], size: Callable[[T], int], most: int, characters: int) -> list[T]:
    """Return the first values, up to a number of them and of their characters."""
    kept = list(islice(values, most))
    return [value for value, total in zip(kept, accumulate(map(size, kept)), strict=True) if total <= characters]


@dataclass(frozen=True)
class ItemRequest:
    """Request what a silo releases of one item, by the id of the item. The other values are as in `Query`."""

    id: Text
    asker: Annotated[Text, Sometimes] = ""
    request_id: Annotated[RequestId, Sometimes] = ""
    seconds_left: SecondsLeft = None


@dataclass(frozen=True)
class CodeRequest:
    """Request the code of one item, by the id of the item. None stands for the code of its picture if it has one.

    ``model_digest`` is the digest of the model whose code is requested, for silos that answer with two models; empty for
    any. The other values are as in `Query`.
    """

    id: Text
    modality: Modality | None = None
    asker: Annotated[Text, Sometimes] = ""
    request_id: Annotated[RequestId, Sometimes] = ""
    model_digest: Annotated[Model, Sometimes] = ""
    seconds_left: SecondsLeft = None


@dataclass(frozen=True)
class StatusRequest:
    """Request the summary of a silo. The values are as in `Query`."""

    request_id: Annotated[RequestId, Sometimes] = ""
    seconds_left: SecondsLeft = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Browse(SearchOptions):
    """Request the items that pass the filters, newest first, when nothing is searched for. The values are as in `Query`."""

    previews: bool = False
    tie_key: Annotated[bytes, KEY] = b""
    request_id: Annotated[RequestId, Sometimes] = ""
    seconds_left: SecondsLeft = None

    @property
    def most_hits(self) -> int:
        """The largest number of hits in the answer of a silo."""
        return self.reach


Request: TypeAlias = Query | Browse | ItemRequest | CodeRequest | StatusRequest
Answer: TypeAlias = Hits | Item | Code | SiloStatus | Refusal


@dataclass(frozen=True, kw_only=True, eq=False)
class SearchRequest(SearchOptions):
    """Hold what to search for.

    Attributes:
        value: A text; a decoded and checked picture, upright, in mode ``L`` or ``RGB``; a feature vector, ``(D,)``, or
            ``(R, D + 4)`` for the regions of a picture with their boxes, for runs that were trained on given features; a
            picture with words; a code; or None to list the items that pass the filters, newest first. Words of a text with a
            minus before them are excluded.
        modality: What a picture or a vector describes. That of a text is always "text", and a code needs none.
    """

    value: Asked | None
    modality: Modality = "image"

    @classmethod
    def of(cls, options: SearchOptions, value: Asked | None, modality: Modality = "image") -> SearchRequest:
        """Return a request with some options."""
        return cls(**options.values(), value=value, modality=modality)

    def __post_init__(self) -> None:
        """Check the request.

        Raises:
            UserError: If the text is empty, a number is out of range, there is neither a value nor a filter, or an option
                has no effect.
        """
        if self.value is None:
            if not (self.where or self.label or self.silos or self.facets or self.newest_by):
                raise OneInputNeeded("Give a text, a picture or a vector to search for, or a filter to list items.")
            if self.radius_bits is not None:
                raise NoEffect("A maximum distance needs a text, a picture or a vector. Leave it out to list items.")
        elif self.newest_by is not None:
            raise NoEffect("newest_by orders items only if nothing is searched for. Leave one of them out.")
        if isinstance(self.value, str):
            object.__setattr__(self, "modality", "text")
            if not self.value.strip():
                raise EmptyInput("The text is empty. Give the words to search for.")
        super().__post_init__()


@dataclass(frozen=True, kw_only=True)
class FederationStatus:
    """Describe a federation.

    Attributes:
        name: Name of the federation or of its run.
        archive: Name of the archive that the model was trained on; empty if it is not known.
        silos: One status per silo, in the order of their names.
        bits: Code length.
        inputs: The modalities that can be searched with: texts, and pictures.
        vectors: The modalities that can be searched with by their feature vectors.
        local_method: Key of the local method; empty if it is not known.
        federated_method: Key of the federated method; empty if it is not known.
        rounds: The records of the training rounds; empty if there are none here.
        chosen_round: Number of the round whose model is deployed, from 0; None if it is not known.
        codes: The use of the codes of each modality, as far as it is known.
    """

    name: str
    silos: tuple[SiloStatus, ...]
    bits: int
    inputs: tuple[Modality, ...]
    vectors: tuple[Modality, ...] = ()
    archive: str = ""
    local_method: str = ""
    federated_method: str = ""
    rounds: tuple[RoundRecord, ...] = ()
    chosen_round: int | None = None
    codes: Mapping[Modality, CodeUse] = field(default_factory=dict)
