"""The API with which programs on a silo's machine add, replace and remove items while the silo runs."""

from __future__ import annotations

import hmac
import socket
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Annotated

import uvicorn
from fastapi import Depends, FastAPI, File, Form, HTTPException, Query, Request, Response, UploadFile
from fastapi import Path as InPath
from pydantic import BaseModel

from silohash import __version__
from silohash.base.types import Modality, UserError
from silohash.data.pictures.formats import format_of
from silohash.index.items import is_id
from silohash.service.items.keeper import ItemState, Keeper, Server
from silohash.service.items.records import Record
from silohash.service.web.app import LOOPBACK
from silohash.service.web.errors import handle_errors
from silohash.service.web.guard import BODY_ROOM, Guard
from silohash.service.web.uploads import Limits, UploadError, read_picture

LONGEST_ID = 1_000
LONGEST_TEXT = 50_000
LONGEST_LABEL = 200
MOST_LABELS = 100
MOST_ITEMS = 1_000
"""Largest number of items of a page."""

STOP_SECONDS = 5
BEARER = {"WWW-Authenticate": "Bearer"}

ItemId = Annotated[str, InPath(min_length=1, max_length=LONGEST_ID, description="The id of the item.")]
Label = Annotated[str, Form(max_length=LONGEST_LABEL)]


class ItemDocument(BaseModel):
    """The state of an item."""

    id: str
    indexed: bool
    modalities: tuple[Modality, ...]
    model_digest: str
    problem: str

    @classmethod
    def of(cls, state: ItemState) -> ItemDocument:
        """Return the document of a state."""
        return cls(**vars(state))


class PageDocument(BaseModel):
    """Some items in the order of their ids, and the id after which the next page begins; None on the last page."""

    items: list[ItemDocument]
    after: str | None


def _guarded_app(token: str, limits: Limits) -> FastAPI:
    """Return an application without routes that checks the token and the size of requests and explains errors."""

    def check_token(request: Request) -> None:
        """Refuse a request without the token."""
        sent = request.headers.get("authorization", "").removeprefix("Bearer ")
        if not hmac.compare_digest(sent.encode(), token.encode()):
            raise HTTPException(401, "Send the token of this silo: Authorization: Bearer TOKEN", BEARER)

    app = FastAPI(
        title="silohash items",
        version=__version__,
        description="Add, replace and remove items of a silo while it runs.",
        docs_url=None,
        redoc_url=None,
        dependencies=[Depends(check_token)],
    )
    # Everything but a refused picture is a failure of the silo.
    handle_errors(app, status=lambda error: error.status if isinstance(error, UploadError) else 503)
    app.add_middleware(Guard, hosts=LOOPBACK, most_bytes=limits.most_bytes + BODY_ROOM + LONGEST_TEXT)
    return app


def items_app(keeper: Keeper, token: str, limits: Limits | None = None) -> FastAPI:
    """Return the application.

    Args:
        keeper: Keeps the silo's index.
        token: What programs send as a bearer token.
        limits: Limits of pictures; the defaults if None.
    """
    limits = limits or Limits()
    app = _guarded_app(token, limits)

    @app.put("/v1/items/{name:path}", summary="Add or replace an item")
    def put_item(
        response: Response,
        name: ItemId,
        picture: Annotated[UploadFile | None, File(description="The picture file.")] = None,
        text: Annotated[str, Form(max_length=LONGEST_TEXT)] = "",
        labels: Annotated[list[Label] | None, Form(max_length=MOST_LABELS)] = None,
    ) -> ItemDocument:
        """Store an item, and answer when it is on the disk and can be found.

        The status is 202 if the item is stored, but the present model cannot encode it. The document then has the reason.
        """
        record = _record(name, text, labels or ())
        content, suffix = _checked_picture(picture, limits)
        if not content and not record.text:
            raise HTTPException(422, "The item has neither a picture nor a text. Send at least one of them.")
        state = keeper.put(record, content, suffix)
        response.status_code = 200 if state.indexed else 202
        return ItemDocument.of(state)

    @app.delete("/v1/items/{name:path}", summary="Remove an item", status_code=204)
    def delete_item(name: ItemId) -> None:
        """Remove an item. Searches do not find it any more when this call answers."""
        if not keeper.delete(name):
            raise HTTPException(404, _unknown(name))

    @app.get("/v1/items/{name:path}", summary="Return the state of an item")
    def get_item(name: ItemId) -> ItemDocument:
        """Return whether an item can be found, and by which model it was encoded."""
        state = keeper.state(name)
        if state is None:
            raise HTTPException(404, _unknown(name))
        return ItemDocument.of(state)

    @app.get("/v1/items", summary="List the items of the folder")
    def get_items(
        after: Annotated[str, Query(max_length=LONGEST_ID)] = "",
        limit: Annotated[int, Query(ge=1, le=MOST_ITEMS)] = 100,
    ) -> PageDocument:
        """Return items that were added after the first indexing, in the order of their ids."""
        states = keeper.page(after, limit)
        last = states[-1].id if len(states) == limit else None
        return PageDocument(items=[ItemDocument.of(state) for state in states], after=last)

    return app


def serving(address: tuple[str, int], token: str, limits: Limits | None = None) -> Server:
    """Return a function that serves the API of a keeper in a thread while its context lasts.

    Args:
        address: Host and port to listen on.
        token: What programs send as a bearer token.
        limits: Limits of pictures; the defaults if None.
    """

    def serve(keeper: Keeper) -> AbstractContextManager[socket.socket]:
        """Serve the API of a keeper."""
        return _running(items_app(keeper, token, limits), address)

    return serve


@contextmanager
def _running(app: FastAPI, address: tuple[str, int]) -> Iterator[socket.socket]:
    """Serve an application in a thread, and yield the socket on which it listens.

    Raises:
        UserError: If the address cannot be used.
    """
    host, port = address
    try:
        listening = socket.create_server(address, family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise UserError(
            f"Port {port} of {host} cannot be used for the items API ({error.strerror}). Change listen in [items]."
        ) from error
    options = uvicorn.Config(
        app, log_config=None, access_log=False, server_header=False, timeout_graceful_shutdown=STOP_SECONDS
    )
    server = uvicorn.Server(options)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, name="items API", daemon=True)
    thread.start()
    try:
        yield listening
    finally:
        server.should_exit = True
        thread.join()
        listening.close()


def _record(name: str, text: str, labels: tuple[str, ...] | list[str]) -> Record:
    """Return the record of an item, after checking its texts."""
    kept = tuple(dict.fromkeys(filter(None, (label.strip() for label in labels))))
    for value in (name, *filter(None, (text, *kept))):
        if not is_id(value):
            raise HTTPException(422, "The id, the text or a label has a NUL character or is not valid Unicode.")
    return Record(id=name, text=text.strip(), labels=kept)


def _checked_picture(picture: UploadFile | None, limits: Limits) -> tuple[bytes, str]:
    """Return the content of a picture file and the end of its name, after checking that it can be decoded."""
    if picture is None:
        return b"", ""
    content = picture.file.read(limits.most_bytes + 1)
    read_picture(content, limits)
    found = format_of(content)
    return content, found.suffixes[0] if found else ""


def _unknown(name: str) -> str:
    return f'This silo does not have an item "{name}". Check its id.'
