"""Milvus, which listens on every network interface.

It runs in a network namespace of its own, which has a loopback interface and nothing else, and is reached through a Unix
socket that `milvus_inside` forwards.
"""

from __future__ import annotations

import importlib.util
import lzma
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.servers import short_folder

INSIDE = Path(__file__).with_name("milvus_inside.py")
START_SECONDS = 180


@contextmanager
def started() -> Iterator[str]:
    """Run a Milvus server, and yield its URL. Skip the test if it is not installed, or namespaces are not allowed."""
    pytest.importorskip("pymilvus")
    found = importlib.util.find_spec("milvus")
    if found is None or found.origin is None:
        pytest.skip("Milvus is not installed: the package milvus")
    command = ["unshare", "--map-root-user", "--net"]
    if shutil.which("unshare") is None or subprocess.run([*command, "true"], capture_output=True).returncode:
        pytest.skip("Milvus would listen on every network interface, and this machine does not allow namespaces")
    with short_folder("mv-") as folder:
        programs = unpacked_programs(Path(found.origin).parent / "data")
        write_config(Path(found.origin).parent / "data", folder)
        log = (folder / "log").open("wb")
        server = subprocess.Popen([*command, sys.executable, INSIDE, programs, folder], stdout=log, stderr=log)
        try:
            wait_for(folder / "ready", server, folder / "log")
            yield f"unix:{folder / 'socket'}"
        finally:
            server.terminate()
            server.wait(60)
            log.close()


def unpacked_programs(data: Path) -> Path:
    """Return the folder of the unpacked server and its libraries. They are unpacked once per environment."""
    folder = Path(sys.prefix) / "milvus-programs"
    if not folder.is_dir():
        part = Path(tempfile.mkdtemp(prefix=".milvus-", dir=sys.prefix))
        for packed in (data / "bin").glob("*.lzma"):
            with lzma.open(packed) as source, (part / packed.stem).open("wb") as target:
                shutil.copyfileobj(source, target, 1 << 20)
        (part / "milvus").chmod(0o755)
        try:
            part.rename(folder)
        except OSError:  # another test process was faster
            shutil.rmtree(part)
    return folder


def write_config(data: Path, folder: Path) -> None:
    """Write the config of a server whose files are in a folder, and which applies changes four times as soon as usual."""
    values = {
        "etcd_data_dir": folder / "etcd",
        "etcd_log_path": folder / "etcd.log",
        "etcd_log_level": "warn",
        "local_storage_dir": folder / "storage",
        "rocksmq_data_dir": folder / "rocksmq",
        "system_log_path": "",
    }
    text = (data / "config.yaml.template").read_text(encoding="utf-8")
    filled = re.sub(
        r"\{\{\s*(\w+)(?:\(\w+\))?(?::\s*([^}]*?))?\s*\}\}",
        lambda found: str(values.get(found[1], found[2] or "")),
        text,
    )
    filled = filled.replace("  ip: # if not specify", "  ip: 127.0.0.1 # if not specify")
    filled = filled.replace("  level: info # Only", "  level: warn # Only")
    filled = filled.replace("timeTickInterval: 200", "timeTickInterval: 50")
    (folder / "configs").mkdir()
    (folder / "configs" / "milvus.yaml").write_text(filled, encoding="utf-8")
    shutil.copy(data / "glog.conf", folder / "configs")


def wait_for(path: Path, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until a file exists.

    Raises:
        RuntimeError: if the process ends first, or `START_SECONDS` have passed.
    """
    deadline = time.monotonic() + START_SECONDS
    while not path.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"The server did not start: {log.read_text(errors='replace')[-2000:]}")
        time.sleep(0.1)
