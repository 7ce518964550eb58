"""Seal the requests of a hub and the answers of silos, so that only the two of them can read, forge or repeat them.

Every member has an X25519 key pair, and knows the public keys of those with whom it speaks. In addition, a hub draws a key
pair per session of `SESSION_SECONDS`, and a silo draws one per session of a hub. These are not written to any file.

========  =========================================================================
symbol    meaning
========  =========================================================================
h, H      secret and public key of the hub
s, S      secret and public key of the silo
e, E      secret and public key of the hub's session
f, F      secret and public key of the silo for this session
DH(a, B)  secret that the owners of two key pairs share: DH(a, B) = DH(b, A)
========  =========================================================================

The keys of the cipher follow from them, the names of the federation and the silo, and all public keys (`cipher_of`)::

    request  HKDF(DH(e, S), DH(h, S))
    answer   HKDF(DH(e, S), DH(h, S), DH(e, F), DH(h, F))

A message is a header and the encrypted content (`sealed`). The header holds the public key of the session, a number that
does not repeat in it, and the time. A request is bound to its subjects (`bound_to`), and an answer is bound to its request.

Source: Perrin, "The Noise Protocol Framework", revision 34, pattern KK; RFC 7748 (X25519), RFC 5869 (HKDF) and RFC 8439
(ChaCha20-Poly1305).
"""

from __future__ import annotations

import base64
import struct
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import Literal, TypeAlias

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from silohash.base.errors import AlreadyExists, WrongKindOfFile
from silohash.base.files import check_private, write_secret
from silohash.base.forms import reading
from silohash.service.config import SealingSettings

VERSION = 1
HEADER = struct.Struct(">B32sQd")
"""Version, public key of the sender's session, number of the message, and seconds since 1970 by the sender's clock."""

OVERHEAD_BYTES = HEADER.size + 16
"""Number of bytes by which a sealed message is longer than its content: the header, and the tag of the cipher."""

CLOCK_SECONDS = 60.0
"""Most seconds between the sending of a request by the hub's clock, and its arrival by that of the silo."""

SESSION_SECONDS = 3_600.0
MOST_SESSIONS = 64
"""Number of sessions whose keys a member keeps, so that it need not compute them again."""

MOST_SEEN = 200_000
"""Number of requests that a silo remembers in order to notice a repeated one, about 50 MB."""

Rejected: TypeAlias = Literal["forged", "replayed", "stale"]
"""``forged``: the message was not sealed by the member that should have sent it, or not for this receiver and place, or it
was changed. ``replayed``: it arrived before. ``stale``: its time does not fit. Clocks differ, or it was repeated later."""


Opener: TypeAlias = Callable[[bytes], bytes]
"""Function that returns the content of a sealed message, and raises `RejectedError` for any other than the expected one."""


class RejectedError(Exception):
    """A message that its receiver must not use, and the reason."""

    def __init__(self, kind: Rejected) -> None:
        super().__init__(kind)
        self.kind: Rejected = kind


def new_key(path: Path) -> str:
    """Create a secret key in a new file that only its owner can read, and return the public key in base64.

    Raises:
        UserError: If the file exists or cannot be written.
    """
    if path.exists():
        raise AlreadyExists(f"{path} exists already. Choose another file, or remove it if no member uses this key.")
    secret = X25519PrivateKey.generate()
    write_secret(path, secret.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return base64.b64encode(_public(secret)).decode()


def read_key(path: Path) -> X25519PrivateKey:
    """Return the secret key in a file.

    Raises:
        UserError: If the file is missing, others can read it, or it does not hold a secret key of X25519. The message does
            not repeat its content.
    """
    remedy = f"Make a key with: silohash federation key {path}"
    with reading(path, remedy=remedy, missing=remedy):
        key = load_pem_private_key(path.read_bytes(), None)
    if not isinstance(key, X25519PrivateKey):
        raise WrongKindOfFile(f"{path} does not hold a secret key of X25519. {remedy}")
    check_private(path)
    return key


def exchanged(secret: X25519PrivateKey, public: bytes) -> bytes:
    """Return the secret of 32 bytes that two key pairs share, from the secret key of one and the public key of the other.

    Raises:
        RejectedError: If the bytes are not a public key, or one with which every secret key shares the same secret.
    """
    try:
        return secret.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError as error:
        raise RejectedError("forged") from error


def pair_of(federation: str, silo: str, hub: bytes, own: bytes) -> bytes:
    """Return the names of a federation and a silo, and the public keys of the hub and the silo, as bytes."""
    # With their lengths, so that other parts never make the same bytes.
    return b"".join(len(part).to_bytes(2, "big") + part for part in (federation.encode(), silo.encode(), hub, own))


def cipher_of(secrets: bytes, direction: Literal["request", "answer"], about: bytes) -> ChaCha20Poly1305:
    """Return the cipher for one direction, from shared secrets, and from `pair_of` with the public keys of the session."""
    info = f"silohash {VERSION} {direction} ".encode() + about
    return ChaCha20Poly1305(HKDF(SHA256(), 32, salt=None, info=info).derive(secrets))


def sealed(cipher: ChaCha20Poly1305, header: bytes, content: bytes, bound: bytes) -> bytes:
    """Return a header and the encrypted content, bound to the header and to further bytes.

    The nonce is the number in the header. A cipher must not be given the same number twice.
    """
    return header + cipher.encrypt(_nonce(header), content, header + bound)


def opened(cipher: ChaCha20Poly1305, message: bytes, bound: bytes) -> bytes:
    """Return the content of a sealed message.

    Raises:
        RejectedError: If it was not sealed like this.
    """
    header = message[: HEADER.size]
    try:
        return cipher.decrypt(_nonce(header), message[HEADER.size :], header + bound)
    except (InvalidTag, ValueError) as error:
        raise RejectedError("forged") from error


def _nonce(header: bytes) -> bytes:
    return bytes(4) + header[33:41]


def _public(secret: X25519PrivateKey) -> bytes:
    return secret.public_key().public_bytes_raw()


def bound_to(subject: str, reply: str) -> bytes:
    """Return the bytes that bind a request to its subject and to that of its answer. Neither holds a space."""
    return f"{subject} {reply}".encode()


class _HubSession:
    """The keys of a hub in one session: with each silo, and for the answers of each process of a silo."""

    def __init__(self, began: float) -> None:
        self.began, self.secret, self.numbers = began, X25519PrivateKey.generate(), count()
        self.public = _public(self.secret)
        self.requests: dict[str, tuple[bytes, ChaCha20Poly1305]] = {}
        self.answers: dict[tuple[str, bytes], ChaCha20Poly1305] = {}


class HubEnvelopes:
    """Seal the requests of a hub, and open the answers."""

    def __init__(self, federation: str, settings: SealingSettings, clock: Callable[[], float] = time.time) -> None:
        """Read the keys. The exceptions are those of `read_key`."""
        self._own, self._clock = read_key(settings.key), clock
        self._silos = {silo: base64.b64decode(key) for silo, key in settings.silos.items()}
        self._static = {silo: exchanged(self._own, key) for silo, key in self._silos.items()}
        self._about = {silo: pair_of(federation, silo, _public(self._own), key) for silo, key in self._silos.items()}
        self._session = _HubSession(clock())

    def seal(self, silo: str, content: bytes, bound: bytes) -> tuple[bytes, Opener]:
        """Return a request to a silo of the config, sealed and bound to its subjects, and the opener of its answer."""
        now = self._clock()
        if not 0 <= now - self._session.began < SESSION_SECONDS:
            self._session = _HubSession(now)
        session = self._session
        if silo not in session.requests:
            secrets = exchanged(session.secret, self._silos[silo]) + self._static[silo]
            session.requests[silo] = secrets, cipher_of(secrets, "request", self._about[silo] + session.public)
        header = HEADER.pack(VERSION, session.public, next(session.numbers), now)
        message = sealed(session.requests[silo][1], header, content, bound)
        return message, partial(self._open, session, silo, header + bound)

    def _open(self, session: _HubSession, silo: str, bound: bytes, message: bytes) -> bytes:
        """Return the content of an answer. Keys are kept only if an answer was sealed with them."""
        key = message[1:33]
        cipher = session.answers.get((silo, key))
        if cipher is None:
            secrets = session.requests[silo][0] + exchanged(session.secret, key) + exchanged(self._own, key)
            cipher = cipher_of(secrets, "answer", self._about[silo] + session.public + key)
        content = opened(cipher, message, bound)
        if len(session.answers) >= MOST_SESSIONS:
            session.answers.clear()
        session.answers[silo, key] = cipher
        return content


@dataclass
class _SiloSession:
    """The keys of a silo in one session of a hub."""

    request: ChaCha20Poly1305
    answer: ChaCha20Poly1305
    public: bytes
    numbers: count[int] = field(default_factory=count)

    def seal(self, bound: bytes, content: bytes) -> bytes:
        """Return a sealed answer, bound to its request."""
        header = HEADER.pack(VERSION, self.public, next(self.numbers), 0.0)
        return sealed(self.answer, header, content, bound)


@dataclass(frozen=True)
class OpenedRequest:
    """A request of the hub, what seals its answer, and how far its time is ahead of that of its arrival.

    It is ``stale`` if the times do not fit: it may have been repeated, and must not be answered.
    """

    content: bytes
    seal: Callable[[bytes], bytes]
    ahead_seconds: float
    stale: bool


class SiloEnvelopes:
    """Open the requests to a silo, each of them once, and seal the answers."""

    def __init__(
        self, federation: str, silo: str, settings: SealingSettings, clock: Callable[[], float] = time.time
    ) -> None:
        """Read the keys. The exceptions are those of `read_key`."""
        self._own, self._clock = read_key(settings.key), clock
        hubs = [base64.b64decode(key) for key in settings.hub]
        self._hubs = {key: pair_of(federation, silo, key, _public(self._own)) for key in hubs}
        self._sessions: dict[bytes, _SiloSession] = {}
        # A plain dict takes longer to find its first entry after others were removed.
        self._seen = OrderedDict[bytes, float]()
        # Which requests were opened before this time is not known.
        self._since = clock()

    def open(self, message: bytes, bound: bytes, waited_seconds: float = 0.0) -> OpenedRequest:
        """Return a request that arrived ``waited_seconds`` ago, bound to its subjects (`bound_to`).

        Raises:
            RejectedError: If it was not sealed for this silo by its hub and for these subjects, or was opened before.
        """
        session, content = self._session_of(message, bound)
        header, arrived = message[: HEADER.size], self._clock() - waited_seconds
        sent: float = HEADER.unpack(header)[3]
        if header in self._seen:
            raise RejectedError("replayed")
        # If the silo's clock was set back, the time is in the future.
        self._since = min(self._since, arrived + CLOCK_SECONDS)
        stale = not (abs(sent - arrived) <= CLOCK_SECONDS and sent > self._since)
        if not stale:
            self._seen[header] = sent
            first = next(iter(self._seen))
            if len(self._seen) > MOST_SEEN or self._seen[first] < arrived - 2 * CLOCK_SECONDS:
                self._since = max(self._since, self._seen.pop(first))
        return OpenedRequest(content, partial(session.seal, header + bound), sent - arrived, stale)

    def _session_of(self, message: bytes, bound: bytes) -> tuple[_SiloSession, bytes]:
        """Return the session of a message, and the content. Sessions are kept only if a hub sealed a message in them."""
        public = message[1:33]
        known = self._sessions.get(public)
        for session in self._begun(public) if known is None else (known,):
            try:
                content = opened(session.request, message, bound)
            except RejectedError:
                continue
            if len(self._sessions) >= MOST_SESSIONS:
                self._sessions.clear()
            self._sessions[public] = session
            return session, content
        raise RejectedError("forged")

    def _begun(self, public: bytes) -> Iterator[_SiloSession]:
        """Yield a new session with each hub that may have begun it."""
        for hub, about in self._hubs.items():
            secrets = exchanged(self._own, public) + exchanged(self._own, hub)
            request = cipher_of(secrets, "request", about + public)
            secret = X25519PrivateKey.generate()
            secrets += exchanged(secret, public) + exchanged(secret, hub)
            own = _public(secret)
            yield _SiloSession(request, cipher_of(secrets, "answer", about + public + own), own)
