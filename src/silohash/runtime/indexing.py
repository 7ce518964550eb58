"""Build the index of each silo's items, with the codes of the model that the silo deploys."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from silohash.data.archive import Archive, Pictures
from silohash.encode.encoder import Encoder
from silohash.files import folder_beside
from silohash.index.base import FORMAT_VERSION, IndexManifest
from silohash.index.preview import make_preview
from silohash.index.store import Store
from silohash.runtime.run import Run
from silohash.types import Modality, Notify, Rows, UserError

BLOCK_ROWS = 50_000
FIELDS = ("caption", "labels", "preview")


def index_run(
    run: Run,
    archive: Archive | None = None,
    *,
    model: str | None = None,
    fields: Mapping[str, Collection[str]] | None = None,
    notify: Notify = lambda text: None,
) -> dict[str, int]:
    """Build the indexes of a run. Existing indexes of the same silos are replaced.

    Args:
        run: a trained run.
        archive: an archive to index as an additional silo; None to index the silos of the run.
        model: name of the silo whose model encodes ``archive``. It is required if silos deploy personal models.
        fields: for each silo, which of `FIELDS` are stored with the codes. A silo that is not listed stores all of
            them. A preview is stored only once per item, in the index of its first modality.
        notify: called with one line per silo.

    Returns:
        The number of indexed items per silo.

    Raises:
        UserError: if the run does not have a model, ``model`` is required or not allowed, the archive has the name of a
            silo, or an item cannot be encoded.
    """
    if model is not None and archive is None:
        raise UserError(
            "--model selects the model that encodes an additional archive, and no archive is given. "
            "Give its folder as well."
        )
    counts: dict[str, int] = {}
    for name, items, rows in _parts(run, archive):
        deployed = run.model.deployed_by(name) if archive is None else model or run.model.shared_name()
        encoder = run.model.encoder(deployed)
        stored = set((fields or {}).get(name, FIELDS))
        with folder_beside(run.index_folder / name) as folder:
            for modality in encoder.featurisers:
                present = rows[items.has(modality)[rows]]
                if len(present):
                    _index(folder / f"{modality}.sqlite", encoder, items, present, modality, stored)
                    stored.discard("preview")
        counts[name] = len(rows)
        notify(f"{name}: {len(rows):,} items")
    return counts


def _parts(run: Run, archive: Archive | None) -> Iterator[tuple[str, Archive, Rows]]:
    if archive is not None:
        if archive.card.name in {silo.name for silo in run.partition.silos}:
            raise UserError(
                f'The archive has the name "{archive.card.name}", which is also the name of a silo of the run. '
                "Rename its folder."
            )
        yield archive.card.name, archive, archive.split("database")
        return
    for silo in run.partition.silos:
        yield silo.name, run.archive, silo.split(run.archive, "database")


def _index(
    path: Path, encoder: Encoder, archive: Archive, rows: Rows, modality: Modality, fields: Collection[str]
) -> None:
    manifest = IndexManifest(
        format_version=FORMAT_VERSION, model_digest=encoder.digest, bits=encoder.bits, modality=modality, count=0
    )
    images = archive.pictures() if "preview" in fields else None
    with Store.create(path, manifest) as store:
        for start in range(0, len(rows), BLOCK_ROWS):
            block = rows[start : start + BLOCK_ROWS]
            payloads = [payload_of(archive, int(row), fields) for row in block]
            previews = None if images is None else [_preview(images, int(row)) for row in block]
            store.add_codes(encoder.codes(archive, block, modality), payloads, previews)


def payload_of(archive: Archive, row: int, fields: Collection[str] = FIELDS) -> str:
    """Return an item's payload as JSON, with its caption and labels if ``fields`` lists them."""
    payload = {"caption": display_text(archive, row), "labels": archive.labels_of(row)}
    return json.dumps({name: value for name, value in payload.items() if name in fields}, ensure_ascii=False)


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
