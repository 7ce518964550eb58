"""The process of a silo: it opens the silo's index, dials out to the bus, and answers requests until it is stopped.

Several processes may answer for the same silo. The bus gives each request to one of them.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from logging import DEBUG, ERROR, WARNING
from typing import TYPE_CHECKING, TypeAlias

from silohash.base.errors import AuditFailed, UserError
from silohash.base.optional import require
from silohash.index.listing import is_indexed
from silohash.run.folder import Run
from silohash.search.hits import Hits
from silohash.search.node import SiloNode
from silohash.search.policy import policy_of, read_policy
from silohash.search.requests import Request
from silohash.search.silos import POLICIES, open_node
from silohash.search.wire import Responder, Response, encode_refusal, respond
from silohash.service.audit import FOLDER, AuditLog, entry_of
from silohash.service.config import SiloConfig
from silohash.service.link import run_loop
from silohash.service.logs import is_logged, log_event
from silohash.service.models import SiloModels
from silohash.service.silo_link import SiloLink

LOOK_SECONDS = 1.0
"""Pause between two looks whether the index of a new model is finished, or that of the old one is no longer needed."""

ReadAgain: TypeAlias = Callable[[], SiloConfig]

if TYPE_CHECKING:  # only silos that take items need these modules
    from silohash.service.items.change import ModelChange
    from silohash.service.items.keeper import Server
    from silohash.service.metrics import SiloMetrics


def open_models(config: SiloConfig) -> SiloModels:
    """Open the index of a silo with the silo's policy, and that of its new run if it is finished.

    A silo to which items can be added need not be indexed. If the index of the old run was removed, only the new is opened.

    Raises:
        UserError: If a folder does not hold a run, the silo is not indexed, others can read its index, or its policy is not
            valid.
    """
    silo = config.silo
    policy = policy_of(config.run / POLICIES, silo) if config.policy is None else read_policy(config.policy)
    run, following = Run.open(config.run), None if config.next_run is None else Run.open(config.next_run)
    is_finished = following is not None and is_indexed(following.index_folder, silo)
    if following is not None and is_finished and not is_indexed(run.index_folder, silo):
        return SiloModels(open_node(following.index_folder, silo, policy, run=following, private=True))
    if config.items is not None:
        from silohash.service.items.indexer import prepare_index

        prepare_index(run, silo)
    models = SiloModels(open_node(run.index_folder, silo, policy, run=run, private=True))
    if following is not None and is_finished:
        models.add(open_node(following.index_folder, silo, policy, run=following, private=True))
    return models


def run_silo(
    config: SiloConfig,
    *,
    ready: Callable[[], None] = lambda: None,
    serve_items: Server | None = None,
    read_again: ReadAgain | None = None,
) -> None:
    """Answer the requests to a silo until the process gets SIGINT or SIGTERM. What has arrived by then is answered.

    After SIGHUP the file of the silo is read again, to find a new run. ``ready`` is called when the index is open and the
    process begins to connect, and ``serve_items`` serves the API of `ItemsSettings.listen`.
    """
    from silohash.service.items.change import ModelChange

    with closing(open_models(config)) as models, ExitStack() as kept:
        node = models.nodes[0]
        path = config.run / FOLDER / f"{config.silo}.jsonl"
        log = kept.enter_context(closing(AuditLog(path, sync_seconds=node.policy.audit_sync_seconds)))
        metrics = None
        if config.metrics is not None:
            require("prometheus_client", "The table [metrics]")
            from silohash.service.metrics import serving_metrics

            metrics = kept.enter_context(serving_metrics(config.metrics, node.status()))
        # It outlives the event loop, where a look that is under way may still have it close the index of the old model.
        executor = kept.enter_context(ThreadPoolExecutor(1, "answer"))
        change = kept.enter_context(ModelChange(config, models, executor, serve_items))
        answer = responder(node, log, metrics, models.choose)
        rejected = (lambda kind: None) if metrics is None else metrics.reject
        link = SiloLink(config, answer, None if models.quick else executor, rejected)
        run_loop(_serve(config, link, change, ready, read_again))


async def _serve(
    config: SiloConfig, link: SiloLink, change: ModelChange, ready: Callable[[], None], read_again: ReadAgain | None
) -> None:
    stopped, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    log_event("silo started", silo=config.silo, federation=config.federation)
    ready()
    await link.start(wait_seconds=0)
    if read_again is not None:
        loop.add_signal_handler(signal.SIGHUP, lambda read: loop.create_task(change.reload(read)), read_again)
    while not stopped.is_set():
        if change.successor is not None:
            await change.look_again()
        with suppress(TimeoutError):
            await asyncio.wait_for(stopped.wait(), LOOK_SECONDS)
    await link.stop()
    log_event("silo stopped", silo=config.silo)


def responder(
    node: SiloNode,
    log: AuditLog | None = None,
    metrics: SiloMetrics | None = None,
    choose: Callable[[Request], SiloNode] | None = None,
) -> Responder:
    """Return the function that answers for a silo and logs what it answered.

    Nothing is released that cannot be written to the silo's audit log, if it has one. If the silo has a node per model, one
    is chosen for each request.
    """

    def answer(content: bytes, most_bytes: int, arrived: float) -> bytes:
        """Answer one request."""
        start = time.perf_counter()
        response = _audited(node, respond(node, content, most_bytes, choose, arrived=arrived), log)
        seconds = time.perf_counter() - start
        _log(node.name, response, seconds)
        if metrics is not None:
            metrics.count(response, seconds)
        return response.content

    return answer


def _audited(node: SiloNode, response: Response, log: AuditLog | None) -> Response:
    """Write an answer to the audit log and return it, or a refusal if it cannot be written."""
    if log is None:
        return response
    try:
        log.append(entry_of(response))
    except UserError as error:
        log_event("the audit log cannot be written", level=ERROR, silo=node.name, reason=str(error))
        refusal = AuditFailed("It cannot write its audit log, so it does not release anything.")
        return Response(encode_refusal(node.name, refusal), response.request, error=refusal)
    return response


def _log(silo: str, response: Response, seconds: float) -> None:
    """Log an answer at the level DEBUG, and a refusal as a warning. Neither the code nor the items are logged."""
    if not is_logged(DEBUG if response.error is None else WARNING):
        return
    kind = "unreadable" if response.request is None else type(response.request).__name__
    fields = {"silo": silo, "request": kind, "milliseconds": round(1e3 * seconds, 3), "bytes": len(response.content)}
    if response.request is not None and response.request.request_id:
        fields["request_id"] = response.request.request_id
    if response.error is not None:
        log_event("refused", level=WARNING, **fields, reason=str(response.error))
    else:
        items = len(response.answer) if isinstance(response.answer, Hits) else None
        log_event("answered", level=DEBUG, **fields, items=items)
