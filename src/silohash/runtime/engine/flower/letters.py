"""Jobs in Flower: how a run gets one, and the messages that it exchanges with silos through the server."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import httpx
from flwr.app import Array, ArrayRecord, Message, MessageType, RecordDict
from flwr.cli.build import build_fab_from_files
from flwr.common.constant import ErrorCode, SubStatus
from flwr.common.serde import fab_to_proto, run_from_proto
from flwr.proto.control_pb2 import ListNodesRequest, StartRunRequest
from flwr.proto.runtime_pb2 import (
    AcquireTaskRequest,
    PullTaskInputRequest,
    PushTaskOutputRequest,
    SendTaskHeartbeatRequest,
)
from flwr.supercore.constant import NodeStatus, TaskType
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.fab import Fab
from flwr.supercore.heartbeat import HeartbeatSender
from flwr.supercore.interceptors import (
    RuntimeTokenHttpInterceptor,
    RuntimeVersionHttpInterceptor,
    SuperExecAuthHttpInterceptor,
)
from flwr.supercore.retry import RetryInvoker, exponential
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.grid import HttpGrid

from silohash.runtime.engine.flower.kits import Connection
from silohash.runtime.sites.attempts import LostJobError
from silohash.types import UserError

ACQUIRE = "/flwr.proto.Runtime/AcquireTask"
"""The only call that needs the secret of the runtime. It gives the token for the others."""

RETRY_SECONDS = 30.0
"""How long a call is repeated before a job is given up."""

CLAIM_SECONDS = 60.0
POLL_SECONDS = 0.2
RECORD, ARRAY = "message", "content"

APP = b"""\
[project]
name = "silohash"
version = "1.0.0"
license = "Apache-2.0"

[tool.flwr.app]
publisher = "silohash"

[tool.flwr.app.components]
serverapp = "silohash.runtime:none"
clientapp = "silohash.runtime:none"
"""
"""What Flower asks for as the program of a run. It does not contain code, and neither the server nor a silo runs it."""


def as_record(content: bytes) -> Any:  # noqa: ANN401  Flower has no types
    """Return a message of silohash as the content of one of Flower's, which it sends in pieces."""
    array = Array(dtype="uint8", shape=(len(content),), stype="bytes", data=content)
    return RecordDict({RECORD: ArrayRecord({ARRAY: array})})


def of_record(record: Any) -> bytes:  # noqa: ANN401
    """Return the message of silohash that `as_record` turned into a record; empty if it is another record."""
    arrays = record.get(RECORD)
    if not isinstance(arrays, ArrayRecord) or ARRAY not in arrays:
        return b""
    return bytes(arrays[ARRAY].data)


class GridLetters:
    """Send messages through the grid of a job.

    Args:
        grid: the grid.
    """

    def __init__(self, grid: Any) -> None:  # noqa: ANN401
        self.grid = grid
        self.nodes: dict[str, int] = {}

    def connected(self) -> Collection[str]:
        """Return the names of the silos that are connected. The server names each by its key."""
        with _reaching():
            self.nodes = {node.name: node.node_id for node in self.grid.get_nodes()}
        return self.nodes.keys()

    def send(self, silo: str, content: bytes, seconds: float | None) -> str | None:
        """Send a message."""
        if silo not in self.nodes:
            return None
        message = Message(as_record(content), self.nodes[silo], MessageType.TRAIN, ttl=seconds)
        with _reaching():
            sent = list(self.grid.push_messages([message]))
        return (sent[0] or None) if sent else None

    def receive(self, messages: Collection[str]) -> Mapping[str, bytes | str]:
        """Return what has come back for messages since the last call. The server gives each reply once."""
        back: dict[str, bytes | str] = {}
        for message in messages:
            try:
                with _reaching():
                    for reply in self.grid.pull_messages([message]):
                        back[message] = _content(reply)
            except LostJobError:
                raise
            except Exception:  # a silo can send objects that Flower does not understand
                back[message] = "sent a damaged message"
        return back


def _content(reply: Any) -> bytes | str:  # noqa: ANN401
    """Return the content of a reply, or why it has none."""
    if not reply.has_error():
        return of_record(reply.content)
    if reply.error.code == ErrorCode.NODE_UNAVAILABLE:
        return "is no longer connected"
    return f"could not carry out its task (Flower's error {reply.error.code})"


def connected_silos(connection: Connection) -> list[str]:
    """Return the names of the connected silos, in alphabetical order.

    Raises:
        UserError: if the server cannot be reached.
    """
    with _control(connection) as client:
        nodes = client.ListNodes(ListNodesRequest()).nodes_info
    return sorted(node.name for node in nodes if node.status == NodeStatus.ONLINE)


@contextmanager
def job(connection: Connection) -> Iterator[GridLetters]:
    """Start a job, yield what carries its messages, and end it.

    Args:
        connection: that of whoever starts runs.

    Raises:
        UserError: if the server cannot be reached.
        LostJobError: if the server dies meanwhile, or ends the job.
    """
    content, _ = build_fab_from_files({"pyproject.toml": APP})
    fab = Fab(hashlib.sha256(content).hexdigest(), content, {})
    with _control(connection) as control:
        number = control.StartRun(StartRunRequest(fab=fab_to_proto(fab))).run_id
    token = RuntimeTokenHttpInterceptor(_claim(connection, number))
    with _runtime(connection, token, _retry()) as client, _runtime(connection, token, None) as plain:
        outcome, details = SubStatus.FAILED, "The run was interrupted."
        try:
            with heartbeats(plain):
                yield GridLetters(_grid(connection, client))
            outcome, details = SubStatus.COMPLETED, ""
        finally:
            with suppress(httpx.HTTPError):
                plain.PushTaskOutput(PushTaskOutputRequest(sub_status=outcome, details=details))


def _grid(connection: Connection, client: Any) -> Any:  # noqa: ANN401
    """Begin a job, and return the grid that carries its messages."""
    with _reaching():
        given = client.PullTaskInput(PullTaskInputRequest())
    TaskIdentity.task_id, TaskIdentity.run_id = given.task_id, given.run.run_id
    TaskIdentity.node_id = given.context.node_id
    grid = HttpGrid(connection.address, token="of the client")  # noqa: S106
    grid._client = client  # that of Flower repeats calls without end, and stops this process if the token is refused
    grid.set_run(run_from_proto(given.run))
    return grid


@contextmanager
def heartbeats(client: Any) -> Iterator[None]:  # noqa: ANN401
    """Tell a runtime throughout the block that its task goes on.

    Args:
        client: a client with the token of the task, which does not repeat calls.
    """
    sender = HeartbeatSender(lambda: _beats(client))
    sender.start()
    try:
        yield
    finally:
        sender.stop()


def _claim(connection: Connection, number: int) -> str:
    """Return the token of a job's task, by which this process is the program of the job."""
    secret = SuperExecAuthHttpInterceptor(master_secret=connection.secret(), protected_methods=[ACQUIRE])
    until = time.monotonic() + CLAIM_SECONDS
    with _runtime(connection, secret, _retry()) as client:
        while time.monotonic() < until:
            with _reaching():
                found = client.AcquireTask(AcquireTaskRequest(supported_task_types=[TaskType.SERVER_APP]))
            if found.token and found.task.run_id == number:
                return str(found.token)
            time.sleep(POLL_SECONDS)
    raise LostJobError("Another process took the job. Start one run at a time")


def _retry() -> Any:  # noqa: ANN401
    """Return what repeats calls that do not reach the server, for a while."""
    return RetryInvoker(lambda: exponential(max_delay=5), httpx.TransportError, max_tries=None, max_time=RETRY_SECONDS)


def _runtime(connection: Connection, interceptor: Any, retry: Any) -> Any:  # noqa: ANN401
    """Return a client of the server's runtime."""
    return RuntimeHttpClient.from_server_address(
        connection.address, insecure=False, root_certificates=connection.authority(),
        interceptors=[RuntimeVersionHttpInterceptor(component_name="flwr-serverapp"), interceptor],
        retry_invoker=retry,
    )  # fmt: skip


def _beats(client: Any) -> bool:  # noqa: ANN401
    """Return whether a runtime heard that its task goes on, or has ended it, which shows at the next call."""
    try:
        client.SendTaskHeartbeat(SendTaskHeartbeatRequest())
    except httpx.HTTPStatusError:
        return True
    except httpx.HTTPError:
        return False
    return True


class _Bearer:
    """Prove to the server that the caller has its secret."""

    def __init__(self, secret: bytes) -> None:
        self.secret = secret.decode("ascii")

    def intercept(self, context: Any, call_next: Any) -> Any:  # noqa: ANN401
        """Add the secret to a request, and send it."""
        context.request.headers["authorization"] = f"Bearer {self.secret}"
        return call_next(context)


@contextmanager
def _control(connection: Connection) -> Iterator[Any]:
    """Yield a client of what starts jobs."""
    client = ControlHttpClient.from_server_address(
        connection.address, insecure=False, root_certificates=connection.authority(),
        interceptors=[RuntimeVersionHttpInterceptor(component_name="silohash"), _Bearer(connection.secret())],
    )  # fmt: skip
    with client:
        try:
            yield client
        except httpx.HTTPError as error:
            raise UserError(
                f"The server of {connection.kit} cannot be reached ({error}). Start it: silohash server KIT"
            ) from error


@contextmanager
def _reaching() -> Iterator[None]:
    """Turn the failure of a call into the loss of the job."""
    try:
        yield
    except httpx.HTTPError as error:
        raise LostJobError(f"The server ended the job, or cannot be reached: {error}") from error
