"""The JSON API, under ``/api/v1``. Its description for programs is at ``/api/openapi.json``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Depends, File, HTTPException, Query, UploadFile

from silohash.base.errors import BitsDiffer, ModelsDiffer
from silohash.base.types import Modality
from silohash.data.pictures.formats import NAMES
from silohash.features.base import Value
from silohash.search.hits import Hits
from silohash.search.inputs import vector_in
from silohash.search.requests import Code, FederationStatus, SearchRequest
from silohash.service.exclusions import Exclusions
from silohash.service.web.documents import (
    ItemDocument,
    Options,
    PictureOptions,
    ResultsDocument,
    SearchDocument,
    SimilarOptions,
    StatusDocument,
    TextOptions,
    VectorOptions,
)
from silohash.service.web.errors import responses
from silohash.service.web.state import Allowed, IdQuery, NameQuery, Service, Shared, asker

PREFIX = "/api/v1"

router = APIRouter(prefix=PREFIX, dependencies=[Depends(asker)])


@router.get("/search", summary="Search for words", responses=responses(404, 503))
async def search_words(service: Shared, who: Allowed, query: Annotated[TextOptions, Query()]) -> ResultsDocument:
    """Return the items of all silos that are nearest to some words."""
    return await _search(service, who, query, query.text)


@router.post("/search", summary="Search for words or a code", responses=responses(404, 503))
async def search_document(service: Shared, who: Allowed, document: SearchDocument) -> ResultsDocument:
    """Return the items of all silos that are nearest to some words or to a code. Give exactly one of both."""
    value = document.value()
    if isinstance(value, Code):
        check_code(value, await service.recent_status())
    return await _search(service, who, document, value)


@router.post("/search/picture", summary="Search for a picture", responses=responses(404, 415, 503))
async def search_picture(
    service: Shared,
    who: Allowed,
    query: Annotated[PictureOptions, Query()],
    picture: Annotated[UploadFile, File(description=f"A {NAMES} file.")],
) -> ResultsDocument:
    """Return the items of all silos that are nearest to a picture. The picture is not kept."""
    value = await service.read_picture(await picture.read(), drawing=query.drawing)
    return await _search(service, who, query, value)


@router.post("/search/vector", summary="Search for a feature vector", responses=responses(404, 503))
async def search_vector(
    service: Shared,
    who: Allowed,
    query: Annotated[VectorOptions, Query()],
    vector: Annotated[UploadFile, File(description="A .npy file with numbers, computed like the features of the run.")],
) -> ResultsDocument:
    """Return the items of all silos that are nearest to a feature vector, for runs that were trained on given features.

    A vector has the shape (D,), and the regions of a picture with their boxes have the shape (R, D + 4).
    """
    return await _search(service, who, query, vector_in(await vector.read()), query.of)


@router.get("/similar", summary="Search for items like an item", responses=responses(404, 503))
async def similar(service: Shared, who: Allowed, query: Annotated[SimilarOptions, Query()]) -> ResultsDocument:
    """Return the items of all silos whose codes are nearest to the code of an item, without the item itself."""
    hits = await service.backend.similar(query.of_silo, query.of_id, query.options(who), query.by)
    return await _results(service, hits, query.silo)


@router.get("/item", summary="Show an item", responses=responses(404, 503))
async def item(service: Shared, who: Allowed, silo: NameQuery, name: IdQuery) -> ItemDocument:
    """Return what a silo releases of one item."""
    return ItemDocument.model_validate(await service.backend.item(silo, name, asker=who))


@router.get("/status", summary="Show the federation", responses=responses())
async def status(service: Shared) -> StatusDocument:
    """Return the silos with their numbers of items, and which of them answer."""
    return StatusDocument.model_validate(await service.recent_status())


def exclusion_calls(exclusions: Exclusions) -> APIRouter:
    """Return the calls with which administrators of a hub exclude silos. Other accounts are refused, see `auth.scope_of`."""
    calls = APIRouter(prefix=PREFIX, dependencies=[Depends(asker)])

    @calls.put("/excluded", summary="Exclude a silo", responses=responses(404))
    async def exclude(silo: NameQuery) -> list[str]:
        """Stop asking a silo from the next query on, and list all excluded silos."""
        return exclusions.change(silo, excluded=True)

    @calls.delete("/excluded", summary="Take an excluded silo back", responses=responses(404))
    async def take_back(silo: NameQuery) -> list[str]:
        """Ask a silo again from the next query on, and list all excluded silos."""
        return exclusions.change(silo, excluded=False)

    return calls


def check_code(code: Code, status: FederationStatus) -> None:
    """Check that at least one silo has codes with which a code can be compared.

    Raises:
        UserError: If all silos have codes of other models or another length.
    """
    if code.bits != status.bits:
        raise BitsDiffer(f"The code has {code.bits} bits, but the silos have codes of {status.bits} bits.")
    known = {silo.model_digest for silo in status.silos if silo.model_digest}
    if known and code.model_digest not in known:
        raise ModelsDiffer(
            f'No silo has codes of the model "{code.model_digest}". Use a code of one of: {", ".join(sorted(known))}.'
        )


async def _search(
    service: Service, who: str, query: Options, value: Value | Code, modality: Modality = "image"
) -> ResultsDocument:
    hits = await service.backend.search(SearchRequest.of(query.options(who), value, modality))
    return await _results(service, hits, query.silo)


async def _results(service: Service, hits: Hits, silos: Sequence[str] | None) -> ResultsDocument:
    """Return the document of a result."""
    asked = len({*silos}) if silos else await service.silo_count()
    if not hits.answered and hits.missing_silos:
        reasons = " ".join(f"{silo}: {reason}" for silo, reason in hits.missing_silos.items())
        raise HTTPException(503, f"No silo answered. {reasons}")
    return ResultsDocument.of(hits, asked=asked)
