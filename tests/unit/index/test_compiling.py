"""The cache of compiled loops where the usual folders cannot be written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.whole_run

pytest.importorskip("numba")

PROGRAM = """
import sys
from pathlib import Path
import numba
from numba.core import caching
from silohash.index import compiling

if sys.argv[1] == "refused":
    for locator in caching.CacheImpl._locator_classes:  # numba's list of places
        if not locator.__name__.endswith("UserProvidedCacheLocator"):
            locator.from_function = classmethod(lambda cls, function, file: None)
for _ in range(2):
    compiling.provide_cache()
print(numba.config.CACHE_DIR)
if numba.config.CACHE_DIR:
    about = Path(numba.config.CACHE_DIR).stat()
    print(oct(about.st_mode & 0o777))

@numba.njit(cache=True)
def one():
    return 1

numba.njit(cache=True)(compiling._sample)()
"""


@pytest.mark.parametrize("folders", ["refused", "writable"])
def test_loops_are_compiled_whether_or_not_the_usual_folders_can_be_written(tmp_path: Path, folders: str) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    environment.pop("NUMBA_CACHE_DIR", None)
    done = subprocess.run(
        [sys.executable, program, folders], capture_output=True, text=True, env=environment, timeout=600
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    if folders == "writable":
        assert lines == [""]
    else:
        assert Path(lines[0]).parent == tmp_path
        assert lines[1] == "0o700"
        assert not Path(lines[0]).exists(), "the folder is removed at the end of the process"
