"""Start the server or a silo of a federation from its kit, and start it again when it dies."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from silohash.base.certificates import ORGANIZATION, Finding
from silohash.base.errors import NotAKit
from silohash.base.files import check_private, explaining_disk_errors, write_json
from silohash.base.types import Notify
from silohash.training.sites import kits
from silohash.training.sites.settings import read_site_settings

ERRORS = "errors.txt"
POLL_SECONDS = 0.5
RESTART_SECONDS = 3.0
STOP_SECONDS = 20.0
CHECK_SECONDS = 30.0

ENDING = ("/bin/sh", "-c", "trap '' TERM; read -r _; kill -KILL 0")
"""The first process of the group of a member's process. When the pipe to it is closed, it kills the group. That also happens
when this process is killed, so that the member's process does not outlive it. FLARE's processes of jobs notice its end."""

LOG = "log.txt"
"""File in the folder of the kit to which FLARE writes its log."""

SLOW_LINKS = {
    "NVFLARE_STREAMING_WINDOW_SIZE": str(16 << 20),
    "NVFLARE_STREAMING_RETRY_WAIT": "120",
    "NVFLARE_STREAMING_RETRY_TIMEOUT": "900",
}
"""How FLARE sends large messages, unless the environment says otherwise: the bytes on their way at a time,
the seconds until those without a receipt are sent again, and the seconds until it gives up.

FLARE's defaults (64 MiB, 5 s, 60 s) send everything again on links below 13 MB/s. This slows them further, until the run
fails. With these values, the bytes on their way arrive in time at 140 kB/s."""


def command_of(kit: Path) -> list[str]:
    """Return the command line of the process of a server's or a silo's kit, in which a server then stores its jobs.

    Raises:
        UserError: If the folder is not the kit of a server or of a silo.
    """
    startup = kit / kits.STARTUP
    if (startup / kits.SERVER_FILE).exists():
        place_storage(kit)
        module, file, settings = "server.server_train", kits.SERVER_FILE, []
    elif (startup / kits.CLIENT_FILE).exists():
        name = read_site_settings(kit / kits.LOCAL / kits.SITE_FILE).silo
        module, file, settings = "client.client_train", kits.CLIENT_FILE, [f"uid={name}"]
    else:
        raise NotAKit(
            f"{kit} is not the kit of a server or of a silo that {kits.ENGINE}. Run: silohash federation kits"
        )
    return [
        sys.executable, "-u", "-m", f"nvflare.private.fed.app.{module}", "-m", str(kit.resolve()), "-s", file,
        "--set", "secure_train=true", f"org={ORGANIZATION}", "config_folder=config", *settings,
    ]  # fmt: skip


def place_storage(kit: Path) -> None:
    """Let a server store its jobs in the folder of its kit, wherever that is now. FLARE asks for absolute paths."""
    path = kit / kits.LOCAL / "resources.json"
    resources = json.loads(path.read_text(encoding="utf-8"))
    storage = kit.resolve() / "storage"
    for component in resources["components"]:
        if component["id"] == "job_manager":
            component["args"]["uri_root"] = str(storage / "jobs")
    resources["snapshot_persistor"]["args"]["storage"]["args"]["root_dir"] = str(storage / "snapshots")
    write_json(path, resources)


def run_member(kit: Path, notify: Notify, stopped: threading.Event | None = None) -> None:
    """Run the process of a kit, and start it again whenever it ends, until Ctrl-C or the event.

    The terminal only shows when it starts and ends. What the process and its children write to standard error is appended
    to ``errors.txt`` in the folder of the kit.

    Raises:
        UserError: If the folder is not the kit of a server or of a silo, or others can read its secret key.
    """
    stopped, command = stopped or threading.Event(), command_of(kit)
    for key in (kit / kits.STARTUP).glob("*.key"):
        check_private(key)
    environment = {**SLOW_LINKS, **os.environ, "PYTHONPATH": os.pathsep.join(part for part in sys.path if part)}
    logs = f"{kit / LOG} and {kit / ERRORS}"
    _tell(kits.certificates(kit), notify)
    threading.Thread(target=_check_server, args=(kit, notify, stopped), daemon=True).start()
    notify(f"{kit.name} runs. Its log is in {logs}.")
    while not stopped.is_set():
        with explaining_disk_errors(kit):
            errors = (kit / ERRORS).open("ab")
        with errors, subprocess.Popen(ENDING, stdin=subprocess.PIPE, process_group=0) as group:
            process = subprocess.Popen(
                command, cwd=kit, env=environment, process_group=group.pid, stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL, stderr=errors,
            )  # fmt: skip
            try:
                while process.poll() is None and not stopped.wait(POLL_SECONDS):
                    pass
            except KeyboardInterrupt:
                stopped.set()
            _end(process, group.pid)
        if not stopped.is_set():
            notify(f"The process ended (exit status {process.returncode}) and starts again. The reason is in {logs}.")
            stopped.wait(RESTART_SECONDS)


@contextmanager
def member_beside(kit: Path, silo: str, notify: Notify) -> Iterator[None]:
    """Run the process of a silo's kit beside the block; other folders are refused.

    Raises:
        UserError: If the folder is not the kit of the silo.
    """
    settings = kit / kits.LOCAL / kits.SITE_FILE
    if not settings.exists() or read_site_settings(settings).silo != silo:
        raise NotAKit(f'{kit} is not the training kit of the silo "{silo}". Set training to the folder of its kit.')
    stopped = threading.Event()
    thread = threading.Thread(target=run_member, args=(kit, notify, stopped), name="training")
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


def _tell(findings: Iterable[Finding], notify: Notify) -> None:
    for finding in findings:
        if not finding.good:
            notify(f"{finding.subject}: {finding.text}")


def _check_server(kit: Path, notify: Notify, stopped: threading.Event) -> None:
    """Report whether the server has a certificate of another authority, as soon as it is there."""
    found = kits.server(kit)
    while any(finding.subject == "server" and not finding.good for finding in found):
        if stopped.wait(CHECK_SECONDS):
            return
        found = kits.server(kit)
    _tell(found, notify)


def _end(process: subprocess.Popen[bytes], group: int) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(group, number)
            process.wait(STOP_SECONDS)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue
