"""Symbolic links in a user's folder that lead out of it, which are followed only with permission."""

import os
from pathlib import Path

from silohash.base.errors import NotPermitted

PERMIT = "Set follow_links = true in [data], or use --follow-links"


class Boundary:
    """Tell which files of a folder really lie in it. The folder itself may be a link."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)
        self._base = os.path.realpath(folder)
        self._known: dict[str, bool] = {}

    def contains(self, name: str) -> bool:
        """Return whether no link on the way to a file, given relative to the folder, leads out of the folder."""
        path = os.path.join(self._folder, name)  # noqa: PTH118  called once per picture
        if os.path.islink(path):  # noqa: PTH114
            return self._inside(path)
        parent = os.path.dirname(path)  # noqa: PTH120
        if parent not in self._known:
            self._known[parent] = self._inside(parent)
        return self._known[parent]

    def _inside(self, path: str) -> bool:
        return os.path.commonpath([self._base, os.path.realpath(path)]) == self._base


def check_link(folder: Path, name: str, *, follow_links: bool) -> None:
    """Check that a file of a folder does not lead out of it by a link, unless that is permitted.

    A name that states itself that it lies elsewhere is not a link.

    Raises:
        UserError: If the file leads out of the folder.
    """
    stated = Path(name).is_absolute() or Path(os.path.normpath(name)).parts[:1] == (os.pardir,)
    if not follow_links and not stated and not Boundary(folder).contains(name):
        target = os.path.realpath(folder / name)
        raise NotPermitted(f"{folder / name} is a link to {target}, outside the folder. {PERMIT} to read it.")
