"""Envelopes return what was put into them, to the one for whom it was sealed, once, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from silohash.service.config import SealingSettings
from silohash.service.envelope import HubEnvelopes, RejectedError, SiloEnvelopes, bound_to, new_key

contents = st.binary(max_size=300)


class Members:
    """A hub and a silo, whose clock stands still."""

    def __init__(self, folder: Path) -> None:
        hub, silo = (new_key(folder / name) for name in ("hub", "silo"))
        self.now = 0.0
        self.silo = SiloEnvelopes("tests", "silo", SealingSettings(key=folder / "silo", hub=(hub,)), lambda: self.now)
        self.hub = HubEnvelopes("tests", SealingSettings(key=folder / "hub", silos={"silo": silo}), lambda: self.now)
        self.now = 1.0


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> Members:
    return Members(tmp_path_factory.mktemp("keys"))


@given(st.lists(st.tuples(contents, contents), min_size=1, max_size=5), st.randoms())
def test_answers_reach_their_requests_in_any_order(members, exchanges, random):
    bound = bound_to("ask", "answer")
    sent = [(*members.hub.seal("silo", question, bound), question, reply) for question, reply in exchanges]
    random.shuffle(sent)
    answered = []
    for message, open_answer, question, reply in sent:
        request = members.silo.open(message, bound)
        assert (request.content, request.stale) == (question, False)
        with pytest.raises(RejectedError, match="replayed"):
            members.silo.open(message, bound)
        answered.append((open_answer, request.seal(reply), reply))
    for open_answer, answer, reply in random.sample(answered, len(answered)):
        assert open_answer(answer) == reply
        for other, _, _ in answered:
            if other is not open_answer:
                with pytest.raises(RejectedError, match="forged"):
                    other(answer)


@given(contents, contents, st.data())
def test_no_other_bytes_are_opened(members, question, reply, data):
    bound = bound_to("ask", "answer")
    message, open_answer = members.hub.seal("silo", question, bound)
    answer = members.silo.open(message, bound).seal(reply)
    for whole, use in ((message, lambda changed: members.silo.open(changed, bound)), (answer, open_answer)):
        start = data.draw(st.integers(0, len(whole)))
        changed = whole[:start] + data.draw(st.binary(max_size=60)) + whole[data.draw(st.integers(start, len(whole))) :]
        if changed != whole:
            with pytest.raises(RejectedError):
                use(changed)


@given(st.text(max_size=20), st.text(max_size=20))
def test_requests_are_for_one_place(members, subject, reply):
    message, _ = members.hub.seal("silo", b"question", bound_to("ask", "answer"))
    if bound_to(subject, reply) != bound_to("ask", "answer"):
        with pytest.raises(RejectedError, match="forged"):
            members.silo.open(message, bound_to(subject, reply))
