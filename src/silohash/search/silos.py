"""The silos of a run on this machine: their indexes opened, and one question asked of all of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from silohash.index.store import Store
from silohash.search.hits import Hits, Query
from silohash.search.merge import ask
from silohash.search.node import SiloNode
from silohash.search.policy import Policy
from silohash.types import MODALITIES, Modality, UserError

if TYPE_CHECKING:
    from silohash.features.base import Value
    from silohash.runtime.run import Run


def open_nodes(folder: Path, policy: Policy | None = None) -> list[SiloNode]:
    """Opens every silo's index below a folder, in the order of their names.

    Raises:
        UserError: if there is none, or one is damaged.
    """
    nodes = []
    for silo in sorted(folder.glob("[!.]*")):
        stores: dict[Modality, Store] = {}
        for modality in MODALITIES:
            path = silo / f"{modality}.sqlite"
            if path.exists():
                stores[modality] = Store.open(path)
        if stores:
            nodes.append(SiloNode(silo.name, stores, policy))
    if not nodes:
        raise UserError(f"There is no index in {folder}. Make it: silohash index {folder.parent}")
    return nodes


def ask_run(
    run: Run,
    value: Value,
    asked_by: Modality,
    target: Modality,
    *,
    k: int = 10,
    radius_bits: int | None = None,
    nodes: list[SiloNode] | None = None,
) -> Hits:
    """Encodes one text, picture or vector and asks every silo of a run.

    Where silos deploy models of their own, each is asked with its own model's code; the answers are merged by each silo's
    own ranks, and ``comparable`` is False.

    Args:
        run: an indexed run.
        value: the question.
        asked_by: what the question is: a text or an image.
        target: what is looked for.
        k: how many answers.
        radius_bits: answers at most so far away; None for no limit.
        nodes: silos that are open already; None opens the run's.

    Raises:
        UserError: if the run has no index or cannot encode the question.
    """
    nodes = open_nodes(run.index_folder) if nodes is None else nodes
    queries = {}
    made: dict[str, Query] = {}
    for node in nodes:
        own = not run.model.personalized or node.name in run.model.weights
        name = run.model.deployed_by(node.name) if own else run.model.name_of(node.model_digest)
        if name not in made:
            code = run.model.encoder(name).encode(value, asked_by)
            made[name] = Query(
                words=code.words[0], bits=code.bits, model_digest=code.model_digest, modality=target, k=k,
                radius_bits=radius_bits,
            )  # fmt: skip
        queries[node.name] = made[name]
    return ask(nodes, next(iter(made.values())) if len(made) == 1 else queries)
