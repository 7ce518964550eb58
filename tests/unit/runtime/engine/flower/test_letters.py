"""Messages of silohash in Flower's, and what comes back for them."""

from __future__ import annotations

import io
import zipfile
from types import SimpleNamespace

import pytest

from silohash.runtime.sites.attempts import LostJobError

pytest.importorskip("flwr", reason="Flower is not installed: make test-flower")

import httpx
from flwr.app import ConfigRecord, Error, Message, RecordDict
from flwr.cli.build import build_fab_from_files
from flwr.common.constant import ErrorCode
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.task_identity import TaskIdentity

from silohash.runtime.engine.flower.letters import APP, GridLetters, as_record, heartbeats, of_record


@pytest.fixture(autouse=True)
def _identity() -> None:
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 2, 1


class Grid:
    """Answers each message with what a function makes of it; None while it is under way."""

    def __init__(self, answer) -> None:
        self.answer, self.sent = answer, {}

    def get_nodes(self):
        return [SimpleNamespace(name="north", node_id=7), SimpleNamespace(name="south", node_id=8)]

    def push_messages(self, messages):
        for message in messages:
            message.metadata.__dict__["_message_id"] = f"id {len(self.sent)}"
            self.sent[message.metadata.message_id] = message
            yield message.metadata.message_id

    def pull_messages(self, messages):
        for number in messages:
            reply = self.answer(self.sent[number])
            if reply is not None:
                yield Message(reply, reply_to=self.sent[number])


@pytest.mark.parametrize("content", [b"", b"\0\xff", bytes(range(256)) * 50_000], ids=["empty", "short", "12.8 MB"])
def test_message_survives_the_pieces_in_which_flower_sends_it(content: bytes) -> None:
    message = Message(as_record(content), 7, "train")
    objects = {number: piece.deflate() for number, piece in get_all_nested_objects(message).items()}
    assert len(objects) >= (4 if len(content) > 10_000_000 else 1)
    read = inflate_object_from_contents(message.object_id, objects)
    assert of_record(read.content) == content


def test_record_of_something_else_is_an_empty_message() -> None:
    assert of_record(RecordDict({"message": ConfigRecord({"content": b"x"})})) == b""
    assert of_record(RecordDict({})) == b""


def test_letters_go_to_the_node_of_the_silo_and_replies_come_back_by_their_ids() -> None:
    grid = Grid(
        lambda message: as_record(of_record(message.content) + b"!") if message.metadata.dst_node_id == 8 else None
    )
    letters = GridLetters(grid)
    assert letters.send("north", b"a", 5.0) is None, "no node is known yet"
    assert sorted(letters.connected()) == ["north", "south"]
    north, south = letters.send("north", b"a", 5.0), letters.send("south", b"b", None)
    assert [grid.sent[number].metadata.dst_node_id for number in (north, south)] == [7, 8]
    assert grid.sent[north].metadata.ttl == 5.0
    assert grid.sent[south].metadata.ttl > 3600
    assert letters.receive([north, south]) == {south: b"b!"}
    assert letters.send("west", b"c", 5.0) is None


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (ErrorCode.NODE_UNAVAILABLE, "is no longer connected"),
        (ErrorCode.CLIENT_APP_CRASHED, "could not carry out its task (Flower's error 8)"),
    ],
)
def test_reply_without_content_has_a_reason(code: int, reason: str) -> None:
    letters = GridLetters(Grid(lambda message: Error(code, "a path\nof the silo")))
    letters.connected()
    message = letters.send("north", b"a", 5.0)
    assert letters.receive([message]) == {message: reason}


def test_reply_that_flower_does_not_understand_concerns_its_silo_only() -> None:
    def spoil(message):
        if message.metadata.dst_node_id == 7:
            raise ValueError("invalid object")
        return as_record(b"b")

    letters = GridLetters(Grid(spoil))
    letters.connected()
    north, south = letters.send("north", b"a", 5.0), letters.send("south", b"a", 5.0)
    assert letters.receive([north, south]) == {north: "sent a damaged message", south: b"b"}


def test_server_that_is_gone_is_a_lost_job() -> None:
    def fail(message):
        raise httpx.ConnectError("refused")

    letters = GridLetters(Grid(fail))
    letters.connected()
    message = letters.send("north", b"a", 5.0)
    with pytest.raises(LostJobError, match="cannot be reached: refused"):
        letters.receive([message])


def test_program_that_a_run_brings_holds_no_code() -> None:
    content, _ = build_fab_from_files({"pyproject.toml": APP})
    with zipfile.ZipFile(io.BytesIO(content)) as bundle:
        assert sorted(bundle.namelist()) == [".info/CONTENT", "pyproject.toml"]


@pytest.mark.parametrize("outcome", ["heard", "refused", "away"])
def test_heartbeats_do_not_end_this_process(outcome: str) -> None:
    beats = []

    def send(request: object) -> object:
        beats.append(request)
        if outcome == "refused":
            raise httpx.HTTPStatusError("401", request=None, response=SimpleNamespace(status_code=401))
        if outcome == "away":
            raise httpx.ConnectError("refused")
        return SimpleNamespace(success=False)

    with heartbeats(SimpleNamespace(SendTaskHeartbeat=send)):
        while not beats:
            pass
    assert beats
