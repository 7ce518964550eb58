"""Build the index of each silo's items, with the codes of the model that the silo deploys."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import numpy as np

from silohash.base.errors import NoEffect, NothingUsable, UserError
from silohash.base.files import folder_beside, make_private
from silohash.base.types import Modality, Notify, Rows
from silohash.data.archive import Archive, Pictures
from silohash.data.pictures.reading import PictureFiles
from silohash.features.truncation import truncation_remark
from silohash.index.base import FIELDS, IndexManifest
from silohash.index.copies import follow_indexes
from silohash.index.listing import note_indexed
from silohash.index.preview import make_preview
from silohash.index.source import PictureSource
from silohash.index.store import Store
from silohash.run.added_archive import check_added, check_labels, doubled_sentence, note_added
from silohash.run.encodable import cannot_encode, encodable_rows, indexed_rows, left_out
from silohash.run.folder import Run
from silohash.run.model.encoder import Encoder

BLOCK_ROWS = 50_000


def index_run(
    run: Run,
    archive: Archive | None = None,
    *,
    name: str | None = None,
    model: str | None = None,
    all_items: bool = False,
    fields: Mapping[str, Collection[str]] | None = None,
    notify: Notify = lambda text: None,
) -> dict[str, int]:
    """Build the indexes of a run, and return the number of indexed items per silo.

    Items that are only queries are held out of the indexes, unless ``all_items`` is set. An additional archive that does
    not state splits has no queries, so it is indexed as a whole.

    Existing indexes of the same silos are replaced, and their copies on a server.

    Args:
        run: A trained run.
        archive: An archive to index as an additional silo; None to index the silos of the run.
        name: Name of the additional silo; None for the name of ``archive``.
        model: Name of the silo whose model encodes ``archive``. It is required if silos deploy personal models.
        all_items: Index the queries too.
        fields: For each silo, which of `FIELDS` are stored with the codes. A silo that is not listed stores all of
            them. A preview is stored only once per item, in the index of its first modality.
        notify: Called with one line per silo, and with a sentence on the items that are held out.

    Raises:
        UserError: If the run does not have a model, ``model`` is required or not allowed, the name of the archive cannot be
            used (see `check_added`), it does not have an item to index, an item cannot be encoded, or another
            process writes to the run.
    """
    _check_options(archive, {"--model": model, "--name": name})
    counts: dict[str, int] = {}
    with run.writing():
        for silo, items, rows in _parts(run, archive, name, all_items=all_items):
            deployed = run.model.deployed_by(silo) if archive is None else model or run.model.shared_name()
            encoder = run.model.encoder(deployed)
            encodable = encodable_rows(items, encoder.featurizers, rows)
            counts[silo] = len(indexed_rows(encodable))
            if archive is not None:
                check_labels(run, archive, encoder)
                _check_items(run, archive, rows, encodable)
            stored = set((fields or {}).get(silo, FIELDS))
            with folder_beside(run.index_folder / silo, private=True) as folder:
                held = _index_silo(silo, folder, encoder, items, encodable, set(stored))
                if run.model.record.spec.scores_pairs:
                    _write_nodes(folder, encoder, items, encodable)
                _note_pictures(folder, items, stored, None if archive is not None else run.config.data.path)
                if archive is not None:
                    note_added(folder, archive)
                make_private(folder)
            note_indexed(run.index_folder, silo, held, run.silo_names)
            notify(f"{silo}: {counts[silo]:,} items")
            for sentence in left_out(items, rows, encodable):
                notify(f"{silo}: {sentence}")
        follow_indexes(run.folder, notify)
    for remark in filter(None, _remarks(run, archive, all_items=all_items)):
        notify(remark)
    return counts


def _remarks(run: Run, archive: Archive | None, *, all_items: bool) -> Iterator[str]:
    """Yield what a user should know about the new indexes as a whole; empty sentences among them."""
    if archive is not None:
        yield doubled_sentence(run, archive)
        yield truncation_remark(archive, run.model.featurizers)
    if not all_items:
        yield held_out_sentence(run, archive)


def held_out_sentence(run: Run, archive: Archive | None = None) -> str:
    """Return a sentence on the queries that the indexes of a run, or of an added archive, leave out; empty without any."""
    items = run.archive if archive is None else archive
    held_out = _held_out(items) if archive is not None else items.held_out()
    if archive is None:
        held_out = np.intersect1d(held_out, np.concatenate([silo.rows for silo in run.partition.silos]))
    if not len(held_out):
        return ""
    reason = "the figures of the run are measured on them" if archive is None else "the archive lists them as queries"
    count = f"{len(held_out):,} query item{'s' if len(held_out) > 1 else ''}"
    added = "" if archive is None else f" {items.folder or items.card.name}"
    return (
        f"{count} of {items.card.name} {'are' if len(held_out) > 1 else 'is'} held out of the indexes, because {reason}. "
        f"To index all items: silohash index {run.folder}{added} --all"
    )


def _held_out(archive: Archive) -> Rows:
    """Return the rows of an additional archive that are only queries; none if it does not state its splits."""
    return archive.held_out()[:0] if archive.automatic_splits else archive.held_out()


def _check_options(archive: Archive | None, given: Mapping[str, str | None]) -> None:
    for option, value in given.items():
        if value is not None and archive is None:
            what = "selects the model that encodes" if option == "--model" else "is the name of"
            raise NoEffect(f"{option} {what} an additional archive, and no archive is given. Give its folder as well.")


def _check_items(run: Run, archive: Archive, rows: Rows, encodable: Mapping[Modality, Rows]) -> None:
    if not len(rows):
        raise NothingUsable(
            f'All {len(archive):,} items of "{archive.card.name}" are queries, which are held out of the indexes. Index '
            f"them with: silohash index {run.folder} {archive.folder or archive.card.name} --all"
        )
    if not len(indexed_rows(encodable)):
        has_any = np.any([archive.has(modality)[rows] for modality in encodable])
        unknown = "their texts do not contain a word that the model knows"
        raise NothingUsable(
            f'None of the {len(rows):,} items of "{archive.card.name}" can be indexed, because '
            f"{unknown if has_any else cannot_encode(tuple(encodable))}. "
            "Use an archive with items that the model can encode."
        )


def _parts(
    run: Run, archive: Archive | None, name: str | None, *, all_items: bool
) -> Iterator[tuple[str, Archive, Rows]]:
    """Yield the name of each silo to index, the archive of its items, and the rows to index."""
    if archive is not None:
        silo = archive.card.name if name is None else name
        check_added(run, archive, silo)
        everything = np.arange(len(archive))
        yield silo, archive, everything if all_items else np.setdiff1d(everything, _held_out(archive))
        return
    for member in run.partition.silos:
        yield member.name, run.archive, member.rows if all_items else member.split(run.archive, "database")


def _index_silo(
    silo: str, folder: Path, encoder: Encoder, items: Archive, encodable: Mapping[Modality, Rows], stored: set[str]
) -> list[Modality]:
    """Write the index of each modality of which an item gets a code, and return these modalities."""
    held: list[Modality] = []
    for modality, present in encodable.items():
        if len(present):
            manifest = IndexManifest(encoder.digest, encoder.bits, modality, silo=silo, analysis=encoder.analysis)
            _index(folder / f"{modality}.sqlite", manifest, encoder, items, present, stored)
            stored.discard("preview")
            held.append(modality)
    return held


def _write_nodes(folder: Path, encoder: Encoder, items: Archive, encodable: Mapping[Modality, Rows]) -> None:
    """Write the words and regions of indexed items, which a search scores, beside their index."""
    from silohash.run.model.matcher import write_nodes

    for modality, rows in encodable.items():
        if len(rows):
            write_nodes(folder, encoder, items, rows, modality)


def _note_pictures(folder: Path, items: Archive, stored: Collection[str], data_path: Path | None) -> None:
    """Note beside an index in which folder the picture files of its items are, if the silo releases their names."""
    files = _picture_files(items)
    if files is not None and "file" in stored:
        PictureSource.of(files.folder, data_path).write(folder)


def _index(
    path: Path, manifest: IndexManifest, encoder: Encoder, archive: Archive, rows: Rows, fields: Collection[str]
) -> None:
    with Store.create(path, manifest) as store:
        for start in range(0, len(rows), BLOCK_ROWS):
            block = rows[start : start + BLOCK_ROWS]
            codes = encoder.codes(archive, block, manifest.modality)
            store.add_codes(codes, *shown_of(archive, block, fields))


def shown_of(
    archive: Archive, rows: Rows, fields: Collection[str] = FIELDS
) -> tuple[list[str], list[bytes | None] | None]:
    """Return what an index stores of items besides their codes.

    Returns:
        One payload per row as `payload_of`, and one preview per row; None instead of previews if they are not among
        ``fields`` or the archive does not have pictures.
    """
    images = archive.pictures() if "preview" in fields else None
    previews = None if images is None else [_preview(images, int(row)) for row in rows]
    return [payload_of(archive, int(row), fields) for row in rows], previews


def payload_of(archive: Archive, row: int, fields: Collection[str] = FIELDS) -> str:
    """Return an item's payload as JSON, with its caption, labels and picture file as far as ``fields`` lists them."""
    payload: dict[str, object] = {"caption": display_text(archive, row), "labels": archive.labels_of(row)}
    files = _picture_files(archive)
    if files is not None and files.files[row]:
        payload["file"] = files.files[row]
    return json.dumps({name: value for name, value in payload.items() if name in fields}, ensure_ascii=False)


def _picture_files(archive: Archive) -> PictureFiles | None:
    """Return the files of the archive's pictures, or None if the pictures are not in files of their own."""
    pictures = archive.pictures()
    return pictures if isinstance(pictures, PictureFiles) else None


def display_text(archive: Archive, row: int) -> str:
    """Return an item's text for display. If the archive has characters, the item's character comes before its text."""
    character = archive.columns.get("character")
    caption = archive.caption(row)
    return f"{character[row]}  {caption}" if character is not None else caption


def _preview(images: Pictures, row: int) -> bytes | None:
    """Return an item's preview, or None if it does not have a picture or its picture cannot be read."""
    try:
        return make_preview(images.picture(row))
    except (UserError, OSError, ValueError):
        return None
