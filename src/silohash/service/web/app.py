"""The application: the API and the pages over a backend, with the form of their errors."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import Response
from starlette.exceptions import HTTPException
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from silohash import __version__
from silohash.base.errors import UserError
from silohash.service.backends import Backend
from silohash.service.metrics import Metrics
from silohash.service.web import api, monitor, pages, uploads
from silohash.service.web.documents import HealthDocument, ReadyDocument
from silohash.service.web.errors import REQUEST_ID, handle_errors, json_answer, responses, status_of
from silohash.service.web.guard import BODY_ROOM, Guard
from silohash.service.web.monitor import READY, MeasuredBackend, Monitor, is_this_machine
from silohash.service.web.page_templates import STATIC, page
from silohash.service.web.state import SIGN_IN, SIGN_OUT, Access, Service, Shared, asker, everyone

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
"""Names of this machine for itself."""

FOREVER = "public, max-age=31536000, immutable"
DESCRIPTION = """
Search the silos of a federation with words, a picture, a drawing or a code. Every error has the same form:
`{"error": {"status": …, "code": …, "message": …}}`.
"""


class _Static(StaticFiles):
    """Static files. Browsers may keep a file whose address contains its version."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        """Return a file, or an error if it does not exist."""
        response = await super().get_response(path, scope)
        if scope["query_string"].startswith(b"v="):
            response.headers["cache-control"] = FOREVER
        return response


def create_app(
    backend: Backend, *, access: Access = everyone, hosts: Iterable[str] = LOOPBACK, picture_hosts: Iterable[str] = (),
    metrics: Metrics | None = None,
) -> FastAPI:  # fmt: skip
    """Return the application over a federation.

    It answers under the names ``hosts``, where ``*`` is any, and fetches pictures from ``picture_hosts``. If the backend
    counts in metrics, they are those to give here.
    """
    metrics = metrics or Metrics()
    allowed = frozenset(host.lower() for host in picture_hosts)
    service = Service(MeasuredBackend(backend, metrics), access, metrics=metrics, picture_hosts=allowed)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        """Load the model before the first request, and stop what runs in the background after the last one."""
        await service.status()  # so that the first search does not wait for it
        yield
        await service.stop()

    app = FastAPI(
        title="silohash",
        version=__version__,
        description=DESCRIPTION,
        openapi_url="/api/openapi.json",
        docs_url=None,  # these pages would load scripts from another site
        redoc_url=None,
        lifespan=lifespan,
    )
    app.state.service = service
    app.include_router(api.router)
    app.include_router(pages.router)
    app.include_router(monitor.router)
    app.mount("/static", _Static(directory=STATIC), name="static")
    app.include_router(_health_router)
    handle_errors(app, status=status_of, answer=_answer, reasons=_REASONS)
    most = uploads.MOST_BYTES + BODY_ROOM
    app.add_middleware(Guard, hosts=tuple(hosts), most_bytes=most, admit=asker, forms=(SIGN_IN, SIGN_OUT))
    app.add_middleware(Monitor, metrics=metrics)
    return app


_REASONS = {
    "Not Found": "There is nothing at this address. The page is at /, and the description of the API at /api/openapi.json.",
    "Method Not Allowed": "This address does not take requests of this kind. The API is described at /api/openapi.json.",
    "There was an error parsing the body": "The body of the request cannot be decoded. Send JSON in UTF-8.",
}
"""Sentences for the errors of the framework, by their phrases."""


_HEALTH_RESPONSES: dict[int | str, dict[str, Any]] = {status: responses()[status] for status in (200, 400)}
_NOT_READY: dict[str, Any] = {"model": ReadyDocument, "description": "No silo can be searched.", "headers": REQUEST_ID}
_health_router = APIRouter(tags=["health"])


@_health_router.get("/healthz", summary="Check that the process answers", responses=_HEALTH_RESPONSES)
async def _health() -> HealthDocument:
    """Return that the process answers."""
    return HealthDocument()


@_health_router.get(
    READY,
    summary="Check whether searches can be answered",
    responses={**_HEALTH_RESPONSES, 503: _NOT_READY},
    response_model_exclude_none=True,
)
async def _ready(request: Request, service: Shared, response: Response) -> ReadyDocument:
    """Return whether a silo can be searched, as known within the last seconds. The status is 503 if there is none.

    The names of the silos are given to programs on this machine, to administrators and with a token for metrics.
    """
    silos = (await service.recent_status()).silos
    reachable = [silo.name for silo in silos if silo.reachable]
    if not reachable:
        response.status_code = 503
    answer = ReadyDocument(status="ready" if reachable else "no silo answers")
    if not is_this_machine(request):
        try:
            await asker(request)
        except (HTTPException, UserError):
            return answer
    missing = {silo.name: silo.reason for silo in silos if not silo.reachable}
    return answer.model_copy(update={"silos": reachable, "missing_silos": missing})


def _answer(request: Request, status: int, message: str, key: str) -> Response:
    """Return an error as JSON for programs, and as a page for people."""
    if request.url.path.startswith(("/api/", "/healthz", "/readyz", "/static/", "/metrics")):
        return json_answer(request, status, message, key)
    return page(request, "error.html", status, status=status, message=message, most_bytes=uploads.MOST_BYTES)
