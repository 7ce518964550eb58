"""Authentication: sessions of people and tokens of programs.

A `Gate` gives the application its access rule, and the routes for signing in and out. The session of a person is a cookie
that scripts cannot read and that browsers do not send with requests from other sites. A request that changes something, such
as one that sends a picture, must also come from a page of this service. After wrong passwords and above a rate of requests,
an account or an address has to wait. The file of accounts is only used in threads, so that nobody else waits for it.
"""

import asyncio
import logging
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, TypeVar
from urllib.parse import quote, urlsplit
from weakref import WeakValueDictionary

from fastapi import APIRouter, FastAPI, Form, HTTPException, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from silohash.service.accounts import SESSION_SECONDS, Account, Accounts, Scope
from silohash.service.backends import Backend
from silohash.service.metrics import Metrics
from silohash.service.web.app import LOOPBACK, create_app
from silohash.service.web.guard import SAFE_METHODS, address_of
from silohash.service.web.monitor import METRICS, READY
from silohash.service.web.page_templates import page
from silohash.service.web.state import SIGN_IN, SIGN_OUT

LOG = logging.getLogger("silohash.service.web.auth")

ACCOUNT = "/account"
COOKIE, DEVICE = "__Host-silohash-session", "__Host-silohash-device"
"""Names of the cookies. With this prefix, browsers accept them from an encrypted connection to this very host only."""

DEVICE_SECONDS = 365 * 86_400
"""Time for which a browser is remembered after a sign-in."""

ADMINS_ONLY: frozenset[Scope | None] = frozenset({"metrics", "admin"})
"""Scopes of what only administrators may do when they are signed in."""

LONGEST_FIELD = 2_000
CHECKS_AT_ONCE = 2
"""Number of passwords that are checked at the same time, besides one of known browsers. Each takes 64 MB of memory."""

MOST_WAITING = 600
"""Number of passwords that may wait for their check."""

WRONG = "The name or the password is wrong."
Field = Annotated[str, Form(max_length=LONGEST_FIELD)]

MOST_KEYS = 50_000
"""Number of names and addresses that are remembered. The ones seen longest ago are forgotten first."""

FREE_TRIES = 5
"""Number of wrong passwords before the first wait."""

WRONG_PER_ACCOUNT, WRONG_PER_ADDRESS = (1, 200), (10, 1_000)
"""Wrong passwords per minute and at once: for one account from all addresses, and from one address for all accounts."""

LONGEST_WAIT_SECONDS = 900.0
FORGET_SECONDS = 3_600.0
"""Wrong passwords are forgotten after this time without another one."""

T = TypeVar("T")


class RateLimit:
    """Limit requests per key, with a bucket that fills at a constant rate.

    Example:
        >>> now = 0.0
        >>> limit = RateLimit(per_minute=60, burst=2, clock=lambda: now)
        >>> [limit.wait_seconds("a") for _ in range(3)]
        [0.0, 0.0, 1.0]
    """

    def __init__(self, *, per_minute: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        """Allow some requests per minute permanently, and ``burst`` at once. The clock never decreases."""
        self._per_second = per_minute / 60
        self._burst = float(burst)
        self._clock = clock
        self._buckets: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()

    def wait_seconds(self, key: Hashable, *, count: bool = True) -> float:
        """Return 0 if a request is allowed, or after how many seconds it would be. An allowed one is counted."""
        now = self._clock()
        left, since = self._buckets.get(key, (self._burst, now))
        left = min(self._burst, left + (now - since) * self._per_second)
        allowed = left >= 1
        self._buckets[key] = (left - 1 if allowed and count else left, now)
        _forget_oldest(self._buckets, key)
        return 0.0 if allowed else (1 - left) / self._per_second


class BackOff:
    """Let someone wait longer after each wrong password: 1 s after the sixth, then twice as long each time, at most 15 min.

    Right passwords are not counted. Wrong ones are counted per account and address together, or per account and known
    browser, so that strangers cannot lock a person out from elsewhere. Weaker limits per account and per address slow down
    attempts that are spread over addresses or over accounts. Whoever has signed in to the account from this address or
    browser before passes them.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Create a record without failures. The clock returns a time in seconds that never decreases."""
        self._clock = clock
        self._failures: OrderedDict[Hashable, tuple[int, float]] = OrderedDict()
        self._known: OrderedDict[Hashable, None] = OrderedDict()
        shared = (WRONG_PER_ACCOUNT, WRONG_PER_ADDRESS)
        self._shared = [RateLimit(per_minute=rate, burst=burst, clock=clock) for rate, burst in shared]

    def wait_seconds(self, account: str, address: str, device: str = "") -> float:
        """Return for how many seconds a password of an account is not checked; 0 if it is checked now.

        The device is the mark of a browser in which someone has signed in to the account; empty for any other.
        """
        count, last = self._failures.get((account, device or address), (0, 0.0))
        # Without the limit of the exponent, the power overflows after a thousand wrong passwords.
        wait = min(LONGEST_WAIT_SECONDS, 2.0 ** min(count - FREE_TRIES - 1, 60)) if count > FREE_TRIES else 0.0
        return max(0.0, last + wait - self._clock(), *self._in_all(account, address, device, count=False))

    def failed(self, account: str, address: str, device: str = "") -> None:
        """Note a wrong password."""
        now, key = self._clock(), (account, device or address)
        count, last = self._failures.get(key, (0, now))
        self._failures[key] = (count + 1 if now - last <= FORGET_SECONDS else 1, now)
        _forget_oldest(self._failures, key)
        self._in_all(account, address, device, count=True)

    def succeeded(self, account: str, address: str, device: str = "") -> None:
        """Forget the wrong passwords of an account from an address or a browser, after the right one."""
        self._failures.pop((account, device or address), None)
        self._known[account, address] = None
        _forget_oldest(self._known, (account, address))

    def _in_all(self, account: str, address: str, device: str, *, count: bool) -> list[float]:
        """Return the waits of the weaker limits, which only count strangers."""
        if device or (account, address) in self._known:
            return []
        keys = zip(self._shared, (account, address), strict=True)
        return [limit.wait_seconds(key, count=count) for limit, key in keys]


def _forget_oldest(known: OrderedDict[Hashable, T], key: Hashable) -> None:
    """Note that a key was just seen, and forget those seen longest ago if there are too many."""
    known.move_to_end(key)
    while len(known) > MOST_KEYS:
        known.popitem(last=False)


@dataclass
class Gate:
    """Control the access to an application.

    Attributes:
        account_limit: Limit on the requests of an account. A page of results shows up to a hundred pictures.
        address_limit: Limit on the requests without valid credentials from an address, which several people may share.
    """

    accounts: Accounts
    account_limit: RateLimit = field(default_factory=lambda: RateLimit(per_minute=1_200, burst=400))
    address_limit: RateLimit = field(default_factory=lambda: RateLimit(per_minute=6_000, burst=3_000))
    back_off: BackOff = field(default_factory=BackOff)
    _turns: WeakValueDictionary[Hashable, asyncio.Lock] = field(default_factory=WeakValueDictionary, repr=False)
    _waiting: int = field(default=0, repr=False)

    def __post_init__(self) -> None:
        # Whoever reads never waits for those that check passwords or write, and known browsers do not wait for strangers.
        self._reads = ThreadPoolExecutor(2, "accounts")
        self._writes = ThreadPoolExecutor(CHECKS_AT_ONCE + 2, "passwords")
        self._checks = {known: asyncio.Semaphore(1 if known else CHECKS_AT_ONCE) for known in (False, True)}

    async def access(self, request: Request) -> str:
        """Return the sender of a request. This is the access rule of the application.

        Raises:
            HTTPException: With status 303 to the page for signing in, 401 without valid credentials, 403 if they do not
                permit the request, or 429 after too many requests.
        """
        credentials = request.headers.get("authorization")
        try:
            name = await (self._person(request) if credentials is None else self._program(request, credentials))
        except HTTPException:
            self._count(self.address_limit, address_of(request))
            raise
        self._count(self.account_limit, name)
        return name

    def router(self) -> APIRouter:
        """Return the routes for signing in and out."""
        router = APIRouter(include_in_schema=False)
        router.add_api_route(SIGN_IN, self._show, methods=["GET"])
        router.add_api_route(SIGN_IN, self._sign_in, methods=["POST"])
        router.add_api_route(SIGN_OUT, self._sign_out, methods=["POST"])
        router.add_api_route(ACCOUNT, self._show_account, methods=["GET"])
        return router

    async def signed_in(self, request: Request) -> Account | None:
        """Return the account of the session of a request, or None if there is none."""
        secret = self._sent(request, COOKIE)
        return await self._in(self._reads, self.accounts.session, secret) if secret else None

    async def _in(self, threads: ThreadPoolExecutor, function: Callable[..., T], *values: str) -> T:
        return await asyncio.get_running_loop().run_in_executor(threads, partial(function, *values))

    def _sent(self, request: Request, cookie: str) -> str:
        """Return the content of a cookie; an empty text if it is not sent or too long."""
        content = request.cookies.get(cookie, "")
        return content if len(content) <= LONGEST_FIELD else ""

    def _set(self, answer: Response, cookie: str, content: str, seconds: int) -> None:
        answer.set_cookie(cookie, content, seconds, secure=True, httponly=True, samesite="lax")

    async def _program(self, request: Request, credentials: str) -> str:
        kind, _, secret = credentials.partition(" ")
        if kind.lower() != "bearer":
            raise _unauthorized("The Authorization header is not of the form: Authorization: Bearer TOKEN.")
        known = self.accounts.token
        token = await self._in(self._reads, known, secret.strip()) if len(secret) <= LONGEST_FIELD else None
        if token is None:
            raise _unauthorized("The token is unknown or has expired. Ask for a new one.")
        needed = scope_of(request.url.path)
        if needed is None or needed not in token.scopes:
            what = f'The token does not have the scope "{needed}".' if needed else "A token does not open pages."
            raise HTTPException(403, f"{what} Use a token with the scopes that the request needs.")
        return token.account

    async def _person(self, request: Request) -> str:
        if (account := await self.signed_in(request)) is None:
            raise _not_signed_in(request)
        if request.method not in SAFE_METHODS:
            _check_origin(request)
        if scope_of(request.url.path) in ADMINS_ONLY and not account.admin:
            raise HTTPException(403, "Only administrators may do this.")
        return account.name

    def _count(self, limit: RateLimit, key: str) -> None:
        if wait := limit.wait_seconds(key):
            raise HTTPException(429, f"Too many requests. Wait {math.ceil(wait)} s.", _retry_after(wait))

    async def _show(self, request: Request, next: str = "/") -> Response:  # noqa: A002  the name in the address
        self._count(self.address_limit, address_of(request))
        if await self.signed_in(request) is not None:
            return RedirectResponse(local_path(next), 303)
        return _form(request, next)

    async def _sign_in(self, request: Request, name: Field = "", password: Field = "", next: Field = "/") -> Response:  # noqa: A002
        address = address_of(request)
        self._count(self.address_limit, address)
        _check_origin(request)
        name, mark = name.strip().lower(), self._sent(request, DEVICE)
        device = await self._in(self._reads, self.accounts.device, name, mark) if mark else ""
        refused, message, wait = await self._checked(name, password, address, device)
        if refused:
            return _form(request, next, message, name, refused, wait)
        # A session that someone else planted in the browser must not outlive the sign-in.
        session, mark = await self._in(self._writes, self._start, name, self._sent(request, COOKIE))
        answer = RedirectResponse(local_path(next), 303)
        self._set(answer, COOKIE, session, SESSION_SECONDS * 2)
        self._set(answer, DEVICE, mark, DEVICE_SECONDS)
        LOG.info("%s signed in from %s", name, address)
        return answer

    async def _checked(self, name: str, password: str, address: str, device: str) -> tuple[int, str, float]:
        """Check a password, and return the status of a refusal, or 0, with a sentence and the seconds to wait."""
        if self._waiting >= MOST_WAITING and not device:
            return 503, "Too many people are signing in. Try again in 10 s.", 10.0
        self._waiting += 1
        try:
            # Passwords for one account from one address are checked one after another, so that each knows of those before.
            turn = self._turns.setdefault((name, device or address), asyncio.Lock())
            async with turn, self._checks[bool(device)]:
                if wait := self.back_off.wait_seconds(name, address, device):
                    return 429, f"There were too many wrong passwords. Try again in {math.ceil(wait)} s.", wait
                if await self._in(self._writes, self.accounts.verify, name, password):
                    self.back_off.succeeded(name, address, device)
                    return 0, "", 0.0
                self.back_off.failed(name, address, device)
        finally:
            self._waiting -= 1
        LOG.warning("Sign-in from %s failed", address)  # the name may be a password, typed into the wrong field
        return 401, WRONG, 0.0

    def _start(self, name: str, former: str) -> tuple[str, str]:
        """Return the secret of a new session in place of a former one, and a mark for the browser."""
        self.accounts.end_session(former)
        return self.accounts.start_session(name), self.accounts.device(name)

    async def _sign_out(self, request: Request) -> Response:
        _check_origin(request)
        if await self.signed_in(request) is not None:  # strangers cannot have anything written
            await self._in(self._writes, self.accounts.end_session, self._sent(request, COOKIE))
        answer = RedirectResponse(SIGN_IN, 303)
        self._set(answer, COOKIE, "", 0)
        return answer

    async def _show_account(self, request: Request) -> Response:
        if (account := await self.signed_in(request)) is None:
            self._count(self.address_limit, address_of(request))
            return RedirectResponse(_sign_in_address(ACCOUNT), 303)
        return page(request, "account.html", account=account, sign_out=SIGN_OUT)


def app_for(
    backend: Backend, gate: Gate | None, hosts: Iterable[str] = (), picture_hosts: Iterable[str] = (), *,
    metrics: Metrics | None = None,
) -> FastAPI:  # fmt: skip
    """Return the application for people with an account and programs with a token or, without a gate, for this machine.

    Further names under which it is reached, besides those of this machine, need accounts. See `create_app`.
    """
    if gate is None:
        return create_app(backend, picture_hosts=picture_hosts, metrics=metrics)
    names = (*LOOPBACK, *(host.lower() for host in hosts))
    app = create_app(backend, access=gate.access, hosts=names, picture_hosts=picture_hosts, metrics=metrics)
    app.include_router(gate.router())
    return app


def scope_of(path: str) -> Scope | None:
    """Return the scope that a token needs for a path, or None if it is a page for people.

    Example:
        >>> scope_of("/api/v1/search/picture"), scope_of("/api/v1/item"), scope_of("/metrics"), scope_of("/federation")
        ('search', 'items', 'metrics', None)
    """
    if path.startswith("/api/"):
        call = path.removeprefix("/api/v1/").partition("/")[0]
        scopes: dict[str, Scope] = {"search": "search", "similar": "search", "status": "search", "item": "items"}
        return scopes.get(call, "admin")
    return "metrics" if path in (METRICS, READY) else None


def is_same_origin(request: Request) -> bool:
    """Return whether a request comes from a page of this service, by headers that pages cannot change.

    A request without these headers is refused. All current browsers send them with forms.
    """
    origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site")
    if site is not None and site != "same-origin":
        return False
    if origin is None:
        return site is not None
    return urlsplit(origin).netloc == request.headers.get("host")


def _check_origin(request: Request) -> None:
    if not is_same_origin(request):
        raise HTTPException(403, "The request does not come from a page of this service.")


def local_path(target: str) -> str:
    """Return a path of this service, or ``/`` if an address leads elsewhere.

    Example:
        >>> local_path("/item?id=3"), local_path("//example.org"), local_path("https://example.org")
        ('/item?id=3', '/', '/')
    """
    is_local = target.startswith("/") and not target.startswith(("//", "/\\")) and target.isprintable()
    return target if is_local and not target.startswith((SIGN_IN, SIGN_OUT)) else "/"


def _not_signed_in(request: Request) -> HTTPException:
    """Return the response to a request without credentials: a redirect to the form for pages, and an error for programs."""
    path = request.url.path
    if scope_of(path) is not None:
        return _unauthorized("Sign in, or send a token: Authorization: Bearer TOKEN.")
    target = f"{path}?{request.url.query}" if request.url.query else path
    return HTTPException(303, "Sign in.", {"Location": _sign_in_address(target if request.method == "GET" else "/")})


def _unauthorized(message: str) -> HTTPException:
    return HTTPException(401, message, {"WWW-Authenticate": "Bearer"})


def _sign_in_address(target: str) -> str:
    return f"{SIGN_IN}?next={quote(target, safe='/')}"


def _retry_after(wait: float) -> dict[str, str]:
    return {"Retry-After": str(math.ceil(wait))}


def _form(
    request: Request, target: str, message: str = "", name: str = "", status: int = 200, wait: float = 0.0
) -> HTMLResponse:
    shown = {"target": local_path(target), "message": message, "name": name, "action": SIGN_IN}
    answer = page(request, "sign_in.html", status, **shown)
    answer.headers.update(_retry_after(wait) if wait else {})
    return answer
