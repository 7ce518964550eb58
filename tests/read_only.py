"""Programs that run while folders are mounted read-only, which binds root as well."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

MOUNT = """
set -e
for folder in $FOLDERS; do
    mount --bind "$folder" "$folder"
    mount -o remount,bind,ro "$folder"
done
exec "$@"
"""


def python_on_read_only(folders: list[Path], program: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a Python program in a mount namespace in which the folders are read-only; skip the test without namespaces.

    Args:
        folders: the folders, whose paths must not contain spaces.
        program: the source of the program.
        arguments: its arguments.
    """
    if shutil.which("unshare") is None or shutil.which("mount") is None:
        pytest.skip("unshare and mount are not installed")
    namespace = ["unshare", "--map-root-user", "--mount"]
    if subprocess.run([*namespace, "mount", "-t", "tmpfs", "none", str(folders[0])], capture_output=True).returncode:
        pytest.skip("the system does not permit a mount namespace")
    mount = MOUNT.replace("$FOLDERS", " ".join(map(str, folders)))
    command = [*namespace, "sh", "-c", mount, "sh", sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)
