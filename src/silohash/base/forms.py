"""Check the form of what is read from a file, and explain in one sentence what is wrong with the file.

Every reader of a file does its work within `reading`. A file of JSON is compared with a form: any type that pydantic
understands, such as a dataclass, a model or ``list[str]``.
"""

import csv
import json
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast, get_args

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from safetensors import SafetensorError

from silohash.base.errors import DamagedFile, MissingFile, OtherVersion, UnreadableFile, UserError, WrongKindOfPath
from silohash.base.visible import visible

T = TypeVar("T")
_DOCUMENT: TypeAdapter[Any] = TypeAdapter(Any, config=ConfigDict(cache_strings="keys", ser_json_inf_nan="constants"))

AGAIN = "Remove it and run the command again."
INTERRUPTED = "Was the run interrupted before it was written?"
REINSTALL = "Install silohash again."
LONGEST_DETAIL = 200
"""Most characters of an error's text that a message repeats."""

MALFORMED = (
    ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RuntimeError, MemoryError, EOFError,
    SyntaxError, csv.Error, struct.error, tokenize.TokenError, zipfile.BadZipFile, zlib.error, SafetensorError,
)  # fmt: skip
"""What parsers raise for damaged content. The reader's own code must be simple enough not to raise them otherwise."""


@contextmanager
def reading(path: Path, *, remedy: str = AGAIN, missing: str = INTERRUPTED) -> Iterator[None]:
    """Translate any error of reading a file into a sentence that names the file.

    Raises:
        UserError: If the file is missing, may not be read, is a folder, or does not have the expected form. It says what to
            do about a damaged file (``remedy``) or a missing one.
    """
    try:
        if path.is_dir():
            raise WrongKindOfPath(f"{path} is a folder, and a file is expected there. {remedy}")
        yield
    except FileNotFoundError as error:
        raise MissingFile(f"{path} is missing. {missing}") from error
    except OSError as error:
        raise UnreadableFile(f"{path} could not be read ({error.strerror or error}).") from error
    except ValidationError as error:
        raise damaged(path, fault(error), remedy) from error
    except MALFORMED as error:
        raise damaged(path, detail(error), remedy) from error


def damaged(where: Path | str, what: str, remedy: str = AGAIN) -> UserError:
    """Return the error of a file, or of a line of it, whose content is not usable."""
    return DamagedFile(f"{where} is damaged or has another format ({what}). {remedy}")


def check_version(where: Path, found: int, version: int, remedy: str = "Use the silohash that wrote it.") -> None:
    """Check the version of a format.

    Raises:
        UserError: If it is another one than this silohash reads.
    """
    if found != version:
        raise OtherVersion(f"{where} has format version {found}, and this silohash reads version {version}. {remedy}")


def detail(error: BaseException) -> str:
    """Return an error's text on one line, with invisible characters shown as their code points, cut to a readable length."""
    if isinstance(error, UnicodeDecodeError):
        return f"it is not UTF-8 text: byte {error.object[error.start]:#04x} at position {error.start}"
    if isinstance(error, KeyError) and " " not in str(error):
        return f"{error} is missing"
    plain = visible(" ".join(str(error).split()).rstrip(".")) or type(error).__name__
    return plain if len(plain) <= LONGEST_DETAIL else f"{plain[:LONGEST_DETAIL]}…"


def fault(error: ValidationError) -> str:
    """Return the first thing that does not have the expected form: its place, what is expected, and the value seen."""
    first = error.errors(include_url=False, include_context=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    message = first["msg"].removeprefix("Value error, ")
    value = first.get("input")
    scalar = isinstance(value, str | int | float | bool | None) and first["type"] not in {"missing", "json_invalid"}
    seen = f", got {value!r}"[:LONGEST_DETAIL] if scalar else ""
    return detail(ValueError(f"{place}{': ' if place else ''}{message[:1].lower()}{message[1:]}{seen}"))


def of_json(content: bytes | str, form: type[T]) -> T:
    """Return a JSON document that has a form. Numbers are not taken from strings, nor truth values from numbers.

    Raises:
        pydantic.ValidationError: If the document is not JSON, or does not have the form.
    """
    document: T = _adapter(cast(Hashable, form)).validate_json(content, strict=True)
    return document


def any_json(content: bytes) -> Any:  # noqa: ANN401  a document of any form
    """Return a JSON document.

    Raises:
        ValueError: If it is not JSON.
    """
    try:
        return _DOCUMENT.validate_json(content)
    except ValueError:  # the fast parser does not take halves of surrogate pairs
        return json.loads(content)


def json_line(value: object) -> bytes:
    """Return a value of JSON's types as a document on one line."""
    try:
        return _DOCUMENT.dump_json(value)
    except ValueError:  # as in `any_json`
        return json.dumps(value).encode()


def of_value(value: object, form: type[T]) -> T:
    """Return a value, such as a parsed TOML file, that has a form.

    Raises:
        pydantic.ValidationError: If it does not have the form.
    """
    found: T = _adapter(cast(Hashable, form)).validate_python(value)
    return found


def located(loc: Sequence[int | str], model: type[BaseModel]) -> tuple[FieldInfo | None, type[BaseModel] | None]:
    """Return the field at a location that pydantic states, and the model of its table; None where there is none."""
    field, table = None, cast("type[BaseModel] | None", model)
    for part in loc:
        if isinstance(part, str):
            fields = table.model_fields if table else {}
            field = fields.get(part) or next((each for each in fields.values() if each.alias == part), None)
            table = model_in(field.annotation) if field else table
    return field, table


def model_in(annotation: Any) -> type[BaseModel] | None:  # noqa: ANN401  a type
    """Return the model in an annotation such as ``Model | None`` or ``tuple[Model, ...]``, if there is one."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for found in map(model_in, get_args(annotation)) if found), None)


@cache
def _adapter(form: Hashable) -> TypeAdapter[Any]:
    return TypeAdapter(cast(Any, form))
