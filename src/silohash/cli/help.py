"""The help pages: the commands in groups, and every argument under the name that its usage line gives it."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup

from silohash.base.files import read_toml
from silohash.base.forms import REINSTALL
from silohash.base.visible import visible

START = "Start"
TRAIN = "Train"
SEARCH = "Search"
COMPARE = "Compare"
DATA = "Data and methods"
GROUPS = (START, TRAIN, SEARCH, COMPARE, DATA)
"""The groups of commands, in the order of the help page."""

ABOUT: Mapping[str, str] = read_toml(Path(__file__).with_name("help.toml"), remedy=REINSTALL, missing=REINSTALL)
"""The texts of commands with subcommands, and the longer ones of options and arguments, by their commands and names."""

SETTING = "SECTION.KEY=VALUE"
"""What the option ``--set`` takes."""


def argument(metavar: str, about: str, **others: Any) -> Any:  # noqa: ANN401  typer's class, as for the two below
    """Return the declaration of an argument: its name in the usage line, its help, and others of typer's keywords."""
    return typer.Argument(metavar=metavar, help=about, **others)


def option(metavar: str, about: str, *names: str, **others: Any) -> Any:  # noqa: ANN401
    """Return the declaration of an option with a value: the value's name, its help, and the option's names.

    Without names, the option is named after its parameter.
    """
    return typer.Option(*names, metavar=metavar, help=about, **others)


def flag(about: str, *names: str, **others: Any) -> Any:  # noqa: ANN401
    """Return the declaration of an option without a value: its help, and its names if not that of its parameter."""
    return typer.Option(*names, help=about, **others)


Settings = Annotated[list[str] | None, option(SETTING, "Override a value of the config. Can be repeated.", "--set")]
AsJson = Annotated[bool, flag("Print one JSON document.", "--json")]

SETTING_GIVEN = re.compile(r"\w+(\.\w+)+=")
"""The beginning of an argument of that form."""

OTHER = "Commands"
"""The heading of commands without a group."""


class Command(TyperCommand):
    """A command whose help page shows ``RUN``, where typer shows ``{RUN}`` and ``RUN <path>``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401  typer's context, whose class has moved
        """Parse the arguments.

        A second setting behind one ``--set`` and an argument that begins with a dash are errors that say how to give them.
        """
        for word, first, second in zip(args, args[1:], args[2:], strict=False):
            if word == "--set" and SETTING_GIVEN.match(second):
                ctx.fail(f"Repeat --set before each setting: --set {first} --set {second}")
        given = list(args)
        try:
            return super().parse_args(ctx, args)
        except Exception as raised:
            error: Any = raised  # its class has moved too
            if any(isinstance(each, TyperArgument) for each in self.params) and (
                taken := _taken_for_option(error, given)
            ):
                remedy = f'must follow --, after all options: {ctx.command_path} … -- "{visible(taken)}"'
                message = error.format_message().removesuffix(".")
                ctx.fail(f"{message}. An argument that begins with a dash {remedy}")
            raise

    def collect_usage_pieces(self, ctx: Any) -> list[str]:  # noqa: ANN401  as above
        """Return the parts of the usage line after the name of the command."""
        arguments = [(_name(each), each.required) for each in self.params if isinstance(each, TyperArgument)]
        return [self.options_metavar or "", *(name if required else f"[{name}]" for name, required in arguments)]

    def format_options(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401  as above
        """Write the sections of the arguments and of the options."""
        arguments = [(_name(each), each.help or "") for each in self.params if isinstance(each, TyperArgument)]
        records = [each.get_help_record(ctx) for each in self.get_params(ctx) if not isinstance(each, TyperArgument)]
        options = [(name, _with_range_in_words(text)) for name, text in filter(None, records)]
        for heading, rows in (("Arguments", arguments), ("Options", options)):
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows)


class Commands(TyperGroup):
    """A group of commands whose help page has one section per group and shows every summary in full."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401  as above
        """Return the name of a command, the command, and its arguments. A name can be two words, such as ``index move``."""
        words = " ".join(args[:2])
        if len(args) > 1 and words in self.commands:
            return words, self.commands[words], args[2:]
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401  as above
        """Write one section per group of commands."""
        width = max(map(len, self.list_commands(ctx)))
        rows: dict[str, list[tuple[str, str]]] = {heading: [] for heading in (*GROUPS, OTHER)}
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            if isinstance(command, TyperCommand | TyperGroup):
                paragraph = " ".join((command.help or "").partition("\n\n")[0].split())
                summary = paragraph.partition(". ")[0].removesuffix(".") + "."
                rows[command.rich_help_panel or OTHER].append((f"{name:{width}}", summary))
        for heading in filter(rows.get, rows):
            with formatter.section(heading):
                formatter.write_dl(rows[heading])


def add_command(app: typer.Typer, function: Any, group: str | None = None, name: str | None = None) -> None:  # noqa: ANN401  any signature
    """Add a command to an application, in one of `GROUPS`, or in none inside a command such as ``data``.

    Its name is by default that of the function, with a space for an underscore.
    """
    name = name or function.__name__.removesuffix("_").replace("_", " ")
    app.command(name=name, cls=Command, rich_help_panel=group)(function)


def _with_range_in_words(text: str) -> str:
    """Return a help text with the range of a number in words.

    Example:
        >>> _with_range_in_words("Runs at the same time.  [default: 1; 1<=x<=64]"), _with_range_in_words("[x>=0]")
        ('Runs at the same time.  [default: 1; 1 to 64]', '[at least 0]')
    """
    return re.sub(r"\bx>=(\d+)", r"at least \1", re.sub(r"(\d+)<=x<=(\d+)", r"\1 to \2", text))


def _taken_for_option(error: Any, args: list[str]) -> str:  # noqa: ANN401  as above
    """Return the argument that was probably not meant as an option, or an empty string."""
    if type(error).__name__ == "NoSuchOption":
        name: str = error.option_name
        return next((arg for arg in args if arg.startswith("-") and name.lstrip("-") in arg), name)
    options = error.param.opts if hasattr(error, "param") and error.param is not None else ()
    return next((arg for arg in args if arg[:2] in options and " " in arg), "")


def _name(declared: TyperArgument) -> str:
    return f"{declared.metavar or str(declared.name).upper()}{'...' if declared.nargs != 1 else ''}"
