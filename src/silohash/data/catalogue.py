"""The archives that have a name, and opening an archive by its name or by the path of its folder."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from silohash.base.errors import OneInputNeeded, UnknownName, UnknownOption, WrongChoice
from silohash.base.registry import suggestion
from silohash.data import ARCHIVES

if TYPE_CHECKING:
    from silohash.data.archive import Archive

Opener: TypeAlias = "Callable[..., Archive]"


def open_archive(name: str | None, path: Path | None = None, *, options: Mapping[str, object] | None = None) -> Archive:
    """Open one of the `ARCHIVES` by its name, or by its path a folder that silohash or a user wrote.

    The options are the archive's own, as ``{"faces": 1}`` for ``glyphs``.

    Raises:
        UserError: If both or neither of name and path are given, the name or an option is unknown, or the archive cannot
            be read.
    """
    if (name is None) == (path is None):
        given = "neither is set" if name is None else f'both name = "{name}" and path = "{path}" are set'
        raise OneInputNeeded(f"An archive is opened by a name or by a path, and {given}. Set one of the two in [data].")
    if path is not None:
        # Imported here, because the folder of formats imports from this one.
        from silohash.data.formats.folder import read_folder
        from silohash.data.formats.native import is_native, read_native

        opener: Opener = read_native if is_native(path) else read_folder
        return opener(path, **_checked("A folder", opener, options))
    names = ARCHIVES.names()
    if name is None or name not in names:
        raise UnknownName(
            f'There is no archive "{name}"{suggestion(str(name), names)}. Available: {", ".join(names)}. '
            "To open a folder of your own, set path instead of name."
        )
    opener = ARCHIVES.resolve(name)
    return opener(**_checked(f'The archive "{name}"', opener, options))


def named_or_folder(archive: str, options: Mapping[str, object] | None = None) -> Archive:
    """Open the archive of that name, or the folder at that path.

    Raises:
        UserError: If there is neither, or it has no such option.
    """
    names = ARCHIVES.names()
    if archive in names:
        return open_archive(archive, options=options)
    if not Path(archive).exists():
        raise UnknownName(
            f'"{archive}" is neither the name of an archive{suggestion(archive, names)} nor an existing folder. '
            f"The archives are: {', '.join(names)}."
        )
    return open_archive(None, Path(archive), options=options)


def link_options(*, follow_links: bool) -> dict[str, object]:
    """Return the option that permits links to lead out of a folder, or no option."""
    return {"follow_links": True} if follow_links else {}


def summary_of(name: str) -> str:
    """Return the first sentence of a named archive's description."""
    opener = ARCHIVES.resolve(name)
    # Several archives of one class share its docstring, so each has a summary of its own.
    summary = opener.summary if hasattr(opener, "summary") else (inspect.getdoc(opener) or "").split("\n\n")[0]
    return str(summary).replace("\n", " ")


def _checked(called: str, opener: Opener, options: Mapping[str, object] | None) -> dict[str, Any]:
    """Return the options, all of which the opener has. One that takes any options checks them itself."""
    given = dict(options or {})
    kinds = {name: parameter.kind for name, parameter in inspect.signature(opener).parameters.items()}
    if inspect.Parameter.VAR_KEYWORD not in kinds.values():
        check_options(called, given, [name for name, kind in kinds.items() if kind is inspect.Parameter.KEYWORD_ONLY])
    return given


def check_option(option: str, value: object, allowed: Sequence[object]) -> None:
    """Check that an option's value is one of the allowed ones.

    Raises:
        UserError: If it is not. The error lists the allowed values.
    """
    if value not in allowed:
        names = [str(name) for name in allowed]
        raise WrongChoice(
            f'{option} cannot be "{value}"{suggestion(str(value), names)}; it can be: {", ".join(names)}.'
        )


def check_options(called: str, given: Iterable[str], known: Sequence[str]) -> None:
    """Check the names of the options that a user gave.

    Raises:
        UserError: If one is unknown.
    """
    for option in given:
        if option not in known:
            has = f"its options are: {', '.join(known)}" if known else "it has none"
            raise UnknownOption(f'{called} has no option "{option}"{suggestion(option, known)}; {has}.')
