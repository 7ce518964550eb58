"""The command ``partition``: how a config divides its archive among silos."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from silohash.cli.console import print_json, print_result, print_status
from silohash.cli.help import DATA, SETTING, add_command


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(app, partition, DATA)


def partition(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="Config of the run, a TOML file.")],
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar=SETTING, help="Override a value of the config. Can be repeated."),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also draw the partition to this file, .svg or .png.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
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

    archive = archive_of(value)
    for remark in archive.card.remarks():
        print_status(remark)
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
