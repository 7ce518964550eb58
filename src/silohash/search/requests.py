"""What can be asked of a federation and of its silos, and what a federation tells of itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from silohash.base.errors import EmptyInput, OneInputNeeded
from silohash.base.types import Modality
from silohash.search.fields import Model, RequestId, SecondsLeft, Sometimes, Text
from silohash.search.hits import Hits, Query, SearchOptions
from silohash.search.released import Code, Item, Refusal, SiloStatus

if TYPE_CHECKING:
    from PIL import Image

    from silohash.features.base import Value
    from silohash.run.events import RoundRecord


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


Request: TypeAlias = Query | ItemRequest | CodeRequest | StatusRequest
Answer: TypeAlias = Hits | Item | Code | SiloStatus | Refusal


@dataclass(frozen=True, kw_only=True, eq=False)
class Vector:
    """Hold a feature vector to search for, for runs that were trained on given features.

    Attributes:
        values: The numbers, ``(D,)``, or ``(R, D + 4)`` for the regions of a picture with their boxes.
        modality: What they describe.
    """

    values: npt.NDArray[Any]
    modality: Modality


@dataclass(frozen=True, kw_only=True, eq=False)
class SearchRequest(SearchOptions):
    """Hold what to search for. Exactly one of text, picture, vector and code is given.

    Attributes:
        text: Words.
        picture: A decoded and checked picture, upright, in mode ``L`` or ``RGB``.
        vector: A feature vector.
        code: A code.
    """

    text: str | None = None
    picture: Image.Image | None = None
    vector: Vector | None = None
    code: Code | None = None

    @classmethod
    def for_value(cls, value: Value, modality: Modality, **options: Any) -> SearchRequest:  # noqa: ANN401  of any type
        """Return a request for a text, a picture or a vector that describes a modality, with options by their names."""
        if isinstance(value, str):
            return cls(text=value, **options)
        if isinstance(value, np.ndarray):
            return cls(vector=Vector(values=value, modality=modality), **options)
        return cls(picture=value, **options)

    @classmethod
    def of(cls, options: SearchOptions, **given: Any) -> SearchRequest:  # noqa: ANN401  one of the fields
        """Return a request with some options for the given text, picture, vector or code."""
        return cls(**options.values(), **given)

    def __post_init__(self) -> None:
        """Check the request.

        Raises:
            UserError: Unless exactly one value is given, or if the text is empty or a number is out of range.
        """
        values = {"a text": self.text, "a picture": self.picture, "a vector": self.vector, "a code": self.code}
        given = [name for name, value in values.items() if value is not None]
        if len(given) != 1:
            raise OneInputNeeded(
                f"Search for exactly one of {', '.join([*values][:-1])} and a code; "
                f"{' and '.join(given) or 'none'} was given."
            )
        if self.text is not None and not self.text.strip():
            raise EmptyInput("The text is empty. Give the words to search for.")
        super().__post_init__()

    @property
    def uncoded(self) -> tuple[Value, Modality] | None:
        """What has to be encoded, with its modality; None if the request has a code."""
        if self.text is not None:
            return self.text, "text"
        if self.picture is not None:
            return self.picture, "image"
        return None if self.vector is None else (self.vector.values, self.vector.modality)


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
