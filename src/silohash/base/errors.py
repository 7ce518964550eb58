"""The errors that a user can fix. Each class means one thing that can be wrong, and has a stable key.

Texts of errors may change; the keys stay. They are printed by the command line and stand in the answers of the HTTP API.
Most classes hold nothing but their text. ``errors.toml`` lists these with their meaning, which is their docstring. A class
that an annotation names is defined here.
"""

import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self

from silohash.base.visible import visible_lines


class UserError(Exception):
    """An error that the user can fix. Its text says what is wrong, which value was found, and what to do.

    The command line prints the text and the key, and exits with status 2. Values in the text may come from files of others,
    so its invisible characters are replaced by their code points. Raise one of the subclasses.

    Attributes:
        key: The stable key of the error, such as ``unknown-name``: the name of its class.
    """

    key: ClassVar[str] = "user-error"

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.key = re.sub(r"(?<!^)(?=[A-Z])", "-", cls.__name__).lower()

    def __init__(self, message: str = "") -> None:
        super().__init__(visible_lines(message))

    def reworded(self, message: str) -> Self:
        """Return an error of the same class with another text."""
        error = type(self).__new__(type(self), visible_lines(message))
        error.__dict__.update(self.__dict__)
        return error


def restored(key: str, message: str) -> UserError | None:
    """Return the error that another process sent as a key and a text, or None if the key is unknown here."""
    kind = {kind.key: kind for kind in UserError.__subclasses__()}.get(key)
    return None if kind is None else kind.__new__(kind, visible_lines(message))


class WrongValue(UserError):
    """A setting of a config has a value that it cannot have. Change it as the message says.

    Attributes:
        setting: The dotted key of the setting.
    """

    def __init__(self, setting: str, message: str) -> None:
        super().__init__(message)
        self.setting = setting


class WrongOverride(UserError):
    """A setting of the command line has a value that it cannot have. Change it as the message says.

    Attributes:
        override: The override, such as ``train.batch=0``.
        reason: What is wrong with it, as a sentence.
    """

    def __init__(self, override: str, reason: str, *, place: str = "--set ") -> None:
        super().__init__(f'{place}"{override}": {reason}')
        self.override = override
        self.reason = reason


class UnknownWords(UserError):
    """No word of a text is known. Use other words, such as those that the message lists."""


class UploadRefused(UserError):
    """An uploaded picture is refused. Send another one.

    Attributes:
        status: HTTP status code of the refusal.
    """

    def __init__(self, message: str, status: int = 422) -> None:
        super().__init__(message)
        self.status = status


if TYPE_CHECKING:

    def __getattr__(name: str) -> type[UserError]:
        """Return a class of ``errors.toml``. A test checks that each name that the source uses is in the file."""

else:
    for _name, _meaning in tomllib.loads(Path(__file__).with_name("errors.toml").read_text(encoding="utf-8")).items():
        globals()[_name] = type(_name, (UserError,), {"__doc__": _meaning, "__module__": __name__})
