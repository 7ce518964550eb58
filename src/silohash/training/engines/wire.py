"""Tasks and results of silos as messages, the form in which they travel between processes and machines."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import get_args

from silohash.base.errors import JobFailed, UserError, restored
from silohash.methods.message import Message
from silohash.training.engines.port import Absence, Answer, SiloResult, SiloTask, TaskKind

BEST = "best round/"
"""Prefix of the names of what a silo stored in the best round."""

NEEDED: Mapping[TaskKind, Mapping[str, tuple[str, ...]]] = {
    "describe": {"counts": ("training", "validation")},
    "train": {"counts": ("items",)},
    "finish": {"counts": ("items",)},
    "validate": {"counts": ("queries",), "scalars": ("score", "chance")},
}
"""Numbers without which the answer to a task cannot be used, by section of the message."""

TASK_KINDS: dict[str, TaskKind] = {kind: kind for kind in get_args(TaskKind)}


def encode_task(task: SiloTask) -> bytes:
    """Encode a task as one message: the broadcast, with the state that the silo kept."""
    broadcast = task.broadcast
    counts, notes = {**broadcast.counts, "silo": task.silo}, {**broadcast.notes, "task": task.kind}
    return replace(broadcast, state=task.kept, counts=counts, notes=notes).encode()


def encode_distant_task(task: SiloTask) -> bytes:
    """Encode a task for a silo with a disk of its own, which learns what it must not remove.

    Its arrays are references (`silohash.training.sites.trainer`), and therefore small.
    """
    best = {f"{BEST}{name}": array for name, array in task.best.items()}
    return encode_task(replace(task, kept={**task.kept, **best}))


def decode_task(message: Message) -> SiloTask:
    """Return the task that `encode_task` or `encode_distant_task` encoded."""
    state = message.state
    return SiloTask(
        kind=TASK_KINDS[message.notes["task"]],
        silo=message.counts["silo"],
        broadcast=replace(message, state={}),
        kept={name: array for name, array in state.items() if not name.startswith(BEST)},
        best={name.removeprefix(BEST): array for name, array in state.items() if name.startswith(BEST)},
    )


def encode_result(result: SiloResult) -> bytes:
    """Encode a result as one message: the update, with the state to keep and the record of the silo's round."""
    about = {
        "silo": result.silo,
        "loss": repr(result.loss),
        "seconds": result.seconds,
        "warnings": list(result.warnings),
        "terms": {name: repr(value) for name, value in result.terms.items()},
    }
    notes = {**result.update.notes, "result": json.dumps(about)}
    return replace(result.update, state=result.kept, notes=notes).encode()


def decode_result(message: Message) -> SiloResult:
    """Return the result that `encode_result` encoded.

    Raises:
        UserError: If the worker reports an error that the user can correct.
        RuntimeError: If the worker reports any other error, with the worker's traceback.
    """
    if "crash" in message.notes:
        raise RuntimeError(f"A worker process failed:\n{message.notes['crash']}")
    if "failure" in message.notes:
        failure = message.notes["failure"]
        raise restored(message.notes.get("key", ""), failure) or JobFailed(failure)
    about = json.loads(message.notes["result"])
    notes = {name: text for name, text in message.notes.items() if name != "result"}
    return SiloResult(
        silo=about["silo"],
        update=replace(message, state={}, notes=notes),
        kept=message.state,
        loss=float(about["loss"]),
        terms={name: float(value) for name, value in about["terms"].items()},
        seconds=float(about["seconds"]),
        warnings=tuple(str(warning) for warning in about["warnings"]),
    )


def decode_answer(task: SiloTask, name: str, content: bytes) -> Answer:
    """Return what a silo on another machine answered to a task, or an absence. Nothing that it sends raises an error here.

    It is an absence if the silo, named as its connection proves it, reports a failure, or sends anything but the answer to
    the task.
    """
    try:
        message = Message.decode(content)
        if "failure" in message.notes:
            return Absence(task.silo, f"reports: {message.notes['failure']}")
        result = decode_result(message)
        answered = (result.silo, message.round, message.sender)
    except (UserError, ValueError, KeyError, TypeError, AttributeError, RuntimeError):
        return Absence(task.silo, "sent a damaged message")
    if answered != (task.silo, task.broadcast.round, name):
        return Absence(task.silo, f"answered another task (silo {result.silo}, round {message.round})")
    for section, keys in NEEDED.get(task.kind, {}).items():
        if missing := [key for key in keys if key not in getattr(message, section)]:
            return Absence(task.silo, f"left out {missing[0]} in its {section}")
    return result
