"""The command line: all commands, and the message and exit code of every error."""

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, NoReturn

import typer

from silohash import __version__
from silohash.base.errors import DependencyMissing, UserError
from silohash.base.optional import missing_package, sentence
from silohash.base.visible import visible
from silohash.cli import account, audit, compare, data, demo, export, inspect, search, serve, study, train
from silohash.cli.console import prepare_output, print_status
from silohash.cli.help import ABOUT, COMPARE, DATA, SEARCH, START, TRAIN, Commands, add_command, flag

USER_ERROR = 2
CLOSED_OUTPUT = 1
INTERRUPTED = 130
INTERRUPTION = (
    "silohash: interrupted. Finished work is kept. Continue a training with: silohash resume RUN. Continue a study with the "
    "same command."
)

COMMANDS: dict[str, tuple[Callable[..., None], ...]] = {
    START: (demo.demo, train.new, inspect.doctor),
    TRAIN: (train.train, train.resume, train.retrain, train.evaluate, train.report, serve.server),
    SEARCH: (
        search.index,
        search.index_move,
        search.search,
        serve.serve,
        serve.silo,
        serve.hub,
        export.export,
        export.encode,
    ),
    COMPARE: (audit.audit, compare.compare, compare.reproduce, study.study, study.sweep),
    DATA: (data.partition, inspect.list_),
}
"""The commands of each group of the help page."""

SUBCOMMANDS: dict[str, tuple[str, tuple[Callable[..., None], ...]]] = {
    "federation": (SEARCH, (serve.init, serve.key, serve.sign, serve.kits, serve.disable, serve.enable, serve.leave)),
    "audit-log": (SEARCH, (audit.verify,)),
    "data": (DATA, (data.list_, data.check, data.import_, data.build, data.card)),
    "account": (SEARCH, (account.add, account.list_, account.password, account.remove, account.token, account.revoke)),
}
"""The commands that have subcommands: their group, and the subcommands."""

app = typer.Typer(
    name="silohash",
    cls=Commands,
    help=ABOUT["silohash"],
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    """Print the version and exit, if the option is set."""
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _options(
    _: Annotated[bool, flag("Print the version and exit.", "--version", callback=_version, is_eager=True)] = False,
) -> None:
    """Accept the options that precede the name of a command."""


for group, functions in COMMANDS.items():
    for function in functions:
        add_command(app, function, group)
for name, (group, functions) in SUBCOMMANDS.items():
    inner = typer.Typer(cls=Commands, help=ABOUT[name], no_args_is_help=True)
    for function in functions:
        add_command(inner, function)
    app.add_typer(inner, name=name, rich_help_panel=group)


def main() -> None:
    """Run the command line. Exit with 2 and a message after a user error, and with 130 after Ctrl-C.

    If the reader of the output has closed it, as ``head`` does, exit with 1 and without a message.
    """
    prepare_output()
    try:
        try:
            app()
        finally:
            # Errors of a full disk appear here instead of in the interpreter's own exit.
            sys.stdout.flush()
    except UserError as error:
        _refuse(error)
    except ModuleNotFoundError as error:
        package = missing_package(error)
        if package is None:
            raise
        _refuse(DependencyMissing(sentence(package, "This command")))
    except KeyboardInterrupt:
        _fail(INTERRUPTION, INTERRUPTED)
    except SystemExit as end:
        # typer exits by itself after Ctrl-C and prints nothing.
        if end.code == INTERRUPTED:
            _fail(INTERRUPTION, INTERRUPTED)
        raise
    except BrokenPipeError:
        _discard_output()
        sys.exit(CLOSED_OUTPUT)
    except OSError as error:
        _discard_output()
        _fail(f"silohash: {_explained(error)}")


def _refuse(error: UserError) -> NoReturn:
    """Exit with the text of an error. Its key has a line of its own, because many texts end with a command to copy."""
    _fail("\n  ".join([*f"silohash: {error}".split("\n"), f"[{error.key}]"]))


def _fail(message: str, code: int = USER_ERROR) -> NoReturn:
    """Exit with a code and a message, which is lost if standard error cannot be written either."""
    with suppress(OSError):
        print_status(message)
    sys.exit(code)


def _discard_output() -> None:
    """Send what is left of the output nowhere, because the interpreter would fail to write it at its exit."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _explained(error: OSError) -> str:
    """Return the sentence for an error of the operating system that no reader or writer of a file has explained."""
    reason = error.strerror or str(error)
    if isinstance(error.filename, str | bytes | os.PathLike):
        return f"{visible(os.fsdecode(error.filename))} could not be read or written ({reason}). Check the path."
    return f"The output could not be written ({reason}). Redirect it to another place, or free some space."
