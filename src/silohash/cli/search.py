"""``index`` and ``search``: build the indexes of the silos, and search all of them at once.

Pictures of hits are shown inside a terminal by the graphics protocols of kitty and iTerm2.
"""

from __future__ import annotations

import base64
import io
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import typer

from silohash.base.attempts import attempted
from silohash.base.errors import ConflictingOptions, EmptyInput, NoEffect, NothingUsable, UnknownName
from silohash.base.files import read_text
from silohash.base.registry import suggestion
from silohash.base.visible import visible
from silohash.cli.console import print_json, print_result, print_status, spinner
from silohash.cli.help import ABOUT, AsJson, argument, flag, option
from silohash.index import IN_MEMORY, SERVERS
from silohash.search.composed import ABOUT_REGION, ABOUT_WEIGHT, TEXT_WEIGHT
from silohash.search.hits import described
from silohash.search.options import CANDIDATES

if TYPE_CHECKING:
    from PIL import Image

    from silohash.api.runs import TrainedRun
    from silohash.search.hits import Hits
    from silohash.search.released import Hit


UNANSWERED = 2
"""Exit code of a search that no silo answered."""


Graphics: TypeAlias = Literal["kitty", "iterm2"]

SHOWN_PIXELS = 240
"""Longest side of a picture in the terminal."""

CHUNK = 4096
"""Number of base64 characters per escape sequence of the kitty protocol."""

NO_GRAPHICS = (
    "This terminal is not known to show pictures, so --show has no effect. kitty, Ghostty, Konsole, iTerm2, WezTerm and "
    "mintty can, outside of tmux and screen."
)
NO_TERMINAL = "Standard output is not a terminal, so --show has no effect."

_KITTY_PROGRAMS = ("ghostty",)
_ITERM_PROGRAMS = ("iterm.app", "wezterm", "mintty")


def index(
    run: Annotated[Path, argument("RUN", "Folder of a trained run.")],
    archive: Annotated[Path | None, argument("ARCHIVE", ABOUT["index ARCHIVE"])] = None,
    name: Annotated[str | None, option("NAME", ABOUT["index --name"])] = None,
    model: Annotated[str | None, option("SILO", ABOUT["index --model"])] = None,
    all_: Annotated[bool, flag("Also index the items that are held out as queries.", "--all")] = False,
    follow_links: Annotated[bool, flag(ABOUT["index --follow-links"], "--follow-links")] = False,
    remove: Annotated[list[str] | None, option("IDS", ABOUT["index --remove"])] = None,
    as_json: AsJson = False,
) -> None:
    """Build the index of every silo, or remove items from the indexes.

    The items are encoded with the model of the run. After items were removed, what can still hold them is listed.
    """
    from silohash.api.runs import open_run

    if remove is not None:
        if archive is not None or model is not None or name is not None or all_:
            raise ConflictingOptions(
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


def index_move(
    run: Annotated[Path, argument("RUN", "Folder of an indexed run.")],
    to: Annotated[str, option("|".join([*IN_MEMORY.table, *SERVERS.table]), ABOUT["index move --to"])],
    url_env: Annotated[str | None, option("NAME", ABOUT["index move --url-env"])] = None,
    url_file: Annotated[Path | None, option("FILE", "File with the URL of the server, instead of a variable.")] = None,
    approximate: Annotated[bool, flag(ABOUT["index move --approximate"], "--approximate")] = False,
    as_json: AsJson = False,
) -> None:
    """Move the indexes of all silos to another backend, for silos that outgrow one machine.

    The codes are copied to the server, read back, and compared with the index files. Searches then use the server. The index
    files remain, and --to flat searches them in memory again. If the command is interrupted, repeat it.
    """
    from silohash.api.runs import open_run
    from silohash.index.config import IndexConfig
    from silohash.index.copies import move_indexes

    _check_backend(to, url_env, url_file, approximate=approximate)
    values = {"engine": to, "url_env": url_env, "url_file": url_file, "approximate": approximate}
    config = IndexConfig.checked(values, "silohash index move")
    folder = open_run(run).folder
    with spinner("Moving"):
        moved = move_indexes(folder, config, print_status)
    if as_json:
        print_json({"engine": config.backend, "indexes": [asdict(index) for index in moved]})
    else:
        print_status(f"Searches now use the backend {config.backend}.")


def _check_backend(to: str, url_env: str | None, url_file: Path | None, *, approximate: bool) -> None:
    """Check the options of `index_move`, so that messages name options instead of the keys of ``index.toml``."""
    known = [*IN_MEMORY.names(), *SERVERS.names()]
    if to not in known:
        raise UnknownName(f'--to is "{to}"{suggestion(to, known)}. Choose from: {", ".join(known)}.')
    if to in IN_MEMORY.targets() and (url_env or url_file or approximate):
        raise NoEffect(
            f"--to {to} searches in memory, and needs neither a server nor an approximate index. Remove --url-env, "
            f"--url-file and --approximate, or use --to {' or --to '.join(SERVERS.names())}."
        )
    if url_env and url_file:
        raise ConflictingOptions("--url-env and --url-file both name the place of the server's URL. Use one of them.")


def search(
    run: Annotated[Path, argument("RUN", "Folder of an indexed run.")],
    text: Annotated[str | None, argument("TEXT", "Text to search for; -WORD excludes.")] = None,
    image: Annotated[Path | None, option("FILE", "Image file to search for.")] = None,
    vector: Annotated[Path | None, option("FILE", ABOUT["search --vector"])] = None,
    vector_of: Annotated[str, option("image|text", "What --vector describes.")] = "image",
    text_weight: Annotated[float, option("W", ABOUT_WEIGHT, min=0, max=1)] = TEXT_WEIGHT,
    region: Annotated[str | None, option("L,T,R,B", ABOUT_REGION)] = None,
    find: Annotated[str, option("item|image|text", ABOUT["search --find"])] = "item",
    k: Annotated[int, option("N", described("k"), "-k", min=1)] = 10,
    offset: Annotated[int, option("N", described("offset"), min=0)] = 0,
    radius: Annotated[int | None, option("BITS", described("radius_bits"), min=0)] = None,
    label: Annotated[list[str] | None, option("LABEL", f"{described('label')} Repeated: with all.")] = None,
    where: Annotated[list[str] | None, option("CONDITION", f"{described('where')} Repeated: all of them.")] = None,
    silo: Annotated[list[str] | None, option("SILO", "Search only this silo. Can be repeated.")] = None,
    facet: Annotated[list[str] | None, option("COLUMN", f"{described('facets')} Can be repeated.")] = None,
    facet_values: Annotated[int, option("N", described("facet_values"), min=1)] = 10,
    newest_by: Annotated[str | None, option("COLUMN", described("newest_by"))] = None,
    engine: Annotated[str | None, option("|".join(IN_MEMORY.table), ABOUT["search --engine"])] = None,
    candidates: Annotated[int, option("N", ABOUT["search --candidates"], min=1)] = CANDIDATES,
    deadline: Annotated[float | None, option("SECONDS", described("deadline_seconds"), show_default="10")] = None,
    bar: Annotated[float | None, option("P", described("bar"), min=0, max=1)] = None,
    previews: Annotated[bool, flag("Include previews in the JSON document, as data URLs.", "--previews")] = False,
    show: Annotated[bool, flag(ABOUT["search --show"], "--show")] = False,
    files: Annotated[bool, flag("Print only the paths of the pictures, one per line.", "-l", "--files")] = False,
    null: Annotated[bool, flag("Print only the paths, each followed by a NUL character.", "-0", "--null")] = False,
    as_json: AsJson = False,
) -> None:
    """Search all silos for a text, an image or both, and merge their answers. Exits with 2 if no silo answered.

    With filters only, such as --where 'year>=1900', the items that pass them are listed, newest first.

    In a terminal, each hit is a line of a table, followed by the path of its picture if it exists on this machine.
    Elsewhere, each hit is a line of fields separated by tabs: distance, silo, id, caption, labels, path, rank, score.
    """
    from silohash.api.runs import open_run

    forms = [name for name, chosen in {"--json": as_json, "--show": show, "--files": files or null}.items() if chosen]
    if len(forms) > 1:
        raise ConflictingOptions(f"{' and '.join(forms)} are different forms of output. Choose one of them.")
    with open_run(run) as found:
        hits = found.search(
            text, image=image, vector=vector, vector_modality=vector_of, text_weight=text_weight, region=region, find=find,
            k=k, offset=offset, radius_bits=radius, label=label, where=where or (), silos=silo, facets=facet or (),
            facet_values=facet_values, newest_by=newest_by, candidates=candidates, deadline_seconds=deadline, bar=bar,
            previews=previews or show, engine=engine,
        )  # fmt: skip
    if as_json:
        print_json(_document(hits))
        if hits.unread is not None:
            print_status(str(hits.unread))
    elif "--files" in forms:
        print_paths(hits, end="\0" if null else "\n")
    else:
        print_hits(hits, show=show)
        if about := _about_filters(hits, label, where, radius):
            print_status(about)
    _check_answered(hits, print_reasons=as_json)


def _check_answered(hits: Hits, *, print_reasons: bool) -> None:
    if hits.missing_silos and not hits.answered:
        if print_reasons:
            print_notes(hits)
        raise typer.Exit(UNANSWERED)


def _about_filters(hits: Hits, labels: list[str] | None, where: list[str] | None, radius: int | None) -> str:
    """Return a sentence on the filters of a search without hits; empty if there were none, or hits."""
    if hits or not hits.answered:
        return ""
    conditions = [*(labels or ()), *(where or ())]
    limits = [f"that pass the filters ({', '.join(conditions)})"] if conditions else []
    limits += [] if radius is None else [f"within {radius} bits of the query"]
    return f"Only items {' and '.join(limits)} were searched." if limits else ""


def _ids(given: list[str]) -> list[str]:
    """Return the ids that the values of ``--remove`` name, each once."""
    ids: dict[str, None] = {}
    for value in given:
        names = value.split(",")
        if value.startswith("@"):
            remedy = "--remove @FILE takes a UTF-8 text file with one id per line."
            names = read_text(Path(value[1:]), remedy=remedy, missing=remedy).split("\n")
        ids.update(dict.fromkeys(name.strip() for name in names if name.strip()))
    if not ids:
        raise EmptyInput(f"--remove {' '.join(given)} does not name an id. Give ids separated by commas, or @FILE.")
    return list(ids)


def _remove(run: TrainedRun, ids: list[str], *, as_json: bool) -> None:
    from silohash.api.erasure import remains
    from silohash.run.folder import Run

    with spinner("Removing"):
        removed, left = run.remove(ids), list(remains(Run(run.folder), ids))
    found = {name for names in removed.values() for name in names}
    missing = [name for name in ids if name not in found]
    if as_json:
        print_json({"removed": removed, "not_found": missing, "remains": left})
        return
    print_result(*(visible(f"{silo}: removed {', '.join(names)}") for silo, names in removed.items()))
    if missing:
        from silohash.api.runs import WITH_COMMA

        remedy = f". {WITH_COMMA}" if len(ids) > 1 else ""
        print_status(visible(f"Not found in any index: {', '.join(missing)}{remedy}"))
    print_status("What can still hold the items:")
    print_status(*(visible(f"  {line}") for line in left))


def _document(hits: Hits) -> dict[str, Any]:
    return {
        "order": hits.order,
        "hits": [
            {
                "id": hit.id, "silo": hit.silo, **({} if hit.rank is None else {"rank": hit.rank}),
                **({} if hit.score is None else {"score": hit.score}), "distance_bits": hit.distance_bits,
                "probability": hit.probability, "strength": hit.strength, "found_by": list(hit.found_by),
                "matched": list(hit.matched), **payload, "path": None if hit.path is None else str(hit.path),
            }
            for hit, payload in zip(hits, hits.payloads, strict=True)
        ],
        "facets": hits.facets, "nothing_close": hits.nothing_close, "ties_at_cut": hits.ties_at_cut,
        "missing_silos": dict(hits.missing_silos), "limited_silos": dict(hits.limited_silos),
        "comparable": hits.comparable, "unknown_words": list(hits.unknown_words),
        "excluded_words": list(hits.excluded_words), "unread": None if hits.unread is None else asdict(hits.unread),
    }  # fmt: skip


def print_hits(hits: Hits, *, show: bool = False) -> None:
    """Print the hits on standard output, with their pictures if they are to be shown, and notes on standard error."""
    from silohash.search.table import as_fields, opening

    print_status(*opening(hits))
    graphics, reason = terminal_graphics() if show else (None, "")
    if sys.stdout.isatty():
        print_aligned(hits, graphics)
    else:
        for line in as_fields(hits):
            typer.echo(line)
    print_notes(hits)
    if reason:
        print_status(reason)


def print_notes(hits: Hits) -> None:
    """Print sentences about what a result leaves out on standard error."""
    from silohash.search.table import notes

    print_status(*notes(hits))


def print_aligned(hits: Hits, graphics: Graphics | None = None) -> None:
    """Print the hits as aligned lines that fit the terminal, each followed by its picture if there is a protocol."""
    from silohash.search.table import as_lines

    lines = iter(as_lines(hits, shutil.get_terminal_size().columns))
    for hit in hits:
        for _ in range(1 if hit.path is None else 2):
            print_result(next(lines))
        if graphics is not None:
            show_picture(hit, graphics)


def print_paths(hits: Hits, *, end: str) -> None:
    """Print the paths of the hits' pictures on standard output, and how many hits do not have one on standard error.

    Raises:
        UserError: If there are hits, and none of them has a picture on this machine.
    """
    paths = [hit.path for hit in hits if hit.path is not None]
    print_notes(hits)
    if hits and not paths:
        raise NothingUsable(
            f"None of the {len(hits):,} hits has a picture file on this machine. Leave out --files to see the hits."
        )
    for path in paths:
        typer.echo(visible(str(path)) + end if sys.stdout.isatty() else os.fsencode(path) + end.encode(), nl=False)
    if len(paths) < len(hits):
        print_status(f"{len(hits) - len(paths):,} of {len(hits):,} hits do not have a picture file on this machine.")


def graphics_of(environment: Mapping[str, str]) -> Graphics | None:
    """Return the graphics protocol of a terminal, as its environment variables tell; None if it is not known to have one.

    Example:
        >>> graphics_of({"TERM": "xterm-kitty"})
        'kitty'
        >>> graphics_of({"TERM": "xterm-256color"}) is None
        True
    """
    term, program = environment.get("TERM", ""), environment.get("TERM_PROGRAM", "").lower()
    if "TMUX" in environment or term.startswith(("screen", "tmux", "dumb")):
        return None
    version = environment.get("KONSOLE_VERSION", "")
    # Konsole 22.04 is the first version with the kitty protocol.
    new_konsole = version.isdecimal() and int(version) >= 220400
    if term in {"xterm-kitty", "xterm-ghostty"} or program in _KITTY_PROGRAMS or new_konsole:
        return "kitty"
    if program in _ITERM_PROGRAMS or environment.get("LC_TERMINAL") == "iTerm2":
        return "iterm2"
    return None


def sequence(picture: Image.Image, graphics: Graphics) -> str:
    """Return the escape sequences that show a picture, reduced to `SHOWN_PIXELS`."""
    small = picture.convert("RGB")
    small.thumbnail((SHOWN_PIXELS, SHOWN_PIXELS))
    stream = io.BytesIO()
    small.save(stream, "PNG")
    content = base64.b64encode(stream.getvalue()).decode("ascii")
    if graphics == "iterm2":
        return f"\x1b]1337;File=inline=1;size={stream.tell()}:{content}\a"
    return "".join(_kitty_chunks(content))


def _kitty_chunks(content: str) -> Iterator[str]:
    """Yield the escape sequences of the kitty protocol. ``q=2`` keeps the terminal from answering."""
    for start in range(0, len(content), CHUNK):
        control = "a=T,f=100,q=2," if start == 0 else ""
        more = int(start + CHUNK < len(content))
        yield f"\x1b_G{control}m={more};{content[start : start + CHUNK]}\x1b\\"


def picture_of(hit: Hit) -> Image.Image | None:
    """Return the picture of a hit: its file on this machine, otherwise its preview; None if neither can be decoded."""
    if hit.path is not None:
        from silohash.base.files import read_bytes
        from silohash.data.pictures.reading import decode

        try:
            return decode(read_bytes(hit.path), at_least_pixels=SHOWN_PIXELS)
        except (OSError, ValueError):
            pass
    return attempted(lambda: hit.preview, OSError, ValueError, otherwise=None)


def show_picture(hit: Hit, graphics: Graphics) -> None:
    """Show the picture of a hit in the terminal, if it has one."""
    picture = picture_of(hit)
    if picture is not None:
        sys.stdout.write(sequence(picture, graphics) + "\n")


def terminal_graphics() -> tuple[Graphics | None, str]:
    """Return the graphics protocol of standard output, or None with a sentence that says why there is none."""
    if not sys.stdout.isatty():
        return None, NO_TERMINAL
    graphics = graphics_of(os.environ)
    return graphics, "" if graphics else NO_GRAPHICS
