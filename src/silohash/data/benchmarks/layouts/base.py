"""A layout: the files that one distributor provides for a data set, and the function that reads them.

A reader's options are described where its `Layout` is made. It raises a `UserError` if an option has no such value, a file
is missing or damaged, or the files do not belong together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from silohash.data.protocols.contents import Contents


@dataclass(frozen=True)
class Need:
    """A file that a layout needs: a glob relative to the data set's folder, and what the file holds. One match is enough."""

    pattern: str
    what: str
    optional: bool = False


@dataclass(frozen=True)
class Layout:
    """A set of files in which a data set is distributed.

    Attributes:
        name: the value of the option ``layout``, such as ``dcmh-mat``.
        summary: one line: who distributes the files and what they hold.
        needs: the files.
        read: called as ``read(root, **options)``.
        options: keyword options of the reader with their meaning.
    """

    name: str
    summary: str
    needs: tuple[Need, ...]
    read: Callable[..., Contents]
    options: Mapping[str, str] = field(default_factory=dict)

    def missing(self, root: Path) -> list[Need]:
        """Return the required files that are not in the folder."""
        return [need for need in self.needs if not need.optional and not any(root.glob(need.pattern))]
