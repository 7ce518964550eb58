"""Another value in place of an error."""

from collections.abc import Callable
from typing import TypeVar

ValueT = TypeVar("ValueT")
OtherT = TypeVar("OtherT")


def attempted(make: Callable[[], ValueT], *errors: type[Exception], otherwise: OtherT) -> ValueT | OtherT:
    """Return what a function returns, or another value if it raises one of some errors."""
    try:
        return make()
    except errors:
        return otherwise
