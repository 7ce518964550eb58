"""``data`` and ``partition``: what is there, and how it is spread over silos."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from silohash.cli.talk import answer, answer_json, talk, working


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    group = typer.Typer(help="Look at an archive.", no_args_is_help=True)
    group.command()(check)
    group.command()(card)
    app.add_typer(group, name="data")
    app.command()(partition)


def check(
    archive: Annotated[str, typer.Argument(help="A named archive, or the path of a folder of your own.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Read an archive and tell what is in it, and which rows were skipped and why."""
    from silohash.data import named_or_folder

    with working("Reading"):
        found = named_or_folder(archive)
    splits = {name: len(rows) for name, rows in found.splits.items()}
    if as_json:
        content = {"archive": found.card.name, "items": len(found), "splits": splits, "labels": list(found.label_names)}
        answer_json({**content, "skipped": list(found.card.skipped)})
        return
    answer(f"{found.card.name}: {len(found):,} items; " + ", ".join(f"{n} {count:,}" for n, count in splits.items()))
    answer(
        f"pictures {int(found.has_image.sum()):,}, texts {int(found.has_text.sum()):,}, labels {len(found.label_names)}"
    )
    for sentence in found.card.skipped:
        answer(f"skipped: {sentence}")


def card(archive: Annotated[str, typer.Argument(help="A named archive, or the path of a folder of your own.")]) -> None:
    """Print where an archive comes from, its licence and its protocol."""
    from silohash.data import named_or_folder

    found = named_or_folder(archive).card
    facts = {"source": found.source, "licence": found.licence, "protocol": found.protocol, "digest": found.digest}
    for name, value in {"name": found.name, **facts, **found.notes}.items():
        answer(f"{name}: {value}")


def partition(
    config: Annotated[Path, typer.Argument(help="The run's TOML file.")],
    set_: Annotated[list[str] | None, typer.Option("--set", help="section.key=value, over the file.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw it into this file, .svg or .png.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Show how a config spreads its archive over silos, and how far their labels lie from one another."""
    from silohash.data.drift import drift_of
    from silohash.data.partition import partition as spread
    from silohash.runtime.config import load_config
    from silohash.runtime.run import archive_of

    value = load_config(config, set_ or [])
    archive = archive_of(value)
    parts = spread(archive, value.partition.kind, value.partition.silos, value.seed, **value.partition.parameters())
    drift = drift_of(parts, archive) if archive.labels is not None or plot is not None else None
    if plot is not None and drift is not None:
        from silohash.report.partition_plot import draw_partition

        title = f"{archive.card.name}: {parts.kind} over {len(parts)} silos, seed {parts.seed}"
        draw_partition(drift, archive.label_names, plot, title=title)
        talk(f"Wrote {plot}")
    if as_json:
        sizes = {silo.name: len(silo.rows) for silo in parts.silos}
        answer_json({"silos": sizes, "digest": parts.digest(), "drift": drift.to_json() if drift is not None else None})
        return
    answer(parts.describe(archive))
    if drift is not None:
        answer(f"\n{drift.describe()}")
