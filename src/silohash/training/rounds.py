"""The server's side of training: the only loop over rounds and silos."""

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from silohash.base import seeds
from silohash.base.errors import Diverged, TooFewSilos
from silohash.base.types import Arrays, ValidationBy
from silohash.methods.federated.averaging import Aggregation
from silohash.methods.federated.base import FederatedMethod
from silohash.methods.federated.folding import Collection, Folded, Listed
from silohash.methods.federated.screening import LARGEST_COUNT, Outliers, mislabeled_silos
from silohash.methods.message import Message
from silohash.methods.stored import Spool
from silohash.run.events import Observer, ProgressReporter, RoundRecord, SiloRecord
from silohash.training.checkpoint import RunState
from silohash.training.engines.port import WAIT_FOR_ALL, Attendance, Engine, Limits, SiloResult
from silohash.training.privacy.budget import KEY
from silohash.training.statistics_exchange import StatisticsExchange, Tasks
from silohash.training.updates.bounds import Announced
from silohash.training.updates.chain import DIRECT, Chain, next_server
from silohash.training.updates.received import ReceivedUpdates

HELD_BYTES = 1 << 27
"""Memory for the updates of a round. If they exceed it, they are added up as they arrive, or written to a temporary file."""

HIGHEST = 1.0 + 1e-6
"""Highest score of a silo, with its rounding error."""


@dataclass(frozen=True)
class RoundSettings:
    """The number of rounds, the participating silos, and the choice of the best round.

    Attributes:
        fraction: Fraction of the silos that take part in each round.
        validate: Whether the silos score the model of every round on queries held back from training.
        validation_by: What makes an item a right answer to these queries.
        seed: Seed for the choice of participants.
        remarks: Remarks on the whole run, which are reported in the record of the first round.
        buffers: Names of the model's buffers, which a server-side optimizer leaves as averaged.
        held_bytes: Memory for the updates of a round. It does not change the results.
        folder: Folder for temporary files; by default that of the system.
        chain: What happens to updates on their way. It is that of the workers.
        keep: Keeps the updates of the last round; None to keep none.
        announced: What the silos announced before their first rounds; empty if all are simulated in one program.
    """

    rounds: int
    silos: Sequence[str]
    fraction: float = 1.0
    validate: bool = True
    validation_by: ValidationBy = "labels"
    seed: int = 0
    remarks: Sequence[str] = ()
    buffers: Set[str] = frozenset()
    held_bytes: int = HELD_BYTES
    folder: Path | None = None
    limits: Limits = WAIT_FOR_ALL
    chain: Chain = DIRECT
    keep: ReceivedUpdates | None = None
    announced: Sequence[Announced] = ()


def run_rounds(
    state: RunState,
    *,
    federated: FederatedMethod,
    engine: Engine,
    settings: RoundSettings,
    observers: Sequence[Observer] = (),
    progress: ProgressReporter | None = None,
    save: Callable[[RunState], None] = lambda state: None,
) -> RunState:
    """Run the remaining rounds, and return the state after the last one.

    ``save`` is called with the state after each round, after the observers, so that every saved round has been recorded. An
    interruption loses at most one round.

    Raises:
        UserError: If all updates of a round were rejected, or too few silos took part.
    """
    progress = progress or ProgressReporter()
    federated = settings.chain.method(federated, engine, settings.limits)
    with Spool(settings.held_bytes, settings.folder) as spool:
        for number in range(state.round, settings.rounds):
            spool.clear()
            try:
                state, record = _round(
                    state, number, spool, federated=federated, engine=engine, settings=settings, progress=progress
                )
            except BaseException:
                engine.cancel()
                raise
            for observer in observers:
                observer.round(record)
            save(state)
    return state


def _round(
    state: RunState,
    number: int,
    spool: Spool,
    *,
    federated: FederatedMethod,
    engine: Engine,
    settings: RoundSettings,
    progress: ProgressReporter,
) -> tuple[RunState, RoundRecord]:
    started = time.perf_counter()
    attendance = Attendance(engine, settings.limits)
    # The server's secret, if it has one, keeps others from predicting which silos take part.
    silos = attendance.invited(participants(settings, number, state.server.private.get(KEY)))
    outcome = trained(
        state, silos, spool, federated=federated, attendance=attendance, settings=settings,
        progressed=partial(progress.counted, number=number, silos=len(silos)),
    )  # fmt: skip
    receipts = outcome.receipts
    used = [receipt.result.silo for receipt in receipts if receipt.rejected is None]
    server, privacy = settings.chain.released(outcome.state.server, state.server, silos, used)
    state = replace(outcome.state, server=server)
    unused: dict[str, str] = {}
    scores = validation_scores(engine, federated, state, settings, unused) if settings.validate else []
    score = mean_score(scores)
    state = state.with_score(score, final=state.server.final)
    personalized, by = federated.traits.personalized, settings.validation_by
    mislabeled = {} if personalized else mislabeled_silos(scores, by, rounds=settings.rounds)
    remarks = [f"{silo}: {remark}" for found in (outcome.remarks, unused, mislabeled) for silo, remark in found.items()]
    means = term_means(receipts)
    record = RoundRecord(
        round=number, seconds=time.perf_counter() - started, loss=means.pop("loss", None), terms=means,
        validation=score, best=score is None or state.best_round == number,
        silos=[receipt.record(settings.silos) for receipt in receipts],
        uplink_bytes=sum(receipt.uplink_bytes for receipt in receipts) + outcome.uplink_bytes,
        downlink_bytes=outcome.downlink_bytes,
        warnings=[
            *(settings.remarks if number == 0 else ()),
            *(f"{settings.silos[r.result.silo]}: {warning}" for r in receipts for warning in r.result.warnings),
            *remarks,
        ],
        validation_by=settings.validation_by, privacy=privacy,
    )  # fmt: skip
    return state, record


@dataclass(frozen=True)
class Receipt:
    """What the record of a round needs of a silo's result: without arrays, but with the size of the update as it was sent.

    It has the reason for which the update was rejected; None if it is used.
    """

    result: SiloResult
    uplink_bytes: int
    rejected: str | None

    def record(self, names: Sequence[str]) -> SiloRecord:
        """Return the silo's part in the round, given the names of all silos."""
        items, loss = self.result.update.counts["items"], self.result.loss
        finite = loss if math.isfinite(loss) else None
        return SiloRecord(names[self.result.silo], items, finite, self.result.seconds, self.rejected)


@dataclass(frozen=True)
class Outcome:
    """The outcome of a round before its validation.

    Attributes:
        receipts: One receipt per silo, in silo order. Silos that did not take part are rejected.
        remarks: A remark on each silo whose update looks faulty, and those of the robust rule.
        uplink_bytes: Number of bytes that silos sent beside their updates.
    """

    state: RunState
    receipts: Sequence[Receipt]
    remarks: Mapping[str, str]
    uplink_bytes: int
    downlink_bytes: int


def trained(
    state: RunState,
    silos: Sequence[int],
    spool: Spool,
    *,
    federated: FederatedMethod,
    attendance: Attendance,
    settings: RoundSettings,
    progressed: Callable[[Iterable[SiloResult]], Iterable[SiloResult]],
) -> Outcome:
    """Train the live silos of a round, and aggregate their updates.

    Raises:
        UserError: If all updates were rejected.
    """
    tasks = Tasks("train", silos, state, federated)
    chain = settings.chain
    updates = chain.collection() or collection_of(tasks, spool, settings.held_bytes, single=chain.compares())
    if isinstance(updates, Folded) and federated.traits.weights_known == "before training":
        updates.expect(result.update.weights for result in attendance.results(tasks.to_weigh()))
    exchange = StatisticsExchange(tasks, attendance, spool, updates, settings.chain)
    origin = federated.origin(state.server)
    outliers = Outliers(origin, len(silos))
    results = exchange.completed(progressed(attendance.results(tasks)))
    if settings.keep is not None:
        settings.keep.begin(state.round, origin, state.server.extras)
    receipts, kept = received(results, tasks, outliers, updates, settings)
    given = updates.updates()
    refused = settings.chain.refused(origin, given)
    receipts = [replace(each, rejected=refused.get(each.result.silo, each.rejected)) for each in receipts]
    rejections = _rejections(receipts, state.round)
    server = replace(state.server, extras={**state.server.extras, **exchange.extras})
    named = outliers.remarks()
    for silo in refused:
        del kept[silo]
        named.pop(settings.silos[silo], None)
    accepted = [update for update in given if update.silo not in refused]
    used, remarks = settings.chain.screened(origin, accepted, rejections)
    if used:
        server = next_server(server, used, federated, settings.buffers)
    sent, received_bytes = settings.chain.traffic()
    nothing = Message("absence", "server", -1, counts={"items": 0})
    absences = (Receipt(SiloResult(silo, nothing), 0, reason) for silo, reason in attendance.absent.items())
    return Outcome(
        state=replace(state, round=state.round + 1, server=server, silos={**state.silos, **kept}),
        receipts=sorted([*receipts, *absences], key=lambda receipt: receipt.result.silo),
        remarks=named | remarks,
        uplink_bytes=exchange.uplink_bytes + sent,
        downlink_bytes=exchange.downlink_bytes + tasks.downlink_bytes + received_bytes,
    )


def collection_of(tasks: Tasks, spool: Spool, held_bytes: int, *, single: bool = False) -> Collection:
    """Return the collection for the updates of a round.

    They are added up as they arrive if all of them do not fit into memory, provided that the server needs only sums, no
    ``single`` updates, and every silo can announce its weights before it sends its update. Otherwise those that do not
    fit are written to disk.
    """
    federated, current = tasks.federated, tasks.state.server.params
    if sum(array.nbytes for array in current.values()) * len(tasks.silos) <= held_bytes:
        return Listed(spool)
    if single or federated.traits.weights_known == "with update" or federated.traits.uplink != "sum":
        return Listed(spool)
    return Folded(current) if federated.aggregation == Aggregation() else Listed(spool)


def received(
    results: Iterable[SiloResult], tasks: Tasks, outliers: Outliers, updates: Collection, settings: RoundSettings
) -> tuple[list[Receipt], dict[int, Arrays]]:
    """Inspect and collect the updates of a round as they arrive.

    Return one receipt per silo, and what the silos keep whose updates are not rejected, by their numbers.
    """
    receipts: list[Receipt] = []
    kept: dict[int, Arrays] = {}
    for result in results:
        # Whose update it is follows from the connection, whatever the message says.
        update, reason = settings.chain.arrived(
            replace(result.update, silo=result.silo), result.kept, tasks.state.server, tasks.federated,
            partial(tasks.reference, result.silo),
        )  # fmt: skip
        # The arrays of a result do not outlive the next one.
        without = Message(result.update.kind, result.update.sender, result.update.round, counts=result.update.counts)
        receipts.append(Receipt(replace(result, update=without, kept={}), result.update.size_bytes(), reason))
        if reason is None:
            kept[result.silo] = dict(result.kept)
            outliers.add(update)
            if settings.keep is not None:
                settings.keep.add(result.silo, update)
            updates.add(update)
    return receipts, kept


def term_means(receipts: Sequence[Receipt]) -> dict[str, float]:
    """Return the means over silos of the loss and of each term, weighted by their numbers of items.

    Values that are not finite, and those of rejected updates, are left out. A mean over silos without items is NaN.
    """
    terms: dict[str, list[tuple[float, int]]] = {}
    for result in (receipt.result for receipt in receipts if receipt.rejected is None):
        for name, value in {**result.terms, "loss": result.loss}.items():
            if math.isfinite(value):
                terms.setdefault(name, []).append((value, result.update.counts["items"]))
    totals = {name: sum(weight for _, weight in values) for name, values in terms.items()}
    return {
        name: sum(value * weight for value, weight in values) / totals[name] if totals[name] else math.nan
        for name, values in terms.items()
    }


def _rejections(receipts: Sequence[Receipt], number: int) -> int:
    if not receipts:
        raise TooFewSilos(f"Round {number + 1}: no silo answered. Start the silos, then resume the run.")
    rejections = sum(receipt.rejected is not None for receipt in receipts)
    if rejections == len(receipts):
        raise Diverged(
            f"Round {number + 1}: all silo updates were rejected ({receipts[0].rejected}). "
            "Lower train.learning_rate, or set train.clip_norm = 1.0, and train again."
        )
    return rejections


def participants(settings: RoundSettings, round: int, key: np.ndarray | None = None) -> list[int]:  # noqa: A002
    """Return the numbers of the silos that take part in a round, at least one, in ascending order.

    They are drawn with the server's secret, if it has one, so that nobody else can predict them, and otherwise from the
    seed.
    """
    count = max(1, math.floor(settings.fraction * len(settings.silos) + 0.5))
    if count >= len(settings.silos):
        return list(range(len(settings.silos)))
    if key is None:
        generator = seeds.numpy_generator(settings.seed, "participants", round=round)
    else:
        generator = seeds.secret_generator(key.tobytes(), "participants", round=round)
    return sorted(int(silo) for silo in generator.choice(len(settings.silos), size=count, replace=False))


def validation_scores(
    engine: Engine,
    federated: FederatedMethod,
    state: RunState,
    settings: RoundSettings,
    unused: dict[str, str] | None = None,
) -> list[Message]:
    """Return the validation score of each live silo for the model that it would deploy.

    A score that is impossible, or for more queries than the silo announced, is left out, and ``unused`` receives why.

    Each silo searches its own training items with its own held-back queries. It sends only the score, the score of random
    codes, the mean area under the ROC curve with its standard error, and the numbers of queries and of items judged.
    """
    attendance = Attendance(engine, settings.limits)
    tasks = Tasks("validate", attendance.invited(range(len(settings.silos))), state, federated)
    scores = []
    for result in attendance.results(tasks):
        counts, values = result.update.counts, result.update.scalars.values()
        # A score that is not between 0 and 1 would decide alone which round is the best.
        possible = 0 < counts["queries"] <= LARGEST_COUNT and all(0.0 <= value <= HIGHEST for value in values)
        reason = None if possible or counts["queries"] == 0 else "it is impossible"
        reason = reason or (settings.announced[result.silo].overclaim(counts) if settings.announced else None)
        if reason is None:
            scores.append(result.update)
        elif unused is not None:
            unused[settings.silos[result.silo]] = f"its validation score is not used: {reason}"
    return scores


def mean_score(scores: Sequence[Message]) -> float | None:
    """Return the mean score, weighted by the silos' numbers of validation queries; None without queries."""
    counted = [(message.scalars["score"], message.counts["queries"]) for message in scores]
    total = sum(queries for _, queries in counted)
    return sum(score * queries for score, queries in counted if queries) / total if total else None
