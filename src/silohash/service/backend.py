"""What the API and the page need of a federation. Implementations search a finished run, or silos behind a bus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from silohash.search.hits import Hits
from silohash.search.released import Item as Item
from silohash.search.released import NotFound as NotFound
from silohash.search.released import SiloStatus as SiloStatus
from silohash.types import Modality, Target, UserError

if TYPE_CHECKING:
    from PIL import Image

    from silohash.runtime.events import RoundRecord


class Unavailable(UserError):  # noqa: N818  a name as in HTTP
    """A silo that a request needs does not answer."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Code:
    """Hold a code to search for.

    Attributes:
        words: ``(W,)`` packed code, as `silohash.index.codes.pack` returns it.
        bits: code length.
        model_digest: digest of the model that computed the code. Silos with codes of another model do not answer.
    """

    words: npt.NDArray[np.unsignedinteger]
    bits: int
    model_digest: str


@dataclass(frozen=True, kw_only=True, eq=False)
class SearchOptions:
    """Set what a search finds, and how much of it is returned.

    Attributes:
        target: what to find: "item" for items by the nearer of their two codes, "image" or "text" for one side alone.
        k: number of hits.
        offset: number of nearest items to skip, for the pages after the first.
        radius_bits: maximum distance of a hit; None for no limit.
        label: if set, only items with this label are searched.
        silos: names of the silos to search; None for all.
        previews: whether hits carry the small pictures that silos release.
    """

    target: Target = "item"
    k: int = 10
    offset: int = 0
    radius_bits: int | None = None
    label: str | None = None
    silos: tuple[str, ...] | None = None
    previews: bool = True


@dataclass(frozen=True, kw_only=True, eq=False)
class SearchRequest(SearchOptions):
    """Hold what to search for. Exactly one of text, picture and code is given.

    Attributes:
        text: words.
        picture: a decoded and checked picture, upright, in mode ``L`` or ``RGB``.
        code: a code.
    """

    text: str | None = None
    picture: Image.Image | None = None
    code: Code | None = None

    def __post_init__(self) -> None:
        """Check the request.

        Raises:
            UserError: unless exactly one of text, picture and code is given, or if the text is empty.
        """
        values = {"a text": self.text, "a picture": self.picture, "a code": self.code}
        given = [name for name, value in values.items() if value is not None]
        if len(given) != 1:
            raise UserError(
                f"Search for exactly one of a text, a picture and a code; {' and '.join(given) or 'none'} was given."
            )
        if self.text is not None and not self.text.strip():
            raise UserError("The text is empty. Give the words to search for.")


@dataclass(frozen=True, kw_only=True)
class FederationStatus:
    """Describe a federation.

    Attributes:
        name: name of the federation or of its run.
        archive: name of the archive that the model was trained on; empty if it is not known.
        silos: one status per silo, in the order of their names.
        bits: code length.
        inputs: the modalities that can be searched with.
        local_method: key of the local method; empty if it is not known.
        federated_method: key of the federated method; empty if it is not known.
        rounds: the records of the training rounds; empty if there are none here.
        chosen_round: number of the round whose model is deployed, from 0; None if it is not known.
    """

    name: str
    silos: tuple[SiloStatus, ...]
    bits: int
    inputs: tuple[Modality, ...]
    archive: str = ""
    local_method: str = ""
    federated_method: str = ""
    rounds: tuple[RoundRecord, ...] = ()
    chosen_round: int | None = None


class Backend(Protocol):
    """A federation that can be searched. All methods can be called at the same time."""

    async def search(self, request: SearchRequest) -> Hits:
        """Return the nearest items of the silos.

        Silos that do not answer are listed in ``missing_silos`` with the reason.

        Raises:
            NotFound: if a silo in ``request.silos`` does not exist.
            UserError: if the request cannot be encoded.
        """
        ...

    async def similar(self, silo: str, name: str, options: SearchOptions, by: Modality | None = None) -> Hits:
        """Return the items nearest to an item. The item itself is left out.

        Args:
            silo: name of the silo that holds the item.
            name: id of the item.
            options: what to find.
            by: which code of the item to search with; None for that of its picture if it has one.

        Raises:
            NotFound: if there is no such silo or item, or the item does not have the code.
            Unavailable: if the silo does not answer.
        """
        ...

    async def item(self, silo: str, name: str) -> Item:
        """Return what a silo releases of one item.

        Raises:
            NotFound: if there is no such silo or item.
            Unavailable: if the silo does not answer.
        """
        ...

    async def status(self) -> FederationStatus:
        """Return the state of the federation. A silo that does not answer is listed with the reason."""
        ...


def check_silos(wanted: Collection[str] | None, known: Sequence[str]) -> None:
    """Check that the silos of a filter exist.

    Args:
        wanted: names of silos; None for all.
        known: the names of all silos.

    Raises:
        NotFound: if one does not exist.
        UserError: if none is wanted.
    """
    for name in wanted or ():
        if name not in known:
            raise NotFound(f'There is no silo "{name}". Choose from: {", ".join(known)}.')
    if wanted is not None and not wanted:
        raise UserError(f"No silo is selected. Choose from: {', '.join(known)}.")


def without_item(hits: Hits, silo: str, name: str, *, offset: int, k: int) -> Hits:
    """Return a page of hits without one item.

    Args:
        hits: at least the nearest ``offset + k + 1`` hits, from the first.
        silo: name of the item's silo.
        name: id of the item.
        offset: number of remaining hits to skip.
        k: number of hits to keep.
    """
    others = [place for place, hit in enumerate(zip(hits.silos, hits.ids, strict=True)) if hit != (silo, name)]
    kept = hits.taken(others[offset : offset + k])
    left_out = Counter(hits.left_out)
    left_out.update(hits.places[place] for place in others[offset + k :])
    last = kept.places[-1] if kept.places else -1
    return replace(kept, left_out={place: count for place, count in sorted(left_out.items()) if place <= last})
