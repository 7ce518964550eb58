"""The backend over a finished run: all silos are in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from silohash.base.types import Modality, UserError
from silohash.index.source import find_file
from silohash.search.hits import Hits, Query
from silohash.search.merge import ask
from silohash.search.released import SiloStatus, as_item, item_code, released_item, silo_status
from silohash.search.silos import QueryOptions, ask_run, open_nodes, picture_folders
from silohash.service.backend import (
    Code,
    FederationStatus,
    Item,
    NotFound,
    SearchOptions,
    SearchRequest,
    Unavailable,
    check_silos,
    without_item,
)

if TYPE_CHECKING:
    from silohash.run.folder import Run
    from silohash.run.model.encoder import Encoder
    from silohash.search.node import SiloNode


class LocalBackend:
    """Search the silos of a finished run in threads of this process.

    Attributes:
        nodes: The open silos, by name.
    """

    def __init__(self, run: Run, nodes: Sequence[SiloNode]) -> None:
        """Search the given silos with the model of a run."""
        self.nodes = {node.name: node for node in nodes}
        self._run = run
        self._encoders: dict[str, Encoder] = {}
        self._folders: Mapping[str, tuple[Path, ...]] = picture_folders(run, nodes)

    @classmethod
    def open(cls, folder: Path) -> LocalBackend:
        """Open the indexes of a run.

        Raises:
            UserError: If the folder does not hold a run, or the run is not indexed.
        """
        from silohash.run.folder import Run

        run = Run.open(folder)
        backend = cls(run, open_nodes(run.index_folder, prepared=True))
        backend.warm_up()
        return backend

    def warm_up(self) -> None:
        """Search once with a text and once with a picture, so that the models are loaded before the first request."""
        from PIL import Image

        captions = (caption for node in self.nodes.values() for caption in node.captions(1))
        options = SearchOptions(k=1, previews=False)
        with suppress(UserError):  # a model may encode only one of them; a search then reports it
            self._search(options.request(picture=Image.new("L", (32, 32), "white")))
        with suppress(UserError):
            self._search(options.request(text=next(captions, "a")))

    def close(self) -> None:
        """Close the indexes."""
        for node in self.nodes.values():
            node.close()

    async def search(self, request: SearchRequest) -> Hits:
        """Return the nearest items of the silos. See `Backend.search`."""
        return await asyncio.to_thread(self._search, request)

    async def similar(self, silo: str, name: str, options: SearchOptions, by: Modality | None = None) -> Hits:
        """Return the items nearest to an item, without the item. See `Backend.similar`."""
        return await asyncio.to_thread(self._similar, silo, name, options, by)

    async def item(self, silo: str, name: str, *, asker: str = "") -> Item:
        """Return what a silo releases of one item. See `Backend.item`."""
        return await asyncio.to_thread(self._item, silo, name)

    async def status(self) -> FederationStatus:
        """Return the state of the federation. See `Backend.status`."""
        return await asyncio.to_thread(self._status)

    def _search(self, request: SearchRequest) -> Hits:
        nodes = self._chosen(request.silos)
        if request.code is not None:
            return self._by_code(nodes, request.code, request)
        assert request.uncoded is not None  # noqa: S101  the request checks it
        value, modality = request.uncoded
        options = _query_options(request)
        return ask_run(self._run, value, modality, request.target, nodes=nodes, encoders=self._encoders, **options)

    def _similar(self, silo: str, name: str, options: SearchOptions, by: Modality | None) -> Hits:
        node, nodes = self._node(silo), self._chosen(options.silos)
        with _unavailable():
            found = item_code(node, name, by)
        code = Code(words=found.words, bits=found.bits, model_digest=found.model_digest)
        wider = replace(options, offset=0, k=options.offset + options.k + 1)
        hits = self._by_code(nodes, code, wider)
        return without_item(hits, silo, name, offset=options.offset, k=options.k)

    def _by_code(self, nodes: Sequence[SiloNode], code: Code, options: SearchOptions) -> Hits:
        query = Query(
            words=code.words,
            bits=code.bits,
            model_digest=code.model_digest,
            target=options.target,
            **_query_options(options),
        )
        return replace(ask(nodes, query), folders=self._folders)

    def _item(self, silo: str, name: str) -> Item:
        node = self._node(silo)
        with _unavailable():
            modalities, payload = released_item(node, name)
        path = find_file(self._folders.get(silo, ()), payload.get("file"))
        return as_item(silo, name, modalities, payload, path=path)

    def _status(self) -> FederationStatus:
        config, model = self._run.config, self._run.model
        return FederationStatus(
            name=self._run.name,
            archive=config.data.name or (config.data.path or Path()).name,
            silos=tuple(map(self._silo_status, self.nodes.values())),
            bits=model.bits,
            inputs=model.modalities_of_queries(vectors=False),
            vectors=model.modalities_of_queries(vectors=True),
            local_method=config.local.name,
            federated_method=config.federated.name,
            rounds=tuple(self._run.rounds()),
            chosen_round=model.round,
        )

    def _silo_status(self, node: SiloNode) -> SiloStatus:
        """Return the summary of a silo, whose examples have the paths of their pictures on this machine."""
        status = silo_status(node)
        if not self._folders.get(node.name):
            return status
        return replace(status, examples=tuple(self._item(node.name, item.id) for item in status.examples))

    def _node(self, silo: str) -> SiloNode:
        check_silos((silo,), list(self.nodes))
        return self.nodes[silo]

    def _chosen(self, silos: Sequence[str] | None) -> list[SiloNode]:
        check_silos(silos, list(self.nodes))
        return [node for name, node in self.nodes.items() if silos is None or name in silos]


def _query_options(options: SearchOptions) -> QueryOptions:
    return QueryOptions(
        k=options.k,
        offset=options.offset,
        radius_bits=options.radius_bits,
        label=options.label,
        previews=options.previews,
        asker=options.asker,
    )


@contextmanager
def _unavailable() -> Iterator[None]:
    """Raise `Unavailable` in place of the error of a silo that cannot be searched."""
    try:
        yield
    except NotFound:
        raise
    except UserError as error:
        raise Unavailable(str(error)) from error
