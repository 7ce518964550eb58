"""Families of named things (local methods, federated methods, ...), resolved when they are asked for.

A family's ``__init__.py`` holds a literal table ``name -> "module:Class"``; other packages add to it by an entry point
in the family's group (``silohash.local``, ``silohash.federated``).
"""

from __future__ import annotations

import ast
import difflib
import importlib
import importlib.util
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from silohash.types import MethodCard, UserError


def suggestion(name: str, known: Iterable[str]) -> str:
    """Returns `` (did you mean "x"?)`` for the known name nearest to a mistyped one, or an empty string.

    Example:
        >>> suggestion("dcmhh", ["dcmh", "csq"])
        ' (did you mean "dcmh"?)'
    """
    near = difflib.get_close_matches(name, list(known), n=1)
    return f' (did you mean "{near[0]}"?)' if near else ""


@dataclass(frozen=True)
class Registry:
    """A family of classes by name.

    Attributes:
        family: what a member is called in messages, as "local method".
        group: the entry-point group by which other packages add members.
        table: the members that silohash brings, name -> "module:Class".
    """

    family: str
    group: str
    table: Mapping[str, str] = field(default_factory=dict)

    def targets(self) -> dict[str, str]:
        """Returns every member as name -> "module:Class", ours first."""
        found = dict(self.table)
        for point in entry_points(group=self.group):
            found.setdefault(point.name, point.value)
        return found

    def names(self) -> list[str]:
        """Returns the members' names."""
        return list(self.targets())

    def target(self, name: str) -> tuple[str, str]:
        """Returns (module, class) of a member.

        Raises:
            UserError: if there is no such member; names the nearest.
        """
        targets = self.targets()
        if name not in targets:
            raise UserError(
                f'There is no {self.family} "{name}"{suggestion(name, targets)}; there are: {", ".join(targets)}.'
            )
        module, _, attribute = targets[name].partition(":")
        return module, attribute

    def resolve(self, name: str) -> Any:  # noqa: ANN401  a class of the family
        """Imports and returns a member's class.

        Raises:
            UserError: if there is no such member, it cannot be imported (what it needs is not installed, or it is broken),
                or the cards of its module have other keys.
        """
        module, attribute = self.target(name)
        imported = self._imported(name)
        keys = [card.key for card in _cards_of(imported)]
        if keys and name not in keys:
            raise UserError(
                f'The {self.family} "{name}" has a card with another key in {module}: "{", ".join(keys)}". '
                "Give card and entry point (or table) the same name, or remove the package that adds it."
            )
        try:
            return getattr(imported, attribute)
        except AttributeError as error:
            raise UserError(
                f'The {self.family} "{name}" should be "{attribute}" in {module}, which has none. '
                "Repair or remove the package that adds it."
            ) from error

    def card(self, name: str) -> MethodCard:
        """Returns a member's card without importing its module where the card is a literal there.

        Raises:
            UserError: if there is no such member, or it has no card.
        """
        module, _ = self.target(name)
        card = None
        with suppress(UserError), self._explained(name):  # what is wrong is said when it is imported
            spec = importlib.util.find_spec(module)
            card = _literal_card(Path(spec.origin), name) if spec is not None and spec.origin is not None else None
        card = card or next((c for c in _cards_of(self._imported(name)) if c.key == name), None)
        if card is None:
            raise UserError(
                f'{module} has no MethodCard with the key "{name}", so the {self.family} cannot be described. '
                "Add one there."
            )
        return card

    def _imported(self, name: str) -> ModuleType:
        module, _ = self.target(name)
        with self._explained(name):
            return importlib.import_module(module)

    @contextmanager
    def _explained(self, name: str) -> Iterator[None]:
        """Turns whatever another's module raises on import into a sentence that says what to do."""
        module, _ = self.target(name)
        try:
            yield
        except ImportError as error:
            raise UserError(
                f'The {self.family} "{name}" could not be loaded from {module} ({error}). '
                "Install what it needs (pip install 'silohash[train]'), or remove the package that adds it."
            ) from error
        except Exception as error:
            raise UserError(
                f'The {self.family} "{name}" is broken: importing {module} raises {type(error).__name__} ({error}). '
                "Repair or remove the package that adds it."
            ) from error


def _literal_card(path: Path, key: str) -> MethodCard | None:
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "MethodCard":
            try:
                fields = {k.arg: ast.literal_eval(k.value) for k in value.keywords if k.arg}
            except ValueError:
                continue
            if fields.get("key") == key:
                return MethodCard(**fields)
    return None


def _cards_of(module: object) -> list[MethodCard]:
    return [value for value in vars(module).values() if isinstance(value, MethodCard)]
