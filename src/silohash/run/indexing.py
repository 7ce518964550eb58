"""Build the index of each silo's items, with the codes of the model that the silo deploys."""

import json
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from silohash.base.attempts import attempted
from silohash.base.errors import AlreadyExists, ArchiveUnsuitable, InvalidName, NoEffect, NothingUsable, UserError
from silohash.base.files import folder_beside, make_private, read_json, write_json
from silohash.base.names import canonical
from silohash.base.types import Modality, Notify, Rows
from silohash.data.archive import Archive, Pictures
from silohash.data.pictures.reading import PictureFiles
from silohash.features.base import Featurizer, blocks
from silohash.features.text import BagOfWords
from silohash.features.truncation import truncation_remark
from silohash.index.base import FIELDS, IndexManifest
from silohash.index.config import read_index_config
from silohash.index.copies import follow_indexes
from silohash.index.listing import note_indexed
from silohash.index.preview import make_preview
from silohash.index.source import PictureSource
from silohash.index.store import Store
from silohash.run.folder import Run
from silohash.run.model.encoder import Encoder

BLOCK_ROWS = 50_000
NEEDED: Mapping[Modality, str] = {"image": "a picture", "text": "a text"}

NOTE = "archive.json"
"""Name of the file beside an additional silo's index that states the archive it was built from."""

MOST_CHARACTERS = 100
REFUSED = re.compile(r"[/\\\x00-\x1f\x7f]")
"""Characters that a folder of an index, and so the name of a silo, must not have."""


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
        fields: For each silo, which of `FIELDS` and of the archive's further columns are stored with the codes; all of
            `FIELDS` if it is not listed. A preview is stored only once per item, in the index of its first modality.
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
            stored = (fields or {}).get(silo, FIELDS)
            with folder_beside(run.index_folder / silo, private=True) as folder:
                held = _index_silo(silo, folder, encoder, items, encodable, stored)
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


def encodable_rows(archive: Archive, featurizers: Mapping[Modality, Featurizer], rows: Rows) -> dict[Modality, Rows]:
    """Return the rows that get a code, per modality of the model.

    A text without any word that the model knows does not get a code, because its code would say nothing about it.
    """
    return {modality: _encodable(archive, featurizer, rows) for modality, featurizer in featurizers.items()}


def _encodable(archive: Archive, featurizer: Featurizer, rows: Rows) -> Rows:
    present = rows[archive.has(featurizer.modality)[rows]]
    column = archive.values(featurizer.modality)
    if not isinstance(featurizer, BagOfWords) or column is None:
        return present
    return present[featurizer.has_known_word(column, present)]


def indexed_rows(encodable: Mapping[Modality, Rows]) -> Rows:
    """Return the rows with a code of at least one modality, in ascending order."""
    return np.unique(np.concatenate(list(encodable.values())))


def left_out(archive: Archive, rows: Rows, encodable: Mapping[Modality, Rows]) -> Iterator[str]:
    """Yield a sentence on the texts without a known word, and one on the items that have nothing to encode."""
    unknown = np.setdiff1d(rows[archive.has_text[rows]], encodable["text"]) if "text" in encodable else rows[:0]
    if len(unknown):
        by_picture = int(np.isin(unknown, indexed_rows(encodable)).sum())
        texts = f"{len(unknown):,} text{'s do' if len(unknown) > 1 else ' does'}"
        yield (
            f"{texts} not contain a word that the model knows. Of these items, {by_picture:,} "
            f"{'is' if by_picture == 1 else 'are'} indexed by picture only and {len(unknown) - by_picture:,} not at all."
        )
    lacking = len(rows) - int(np.any([archive.has(modality)[rows] for modality in encodable], axis=0).sum())
    if lacking:
        yield f"{lacking:,} items are not indexed, because {cannot_encode(tuple(encodable))}"


def cannot_encode(modalities: tuple[Modality, ...]) -> str:
    """Return why items that have none of the model's modalities are not indexed."""
    needed = " or ".join(NEEDED[modality] for modality in modalities)
    return f"the model encodes items with {needed} and they do not have one"


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
    silo: str,
    folder: Path,
    encoder: Encoder,
    items: Archive,
    encodable: Mapping[Modality, Rows],
    stored: Collection[str],
) -> list[Modality]:
    """Write the index of each modality of which an item gets a code, and return these modalities."""
    shown = fields_to_store(encodable, stored)
    for modality, fields in shown.items():
        with create_store(folder, silo, modality, encoder) as store:
            for _, block in blocks(encodable[modality], BLOCK_ROWS):
                store.add_codes(encoder.codes(items, block, modality), *shown_of(items, block, fields))
    return list(shown)


def create_store(folder: Path, silo: str, modality: Modality, encoder: Encoder) -> Store:
    """Create the index file of a silo and a modality in the silo's folder, for the codes of an encoder."""
    manifest = IndexManifest(encoder.digest, encoder.bits, modality, silo=silo, analysis=encoder.analysis)
    outputs = read_index_config(folder.parent.parent).outputs
    return Store.create(folder / f"{modality}.sqlite", manifest, magnitudes=outputs)


def fields_to_store(encodable: Mapping[Modality, Rows], fields: Collection[str]) -> dict[Modality, frozenset[str]]:
    """Return the fields to store per modality that has items. A preview is stored once, in the first of these indexes."""
    held, further = [modality for modality, rows in encodable.items() if len(rows)], frozenset(fields) - {"preview"}
    return {modality: further if place else frozenset(fields) for place, modality in enumerate(held)}


def _write_nodes(folder: Path, encoder: Encoder, items: Archive, encodable: Mapping[Modality, Rows]) -> None:
    """Write the words and regions of indexed items, which a search scores, beside their index."""
    from silohash.run.model.matcher import write_nodes

    for modality, rows in encodable.items():
        if len(rows):
            write_nodes(folder, encoder, items, rows, modality)


def _note_pictures(folder: Path, items: Archive, stored: Collection[str], data_path: Path | None) -> None:
    files = _picture_files(items)
    if files is not None and "file" in stored:  # the silo releases their names
        PictureSource.of(files.folder, data_path).write(folder)


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
    """Return an item's payload as JSON: its caption, labels, picture file and columns, as far as ``fields`` lists them."""
    payload: dict[str, object] = {"caption": display_text(archive, row), "labels": archive.labels_of(row)}
    files = _picture_files(archive)
    if files is not None and files.files[row]:
        payload["file"] = files.files[row]
    stored = {name: value for name, value in payload.items() if name in fields}
    further = [name for name in archive.columns if name in fields and name not in FIELDS]
    if values := {name: str(archive.columns[name][row]) for name in further if archive.columns[name][row]}:
        stored["columns"] = values
    return json.dumps(stored, ensure_ascii=False)


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
    return attempted(lambda: make_preview(images.picture(row)), UserError, OSError, ValueError, otherwise=None)


def check_added(run: Run, archive: Archive, name: str) -> None:
    """Check that an archive can be indexed under a name without replacing the index of another archive.

    An index of the same archive is replaced: one from the same folder, or with the same digest.

    Raises:
        UserError: If the name cannot be that of a silo, a silo of the run has it, or another archive was indexed under it.
    """
    _check_name(name)
    if canonical(name).casefold() in {canonical(silo).casefold() for silo in run.silo_names}:
        raise AlreadyExists(
            f'The archive has the name "{name}", which is also the name of a silo of the run. '
            "Give it another name with --name."
        )
    folder = _existing(run.index_folder, name)
    if folder is None:
        return
    origin = attempted(lambda: read_json(folder / NOTE, dict[str, Any]), UserError, otherwise=dict[str, Any]())
    same_folder = archive.folder is not None and origin.get("folder") == str(archive.folder)
    if same_folder or (archive.card.digest and origin.get("digest") == archive.card.digest):
        return
    before = f" ({origin['folder']})" if origin.get("folder") else ""
    of_which = f"of another archive{before}" if origin else "which does not state its archive"
    raise AlreadyExists(
        f'{run.folder} already has an index with the name "{folder.name}", {of_which}. '
        f"Give this archive another name with --name, or remove {folder} first."
    )


def check_labels(run: Run, archive: Archive, encoder: Encoder) -> None:
    """Check that an archive has the labels of the run's archive, if the model encodes items with their true labels.

    Raises:
        UserError: If it has others.
    """
    if encoder.label_sides and tuple(archive.label_names) != tuple(run.archive.label_names):
        raise ArchiveUnsuitable(
            f'The model encodes items with their true labels, and "{archive.card.name}" has other labels than '
            f'"{run.archive.card.name}". Train with local.labels = "label-free" to encode other archives.'
        )


def doubled_sentence(run: Run, archive: Archive) -> str:
    """Return a sentence if an archive comes from the folder that the run was trained on, or an empty string.

    It is also empty if no silo of the run is indexed, as in a copy of the run for a new silo.
    """
    trained_on = run.config.data.path
    if trained_on is None or archive.folder is None or trained_on.resolve() != archive.folder:
        return ""
    if not any((run.index_folder / silo).exists() for silo in run.silo_names):
        return ""
    return (
        f"The run was trained on {archive.folder}, so items that its silos hold are found twice. To index the silos alone, "
        f"remove this index and run: silohash index {run.folder}"
    )


def note_added(folder: Path, archive: Archive) -> None:
    """Note beside an index which archive it was built from."""
    origin = None if archive.folder is None else str(archive.folder)
    write_json(folder / NOTE, {"digest": archive.card.digest, "folder": origin})


def _check_name(name: str) -> None:
    if not name or name.startswith(".") or REFUSED.search(name) or len(name) > MOST_CHARACTERS:
        raise InvalidName(
            f"An index cannot have the name {name!r}: names must not be empty, begin with a dot, contain slashes or "
            f"control characters, or exceed {MOST_CHARACTERS} characters. Give the archive another name with --name."
        )


def _existing(indexes: Path, name: str) -> Path | None:
    """Return the folder of an index with this name, in any case, or None. An empty folder is not an index."""
    folders = indexes.iterdir() if indexes.is_dir() else ()
    same = canonical(name).casefold()
    found = (folder for folder in folders if canonical(folder.name).casefold() == same)
    return next((folder for folder in found if not folder.is_dir() or any(folder.iterdir())), None)
