"""Packages that only some commands need, and the sentence that says how to install a missing one."""

import importlib.util
import logging
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from silohash.base.errors import DependencyMissing

_PACKAGES = tomllib.loads(Path(__file__).with_name("packages.toml").read_text(encoding="utf-8"))
EXTRAS: Mapping[str, str] = {name: extra for extra, names in _PACKAGES["extras"].items() for name in names}
"""The extra of silohash that installs each optional package, by the name under which the package is imported."""
USES: Mapping[str, str] = _PACKAGES["uses"]
"""What each package that ``silohash doctor`` lists is needed for, by its name in the package index."""


def installed(package: str) -> bool:
    """Return whether a package can be imported. It is not imported."""
    return importlib.util.find_spec(package) is not None


def require(package: str, task: str) -> None:
    """Check that a package of `EXTRAS` is installed, which a task such as ``Training`` needs.

    Raises:
        UserError: If it is missing.
    """
    if not installed(package):
        raise DependencyMissing(sentence(package, task))


def sentence(package: str, task: str) -> str:
    """Return the sentence that names a missing package and the command that installs it.

    Example:
        >>> sentence("torch", "Training")
        "Training needs torch, which is not installed: pip install 'silohash[train]'"
    """
    return f"{task} needs {package}, which is not installed: pip install 'silohash[{EXTRAS[package]}]'"


def missing_package(error: ImportError) -> str | None:
    """Return the optional package that an import did not find, or None if the error has another cause."""
    name = (error.name or "").partition(".")[0]
    return name if isinstance(error, ModuleNotFoundError) and name in EXTRAS else None


@contextmanager
def only_errors(logger: str) -> Iterator[None]:
    """Let a package's logger report nothing but errors while the block runs."""
    found = logging.getLogger(logger)
    level = found.level
    found.setLevel(logging.ERROR)
    try:
        yield
    finally:
        found.setLevel(level)
