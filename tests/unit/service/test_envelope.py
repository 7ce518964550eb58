from __future__ import annotations

import base64
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from silohash.base.errors import AlreadyExists, DamagedFile, MissingFile, ReadableByOthers, WrongKindOfFile
from silohash.service import envelope
from silohash.service.config import SealingSettings
from silohash.service.envelope import (
    CLOCK_SECONDS,
    HEADER,
    OVERHEAD_BYTES,
    SESSION_SECONDS,
    HubEnvelopes,
    RejectedError,
    SiloEnvelopes,
    bound_to,
    cipher_of,
    new_key,
    opened,
    pair_of,
    read_key,
    sealed,
)

BOUND = bound_to("silohash.museums.ask.north", "silohash.museums.answer.north.ab.7")


class Clocks:
    """Clocks of the hub and of a silo, which tests set by hand."""

    def __init__(self) -> None:
        self.hub = self.silo = 1_000_000.0

    def advance(self, seconds: float) -> None:
        """Moves both clocks."""
        self.hub += seconds
        self.silo += seconds


class Pair:
    """A hub and the silos north and south, whose keys are in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.clocks = folder, Clocks()
        self.public = {name: new_key(folder / f"{name}.key") for name in ("hub", "north", "south")}
        self.hub, self.north, self.south = self.new_hub(), self.new_silo("north"), self.new_silo("south")
        self.clocks.advance(1)

    def new_hub(self, key: str = "hub", federation: str = "museums") -> HubEnvelopes:
        """Returns a process of the hub, which has the key of a name."""
        silos = {name: self.public[name] for name in ("north", "south")}
        settings = SealingSettings(key=self.folder / f"{key}.key", silos=silos)
        return HubEnvelopes(federation, settings, lambda: self.clocks.hub)

    def new_silo(self, name: str, *hubs: str, key: str = "", called: str = "") -> SiloEnvelopes:
        """Returns a process of a silo, which expects the keys of hubs of some names."""
        listed = tuple(self.public[hub] for hub in hubs or ("hub",))
        settings = SealingSettings(key=self.folder / f"{key or name}.key", hub=listed)
        return SiloEnvelopes("museums", called or name, settings, lambda: self.clocks.silo)


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return Pair(tmp_path)


def kind_of(call: Callable[..., object], *arguments: object) -> str:
    """Returns the reason for which something is rejected."""
    with pytest.raises(RejectedError) as error:
        call(*arguments)
    return error.value.kind


@pytest.mark.parametrize("content", [b"", b"\0", b"a query", bytes(1 << 20)])
def test_a_request_and_its_answer_arrive(pair: Pair, content: bytes) -> None:
    message, open_answer = pair.hub.seal("north", content, BOUND)
    request = pair.north.open(message, BOUND)
    assert (request.content, request.stale, request.ahead_seconds) == (content, False, 0)
    answer = request.seal(content[::-1])
    assert open_answer(answer) == content[::-1]
    assert len(message) == len(answer) == len(content) + OVERHEAD_BYTES
    if content.strip(b"\0"):
        assert content not in message
        assert content[::-1] not in answer


def test_the_keys_are_those_of_the_formulas(pair: Pair) -> None:
    """Computed here from the members' keys and the header alone, by the pattern KK."""
    hub, north = read_key(pair.folder / "hub.key"), read_key(pair.folder / "north.key")
    message, open_answer = pair.hub.seal("north", b"question", BOUND)
    _, session, number, sent = HEADER.unpack_from(message)
    assert sent == pair.clocks.hub
    parts = [b"museums", b"north", *(base64.b64decode(pair.public[name]) for name in ("hub", "north"))]
    about = b"".join(len(part).to_bytes(2, "big") + part for part in parts) + session
    of = X25519PrivateKey.from_private_bytes
    secrets = north.exchange(_public(session)) + north.exchange(hub.public_key())
    info = b"silohash 1 request " + about
    cipher = ChaCha20Poly1305(HKDF(SHA256(), 32, salt=None, info=info).derive(secrets))
    header, nonce = message[: HEADER.size], number.to_bytes(12, "big")
    assert cipher.decrypt(nonce, message[HEADER.size :], header + BOUND) == b"question"
    own = of(bytes(range(32)))
    secrets += own.exchange(_public(session)) + own.exchange(hub.public_key())
    info = b"silohash 1 answer " + about + own.public_key().public_bytes_raw()
    cipher = ChaCha20Poly1305(HKDF(SHA256(), 32, salt=None, info=info).derive(secrets))
    first = HEADER.pack(1, own.public_key().public_bytes_raw(), 5, 0.0)
    encrypted = cipher.encrypt((5).to_bytes(12, "big"), b"reply", first + header + BOUND)
    assert open_answer(first + encrypted) == b"reply"


def _public(raw: bytes):
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

    return X25519PublicKey.from_public_bytes(raw)


def test_every_bit_counts(pair: Pair) -> None:
    message, open_answer = pair.hub.seal("north", b"question", BOUND)
    answer = pair.new_silo("north").open(message, BOUND).seal(b"reply")
    for whole, use in ((message, lambda changed: pair.north.open(changed, BOUND)), (answer, open_answer)):
        for place in range(8 * len(whole)):
            changed = bytearray(whole)
            changed[place // 8] ^= 1 << place % 8
            assert kind_of(use, bytes(changed)) == "forged", place
        for length in range(len(whole)):
            assert kind_of(use, whole[:length]) == "forged", length
        assert kind_of(use, whole + b"\0") == "forged"
    assert pair.north.open(message, BOUND).content == b"question", "what was refused leaves nothing behind"
    assert open_answer(answer) == b"reply"


def test_subjects_are_bound(pair: Pair) -> None:
    message, _ = pair.hub.seal("north", b"question", BOUND)
    for subject, reply in (("ask.north", "answer.north.ab.8"), ("ask.south", "answer.north.ab.7")):
        assert kind_of(pair.north.open, message, bound_to(subject, reply)) == "forged"


def test_only_the_silo_opens_a_request_and_only_the_hub_makes_one(pair: Pair) -> None:
    new_key(pair.folder / "stranger.key")
    message, _ = pair.hub.seal("north", b"question", BOUND)
    assert kind_of(pair.south.open, message, BOUND) == "forged"
    assert kind_of(pair.new_silo("north", key="stranger").open, message, BOUND) == "forged"
    assert kind_of(pair.new_silo("north", called="south").open, message, BOUND) == "forged"
    for hub in (pair.new_hub(key="stranger"), pair.new_hub(key="south"), pair.new_hub(federation="other")):
        forged, _ = hub.seal("north", b"question", BOUND)
        assert kind_of(pair.north.open, forged, BOUND) == "forged"
    assert pair.north.open(message, BOUND).content == b"question"


def test_a_message_does_not_serve_in_the_other_direction(pair: Pair) -> None:
    message, open_answer = pair.hub.seal("north", b"question", BOUND)
    answer = pair.north.open(message, BOUND).seal(b"reply")
    assert kind_of(open_answer, message) == "forged"
    assert kind_of(pair.north.open, answer, BOUND) == "forged"
    assert kind_of(pair.north.open, answer, message[: HEADER.size] + BOUND) == "forged"


def test_an_answer_belongs_to_its_request(pair: Pair) -> None:
    first, second = pair.hub.seal("north", b"1", BOUND), pair.hub.seal("north", b"2", BOUND)
    south = pair.hub.seal("south", b"1", BOUND)
    answers = [pair.north.open(message, BOUND).seal(b"reply") for message, _ in (first, second)]
    answers.append(pair.south.open(south[0], BOUND).seal(b"reply"))
    for place, (_, open_answer) in enumerate((first, second, south)):
        for other, answer in enumerate(answers):
            if place == other:
                assert open_answer(answer) == b"reply"
            else:
                assert kind_of(open_answer, answer) == "forged"


def test_a_request_is_opened_once(pair: Pair) -> None:
    messages = [pair.hub.seal("north", b"%d" % number, BOUND)[0] for number in range(50)]
    assert len(set(messages)) == 50
    for message in (*messages[10:], *messages[:10]):
        assert not pair.north.open(message, BOUND).stale
    pair.clocks.advance(CLOCK_SECONDS)
    assert {kind_of(pair.north.open, message, BOUND) for message in messages} == {"replayed"}


def test_what_is_forgotten_is_stale(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(envelope, "MOST_SEEN", 3)
    monkeypatch.setattr(envelope, "MOST_SESSIONS", 2)
    messages = []
    for number in range(20):
        pair.clocks.advance(0.25)
        hub = pair.new_hub() if number % 3 == 0 else hub  # noqa: F821
        messages.append(hub.seal("north", b"question", BOUND)[0])
        assert not pair.north.open(messages[-1], BOUND).stale
    for message in messages[:-3]:
        assert pair.north.open(message, BOUND).stale
    for message in messages[-3:]:
        assert kind_of(pair.north.open, message, BOUND) == "replayed"


def test_requests_are_not_remembered_for_long(pair: Pair) -> None:
    first = pair.hub.seal("north", b"question", BOUND)[0]
    pair.north.open(first, BOUND)
    for _ in range(500):
        pair.clocks.advance(1)
        pair.north.open(pair.hub.seal("north", b"question", BOUND)[0], BOUND)
    assert len(pair.north._seen) < 3 * CLOCK_SECONDS
    assert pair.north.open(first, BOUND).stale


def test_another_process_of_a_silo_refuses_what_was_sent_before_it_started(pair: Pair) -> None:
    message = pair.hub.seal("north", b"question", BOUND)[0]
    pair.clocks.advance(1)
    restarted = pair.new_silo("north")
    assert restarted.open(message, BOUND).stale
    pair.clocks.advance(1)
    assert not restarted.open(pair.hub.seal("north", b"question", BOUND)[0], BOUND).stale


@pytest.mark.parametrize(("ahead", "stale"), [(59, False), (-59, False), (61, True), (-61, True), (1e300, True)])
def test_clocks_may_differ_by_a_minute(pair: Pair, ahead: float, stale: bool) -> None:
    pair.clocks.advance(1000)
    pair.clocks.hub += ahead
    message, open_answer = pair.hub.seal("north", b"question", BOUND)
    request = pair.north.open(message, BOUND)
    assert request.stale == stale
    assert request.ahead_seconds == pytest.approx(ahead)
    assert open_answer(request.seal(b"reply")) == b"reply", "the silo can say that the clock is wrong"
    assert bool(pair.north._seen) == (not stale)


def test_a_silo_that_started_with_a_wrong_clock_answers_after_it_was_set(pair: Pair) -> None:
    pair.clocks.silo += 5_000
    silo = pair.new_silo("north")
    pair.clocks.silo -= 5_000
    assert silo.open(pair.hub.seal("north", b"question", BOUND)[0], BOUND).stale
    pair.clocks.advance(CLOCK_SECONDS + 1)
    message = pair.hub.seal("north", b"question", BOUND)[0]
    assert not silo.open(message, BOUND).stale
    assert kind_of(silo.open, message, BOUND) == "replayed"


def test_the_time_that_a_request_waited_at_the_silo_does_not_count(pair: Pair) -> None:
    message = pair.hub.seal("north", b"question", BOUND)[0]
    pair.clocks.advance(CLOCK_SECONDS + 20)
    assert not pair.new_silo("north").open(message, BOUND, CLOCK_SECONDS + 20).ahead_seconds
    assert not pair.north.open(message, BOUND, 20.5).stale
    other = pair.hub.seal("north", b"question", BOUND)[0]
    pair.clocks.advance(CLOCK_SECONDS + 20)
    assert pair.north.open(other, BOUND, 19).stale


def test_a_session_ends_after_an_hour_and_its_answers_can_still_be_opened(pair: Pair) -> None:
    message, open_answer = pair.hub.seal("north", b"question", BOUND)
    pair.clocks.advance(SESSION_SECONDS - 2)
    within = pair.hub.seal("north", b"question", BOUND)[0]
    pair.clocks.advance(2)
    after = pair.hub.seal("north", b"question", BOUND)[0]
    assert message[1:33] == within[1:33] != after[1:33]
    assert open_answer(pair.new_silo("north").open(message, BOUND).seal(b"reply")) == b"reply"
    pair.clocks.hub -= 10
    assert pair.hub.seal("north", b"question", BOUND)[0][1:33] not in (message[1:33], after[1:33]), (
        "the clock went back"
    )


def test_processes_never_use_a_key_and_a_number_twice(pair: Pair) -> None:
    hubs = [pair.hub, pair.new_hub()]
    headers = {hub.seal("north", b"", BOUND)[0][:41] for hub in hubs for _ in range(20)}
    assert len(headers) == 40
    silos = [pair.north, pair.new_silo("north")]
    pair.clocks.advance(1)
    answers = set()
    for _ in range(20):
        for hub in hubs:
            message = hub.seal("north", b"", BOUND)[0]
            answers |= {silo.open(message, BOUND).seal(b"")[:41] for silo in silos}
    assert len(answers) == 80


def test_answers_of_many_processes_are_opened(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(envelope, "MOST_SESSIONS", 2)
    silos = [pair.new_silo("north") for _ in range(5)]
    pair.clocks.advance(1)
    for silo in (*silos, *silos):
        message, open_answer = pair.hub.seal("north", b"question", BOUND)
        assert open_answer(silo.open(message, BOUND).seal(b"reply")) == b"reply"
        assert len(pair.hub._session.answers) <= 2


def test_the_hub_may_change_its_key(pair: Pair) -> None:
    pair.public["new hub"] = new_key(pair.folder / "new hub.key")
    silo = pair.new_silo("north", "hub", "new hub")
    pair.clocks.advance(1)
    for hub in (pair.hub, pair.new_hub(key="new hub")):
        message, open_answer = hub.seal("north", b"question", BOUND)
        assert open_answer(silo.open(message, BOUND).seal(b"reply")) == b"reply"
        assert kind_of(silo.open, message, BOUND) == "replayed"


def test_keys_of_sessions_with_which_every_key_shares_a_secret_are_refused(pair: Pair) -> None:
    """Whoever knows no key could otherwise compute a part of the secrets."""
    _, open_answer = pair.hub.seal("north", b"question", BOUND)
    for point in (bytes(32), b"\1" + bytes(31)):
        header = HEADER.pack(1, point, 0, pair.clocks.hub)
        forged = sealed(cipher_of(bytes(64), "request", b""), header, b"question", BOUND)
        assert kind_of(pair.north.open, forged, BOUND) == "forged"
        assert kind_of(open_answer, forged) == "forged"
    assert not pair.north._sessions


def test_names_and_keys_are_not_mixed_up() -> None:
    assert pair_of("ab", "c", b"d", b"e") != pair_of("a", "bc", b"d", b"e")
    header = HEADER.pack(1, bytes(32), 3, 0.0)
    one, other = (cipher_of(bytes(64), direction, b"x") for direction in ("request", "answer"))
    assert opened(one, sealed(one, header, b"content", b""), b"") == b"content"
    assert kind_of(opened, other, sealed(one, header, b"content", b""), b"") == "forged"


def test_a_new_key_is_secret(tmp_path: Path) -> None:
    path = tmp_path / "keys" / "north.key"
    public = new_key(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert base64.b64decode(public) == read_key(path).public_key().public_bytes_raw()
    with pytest.raises(AlreadyExists):
        new_key(path)
    path.chmod(0o640)
    with pytest.raises(ReadableByOthers, match=r"chmod 600 .*north\.key"):
        read_key(path)
    path.chmod(0o600)
    assert base64.b64decode(public) == read_key(path).public_key().public_bytes_raw()
    assert new_key(tmp_path / "other.key") != public


def test_a_file_without_a_key_is_refused_without_repeating_it(tmp_path: Path) -> None:
    path = tmp_path / "north.key"
    with pytest.raises(MissingFile, match=r"silohash federation key .*north\.key"):
        read_key(path)
    for content in (b"", b"secret", b"\xff\xfe"):
        path.write_bytes(content)
        with pytest.raises(DamagedFile, match=r"silohash federation key") as error:
            read_key(path)
        assert "secret\n" not in str(error.value)
    other = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    path.write_bytes(other)
    with pytest.raises(WrongKindOfFile):
        read_key(path)


def test_a_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    new_key(tmp_path / "north.key")
    (tmp_path / "north.key").chmod(0o644)
    with pytest.raises(ReadableByOthers, match=r"chmod 600 .*north\.key"):
        read_key(tmp_path / "north.key")
