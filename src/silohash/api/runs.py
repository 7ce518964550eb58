"""Runs: train one, open one, and use its model and its indexes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from silohash.base.errors import ConflictingOptions, UnknownItem, WrongType
from silohash.base.optional import require
from silohash.base.visible import visible
from silohash.index import IN_MEMORY
from silohash.search import inputs
from silohash.search.bus import now
from silohash.search.composed import TEXT_WEIGHT, RegionLike
from silohash.search.filters import Condition, conditions_of, labeled
from silohash.search.options import CANDIDATES
from silohash.search.requests import SearchRequest
from silohash.search.silos import RunSearch, open_nodes, released_fields, remove_items

if TYPE_CHECKING:
    from silohash.base.types import Notify, ResultRow
    from silohash.data.archive import Archive
    from silohash.data.partitions.base import Partition
    from silohash.index.codes import Codes
    from silohash.run.config.sections import RunConfig
    from silohash.run.events import Observer
    from silohash.run.model.encoder import Encoder
    from silohash.search.hits import Hits


WITH_COMMA = "An id that contains a comma is given to --remove in a file, as @FILE."


def open_run(folder: str | Path) -> TrainedRun:
    """Open the folder of a trained run.

    Raises:
        UserError: If the folder does not hold a run.
    """
    return TrainedRun(folder)


def train(
    config: str | Path | Mapping[str, Any],
    folder: str | Path,
    *,
    overrides: Sequence[str] = (),
    report: bool = True,
    index: bool = True,
    observers: Sequence[Observer] = (),
    notify: Notify = lambda text: None,
) -> TrainedRun:
    """Train a run in a new folder.

    Args:
        config: Path of a TOML file, or the same tables as a mapping, such as ``{"data": {"name": "glyphs"}}``. Whatever is
            left out takes its default.
        folder: Folder of the run. It must not hold a run yet.
        overrides: Settings that replace those of the config, such as ``"federated.rounds=5"``.
        report: Whether to evaluate the run and write its report, as `silohash train` does.
        index: Whether to build the index of every silo, as `silohash train` does.
        observers: Objects that are notified of each round.
        notify: Called with a line for each row of the archive that is skipped, and for each silo that is indexed.

    Raises:
        UserError: If the config or the data must be corrected first, the folder holds other files, or another process
            writes to it.
    """
    require("torch", "Training")
    from silohash.run.config.load import load_resolved
    from silohash.run.folder import Run
    from silohash.training import experiment

    source = config if isinstance(config, Mapping) else Path(config)
    resolved = load_resolved(source, list(overrides))
    run = Run(Path(folder))
    run.check_free()
    with run.writing():
        run = experiment.train(resolved, Path(folder), observers=observers, notify=notify)
        if report:
            from silohash.report.finish import finish_run

            finish_run(run)
        trained = TrainedRun(folder)
        if index:
            trained.index(notify=notify)
    return trained


class TrainedRun:
    """Encode, index, search and evaluate with the model of a run."""

    def __init__(self, folder: str | Path) -> None:
        """Open the folder of a run. See `open_run`."""
        from silohash.run.folder import Run

        self.folder = Path(folder)
        self._run = Run.open(self.folder)
        self._silos: dict[str | None, RunSearch] = {}

    def __repr__(self) -> str:
        config = self.config
        return (
            f'TrainedRun("{self.folder}": {config.local.name} with {config.federated.name}, '
            f"{config.local.bits} bits, silos: {visible(', '.join(self.silos))})"
        )

    def __enter__(self) -> TrainedRun:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the indexes that searches have opened. A further search opens them again."""
        for silos in self._silos.values():
            for node in silos.nodes.values():
                node.close()
        self._silos.clear()

    @property
    def config(self) -> RunConfig:
        """The config of the run, with every default filled in."""
        return self._run.config

    @property
    def archive(self) -> Archive:
        """The archive that the run was trained on."""
        return self._run.archive

    @property
    def partition(self) -> Partition:
        """The distribution of the archive over silos."""
        return self._run.partition

    @property
    def silos(self) -> tuple[str, ...]:
        """The names of the silos that trained the run."""
        return self._run.silo_names

    def encode(
        self,
        archive: Archive | str | Path | list[str] | tuple[str, ...] | None = None,
        modality: str | None = None,
        *,
        model: str | None = None,
    ) -> Codes:
        """Return the codes of the items of an archive, or of texts.

        Few models need labels for items (`dlffh` with `db-labels`).

        Args:
            archive: An archive, its name, or the path of its folder; None for the archive of the run. Or a list of texts,
                whose ids are their places in it.
            modality: "image" or "text". It can be left out if only one of them can be encoded, and for texts.
            model: Name of the silo whose model encodes, if silos use different models.

        Raises:
            UserError: If the modality or the model is ambiguous, texts are to be encoded as images, or an item cannot be
                encoded.
        """
        from silohash.run.indexing import check_labels
        from silohash.run.model.archive_codes import encode_archive, only_modality

        encoder = self._encoder(model)
        if isinstance(archive, list | tuple):
            if modality not in (None, "text"):
                raise ConflictingOptions(f"A list of texts has no {modality}. Use encode_images for images.")
            return encoder.encode_queries([inputs.checked_text(text) for text in archive], "text")
        items = self._archive_of(archive)
        check_labels(self._run, items, encoder)
        chosen = only_modality(items, encoder) if modality is None else inputs.modality_named(modality)
        return encode_archive(encoder, items, chosen)

    def encode_images(self, images: Sequence[inputs.ImageLike], *, model: str | None = None) -> Codes:
        """Return the codes of images, whose ids are their places in the list.

        Args:
            images: Paths, Pillow images, or uint8 pixels.
            model: Name of the silo whose model encodes, if silos use different models.

        Raises:
            UserError: If the model is ambiguous, or an image cannot be read or encoded.
        """
        if isinstance(images, str | Path):
            raise WrongType(f"encode_images takes a list of images, not one path. Give [{str(images)!r}].")
        return self._encoder(model).encode_queries([inputs.read_picture(image) for image in images], "image")

    def index(
        self,
        archive: Archive | str | Path | None = None,
        *,
        name: str | None = None,
        model: str | None = None,
        all_items: bool = False,
        follow_links: bool = False,
        notify: Notify = lambda text: None,
    ) -> dict[str, int]:
        """Build the index of every silo, or of an archive as one more silo, and return the number of items per silo.

        Earlier indexes of the same silos, or of the same archive, are replaced. Items that are only queries are held out,
        unless ``all_items`` is set. A silo's policy (``RUN/policies/SILO.toml``) is read first: only fields that it
        releases are stored.

        Args:
            archive: An archive, its name, or the path of its folder; None for the silos of the run.
            name: Name of the additional silo; None for the name of the archive.
            model: Name of the silo whose model encodes the archive, if silos use different models.
            all_items: Index the query items too.
            follow_links: Whether links in the archive's folder may lead out of it.
            notify: Called with one line per silo, per skipped row of the archive, and with a sentence on held-out items.

        Raises:
            UserError: If a policy is not valid, another archive is indexed under the same name, the model is ambiguous, or
                an item cannot be encoded.
        """
        from silohash.run.indexing import index_run

        items = None if archive is None else self._archive_of(archive, follow_links=follow_links)
        names = self.silos if items is None else (name or items.card.name,)
        fields = released_fields(self.folder, names)
        for remark in () if items is None else items.card.remarks():
            notify(remark)
        counts = index_run(self._run, items, name=name, model=model, all_items=all_items, fields=fields, notify=notify)
        self.close()
        return counts

    def remove(self, ids: str | Collection[str]) -> dict[str, list[str]]:
        """Remove items from the indexes of all silos, release their disk space, and return the removed ids of each silo.

        Example searches that show an item, and the report with them, are deleted. Indexing the run again adds the items
        again, unless they are removed from the archive too.

        Raises:
            UserError: If the run is not indexed, or neither an index nor the training held any of the ids.
        """
        from silohash.api.erasure import delete_examples, trained_on

        names = inputs.several(ids)
        removed = remove_items(self._run.index_folder, names)
        if not (delete_examples(self._run, names) or removed or trained_on(self._run, names)):
            listed = ", ".join(f'"{name}"' for name in names[:5])
            raise UnknownItem(
                f"No index of {self.folder} holds {listed or 'an item, because no id was given'}. "
                f"Check the ids: silohash search --json prints them.{f' {WITH_COMMA}' if len(names) > 1 else ''}"
            )
        return removed

    def search(
        self, text: str | None = None, *, image: inputs.ImageLike | None = None,
        vector: inputs.VectorLike | None = None, vector_modality: str = "image", text_weight: float = TEXT_WEIGHT,
        region: RegionLike | None = None, find: str = "item", k: int = 10, offset: int = 0,
        radius_bits: int | None = None, label: str | Sequence[str] | None = None,
        where: str | Condition | Sequence[str | Condition] = (), silos: str | Sequence[str] | None = None,
        facets: str | Sequence[str] = (), facet_values: int = 10, newest_by: str | None = None,
        candidates: int = CANDIDATES, deadline_seconds: float | None = None, bar: float | None = None,
        previews: bool = True, engine: str | None = None,
    ) -> Hits:  # fmt: skip
        """Search all silos for a text, an image, both or a vector, or list the items that pass filters. Answers are merged.

        Args:
            text: The text to search for. A word with a minus before it is excluded, as in ``boats -station``.
            image: The image to search for: a path, a Pillow image, or uint8 pixels.
            vector: The feature vector, if the run was trained on given features: numbers, or the path of a ``.npy`` file.
            vector_modality: Whether the vector describes an "image" or a "text".
            text_weight: Weight of the text beside an image, from 0 for the image alone to 1 for the text alone.
            region: The part of the image to search for: left, top, right and bottom as shares of its width and height.
            find: "item" for items by the nearer of their two codes, "image" for pictures alone, or "text" for texts alone.
            k: Number of hits.
            offset: Number of nearest items to skip, for the pages after the first.
            radius_bits: Maximum distance of a hit, in bits; None for no limit.
            label: If set, only items with this label are searched, or with all of several labels.
            where: Conditions on columns that silos release, all of which must be true, such as ``"museum=Louvre,Prado"``
                (one of both), ``"labels=cat,dog"``, ``"year>=1900"`` or ``"date<2001-05"``. If nothing else is searched for,
                the items that pass the filters are listed, newest first.
            silos: Names of the silos to search; None for all.
            facets: Columns whose values are counted among the items that pass the filters: "silo", "labels" or others.
            facet_values: Number of the most frequent values of each of these columns.
            newest_by: Column of dates by which items are listed; None for the order in which they were indexed.
            candidates: Number of pictures or texts that a silo finds by their codes and scores, if the model scores pairs.
            deadline_seconds: Time limit for the answers of the silos, from 0.1 to 60 seconds; None for 10 seconds.
            bar: Lowest probability of a hit that counts as close; None for what held-back queries showed.
            previews: Whether hits carry the small pictures that silos release.
            engine: Index backend in memory, "flat", "trie" or "faiss"; None for the backend that ``RUN/index.toml`` chooses.

        Returns:
            The hits, which print as a table and show their previews in a notebook. A silo that cannot be searched is listed
            in ``missing_silos`` with the reason. If no silo answered, ``answered`` is False.

        Raises:
            UserError: If the run is not indexed, the input cannot be read or encoded, or no training text held a word of it.
        """
        asked = (text, image, vector, vector_modality)
        value, modality = inputs.read_input(*asked, text_weight=text_weight, region=region)
        request = SearchRequest(
            value=value, modality=modality, target=inputs.target_named(find), k=k, offset=offset,
            radius_bits=radius_bits, where=(*conditions_of(where), *labeled(label)),
            silos=None if silos is None else tuple(inputs.several(silos)), facets=tuple(inputs.several(facets)),
            facet_values=facet_values, newest_by=newest_by, candidates=candidates, deadline_seconds=deadline_seconds,
            bar=bar, previews=previews,
        )  # fmt: skip
        return now(self._opened(engine).search(request))

    def evaluate(
        self,
        measures: str | Sequence[str] | None = None,
        *,
        evaluations: str | Sequence[str] | None = None,
        tasks: str | Sequence[str] | None = None,
        database: Literal["all", "unseen"] = "all",
    ) -> list[ResultRow]:
        """Measure the run on the queries of its archive, in one row per evaluation, task and measure.

        Args:
            measures: Names of measures, such as ``mAP@all``, or one name; None for those of the config.
            evaluations: Whose model encodes whose items, such as "GG" or "XS"; None for those of the config.
            tasks: Such as "i2t" or "t2item" (`silohash.base.types.TASKS`); None for those of the config.
            database: "all" items, or only those that no silo trained on ("unseen"). There are no rows if there are none.

        Raises:
            UserError: If the run does not have a model, or its archive lacks labels or queries.
        """
        from silohash.measure.evaluation import evaluate_run

        figures = evaluate_run(
            self._run,
            measures=inputs.several(measures or ()),
            evaluations=inputs.several(evaluations or ()),
            tasks=inputs.several(tasks or ()),
        )
        chosen = figures.unseen if database == "unseen" and figures.unseen else figures
        return list(chosen.rows)

    def _archive_of(self, archive: Archive | str | Path | None, *, follow_links: bool = False) -> Archive:
        if archive is None:
            return self.archive
        if isinstance(archive, str | Path):
            from silohash.data.catalogue import link_options, named_or_folder

            return named_or_folder(str(archive), link_options(follow_links=follow_links))
        return archive

    def _encoder(self, model: str | None) -> Encoder:
        return self._run.model.encoder(self._run.model.shared_name() if model is None else model)

    def _opened(self, engine: str | None) -> RunSearch:
        """Return the silos, which remain open between searches."""
        if engine is not None:
            IN_MEMORY.target(str(engine))
        if engine not in self._silos:
            self._silos[engine] = RunSearch(self._run, open_nodes(self._run.index_folder, backend=engine))
        return self._silos[engine]
