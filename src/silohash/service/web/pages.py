"""The pages for people: search, one item, and the federation. They work without JavaScript.

Released pictures are sent in the sizes of the page, encoded again, so that a browser never receives a file as someone made
it.
"""

import asyncio
import hashlib
import io
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any, get_args

from fastapi import APIRouter, Depends, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from PIL import Image
from starlette.datastructures import QueryParams

from silohash.base.errors import NotFound, UnreadablePicture, UploadRefused, UserError
from silohash.base.files import digest_json, read_bytes
from silohash.base.types import MODALITIES, Target
from silohash.data.pictures.formats import MEDIA_TYPES
from silohash.data.pictures.reading import decode
from silohash.search.composed import Composed
from silohash.search.fields import MOST_FACET_VALUES
from silohash.search.hits import Hits
from silohash.search.requests import FederationStatus, Item, SearchRequest
from silohash.service.web import cards, uploads
from silohash.service.web.api import check_columns
from silohash.service.web.arriving import EVENTS, Arriving, Search, event, streamed
from silohash.service.web.cards import summarized
from silohash.service.web.errors import status_of
from silohash.service.web.form import PAGE_HITS, SearchForm
from silohash.service.web.language import Language, language_of
from silohash.service.web.page_templates import page
from silohash.service.web.state import Allowed, IdQuery, NameQuery, Service, Shared, asker

SIZES = (480, 1600)
"""Longest sides of pictures, in pixels: in a grid, and on the page of an item."""

QUALITY = 85
SMALL_PIXELS = 128
"""Pictures with shorter sides are sent as PNG, without loss."""

MOST_BYTES = 64_000_000
"""Most bytes of encoded pictures that are remembered."""

EXPIRED = "The picture of this search is no longer kept. Choose it again."
NOT_SENT = "No picture was sent. Choose a picture file, and press “Search with it”."
KEPT_PIXELS = 160
TARGETS = get_args(Target)

GATHER_SECONDS = 0.4
"""Time for which the answers of silos are gathered before they are shown without those of the others."""

DAY = "private, max-age=86400"


class Media:
    """Read, scale and encode pictures, and remember the last ones."""

    def __init__(self) -> None:
        self._bytes = 0
        self._known: OrderedDict[str, tuple[bytes, str]] = OrderedDict()
        self._lock = Lock()

    def picture(self, path: Path, pixels: int) -> tuple[bytes, str]:
        """Return the content and the media type of a picture whose sides are at most ``pixels`` long.

        Raises:
            UserError: If the file cannot be read or decoded.
        """
        try:
            state = path.stat()
            key = digest_json([str(path), state.st_mtime_ns, state.st_size, pixels])
            with self._lock:
                if key in self._known:
                    self._known.move_to_end(key)
                    return self._known[key]
            found = encoded(decode(read_bytes(path), at_least_pixels=pixels), pixels)
        except (OSError, ValueError) as error:
            raise UnreadablePicture(f"The picture cannot be read ({error}). Its silo must restore the file.") from error
        self._remember(key, found)
        return found

    def _remember(self, key: str, found: tuple[bytes, str]) -> None:
        with self._lock:
            if key not in self._known:
                self._known[key] = found
                self._bytes += len(found[0])
            while self._bytes > MOST_BYTES:
                _, (content, _) = self._known.popitem(last=False)
                self._bytes -= len(content)


router = APIRouter(dependencies=[Depends(asker)], default_response_class=HTMLResponse, include_in_schema=False)
media = Media()


@router.get("/")
async def search(request: Request, service: Shared, who: Allowed) -> Response:
    """Show the search form and, if something is searched for, one page of results.

    A script may accept events. If silos are late, it then gets a page with the results so far, and later further ones.
    """
    form, error, hits, like = SearchForm(), None, None, None
    try:
        form = replace(SearchForm.read(request.query_params), at=None)
        if form.asks:
            _check_picture(request.query_params)
            like = await service.backend.item(form.of, form.like, asker=who) if form.like else None
            arriving = Arriving(await _search_for(service, who, form))
            scripted = EVENTS in request.headers.get("accept", "")
            if scripted and (first := await arriving.gathered(GATHER_SECONDS)) is not None:
                return streamed(_pages(partial(_results, request, service, who, form, like), first, arriving), arriving)
            hits = await arriving.whole
    except UserError as refused:
        error = refused
    return await _results(request, service, who, form, like, hits, error)


async def _pages(
    page_of: Callable[..., Awaitable[HTMLResponse]], hits: Hits | None, arriving: Arriving
) -> AsyncIterator[str]:
    """Yield the page of some results so far, those of later ones, and at last that of the whole result."""
    while hits is not None:
        yield event("partial", bytes((await page_of(hits)).body).decode())
        hits = await arriving.gathered(GATHER_SECONDS)
    try:
        last = await page_of(await arriving.whole)
    except UserError as error:
        last = await page_of(None, error)
    yield event("result", bytes(last.body).decode())


async def _results(
    request: Request, service: Service, who: str, form: SearchForm, like: Item | None, hits: Hits | None,
    error: UserError | None = None,
) -> HTMLResponse:  # fmt: skip
    """Return the page of a search: its results, why there are none or, if nothing is asked for, ways to begin."""
    status, t = await (service.status() if form.asks else service.recent_status()), language_of(request)
    asked = len(form.silos) or len(status.silos)
    shown: dict[str, Any] = {"summary": None, "cards": []}
    if hits is not None:
        shown = {"summary": summarized(hits, form, t, asked=asked), "cards": cards.hit_cards(hits, status, t)}
    known = cards.badges(silo.name for silo in status.silos)
    return _page(
        request, "search.html", who, status, 200 if error is None else status_of(error), form=form, message=str(error or ""),
        **shown, like=None if like is None else cards.card_of(like, known[like.silo]),
        examples=cards.example_cards(status),
        suggestions=cards.suggestions(status.silos) if "text" in status.inputs else [],
        silos=[(known[silo.name], silo) for silo in status.silos],
        silent=[silo for silo in status.silos if not silo.reachable], labels=cards.labels_of(status, form.labels),
        targets=TARGETS, ways=cards.ways_to_search(status), media_types=MEDIA_TYPES,
        most_bytes=uploads.MOST_BYTES,
    )  # fmt: skip


@router.post("/picture")
async def send_picture(request: Request, service: Shared) -> Response:
    """Receive a picture or a drawing, and redirect to the page of its results."""
    async with request.form(max_files=1, max_fields=2000) as fields:
        form = SearchForm.read(fields)
        drawing = fields.get("drawing") == "1"
        file = None if isinstance(upload := fields.get("picture_file"), str) else upload
        content = b"" if file is None else await file.read()
    is_chosen = file is not None and bool(file.filename or content)  # else browsers send an empty file without a name
    if not is_chosen:
        raise UploadRefused(NOT_SENT)
    await service.read_picture(content, drawing=drawing)  # a refusal comes before the address of results exists
    name = service.recent.keep(content, drawing=drawing)
    return RedirectResponse(form.address(picture=name), 303)


@router.get("/picture/{name}")
async def kept_picture(service: Shared, name: str) -> Response:
    """Return a small copy of the picture of a search, for the person who sent it."""
    content, media_type = await asyncio.to_thread(encoded, await _kept(service, name), KEPT_PIXELS)
    return Response(content, media_type=media_type, headers={"cache-control": DAY})


@router.get("/picture")
async def picture(
    request: Request, service: Shared, who: Allowed, silo: NameQuery, name: IdQuery, size: int = SIZES[0]
) -> Response:
    """Return the picture of an item in one of the sizes of the page, if its silo releases the file on this machine."""
    item = await service.backend.item(silo, name, asker=who)
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
async def item(request: Request, service: Shared, who: Allowed, silo: NameQuery, name: IdQuery) -> HTMLResponse:
    """Show one item and, if the address tells from which results it comes, why it was found and those beside it."""
    status, found = await asyncio.gather(service.status(), service.backend.item(silo, name, asker=who))
    source, small = cards.picture_address(found, SIZES[-1])
    results, near = SearchForm(), dict[int, cards.Card]()
    with suppress(UserError):  # the item is shown in any case
        results = SearchForm.read(QueryParams(request.query_params.get("results", "")))
        near = await _beside(service, who, results, found, language_of(request))
    return _page(
        request, "item.html", who, status, item=found, source=source, small=small, tiny=small and cards.is_tiny(source),
        badge=cards.badges(each.name for each in status.silos)[found.silo],
        results=results, near=near, back=results.address(page=((results.at or 1) - 1) // PAGE_HITS + 1),
    )  # fmt: skip


@router.get("/federation")
async def federation(request: Request, service: Shared, who: Allowed) -> HTMLResponse:
    """Show the silos, and the record of their training."""
    status = await service.recent_status()
    known = cards.badges(silo.name for silo in status.silos)
    return _page(
        request, "federation.html", who, status,
        silos=[(known[silo.name], silo, cards.item_count(silo)) for silo in status.silos],
        reachable=sum(silo.reachable for silo in status.silos),
        models=len({silo.model_digest for silo in status.silos if silo.model_digest}),
        charts=cards.charts(status.rounds, status.chosen_round, language_of(request)),
        uplink=sum(record.uplink_bytes for record in status.rounds),
        downlink=sum(record.downlink_bytes for record in status.rounds),
    )  # fmt: skip


def _check_picture(parameters: QueryParams) -> None:
    """Refuse the name of a picture without the picture, which a browser without JavaScript sends beside words."""
    if parameters.get("picture_file"):
        raise UploadRefused(NOT_SENT)


async def _search_for(service: Service, who: str, form: SearchForm) -> Search:
    """Return the search that a form asks for, with the counts of values."""
    status = await service.status()
    silos = [silo for silo in status.silos if silo.reachable and silo.name in (form.silos or {silo.name})]
    counted, date = cards.listed_columns(silos)
    newest_by = None if form.searches else date
    options = replace(form.options(), asker=who, facets=counted, facet_values=MOST_FACET_VALUES, newest_by=newest_by)
    await check_columns(options, service)
    if form.like:
        by = next((modality for modality in MODALITIES if modality == form.by), None)
        return lambda told: service.backend.similar(form.of, form.like, replace(options, progress=told), by)
    wanted = SearchRequest.of(options, await _asked(service, form))
    return lambda told: service.backend.search(replace(wanted, progress=told))


async def _beside(service: Service, who: str, form: SearchForm, item: Item, t: Language) -> dict[int, cards.Card]:
    """Return an item of some results, the one before it and the one after it, by their numbers; nothing if it moved."""
    if form.at is None or not form.asks:
        return {}
    hits = await (await _search_for(service, who, form))(None)
    near = dict(enumerate(cards.hit_cards(hits, await service.status(), t), max(form.at - 1, 1)))
    here = near.get(form.at)
    return near if here and here.address == cards.item_address(item.silo, item.id) else {}


async def _asked(service: Service, form: SearchForm) -> Image.Image | Composed | str | None:
    """Return what a form searches for: words, a picture, or both as one query; None for nothing."""
    if not form.picture:
        return form.text or None
    picture = await _kept(service, form.picture)
    return Composed(picture, form.text) if form.text else picture


async def _kept(service: Service, name: str) -> Image.Image:
    if (kept := service.recent.get(name)) is None:
        raise NotFound(EXPIRED)
    return await service.read_picture(kept.content, drawing=kept.drawing)


def _page(
    request: Request, template: str, who: str, status: FederationStatus, code: int = 200, **values: object
) -> HTMLResponse:
    items = sum(map(cards.item_count, status.silos))
    return page(request, template, code, person=who, status=status, items=items, **values)


def encoded(picture: Image.Image, pixels: int) -> tuple[bytes, str]:
    """Return a picture, scaled down to sides of at most ``pixels``, as a PNG or JPEG file with its media type."""
    picture.thumbnail((pixels, pixels), Image.Resampling.LANCZOS)
    picture.info.clear()  # Pillow would write the comment of a JPEG file again
    content = io.BytesIO()
    if max(picture.size) <= SMALL_PIXELS:
        picture.save(content, "PNG")
        return content.getvalue(), "image/png"
    picture.convert("RGB").save(content, "JPEG", quality=QUALITY, optimize=True)
    return content.getvalue(), "image/jpeg"


def etag(content: bytes) -> str:
    """Return a value for the header ``ETag`` of a content."""
    return f'"{hashlib.blake2b(content, digest_size=12).hexdigest()}"'
