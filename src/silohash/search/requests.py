"""What can be asked of a federation, and what it tells of itself. A service passes these values on (`silohash.service`)."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from silohash.base.types import Modality, Target, UserError
from silohash.search.released import SiloStatus

if TYPE_CHECKING:
    from PIL import Image

    from silohash.features.base import Value
    from silohash.run.events import RoundRecord


class Unavailable(UserError):  # noqa: N818  a name as in HTTP
    """A silo that a request needs does not answer."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Code:
    """Hold a code to search for.

    Attributes:
        words: ``(W,)`` packed code, as `silohash.index.codes.pack` returns it.
        bits: Code length.
        model_digest: Digest of the model that computed the code. Silos with codes of another model do not answer.
    """

    words: npt.NDArray[np.unsignedinteger]
    bits: int
    model_digest: str


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
class SearchOptions:
    """Set what a search finds, and how much of it is returned.

    Attributes:
        target: What to find: "item" for items by the nearer of their two codes, "image" or "text" for one side alone.
        k: Number of hits.
        offset: Number of nearest items to skip, for the pages after the first.
        radius_bits: Maximum distance of a hit; None for no limit.
        label: If set, only items with this label are searched.
        silos: Names of the silos to search; None for all.
        previews: Whether hits carry the small pictures that silos release.
        asker: Name of the account or program that asks, as in `silohash.search.hits.Query`.
    """

    target: Target = "item"
    k: int = 10
    offset: int = 0
    radius_bits: int | None = None
    label: str | None = None
    silos: tuple[str, ...] | None = None
    previews: bool = True
    asker: str = ""

    def request(
        self,
        *,
        text: str | None = None,
        picture: Image.Image | None = None,
        vector: Vector | None = None,
        code: Code | None = None,
    ) -> SearchRequest:
        """Return a request for a text, a picture, a vector or a code with these options. See `SearchRequest`."""
        options: dict[str, Any] = {each.name: getattr(self, each.name) for each in fields(SearchOptions)}
        return SearchRequest(text=text, picture=picture, vector=vector, code=code, **options)


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

    def __post_init__(self) -> None:
        """Check the request.

        Raises:
            UserError: Unless exactly one of text, picture, vector and code is given, or if the text is empty.
        """
        values = {"a text": self.text, "a picture": self.picture, "a vector": self.vector, "a code": self.code}
        given = [name for name, value in values.items() if value is not None]
        if len(given) != 1:
            raise UserError(
                f"Search for exactly one of {', '.join([*values][:-1])} and a code; "
                f"{' and '.join(given) or 'none'} was given."
            )
        if self.text is not None and not self.text.strip():
            raise UserError("The text is empty. Give the words to search for.")

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
