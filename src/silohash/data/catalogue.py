"""The archives that have a name, and opening an archive by its name or by the path of its folder."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from silohash.base.registry import suggestion
from silohash.base.types import UserError

if TYPE_CHECKING:
    from silohash.data.archive import Archive

Opener: TypeAlias = "Callable[..., Archive]"

ARCHIVES: Mapping[str, str] = {
    "glyphs": "silohash.data.glyphs.archive:glyphs",
    "coco18": "silohash.data.packed.sets:COCO18",
    "fashion": "silohash.data.packed.sets:FASHION",
    "wiki-sift-lda": "silohash.data.packed.sets:WIKI_SIFT_LDA",
    "clothing10": "silohash.data.packed.sets:CLOTHING10",
    "flickr8k-1k": "silohash.data.packed.sets:FLICKR8K_1K",
    "coco-mini": "silohash.data.packed.sets:COCO_MINI",
    "nlvr-graphs": "silohash.data.packed.sets:NLVR_GRAPHS",
    "fashion-clip99": "silohash.data.packed.sets:FASHION_CLIP99",
    "pascal-deep": "silohash.data.packed.sets:PASCAL_DEEP",
    "mirflickr25k": "silohash.data.benchmarks.mirflickr:MIRFLICKR25K",
    "nus-wide": "silohash.data.benchmarks.nus_wide:NUS_WIDE",
    "iapr-tc12": "silohash.data.benchmarks.iapr:IAPR_TC12",
    "coco": "silohash.data.benchmarks.coco:COCO",
    "wikipedia": "silohash.data.benchmarks.wikipedia:WIKIPEDIA",
    "fashionvc": "silohash.data.benchmarks.fashion:FASHIONVC",
    "ssense": "silohash.data.benchmarks.fashion:SSENSE",
    "pascal-sentence": "silohash.data.benchmarks.pascal:PASCAL_SENTENCE",
}
"""Every named archive, as ``module:attribute`` of what opens it."""

FOLDER = "silohash.data.formats.folder:read_folder"
NATIVE = "silohash.data.formats.native:read_native"


def open_archive(name: str | None, path: Path | None = None, *, options: Mapping[str, object] | None = None) -> Archive:
    """Open an archive by its name, or a user's folder by its path.

    Args:
        name: One of `ARCHIVES`, or None.
        path: A folder with ``metadata.csv``, ``.jsonl`` or ``.parquet``, or one that silohash wrote (with
            ``manifest.json``), or None.
        options: The archive's own options, as ``{"faces": 1}`` for ``glyphs``.

    Raises:
        UserError: If both or neither of name and path are given, the name or an option is unknown, or the archive cannot
            be read.
    """
    if (name is None) == (path is None):
        given = "neither is set" if name is None else f'both name = "{name}" and path = "{path}" are set'
        raise UserError(f"An archive is opened by a name or by a path, and {given}. Set one of the two in [data].")
    if path is not None:
        from silohash.data.formats.native import is_native

        opener = _opener(NATIVE if is_native(path) else FOLDER)
        return opener(path, **_checked("A folder", opener, options))
    if name is None or name not in ARCHIVES:
        raise UserError(
            f'There is no archive "{name}"{suggestion(str(name), ARCHIVES)}. Available: {", ".join(ARCHIVES)}. '
            "To open a folder of your own, set path instead of name."
        )
    opener = _opener(ARCHIVES[name])
    return opener(**_checked(f'The archive "{name}"', opener, options))


def named_or_folder(archive: str, options: Mapping[str, object] | None = None) -> Archive:
    """Open the archive of that name, or the folder at that path.

    Raises:
        UserError: If there is neither, or it has no such option.
    """
    if archive in ARCHIVES:
        return open_archive(archive, options=options)
    if not Path(archive).exists():
        raise UserError(
            f'"{archive}" is neither the name of an archive{suggestion(archive, ARCHIVES)} nor an existing folder. '
            f"The archives are: {', '.join(ARCHIVES)}."
        )
    return open_archive(None, Path(archive), options=options)


def link_options(*, follow_links: bool) -> dict[str, object]:
    """Return the option that permits links to lead out of a folder, or no option."""
    return {"follow_links": True} if follow_links else {}


def summary_of(name: str) -> str:
    """Return the first sentence of a named archive's description."""
    opener = _opener(ARCHIVES[name])
    summary = getattr(opener, "summary", None) or (inspect.getdoc(opener) or "").split("\n\n")[0]
    return str(summary).replace("\n", " ")


def _opener(target: str) -> Opener:
    module, _, name = target.partition(":")
    opener: Opener = getattr(importlib.import_module(module), name)
    return opener


def _checked(called: str, opener: Opener, options: Mapping[str, object] | None) -> dict[str, Any]:
    """Return the options, all of which the opener has."""
    given = dict(options or {})
    parameters = inspect.signature(opener).parameters.values()
    named = [parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]
    known = tuple(getattr(opener, "options", named))
    kinds = {parameter.kind for parameter in parameters}
    checks_itself = inspect.Parameter.VAR_KEYWORD in kinds and not hasattr(opener, "options")
    unknown = [option for option in given if option not in known]
    if unknown and not checks_itself:
        has = f"its options are: {', '.join(known)}" if known else "it has none"
        raise UserError(f'{called} has no option "{unknown[0]}"{suggestion(unknown[0], known)}; {has}.')
    return given
