"""Requests and answers as bytes: JSON documents with a version, which are checked when they are read.

A hub sends a request to a silo, and the silo sends an answer. Neither trusts the other. Whatever the bytes are, reading them
returns a value that has been checked, or raises `UnreadableMessage`. Unknown keys are ignored, so that a later version can
add some.

Each message is declared by the class of its value (`silohash.search.fields`).
"""

import logging
import time
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from types import NoneType
from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,
    Protocol,
    TypeAlias,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from pydantic import Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from silohash import __version__
from silohash.base.attempts import attempted
from silohash.base.errors import NotFound, TimeOver, UnreadableMessage, UserError, WrongForm
from silohash.base.forms import detail, fault, of_json
from silohash.index.server import time_limit
from silohash.search.bus import KINDS, WANTED, Arrived, Replies, answer_of, ignored
from silohash.search.checks import Allowance, Distances, Observer, has_too_many_values
from silohash.search.fields import MOST_CHARACTERS, Sent, Sometimes, Text, Unsent
from silohash.search.hits import Hits, Query, changed
from silohash.search.node import SiloNode
from silohash.search.reasons import Reason
from silohash.search.requests import (
    Answer,
    Browse,
    CodeRequest,
    Item,
    ItemRequest,
    Refusal,
    Request,
    SiloStatus,
    StatusRequest,
    within_limits,
)

_log = logging.getLogger(__name__)
_of_other_versions: set[str] = set()

VERSION = 2
"""Version of the messages. A message of another version is refused."""

MOST_REQUEST_BYTES = 1 << 20
"""Most bytes of a request. A longer one is neither sent nor read."""

MOST_ANSWER_BYTES = 8 << 20
"""Most bytes of an answer. A longer one is neither sent nor read."""

TIME_BYTES = 64
"""Bytes of a request that are kept for the time that its sender waits, see `with_time_left`."""

SMALL_BYTES = 1 << 14
"""Size of an answer up to which reading it takes well below a millisecond."""

MOST_FAULTS = 1_000
"""Number of faults of a message up to which the first is described."""

CUT = "Its summary was cut, because it was larger than any that silohash sends."
EXCLUDED = Reason("An administrator of the hub has excluded it.", "excluded")
OVERLOAD = Reason("It was not asked, because reading its answers takes too much of the hub's time.", "overload")


REQUESTS: Mapping[str, type] = {KINDS[form]: form for form in WANTED}
ANSWERS: Mapping[str, type] = {kind: form for form, kind in KINDS.items() if form not in WANTED}


class _AnyVersion(TypedDict):
    version: int


@dataclass(frozen=True)
class _Form:
    """The form of the messages that carry the values of a class.

    Attributes:
        form: A `TypedDict` of the fields. None is required, because pydantic copies the document for each that is missing.
        required: The fields that a message must have.
        sent: Maps each attribute of the value to how it is sent.
        optional: The attributes that a message need not have.
    """

    form: Any
    required: frozenset[str]
    sent: Mapping[str, Sent]
    optional: frozenset[str]


@cache
def _form_of(cls: Hashable) -> _Form:
    """Return the form that the annotations of a class declare. An answer also names its silo."""
    cls = cast(type, cls)
    entries: dict[str, Any] = {"version": Literal[2], "kind": Literal[KINDS[cls]], "silohash": NotRequired[Text]}
    if cls in ANSWERS.values():
        entries["silo"] = NotRequired[Text]
    sent: dict[str, Sent] = {}
    optional: set[str] = set()
    # The type of the field `unread`, which is not sent, is in a module that takes long to load.
    for name, hint in get_type_hints(cls, localns={"Unread": object}, include_extras=True).items():
        marks = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
        if Unsent in marks:
            continue
        how = next((mark for mark in marks if isinstance(mark, Sent)), Sent(hint))
        sent[name] = how if how.name else replace(how, name=name)
        if Sometimes in marks:
            optional.add(name)
        entries[sent[name].name] = NotRequired[_without_none(how.form) if Sometimes in marks else how.form]
    required = entries.keys() - {"silohash", *(sent[name].name for name in optional)}
    return _Form(cast(Any, TypedDict)(cls.__name__, entries), frozenset(required), sent, frozenset(optional))


def _without_none(hint: Any) -> Any:  # noqa: ANN401  types have no common type
    """Return a type without None, because a field that a message need not have is left out in its place."""
    if get_origin(hint) is Annotated:
        base, *marks = get_args(hint)
        return Annotated[_without_none(base), *marks]
    kinds = [kind for kind in get_args(hint) if kind is not NoneType]
    return kinds[0] if len(kinds) < len(get_args(hint)) else hint


_ANY: TypeAdapter[dict[str, Any]] = TypeAdapter(dict[str, Any])
"""Writes any document as JSON."""


@cache
def _adapter(kinds: tuple[type, ...]) -> TypeAdapter[Any]:
    """Return what reads the messages of some classes."""
    forms = [_form_of(cls).form for cls in kinds]
    return TypeAdapter(cast(Any, Annotated[Union[*forms], Field(discriminator="kind")]))


def _encoded(value: object, name: str, **first: str) -> bytes:
    """Return the message of a value. Its name begins a sentence."""
    form = _form_of(cast(Hashable, type(value)))
    fields = {attribute: getattr(value, attribute) for attribute in form.sent}
    document: dict[str, Any] = {"version": VERSION, "kind": KINDS[type(value)], "silohash": __version__, **first}
    for attribute, how in form.sent.items():
        if fields[attribute] is not None or attribute not in form.optional:
            document[how.name] = how.encode(fields[attribute], fields)
    # The time is added when the bytes are sent, and again when they are repeated.
    document.pop("seconds_left", None)
    try:
        return _ANY.dump_json(document)
    except ValueError as error:
        raise UnreadableMessage(f"{name} holds text that cannot be written as UTF-8.") from error


def _decoded(content: bytes, kinds: Mapping[str, type], most_bytes: int, name: str) -> tuple[Any, str, str]:
    """Return the value that a message of some kinds carries, the name of its silo, and the version of silohash there."""
    if len(content) > most_bytes:
        raise UnreadableMessage(f"{name} has {len(content):,} bytes, and the limit is {most_bytes:,}.")
    try:
        # Read and checked in one pass, because a strict check of Python values does not take lists for tuples.
        document: dict[str, Any] = _adapter(tuple(kinds.values())).validate_json(content, strict=True)
        cls = kinds[document["kind"]]
        form = _form_of(cls)
        if missing := form.required - document.keys():
            raise WrongForm(f"{document['kind']}.{min(missing)}: field required")
        sent = form.sent.items()
        value = cls(**{name: how.decode(document[how.name], document) for name, how in sent if how.name in document})
    except ValidationError as error:
        # A later version may have another form, so its number is looked for first.
        version = attempted(lambda: of_json(content, _AnyVersion)["version"], ValidationError, otherwise=None)
        if version not in (None, VERSION):
            raise UnreadableMessage(
                f"{name} has version {version}, and this silohash reads version {VERSION}. Install the same version of "
                "silohash at the hub and at the silo."
            ) from error
        # Listing the faults takes much longer than finding them.
        many = error.error_count()
        what = fault(error) if many <= MOST_FAULTS else f"{many:,} faults"
        raise UnreadableMessage(f"{name} does not have the expected form ({what}).") from error
    except UserError as error:
        raise UnreadableMessage(f"{name} does not have the expected form ({detail(error)}).") from error
    return value, document.get("silo", ""), document.get("silohash", "")


def _compare(sender: str, version: str) -> None:
    """Log, once per sender, that it has another version of silohash than this process."""
    if version != __version__ and sender not in _of_other_versions:
        _of_other_versions.add(sender)
        _log.warning("%s has silohash %s, and this process %s", sender, version or "of an unknown version", __version__)


def encode_request(request: Request) -> bytes:
    """Return a request as bytes, without ``seconds_left``, which is added whenever it is sent (`with_time_left`).

    Raises:
        UnreadableMessage: If it has too many bytes (`MOST_REQUEST_BYTES`), or text that cannot be written as UTF-8.
    """
    content, limit = _encoded(request, "The request"), MOST_REQUEST_BYTES - TIME_BYTES
    if len(content) > limit:
        raise UnreadableMessage(f"The request has {len(content):,} bytes, and the limit is {limit:,}. Shorten it.")
    return content


def with_time_left(content: bytes, seconds: float) -> bytes:
    """Return a request with the time for which its sender will wait, so that a silo does not work for nobody.

    Bytes that are not a JSON object are returned unchanged.

    Example:
        >>> with_time_left(b'{"version":2,"kind":"status"}', 2.5)
        b'{"seconds_left":2.500,"version":2,"kind":"status"}'
    """
    return b'{"seconds_left":%.3f,' % seconds + content[1:] if content.startswith(b"{") else content


def decode_request(content: bytes) -> Request:
    """Return the request that some bytes hold.

    Raises:
        UnreadableMessage: If the bytes are not a request of this version.
    """
    request: Request
    request, _, version = _decoded(content, REQUESTS, MOST_REQUEST_BYTES, "The request")
    _compare("The hub", version)
    return request


def encode_answer(silo: str, answer: Answer, *, most_bytes: int = MOST_ANSWER_BYTES) -> bytes:
    """Return the answer of a silo as bytes. A search that the silo refused becomes a refusal.

    If hits have more previews than fit, only the first hits keep theirs, and ``limited_silos`` has the reason.

    Raises:
        UnreadableMessage: If the answer does not fit, or holds text that cannot be written as UTF-8.
    """
    if isinstance(answer, Hits) and silo in answer.missing_silos:
        answer = Refusal(answer.missing_silos[silo])
    if isinstance(answer, SiloStatus):
        answer = within_limits(answer)
    limit = min(most_bytes, MOST_ANSWER_BYTES)
    content = _encoded(answer, "Its answer", silo=silo)
    if len(content) > limit and isinstance(answer, Hits):
        content = _encoded(_with_fewer_previews(answer, silo, len(content) - limit), "Its answer", silo=silo)
    if len(content) > limit:
        raise UnreadableMessage(
            f"Its answer has {len(content):,} bytes, and the limit is {limit:,}. Request fewer items."
        )
    return content


def _with_fewer_previews(hits: Hits, silo: str, excess_bytes: int) -> Hits:
    """Return the hits without the previews of the last ones, which together have at least a number of bytes."""
    payloads, kept = list(hits.payloads), len(hits)
    reason = "It released the previews of the first {:,} items only, because its answer would have been too large."
    excess_bytes += len(reason) + MOST_CHARACTERS
    while kept and excess_bytes > 0:
        kept -= 1
        payload = dict(payloads[kept])
        excess_bytes -= len(payload.pop("preview", None) or "")
        payloads[kept] = payload
    limits = " ".join(filter(None, (hits.limited_silos.get(silo), reason.format(kept))))
    return replace(hits, payloads=tuple(payloads), limited_silos={silo: limits})


def decode_answer(content: bytes, silo: str) -> Answer:
    """Return the answer of the silo that was asked. `silohash.search.bus.flaw` then compares it with its request.

    Raises:
        UnreadableMessage: If the bytes are not an answer of the silo.
    """
    answer, sender, version = _decoded(content, ANSWERS, MOST_ANSWER_BYTES, "Its answer")
    if sender != silo:
        raise UnreadableMessage(f'It answered in the name of another silo, "{sender}".')
    _compare(silo, version)
    if isinstance(answer, Hits):
        # In `Hits`, this column can be left out.
        if len(answer.found_by) != len(answer.ids):
            raise UnreadableMessage("It answered with columns of unequal length.")
        return changed(answer, silos=(silo,) * len(answer.ids))
    found: Answer = replace(answer, silo=silo) if isinstance(answer, Item) else answer
    return replace(found, name=silo, version=version) if isinstance(found, SiloStatus) else found


Responder: TypeAlias = Callable[[bytes, int, float], bytes]
"""Function that returns the answer to a request.

It is given the request, the limit on the answer's number of bytes, and the value of the monotonic clock at which the request
arrived.
"""

Reader: TypeAlias = Callable[[str, bytes], None]
"""Function that takes the name of a silo and its answer."""


class Carrier(Protocol):
    """Carry requests to silos as bytes, and their answers back. To each request it adds the time for which the hub waits."""

    async def ask(self, requests: Mapping[str, bytes], deadline_seconds: float, read: Reader) -> Replies[bytes]:
        """Send one request per silo at the same time, and wait for the answers. See `Bus.ask`.

        ``read`` gets each answer as soon as it arrives, while other silos still work on theirs.
        """
        ...


class WireBus:
    """The bus to silos of other machines, whose answers are checked. See `silohash.search.bus.Bus`."""

    def __init__(
        self,
        carrier: Carrier,
        observe: Callable[[str, float], None] = lambda silo, seconds: None,
        *,
        found: Observer = lambda silo, finding: None,
        excluded: Callable[[], Collection[str]] = tuple,
    ) -> None:
        """Send the requests with a carrier.

        ``observe`` gets the name of a silo and the seconds until its answer arrived, except for summaries. ``found`` gets
        what the checks of `silohash.search.checks` find, and ``excluded`` returns the silos that are not asked at present.
        """
        self._carrier, self._observe, self._found, self._excluded = carrier, observe, found, excluded
        self._distances, self._allowance = Distances(found), Allowance()

    async def ask(
        self, requests: Mapping[str, Request], deadline_seconds: float, arrived: Arrived = ignored
    ) -> Replies[Answer]:
        """Send one request per silo, and wait for the answers. See `Bus.ask`."""
        reasons = self._unasked(requests)
        requests = {silo: request for silo, request in requests.items() if silo not in reasons}
        distinct = {id(request): request for request in requests.values()}
        contents = {key: encode_request(request) for key, request in distinct.items()}
        outcomes: dict[str, Answer | Reason] = {**reasons}
        for silo, reason in reasons.items():
            arrived(silo, reason)

        def read(silo: str, content: bytes) -> None:
            """Read an answer, and note the time that this takes, which is not worth measuring for a small one."""
            start = time.thread_time() if len(content) > SMALL_BYTES else None
            outcomes[silo] = self._checked(silo, requests[silo], content)
            if start is not None:
                self._allowance.spend(silo, time.thread_time() - start)
            arrived(silo, outcomes[silo])

        sent = {silo: contents[id(request)] for silo, request in requests.items()}
        replies = await self._carrier.ask(sent, deadline_seconds, read)
        for silo, seconds in replies.seconds.items():
            if not isinstance(requests[silo], StatusRequest):
                self._observe(silo, seconds)
        return Replies.of({**replies.reasons, **outcomes}, replies.seconds)

    def _unasked(self, silos: Iterable[str]) -> dict[str, Reason]:
        """Return the silos that are not asked, with the reasons."""
        excluded = self._excluded()
        reasons = {silo: EXCLUDED for silo in silos if silo in excluded}
        for silo in silos:
            if silo not in reasons and self._allowance.left(silo) < 0:
                self._found(silo, "overload")
                reasons[silo] = OVERLOAD
        return reasons

    def _checked(self, silo: str, request: Request, content: bytes) -> Answer | Reason:
        """Return the answer of a silo to a request, or the reason for not using it."""
        try:
            hits = request.most_hits if isinstance(request, Query | Browse) else 1
            if has_too_many_values(content, None if isinstance(request, StatusRequest) else hits):
                raise UnreadableMessage("Its answer does not have the expected form (it has too many values).")
            answer = decode_answer(content, silo)
        except UnreadableMessage as error:
            self._found(silo, "unreadable")
            return Reason(str(error), "invalid")
        if isinstance(answer, SiloStatus) and (limited := within_limits(answer)) != answer:
            self._found(silo, "cut_summary")
            return replace(limited, reason=f"{answer.reason} {CUT}".strip())
        if isinstance(answer, Hits) and isinstance(request, Query):
            contradiction = self._distances.contradiction(silo, request, answer)
            if contradiction:
                self._found(silo, "contradiction")
                return Reason(contradiction, "contradiction")
        return answer


@dataclass(frozen=True)
class Response:
    """Hold the answer of a silo as bytes, and what it was made from, for the silo's log.

    Attributes:
        content: The answer.
        request: The request; None if it could not be read.
        answer: The answer before it was encoded; None for a refusal.
        error: Why the silo refused; None if it did not.
    """

    content: bytes
    request: Request | None = None
    answer: Answer | None = None
    error: Exception | None = None


def respond(
    node: SiloNode,
    content: bytes,
    most_bytes: int = MOST_ANSWER_BYTES,
    choose: Callable[[Request], SiloNode] | None = None,
    *,
    arrived: float | None = None,
) -> Response:
    """Return the answer of a silo to a request.

    A request whose sender does not wait any more is refused without work. Searches on servers end when the sender stops
    waiting. No error leaves this function. An unexpected one is logged, and the hub gets a refusal without its details.

    If the silo has a node per model, ``choose`` returns the one that answers a request. ``arrived`` is the value of the
    monotonic clock at which the request arrived; None for now.
    """
    request: Request | None = None
    try:
        request = decode_request(content)
        with time_limit(_seconds_left(request, arrived)):
            chosen = node if choose is None else choose(request)
            if isinstance(request, ItemRequest | CodeRequest):
                chosen.admit(request.asker)
            answer = answer_of(chosen, request)
        return Response(encode_answer(node.name, answer, most_bytes=most_bytes), request, answer)
    # A request that makes a silo fail must not end its process, which answers others too.
    except Exception as error:
        if not isinstance(error, UserError):
            _log.exception("The silo %s failed to answer", node.name)
        return Response(encode_refusal(node.name, error), request, error=error)


def encode_refusal(silo: str, error: Exception) -> bytes:
    """Return the refusal of a silo as bytes. The hub gets the text of a `UserError`, and only the type of other errors."""
    hidden = f"It failed ({type(error).__name__}). Its log has the cause."
    reason = str(error) if isinstance(error, UserError) else hidden
    return encode_answer(silo, Refusal(reason, isinstance(error, NotFound)))


def _seconds_left(request: Request, arrived: float | None) -> float | None:
    """Return the time for which the sender of a request still waits; None if it is not known."""
    if request.seconds_left is None:
        return None
    waited = 0.0 if arrived is None else time.monotonic() - arrived
    if waited >= request.seconds_left:
        raise TimeOver("Its time limit had passed before the silo could begin with it.")
    return request.seconds_left - waited
