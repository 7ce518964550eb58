"""Families of named classes (local methods, federated methods, ...), which are imported on first use.

A family's ``__init__.py`` holds a literal table ``name -> "module:Class"``. Other packages add members through entry points
in the family's group (``silohash.local``, ``silohash.federated``). They cannot replace a built-in member.
"""

import ast
import difflib
import importlib
import importlib.util
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from silohash.base.errors import BrokenPackage, DependencyMissing, UnknownName, UserError
from silohash.base.optional import missing_package, sentence
from silohash.base.types import MethodCard


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return `` (did you mean "x"?)`` with the known name closest to a mistyped one, or an empty string.

    Example:
        >>> suggestion("dcmhh", ["dcmh", "csq"])
        ' (did you mean "dcmh"?)'
    """
    near = difflib.get_close_matches(name, list(known), n=1)
    return f' (did you mean "{near[0]}"?)' if near else ""


@dataclass(frozen=True)
class AddedMember:
    """A member that an installed package adds to a family, as "module:Class". Package and version may be unknown."""

    name: str
    target: str
    package: str = ""

    @property
    def owner(self) -> str:
        """The package as messages call it."""
        return f'the package "{self.package}"' if self.package else f'the package of "{self.target}"'


@cache
def added_members(group: str) -> tuple[AddedMember, ...]:
    """Return the members that installed packages add to a group; read once per process."""
    return tuple(
        AddedMember(
            point.name, point.value, f"{point.dist.name} {point.dist.version}" if point.dist is not None else ""
        )
        for point in entry_points(group=group)
    )


@dataclass(frozen=True)
class Registry:
    """A family of classes by name: what messages call a member, its group of entry points, and the built-in members."""

    family: str
    group: str
    table: Mapping[str, str] = field(default_factory=dict)

    def targets(self) -> dict[str, str]:
        """Return all members as name -> "module:Class", the built-in ones first."""
        targets = dict(self.table)
        for member in added_members(self.group):
            targets.setdefault(member.name, member.target)
        return targets

    def conflict(self, name: str) -> str:
        """Return what is wrong if installed packages add a member under a name that is taken, or an empty string."""
        added = [member for member in added_members(self.group) if member.name == name]
        if name in self.table and added:
            return (
                f'{_capitalized(added[0].owner)} adds the {self.family} "{name}" ({added[0].target}), which is not used '
                f"because silohash has a {self.family} of that name. Rename its entry point, or remove the package."
            )
        if len({member.target for member in added}) > 1:
            return (
                f'The {self.family} "{name}" is added by {" and by ".join(member.owner for member in added)}. Remove one '
                "of the packages, or rename its entry point."
            )
        return ""

    def names(self) -> list[str]:
        """Return the names of all members."""
        return list(self.targets())

    def target(self, name: str) -> tuple[str, str]:
        """Return the module and the class name of a member.

        Raises:
            UserError: If there is no such member, or if two packages add it. The message suggests the closest name.
        """
        targets = self.targets()
        if name not in targets:
            raise UnknownName(
                f'There is no {self.family} "{name}"{suggestion(name, targets)}. Available: {", ".join(targets)}.'
            )
        if name not in self.table and (conflict := self.conflict(name)):
            raise BrokenPackage(conflict)
        module, _, attribute = targets[name].partition(":")
        return module, attribute

    def resolve(self, name: str) -> Any:  # noqa: ANN401  a class of the family
        """Import and return a member's class.

        Raises:
            UserError: If there is no such member, if its module cannot be imported (a dependency is missing, or the
                module is broken), or if the cards of its module have other keys.
        """
        module, attribute = self.target(name)
        imported = self._imported(name)
        keys = [card.key for card in _cards_of(imported)]
        if keys and name not in keys:
            raise BrokenPackage(
                f'The {self.family} "{name}" has a card with another key in {module}: "{", ".join(keys)}". '
                "Use the same name for the card and the entry point, or remove the package that adds it."
            )
        try:
            return getattr(imported, attribute)
        except AttributeError as error:
            raise BrokenPackage(
                f'The {self.family} "{name}" should be "{attribute}" in {module}, which does not define it. '
                "Repair or remove the package that adds it."
            ) from error

    def card(self, name: str) -> MethodCard:
        """Return a member's card. If the card is a literal, the module is not imported.

        Raises:
            UserError: If there is no such member, or if it has no card.
        """
        module, _ = self.target(name)
        card = None
        # What is wrong with a module that cannot be found is reported by the import below.
        with suppress(UserError), self._explained(name):
            spec = importlib.util.find_spec(module)
            card = _literal_card(Path(spec.origin), name) if spec is not None and spec.origin is not None else None
        card = card or next((c for c in _cards_of(self._imported(name)) if c.key == name), None)
        if card is None:
            raise BrokenPackage(
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
        """Turn any exception that a member's module raises on import into a UserError that says what to do."""
        module, _ = self.target(name)
        owner = next((member.owner for member in added_members(self.group) if member.name == name), "")
        try:
            yield
        except ImportError as error:
            if owner and isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}."):
                raise BrokenPackage(
                    f'{_capitalized(owner)} adds the {self.family} "{name}", but its module {module} does not exist. '
                    "Reinstall or remove the package."
                ) from error
            if package := missing_package(error):
                raise DependencyMissing(sentence(package, f'The {self.family} "{name}"')) from error
            raise BrokenPackage(
                f'The {self.family} "{name}" could not be loaded from {module} ({error}). '
                "Install what it needs (pip install 'silohash[train]'), or remove the package that adds it."
            ) from error
        except Exception as error:
            raise BrokenPackage(
                f'The {self.family} "{name}" is broken: importing {module} raises {type(error).__name__} ({error}). '
                "Repair or remove the package that adds it."
            ) from error


def _capitalized(words: str) -> str:
    return words[:1].upper() + words[1:]


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
