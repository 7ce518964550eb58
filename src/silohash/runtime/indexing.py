"""Every silo's index of its own items, with the codes of the model that the silo deploys."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from silohash.data.archive import Archive
from silohash.files import folder_beside
from silohash.index.base import FORMAT_VERSION, IndexManifest
from silohash.index.store import Store
from silohash.runtime.encoder import Encoder
from silohash.runtime.run import Run
from silohash.types import Modality, Notify, Rows, UserError

BLOCK_ROWS = 50_000


def index_run(
    run: Run, archive: Archive | None = None, *, model: str | None = None, notify: Notify = lambda text: None
) -> dict[str, int]:
    """Makes the indexes of a run, in place of those before.

    Args:
        run: a trained run.
        archive: items to index beside the run's own silos, as one more silo; None for the silos themselves.
        model: whose model encodes the archive, where silos have their own; the run's silos encode with what they deploy.
        notify: told of each silo.

    Returns:
        Items a silo.

    Raises:
        UserError: if the run has no model, or none for the archive alone, or an item cannot be encoded.
    """
    if model is not None and archive is None:
        raise UserError("--model says with which silo's model an archive is encoded. Name the archive's folder too.")
    counts: dict[str, int] = {}
    for name, items, rows in _parts(run, archive):
        by = run.model.deployed_by(name) if archive is None else model or run.model.shared_name()
        encoder = run.model.encoder(by)
        with folder_beside(run.index_folder / name) as folder:
            for modality in encoder.featurisers:
                present = rows[items.has(modality)[rows]]
                if len(present):
                    _index(folder / f"{modality}.sqlite", encoder, items, present, modality)
        counts[name] = len(rows)
        notify(f"{name}: {len(rows):,} items")
    return counts


def _parts(run: Run, archive: Archive | None) -> Iterator[tuple[str, Archive, Rows]]:
    if archive is not None:
        if archive.card.name in {silo.name for silo in run.partition.silos}:
            raise UserError(
                f'The archive is called "{archive.card.name}", as one of the run\'s silos is. Rename its folder.'
            )
        yield archive.card.name, archive, archive.split("database")
        return
    for silo in run.partition.silos:
        yield silo.name, run.archive, silo.split(run.archive, "database")


def _index(path: Path, encoder: Encoder, archive: Archive, rows: Rows, modality: Modality) -> None:
    manifest = IndexManifest(
        format_version=FORMAT_VERSION, model_digest=encoder.digest, bits=encoder.bits, modality=modality, count=0
    )
    with Store.create(path, manifest) as store:
        for start in range(0, len(rows), BLOCK_ROWS):
            block = rows[start : start + BLOCK_ROWS]
            codes = encoder.codes(archive, block, modality)
            store.add(list(codes.ids), codes.words, [payload_of(archive, int(row)) for row in block])


def payload_of(archive: Archive, row: int) -> str:
    """Returns what an index keeps beside an item's code, as JSON: its caption and labels."""
    return json.dumps({"caption": shown(archive, row), "labels": archive.labels_of(row)}, ensure_ascii=False)


def shown(archive: Archive, row: int) -> str:
    """Returns an item's text for people, behind the character itself where the archive is one of characters."""
    character = archive.columns.get("character")
    caption = archive.caption(row)
    return f"{character[row]}  {caption}" if character is not None else caption
