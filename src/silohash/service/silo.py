"""The process of a silo: it opens the silo's index, dials out to the bus, and answers requests until it is stopped.

Several processes may answer for the same silo. The bus gives each request to one of them.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, nullcontext
from logging import DEBUG, ERROR, WARNING
from typing import TYPE_CHECKING

from silohash.base.optional import require
from silohash.base.types import UserError
from silohash.index.listing import is_indexed
from silohash.run.folder import Run
from silohash.search.hits import Hits
from silohash.search.node import SiloNode
from silohash.search.policy import Policy, policy_of, read_policy
from silohash.search.released import SiloStatus, silo_status
from silohash.search.requests import Request
from silohash.search.silos import POLICIES
from silohash.search.wire import Responder, Response, encode_refusal, respond
from silohash.service.audit import FOLDER, AuditError, AuditLog, entry_of
from silohash.service.config import SiloConfig
from silohash.service.event_loop import run_loop
from silohash.service.logs import is_logged, log_event
from silohash.service.models import SiloModels, open_silo_node
from silohash.service.nats_bus import SiloLink

if TYPE_CHECKING:  # only silos that take items need these modules
    from silohash.service.items.change import ModelChange
    from silohash.service.items.indexer import Indexer
    from silohash.service.items.keeper import Keeper, Server
    from silohash.service.silo_metrics import SiloMetrics


def open_silo(config: SiloConfig) -> SiloNode:
    """Open the index of a silo, with the silo's policy. A silo to which items can be added need not be indexed.

    Raises:
        UserError: If the folder does not hold a run, the silo is not indexed, or its policy is not valid.
    """
    run = Run.open(config.run)
    if config.items is not None:
        from silohash.service.items.opening import prepare_index

        prepare_index(run, config.silo)
    return open_silo_node(run, config.silo, policy_of_silo(config))


def open_models(config: SiloConfig) -> SiloModels:
    """Open the index of a silo, and that of its new run if it is finished. The exceptions are those of `open_silo`."""
    if config.next_run is None:
        return SiloModels(open_silo(config))
    run, following = Run.open(config.run), Run.open(config.next_run)
    policy = policy_of_silo(config)
    if _is_replaced(run, following, config.silo):
        return SiloModels(open_silo_node(following, config.silo, policy))
    models = SiloModels(open_silo(config))
    if is_indexed(following.index_folder, config.silo):
        models.add(open_silo_node(following, config.silo, policy))
    return models


def _is_replaced(run: Run, following: Run, silo: str) -> bool:
    """Return whether the index of the new run is finished, and that of the old run was removed."""
    return is_indexed(following.index_folder, silo) and not is_indexed(run.index_folder, silo)


def policy_of_silo(config: SiloConfig) -> Policy:
    """Return the policy of a silo, which is the same for all models.

    Raises:
        UserError: If it is not valid.
    """
    return policy_of(config.run / POLICIES, config.silo) if config.policy is None else read_policy(config.policy)


def run_silo(
    config: SiloConfig,
    *,
    ready: Callable[[], None] | None = None,
    serve_items: Server | None = None,
    read_again: Callable[[], SiloConfig] | None = None,
) -> None:
    """Answer the requests to a silo until the process gets SIGINT or SIGTERM. What has arrived by then is answered.

    Args:
        config: The file of the silo.
        ready: Called when the index is open and the process begins to connect.
        serve_items: Serves the API of `ItemsSettings.listen`; None for no API.
        read_again: Reads the file of the silo again after SIGHUP, to find a new run; None if the signal ends the process.

    Raises:
        UserError: As `open_silo`, or if the key or a certificate cannot be read.
    """
    from silohash.service.items.change import ModelChange

    models = open_models(config)
    # The labels of all items are read now, because no search would be answered meanwhile.
    status, *_ = [silo_status(node) for node in models.nodes]
    try:
        path = config.run / FOLDER / f"{config.silo}.jsonl"
        log = AuditLog(path, sync_seconds=models.nodes[0].policy.audit_sync_seconds)
        try:
            with ExitStack() as kept:

                def keep(changed: SiloConfig) -> Keeper | None:
                    """Begin to keep the index of the silo."""
                    return kept.enter_context(keeper_of(changed, models.nodes[0], serve_items))

                metrics = kept.enter_context(metrics_of(config, status))
                keeper = keep(config)

                def change(executor: Executor) -> ModelChange:
                    """Prepare to change to the model of a new run."""
                    return ModelChange(config, models, keeper, keep, executor)

                answer = responder(models.nodes[0], log, metrics, models.choose)
                quick = all(node.quick and not node.policy.accept_query_content for node in models.nodes)
                run_loop(_serve(config, answer, ready, change, read_again, quick=quick))
        finally:
            log.close()
    finally:
        models.close()


def keeper_of(
    config: SiloConfig, node: SiloNode, serve_items: Server | None = None
) -> AbstractContextManager[Keeper | None]:
    """Return the keeper of a silo's index; None as its value if neither items nor a new run may change it."""
    if config.items is None and config.next_run is None:
        return nullcontext()
    from silohash.service.items.keeper import Keeper
    from silohash.service.items.opening import open_indexer

    run, silo, folder = Run.open(config.run), config.silo, config.items_folder
    following = None if config.next_run is None else Run.open(config.next_run)

    def opener() -> Indexer:
        """Open the index of the new run if the old one was removed."""
        kept = run if following is None or not _is_replaced(run, following, silo) else following
        return open_indexer(kept, silo, folder, node.policy.fields)

    return Keeper(folder, run.index_folder / f".{silo}.items.lock", opener, serve_items)


def metrics_of(config: SiloConfig, status: SiloStatus) -> AbstractContextManager[SiloMetrics | None]:
    """Return the metrics of the process, which are served meanwhile; None as their value if none are configured."""
    if config.metrics is None:
        return nullcontext()
    require("prometheus_client", "The table [metrics]")
    from silohash.service.silo_metrics import serving_metrics

    return serving_metrics(config.metrics, status)


async def _serve(
    config: SiloConfig,
    answer: Responder,
    ready: Callable[[], None] | None,
    change_of: Callable[[Executor], ModelChange],
    read_again: Callable[[], SiloConfig] | None,
    *,
    quick: bool = False,
) -> None:
    stopped, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    with ThreadPoolExecutor(1, "answer") as executor:
        link = SiloLink(config.bus, config.federation, config.silo, answer, None if quick else executor)
        log_event("silo started", silo=config.silo, federation=config.federation)
        if ready is not None:
            ready()
        await link.start(wait_seconds=0)
        change = change_of(executor)
        if read_again is not None:
            read = read_again
            loop.add_signal_handler(signal.SIGHUP, lambda: loop.create_task(change.reload(read)))
        changing = loop.create_task(change.keep_looking())
        await stopped.wait()
        changing.cancel()
        await link.stop()
    log_event("silo stopped", silo=config.silo)


def responder(
    node: SiloNode,
    log: AuditLog | None = None,
    metrics: SiloMetrics | None = None,
    choose: Callable[[Request], SiloNode] | None = None,
) -> Responder:
    """Return the function that answers for a silo and logs what it answered.

    Args:
        node: The silo.
        log: The silo's audit log. Nothing is released that cannot be written to it. None writes none.
        metrics: The metrics in which answers are counted; None for none.
        choose: Returns the node that answers a request, if the silo has one per model.
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
        refusal = AuditError("It cannot write its audit log, so it does not release anything.")
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
