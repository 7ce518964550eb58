"""Kinds of bad input as rows of tables: how to make it, the command that meets it, and the words of its refusal.

A row's files lie in a folder of its own, which is the current folder of the command. It holds what the row names: ``run``
(trained, measured, indexed), ``other`` (a second run), ``archive`` (a user's folder), ``native`` (an imported archive),
``run.toml`` (a config for ``archive``) and ``study.toml``.
"""

from __future__ import annotations

import hashlib
import io
import re
import shutil
import sqlite3
import zipfile
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tomlkit

from silohash.data.formats.native import write_native
from silohash.report.finish import finish_run
from silohash.run.folder import Run
from silohash.run.indexing import index_run
from tests.archives import made_up_archive
from tests.runs import Said, tiny, train, write_archive
from tests.served import npy
from tests.studies import tiny_study

QUICK = {"federated": {"rounds": 2, "local_epochs": 1}, "evaluate": {"measures": ["mAP@all"]}}
ITEMS = ("run", "other", "archive", "native", "run.toml", "study.toml")

Make = Callable[[Path], None]


@dataclass(frozen=True)
class Bad:
    """One kind of bad input.

    Attributes:
        name: what is bad, for the report of the test.
        command: the command, without ``silohash``; paths are relative to the row's folder.
        says: words that the refusal contains.
        make: makes the bad input in the row's folder.
        needs: what the folder must hold although neither the command nor the config names it.
        ends: the exit code. It is 0 where the rest can be answered, and what cannot is named on standard error.
    """

    name: str
    command: tuple[str, ...]
    says: tuple[str, ...]
    make: Make = lambda folder: None
    needs: tuple[str, ...] = ()
    ends: int = 2

    def items(self) -> set[str]:
        """Return what the row's folder must hold."""
        named = {part.split("/")[0] for part in self.command} | set(self.needs)
        return {item for item in ITEMS if item in named} | ({"archive"} if "run.toml" in named else set())


def write_originals(folder: Path) -> None:
    """Write one intact item of each kind."""
    archive = write_archive(folder / "archive", text="words", count=48)
    for name in ("run", "other"):
        run = train(archive, folder / name, partition={"silos": 2}, **QUICK)
        finish_run(run)
    index_run(Run(folder / "run"))
    write_native(folder / "native", made_up_archive(20))
    (folder / "run.toml").write_text(tomlkit.dumps(tiny(Path("archive"), **QUICK)))
    (folder / "study.toml").write_text(tomlkit.dumps(tiny_study(Path("archive"))))


def copy_items(originals: Path, folder: Path, items: Iterable[str]) -> None:
    """Copy some items into a row's folder."""
    for item in items:
        source = originals / item
        (shutil.copytree if source.is_dir() else shutil.copyfile)(source, folder / item)


def tree(folder: Path) -> Mapping[str, str]:
    """Return the digest of every file below a folder, by its path; "folder" for folders."""
    return {
        path.relative_to(folder).as_posix(): "folder" if path.is_dir() else hashlib.md5(path.read_bytes()).hexdigest()  # noqa: S324
        for path in sorted(folder.rglob("*"))
    }


def assert_refused(said: Said, *parts: str) -> str:
    """Check the form of a refusal and return its sentence."""
    assert said.code == 2, said
    assert said.out == ""
    assert "Traceback" not in said.err
    found = re.search(r"^silohash: (?:.|\n  )*\n  \[(?!user-error)[a-z-]+\]\n\Z", said.err, re.MULTILINE)
    assert found, said.err
    sentence = found[0]
    for part in parts:
        assert part in sentence, sentence
    return sentence


def assert_answered_without(said: Said, *parts: str) -> None:
    """Check the form of an answer from which something is missing."""
    assert (said.code, bool(said.out)) == (0, True), said
    sentence = next(line for line in said.err.splitlines() if "did not answer" in line)
    for part in parts:
        assert part in sentence, sentence


# --- ways to damage a file ---


def put(path: str, content: bytes | str) -> Make:
    """Return a function that writes a file, in place of the one that is there."""

    def write(folder: Path) -> None:
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content.encode() if isinstance(content, str) else content)

    return write


def changed(path: str, change: Callable[[bytes], bytes]) -> Make:
    """Return a function that changes the content of a file."""
    return lambda folder: (folder / path).write_bytes(change((folder / path).read_bytes())) and None


def replaced(path: str, old: str, new: str) -> Make:
    """Return a function that replaces the last occurrence of a text in a file."""

    def replace(content: bytes) -> bytes:
        before, found, after = content.rpartition(old.encode())
        assert found, (path, old)
        return before + new.encode() + after

    return changed(path, replace)


def removed(*paths: str) -> Make:
    """Return a function that removes files and folders."""

    def remove(folder: Path) -> None:
        for path in paths:
            target = folder / path
            shutil.rmtree(target) if target.is_dir() else target.unlink()

    return remove


def folder_instead(path: str) -> Make:
    """Return a function that puts a folder in the place of a file."""

    def make(folder: Path) -> None:
        (folder / path).unlink(missing_ok=True)
        (folder / path).mkdir(parents=True)

    return make


def both(*makes: Make) -> Make:
    """Return a function that calls others one after the other."""

    def make(folder: Path) -> None:
        for each in makes:
            each(folder)

    return make


def sql(path: str, *statements: str) -> Make:
    """Return a function that changes an SQLite file."""

    def execute(folder: Path) -> None:
        with closing(sqlite3.connect(folder / path)) as connection, connection:
            for statement in statements:
                connection.execute(statement)

    return execute


def a_zip() -> bytes:
    """Return a zip archive of arrays, as `numpy.savez` writes it."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("x.npy", npy(np.zeros(3)))
    return stream.getvalue()


def npy_header(descr: str, shape: str, data: bytes = bytes(64)) -> bytes:
    """Return an ``.npy`` file with a header as given."""
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode() + data


def safetensors(header: str, data: bytes = bytes(64), size: int | None = None) -> bytes:
    """Return a safetensors file with a header as given."""
    return (len(header) if size is None else size).to_bytes(8, "little") + header.encode() + data


def cut(content: bytes) -> bytes:
    """Return the first half."""
    return content[: len(content) // 2]
