"""``index`` and ``search``: one question, every silo."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from silohash.cli.console import print_json, print_result, print_status, spinner
from silohash.types import MODALITIES, Modality, UserError

if TYPE_CHECKING:
    from silohash.features.base import Value
    from silohash.search.hits import Hits


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command()(index)
    app.command()(search)


def index(
    run: Annotated[Path, typer.Argument(help="Folder of a trained run.")],
    archive: Annotated[
        Path | None, typer.Argument(help="A folder of more items, to be searched as one more silo.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="The silo whose model encodes those items, where silos have their own.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Index every silo's items with the run's model."""
    from silohash.data.formats.folder import read_folder
    from silohash.runtime.indexing import index_run
    from silohash.runtime.run import Run

    items = None if archive is None else read_folder(archive)
    with spinner("Indexing"):
        counts = index_run(Run(run), items, model=model, notify=print_status)
    if as_json:
        print_json({"items": counts})


def search(
    run: Annotated[Path, typer.Argument(help="Folder of an indexed run.")],
    text: Annotated[str | None, typer.Argument(help="What to look for, in words.")] = None,
    image: Annotated[Path | None, typer.Option(help="A picture to look for.")] = None,
    vector: Annotated[
        Path | None, typer.Option(help="A .npy feature vector, for runs trained on given features.")
    ] = None,
    vector_of: Annotated[str, typer.Option(help="What --vector describes: image or text.")] = "image",
    find: Annotated[str, typer.Option(help="What to find: image, text, or auto for the other side.")] = "auto",
    k: Annotated[int, typer.Option("-k", min=1, help="How many answers.")] = 10,
    radius: Annotated[int | None, typer.Option(min=0, help="Answers at most so many bits away.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Ask every silo one question, by words or by a picture, and merge the answers."""
    from silohash.runtime.run import Run
    from silohash.search.silos import ask_run

    value, modality = _question(text, image, vector, vector_of)
    found = Run(run)
    target = _target(find, modality, tuple(found.model.featurisers))
    hits = ask_run(found, value, modality, target, k=k, radius_bits=radius)
    if as_json:
        print_json(_document(hits))
        return
    print_hits(hits)


def _question(text: str | None, image: Path | None, vector: Path | None, vector_of: str) -> tuple[Value, Modality]:
    given = [name for name, value in (("TEXT", text), ("--image", image), ("--vector", vector)) if value is not None]
    if len(given) != 1:
        raise UserError(f"Ask by one of TEXT, --image FILE and --vector FILE; {len(given)} were given.")
    if text is not None:
        if not text.strip():
            raise UserError("The text is empty. Say what to look for.")
        return text, "text"
    if image is not None:
        return _read_picture(image), "image"
    assert vector is not None  # noqa: S101  one of the three is given
    return _read_vector(vector), modality_named(vector_of)


def _read_picture(path: Path) -> Value:
    from silohash.data.pictures.decoding import decode

    try:
        return decode(path.read_bytes())
    except FileNotFoundError as error:
        raise UserError(f'There is no file "{path}".') from error
    except (OSError, ValueError) as error:
        raise UserError(f'"{path}" cannot be read as a picture ({error}). Give a PNG or JPEG file.') from error


def _read_vector(path: Path) -> Value:
    import numpy as np

    try:
        return np.asarray(np.load(path, allow_pickle=False))
    except FileNotFoundError as error:
        raise UserError(f'There is no file "{path}".') from error
    except (ValueError, OSError) as error:
        raise UserError(f'"{path}" is no .npy array ({error}).') from error


def modality_named(name: str) -> Modality:
    """Returns a modality that a user named.

    Raises:
        UserError: if there is no such modality.
    """
    for modality in MODALITIES:
        if name == modality:
            return modality
    raise UserError(f'"{name}" is neither image nor text.')


def _target(find: str, asked_by: Modality, modalities: tuple[Modality, ...]) -> Modality:
    if find != "auto":
        return modality_named(find)
    other: Modality = "text" if asked_by == "image" else "image"
    return other if other in modalities else asked_by


def _document(hits: Hits) -> dict[str, Any]:
    ranks: list[dict[str, int]] = [{} for _ in hits.ids] if hits.ranks is None else [{"rank": r} for r in hits.ranks]
    return {
        "order": "distance" if hits.ranks is None else "rank",
        "hits": [
            {"id": item, "silo": silo, **rank, "distance_bits": distance, **payload}
            for item, silo, rank, distance, payload in zip(
                hits.ids, hits.silos, ranks, hits.distances, hits.payloads, strict=True
            )
        ],
        "ties_at_cut": hits.ties_at_cut,
        "missing_silos": dict(hits.missing_silos),
        "limited_silos": dict(hits.limited_silos),
        "comparable": hits.comparable,
    }


def print_hits(hits: Hits) -> None:
    """Prints an answer: rank if there are any, distance, silo, caption, labels; and who did not answer."""
    width = max((len(silo) for silo in hits.silos), default=0)
    ranks = [""] * len(hits) if hits.ranks is None else [f"rank {rank:3d}  " for rank in hits.ranks]
    for item, silo, rank, distance, payload in zip(
        hits.ids, hits.silos, ranks, hits.distances, hits.payloads, strict=True
    ):
        labels = f"  [{', '.join(payload['labels'])}]" if payload.get("labels") else ""
        print_result(f"{rank}{distance:3d} bits  {silo:{width}}  {payload.get('caption') or item}{labels}")
    if hits.ties_at_cut:
        last = f"{hits.places[-1]} bits" if hits.comparable else f"rank {hits.places[-1]}"
        print_status(f"{hits.ties_at_cut:,} more at {last} were left out; ask for more with -k.")
    for silo, reason in hits.missing_silos.items():
        print_status(f"{silo} did not answer: {reason}")
    for silo, reason in hits.limited_silos.items():
        print_status(f"{silo}: {reason}")
    if not hits:
        print_status("No silo answered with an item.")
    if not hits.comparable:
        print_status(
            "The silos encode with models of their own: the order is by each silo's own rank, and distances of different "
            "silos are not comparable."
        )
