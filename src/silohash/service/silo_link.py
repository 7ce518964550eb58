"""The silo's side of the bus: open the requests to a silo, have them answered, and seal the answers.

What cannot be opened is refused, counted and logged. It is answered with an empty message: so the hub can name the cause.
"""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from logging import WARNING

from nats.aio.client import Client
from nats.aio.msg import Msg

from silohash.search.requests import Refusal
from silohash.search.wire import MOST_ANSWER_BYTES, Responder, encode_answer
from silohash.service.config import SiloConfig
from silohash.service.envelope import OVERHEAD_BYTES, OpenedRequest, Rejected, RejectedError, SiloEnvelopes, bound_to
from silohash.service.link import Link
from silohash.service.logs import log_event
from silohash.service.nats_server import Subjects

QUEUE = "search"
"""Name of the queue group of a silo's processes."""

STALE = (
    "By the hub's clock, it was sent {:.1f} seconds {} it arrived by the clock of the silo. Set both clocks. They may "
    "differ by a minute, and hardly while the silo starts."
)

MOST_WAITING_REQUESTS = 1_000
"""Maximum number of requests that wait at a silo. Further requests are dropped and remain unanswered."""


@dataclass
class ArrivedMessage(Msg):
    """A message, with the value of the monotonic clock at which it was read. It may then wait for its turn."""

    arrived: float = field(default_factory=time.monotonic)


class SiloLink(Link):
    """The silo's side of the bus: receive requests to one silo, and answer them."""

    def __init__(
        self,
        config: SiloConfig,
        responder: Responder,
        executor: Executor | None,
        rejected: Callable[[Rejected], None] = lambda kind: None,
    ) -> None:
        """Prepare the connection of a silo. The exceptions are those of `Link` and `SiloEnvelopes`.

        ``rejected`` gets the reason of each request that the responder does not get.

        An ``executor`` runs the responder, so that the connection is served meanwhile. None runs it in the thread of the
        connection, which takes less time if an answer takes no more than about a millisecond.
        """
        super().__init__(config.bus, f"silo {config.silo}", self._subscribe)
        self._silo, self._subject = config.silo, Subjects(config.federation).requests(config.silo)
        self._answers = Subjects(config.federation).answer(config.silo, "", 0).removesuffix(".0")
        self._envelopes = SiloEnvelopes(config.federation, config.silo, config.sealing)
        self._rejected, self._logged = rejected, set[Rejected]()
        self._responder, self._executor = responder, executor

    async def _subscribe(self, client: Client) -> None:
        async def answer(message: Msg) -> None:
            """Answer one request."""
            arrived = message.arrived if isinstance(message, ArrivedMessage) else time.monotonic()
            opened = self._request_in(message, arrived)
            if opened is None:
                if message.reply.startswith(self._answers):
                    await client.publish(message.reply, b"")
                return
            arguments = (opened, min(client.max_payload, MOST_ANSWER_BYTES) - OVERHEAD_BYTES, arrived)
            if self._executor is None:
                content = self._answer(*arguments)
            else:
                content = await asyncio.get_running_loop().run_in_executor(self._executor, self._answer, *arguments)
            if message.reply:
                await client.publish(message.reply, content)

        client.msg_class = ArrivedMessage
        await client.subscribe(self._subject, queue=QUEUE, cb=answer, pending_msgs_limit=MOST_WAITING_REQUESTS)

    def _request_in(self, message: Msg, arrived: float) -> OpenedRequest | None:
        """Return the request in a message, or None after counting and logging that it is refused."""
        bound = bound_to(message.subject, message.reply)
        try:
            opened = self._envelopes.open(message.data, bound, time.monotonic() - arrived)
        except RejectedError as error:
            self._reject(error.kind, bytes=len(message.data))
            return None
        if opened.stale:
            self._reject("stale", ahead_seconds=round(opened.ahead_seconds, 1))
        else:
            self._logged.clear()
        return opened

    def _answer(self, opened: OpenedRequest, most_bytes: int, arrived: float) -> bytes:
        if not opened.stale:
            return opened.seal(self._responder(opened.content, most_bytes, arrived))
        text = STALE.format(abs(opened.ahead_seconds), "after" if opened.ahead_seconds > 0 else "before")
        return opened.seal(encode_answer(self._silo, Refusal(text)))

    def _reject(self, kind: Rejected, **fields: object) -> None:
        """Count a request that is refused, and log the first one of a kind after one that was answered."""
        self._rejected(kind)
        if kind not in self._logged:
            self._logged.add(kind)
            log_event("refused a request", level=WARNING, silo=self._silo, reason=kind, **fields)
