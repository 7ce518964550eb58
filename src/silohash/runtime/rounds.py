"""The server's side of training: the only loop over rounds and silos."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

import numpy as np

from silohash import seeds
from silohash.exchange.message import Message
from silohash.federated.base import FederatedMethod, ServerState
from silohash.federated.robust import mislabeled_silos, suspicious_updates
from silohash.federated.shared_means import SharedMean, objection
from silohash.runtime.checkpoint import RunState
from silohash.runtime.events import Observer, ProgressReporter, RoundRecord, SiloRecord
from silohash.runtime.runner import Runner
from silohash.runtime.silo import SiloResult, SiloTask, TaskKind
from silohash.types import Arrays, UserError


@dataclass(frozen=True)
class RoundSettings:
    """The number of rounds, the participating silos, and the choice of the best round.

    Attributes:
        rounds: total number of rounds.
        silos: names of the silos, in order.
        fraction: fraction of the silos that take part in each round.
        validate: whether the silos score the model of every round on queries held back from training.
        seed: seed for the choice of participants.
        remarks: remarks on the whole run, which are reported in the record of the first round.
        buffers: names of the model's buffers, which a server-side optimizer leaves as averaged.
    """

    rounds: int
    silos: Sequence[str]
    fraction: float = 1.0
    validate: bool = True
    seed: int = 0
    remarks: Sequence[str] = ()
    buffers: Set[str] = frozenset()


@dataclass(frozen=True)
class Exchange:
    """The outcome of the optional exchange of statistics.

    Attributes:
        results: one result per silo.
        extras: the merged statistics; empty if there was no exchange.
        uplink_bytes: number of bytes that the silos sent for the exchange.
        downlink_bytes: number of bytes that the server sent for the exchange.
    """

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
    progress: ProgressReporter | None = None,
    save: Callable[[RunState], None] = lambda state: None,
) -> RunState:
    """Run the remaining rounds.

    Args:
        state: the state to continue from.
        federated: the federated method.
        runner: trains the silos, in this process or in worker processes.
        settings: the number of rounds and the participating silos.
        observers: receive the record of each round.
        progress: reports the silos that have finished within a round; by default to no one.
        save: called with the state after each round, after the observers, so that every saved round has been recorded.
            An interruption loses at most one round.

    Returns:
        The state after the last round.

    Raises:
        UserError: if all updates of a round were rejected.
    """
    progress = progress or ProgressReporter()
    for number in range(state.round, settings.rounds):
        started = time.perf_counter()
        tasks = tasks_of("train", participants(settings, number), state, federated)
        trained = list(progress.counted(runner.run(tasks), number=number, silos=len(tasks)))
        exchange = exchange_statistics(trained, tasks, state.server, federated=federated, runner=runner)
        results = exchange.results
        rejected = {result.silo: refusal(result, state.server, federated.means) for result in results}
        usable = _usable_results(results, rejected, number)
        server = replace(state.server, extras={**state.server.extras, **exchange.extras})
        updates, rejections = [result.update for result in usable], len(results) - len(usable)
        server, remarks = next_server(server, updates, federated, rejected=rejections, buffers=settings.buffers)
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
        all_remarks = [*remarks.items(), *({} if federated.personalized else mislabeled_silos(scores)).items()]
        record = _record(number, started, tasks, exchange, rejected, all_remarks, score, settings, best=best)
        for observer in observers:
            observer.round(record)
        save(state)
    return state


def _usable_results(results: Sequence[SiloResult], rejected: Mapping[int, str | None], number: int) -> list[SiloResult]:
    """Return the results whose updates were not rejected.

    Raises:
        UserError: if all updates were rejected.
    """
    usable = [result for result in results if rejected[result.silo] is None]
    if not usable:
        raise UserError(
            f"Round {number + 1}: all silo updates were rejected ({rejected[results[0].silo]}). "
            "Lower train.learning_rate, or set train.clip_norm = 1.0, and train again."
        )
    return usable


def next_server(
    server: ServerState,
    updates: Sequence[Message],
    federated: FederatedMethod,
    *,
    rejected: int = 0,
    buffers: Set[str] = frozenset(),
) -> tuple[ServerState, dict[str, str]]:
    """Return the next server state, and a remark on each silo whose update looks faulty.

    If the robust rule keeps no update, the state does not change, and a remark gives the reason.

    Args:
        server: the current state.
        updates: the updates that were not rejected.
        federated: the federated method.
        rejected: the number of silos of the round whose updates were rejected.
        buffers: the names of the model's buffers.
    """
    origin = federated.origin(server)
    suspicious = suspicious_updates(origin, updates)
    kept, remarks = federated.aggregation.screened(origin, updates, rejected)
    if not kept:
        return server, suspicious | remarks
    after = federated.aggregate(server, kept)
    if federated.server_optimizer is not None:
        after = federated.server_optimizer.step(server, after, buffers)
    return after, suspicious | remarks


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
    """Sum the silos' statistics, merge them, and let the silos that sent them finish their round.

    Args:
        results: results of the training, in silo order. A silo whose update is of the kind ``statistics`` waits for
            the merged statistics. The other silos have finished.
        tasks: the training tasks, one per result.
        server: the server's state.
        federated: the federated method.
        runner: finishes the round, in this process or in worker processes.

    Returns:
        One result per silo, the merged statistics, and the number of bytes transferred. Nothing is merged if no silo
        waits.
    """
    sent = {task.silo: task.broadcast for task in tasks}
    waiting, trusted = _usable_statistics(results, server, federated)
    if not waiting:
        return Exchange(results)
    extras = federated.merge_statistics(server, _summed_statistics(trusted))
    finish_tasks = [
        SiloTask("finish", r.silo, replace(sent[r.silo], extras={**sent[r.silo].extras, **extras}), r.kept)
        for r in waiting
    ]
    finished = {
        first.silo: replace(first, update=last.update, kept=last.kept, seconds=first.seconds + last.seconds)
        for first, last in zip(waiting, runner.run(finish_tasks), strict=True)
    }
    return Exchange(
        results=[finished.get(result.silo, result) for result in results],
        extras=extras,
        uplink_bytes=sum(result.update.size_bytes() for result in waiting),
        downlink_bytes=sum(array.nbytes for array in extras.values()) * len(waiting),
    )


def _usable_statistics(
    results: Sequence[SiloResult], server: ServerState, federated: FederatedMethod
) -> tuple[list[SiloResult], list[SiloResult]]:
    """Return the results with statistics that are not rejected, as they were sent and as the robust rule changes them."""
    given = [result for result in results if result.update.kind == "statistics"]
    waiting = [result for result in given if refusal(result, server, federated.means) is None]
    updates, _ = federated.aggregation.protection([result.update for result in waiting], len(given) - len(waiting))
    return waiting, [replace(result, update=update) for result, update in zip(waiting, updates, strict=True)]


def _summed_statistics(results: Sequence[SiloResult]) -> Arrays:
    """Return the sums over silos of the named arrays that the silos sent."""
    sums: Arrays = {}
    for result in results:
        for name, array in result.update.sums.items():
            sums[name] = sums[name] + array if name in sums else array
    return sums


def participants(settings: RoundSettings, round: int) -> list[int]:  # noqa: A002  the field's word
    """Return the numbers of the silos that take part in a round, at least one, in ascending order."""
    count = max(1, round_half_up(settings.fraction * len(settings.silos)))
    if count >= len(settings.silos):
        return list(range(len(settings.silos)))
    generator = seeds.numpy_generator(settings.seed, "participants", round=round)
    return sorted(int(silo) for silo in generator.choice(len(settings.silos), size=count, replace=False))


def round_half_up(value: float) -> int:
    """Round to the nearest whole number. Halves are rounded up."""
    return math.floor(value + 0.5)


def refusal(result: SiloResult, server: ServerState, means: Sequence[SharedMean] = ()) -> str | None:
    """Return why an update is rejected, or None if it can be used.

    All numbers must be finite, every parameter must be one of the global model and have its shape, no weight may be
    negative, and all means must be possible.

    Args:
        result: the silo's result.
        server: the server's state.
        means: the means that the federated method declares.
    """
    return (
        _not_finite(result.update.arrays())
        or _misfit(result, server)
        or _not_finite({f"its stored {name}": array for name, array in result.kept.items()})
        or objection(result.update, means, server.extras)
    )


def _not_finite(arrays: Arrays) -> str | None:
    """Return which of the arrays holds values that are not finite, or None."""
    for name, array in arrays.items():
        if np.issubdtype(array.dtype, np.floating) and not np.isfinite(array).all():
            return f"{name} holds NaN or infinite values"
    return None


def _misfit(result: SiloResult, server: ServerState) -> str | None:
    """Return which parameter or weight does not fit the global model, or None."""
    for name, array in result.update.params.items():
        if name not in server.params:
            return f"{name} is not a parameter of the global model"
        if array.shape != server.params[name].shape:
            return f"{name} has shape {array.shape}, but {server.params[name].shape} in the global model"
    if any(not math.isfinite(weight) or weight < 0 for weight in result.update.weights.values()):
        return f"its weights are {dict(result.update.weights)}"
    return None


def validation_scores(
    runner: Runner, federated: FederatedMethod, state: RunState, settings: RoundSettings
) -> list[Message]:
    """Return each silo's validation score for the model that it would deploy.

    Each silo searches its own training items with its own held-back queries. It sends only the score, the score of random
    codes, and the number of queries.
    """
    tasks = tasks_of("validate", range(len(settings.silos)), state, federated)
    return [result.update for result in runner.run(tasks)]


def mean_score(scores: Sequence[Message]) -> float | None:
    """Return the mean score, weighted by the silos' numbers of validation queries; None without queries."""
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
    """Return the record of a round."""
    results = exchange.results
    means = _term_means(results)
    return RoundRecord(
        round=number,
        seconds=time.perf_counter() - started,
        loss=means.pop("loss", None),
        terms=means,
        validation=score,
        best=best or score is None,
        silos=[_silo_record(settings.silos[result.silo], result, rejected[result.silo]) for result in results],
        uplink_bytes=exchange.uplink_bytes + sum(result.update.size_bytes() for result in results),
        downlink_bytes=exchange.downlink_bytes + sum(task.broadcast.size_bytes() for task in tasks),
        warnings=[
            *(settings.remarks if number == 0 else ()),
            *(f"{settings.silos[result.silo]}: {warning}" for result in results for warning in result.warnings),
            *(f"{silo}: {remark}" for silo, remark in remarks),
        ],
    )


def _silo_record(name: str, result: SiloResult, rejected: str | None) -> SiloRecord:
    """Return one silo's part of the record of a round."""
    return SiloRecord(
        silo=name,
        items=result.update.counts["items"],
        loss=result.loss if math.isfinite(result.loss) else None,
        seconds=result.seconds,
        rejected=rejected,
    )


def _term_means(results: Sequence[SiloResult]) -> dict[str, float]:
    """Return the means over silos of the loss and of each term, weighted by items.

    Values that are not finite are left out.
    """
    terms: dict[str, list[tuple[float, int]]] = {}
    for result in results:
        for name, value in {**result.terms, "loss": result.loss}.items():
            if math.isfinite(value):
                terms.setdefault(name, []).append((value, result.update.counts["items"]))
    return {name: _mean(values) for name, values in terms.items()}


def _mean(values: Sequence[tuple[float, int]]) -> float:
    """Return the mean of (value, weight) pairs; NaN if the total weight is 0."""
    total = sum(weight for _, weight in values)
    return sum(value * weight for value, weight in values) / total if total else float("nan")
