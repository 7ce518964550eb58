"""The pages for people: search, one item, and the federation. They work without JavaScript."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from silohash.base.errors import NotFound, UploadRefused, UserError
from silohash.base.types import MODALITIES, TARGETS, Modality
from silohash.data.pictures.formats import MEDIA_TYPES
from silohash.search.hits import Hits
from silohash.search.inputs import target_named
from silohash.service.backend import FederationStatus, Item, SearchRequest
from silohash.service.web.errors import status_of
from silohash.service.web.state import Allowed, Asker, Service, Shared, asker
from silohash.service.web.view import cards, charts
from silohash.service.web.view.cards import summarized
from silohash.service.web.view.form import LONGEST_NAME, SearchForm
from silohash.service.web.view.media import SIZES, Media, encoded, etag
from silohash.service.web.view.templates import render

EXPIRED = "The picture of this search is no longer kept. Choose it again."
KEPT_PIXELS = 160
DAY = "private, max-age=86400"

NameQuery = Annotated[str, Query(min_length=1, max_length=LONGEST_NAME)]

router = APIRouter(dependencies=[Depends(asker)], default_response_class=HTMLResponse, include_in_schema=False)
media = Media()


@router.get("/")
async def search(request: Request, service: Shared, who: Allowed) -> HTMLResponse:
    """Show the search form and, if something is searched for, one page of results."""
    form, message, code = SearchForm(), "", 200
    hits = None
    try:
        form = SearchForm.read(request.query_params)
        if form.asks:
            hits = await _found(service, await service.status(), form, who.name)
    except UserError as error:
        message, code = str(error), status_of(error)
    status = await (service.status() if form.asks else service.recent_status())
    return HTMLResponse(_search_page(status, form, hits, message, who), code)


@router.post("/picture")
async def send_picture(request: Request, service: Shared) -> Response:
    """Receive a picture or a drawing, and redirect to the page of its results."""
    async with request.form(max_files=1, max_fields=2000) as fields:
        form = SearchForm.read(fields)
        drawing = fields.get("drawing") == "1"
        upload = fields.get("picture_file")
        file = None if isinstance(upload, str) else upload
        content = b"" if file is None else await file.read()
    is_chosen = file is not None and bool(file.filename or content)  # else browsers send an empty file without a name
    if not is_chosen:
        raise UploadRefused("No picture was sent. Choose a picture file first.")
    await service.read_picture(content, drawing=drawing)  # a refusal comes before the address of results exists
    name = service.recent.keep(content, drawing=drawing)
    return RedirectResponse(replace(form, text="", picture=name).address(), 303)


@router.get("/picture/{name}")
async def kept_picture(service: Shared, name: str) -> Response:
    """Return a small copy of the picture of a search, for the person who sent it."""
    kept = service.recent.get(name)
    if kept is None:
        raise NotFound(EXPIRED)
    picture = await service.read_picture(kept.content, drawing=kept.drawing)
    content, media_type = await asyncio.to_thread(encoded, picture, KEPT_PIXELS)
    return Response(content, media_type=media_type, headers={"cache-control": DAY})


@router.get("/picture")
async def picture(
    request: Request,
    service: Shared,
    who: Allowed,
    silo: NameQuery,
    id: NameQuery,  # noqa: A002  the name in the address
    size: int = SIZES[0],
) -> Response:
    """Return the picture of an item in one of the sizes of the page, if its silo releases the file on this machine."""
    item = await service.backend.item(silo, id, asker=who.name)
    if item.path is None:
        raise NotFound("There is no picture of this item on this machine.")
    if size not in SIZES:
        raise NotFound(f"There is no picture with sides of {size} pixels. Use one of: {', '.join(map(str, SIZES))}.")
    content, media_type = await asyncio.to_thread(media.picture, item.path, size)
    headers = {"cache-control": DAY, "etag": etag(content)}
    if request.headers.get("if-none-match") == headers["etag"]:
        return Response(status_code=304, headers=headers)
    return Response(content, media_type=media_type, headers=headers)


@router.get("/item")
async def item(
    request: Request,
    service: Shared,
    who: Allowed,
    silo: NameQuery,
    id: NameQuery,  # noqa: A002  the name in the address
) -> HTMLResponse:
    """Show one item, and the items most similar to it."""
    status, found = await asyncio.gather(service.status(), service.backend.item(silo, id, asker=who.name))
    form = replace(SearchForm.read(request.query_params), silos=())  # the address names the silo of the item
    chosen = request.query_params.get("by") or ""
    by: Modality | None = next((modality for modality in found.modalities if modality == chosen), None)
    hits = await service.backend.similar(silo, id, replace(form.options(status.bits), asker=who.name), by)
    return HTMLResponse(_item_page(status, found, form, by or found.modalities[0], hits, who))


@router.get("/federation")
async def federation(service: Shared, who: Allowed) -> HTMLResponse:
    """Show the silos, and the record of their training."""
    status = await service.recent_status()
    known = cards.badges(silo.name for silo in status.silos)
    page = render(
        "federation.html",
        status=status,
        silos=[(known[silo.name], silo, cards.item_count(silo)) for silo in status.silos],
        items=sum(map(cards.item_count, status.silos)),
        reachable=sum(silo.reachable for silo in status.silos),
        models=len({silo.model_digest for silo in status.silos if silo.model_digest}),
        charts=charts.charts(status.rounds, status.chosen_round),
        uplink=charts.size_in_words(sum(record.uplink_bytes for record in status.rounds)),
        downlink=charts.size_in_words(sum(record.downlink_bytes for record in status.rounds)),
        size_in_words=charts.size_in_words,
        badges=known,
        person=who.name,
    )
    return HTMLResponse(page)


def error_page(status: int, message: str) -> HTMLResponse:
    """Return the page of an error."""
    return HTMLResponse(render("error.html", code=status, message=message), status)


async def _found(service: Service, status: FederationStatus, form: SearchForm, name: str) -> Hits:
    """Return the hits of one page, and one more if there is a next page."""
    options = replace(form.options(status.bits), asker=name)
    if not form.picture:
        return await service.backend.search(SearchRequest.of(options, text=form.text))
    kept = service.recent.get(form.picture)
    if kept is None:
        raise NotFound(EXPIRED)
    value = await service.read_picture(kept.content, drawing=kept.drawing)
    return await service.backend.search(SearchRequest.of(options, picture=value))


def _search_page(status: FederationStatus, form: SearchForm, hits: Hits | None, message: str, who: Asker) -> str:
    asked = len(form.silos) or len(status.silos)
    known = cards.badges(silo.name for silo in status.silos)
    return render(
        "search.html",
        status=status,
        form=form,
        message=message,
        summary=None if hits is None else summarized(hits, form, asked=asked),
        cards=[] if hits is None else cards.hit_cards(hits, status),
        examples=cards.example_cards(status),
        suggestions=cards.suggestions(status.silos) if "text" in status.inputs else [],
        silos=[(known[silo.name], silo) for silo in status.silos],
        silent=cards.silent_silos(status),
        labels=cards.labels_of(status),
        targets=cards.TARGET_WORDS,
        items=sum(map(cards.item_count, status.silos)),
        ways=cards.ways_to_search(status),
        media_types=MEDIA_TYPES,
        person=who.name,
    )


def _item_page(status: FederationStatus, found: Item, form: SearchForm, by: Modality, hits: Hits, who: Asker) -> str:
    known = cards.badges(silo.name for silo in status.silos)
    source, small = cards.picture_address(found, SIZES[-1])
    words = {"image": "picture", "text": "text"}

    def tab(side: Modality, target: str) -> str:
        """Return the address of the item's page with the items that are near one of its codes."""
        return cards.item_address(found.silo, found.id, by=side, find="" if target == "item" else target_named(target))

    return render(
        "item.html",
        status=status,
        item=found,
        badge=known[found.silo],
        source=source,
        small=small,
        tiny=small and cards.is_tiny(source),
        sides=[(words[side], tab(side, form.find), side == by) for side in MODALITIES if side in found.modalities],
        targets=[(cards.TARGET_WORDS[target], tab(by, target), target == form.find) for target in TARGETS],
        cards=cards.hit_cards(hits, status),
        summary=summarized(hits, form, asked=len(status.silos)),
        by=words[by],
        person=who.name,
    )
