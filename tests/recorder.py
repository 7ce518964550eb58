"""Watch processes for look-ups, connections and files, to test the promises of SECURITY.md.

A Python process is watched by an audit hook (`tests.recording_hook`), also in the processes that it starts. Native code is
watched by strace, if this machine has it and permits tracing. The processes see a home folder, a folder for temporary files
and an environment of their own.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from silohash.index import SERVERS
from tests import recording_hook
from tests.recorded_packages import missing_from

REPOSITORY = Path(__file__).resolve().parent.parent
LIST = "## What is written outside a run"
"""Heading of the section in SECURITY.md whose table lists the files."""
KEPT = (
    "PATH",
    "LANG",
    "LD_LIBRARY_PATH",
    "OMP_NUM_THREADS",
    *(f"SILOHASH_{name.upper()}_URL" for name in SERVERS.table),
)
"""Variables that a watched process inherits. Without any other, libraries do not know that they run in a test or in CI."""
NETWORK = ("connect", "sendto", "sendmsg", "sendmmsg")
OPENED = ("open", "openat", "openat2", "creat")
MADE = {"mkdir": 0, "mkdirat": 0, "rename": 1, "renameat": 1, "renameat2": 1, "link": 1, "linkat": 1, "symlink": 1,
        "symlinkat": 1, "mknod": 0, "mknodat": 0}  # fmt: skip
"""System calls that create a path, and which of their paths it is."""
STRACE = ("strace", "-D", "-f", "-q", "--seccomp-bpf", "-y", "-s", "0", "-e", "signal=none",
          "-e", f"trace={','.join((*NETWORK, *OPENED, *MADE))}")  # fmt: skip
COMMANDS = """
import json, sys
from silohash.cli import main
ended = []
expected = json.loads(sys.argv[2])
for arguments in json.loads(sys.argv[1]):
    sys.argv[1:] = arguments
    try:
        main()
        ended.append(0)
    except SystemExit as end:
        ended.append(end.code or 0)
sys.exit(0 if ended == expected else f"ended with {ended}")
"""
"""Runs commands of silohash, and fails unless they end with the given exit codes."""
RESOLVER = "io.systemd.Resolve"
"""Name of the Unix socket through which systemd looks names up."""
DNS = 53
SENDS_NOTHING = "connection: 10.255.255.255:1"
"""nvflare chooses this peer for a datagram socket and closes it unused, to learn this machine's own address."""
SYSTEM = re.compile("/proc/.*|/dev/(?!shm/).*|/dev/shm/[^/]*")
"""Devices, settings of processes and shared memory, which are not files on a disk."""
END_SECONDS = 300.0

CALL = re.compile(r"(?P<process>\d+) +(?P<name>\w+)\((?P<arguments>.*)\) += (?P<result>-?\d+|\?)(?:<(?P<path>.*)>)?")
RESUMED = re.compile(r"(\d+) +<\.\.\. \w+ resumed>(.*)")
ADDRESS = re.compile(r'htons\((\d+)\).*?inet_(?:addr|pton)\((?:AF_INET6, )?"([^"]+)"')
PATH = re.compile(r'(?:\w+<(?P<folder>[^>]*)>, )?"(?P<name>[^"]*)"')


@cache
def traces() -> bool:
    """Return whether strace is installed and may trace."""
    if shutil.which("strace") is None:
        return False
    done = subprocess.run([*STRACE, "-o", "/dev/stderr", "true"], capture_output=True)
    return done.returncode == 0 and b"exited with 0" in done.stderr


@dataclass(frozen=True)
class Listed:
    """A row of the list in SECURITY.md.

    Attributes:
        pattern: of paths, in the notation of `fnmatch`, where ``~`` is the home folder.
        named: whether the files may hold names of a user's files.
        private: whether only their owner may read them.
    """

    pattern: str
    named: bool
    private: bool


def documented() -> list[Listed]:
    """Return the list of the files that silohash writes outside a run, as SECURITY.md documents it."""
    section = (REPOSITORY / "SECURITY.md").read_text(encoding="utf-8").partition(f"{LIST}\n")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:3] == "| `"]
    return [
        Listed(pattern, named=names != "none", private=mode == "`0600`")
        for files, _, names, mode in rows
        for pattern in re.findall("`([^`]+)`", files)
    ]


class Recorder:
    """Watches the processes of one scenario after another.

    Attributes:
        work: folder of the runs and archives, in which everything may be written.
        home: home folder of the processes.
        names: names of a user's files.
        python: a program that runs Python while it is watched.
    """

    def __init__(self, root: Path, *names: str) -> None:
        self.root, self.names, self.listed = root.resolve(), names, documented()
        self.work, self.home, self.hook, self.traced = (self.root / part for part in ("work", "home", "hook", "traced"))
        for folder in (self.work, self.home, self.hook, self.traced, self.root / "tmp"):
            folder.mkdir(parents=True)
        shutil.copy(recording_hook.__file__, self.hook / "sitecustomize.py")
        self.events = self.hook / "events"
        self.python = self.program("python", sys.executable)

    def program(self, name: str, *command: str | Path, **settings: str) -> str:
        """Return the path of a new program that runs a command while it is watched, with some variables set."""
        path = ":".join(filter(None, (str(self.hook), os.environ.get("PYTHONPATH"), str(REPOSITORY))))
        own = {"HOME": self.home, "TMPDIR": self.root / "tmp", "PYTHONPATH": path, "PYTHONUNBUFFERED": "1", **settings}
        words = ["exec", "env", "-i", *(f"{name}={shlex.quote(str(value))}" for name, value in own.items())]
        words += [f'${{{name}+{name}="${name}"}}' for name in KEPT]
        if traces():
            words += [*map(shlex.quote, STRACE), "-o", f"{shlex.quote(str(self.traced))}/$$"]
        program = self.root / name
        program.write_text(f'#!/bin/sh\n{" ".join(words)} {shlex.join(map(str, command))} "$@"\n')
        program.chmod(0o755)
        return str(program)

    def run(self, *arguments: object, given: str = "") -> subprocess.CompletedProcess[str]:
        """Run Python with some arguments and a standard input in the folder `work`."""
        command = [self.python, *map(str, arguments)]
        return subprocess.run(command, input=given, capture_output=True, text=True, cwd=self.work, timeout=600)

    def silohash(self, *arguments: object, given: str = "", code: int = 0) -> str:
        """Run a command of silohash, check its exit code, and return its standard output."""
        done = self.run("-m", "silohash", *arguments, given=given)
        assert done.returncode == code, done.stderr
        return done.stdout

    def commands(self, *commands: Sequence[object], codes: Sequence[int] | None = None) -> str:
        """Run commands of silohash in one process, which imports packages once, and return their standard output.

        They must end with the exit codes, which are all 0 by default.
        """
        given = json.dumps([[str(word) for word in words] for words in commands])
        done = self.run("-c", COMMANDS, given, json.dumps([0] * len(commands) if codes is None else codes))
        assert done.returncode == 0, done.stderr
        return done.stdout

    @contextmanager
    def scenario(self, *names: str) -> Iterator[None]:
        """Watch the processes of the block, and check what they did, and that they used the packages of the scenarios."""
        self.events.unlink(missing_ok=True)
        for trace in self.traced.iterdir():
            trace.unlink()
        yield
        assert not (said := self.objections()), said
        imported = self.imported()
        assert not (unused := [package for name in names for package in missing_from(name, imported)]), (
            f"unused: {unused}"
        )

    def recorded(self, kind: str) -> list[str]:
        """Return what the audit hook recorded of one kind, in all processes."""
        lines = self.events.read_text().splitlines() if self.events.exists() else []
        return [what for found, what in map(json.loads, lines) if found == kind]

    def imported(self) -> set[str]:
        """Return the top-level modules that were imported."""
        return set(self.recorded("import"))

    def objections(self) -> list[str]:
        """Return what was looked up, connected to or written although it should not have been, after all processes end."""
        self._wait()
        found = [f"{kind}: {what}" for kind in ("look-up", "connection") for what in self.recorded(kind)]
        written = {path for path in map(Path, self.recorded("file")) if os.path.lexists(path)}
        for trace in self.traced.iterdir():
            for name, arguments, path in calls(trace.read_text(errors="replace")):
                if name in NETWORK:
                    found += outside(arguments)
                elif name in OPENED and re.search("O_WRONLY|O_RDWR|O_CREAT", arguments):
                    written.add(Path(path.removesuffix(" (deleted)")))
                elif name in MADE:
                    written.add(self._made(arguments, MADE[name]))
        written |= {path for path in self.home.rglob("*") if not path.is_dir()}
        found += [said for path in sorted(written) for said in self._file(path)]
        return [said for said in dict.fromkeys(found) if said != SENDS_NOTHING]

    def _wait(self) -> None:
        """Wait until the tracers have written what they saw, which they do after the processes end."""
        end = time.monotonic() + END_SECONDS
        while any(str(self.traced).encode() in command for command in command_lines()):
            assert time.monotonic() < end, "a watched process does not end"
            time.sleep(0.02)

    def _made(self, arguments: str, position: int) -> Path:
        """Return the path that a system call creates. Without a folder, it is relative to that in which `run` starts."""
        found = list(PATH.finditer(arguments))[position]
        return self.work / (found["folder"] or "") / found["name"]

    def _file(self, path: Path) -> Iterator[str]:
        """Yield what is wrong about a file that was written."""
        where = Path(os.path.normpath(path))
        if SYSTEM.fullmatch(str(where)) or (where.is_relative_to(self.root) and self.home not in where.parents):
            return
        short = f"~/{where.relative_to(self.home)}" if where.is_relative_to(self.home) else str(where)
        rows = [row for row in self.listed if fnmatch.fnmatchcase(short, row.pattern)]
        folder = f"{short}/"
        if not rows and not any(
            row.pattern.startswith(folder) or fnmatch.fnmatchcase(folder, row.pattern) for row in self.listed
        ):
            yield f"file: {short}"
        if not where.is_file() or not where.is_relative_to(self.home):
            return
        if any(row.private for row in rows) and (where.stat().st_mode | where.parent.stat().st_mode) & 0o077:
            yield f"mode: {short}"
        if not any(row.named for row in rows) and any(name.encode() in where.read_bytes() for name in self.names):
            yield f"name of a user's file: {short}"


def calls(trace: str) -> Iterator[tuple[str, str, str]]:
    """Yield the name, the arguments and the opened path of each system call that strace wrote.

    A connection counts even if it failed or was not awaited. A file counts if it was written.
    """
    begun: dict[str, str] = {}
    for line in trace.splitlines():
        text = line
        if line.endswith(" <unfinished ...>"):
            begun[line.split()[0]] = line.removesuffix(" <unfinished ...>")
            continue
        if resumed := RESUMED.fullmatch(line):
            text = begun.pop(resumed[1], "") + resumed[2]
        found = CALL.match(text)
        if found is not None and (found["name"] in NETWORK or not found["result"].startswith(("-", "?"))):
            yield found["name"], found["arguments"], found["path"] or ""
    yield from ((line.split()[1].partition("(")[0], line, "") for line in begun.values() if f" {NETWORK[0]}(" in line)


def outside(arguments: str) -> Iterator[str]:
    """Yield a look-up or a connection that leads out of this machine, from the arguments of a system call."""
    if RESOLVER in arguments:
        yield f"look-up: through {RESOLVER}"
    for port, host in ADDRESS.findall(arguments):
        if int(port) == DNS:
            yield f"look-up: at {host}:{port}"
        elif recording_hook.leads_out(host):
            yield f"connection: {host}:{port}"


def command_lines() -> Iterator[bytes]:
    """Yield the command lines of all processes of this machine."""
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            yield entry.read_bytes()
        except OSError:
            continue
