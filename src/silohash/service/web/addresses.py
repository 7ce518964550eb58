"""Pictures by address: the service fetches them from the hosts that its operator allows, and from nowhere else.

Whoever may search could otherwise let the service call servers of its own network. So only ``https`` and its usual port
are used, redirects are not followed, and every address that the name of the host has must be a public one. The connection
goes to an address that was checked, because the name may have another one a moment later.
"""

import ipaddress
import socket
import ssl
import time
from collections.abc import Collection
from http.client import HTTPException, HTTPSConnection
from urllib.parse import urlsplit

from silohash import __version__
from silohash.base.attempts import attempted
from silohash.base.errors import UploadRefused
from silohash.service.web.uploads import MOST_BYTES

PORT = 443
MOST_SECONDS = 10.0
"""Time limit for a picture."""


class _Connection(HTTPSConnection):
    """A connection to a checked address of a host, whose certificate must be that of the host."""

    def __init__(self, host: str, address: str) -> None:
        super().__init__(host, PORT, timeout=MOST_SECONDS)
        self._address = address

    def connect(self) -> None:
        """Connect to the address, and check the certificate of the host."""
        plain = socket.create_connection((self._address, self.port), self.timeout)
        self.sock = ssl.create_default_context().wrap_socket(plain, server_hostname=self.host)


def fetch_picture(address: str, hosts: Collection[str]) -> bytes:
    """Return the content of a picture file at an address.

    Raises:
        UploadRefused: If the address is not of the form ``https://HOST/…``, the host is not one of ``hosts`` or not a public
            one, or it does not give a file of at most `MOST_BYTES` in time.
    """
    parts = attempted(lambda: urlsplit(address), ValueError, otherwise=urlsplit(""))
    host = (parts.hostname or "").lower()
    if parts.scheme != "https" or parts.netloc.lower() != host or not address.isascii() or not address.isprintable():
        raise UploadRefused(f"The address {address[:100]!r} does not begin with https:// and a host. Send the file.")
    if host not in hosts:
        raise UploadRefused(f"This service does not fetch pictures from {host}. Send the file itself.")
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    try:
        return _content(host, _public_address(host), target.replace(" ", "%20"))
    except (OSError, HTTPException) as error:
        raise UploadRefused(f"{host} does not give the picture ({error or type(error).__name__}).") from error


def _public_address(host: str) -> str:
    """Return an address of a host, all of whose addresses are public."""
    found = [str(entry[4][0]) for entry in socket.getaddrinfo(host, PORT, type=socket.SOCK_STREAM)]
    if not found or not all(ipaddress.ip_address(each).is_global for each in found):
        raise UploadRefused(f"{host} has an address in a private network. Send the file itself.")
    return found[0]


def _content(host: str, address: str, target: str) -> bytes:
    connection, until = _Connection(host, address), time.monotonic() + MOST_SECONDS
    try:
        connection.request("GET", target, headers={"User-Agent": f"silohash/{__version__}", "Accept": "image/*"})
        answer = connection.getresponse()
        if answer.status != 200:
            raise UploadRefused(f"{host} answers with HTTP status {answer.status}. Send the file itself.")
        content = bytearray()
        while part := answer.read1():
            content += part
            if len(content) > MOST_BYTES:
                raise UploadRefused(f"The picture at {host} has more than {MOST_BYTES / 1e6:,.0f} MB.", 413)
            if time.monotonic() > until:
                raise UploadRefused(f"{host} does not give the picture within {MOST_SECONDS:g} s. Send the file.")
        return bytes(content)
    finally:
        connection.close()
