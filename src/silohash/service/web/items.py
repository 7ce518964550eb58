"""The API with which programs on a silo's machine add, replace and remove items while the silo runs."""

import hmac
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

from fastapi import Depends, FastAPI, File, Form, HTTPException, Query, Request, Response, UploadFile
from fastapi import Path as InPath
from pydantic import BaseModel

from silohash import __version__
from silohash.base.errors import UnusableSecret, UploadRefused
from silohash.base.files import check_private, write_secret
from silohash.base.forms import reading
from silohash.data.pictures.formats import format_of
from silohash.index.items import is_id
from silohash.service.items.keeper import ItemState, Keeper
from silohash.service.items.scan import Record
from silohash.service.web import uploads
from silohash.service.web.app import LOOPBACK
from silohash.service.web.errors import ASKER, handle_errors
from silohash.service.web.guard import BODY_ROOM, Guard
from silohash.service.web.server import Server, listening_socket

LONGEST_ID = 1_000
LONGEST_TEXT = 50_000
LONGEST_LABEL = 200
MOST_LABELS = 100
MOST_ITEMS = 1_000
"""Largest number of items of a page."""

STOP_SECONDS = 5
LEAST_CHARACTERS = 32
"""Minimum length of a token."""

BEARER = {"WWW-Authenticate": "Bearer"}

ItemId = Annotated[str, InPath(min_length=1, max_length=LONGEST_ID, description="The id of the item.")]
Label = Annotated[str, Form(max_length=LONGEST_LABEL)]


class PageDocument(BaseModel):
    """Some items in the order of their ids, and the id after which the next page begins; None on the last page."""

    items: list[ItemState]
    after: str | None


def _guarded_app(token: str) -> FastAPI:
    """Return an application without routes that checks the token and the size of requests and explains errors."""

    async def check_token(request: Request) -> str:
        """Refuse a request without the token."""
        sent = request.headers.get("authorization", "").removeprefix("Bearer ")
        if not hmac.compare_digest(sent.encode(), token.encode()):
            raise HTTPException(401, "Send the token of this silo: Authorization: Bearer TOKEN", BEARER)
        return str(request.scope.setdefault(ASKER, ""))

    app = FastAPI(
        title="silohash items",
        version=__version__,
        description="Add, replace and remove items of a silo while it runs.",
        docs_url=None,
        redoc_url=None,
        dependencies=[Depends(check_token)],
    )
    # Everything but a refused picture is a failure of the silo.
    handle_errors(app, status=lambda error: error.status if isinstance(error, UploadRefused) else 503)
    most = uploads.MOST_BYTES + BODY_ROOM + LONGEST_TEXT
    app.add_middleware(Guard, hosts=LOOPBACK, most_bytes=most, admit=check_token)
    return app


def items_app(keeper: Keeper, token: str) -> FastAPI:
    """Return the application over the keeper of an index, for programs that send a token."""
    app = _guarded_app(token)

    @app.put("/v1/items/{name:path}", summary="Add or replace an item")
    def put_item(
        response: Response,
        name: ItemId,
        picture: Annotated[UploadFile | None, File(description="The picture file.")] = None,
        text: Annotated[str, Form(max_length=LONGEST_TEXT)] = "",
        labels: Annotated[list[Label] | None, Form(max_length=MOST_LABELS)] = None,
    ) -> ItemState:
        """Store an item, and answer when it is on the disk and can be found.

        The status is 202 if the item is stored, but the present model cannot encode it. The document then has the reason.
        """
        record = _record(name, text, labels or ())
        content, suffix = _checked_picture(picture)
        if not content and not record.text:
            raise HTTPException(422, "The item has neither a picture nor a text. Send at least one of them.")
        state = keeper.put(record, content, suffix)
        response.status_code = 200 if state.indexed else 202
        return state

    @app.delete("/v1/items/{name:path}", summary="Remove an item", status_code=204)
    def delete_item(name: ItemId) -> None:
        """Remove an item. Searches do not find it any more when this call answers."""
        if not keeper.delete(name):
            raise HTTPException(404, _unknown(name))

    @app.get("/v1/items/{name:path}", summary="Return the state of an item")
    def get_item(name: ItemId) -> ItemState:
        """Return whether an item can be found, and by which model it was encoded."""
        if (state := keeper.state(name)) is None:
            raise HTTPException(404, _unknown(name))
        return state

    @app.get("/v1/items", summary="List the items of the folder")
    def get_items(
        after: Annotated[str, Query(max_length=LONGEST_ID)] = "",
        limit: Annotated[int, Query(ge=1, le=MOST_ITEMS)] = 100,
    ) -> PageDocument:
        """Return items that were added after the first indexing, in the order of their ids."""
        states = keeper.page(after, limit)
        last = states[-1].id if len(states) == limit else None
        return PageDocument(items=states, after=last)

    return app


@contextmanager
def serving(keeper: Keeper, address: tuple[str, int], token: str) -> Iterator[None]:
    """Serve the API of a keeper at a host and port while a block runs, in a thread, for programs that send a token."""
    with listening_socket(*address, remedy="Change listen in [items].") as listening:
        server = Server(items_app(keeper, token), stop_seconds=STOP_SECONDS)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, name="items API", daemon=True)
        thread.start()
        try:
            yield
        finally:
            server.should_exit = True
            thread.join()


def _record(name: str, text: str, labels: tuple[str, ...] | list[str]) -> Record:
    kept = tuple(dict.fromkeys(filter(None, (label.strip() for label in labels))))
    for value in (name, *filter(None, (text, *kept))):
        if not is_id(value):
            raise HTTPException(422, "The id, the text or a label has a NUL character or is not valid Unicode.")
    return Record(id=name, text=text.strip(), labels=kept)


def _checked_picture(picture: UploadFile | None) -> tuple[bytes, str]:
    """Return the content of a picture file and the end of its name, after checking that it can be decoded."""
    if picture is None:
        return b"", ""
    content = picture.file.read(uploads.MOST_BYTES + 1)
    uploads.read_picture(content)
    found = format_of(content)
    return content, found.suffixes[0] if found else ""


def _unknown(name: str) -> str:
    return f'This silo does not have an item "{name}". Check its id.'


def read_token(path: Path) -> str:
    """Return the token in a file. A file that does not exist is created with a new token.

    Raises:
        UserError: If the file cannot be read or written, others can read it, or its token is too short.
    """
    if not path.exists():
        write_secret(path, f"{secrets.token_urlsafe(32)}\n".encode())
    with reading(path, remedy="Remove it, and start the silo again.", missing="Start the silo again."):
        token = path.read_text("ascii").strip()
        check_private(path)
    if len(token) < LEAST_CHARACTERS:
        raise UnusableSecret(
            f"The token in {path} has {len(token)} characters, and at least {LEAST_CHARACTERS} are needed. Remove the file "
            "to get a new one."
        )
    return token
