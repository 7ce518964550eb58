"""``audit-log``: check the audit log of a silo."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from silohash.cli.console import print_json, print_result
from silohash.cli.help import SEARCH, Commands, add_command


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(cls=Commands, help="Check the audit log of a silo.", no_args_is_help=True)
    add_command(group, verify)
    app.add_typer(group, name="audit-log", rich_help_panel=SEARCH)


def verify(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Audit log of a silo, such as RUN/audit/SILO.jsonl.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Check that no line of an audit log was changed or removed, over all files of the log.

    Lines that were removed at the end do not show. Keep the printed number and digest elsewhere, and compare them with
    those of a later check.
    """
    from silohash.service.audit import verify_log

    tail = verify_log(file)
    if as_json:
        print_json({"lines": tail.number, "digest": tail.digest})
    else:
        print_result(f"{file}: {tail.number:,} lines, all unchanged. Digest of the last line: {tail.digest or 'none'}")
