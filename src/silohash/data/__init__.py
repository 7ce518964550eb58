"""Archives of items, and how they are spread over silos."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from silohash.registry import suggestion
from silohash.types import UserError

if TYPE_CHECKING:
    from silohash.data.archive import Archive

ARCHIVES: Mapping[str, str] = {
    "glyphs": "silohash.data.glyphs.drawing:glyphs",
    "coco18": "silohash.data.packed.labelled:coco18",
    "fashion": "silohash.data.packed.labelled:fashion",
    "wiki-sift-lda": "silohash.data.packed.labelled:wiki_sift_lda",
    "clothing10": "silohash.data.packed.labelled:clothing10",
    "flickr8k-1k": "silohash.data.packed.captioned:flickr8k_1k",
    "coco-mini": "silohash.data.packed.captioned:coco_mini",
    "nlvr-graphs": "silohash.data.packed.captioned:nlvr_graphs",
    "fashion-clip99": "silohash.data.packed.labelled:fashion_clip99",
    "pascal-deep": "silohash.data.packed.labelled:pascal_deep",
    "mirflickr25k": "silohash.data.benchmarks.datasets:mirflickr25k",
    "nus-wide": "silohash.data.benchmarks.datasets:nus_wide",
    "iapr-tc12": "silohash.data.benchmarks.datasets:iapr_tc12",
    "coco": "silohash.data.benchmarks.datasets:coco",
    "wikipedia": "silohash.data.benchmarks.datasets:wikipedia",
    "fashionvc": "silohash.data.benchmarks.datasets:fashionvc",
    "ssense": "silohash.data.benchmarks.datasets:ssense",
    "pascal-sentence": "silohash.data.benchmarks.datasets:pascal_sentence",
}
"""The archives that have a name, each as module:function; a path opens a user's own folder."""

FOLDER = "silohash.data.formats.folder:read_folder"
OWN = "silohash.data.formats.native:read_own"


def open_archive(name: str | None, path: Path | None = None, *, options: Mapping[str, object] | None = None) -> Archive:
    """Opens an archive by its name, or a user's own folder by its path.

    Args:
        name: one of `ARCHIVES`, or None.
        path: a folder with ``metadata.csv``, ``.jsonl`` or ``.parquet``, or one that silohash wrote (with
            ``manifest.json``), or None.
        options: the archive's own options, as ``{"faces": 1}`` for ``glyphs``.

    Raises:
        UserError: if not exactly one of name and path is given, the name or an option is unknown, or the archive cannot
            be read.
    """
    if (name is None) == (path is None):
        given = "neither" if name is None else f'both name = "{name}" and path = "{path}"'
        raise UserError(f"An archive is opened by a name or by a path; there is {given}. Set one of the two in [data].")
    if name is not None and name not in ARCHIVES:
        raise UserError(
            f'There is no archive "{name}"{suggestion(name, ARCHIVES)}; there are: {", ".join(ARCHIVES)}. '
            "Set path instead of name for a folder of your own."
        )
    module, _, attribute = (_folder_reader(path) if name is None else ARCHIVES[name]).partition(":")
    function = getattr(importlib.import_module(module), attribute)
    called = f'The archive "{name}"' if name is not None else "A folder"
    arguments = _checked(called, inspect.signature(function), dict(options or {}))
    archive: Archive = function(**arguments) if path is None else function(Path(path), **arguments)
    return archive


def summary_of(name: str) -> str:
    """Returns the first sentence of a named archive's own description."""
    module, _, attribute = ARCHIVES[name].partition(":")
    function = getattr(importlib.import_module(module), attribute)
    return (inspect.getdoc(function) or "").split("\n\n")[0].replace("\n", " ")


def named_or_folder(archive: str, options: Mapping[str, object] | None = None) -> Archive:
    """Opens the archive of that name, else the folder at that path.

    Raises:
        UserError: if there is neither, or it has no such option.
    """
    if archive in ARCHIVES:
        return open_archive(archive, options=options)
    if not Path(archive).exists():
        raise UserError(
            f'"{archive}" is neither an archive{suggestion(archive, ARCHIVES)} nor a folder that is there. '
            f"The archives are: {', '.join(ARCHIVES)}."
        )
    return open_archive(None, Path(archive), options=options)


def _folder_reader(path: Path | None) -> str:
    if path is None or not (Path(path) / "manifest.json").is_file():
        return FOLDER
    return OWN if importlib.import_module("silohash.data.formats.native").is_own(Path(path)) else FOLDER


def _checked(called: str, signature: inspect.Signature, options: dict[str, Any]) -> dict[str, Any]:
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in signature.parameters.values()):
        return options  # its layout's reader has options of its own, and says which
    known = [name for name, parameter in signature.parameters.items() if parameter.kind is parameter.KEYWORD_ONLY]
    for option in options:
        if option not in known:
            has = f"its options are: {', '.join(known)}" if known else "it has none"
            raise UserError(f'{called} has no option "{option}"{suggestion(option, known)}; {has}.')
    return options
