"""Files are whole or not there, and a damaged one is named."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from silohash.base import files
from silohash.base.errors import (
    AlreadyExists,
    DamagedFile,
    DiskFull,
    ForeignFiles,
    InvalidFile,
    MissingFile,
    ReadableByOthers,
    UnwritableFile,
    WrongKindOfPath,
)
from silohash.base.files import read_bytes
from silohash.base.forms import MALFORMED
from silohash.base.types import Arrays

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that takes the bytes and has no room for them when they must be on it."""

    def fsync(_: int) -> None:
        raise FULL

    monkeypatch.setattr(os, "fsync", fsync)


def test_text_is_written_and_replaced(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "words.txt"
    files.write_text(path, "größer\n")
    files.write_text(path, "kleiner\n")
    assert path.read_text(encoding="utf-8") == "kleiner\n"
    assert names(path.parent) == ["words.txt"]


def test_private_file_is_never_readable_by_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its mode is that of an open file, before it gets its name, and afterwards."""
    modes: list[int] = []
    sync = os.fsync

    def noting(descriptor: int) -> None:
        modes.append(stat.S_IMODE(os.fstat(descriptor).st_mode))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", noting)
    before = os.umask(0o022)
    try:
        for path, private in ((tmp_path / "secret", True), (tmp_path / "open", False)):
            files.write_bytes(path, b"x", private=private)
            modes.append(stat.S_IMODE(path.stat().st_mode))
    finally:
        os.umask(before)
    assert modes == [0o600, 0o600, 0o644, 0o644]


def test_a_secret_is_private_and_a_loose_one_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "keys" / "north.key"
    files.write_secret(path, b"x")
    assert [stat.S_IMODE(place.stat().st_mode) for place in (path, path.parent)] == [0o600, 0o700]
    files.check_private(path)
    with pytest.raises(UnwritableFile):
        files.write_secret(path, b"y")
    for mode in (0o640, 0o604, 0o610, 0o620, 0o601):
        path.chmod(mode)
        with pytest.raises(ReadableByOthers, match=rf"chmod 600 {path}"):
            files.check_private(path)
    path.chmod(0o440)
    if path.stat().st_uid == 0:
        monkeypatch.setattr(os, "geteuid", lambda: 1000)
        files.check_private(path)  # a secret that the administrator gives to a container


def test_a_folder_is_made_private_with_all_that_is_in_it(tmp_path: Path) -> None:
    inner, outside = tmp_path / "index" / "north", tmp_path / "outside"
    inner.mkdir(parents=True)
    outside.write_text("x")
    (inner / "image.sqlite").write_text("x")
    (inner / "link").symlink_to(outside)
    outside.chmod(0o644)
    files.make_private(tmp_path / "index")
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (inner.parent, inner, inner / "image.sqlite", outside)]
    assert modes == [0o700, 0o700, 0o600, 0o644]


def test_full_disk_keeps_the_old_file_and_leaves_nothing_beside(tmp_path: Path, full_disk: None) -> None:
    path = tmp_path / "config.json"
    path.write_text("old")
    with pytest.raises(DiskFull, match=r"config\.json"):
        files.write_json(path, {"a": 1})
    assert path.read_text() == "old"
    assert names(tmp_path) == ["config.json"]


@pytest.mark.parametrize("code", [errno.EACCES, errno.EROFS, errno.EPERM])
def test_forbidden_folder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    def mkdir(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(Path, "mkdir", mkdir)
    with pytest.raises(UnwritableFile, match=r"run/a\.txt"):
        files.write_text(tmp_path / "run" / "a.txt", "x")


def test_other_errors_of_the_system_are_not_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fsync(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(OSError, match="Input/output error"):
        files.write_text(tmp_path / "a.txt", "x")
    assert names(tmp_path) == []


def test_a_file_where_a_folder_should_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("a file")
    with pytest.raises(UnwritableFile, match="run"):
        files.write_text(tmp_path / "run" / "a.txt", "x")
    with pytest.raises(UnwritableFile, match="run"), files.folder_beside(tmp_path / "run" / "model"):
        pass


def test_a_folder_where_a_file_should_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.json").mkdir()
    with pytest.raises(UnwritableFile, match=r"a\.json"):
        files.write_json(tmp_path / "a.json", {})
    with pytest.raises(WrongKindOfPath, match=r"a\.json"):
        files.read_json(tmp_path / "a.json", dict[str, Any])
    with pytest.raises(WrongKindOfPath, match=r"a\.json"):
        files.read_arrays(tmp_path / "a.json")
    assert names(tmp_path) == ["a.json"]


def test_two_threads_may_write_one_file(tmp_path: Path) -> None:
    path = tmp_path / "codes.bin"
    contents = [bytes([letter]) * 200_000 for letter in b"ab"]
    failed: list[BaseException] = []

    def write(content: bytes) -> None:
        try:
            for _ in range(20):
                files.write_bytes(path, content)
        except BaseException as error:  # a thread's error would be lost
            failed.append(error)

    threads = [threading.Thread(target=write, args=(content,)) for content in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert path.read_bytes() in contents
    assert names(tmp_path) == ["codes.bin"]


def test_json_keeps_its_values_and_one_form(tmp_path: Path) -> None:
    files.write_json(tmp_path / "a.json", {"b": [1, 2.5, None], "a": "ö"})
    files.write_json(tmp_path / "b.json", {"a": "ö", "b": [1, 2.5, None]})
    assert files.read_json(tmp_path / "a.json", dict[str, Any]) == {"a": "ö", "b": [1, 2.5, None]}
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()


@pytest.mark.parametrize("content", [b"", b'{"a": ', b"\xff\xfe", b"\x00" * 64])
def test_damaged_json_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(DamagedFile, match=r"a\.json"):
        files.read_json(tmp_path / "a.json", dict[str, Any])


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(MissingFile, match=r"a\.json"):
        files.read_json(tmp_path / "a.json", dict[str, Any])
    with pytest.raises(MissingFile, match=r"a\.safetensors"):
        files.read_arrays(tmp_path / "a.safetensors")


ARRAYS: Arrays = {
    "float": np.arange(6, dtype=np.float32).reshape(2, 3),
    "transposed": np.arange(6, dtype=np.float64).reshape(2, 3).T,
    "scalar": np.array(7, dtype=np.int64),
    "empty": np.zeros((0, 4), dtype=np.uint8),
    "flags": np.array([True, False]),
    "words": np.array([[2**64 - 1]], dtype=np.uint64),
    "half": np.array([0.5, -0.0], dtype=np.float16),
}


def test_arrays_come_back_bit_for_bit_with_type_and_shape(tmp_path: Path) -> None:
    path = tmp_path / "state.safetensors"
    files.write_arrays(path, ARRAYS, {"round": 3, "silos": ["a", "ö"]})
    arrays, about = files.read_arrays(path)
    assert about == {"round": 3, "silos": ["a", "ö"]}
    assert arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert (arrays[name].dtype, arrays[name].shape) == (array.dtype, array.shape), name
        assert arrays[name].tobytes() == array.tobytes(), name


def test_no_arrays_and_no_words_about_them(tmp_path: Path) -> None:
    files.write_arrays(tmp_path / "a.safetensors", {})
    assert files.read_arrays(tmp_path / "a.safetensors") == ({}, {})


def test_arrays_cut_off_anywhere_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "state.safetensors"
    files.write_arrays(path, ARRAYS, {"round": 3})
    whole = path.read_bytes()
    for length in (0, 1, 7, 8, 20, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(DamagedFile, match=r"state\.safetensors"):
            files.read_arrays(path)


def test_a_pickle_is_no_arrays(tmp_path: Path) -> None:
    (tmp_path / "a.safetensors").write_bytes(b"\x80\x04\x95\x0b\x00\x00\x00\x00\x00\x00\x00\x8c\x07builtin\x94.")
    with pytest.raises(DamagedFile, match="damaged"):
        files.read_arrays(tmp_path / "a.safetensors")


def test_folder_appears_whole_and_replaces_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "model"
    for content in ("first", "second"):
        with files.folder_beside(path) as beside:
            (beside / content).write_text(content)
            assert beside != path
        assert names(path) == [content]
    assert names(tmp_path) == ["model"]


def test_folder_replaces_a_file_of_its_name(tmp_path: Path) -> None:
    (tmp_path / "model").write_text("a file")
    with files.folder_beside(tmp_path / "model") as beside:
        (beside / "a").write_text("x")
    assert names(tmp_path / "model") == ["a"]
    assert names(tmp_path) == ["model"]


def test_interrupted_folder_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "model"
    path.mkdir()
    (path / "old").write_text("old")

    def interrupted() -> None:
        with files.folder_beside(path) as beside:
            (beside / "half").write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert names(path) == ["old"]
    assert names(tmp_path) == ["model"]


@pytest.mark.parametrize(
    ("owner", "name", "left"), [(Path, "replace", ["old"]), (shutil, "rmtree", ["new"]), (files, "_remove", ["new"])]
)
def test_folder_is_whole_although_it_is_interrupted_while_it_is_put_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: object, name: str, left: list[str]
) -> None:
    """Ctrl-C falls at the end of the first renaming, or at the beginning of the first removal."""
    path, function, calls = tmp_path / "model", getattr(owner, name), []
    path.mkdir()
    (path / "old").write_text("old")

    def interrupted(*given: object, **options: object) -> object:
        calls.append(given)
        if len(calls) > 1:
            return function(*given, **options)
        if name == "replace":
            function(*given, **options)
        raise KeyboardInterrupt

    def replaced() -> None:
        with files.folder_beside(path) as beside:
            (beside / "new").write_text("new")
            monkeypatch.setattr(owner, name, interrupted)

    with pytest.raises(KeyboardInterrupt):
        replaced()
    assert names(path) == left
    assert names(tmp_path) == ["model"]


def test_folder_that_is_in_place_stays_although_its_renaming_is_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, rename = tmp_path / "model", Path.replace
    path.mkdir()
    (path / "old").write_text("old")

    def replace(self: Path, target: Path) -> Path:
        found = rename(self, target)
        if (found / "new").exists():
            raise KeyboardInterrupt
        return found

    monkeypatch.setattr(Path, "replace", replace)
    with pytest.raises(KeyboardInterrupt), files.folder_beside(path) as beside:
        (beside / "new").write_text("new")
    assert names(path) == ["new"]
    assert names(tmp_path) == ["model"]


def test_folder_that_cannot_be_put_in_place_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model"
    path.mkdir()
    (path / "old").write_text("old")
    rename = Path.replace

    def replace(self: Path, target: Path) -> Path:
        if target == path and (self / "new").exists():
            raise FULL
        return rename(self, target)

    monkeypatch.setattr(Path, "replace", replace)
    with pytest.raises(DiskFull), files.folder_beside(path) as beside:
        (beside / "new").write_text("new")
    assert names(path) == ["old"]
    assert names(tmp_path) == ["model"]


def test_full_disk_inside_a_folder_leaves_the_old_one(tmp_path: Path, full_disk: None) -> None:
    path = tmp_path / "model"
    path.mkdir()
    (path / "old").write_text("old")
    with pytest.raises(DiskFull), files.folder_beside(path) as beside:
        files.write_text(beside / "new", "new")
    assert names(path) == ["old"]
    assert names(tmp_path) == ["model"]


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="there is no /proc")
@pytest.mark.parametrize("path", ["/proc/no-such/run/a.txt", "/proc/no-such.txt"])
def test_place_that_takes_no_files_is_named(path: str) -> None:
    with pytest.raises(UnwritableFile, match=str(path)):
        files.write_text(Path(path), "x")


def test_missing_file_is_no_folder_that_may_not_be_written(tmp_path: Path) -> None:
    """Readers say themselves what a missing file means, and one from elsewhere is not this folder's fault."""
    for missing in (tmp_path / "a.txt", tmp_path / "elsewhere" / "b.txt"):
        with pytest.raises(FileNotFoundError), files.explaining_disk_errors(tmp_path / "a.txt"):
            missing.read_text()


@pytest.mark.whole_run
def test_really_full_disk(tmp_path: Path) -> None:
    """A disk of 64 KiB in a mount namespace of its own, where the system permits one."""
    work = (
        "import pathlib, sys; from silohash.base import files; from silohash.base.errors import UserError\n"
        "path = pathlib.Path(sys.argv[1]) / 'a.bin'\n"
        "files.write_bytes(path, b'a' * 30_000)\n"
        "try:\n    files.write_bytes(path, b'b' * 60_000)\n"
        "except UserError as error:\n    print(error)\n"
        "print(path.read_bytes() == b'a' * 30_000, [p.name for p in path.parent.iterdir()])\n"
    )
    mount = 'mount -t tmpfs -o size=64k none "$1" && exec "$2" -c "$3" "$1"'
    if shutil.which("unshare") is None or shutil.which("mount") is None:
        pytest.skip("unshare and mount are not there")
    namespace = ["unshare", "--map-root-user", "--mount"]
    if subprocess.run([*namespace, "mount", "-t", "tmpfs", "none", str(tmp_path)], capture_output=True).returncode:
        pytest.skip("the system permits no mount namespace")
    done = subprocess.run(
        [*namespace, "sh", "-c", mount, "sh", str(tmp_path), sys.executable, work], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    said, kept = done.stdout.splitlines()
    assert said.startswith("The disk is full: ")
    assert kept == "True ['a.bin']"


def test_digests_tell_contents_apart(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * ((1 << 20) + 1))
    assert files.digest_file(tmp_path / "a") == files.digest_bytes(b"x" * ((1 << 20) + 1))
    assert files.digest_bytes(b"") != files.digest_bytes(b"\x00")
    assert files.digest_json({"a": 1, "b": 2}) == files.digest_json({"b": 2, "a": 1})
    assert files.digest_json({"a": 1}) != files.digest_json({"a": "1"})


def test_array_digest_sees_names_types_shapes_and_values() -> None:
    base = np.arange(6, dtype=np.int32)
    different: list[Arrays] = [
        {"a": base},
        {"b": base},
        {"a": base.astype(np.int64)},
        {"a": base.astype(">i4")},
        {"a": base.view(np.float32)},
        {"a": base.reshape(2, 3)},
        {"a": base.reshape(3, 2)},
        {"a": base[::-1]},
        {"a": base, "b": base},
        {"a": np.array(1)},
        {"a": np.array([1])},
        {"a": np.zeros((0, 2))},
        {"a": np.zeros((0, 3))},
        {"a": np.array(["x", "yy"])},
        {},
    ]
    assert len({files.digest_arrays(arrays) for arrays in different}) == len(different)
    assert files.digest_arrays({"b": base, "a": base}) == files.digest_arrays({"a": base, "b": base})
    assert files.digest_arrays({"a": base.reshape(2, 3)}) == files.digest_arrays(
        {"a": np.asfortranarray(base.reshape(2, 3))}
    )


def test_json_is_indented_and_sorted(tmp_path: Path) -> None:
    files.write_json(tmp_path / "x.json", {"b": [1], "a": None})
    assert (tmp_path / "x.json").read_text() == '{\n "a": null,\n "b": [\n  1\n ]\n}\n'


def test_generated_files_of_an_earlier_call_are_removed_and_others_stay(tmp_path: Path) -> None:
    for name in ("first.csv", "second.csv", "mine.txt"):
        (tmp_path / name).write_text(name)
    files.note_written(tmp_path, [tmp_path / "second.csv", tmp_path / "first.csv"])
    assert files.read_json(tmp_path / files.WRITTEN, list[str]) == ["first.csv", "second.csv"]
    files.note_written(tmp_path, [tmp_path / "second.csv"])
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([files.WRITTEN, "mine.txt", "second.csv"])
    files.note_written(tmp_path, [])
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([files.WRITTEN, "mine.txt"])


def test_nothing_is_recorded_where_nothing_was_generated(tmp_path: Path) -> None:
    files.note_written(tmp_path, [])
    assert list(tmp_path.iterdir()) == []


def test_a_record_removes_nothing_outside_its_folder(tmp_path: Path) -> None:
    (tmp_path / "outside.txt").write_text("mine")
    (tmp_path / "study").mkdir()
    files.write_json(tmp_path / "study" / files.WRITTEN, ["../outside.txt"])
    files.note_written(tmp_path / "study", [])
    assert (tmp_path / "outside.txt").exists()


def test_cleaning_up_hides_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(1, "refused")

    monkeypatch.setattr(os, "rmdir", refuse)
    with pytest.raises(KeyError, match="mine"), files.folder_beside(tmp_path / "out"):
        raise KeyError("mine")


def header(descr: str, shape: str) -> bytes:
    """Returns the bytes of an .npy file with a header and nothing after it."""
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "EOF"),
        (b"PK\x03\x04 a zip archive", "magic string"),
        (header("'<f4'", "(1000000000000000, 4)") + bytes(64), "for which the file is too short"),
        (header("'<f4'", "(99999999999999999999999,)"), "for which the file is too short"),
        (header("'<f4'", "(-1, -4)") + bytes(64), "for which the file is too short"),
        (header("'|O'", "(1,)") + bytes(64), "Python objects"),
        (header("'<f4'", "(4,)") + bytes(15), "for which the file is too short"),
        (header("'nonsense'", "(4,)") + bytes(64), "descr is not a valid dtype"),
        (b"\x93NUMPY\x09\x00" + bytes(100), "version"),
    ],
)
def test_arrays_whose_header_does_not_hold_are_refused(content: bytes, says: str, tmp_path: Path) -> None:
    path = tmp_path / "vector.npy"
    path.write_bytes(content)
    for mapped in (False, True):
        with pytest.raises(DamagedFile, match=rf"vector\.npy.*{says}"):
            files.read_npy(path, mapped=mapped, remedy="Do this.")
    with pytest.raises(MALFORMED, match=says):
        files.npy_in(content)


def test_a_zip_archive_of_arrays_is_not_an_array(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros(3))
    (tmp_path / "a.npz").rename(tmp_path / "a.npy")
    with pytest.raises(DamagedFile, match=r"a\.npy"):
        files.read_npy(tmp_path / "a.npy")


@pytest.mark.parametrize("array", [np.arange(6.0).reshape(2, 3), np.zeros((0, 3)), np.array("a"), np.array(["ü", "b"])])
def test_arrays_come_back(array: np.ndarray, tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", array)
    for mapped in (False, True):
        found = files.read_npy(tmp_path / "a.npy", mapped=mapped)
        assert found.dtype == array.dtype
        assert np.array_equal(found, array)
    assert np.array_equal(files.npy_in((tmp_path / "a.npy").read_bytes()), array)


def test_toml_and_text_with_and_without_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    for mark in (b"", b"\xef\xbb\xbf"):
        path.write_bytes(mark + 'a = "ü"\r\nb = 1\n'.encode())
        assert files.read_toml(path) == {"a": "ü", "b": 1}
        assert files.read_text(path).startswith('a = "ü"')
    for content, says in ((b"\xff\xfea", "not UTF-8 text: byte 0xff at position 0"), (b"a =", "Invalid value"),
                          (b"a = " + b"[" * 10_000, "recursion")):  # fmt: skip
        path.write_bytes(content)
        with pytest.raises(InvalidFile, match=rf"(?i)a\.toml.*{says}.*Correct"):
            files.read_toml(path, remedy="Correct it.")
    path.write_bytes(b"\xff\xfea")
    with pytest.raises(DamagedFile, match=r"a\.toml.*damaged"):
        files.read_text(path)
    for read in (files.read_text, files.read_toml):
        with pytest.raises(MissingFile, match="Write"):
            read(tmp_path / "none", missing="Write it.")
        with pytest.raises(WrongKindOfPath):
            read(tmp_path)


@pytest.mark.parametrize("about", ["[]", "null", "1", "{", '"x"'])
def test_metadata_of_arrays_is_an_object(about: str, tmp_path: Path) -> None:
    from safetensors.numpy import save

    path = tmp_path / "a.safetensors"
    path.write_bytes(save({"x": np.zeros(2)}, metadata={"about": about}))
    with pytest.raises(DamagedFile, match=r"a\.safetensors"):
        files.read_arrays(path)


def test_json_of_another_form_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    for content in ("{}", "[]", "null", "1", '{"a": "1"}', '{"a": [1]}', ""):
        path.write_text(content)
        form = list[int] if content == "{}" else dict[str, int] if content != "[]" else dict[str, str]
        with pytest.raises(DamagedFile, match=r"a\.json"):
            files.read_json(path, form)


DEAD = 2**22 + 1
"""A process number above the largest of Linux."""
MINE = f"{os.getpid()}.{files.WRITER}.1"


@pytest.mark.parametrize(
    "name",
    [f".a.txt.{DEAD}.7.part", f".a.txt.{DEAD}.{files.WRITER}.7.part", f".model.{os.getpid()}.{files.HOST}-1f.7.part"],
    ids=["an old name", "a number that is not in use", "a number that is used again"],
)
@pytest.mark.parametrize("kind", ["file", "folder"])
def test_parts_of_ended_processes_are_removed(tmp_path: Path, name: str, kind: str) -> None:
    if kind == "file":
        (tmp_path / name).write_text("half")
    else:
        (tmp_path / name).mkdir()
        (tmp_path / name / "half").touch()
    files.remove_leftovers(tmp_path)
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    "name",
    [
        f".a.{MINE}.part",
        f".a.{os.getppid()}.7.part",
        f".a.{os.getppid()}.{files.HOST}-1f.7.part",
        f".a.{DEAD}.000000-1f.7.part",
        f"a.{DEAD}.7.part",
        f".a.{DEAD}.part",
        f".a.{DEAD}.7.parts",
        ".part",
    ],
    ids=["this process", "another process", "another process of that number", "another machine", "no dot", "no thread",
         "another ending", "no name"],
)  # fmt: skip
def test_parts_that_may_be_in_use_and_other_files_stay(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mine")
    files.remove_leftovers(tmp_path)
    assert names(tmp_path) == [name]


def test_parts_of_another_machine_are_removed_under_a_lock(tmp_path: Path) -> None:
    (tmp_path / f".a.{os.getppid()}.000000-1f.7.part").touch()
    (tmp_path / f".a.{MINE}.part").touch()
    (tmp_path / f".a.{os.getppid()}.{files.HOST}-1f.7.part").touch()
    files.remove_leftovers(tmp_path, alone=True)
    assert len(names(tmp_path)) == 2


def test_an_interrupted_replacement_is_completed(tmp_path: Path) -> None:
    for kind in ("old", "part"):
        (tmp_path / f".model.{DEAD}.7.{kind}").mkdir()
        (tmp_path / f".model.{DEAD}.7.{kind}" / kind).touch()
    files.remove_leftovers(tmp_path)
    assert names(tmp_path) == ["model"]
    assert names(tmp_path / "model") == ["part"]


def test_a_replaced_folder_is_put_back_if_the_new_one_is_gone(tmp_path: Path) -> None:
    (tmp_path / f".model.{DEAD}.7.old").mkdir()
    files.remove_leftovers(tmp_path)
    assert names(tmp_path) == ["model"]


def test_a_replaced_folder_is_removed_once_the_new_one_is_in_place(tmp_path: Path) -> None:
    (tmp_path / f".model.{DEAD}.7.old").mkdir()
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "new").touch()
    files.remove_leftovers(tmp_path)
    assert names(tmp_path) == ["model"]
    assert names(tmp_path / "model") == ["new"]


def test_leftovers_in_a_folder_that_cannot_be_read_are_ignored(tmp_path: Path) -> None:
    files.remove_leftovers(tmp_path / "missing")
    assert names(tmp_path) == []


@pytest.mark.whole_run
def test_writing_removes_the_leftovers_of_a_killed_process(tmp_path: Path) -> None:
    """A process is killed while it writes a file and a folder, at the moment just before they are put in place."""
    work = (
        "import os, pathlib, signal, sys; from silohash.base import files\n"
        "folder = pathlib.Path(sys.argv[1])\n"
        "pathlib.Path.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        "if sys.argv[2] == 'file':\n    files.write_text(folder / 'a.txt', 'new')\n"
        "with files.folder_beside(folder / 'model') as new:\n    (new / 'weights').touch()\n"
    )
    (tmp_path / "a.txt").write_text("old")
    for kind in ("file", "folder"):
        done = subprocess.run([sys.executable, "-c", work, str(tmp_path), kind], check=False)
        assert done.returncode == -signal.SIGKILL
    assert len(names(tmp_path)) == 2  # the second process has removed what the first left
    files.write_text(tmp_path / "b.txt", "b")
    assert names(tmp_path) == ["a.txt", "b.txt"]
    assert (tmp_path / "a.txt").read_text() == "old"


def test_a_file_is_replaced_only_if_it_has_a_mark(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    files.check_replaceable(path, b"id,code")
    path.touch()
    files.check_replaceable(path, b"id,code")
    far = b"x" * (3 * files.MARKED_BYTES)
    for content in (b"id,code\n1", far + b"id,code", b"id,code" + far, b"theirs, id,code"):
        path.write_bytes(content)
        files.check_replaceable(path, b"other", b"id,code")
    for content in (b"mine", far + b"id,code" + far):
        path.write_bytes(content)
        with pytest.raises(ForeignFiles, match=r"out\.csv"):
            files.check_replaceable(path, b"other", b"id,code")


def test_new_folder_replaces_nothing(tmp_path: Path) -> None:
    for new in (tmp_path / "missing", tmp_path / "empty"):
        files.check_new_folder(new)
        (tmp_path / "empty").mkdir(exist_ok=True)
    (tmp_path / "file").write_text("x")
    for there in (tmp_path, tmp_path / "file"):
        with pytest.raises(AlreadyExists):
            files.check_new_folder(there)


def test_a_folder_is_written_to_if_it_is_empty_or_has_a_mark(tmp_path: Path) -> None:
    files.check_own_folder(tmp_path / "missing", "export.json")
    files.check_own_folder(tmp_path, "export.json")
    (tmp_path / ".hidden").touch()
    files.check_own_folder(tmp_path, "export.json")
    for name in ("b.txt", "a.txt"):
        (tmp_path / name).touch()
    with pytest.raises(ForeignFiles, match=r"a\.txt"):
        files.check_own_folder(tmp_path, "export.json", "other")
    (tmp_path / "export.json").touch()
    files.check_own_folder(tmp_path, "export.json", "other")
    with pytest.raises(UnwritableFile, match="directory"):
        files.check_own_folder(tmp_path / "a.txt", "export.json")


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"content")
    (tmp_path / "link").symlink_to("a")
    assert read_bytes(tmp_path / "link") == b"content"
    for path in (Path("/dev/null"), tmp_path):
        with pytest.raises(OSError, match="is not a regular file"):
            read_bytes(path)
    with pytest.raises(FileNotFoundError):
        read_bytes(tmp_path / "nothing")


def test_sizes_in_words() -> None:
    sizes = {0: "0 B", 999: "999 B", 1000: "1.0 kB", 1_500_000: "1.5 MB", 2_340_000_000: "2.3 GB"}
    assert {size: files.size_in_words(size) for size in sizes} == sizes
