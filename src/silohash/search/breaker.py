"""Stop waiting for a silo that hangs, until it answers a probe: a half-open circuit breaker per silo.

A process can hang while its connection stays open, which a message server may never notice. After a number of missed
deadlines, the breaker of the silo opens: requests to the silo end at once, with the reason `SKIPPED`. Meanwhile the silo is
asked for its summary again and again. The breaker closes as soon as the silo replies, whatever the reply is.

Summaries do not show that searches are answered, because the index server of a silo may hang and its process not. So they
neither count as missed nor as answered. Until the silo answers something else, the pauses before its probes keep growing.
"""

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from silohash.search.bus import Arrived, Bus, Replies, ignored
from silohash.search.reasons import Reason, kind_of
from silohash.search.requests import Answer, Request, StatusRequest

State: TypeAlias = Literal["closed", "open", "half_open"]
"""State of a breaker. The silo is asked while it is ``closed``. While it is ``half_open``, a probe is under way."""

SKIPPED = Reason("It has stopped answering, and is not waited for until it answers again.", "skipped")
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.5, 8.0
"""The first probe is sent at once. The pause before each further one is twice the pause before it."""

_log = logging.getLogger(__name__)


@dataclass
class _Silo:
    """What is known of a silo since it last answered: missed deadlines, and when it was first sent a request."""

    misses: int = 0
    since: float | None = None
    pause_seconds: float = 0.0
    probing: asyncio.Task[None] | None = None


class BreakerBus:
    """Pass requests on to another bus, except those to silos that have stopped answering. See `silohash.search.bus.Bus`."""

    def __init__(
        self,
        bus: Bus,
        *,
        misses: int,
        patience_seconds: float,
        observe: Callable[[str, State], None] = lambda silo, state: None,
    ) -> None:
        """Surround a bus.

        Args:
            bus: The bus to the silos.
            misses: Number of missed deadlines in a row after which a breaker opens; 0 to always wait.
            patience_seconds: Time limit of a probe. Missing an earlier deadline counts only if the silo has not answered
                anything for that long, so that hasty requests do not cost others the silo.
            observe: Gets the name of a silo and the new state of its breaker.
        """
        self._bus, self._misses, self._patience_seconds, self._observe = bus, misses, patience_seconds, observe
        self._silos: defaultdict[str, _Silo] = defaultdict(_Silo)

    async def ask(
        self, requests: Mapping[str, Request], deadline_seconds: float, arrived: Arrived = ignored
    ) -> Replies[Answer]:
        """Send one request per silo whose breaker is closed, and wait for the answers. See `Bus.ask`."""
        start = time.monotonic()
        sent = {silo: request for silo, request in requests.items() if self._silos[silo].probing is None}
        counted = [silo for silo, request in sent.items() if not isinstance(request, StatusRequest)]
        for silo in counted:
            self._silos[silo].since = self._silos[silo].since or start

        def note(silo: str, answer: Answer | Reason) -> None:
            """Note an answer, and pass it on."""
            if silo in counted:
                self._close(silo)
                self._silos[silo] = _Silo()
            arrived(silo, answer)

        skipped = dict.fromkeys(requests.keys() - sent, SKIPPED)
        for silo, reason in skipped.items():
            arrived(silo, reason)
        replies = await self._bus.ask(sent, deadline_seconds, note)
        for silo in counted:
            if kind_of(replies.reasons.get(silo, "")) == "late":
                self._miss(silo, start, deadline_seconds)
        return replace(replies, reasons={**replies.reasons, **skipped}) if skipped else replies

    def _miss(self, silo: str, start: float, deadline_seconds: float) -> None:
        """Count a missed deadline of a request that was sent at ``start``, and open the breaker after enough of them."""
        known = self._silos[silo]
        if known.since is None or known.since > start:
            return  # it has answered another request since
        # A carrier may give up a little earlier, and a search may have spent some of its time before.
        if max(deadline_seconds, time.monotonic() - known.since) >= 0.9 * self._patience_seconds:
            known.misses += 1
        if 0 < self._misses <= known.misses and known.probing is None:
            self._tell(silo, "open", "a silo is no longer waited for")
            known.probing = asyncio.create_task(self._probe(silo, known))

    async def _probe(self, silo: str, known: _Silo) -> None:
        """Ask a silo for its summary until it replies, or is known to be absent."""
        while True:
            await asyncio.sleep(known.pause_seconds)
            known.pause_seconds = min(max(FIRST_PAUSE_SECONDS, 2 * known.pause_seconds), LONGEST_PAUSE_SECONDS)
            self._observe(silo, "half_open")
            try:
                replies = await self._bus.ask({silo: StatusRequest()}, self._patience_seconds)
                if kind_of(replies.reasons.get(silo, "")) not in ("late", "no_bus"):
                    break
            # If this task ended, the silo would never be asked again.
            except Exception as error:
                _log.error("a probe failed", exc_info=error, extra={"fields": {"silo": silo}})
            self._observe(silo, "open")
        self._close(silo)

    def _close(self, silo: str) -> None:
        """Ask a silo again, if its breaker is not closed. The pause before its next probe stays as it is."""
        known = self._silos[silo]
        if known.probing is not None:
            known.probing.cancel()
            known.probing, known.misses, known.since = None, 0, None
            self._tell(silo, "closed", "a silo is waited for again")

    def _tell(self, silo: str, state: State, event: str) -> None:
        """Log and observe a change of a breaker."""
        _log.warning(event, extra={"fields": {"silo": silo}})
        self._observe(silo, state)
