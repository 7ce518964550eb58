"""Train a run again without silos or items: the same config and seed, from the first round.

Methods whose model is a function of sums over the silos' items (`fedridge`, `fedcca`, `fedsums`) ask the silos that stay for
these sums again, and for nothing else.
"""

from collections.abc import Collection, Sequence

from silohash.base.errors import DataChanged, SettingNeeded, UnknownName
from silohash.base.registry import suggestion
from silohash.base.types import Notify
from silohash.run.config.load import ResolvedConfig, load_resolved
from silohash.run.fingerprint import changes, read_fingerprint
from silohash.run.folder import Run, archive_of


def staying(run: Run, silos: Collection[str]) -> list[str]:
    """Return the names of a run's silos, here or on other machines, without some of them, which must be among them.

    Raises:
        UserError: If the run has no such silo.
    """
    names = run.silo_names or tuple(dict.fromkeys(silo.silo for record in run.rounds() for silo in record.silos))
    if unknown := [name for name in silos if name not in names]:
        near = suggestion(unknown[0], names)
        raise UnknownName(f'{run.folder} has no silo "{unknown[0]}"{near}. Its silos are: {", ".join(names)}.')
    return [name for name in names if name not in silos]


def config_without(
    run: Run, silos: Collection[str], notify: Notify = lambda text: None, overrides: Sequence[str] = ()
) -> ResolvedConfig:
    """Return the config of a run with a note on the silos, and on the number of items, that a new training leaves out.

    The items are those that the archive has lost; ``notify`` is told how it has changed. Silos on other machines remove
    items from archives of their own. The ``overrides`` change what does not fit fewer silos, see `load_resolved`.

    Raises:
        UserError: If nothing is left out, silos that stay would get items of one that is left out, or an override is wrong.
    """
    section = run.config.partition
    before = section.parameters()
    out, lost, vanished = [*before.get("without", ()), *silos], 0, list[str]()
    if not run.trained_elsewhere:
        lost, vanished = _lost(run, out, notify)
        if not silos and not lost:
            raise SettingNeeded("Nothing is left out. Give --without SILO, or first remove items from the archive.")
    noted = {
        "silos": section.silos - len(vanished),
        "without": sorted({*out, *vanished}),
        "without_items": before.get("without_items", 0) + lost,
    }
    section = section.model_copy(update={name: value for name, value in noted.items() if value})
    return load_resolved(run.config.model_copy(update={"partition": section}).to_json(), overrides)


def _lost(run: Run, silos: Collection[str], notify: Notify) -> tuple[int, list[str]]:
    """Return how many items the archive of a run has lost, and which silos have none any more if a column names them."""
    before, archive = read_fingerprint(run.fingerprint_path), archive_of(run.config.data)
    held, changed = set(archive.ids.tolist()), changes(before, archive)
    notify(f"Changes of the archive since {run.folder} was trained: {'; '.join(changed) or 'none'}.")
    vanished: list[str] = []
    settings = run.config.partition
    if settings.kind == "column":
        rows = {silo.name: silo.rows for silo in run.stored_partition.silos}
        vanished = [silo for silo, own in rows.items() if held.isdisjoint(before.ids[row] for row in own)]
        values = archive.columns.get(settings.parameters().get("column", ""), ())
        if not settings.parameters().get("groups"):  # values are names of silos
            vanished += [silo for silo in silos if silo not in rows and silo not in values]
    elif changed and silos:
        raise DataChanged(
            "The archive is divided anew after a change, and a silo would get items of others. Restore the archive, or "
            "remove all items of the silo from it and train a new run."
        )
    return len({*before.ids} - held), vanished
