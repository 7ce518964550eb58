"""A virtual environment that holds what `pip install .` installs: silohash and its dependencies, without or with extras.

Tests have no package index, so the environment links to the packages that are installed here. A package that is not a
dependency, or a dependency of one, cannot be imported there and has no metadata, as if it were not installed.
"""

from __future__ import annotations

import tomllib
import venv
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from itertools import chain
from pathlib import Path

from packaging.requirements import Requirement


def plain_install(folder: Path, repository: Path, *, extras: Iterable[str] = ()) -> Path:
    """Create the environment in a folder, with some extras of silohash, and return its Python."""
    venv.create(folder, with_pip=False, symlinks=True)
    (packages,) = (folder / "lib").glob("python*/site-packages")
    project = tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [project["dependencies"], *(project["optional-dependencies"][extra] for extra in extras)]
    for found in closure(chain.from_iterable(wanted)):
        for name in {Path(file).parts[0] for file in found.files or ()} - {"..", "__pycache__"}:
            (packages / name).symlink_to(Path(str(found.locate_file(name))))
    (packages / "silohash.pth").write_text(f"{repository / 'src'}\n")
    about = packages / "silohash-0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: silohash\nVersion: {project['version']}\n")
    return folder / "bin" / "python"


def closure(requirements: Iterable[str]) -> Iterator[Distribution]:
    """Yield the distributions that some requirements need here, each once."""
    waiting, seen = [Requirement(text) for text in requirements], set[str]()
    while waiting:
        needed = waiting.pop()
        wanted = [{"extra": extra} for extra in (*needed.extras, "")]
        try:
            found = distribution(needed.name)
        except PackageNotFoundError:
            continue  # needed only on another system
        if found.name not in seen:
            seen.add(found.name)
            yield found
        for text in found.requires or ():
            requirement = Requirement(text)
            marker = requirement.marker
            if requirement.name not in seen and (marker is None or any(marker.evaluate(extra) for extra in wanted)):
                waiting.append(requirement)
