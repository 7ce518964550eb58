"""``data`` and ``partition``: what is there, and how it is spread over silos."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from silohash.cli.console import print_json, print_result, print_status, spinner
from silohash.types import UserError

if TYPE_CHECKING:
    from silohash.data.archive import Archive


Root = Annotated[
    Path | None, typer.Option(help="Folder of a data set's files; $SILOHASH_DATA/NAME or ./data/NAME by default.")
]
LayoutName = Annotated[str, typer.Option(help="One of the data set's layouts, or auto: the first that is complete.")]
Protocol = Annotated[str | None, typer.Option(help="One of the data set's protocols (silohash data list).")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Named = Annotated[str, typer.Argument(help="A named archive, or the path of a folder of your own.")]
DIFFERS = "differs"
NOT_AS_EXPECTED = 2
"""The exit code where files are missing, or are not those that checksums.json notes."""


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    group = typer.Typer(help="Look at archives: what is there, what is missing, what is in it.", no_args_is_help=True)
    group.command(name="list")(list_)
    group.command()(check)
    group.command(name="import")(import_)
    group.command()(card)
    app.add_typer(group, name="data")
    app.command()(partition)


def list_(as_json: Json = False) -> None:
    """List every archive with its protocols, and whether its files are here."""
    from silohash.data.catalogue import ARCHIVES

    entries = [_entry(key) for key in ARCHIVES]
    if as_json:
        print_json({"archives": entries})
        return
    width = max(len(entry["key"]) for entry in entries)
    for entry in entries:
        print_result(f"{entry['key']:{width}}  {entry['title']}")
        print_result(f"{'':{width}}  files: {entry['files'] or 'not here'}")
        if entry["protocols"]:
            print_result(f"{'':{width}}  protocols: {', '.join(entry['protocols'])}")


def _entry(key: str) -> dict[str, Any]:
    from silohash.data.benchmarks.files import folder_of
    from silohash.data.benchmarks.table import DATASETS
    from silohash.data.catalogue import summary_of

    if key in DATASETS:
        dataset, folder = DATASETS[key], folder_of(key)
        here = next((layout.name for layout in dataset.layouts if not layout.missing(folder)), "")
        return {"key": key, "title": dataset.title, "protocols": list(dataset.protocols), "files": here}
    return {"key": key, "title": summary_of(key), "protocols": [], "files": _place(key)}


def _place(key: str) -> str:
    from silohash.data.packed.reader import data_root

    if key == "glyphs":
        return "embedded"
    try:
        return "here" if (data_root() / key).is_dir() else ""
    except UserError:
        return ""


def check(
    archive: Named,
    root: Root = None,
    layout: LayoutName = "auto",
    protocol: Protocol = None,
    digest: Annotated[bool, typer.Option(help="Compare each file's digest with checksums.json beside them.")] = False,
    write_checksums: Annotated[bool, typer.Option(help="Write each file's digest into checksums.json.")] = False,
    as_json: Json = False,
) -> None:
    """Tell which files an archive needs and which are there; read them; tell what is in them and what was skipped."""
    from silohash.data.benchmarks.table import DATASETS
    from silohash.data.catalogue import ARCHIVES, named_or_folder

    content: dict[str, Any]
    told: list[str] = []
    if archive in DATASETS:
        content = _check_dataset(archive, str(root or ""), layout, protocol or "", quiet=as_json)
        folder, lines = Path(content["folder"]), []
    else:
        _refuse(archive, root=root, layout=None if layout == "auto" else layout, protocol=protocol)
        if (digest or write_checksums) and archive in ARCHIVES:
            raise UserError(f"{archive} comes with silohash or from SILOHASH_DATA as a whole; digests are of folders.")
        with spinner("Reading"):
            found = named_or_folder(archive)
        folder, content = Path(archive), _described(found)
        lines = [] if as_json else _in_words(found)
    if digest or write_checksums:
        content["digests"], told = _digests(folder, write=write_checksums)
        lines += told
    if as_json:
        print_json(content)
    else:
        for line in lines:
            print_result(line)
    if content["items"] is None or any(line.endswith(DIFFERS) for line in told):
        raise typer.Exit(NOT_AS_EXPECTED)


def _refuse(archive: str, **given: object) -> None:
    for option, value in given.items():
        if value is not None:
            from silohash.data.benchmarks.table import DATASETS

            raise UserError(f"--{option} is for data sets whose files you bring, {', '.join(DATASETS)}; not {archive}.")


def _described(found: Archive) -> dict[str, Any]:
    splits = {name: len(rows) for name, rows in found.splits.items()}
    content = {"archive": found.card.name, "items": len(found), "splits": splits, "labels": list(found.label_names)}
    return {**content, "skipped": list(found.card.skipped)}


def _in_words(found: Archive) -> list[str]:
    splits = ", ".join(f"{name} {len(rows):,}" for name, rows in found.splits.items())
    images, texts = int(found.has_image.sum()), int(found.has_text.sum())
    return [
        f"{found.card.name}: {len(found):,} items; {splits}",
        f"pictures {images:,}, texts {texts:,}, labels {len(found.label_names)}",
        *(f"skipped: {sentence}" for sentence in found.card.skipped),
    ]


def _check_dataset(key: str, root: str, layout: str, protocol: str, *, quiet: bool) -> dict[str, Any]:
    """Looks at a data set's files, reads them if they are all there, and says what it sees as it goes."""
    from silohash.data.benchmarks.files import missing_files
    from silohash.data.benchmarks.inspection import describe_files, files_as_json, files_of, first_complete, inspect
    from silohash.data.benchmarks.table import DATASETS

    notify = (lambda line: None) if quiet else print_result
    dataset = DATASETS[key]
    folder, states = files_of(dataset, root)
    content: dict[str, Any] = {"archive": key, "folder": str(folder), "layouts": files_as_json(states), "items": None}
    chosen = first_complete(states) if layout == "auto" else layout
    if not chosen:
        if not quiet:
            raise UserError(missing_files(key, folder, dataset.layouts))
        return content
    for line in describe_files(tuple(state for state in states if state.layout.name == chosen), folder):
        notify(line)
    with spinner("Reading"):
        found = inspect(dataset, root=root, layout=layout, protocol=protocol)
    notify(f"read as {found.layout}: {len(found.contents):,} items")
    for name, words in found.contents.notes.items():
        notify(f"  {name}: {words}")
    for name, rows in found.contents.stated.items():
        notify(f"  the files state {name}: {len(rows):,}")
    for which, count in found.overlaps.items():
        notify(f"  {which} overlap: {count:,} items stand in both")
    for name, why in found.mismatches.items():
        notify(f"protocol {name}: {'fits' if why is None else why}")
    notify(f"under {found.archive.card.protocol}:")
    for line in _in_words(found.archive):
        notify(line)
    told = {"layout": found.layout, "found": len(found.contents), "notes": dict(found.contents.notes)}
    stated = {name: len(rows) for name, rows in found.contents.stated.items()}
    fits = {
        "protocol": found.archive.card.protocol,
        "protocols": dict(found.mismatches),
        "overlaps": dict(found.overlaps),
    }
    return {**content, **told, "stated": stated, **fits, **_described(found.archive)}


def _digests(folder: Path, *, write: bool) -> tuple[dict[str, str], list[str]]:
    """Returns the digest of each file, and lines that say how it compares with what was noted."""
    from silohash.data.benchmarks.files import CHECKSUMS, compare_checksums, digests, write_checksums

    paths = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != CHECKSUMS]
    with spinner("Computing digests"):
        found = digests(folder, paths)
    if write:
        print_status(f"Wrote {write_checksums(folder, found)}")
    noted = compare_checksums(folder, found)
    lines = [f"{digest}  {name}  {noted.get(name, '')}".rstrip() for name, digest in found.items()]
    changed = list(noted.values()).count(DIFFERS)
    if changed:
        print_status(f"{changed} files are not as {folder / CHECKSUMS} notes them. Fetch them again.")
    return found, lines


def import_(
    archive: Named,
    out: Annotated[Path, typer.Option(help="The new folder, which data.path can name.")],
    root: Root = None,
    layout: LayoutName = "auto",
    protocol: Protocol = None,
    as_json: Json = False,
) -> None:
    """Convert an archive into a folder of silohash's own format, which opens fast and needs no further package."""
    from silohash.data.benchmarks.table import DATASETS
    from silohash.data.catalogue import named_or_folder
    from silohash.data.formats.native import write_native

    options: dict[str, object] = {}
    if archive in DATASETS:
        options = {"root": str(root or ""), "layout": layout, "protocol": protocol or ""}
    else:
        _refuse(archive, root=root, layout=None if layout == "auto" else layout, protocol=protocol)
    with spinner("Reading"):
        found = named_or_folder(archive, options)
    with spinner("Writing"):
        write_native(out, found)
    if as_json:
        print_json({**_described(found), "folder": str(out), "protocol": found.card.protocol})
        return
    for line in _in_words(found):
        print_result(line)
    print_status(f'Next: silohash data check {out}, and [data] path = "{out}" in a config')


def card(archive: Named, protocol: Protocol = None) -> None:
    """Print where an archive comes from, its licence and its protocols."""
    from silohash.data.benchmarks.table import DATASETS
    from silohash.data.catalogue import named_or_folder

    if archive in DATASETS:
        _dataset_card(archive, protocol)
        return
    _refuse(archive, protocol=protocol)
    found = named_or_folder(archive).card
    facts = {"source": found.source, "licence": found.licence, "protocol": found.protocol, "digest": found.digest}
    for name, value in {"name": found.name, **facts, **found.notes}.items():
        print_result(f"{name}: {value}")


def _dataset_card(key: str, protocol: str | None) -> None:
    from silohash.data.benchmarks.table import DATASETS

    dataset = DATASETS[key]
    facts = {"name": key, "title": dataset.title, "source": dataset.source, "licence": dataset.licence}
    if protocol is not None:
        chosen = dataset.protocol(protocol).protocol
        facts |= {"protocol": protocol, "of": chosen.source, "about": chosen.about, **chosen.rules()}
    for name, value in facts.items():
        print_result(f"{name}: {value}")
    if protocol is not None:
        return
    for layout in dataset.layouts:
        print_result(f"layout {layout.name}: {layout.summary}")
        for option, meaning in layout.options.items():
            print_result(f"  option {option}: {meaning}")
    for name, one in dataset.protocols.items():
        usual = " (where none is named)" if name == dataset.default_protocol else ""
        print_result(f"protocol {name}{usual}: {one.source}. {one.about}")


def partition(
    config: Annotated[Path, typer.Argument(help="The run's TOML file.")],
    set_: Annotated[list[str] | None, typer.Option("--set", help="section.key=value, over the file.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw it into this file, .svg or .png.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Show how a config spreads its archive over silos, and how far their labels lie from one another."""
    from silohash.config.load import load_config
    from silohash.data.partition.base import partition as spread
    from silohash.data.partition.drift import drift_of
    from silohash.runtime.run import archive_of

    value = load_config(config, set_ or [])
    archive = archive_of(value)
    parts = spread(archive, value.partition.kind, value.partition.silos, value.seed, **value.partition.parameters())
    drift = drift_of(parts, archive) if archive.labels is not None or plot is not None else None
    if plot is not None and drift is not None:
        from silohash.report.partition_plot import draw_partition

        title = f"{archive.card.name}: {parts.kind} over {len(parts)} silos, seed {parts.seed}"
        draw_partition(drift, archive.label_names, plot, title=title)
        print_status(f"Wrote {plot}")
    if as_json:
        sizes = {silo.name: len(silo.rows) for silo in parts.silos}
        print_json({"silos": sizes, "digest": parts.digest(), "drift": drift.to_json() if drift is not None else None})
        return
    print_result(parts.describe(archive))
    if drift is not None:
        print_result(f"\n{drift.describe()}")
