"""The JSON API, under ``/api/v1``. Its description for programs is at ``/api/openapi.json``.

Programs that accept server-sent events get the results so far whenever a silo has answered, and at last all.
"""

from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, TypeAlias, TypeVar

from fastapi import APIRouter, Depends, File, HTTPException, Query, Request, UploadFile
from fastapi.responses import Response

from silohash.base.errors import BitsDiffer, ConflictingOptions, ModelsDiffer, NoEffect, UnknownName
from silohash.base.types import Modality
from silohash.base.visible import visible
from silohash.data.pictures.formats import NAMES
from silohash.search.composed import Composed, cropped
from silohash.search.filters import columns_in
from silohash.search.hits import Hits, SearchOptions
from silohash.search.inputs import vector_in
from silohash.search.requests import Asked, Code, FederationStatus, SearchRequest
from silohash.service.exclusions import Exclusions
from silohash.service.web import documents
from silohash.service.web.arriving import EVENTS, Arriving, event, streamed
from silohash.service.web.errors import responses
from silohash.service.web.state import Allowed, IdQuery, NameQuery, Service, Shared, asker

PREFIX = "/api/v1"

Found: TypeAlias = documents.ResultsDocument | Response
"""What a search finds, as a document or as events."""

WantedT = TypeVar("WantedT", bound=SearchOptions)

router = APIRouter(prefix=PREFIX, dependencies=[Depends(asker)])


def _answers(*further: int) -> dict[str, Any]:
    """Return how the responses of a search are described, which can have errors of further statuses."""
    about = 'Events "partial", and at last one event "result". Their data are documents as in JSON.'
    described = responses(404, 503, *further)
    described[200] |= {"content": {EVENTS: {"schema": {"type": "string", "description": about}}}}
    return {"response_model": documents.ResultsDocument, "responses": described}


@dataclass(frozen=True)
class Asking:
    """A request, who sends it, and the service that answers."""

    request: Request
    service: Shared
    who: Allowed

    async def search(self, query: documents.Options, value: "Asked | None", modality: Modality = "image") -> Found:
        """Return what a search for a value finds."""
        wanted = SearchRequest.of(query.options(self.who), value, modality)
        return await self.answer(wanted, self.service.backend.search)

    async def search_picture(self, query: documents.PictureOptions, content: bytes) -> Found:
        """Return what a search for the picture of a file finds.

        Raises:
            UserError: If the picture cannot be read or encoded, or a drawing has a region.
        """
        if query.drawing and query.region is not None:
            raise ConflictingOptions(
                "A drawing is fitted as a whole, so it has no region. Leave region or drawing out."
            )
        value = await self.service.read_picture(content, drawing=query.drawing)
        value = value if query.region is None else cropped(value, query.region)
        return await self.search(query, value if query.text is None else Composed(value, query.text, query.text_weight))

    async def answer(self, wanted: WantedT, search: Callable[[WantedT], Coroutine[Any, Any, Hits]]) -> Found:
        """Return what a search finds, as a document or as events."""
        asked = len({*wanted.silos}) if wanted.silos else await self.service.silo_count()
        await check_columns(wanted, self.service)
        if EVENTS not in self.request.headers.get("accept", ""):
            return _results(await search(wanted), asked)
        arriving = Arriving(lambda told: search(replace(wanted, progress=told)))
        first = await arriving.next()
        if first is None:
            _results(await arriving.whole, asked)  # an error without any event is answered with its status
        return streamed(_events(first, arriving, asked), arriving)


Ask: TypeAlias = Annotated[Asking, Depends()]


@router.get("/search", summary="Search for words", **_answers())
async def search_words(ask: Ask, query: Annotated[documents.TextOptions, Query()]) -> Found:
    """Return the items of all silos that are nearest to some words, or without words those that pass the filters."""
    return await ask.search(query, query.text)


@router.post("/search", summary="Search for words or a code", **_answers())
async def search_document(ask: Ask, document: documents.SearchDocument) -> Found:
    """Return the items of all silos that are nearest to some words or to a code, or those that pass the filters."""
    value = document.value()
    if isinstance(value, Code):
        check_code(value, await ask.service.recent_status())
    return await ask.search(document, value)


@router.post("/search/picture", summary="Search for a picture", **_answers(415))
async def search_picture(
    ask: Ask,
    query: Annotated[documents.PictureOptions, Query()],
    picture: Annotated[UploadFile, File(description=f"A {NAMES} file.")],
) -> Found:
    """Return the items of all silos that are nearest to a picture, or to a picture and words. The picture is not kept."""
    return await ask.search_picture(query, await picture.read())


@router.get("/search/picture", summary="Search for a picture at an address", **_answers(415))
async def search_address(ask: Ask, query: Annotated[documents.AddressOptions, Query()]) -> Found:
    """Return what a search for a picture does. The service fetches the picture, if it allows the host of its address."""
    return await ask.search_picture(query, await ask.service.fetch_picture(query.address))


@router.post("/search/vector", summary="Search for a feature vector", **_answers())
async def search_vector(
    ask: Ask,
    query: Annotated[documents.VectorOptions, Query()],
    vector: Annotated[UploadFile, File(description="A .npy file with numbers, computed like the features of the run.")],
) -> Found:
    """Return the items of all silos that are nearest to a feature vector, for runs that were trained on given features.

    A vector has the shape (D,), and the regions of a picture with their boxes have the shape (R, D + 4).
    """
    return await ask.search(query, vector_in(await vector.read()), query.of)


@router.get("/similar", summary="Search for items like an item", **_answers())
async def similar(ask: Ask, query: Annotated[documents.SimilarOptions, Query()]) -> Found:
    """Return the items of all silos whose codes are nearest to the code of an item, without the item itself."""
    if query.newest_by is not None:
        raise NoEffect("newest_by orders items only if nothing is searched for. Leave it out.")
    search = partial(ask.service.backend.similar, query.of_silo, query.of_id, by=query.by)
    return await ask.answer(query.options(ask.who), search)


@router.get("/item", summary="Show an item", responses=responses(404, 503))
async def item(service: Shared, who: Allowed, silo: NameQuery, name: IdQuery) -> documents.ItemDocument:
    """Return what a silo releases of one item."""
    return documents.ItemDocument.model_validate(await service.backend.item(silo, name, asker=who))


@router.get("/status", summary="Show the federation", responses=responses())
async def status(service: Shared) -> documents.StatusDocument:
    """Return the silos with their numbers of items, and which of them answer."""
    return documents.StatusDocument.model_validate(await service.recent_status())


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


async def check_columns(options: SearchOptions, service: Service) -> None:
    """Check that some silo releases each of the columns that a search uses, as far as that is known.

    Raises:
        UserError: If none does.
    """
    used = columns_in(options.conditions, options.newest_by)
    silos = (await service.recent_status()).silos if used else ()
    known = {name for silo in silos for name in (*silo.fields, *silo.columns)} - {"preview"}
    for name in used if known else ():
        if name not in known:
            raise UnknownName(f'No silo releases a column "{visible(name)}". Choose from: {", ".join(sorted(known))}.')


async def _events(hits: Hits | None, arriving: Arriving, asked: int) -> AsyncIterator[str]:
    """Yield results so far, and the whole result when the search is done."""
    while hits is not None:
        yield event("partial", documents.ResultsDocument.of(hits, asked=asked).model_dump_json())
        hits = await arriving.next()
    yield event("result", _results(await arriving.whole, asked).model_dump_json())


def _results(hits: Hits, asked: int) -> documents.ResultsDocument:
    """Return the document of a result of ``asked`` silos."""
    if not hits.answered and hits.missing_silos:
        reasons = " ".join(f"{silo}: {reason}" for silo, reason in hits.missing_silos.items())
        raise HTTPException(503, f"No silo answered. {reasons}")
    return documents.ResultsDocument.of(hits, asked=asked)
