"""Help pages: commands in groups, and arguments under the names of the usage line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from silohash.cli.help import COMPARE, SEARCH, START, Commands, add_command


def find(
    run: Annotated[list[Path], typer.Argument(metavar="RUN", help="Folders.")],
    words: Annotated[str | None, typer.Argument(help="What to find.")] = None,
    limit: Annotated[int, typer.Option("-k", metavar="N", min=1, help="Number of hits.")] = 3,
    share: Annotated[int | None, typer.Option(metavar="N", min=2, max=64, help="Share.")] = None,
) -> None:
    """Find something in all folders. The order is that of the distance.

    This paragraph is on the page of the command only.
    """


def begin() -> None:
    """Begin."""


@pytest.fixture
def app() -> typer.Typer:
    made = typer.Typer(cls=Commands, rich_markup_mode=None, no_args_is_help=True)
    add_command(made, find, SEARCH, name="look")
    add_command(made, begin, START)
    add_command(made, begin, name="other")
    group = typer.Typer(cls=Commands, help="Inner commands.")
    add_command(group, begin)
    made.add_typer(group, name="inner", rich_help_panel=COMPARE)
    return made


def page(app: typer.Typer, *words: str) -> list[str]:
    return CliRunner().invoke(app, [*words, "--help"], prog_name="tool").output.splitlines()


def test_commands_stand_in_groups_with_their_first_sentences(app: typer.Typer) -> None:
    lines = page(app)
    assert lines[lines.index("Start:") :] == [
        "Start:", "  begin  Begin.", "",
        "Search:", "  look   Find something in all folders.", "",
        "Compare:", "  inner  Inner commands.", "",
        "Commands:", "  other  Begin.",
    ]  # fmt: skip


def test_arguments_are_shown_as_in_the_usage_line(app: typer.Typer) -> None:
    lines = page(app, "look")
    assert lines[0] == "Usage: tool look [OPTIONS] RUN... [WORDS]"
    assert lines[lines.index("Arguments:") + 1 :][:2] == ["  RUN...  Folders.", "  WORDS   What to find."]
    words = [" ".join(line.split()) for line in lines]
    assert "-k N Number of hits. [default: 3; at least 1]" in words
    assert "--share N Share. [2 to 64]" in words
    assert "  This paragraph is on the page of the command only." in lines


def test_a_command_without_arguments_has_no_section_for_them(app: typer.Typer) -> None:
    lines = page(app, "begin")
    assert lines[0] == "Usage: tool begin [OPTIONS]"
    assert "Arguments:" not in lines
    assert "Options:" in lines


def test_a_command_can_have_a_name_of_two_words(app: typer.Typer) -> None:
    add_command(app, begin, SEARCH, name="look around")
    assert CliRunner().invoke(app, ["look", "around"]).exit_code == 0
    assert page(app, "look", "around")[0] == "Usage: tool look around [OPTIONS]"
    assert page(app, "look")[0] == "Usage: tool look [OPTIONS] RUN... [WORDS]"
    assert CliRunner().invoke(app, ["look", "FOLDER", "around"]).exit_code == 0
