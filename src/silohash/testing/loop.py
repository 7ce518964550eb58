"""The rounds of a training on made-up inputs, in this process and without files."""

import torch

from silohash.methods.message import Message
from silohash.models.parameters import buffers_of
from silohash.run.events import Observer, RoundRecord
from silohash.training.checkpoint import RunState
from silohash.training.engines.port import InProcess, SiloResult, SiloTask
from silohash.training.engines.wire import decode_result, decode_task, encode_result, encode_task
from silohash.training.prepared import Prepared
from silohash.training.rounds import HELD_BYTES, RoundSettings, run_rounds
from silohash.training.worker import Worker


class Wire:
    """A worker that sends every task and result through bytes, as worker processes do."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker

    def do(self, task: SiloTask) -> SiloResult:
        """Return the result of a task."""
        read = decode_task(Message.decode(encode_task(task)))
        return decode_result(Message.decode(encode_result(self.worker.do(read))))


class Records(Observer):
    """An observer that keeps the record of every round."""

    def __init__(self) -> None:
        self.records: list[RoundRecord] = []
        self.first_round = 0
        self.finished = False

    def start(self, *, name: str, total_rounds: int, first_round: int) -> None:
        """Keep the number of the first round."""
        self.first_round = first_round

    def round(self, record: RoundRecord) -> None:
        """Keep the record."""
        self.records.append(record)

    def finish(self) -> None:
        """Keep that the run has ended."""
        self.finished = True


def run_loop(
    inputs: Prepared,
    *observers: Observer,
    wire: bool = False,
    state: RunState | None = None,
    stop: int | None = None,
    fraction: float = 1.0,
    validate: bool = True,
    held_bytes: int = HELD_BYTES,
) -> RunState:
    """Run the rounds of made-up silos with one thread, and return the state after the last.

    They continue from ``state``, if given, and end before the round ``stop``. With ``wire``, tasks and results are sent
    through bytes. ``held_bytes`` is the memory for the updates of a round.
    """
    # Checks compare bits, and the order of sums depends on the number of threads.
    torch.set_num_threads(1)
    worker = Worker(inputs, torch.device("cpu"))
    settings = RoundSettings(
        rounds=stop or inputs.config.federated.rounds, silos=[name for name, _, _ in inputs.silos], fraction=fraction,
        validate=validate, seed=inputs.config.seed, remarks=inputs.resolved.remarks, buffers=buffers_of(worker.model),
        held_bytes=held_bytes, chain=worker.chain,
    )  # fmt: skip
    engine = InProcess(Wire(worker) if wire else worker)
    return run_rounds(
        state or worker.first_state(), engine=engine, settings=settings, observers=observers,
        federated=inputs.resolved.federated,
    )  # fmt: skip
