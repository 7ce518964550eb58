"""The reasons for which silos are missing from an answer."""

from typing import Literal, Self, TypeAlias

MissingKind: TypeAlias = Literal[
    "late", "skipped", "not_connected", "no_bus", "unknown", "invalid", "failed", "limited", "no_code", "refused",
    "contradiction", "excluded", "flood", "overload",
]  # fmt: skip
"""Kinds of reasons for which a silo is missing from an answer.

``late``: it did not answer before the deadline. ``skipped``: it missed earlier ones, and has not answered since.
``not_connected``: it is not connected to the bus. ``no_bus``: the hub is not connected to the bus. ``unknown``: it is not
part of the federation. ``invalid``: its answer cannot be used. ``failed``: an unexpected error. ``limited``: the asker has
reached a limit of its policy. ``no_code``: the query has no code for its model. ``refused``: any other reason that the silo
gave. ``contradiction``: its distances contradict each other. ``excluded``: an administrator of the hub has excluded it.
``flood``: it sent more answers than it was asked for. ``overload``: reading its answers takes too much time.
"""


class Reason(str):
    """The reason for which a silo is missing from an answer: a sentence for people, and its kind for metrics.

    Attributes:
        kind: Kind of the reason.
    """

    __slots__ = ("kind",)
    kind: MissingKind

    def __new__(cls, text: str, kind: MissingKind) -> Self:
        """Return a text as a reason of a kind."""
        reason = super().__new__(cls, text)
        reason.kind = kind
        return reason


def kind_of(reason: str) -> MissingKind:
    """Return the kind of a reason. A text without a kind was given by a silo.

    Example:
        >>> kind_of(Reason("It did not answer within 5 seconds.", "late")), kind_of("Its policy forbids it.")
        ('late', 'refused')
    """
    return reason.kind if isinstance(reason, Reason) else "refused"
