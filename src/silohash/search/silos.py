"""The indexed silos of a run on this machine: open them, search all of them, remove items from them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

from silohash.index.source import PictureSource
from silohash.index.store import Engine, Store
from silohash.locks import locked_run
from silohash.search.hits import Hits, Query
from silohash.search.merge import ask
from silohash.search.node import SiloNode
from silohash.search.policy import check_policy_files, policy_of
from silohash.search.words import query_words
from silohash.types import MODALITIES, Modality, UserError

if TYPE_CHECKING:
    from silohash.features.base import Value
    from silohash.runtime.run import Run

POLICIES = "policies"
"""Name of the folder in a run that holds the silos' policies. Indexing never changes it."""

MOST_CAPTIONS = 5_000
"""Number of captions per silo that are read for known words, if no word of a query is known."""


def open_nodes(folder: Path, *, engine: Engine = "flat") -> list[SiloNode]:
    """Open the index of every silo, with the silo's policy, in the order of their names.

    Args:
        folder: the index folder of a run. Policies are read from the folder ``policies`` beside it.
        engine: index engine, "flat" or "faiss".

    Raises:
        UserError: if there is no index, an index is damaged, or a policy is not valid.
    """
    policies = folder.parent / POLICIES
    stores = {silo: _open_stores(paths) for silo, paths in _index_files(folder)}
    if not stores:
        raise UserError(f"There is no index in {folder}. Build it: silohash index {folder.parent}")
    check_policy_files(policies, stores)
    return [SiloNode(silo, found, policy_of(policies, silo), engine=engine) for silo, found in stores.items()]


def released_fields(folder: Path, silos: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Return the fields that the policy of each silo releases, which are the fields that its index stores.

    Args:
        folder: the folder of a run.
        silos: names of silos.

    Raises:
        UserError: if a policy is not valid.
    """
    return {silo: policy_of(folder / POLICIES, silo).fields for silo in silos}


class QueryOptions(TypedDict, total=False):
    """Name the optional parameters of a search; see `Query`."""

    k: int
    offset: int
    radius_bits: int | None
    label: str | None
    previews: bool


def ask_run(
    run: Run,
    value: Value,
    query_modality: Modality,
    target: Modality,
    *,
    nodes: Sequence[SiloNode] | None = None,
    **options: Unpack[QueryOptions],
) -> Hits:
    """Encode one text, picture or vector, and search all silos of a run.

    If silos use different models, each silo is searched with the code of its own model. The answers are then merged by the
    ranks within each silo, and ``comparable`` is False.

    Args:
        run: an indexed run.
        value: the text, picture or vector to search for.
        query_modality: whether the value describes a text or an image.
        target: the modality to search.
        nodes: the open silos; None opens those of the run.
        options: parameters of the `Query`, such as ``k``.

    Raises:
        UserError: if the run is not indexed, the value cannot be encoded, or no training text held any word of it.
    """
    nodes = open_nodes(run.index_folder) if nodes is None else nodes
    unknown = query_words(run.model.featurisers.get(query_modality), value, lambda: _captions(nodes))
    queries: dict[str, Query] = {}
    by_model: dict[str, Query] = {}
    for node in nodes:
        name = _model_of(run, node)
        if name not in by_model:
            code = run.model.encoder(name).encode(value, query_modality)
            by_model[name] = Query(
                words=code.words[0], bits=code.bits, model_digest=code.model_digest, modality=target, **options
            )
        queries[node.name] = by_model[name]
    query = next(iter(by_model.values())) if len(by_model) == 1 else queries
    return replace(ask(nodes, query), unknown_words=unknown, folders=_picture_folders(run, nodes))


def _picture_folders(run: Run, nodes: Sequence[SiloNode]) -> dict[str, tuple[Path, ...]]:
    """Return the folders on this machine in which the picture files of each silo may lie."""
    sources = {node.name: PictureSource.read(run.index_folder / node.name) for node in nodes}
    data_path = run.config.data.path
    return {name: tuple(source.folders(data_path)) for name, source in sources.items() if source is not None}


def _captions(nodes: Sequence[SiloNode]) -> Iterator[str]:
    """Yield captions of all silos whose policies release captions, at most `MOST_CAPTIONS` per silo."""
    for node in nodes:
        yield from node.captions(MOST_CAPTIONS)


def remove_items(folder: Path, ids: Sequence[str]) -> dict[str, list[str]]:
    """Remove items from the indexes of all silos, and release their disk space.

    Args:
        folder: the index folder of a run.
        ids: ids of the items.

    Returns:
        The removed ids of each silo that held any of them.

    Raises:
        UserError: if there is no index, an index is damaged, or another process writes to the run.
    """
    files = list(_index_files(folder))
    if not files:
        raise UserError(f"There is no index in {folder}. Build it: silohash index {folder.parent}")
    with locked_run(folder.parent):
        return _remove_from(files, ids)


def _remove_from(files: Sequence[tuple[str, dict[Modality, Path]]], ids: Sequence[str]) -> dict[str, list[str]]:
    removed: dict[str, list[str]] = {}
    for silo, paths in files:
        found: set[str] = set()
        for path in paths.values():
            with Store.open(path) as store:
                gone = store.remove(ids)
                if gone:
                    store.compact()
                found.update(gone)
        if found:
            removed[silo] = [name for name in dict.fromkeys(ids) if name in found]
    return removed


def _model_of(run: Run, node: SiloNode) -> str:
    """Return the name of the model with which a silo is searched: its own, or the one that built its index."""
    deploys_own = not run.model.personalized or node.name in run.model.names
    return run.model.deployed_by(node.name) if deploys_own else run.model.name_of(node.model_digest)


def _index_files(folder: Path) -> Iterator[tuple[str, dict[Modality, Path]]]:
    """Yield each silo with the paths of its index files, in the order of the silos' names."""
    for silo in sorted(folder.glob("[!.]*")):
        paths = {modality: silo / f"{modality}.sqlite" for modality in MODALITIES}
        existing = {modality: path for modality, path in paths.items() if path.exists()}
        if existing:
            yield silo.name, existing


def _open_stores(paths: dict[Modality, Path]) -> dict[Modality, Store]:
    return {modality: Store.open(path) for modality, path in paths.items()}
