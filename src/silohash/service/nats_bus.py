"""The bus over NATS. Each member has one connection to the server (`silohash.service.link`).

A hub publishes each request on the silo's subject and names the subject of the answer. The server delivers a request to one
of the processes that answer for the silo (a queue group), and informs the hub at once if there is none. After a lost
connection, the hub repeats unanswered requests until their deadline, and gives the silos time to reconnect.

Each request says for how long the hub still waits. A silo does not begin with one that has waited longer for its turn.

All messages are sealed (`silohash.service.envelope`). A silo answers a request that it cannot open with an empty message. A
hub that cannot open an answer, which others may have sent, waits on, and names this cause at the deadline.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from itertools import count
from logging import WARNING
from secrets import token_hex

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError

from silohash.search.bus import Replies, late
from silohash.search.checks import Observer
from silohash.search.reasons import Reason
from silohash.search.wire import Reader, with_time_left
from silohash.service.config import HubConfig
from silohash.service.envelope import HubEnvelopes, Opener, RejectedError, bound_to
from silohash.service.link import RETRY_SECONDS, Link
from silohash.service.logs import log_event
from silohash.service.nats_server import Subjects

NOT_CONNECTED = Reason("It is not running, or cannot be reached.", "not_connected")
NO_BUS = Reason("The hub cannot reach the silos, because it is not connected to the message server (NATS).", "no_bus")
# A missed deadline like any other, after several of which the silo is no longer waited for.
UNSEALED = Reason(
    "It cannot open what the hub seals, or others answered in its name. Compare the public keys in [sealing].", "late"
)

GRACE_SECONDS = 3.0
"""Time that silos have to reconnect after the hub did, before they count as absent."""

MOST_WAITING_BYTES = 256 << 20
NO_RESPONDERS = "503"

MOST_OWED = 100_000
"""Number of answers that a silo may still owe, and send late. The server drops older requests to a silo that hangs."""

MOST_UNASKED = 100
"""Number of answers without a request that are borne, such as those to requests that others repeated."""

SILENCE_SECONDS = 30.0
"""Time for which a silo is not listened to after it sent more answers than it was asked for."""

FLOOD = Reason("It sent more answers than it was asked for, so the hub does not listen to it for a while.", "flood")


@dataclass
class _Waiting:
    """A request of the hub that is not answered yet: what takes its outcome, and what opens its answer once it is sealed."""

    end: Callable[[bytes | Reason | None], None]
    open: Opener | None = None


class NatsBus:
    """The hub's side of the bus. See `silohash.search.wire.Carrier`.

    Each silo has a subscription of its own. If it sends many more answers than it was asked for, which no honest silo does,
    its subscription ends for a while, so that the server drops what it sends.
    """

    def __init__(self, config: HubConfig, found: Observer = lambda silo, finding: None) -> None:
        """Prepare the connection of a hub. The exceptions are those of `Link` and `HubEnvelopes`.

        ``found`` gets each flood, and each message in the name of a silo that is not the answer that it sealed.
        """
        self._found = found
        self._owed = Counter[str]()
        self._hubs: dict[str, str] = {}
        self._subscriptions: dict[str, Subscription] = {}
        self._silent_until: dict[str, float] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._subjects = Subjects(config.federation)
        self._envelopes, self._unsealed = HubEnvelopes(config.federation, config.sealing), set[str]()
        self._numbers = count()
        self._waiting: dict[tuple[str, str], _Waiting] = {}
        self.link = Link(config.bus, f"hub of {config.federation}", self._forget, self._give_up)

    async def ask(
        self, requests: Mapping[str, bytes], deadline_seconds: float, read: Reader = lambda silo, answer: None
    ) -> Replies[bytes]:
        """Send one request per silo, and wait for the answers. See `Carrier.ask`."""
        start = asyncio.get_running_loop().time()
        end = start + deadline_seconds
        found: dict[str, bytes | Reason] = {}
        arrived: dict[str, float] = {}
        open_ = dict(requests)
        while open_:
            if not await self.link.wait(_left(end)):
                found |= dict.fromkeys(open_, NO_BUS)
                break
            for silo, outcome in (await self._ask_once(open_, end, arrived, read)).items():
                if self._is_final(outcome, end):
                    silent = UNSEALED if silo in self._unsealed else late(deadline_seconds)
                    found[silo] = silent if outcome is None else outcome
            open_ = {silo: content for silo, content in requests.items() if silo not in found}
            if open_:
                await asyncio.sleep(RETRY_SECONDS)
        seconds = {silo: at - start for silo, at in arrived.items() if isinstance(found[silo], bytes)}
        return Replies.of(found, seconds)

    def _is_final(self, outcome: bytes | Reason | None, end: float) -> bool:
        """Return whether the outcome for a silo is final: it answered, it is absent, or the time is over."""
        restored_at = self.link.restored_at
        # After the connection was restored, silos may not be connected again yet.
        in_grace = restored_at is not None and asyncio.get_running_loop().time() < restored_at + GRACE_SECONDS
        absent = outcome is FLOOD or (isinstance(outcome, Reason) and not in_grace)
        return absent or isinstance(outcome, bytes) or _left(end) <= RETRY_SECONDS

    async def _ask_once(
        self, requests: Mapping[str, bytes], end: float, arrived: dict[str, float], read: Reader
    ) -> dict[str, bytes | Reason | None]:
        """Return an answer or a reason per silo; None if the connection was lost, or the time is over."""
        number, loop = next(self._numbers), asyncio.get_running_loop()
        outcomes: dict[str, bytes | Reason | None] = {}
        ended: asyncio.Future[None] = loop.create_future()

        def note(silo: str, outcome: bytes | Reason | None) -> None:
            """Note how a request ended, and read an answer."""
            outcomes[silo], arrived[silo] = outcome, loop.time()
            try:
                if isinstance(outcome, bytes):
                    read(silo, outcome)
            # The task that delivers messages goes on. It is raised by the one that asked.
            except Exception as error:
                if not ended.done():
                    ended.set_exception(error)
            if len(outcomes) == len(requests) and not ended.done():
                ended.set_result(None)

        # Answers are read where they arrive, because another task would begin later. Logs have the request of this one.
        context, keys = copy_context(), {silo: (silo, str(number)) for silo in requests}
        self._waiting |= {key: _Waiting(partial(context.run, partial(note, silo))) for silo, key in keys.items()}
        try:
            if await self._send(requests, number, end):
                await asyncio.wait((ended,), timeout=_left(end))
            if ended.done():
                ended.result()
        finally:
            for key in keys.values():
                self._waiting.pop(key, None)
        return {silo: outcomes.get(silo) for silo in requests}

    async def _send(self, requests: Mapping[str, bytes], number: int, end: float) -> bool:
        """Seal and send requests, and return whether there was a connection. The arguments are those of `_ask_once`."""
        client = self.link.client
        if client is None:
            return False
        try:
            for silo, content in requests.items():
                if self._silent_until.get(silo, 0.0) > asyncio.get_running_loop().time():
                    self._give_up(FLOOD, silo)
                    continue
                hub = self._hubs.get(silo) or await self._listen(client, silo)
                subject, answer = self._subjects.requests(silo), self._subjects.answer(silo, hub, number)
                content = with_time_left(content, _left(end))
                sealed, opener = self._envelopes.seal(silo, content, bound_to(subject, answer))
                if (waiting := self._waiting.get((silo, str(number)))) is None:
                    continue  # the connection was lost meanwhile
                waiting.open = opener
                # Counted first, because the answer can arrive at any moment from then on.
                self._owed[silo] = min(self._owed[silo] + 1, MOST_OWED)
                await client.publish(subject, sealed, reply=answer)
        except (NatsError, OSError):
            return False
        return True

    async def _forget(self, _: Client) -> None:
        """Forget the subscriptions of the former client. Each silo is listened to again when it is asked."""
        self._hubs.clear()
        self._subscriptions.clear()

    async def _listen(self, client: Client, silo: str) -> str:
        """Subscribe to the answers of a silo, each time under a new name of this hub, and return the name."""
        # Set first, so that other requests do not subscribe, too. The server gets them after the subscription.
        hub = self._hubs[silo] = token_hex(8)
        subject, receive = self._subjects.answers(silo, hub), partial(self._receive, silo, hub)
        subscription = await client.subscribe(subject, cb=receive, pending_bytes_limit=MOST_WAITING_BYTES)
        self._subscriptions[hub] = subscription
        if self._hubs.get(silo) != hub:
            self._end(hub)
        return hub

    async def _receive(self, silo: str, hub: str, message: Msg) -> None:
        """Pass an answer to the request that waits for it. Other answers are dropped."""
        if self._hubs.get(silo) != hub:
            return
        self._owed[silo] -= 1
        if self._owed[silo] < -MOST_UNASKED:
            self._silence(silo)
            return
        key = silo, message.subject.rpartition(".")[2]
        waiting = self._waiting.get(key)
        if waiting is None or waiting.open is None:
            return
        absent = (message.headers or {}).get("Status") == NO_RESPONDERS
        try:
            outcome = NOT_CONNECTED if absent else waiting.open(message.data)
        except RejectedError:
            self._found(silo, "forged")
            if silo not in self._unsealed:
                self._unsealed.add(silo)
                log_event("dropped an answer that the silo did not seal", level=WARNING, silo=silo)
            return
        self._unsealed.discard(silo)
        del self._waiting[key]
        waiting.end(outcome)

    def _silence(self, silo: str) -> None:
        self._owed[silo], self._silent_until[silo] = 0, asyncio.get_running_loop().time() + SILENCE_SECONDS
        self._end(self._hubs.pop(silo))
        self._found(silo, "flood")
        self._give_up(FLOOD, silo)

    def _end(self, hub: str) -> None:
        """End the subscription under a name of this hub, if there is one yet."""
        if (subscription := self._subscriptions.pop(hub, None)) is not None:
            # In a task of its own, because it cancels the one that delivers messages, which may be the one that runs here.
            task = asyncio.get_running_loop().create_task(_end_subscription(subscription))
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    def _give_up(self, outcome: Reason | None = None, silo: str | None = None) -> None:
        """Stop waiting for the answers of one silo or all silos, because they can no longer arrive."""
        for key in [key for key in self._waiting if silo in (None, key[0])]:
            self._waiting.pop(key).end(outcome)


async def _end_subscription(subscription: Subscription) -> None:
    with suppress(NatsError, OSError):
        await subscription.unsubscribe()


def _left(end: float) -> float:
    return max(0.0, end - asyncio.get_running_loop().time())
