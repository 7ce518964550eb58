"""The indexed silos of a run on this machine: open them, search all of them, remove items from them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel
from typing_extensions import override

from silohash.base.attempts import attempted
from silohash.base.errors import InvalidName, NotIndexed, UserError
from silohash.base.files import check_private, closed_on_error, read_json
from silohash.base.locks import locked_run
from silohash.base.types import MODALITIES, Modality
from silohash.index.config import installed_backend, read_index_config
from silohash.index.copies import Backend
from silohash.index.listing import LISTING, Listing, index_files, read_listing
from silohash.index.source import PictureSource
from silohash.index.store import Store
from silohash.run.model.node_files import forgetting
from silohash.search.bus import LocalBus
from silohash.search.federation import Encoded, Federation
from silohash.search.ledger import FOLDER as LEDGERS
from silohash.search.ledger import Ledger
from silohash.search.node import SiloNode
from silohash.search.policy import Policy, check_policy_files, policy_of

if TYPE_CHECKING:
    from silohash.features.base import Value
    from silohash.run.folder import Run
    from silohash.run.model.encoder import Encoder

POLICIES = "policies"
"""Name of the folder in a run that holds the silos' policies. Indexing never changes it."""

MOST_CAPTIONS = 5_000
"""Number of captions per silo that are read for known words, if no word of a query is known."""


def open_nodes(folder: Path, *, backend: Backend | None = None, prepared: bool = False) -> list[SiloNode]:
    """Open the index of every silo, with the silo's policy, in the order of their names.

    A silo whose index is missing, damaged or that of another silo does not prevent the others from being searched. Its node
    answers with the reason, so that it is a missing silo of every result.

    Args:
        folder: The index folder of a run. Policies are read from the folder ``policies`` beside it.
        backend: Index backend, as in `load_index`; None for the one that ``index.toml`` beside the folder chooses.
        prepared: Whether many queries follow. All that they need is then loaded first, so that the first query is answered
            as fast as the next.

    Raises:
        UserError: If no silo is indexed, an index has a hidden name, the list of silos is damaged, a policy is not valid,
            or the backend is not installed.
    """
    backend = _checked_backend(backend, folder)
    policies = folder.parent / POLICIES
    expected, existing = _expected_silos(folder), _index_files(folder)
    if not existing and not any(expected.values()):
        raise NotIndexed(f"There is no index in {folder}. Build it: silohash index {folder.parent}")
    silos = sorted({*existing, *(silo for silo, held in expected.items() if held != ())})
    check_policy_files(policies, {*silos, *expected})
    nodes = []
    with ExitStack() as opened:
        for silo in silos:
            policy, files = policy_of(policies, silo), existing.get(silo, {})
            nodes.append(_node(folder / silo, files, expected, policy, backend, prepared=prepared))
            opened.callback(nodes[-1].close)
        if prepared:
            for node in nodes:
                node.prepare()
        else:
            any(node.warm_up() for node in nodes)
        # After an error all files are closed; from here on the nodes keep them open.
        opened.pop_all()
    return nodes


def open_node(
    folder: Path, silo: str, policy: Policy | None = None, *, run: Run | None = None, private: bool = False
) -> SiloNode:
    """Open the index of one silo for many queries. The indexes of other silos need not be in the folder.

    The backend is that of `open_nodes`, and so is the policy by default. If it accepts the words and regions of queries, the
    model of the run with the index folder scores items. Without a run, codes only are compared. A ``private`` index is one
    that others must not be able to read.

    Raises:
        UserError: If the silo is not indexed, others can read its private index, the policy is not valid, the backend is not
            installed, or scoring needs torch and it is not installed.
    """
    backend = _checked_backend(None, folder)
    existing = _index_files(folder).get(silo, {})
    if not existing:
        raise NotIndexed(f"There is no index of the silo {silo} in {folder}. Build it: silohash index {folder.parent}")
    if private:
        check_private(folder / silo)
    policy = policy_of(folder.parent / POLICIES, silo) if policy is None else policy
    node = _node(folder / silo, existing, _expected_silos(folder), policy, backend, prepared=True)
    node.prepare()
    if run is not None and policy.accept_query_content and run.model.record.spec.scores_pairs:
        with closed_on_error(node):
            add_matcher(run, node, run.model.encoder(run.model.name_of(node.model_digest)))
    return node


def _checked_backend(backend: Backend | None, folder: Path) -> Backend:
    """Return the backend to open an index folder with, after checking that it is installed."""
    chosen = read_index_config(folder.parent) if backend is None else backend
    if isinstance(chosen, str):
        installed_backend(chosen)
    else:
        chosen.check_installed()
    return chosen


def released_fields(folder: Path, silos: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Return the fields and columns that the policy of each silo of a run releases, which are what its index stores.

    Raises:
        UserError: If a policy is not valid.
    """
    return {silo: policy_of(folder / POLICIES, silo).stored for silo in silos}


class RunSearch(Federation):
    """Search the silos of a run in this process. `silohash.search.bus.now` runs its coroutines.

    Attributes:
        nodes: The open silos, by name.
    """

    silos_are_here = True

    def __init__(self, run: Run, nodes: Sequence[SiloNode] | None = None) -> None:
        """Search with the model of an indexed run. Its silos are opened unless their nodes are given.

        Raises:
            UserError: If the run is not indexed.
        """
        nodes = open_nodes(run.index_folder) if nodes is None else nodes
        bus = LocalBus(nodes)
        super().__init__(run, bus.nodes, bus)
        self.nodes = bus.nodes
        found, data_path = {}, run.data_path
        for node in nodes:
            # A silo whose list of pictures is damaged does not answer either, and the result has the reason.
            with suppress(UserError):
                source = PictureSource.read(run.index_folder / node.name)
                found[node.name] = () if source is None else tuple(source.folders(data_path))
        self.folders = {name: folders for name, folders in found.items() if folders}

    @override
    def _captions(self) -> Iterator[str]:
        for node in self.nodes.values():
            yield from node.captions(MOST_CAPTIONS)

    @override
    def _digests(self, silo: str) -> Sequence[str]:
        return (self.nodes[silo].model_digest,)

    @override
    def _with_scoring(self, encoded: Encoded, value: Value, modality: Modality) -> Encoded:
        from silohash.run.model.matcher import query_nodes

        models = {silo: self._model_of(silo) for silo in encoded.codes}
        for silo, name in models.items():
            add_matcher(self.run, self.nodes[silo], self._encoder(name))
        by_model = {name: query_nodes(self._encoder(name), value, modality) for name in dict.fromkeys(models.values())}
        return replace(encoded, nodes={silo: by_model[name] for silo, name in models.items()})


def add_matcher(run: Run, node: SiloNode, encoder: Encoder) -> None:
    """Let a silo score its items, if its model scores pairs. Its files remain open between searches."""
    if node.matcher is None and run.model.record.spec.scores_pairs:
        from silohash.run.model.matcher import matcher_of

        node.matcher = matcher_of(encoder, run.index_folder / node.name)


def remove_items(folder: Path, ids: Sequence[str]) -> dict[str, list[str]]:
    """Remove items from all indexes of an index folder, and release their disk space. All are opened before any changes.

    Returns:
        The removed ids of each silo that held any of them.

    Raises:
        UserError: If the run is not indexed, an index is damaged, or another process writes to the run. In these cases
            nothing is removed. If a server with copies of the codes cannot be reached, the items are removed, and the next
            search removes their codes from the server.
    """
    files = _index_files(folder)
    if not files:
        raise NotIndexed(f"There is no index in {folder}. Build it: silohash index {folder.parent}")
    with locked_run(folder.parent):
        removed = _remove_from(files, ids)
        if removed:
            from silohash.index.copies import follow_indexes

            follow_indexes(folder.parent)
    return removed


def _remove_from(files: Mapping[str, Mapping[Modality, Path]], ids: Sequence[str]) -> dict[str, list[str]]:
    removed: dict[str, list[str]] = {}
    with ExitStack() as stack:
        stores = {silo: [stack.enter_context(Store(path)) for path in paths.values()] for silo, paths in files.items()}
        for silo, opened in stores.items():
            found: set[str] = set()
            for store in opened:
                with forgetting(store, ids):
                    gone = store.remove(ids)
                if gone:
                    store.compact()
                found.update(gone)
            if found:
                removed[silo] = [name for name in dict.fromkeys(ids) if name in found]
    return removed


def _index_files(folder: Path) -> dict[str, dict[Modality, Path]]:
    """Return the paths of the index files of each silo, in the order of the silos' names."""
    files: dict[str, dict[Modality, Path]] = {}
    for silo, modality, path in index_files(folder):
        if silo.startswith("."):
            raise InvalidName(
                f"The index {folder / silo} has a hidden name, which a silo cannot have. Remove the folder, and index the "
                "archive again with --name."
            )
        files.setdefault(silo, {})[modality] = path
    return files


def _expected_silos(folder: Path) -> Listing:
    """Return the silos that should have an index: those of the list or, without one, those of the partition."""
    listing = read_listing(folder)
    if listing is not None:
        return listing
    path = folder.parent / "partition.json"
    members = attempted(lambda: read_json(path, _Members).silos, UserError, otherwise=list[_Member]())
    return {member.name: () if (folder / member.name).is_dir() else None for member in members}


class _Member(BaseModel):
    """The part of a silo's entry in ``partition.json`` that a search needs."""

    name: str


class _Members(BaseModel):
    """The part of ``partition.json`` that a search needs."""

    silos: tuple[_Member, ...]


def _missing_files(
    folder: Path, silo: str, expected: Listing, existing: Mapping[Modality, Path]
) -> dict[Modality, str]:
    """Return the reason for each index of a silo that should exist and does not."""
    held = expected.get(silo, ())
    if existing and held is not None:
        absent = [modality for modality in held if modality not in existing]
        return {name: f"{folder / silo / name}.sqlite does not exist. Index the silo again." for name in absent}
    if existing:
        return {}
    if held is None:
        reason = f"It is not indexed. Run: silohash index {folder.parent}"
    else:
        reason = (
            f"Its index {folder / silo} does not exist. Index it again, or remove its name from {folder / LISTING} "
            "to search without it."
        )
    return dict.fromkeys(MODALITIES, reason)


def _node(
    folder: Path, files: Mapping[Modality, Path], expected: Listing, policy: Policy, backend: Backend, *, prepared: bool
) -> SiloNode:
    """Open the index files in the folder of a silo. An index that cannot be used has the reason."""
    unusable = _missing_files(folder.parent, folder.name, expected, files)
    stores: dict[Modality, Store] = {}
    for modality, path in files.items():
        try:
            PictureSource.read(folder)
            with closed_on_error(Store(path)) as store:
                store.manifest.check_holder(folder.name, modality)
            stores[modality] = store
        except UserError as error:
            unusable[modality] = str(error)
    ledger = None
    try:
        ledger = Ledger(folder.parent.parent / LEDGERS / f"{folder.name}.sqlite") if policy.needs_ledger else None
    except UserError as error:
        for store in stores.values():
            store.close()
        unusable, stores = {**dict.fromkeys(stores, str(error)), **unusable}, {}
    return SiloNode(folder.name, stores, policy, backend=backend, unusable=unusable, prepared=prepared, ledger=ledger)
