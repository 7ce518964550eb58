"""The server's side of training: the only loop over rounds and silos."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from silohash import seeds
from silohash.exchange.message import Message
from silohash.federated.base import FederatedMethod, ServerState
from silohash.federated.robust import mislabeled_silos, suspicious_updates
from silohash.runtime.checkpoint import RunState
from silohash.runtime.events import Observer, RoundRecord, SiloRecord
from silohash.runtime.runner import Runner
from silohash.runtime.silo import SiloResult, SiloTask, TaskKind
from silohash.types import Arrays, UserError


@dataclass(frozen=True)
class RoundSettings:
    """How many rounds there are, which silos take part, and how the best round is chosen.

    Attributes:
        rounds: in total.
        fraction: share of the silos that take part in a round.
        silos: their names, in order.
        validate: whether the silos score every round's model on queries held back from training.
        seed: of the choice of participants.
        remarks: what is said of the run once, in the record of its first round.
    """

    rounds: int
    silos: Sequence[str]
    fraction: float = 1.0
    validate: bool = True
    seed: int = 0
    remarks: Sequence[str] = ()


@dataclass(frozen=True)
class Exchange:
    """The outcome of an optional exchange of statistics: one result per silo, the merged extras, and the bytes sent."""

    results: list[SiloResult]
    extras: Arrays = field(default_factory=dict)
    uplink_bytes: int = 0
    downlink_bytes: int = 0


def run_rounds(
    state: RunState,
    *,
    federated: FederatedMethod,
    runner: Runner,
    settings: RoundSettings,
    observers: Sequence[Observer] = (),
    save: Callable[[RunState], None] = lambda state: None,
) -> RunState:
    """Run the remaining rounds.

    Args:
        state: where to go on.
        federated: the federated method.
        runner: trains silos, here or in worker processes.
        settings: how many rounds and who takes part.
        observers: who is told of each round.
        save: called with the state after each round, behind the observers: a round that is saved has been recorded. An
            interruption loses at most one round.

    Returns:
        The state after the last round.

    Raises:
        UserError: if no silo returned a usable update in a round.
    """
    for number in range(state.round, settings.rounds):
        started = time.perf_counter()
        tasks = tasks_of("train", participants(settings, number), state, federated)
        trained = list(runner.run(tasks))
        exchange = exchange_statistics(trained, tasks, state.server, federated=federated, runner=runner)
        results = exchange.results
        rejected = {result.silo: refusal(result, state.server) for result in results}
        usable = [result for result in results if rejected[result.silo] is None]
        if not usable:
            raise UserError(
                f"Round {number + 1}: all silo updates were rejected ({rejected[results[0].silo]}). "
                "Lower train.learning_rate, or set train.clip_norm = 1.0, and train again."
            )
        server = replace(state.server, extras={**state.server.extras, **exchange.extras})
        server, remarks = next_server(server, [result.update for result in usable], federated)
        state = replace(
            state,
            round=number + 1,
            server=server,
            silos={**state.silos, **{result.silo: result.kept for result in usable}},
        )
        scores = validation_scores(runner, federated, state, settings) if settings.validate else []
        score = mean_score(scores)
        best = score is not None and (state.best_score is None or score > state.best_score)
        if best:
            state = replace(
                state, best_score=score, best_round=number, best_server=state.server, best_silos=dict(state.silos)
            )
        said = [*remarks.items(), *({} if federated.personalized else mislabeled_silos(scores)).items()]
        record = _record(number, started, tasks, exchange, rejected, said, score, settings, best=best)
        for observer in observers:
            observer.round(record)
        save(state)
    return state


def next_server(
    server: ServerState, updates: Sequence[Message], federated: FederatedMethod
) -> tuple[ServerState, dict[str, str]]:
    """Return the server's next state, and a remark on each silo whose update looks faulty."""
    origin = federated.origin(server)
    doubtful = suspicious_updates(origin, updates)
    kept, remarks = federated.aggregation.screened(origin, updates)
    after = federated.aggregate(server, kept)
    if federated.server_optimizer is not None:
        after = federated.server_optimizer.step(server, after)
    return after, doubtful | remarks


def tasks_of(kind: TaskKind, silos: Sequence[int], state: RunState, federated: FederatedMethod) -> list[SiloTask]:
    """Return one task per silo, holding the next round's message and the state the silo kept."""
    return [
        SiloTask(kind, silo, federated.broadcast(state.server, silo, round=state.round), kept=state.silos.get(silo, {}))
        for silo in silos
    ]


def exchange_statistics(
    results: list[SiloResult],
    tasks: Sequence[SiloTask],
    server: ServerState,
    *,
    federated: FederatedMethod,
    runner: Runner,
) -> Exchange:
    """Let silos that sent statistics end their round with what the server makes of the sums over silos.

    Args:
        results: results of the training, in silo order. Those of kind ``statistics`` wait; the others are done.
        tasks: the tasks of the training, one per result.
        server: the server's state.
        federated: the federated method.
        runner: ends the round, in this process or in worker processes.

    Returns:
        One result per silo, and the merged extras. Nothing is merged if no silo waits.
    """
    asked = {task.silo: task.broadcast for task in tasks}
    waiting = [r for r in results if r.update.kind == "statistics" and refusal(r, server) is None]
    if not waiting:
        return Exchange(results)
    sums: Arrays = {}
    for result in waiting:
        for name, array in result.update.sums.items():
            sums[name] = sums[name] + array if name in sums else array
    extras = federated.merge_statistics(server, sums)
    ends = [
        SiloTask("finish", r.silo, replace(asked[r.silo], extras={**asked[r.silo].extras, **extras}), r.kept)
        for r in waiting
    ]
    ended = {
        first.silo: replace(first, update=last.update, kept=last.kept, seconds=first.seconds + last.seconds)
        for first, last in zip(waiting, runner.run(ends), strict=True)
    }
    return Exchange(
        results=[ended.get(result.silo, result) for result in results],
        extras=extras,
        uplink_bytes=sum(result.update.size_bytes() for result in waiting),
        downlink_bytes=sum(array.nbytes for array in extras.values()) * len(waiting),
    )


def participants(settings: RoundSettings, round: int) -> list[int]:  # noqa: A002  the field's word
    """Returns the silos of a round, in order; at least one."""
    count = max(1, round_half_up(settings.fraction * len(settings.silos)))
    if count >= len(settings.silos):
        return list(range(len(settings.silos)))
    generator = seeds.numpy_generator(settings.seed, "participants", round=round)
    return sorted(int(silo) for silo in generator.choice(len(settings.silos), size=count, replace=False))


def round_half_up(value: float) -> int:
    """Round to the nearest whole number, halves upwards."""
    return math.floor(value + 0.5)


def refusal(result: SiloResult, server: ServerState) -> str | None:
    """Return why an update may not be used, or None: every number finite, every shape as it was sent down."""
    for name, array in result.update.arrays().items():
        if np.issubdtype(array.dtype, np.floating) and not np.isfinite(array).all():
            return f"{name} holds NaN or infinite values"
    for name, array in result.update.params.items():
        if name not in server.params:
            return f"{name} is no parameter of the global model"
        if array.shape != server.params[name].shape:
            return f"{name} has shape {array.shape}, the global model {server.params[name].shape}"
    if any(not math.isfinite(weight) or weight < 0 for weight in result.update.weights.values()):
        return f"its weights are {dict(result.update.weights)}"
    for name, array in result.kept.items():
        if np.issubdtype(array.dtype, np.floating) and not np.isfinite(array).all():
            return f"its own {name} holds NaN or infinite values"
    return None


def validation_scores(
    runner: Runner, federated: FederatedMethod, state: RunState, settings: RoundSettings
) -> list[Message]:
    """Return each silo's validation score of the model that it would deploy.

    Every silo ranks its own training items for its own held-back queries; only the score, its chance level and the
    count leave it.
    """
    tasks = tasks_of("validate", range(len(settings.silos)), state, federated)
    return [result.update for result in runner.run(tasks)]


def mean_score(scores: Sequence[Message]) -> float | None:
    """Return the silos' mean score, weighted by their validation queries; None if there are none."""
    counted = [(message.scalars["score"], message.counts["queries"]) for message in scores]
    total = sum(queries for _, queries in counted)
    return sum(score * queries for score, queries in counted if queries) / total if total else None


def _record(
    number: int,
    started: float,
    tasks: Sequence[SiloTask],
    exchange: Exchange,
    rejected: Mapping[int, str | None],
    remarks: Sequence[tuple[str, str]],
    score: float | None,
    settings: RoundSettings,
    *,
    best: bool,
) -> RoundRecord:
    results = exchange.results
    terms: dict[str, list[tuple[float, int]]] = {}
    for result in results:
        for name, value in {**result.terms, "loss": result.loss}.items():
            if math.isfinite(value):
                terms.setdefault(name, []).append((value, result.update.counts["items"]))
    means = {name: _mean(values) for name, values in terms.items()}
    return RoundRecord(
        round=number,
        seconds=time.perf_counter() - started,
        loss=means.pop("loss", None),
        terms=means,
        validation=score,
        best=best or score is None,
        silos=[
            SiloRecord(
                silo=settings.silos[result.silo],
                items=result.update.counts["items"],
                loss=result.loss if math.isfinite(result.loss) else None,
                seconds=result.seconds,
                rejected=rejected[result.silo],
            )
            for result in results
        ],
        uplink_bytes=exchange.uplink_bytes + sum(result.update.size_bytes() for result in results),
        downlink_bytes=exchange.downlink_bytes + sum(task.broadcast.size_bytes() for task in tasks),
        warnings=[
            *(settings.remarks if number == 0 else ()),
            *(f"{settings.silos[result.silo]}: {warning}" for result in results for warning in result.warnings),
            *(f"{silo}: {remark}" for silo, remark in remarks),
        ],
    )


def _mean(values: Sequence[tuple[float, int]]) -> float:
    total = sum(weight for _, weight in values)
    return sum(value * weight for value, weight in values) / total if total else float("nan")
