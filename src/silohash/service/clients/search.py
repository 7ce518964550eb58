"""A client of the JSON API for Python programs: ``silohash.connect(url)``. It needs nothing but the standard library."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np

from silohash.base.errors import OneInputNeeded
from silohash.features.truncation import Unread
from silohash.search.filters import conditions_of
from silohash.search.hits import Hits
from silohash.search.inputs import VectorLike
from silohash.service.clients.calls import TIMEOUT_SECONDS, Connection, form, read_file

API = "/api/v1"


def connect(url: str, *, token: str = "", timeout_seconds: float = TIMEOUT_SECONDS) -> Client:
    """Connect to a search service at an address such as ``http://127.0.0.1:8765``.

    The token is that of an account, if the service needs one. The time limit is that of each request.

    Raises:
        UserError: If the address is not valid, or no search service answers there.
    """
    client = Client(url, token=token, timeout_seconds=timeout_seconds)
    client.status()
    return client


class Client(Connection):
    """Search the silos behind a service. Results have the same form as those of `TrainedRun.search`.

    Every call raises a `UserError` if the service refuses it or cannot be reached.
    """

    kind, example, remedy = "a search service", "http://127.0.0.1:8765", "Check that the service is running."

    def search(
        self,
        text: str | None = None,
        *,
        image: str | Path | bytes | None = None,
        drawing: bool = False,
        vector: VectorLike | None = None,
        vector_modality: str = "image",
        **options: Any,  # noqa: ANN401
    ) -> Hits:
        """Search all silos for a text, an image, both at once, or a feature vector.

        Args:
            text: The text to search for. Items with a word that has a minus before it are left out.
            image: The picture file to search for: its path or its content, or an address that begins with ``https://``, at a
                host that the service allows.
            drawing: Whether the image is a drawing, which is fitted to the pictures of the archive.
            vector: The feature vector to search for, if the run was trained on given features: numbers, or the path of a
                ``.npy`` file.
            vector_modality: Whether the vector describes an "image" or a "text".
            options: ``find``, ``k``, ``offset``, ``radius_bits``, ``label``, ``where``, ``facets``, ``facet_values``,
                ``newest_by``, ``deadline_seconds``, ``bar``, ``silos`` and ``previews``, and ``text_weight`` and ``region``
                for an image, as for `TrainedRun.search`.

        Raises:
            UserError: If a vector is given beside a text or an image.
        """
        if vector is not None and (text is not None or image is not None):
            raise OneInputNeeded("Search for a text, an image, both, or a vector.")
        query = _query(options)
        if vector is not None:
            return _hits(self._call("/search/vector", {**query, "of": vector_modality}, vector=_npy(vector)))
        if isinstance(image, str) and image.startswith("https://"):
            asked = {**query, "text": text, "drawing": drawing, "address": image}
            return _hits(self._call("/search/picture", asked))
        if image is not None:
            content = image if isinstance(image, bytes) else read_file(Path(image))
            return _hits(self._call("/search/picture", {**query, "text": text, "drawing": drawing}, picture=content))
        return _hits(self._call("/search", {"text": text, **query}))

    def similar(self, silo: str, id: str, *, by: str | None = None, **options: Any) -> Hits:  # noqa: A002, ANN401
        """Search all silos for the items nearest to one, by its "image" or its "text". The options are those of `search`."""
        return _hits(self._call("/similar", {"of_silo": silo, "of_id": id, "by": by, **_query(options)}))

    def item(self, silo: str, id: str) -> dict[str, Any]:  # noqa: A002
        """Return what a silo releases of one item."""
        return self._call("/item", {"silo": silo, "id": id})

    def status(self) -> dict[str, Any]:
        """Return the state of the federation: its silos, their numbers of items, and which of them answer."""
        return self._call("/status", {})

    def _call(self, path: str, query: Mapping[str, Any], **files: bytes) -> dict[str, Any]:
        """Return the JSON document of one call, which sends at most one file."""
        given = {
            name: str(value).lower() if isinstance(value, bool) else value
            for name, value in query.items()
            if value is not None
        }
        address = f"{API}{path}?{urlencode(given, doseq=True)}"
        return self._request("POST" if files else "GET", address, *(form((), **files) if files else ()))


def _query(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options under the names of the API."""
    given = {"silo" if name == "silos" else name: value for name, value in options.items()}
    region, where = given.get("region"), given.get("where")
    given = given if region is None or isinstance(region, str) else {**given, "region": ",".join(map(str, region))}
    return given if where is None else {**given, "where": [*map(str, conditions_of(where))]}


def _npy(vector: VectorLike) -> bytes:
    """Return the content of the ``.npy`` file of a vector."""
    if isinstance(vector, str | Path):
        return read_file(Path(vector))
    stream = io.BytesIO()
    np.save(stream, np.asarray(vector), allow_pickle=False)
    return stream.getvalue()


def _hits(document: Mapping[str, Any]) -> Hits:
    """Return the hits of a document of results."""
    found: Sequence[Mapping[str, Any]] = document["hits"]
    by_rank, unread = document["order"] == "rank", document.get("unread")
    places = _column(found, "rank" if by_rank else "distance_bits")
    return Hits(
        ids=_column(found, "id"), distances=_column(found, "distance_bits"), silos=_column(found, "silo"),
        payloads=tuple(
            {name: hit[name] for name in ("caption", "labels", "preview", "columns") if hit.get(name)} for hit in found
        ),
        found_by=tuple(map(tuple, _column(found, "found_by"))),
        left_out={place: document["ties_at_cut"] for place in places[-1:] if document["ties_at_cut"]},
        missing_silos=document["missing_silos"], limited_silos=document["limited_silos"],
        by_code_only=tuple(document.get("by_code_only", ())), model_digests=frozenset(document["model_digests"]),
        ranks=places if by_rank else None, probabilities=_column(found, "probability"),
        strengths=_column(found, "strength"),
        scores=_column(found, "score") if document["order"] == "score" else None,
        cosines=(None,) * len(found) if document["order"] == "outputs" else None, facets=document.get("facets"),
        newest=document["order"] == "newest", unknown_words=tuple(document["unknown_words"]),
        excluded_words=tuple(document.get("excluded_words", ())), unread=None if unread is None else Unread(**unread),
    )  # fmt: skip


def _column(found: Sequence[Mapping[str, Any]], name: str) -> tuple[Any, ...]:
    """Return one value of each hit."""
    return tuple(hit[name] for hit in found)
