"""Run the unit tests with the lowest or the newest versions of the packages that ``pyproject.toml`` permits.

    python tests/versions.py lowest --python python3.11
    python tests/versions.py newest --python python3.13 --without-torch

Each direct dependency gets the lowest version that it is declared with, or the newest that the package index has. Packages
that only the tests need are always the newest. torch has the version of ``constraints.txt``. The environment is created in
a temporary folder, takes several GiB, and is removed at the end.

Without torch, this file is also a plugin of pytest that skips the tests that need it.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Generator, Iterable, Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement

REPOSITORY = Path(__file__).resolve().parents[1]
APART = {"flower", "dev"}
"""Extras that are not installed: one needs an environment of its own, and of the other only some packages are needed."""
TOOLS = {
    "hatchling",
    "httpx2",
    "hypothesis",
    "ir-measures",
    "packaging",
    "pytest",
    "pytest-timeout",
    "pytest-xdist",
    "pyyaml",
    "trustme",
}
"""The packages of the extra ``dev`` that the tests need which are run here."""
NEEDS_TORCH = ("torch", "silohash[train]", "scikit-learn", "sklearn", "threadpoolctl")


def requirements(project: dict, which: str, *, without_torch: bool, torch: str) -> Iterator[str]:
    """Yield what pip is to install.

    Args:
        project: The table ``project`` of ``pyproject.toml``.
        which: ``lowest`` or ``newest``.
        without_torch: Leave out the extra ``train``.
        torch: The requirement that takes the place of that of torch.
    """
    extras = project["optional-dependencies"]
    left_out = APART | ({"train"} if without_torch else set())
    declared = [project["dependencies"], *(extras[name] for name in extras if name not in left_out)]
    chosen: dict[str, Requirement] = {}
    for requirement in (Requirement(text) for group in declared for text in group):
        if requirement.marker is None or requirement.marker.evaluate():
            held = chosen.setdefault(requirement.name, requirement)
            held.specifier &= requirement.specifier
            held.extras |= requirement.extras
    for requirement in chosen.values():
        if requirement.name == "torch":
            yield torch
        elif which == "lowest":
            yield lowest(requirement)
        else:
            yield str(requirement)
    yield from (text for text in extras["dev"] if Requirement(text).name in TOOLS)
    yield "httpx"  # for the test client of earlier versions of starlette


def lowest(requirement: Requirement) -> str:
    """Return a requirement of exactly the lowest version that another one permits."""
    from packaging.version import Version

    bounds = [Version(bound.version) for bound in requirement.specifier if bound.operator in {">=", "=="}]
    extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
    return f"{requirement.name}{extras}=={max(bounds)}"


def run(which: str, python: str, *, without_torch: bool, tests: Iterable[str]) -> int:
    """Create the environment, run the tests in it, and return their exit code."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pins = (REPOSITORY / "constraints.txt").read_text(encoding="utf-8")
    (torch,) = re.findall(r"^torch==.*$", pins, re.MULTILINE)
    wanted = list(requirements(project, which, without_torch=without_torch, torch=torch))
    with tempfile.TemporaryDirectory(prefix="silohash-versions-") as place:
        folder = Path(place)
        subprocess.run([python, "-m", "venv", folder / "venv"], check=True)
        inside = folder / "venv" / "bin" / "python"
        pip = [inside, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "setuptools", *wanted], check=True)
        subprocess.run([*pip, "--no-deps", "--editable", REPOSITORY], check=True)
        subprocess.run([inside, "-m", "pip", "list", "--disable-pip-version-check"], check=True)
        plugin = ["-p", "tests.versions"] if without_torch else []
        marked = ["-m", "not (slow or whole_run or shared_data)"]
        environment = {**os.environ, "PYTHONPATH": f"{REPOSITORY / 'src'}{os.pathsep}{REPOSITORY}"}
        done = subprocess.run(
            [
                inside,
                "-m",
                "pytest",
                *plugin,
                *marked,
                "--continue-on-collection-errors",
                "--basetemp",
                folder / "tests",
                "-rf",
                *tests,
            ],
            cwd=REPOSITORY,
            env=environment,
        )
    return done.returncode


def _lacks_torch(report: pytest.CollectReport | pytest.TestReport) -> bool:
    return report.failed and any(name in report.longreprtext for name in NEEDS_TORCH)


def _skip(report: pytest.CollectReport | pytest.TestReport) -> None:
    if _lacks_torch(report):
        report.outcome = "skipped"
        report.longrepr = (report.nodeid, 0, "Skipped: needs torch")


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Skip test files that import torch."""
    report = yield
    _skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Skip tests that fail because torch is missing."""
    report = yield
    _skip(report)
    return report


def main() -> int:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("which", choices=["lowest", "newest"])
    parser.add_argument("--python", default=sys.executable, help="the Python to use (default: the one that runs this)")
    parser.add_argument(
        "--without-torch", action="store_true", help="leave out the extra 'train', and skip what needs it"
    )
    parser.add_argument("tests", nargs="*", default=["tests/unit"], help="what to run (default: tests/unit)")
    given = parser.parse_intermixed_args()
    return run(given.which, given.python, without_torch=given.without_torch, tests=given.tests)


if __name__ == "__main__":
    sys.exit(main())
