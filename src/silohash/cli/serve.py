"""The command ``serve``: the search page over a finished run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from silohash.cli.console import print_result, print_status, spinner
from silohash.cli.help import SEARCH, add_command
from silohash.optional import require
from silohash.types import UserError

if TYPE_CHECKING:
    import socket

    from fastapi import FastAPI

PORT = 8765
LOOPBACK = ("127.0.0.1", "localhost", "::1")
"""Addresses that only this machine can reach."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(app, serve, SEARCH)


def serve(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of an indexed run.")],
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Address to listen on: 127.0.0.1, localhost or ::1.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(metavar="N", min=0, max=65535, help="Port to listen on; 0 for any that is free.")
    ] = PORT,
    open_: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
) -> None:
    """Open a search page over a finished run, for this machine.

    All silos of the run are searched in this process. The page and its JSON API need no account, so only this machine can
    reach them. Stop with Ctrl-C.
    """
    for package in ("fastapi", "uvicorn", "python_multipart"):
        require(package, "The search page")
    if host not in LOOPBACK:
        raise UserError(
            f'The page needs no account, so it listens only on addresses of this machine, and "{host}" is not one of '
            f"them. Use --host {LOOPBACK[0]}."
        )
    from silohash.service.app import create_app
    from silohash.service.local import LocalBackend

    with spinner("Loading the indexes and the model"):
        backend = LocalBackend.open(run)
        app = create_app(backend)
    try:
        _run(app, host, port, open_browser=open_)
    finally:
        backend.close()


def listening_socket(host: str, port: int) -> socket.socket:
    """Return a socket that listens on an address.

    Raises:
        UserError: if the port is taken or may not be used.
    """
    import socket

    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen()
    except OSError as error:
        listening.close()
        raise UserError(
            f"Port {port} of {host} cannot be used ({error.strerror}). Choose another with --port, or --port 0."
        ) from error
    return listening


def _run(app: FastAPI, host: str, port: int, *, open_browser: bool) -> None:
    """Serve an application until the process is interrupted."""
    import uvicorn

    listening = listening_socket(host, port)
    shown = f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{listening.getsockname()[1]}"
    print_result(f"The search page is at {address}")
    print_status("Press Ctrl-C to stop.")
    if open_browser:
        import webbrowser

        webbrowser.open(address)
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, server_header=False, timeout_graceful_shutdown=3
    )
    try:
        uvicorn.Server(config).run(sockets=[listening])
    except KeyboardInterrupt:
        print_status("Stopped.")
