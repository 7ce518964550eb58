"""What a run keeps about items besides its indexes: example searches, which are deleted, and what must be erased by hand."""

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress

from silohash.base.cache import cache_folder
from silohash.base.errors import UserError
from silohash.base.files import explaining_disk_errors, read_text
from silohash.measure.evaluation import trained_rows
from silohash.run.fingerprint import read_fingerprint
from silohash.run.folder import Run

HOLDS = ("archive.safetensors", "checkpoint", "received", "audit", "policies", "items")
"""Files and folders of a run that can hold ids, items or updates. docs/how-to/leave.md says what to do with each."""


def delete_examples(run: Run, ids: Sequence[str]) -> bool:
    """Delete the example searches of a run, and its report, if they show one of some items. Return whether they did."""
    path = run.examples_path
    text = read_text(path, remedy="Delete it.", missing="") if path.exists() else ""
    shown = any(json.dumps(name) in text for name in ids)
    for file in (path, run.report_path) if shown else ():
        with explaining_disk_errors(file):
            file.unlink(missing_ok=True)
    return shown


def trained_on(run: Run, ids: Sequence[str]) -> list[str]:
    """Return the items that a run trained on. If its archive has changed, these are all that were in it."""
    if not run.fingerprint_path.exists():
        return []
    known = set(read_fingerprint(run.fingerprint_path).ids)
    with suppress(UserError):
        known = set(run.archive.ids[trained_rows(run)].tolist())
    return [name for name in ids if name in known]


def remains(run: Run, ids: Sequence[str]) -> Iterator[str]:
    """Yield what can still hold items that were erased from a run's indexes, and what to do about it, in sentences."""
    yield "archives: they are never changed. Remove the items there, or indexing adds them again."
    if known := trained_on(run, ids):
        again = f"silohash retrain {run.folder} --out NEW"
        yield f"{run.model_folder}: it was trained on {', '.join(known)}. After removal from the archive: {again}"
    elif not run.fingerprint_path.exists():
        yield f"{run.model_folder}: it may have been trained on the items, which is not recorded in this folder."
    if held := [name for name in HOLDS if (run.folder / name).exists()]:
        yield f"{', '.join(held)} in {run.folder}: ids, items or updates. docs/how-to/leave.md says what to do."
    yield f"{cache_folder()}: pictures, pixels and vectors by digests of contents. Delete these folders."
    yield "copies: folders of members, stored runs of silos, exported codes, other reports, backups."
