"""Trace which files of silohash a value enters: every file that defines a function which is called with the value.

A walk follows *carriers*: the value itself, and everything that is made from it. A file belongs to the walk if one of its
functions or methods is called with a carrier as an argument (``self`` included). Module bodies, class bodies, lambdas and
comprehensions do not count, and neither do calls that only pass plain strings or numbers taken from the value.
"""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FrameType

import silohash

ROOT = Path(silohash.__file__).parent
IMPLICIT = ("__repr__", "__eq__", "__hash__", "__getattr__", "__del__", "__len__")
"""Methods that Python calls on its own."""


class Walk:
    """The files that some carriers enter, in the order in which they are first entered, and every stay in one of them.

    A stay lasts until a function of another file is called with a carrier.

    Args:
        carries: returns whether an argument is a carrier.
        stop: returns whether the walk ends before a call, given its file and function name.
    """

    def __init__(self, carries: Callable[[object], bool], stop: Callable[[str, str], bool] = lambda *_: False) -> None:
        self.files: list[str] = []
        self.stays: list[str] = []
        self.carries = carries
        self.stop = stop
        self.ended = False
        self._begun: dict[int, FrameType] = {}

    def follow(self, task: Callable[[], object]) -> list[str]:
        """Run a task and return the files."""
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)
        try:
            task()
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
        return self.files

    def _profile(self, frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if event != "call" or self.ended or not code.co_filename.startswith(str(ROOT)):
            return
        where = Path(code.co_filename).relative_to(ROOT).as_posix()
        if self.stop(where, code.co_name):
            self.ended = True
            sys.setprofile(None)
        elif code.co_name.startswith("<") or code.co_name in IMPLICIT or self._goes_on(frame):
            return
        elif where not in self.stays[-1:] and any(self.carries(value) for value in arguments(frame)):
            self.stays.append(where)
            if where not in self.files:
                self.files.append(where)

    def _goes_on(self, frame: FrameType) -> bool:
        """Return whether a coroutine goes on after a wait, which Python reports like a call."""
        is_coroutine = frame.f_code.co_flags & inspect.CO_COROUTINE
        if not is_coroutine or id(frame) in self._begun:
            return bool(is_coroutine)
        self._begun[id(frame)] = frame  # the frame is kept, so that no other gets its number
        return False


def arguments(frame: FrameType) -> Iterable[object]:
    """Yield the arguments of a call, including those in sequences and mappings."""
    code = frame.f_code
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    for name in code.co_varnames[:count]:
        value = frame.f_locals.get(name)
        yield value
        if isinstance(value, list | tuple):
            yield from value
        elif isinstance(value, dict):
            yield from value.values()


def folder_of(file: str) -> str:
    """Return the folder of a file within the package; the file itself at the top."""
    return file.partition("/")[0]


def returns(files: Iterable[str]) -> int:
    """Return how often a walk comes back to a folder that it has left.

    Example:
        >>> returns(["cli/train.py", "run/config/load.py", "cli/app.py", "run/config/toml.py"])
        2
    """
    left: set[str] = set()
    here, count = "", 0
    for folder in map(folder_of, files):
        if folder != here:
            count += folder in left
            left.add(here)
            here = folder
    return count
