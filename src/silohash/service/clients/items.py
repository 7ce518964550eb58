"""A client of the items API for Python programs at a silo. It needs nothing but the standard library."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from silohash.service.clients.calls import TIMEOUT_SECONDS, Connection, form, read_file


class Items(Connection):
    """Add, replace and remove items of a silo while it runs.

    Every call raises a `UserError` if the silo refuses it, does not have the item, or cannot be reached.

    Example:
        >>> items = Items("http://127.0.0.1:8766", "the token in items.token")
        >>> items
        Items("http://127.0.0.1:8766")
    """

    kind, example, remedy = "an items API", "http://127.0.0.1:8766", "Check that the silo is running."

    def __init__(self, url: str, token: str, *, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        super().__init__(url, token=token, timeout_seconds=timeout_seconds)

    def put(
        self,
        id: str,  # noqa: A002
        picture: str | Path | bytes | None = None,
        *,
        text: str = "",
        labels: Sequence[str] = (),
    ) -> dict[str, Any]:
        """Add an item, or replace it, and return its state. It is then on the disk.

        The picture is the path of a picture file, or its content. An item has a picture, a text or both.

        Returns:
            ``indexed`` tells whether the item can be found. If it is False, ``problem`` has the reason.
        """
        content = picture if isinstance(picture, bytes) or picture is None else read_file(Path(picture))
        fields = [("text", text.encode()), *(("labels", label.encode()) for label in labels)]
        body, content_type = form(fields, **({} if content is None else {"picture": content}))
        return self._request("PUT", _path(id), body, content_type)

    def delete(self, id: str) -> None:  # noqa: A002
        """Remove an item."""
        self._request("DELETE", _path(id))

    def state(self, id: str) -> dict[str, Any]:  # noqa: A002
        """Return the state of an item."""
        return self._request("GET", _path(id))

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield the states of all items that were added after the first indexing, in the order of their ids."""
        after: str | None = ""
        while after is not None:
            page = self._request("GET", f"/v1/items?{urlencode({'after': after})}")
            yield from page["items"]
            after = page["after"]


def _path(name: str) -> str:
    return f"/v1/items/{quote(name, safe='')}"
