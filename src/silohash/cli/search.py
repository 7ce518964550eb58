"""``index`` and ``search``: build the indexes of the silos, and search all of them at once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from silohash.cli.console import print_json, print_result, print_status, spinner
from silohash.cli.help import SEARCH, add_command
from silohash.files import read_text
from silohash.types import UserError
from silohash.visible import visible

if TYPE_CHECKING:
    from silohash.api.runs import TrainedRun
    from silohash.index.store import Engine
    from silohash.search.hits import Hits


def register(app: typer.Typer) -> None:
    """Add the commands."""
    add_command(app, index, SEARCH)
    add_command(app, search, SEARCH)


def index(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a trained run.")],
    archive: Annotated[
        Path | None,
        typer.Argument(metavar="ARCHIVE", help="Folder of further items, which become searchable as one more silo."),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Name of the silo of the further items. Default: the name of their folder."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(metavar="SILO", help="Silo whose model encodes the further items, if silos use different models."),
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="Also index the items that are held out as queries.")] = False,
    follow_links: Annotated[
        bool, typer.Option("--follow-links", help="Follow links that lead out of the folder of further items.")
    ] = False,
    remove: Annotated[
        list[str] | None,
        typer.Option(
            metavar="IDS",
            help="Remove items instead: ids separated by commas, or @FILE with one id per line. Can be repeated.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Build the index of every silo, or remove items from the indexes.

    The items are encoded with the model of the run.
    """
    from silohash.api.runs import open_run

    if remove is not None:
        if archive is not None or model is not None or name is not None or all_:
            raise UserError(
                "--remove takes items out of existing indexes. Leave ARCHIVE, --name, --model and --all out."
            )
        ids = _ids(remove)
        _remove(open_run(run), ids, as_json=as_json)
        return
    found = open_run(run)
    with spinner("Indexing"):
        counts = found.index(
            archive, name=name, model=model, all_items=all_, follow_links=follow_links, notify=print_status
        )
    if as_json:
        print_json({"items": counts})


def search(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of an indexed run.")],
    text: Annotated[str | None, typer.Argument(metavar="TEXT", help="Text to search for, in quotation marks.")] = None,
    image: Annotated[Path | None, typer.Option(metavar="FILE", help="Image file to search for.")] = None,
    vector: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Feature vector to search for (.npy), if the run was trained on given features."
        ),
    ] = None,
    vector_of: Annotated[str, typer.Option(metavar="image|text", help="What --vector describes.")] = "image",
    find: Annotated[
        str,
        typer.Option(
            metavar="image|text|auto", help="What to find. With auto, the other modality than that of the query."
        ),
    ] = "auto",
    k: Annotated[int, typer.Option("-k", metavar="N", min=1, help="Number of hits.")] = 10,
    offset: Annotated[
        int, typer.Option(metavar="N", min=0, help="Number of nearest items to skip, for further pages.")
    ] = 0,
    radius: Annotated[
        int | None, typer.Option(metavar="BITS", min=0, help="Maximum distance of a hit, in bits.")
    ] = None,
    label: Annotated[str | None, typer.Option(metavar="LABEL", help="Search only items with this label.")] = None,
    engine: Annotated[str, typer.Option(metavar="flat|faiss", help="Index engine. Both give the same hits.")] = "flat",
    previews: Annotated[
        bool, typer.Option("--previews", help="Include previews in the JSON document, as data URLs.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Search all silos for a text or an image, and merge their answers."""
    from silohash.api.runs import open_run

    hits = open_run(run).search(
        text,
        image=image,
        vector=vector,
        vector_modality=vector_of,
        find=find,
        k=k,
        offset=offset,
        radius_bits=radius,
        label=label,
        previews=previews,
        engine=cast("Engine", engine),
    )
    if as_json:
        print_json(_document(hits))
    else:
        print_hits(hits)


def _ids(given: list[str]) -> list[str]:
    """Return the ids that the values of ``--remove`` name, each once."""
    ids: dict[str, None] = {}
    for value in given:
        names = _lines(Path(value[1:])) if value.startswith("@") else value.split(",")
        ids.update(dict.fromkeys(name.strip() for name in names if name.strip()))
    if not ids:
        raise UserError(f"--remove {' '.join(given)} names no id. Give ids separated by commas, or @FILE.")
    return list(ids)


def _lines(path: Path) -> list[str]:
    remedy = "--remove @FILE takes a UTF-8 text file with one id per line."
    return read_text(path, remedy=remedy, missing=remedy).splitlines()


def _remove(run: TrainedRun, ids: list[str], *, as_json: bool) -> None:
    with spinner("Removing"):
        removed = run.remove(ids)
    found = {name for names in removed.values() for name in names}
    missing = [name for name in ids if name not in found]
    if as_json:
        print_json({"removed": removed, "not_found": missing})
        return
    for silo, names in removed.items():
        print_result(visible(f"{silo}: removed {', '.join(names)}"))
    if missing:
        print_status(visible(f"Not found in any index: {', '.join(missing)}"))
    print_status("Indexing the run again adds removed items again, unless they are removed from the archive too.")


def _document(hits: Hits) -> dict[str, Any]:
    return {
        "order": "distance" if hits.comparable else "rank",
        "hits": [
            {
                "id": hit.id,
                "silo": hit.silo,
                **({} if hit.rank is None else {"rank": hit.rank}),
                "distance_bits": hit.distance_bits,
                **payload,
            }
            for hit, payload in zip(hits, hits.payloads, strict=True)
        ],
        "ties_at_cut": hits.ties_at_cut,
        "missing_silos": dict(hits.missing_silos),
        "limited_silos": dict(hits.limited_silos),
        "comparable": hits.comparable,
    }


def print_hits(hits: Hits) -> None:
    """Print one line per hit on standard output, and notes on what is left out on standard error."""
    from silohash.search.table import as_lines, notes

    for line in as_lines(hits):
        print_result(line)
    for note in notes(hits):
        print_status(note)
