"""Read the icons of each library from the files of its package: names, words, categories and drawings."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

Files: TypeAlias = Mapping[str, bytes]
"""The content of a package's files by their paths. A library with words from elsewhere has the files of both packages."""

OTHER_STYLE = re.compile("-(24px|negative|outline|rounded|sharp)$")
BRANDS = {"brand", "brand / logo"}
FLAGS, COMPONENTS = 9, 2
"""Groups of emoji that are left out: flags, and parts such as skin tones."""

PHOSPHOR_ENTRY = re.compile(
    r'\bname: "(?P<name>[^"]+)";.*?\bcategories: readonly \[(?P<categories>[^\]]*)\];'
    r".*?\btags: readonly \[(?P<tags>[^\]]*)\];",
    re.DOTALL,
)
AWESOME_CATEGORY = re.compile(r"^\S+:\n  icons:\n(?P<icons>(?:    - .+\n)+)  label: (?P<label>.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Icon:
    """An icon of a library.

    Attributes:
        title: Its name as words, ``words_of`` it for comparisons.
        tags: Its tags, aliases or keywords.
        categories: Its categories, which are no part of its text.
        svg: Its drawing.
    """

    silo: str
    name: str
    title: str
    tags: tuple[str, ...]
    categories: tuple[str, ...]
    svg: str

    @property
    def key(self) -> str:
        """The icon's identity among all libraries."""
        return f"{self.silo}/{self.name}"

    @property
    def text(self) -> str:
        """The words of the name and then of the tags, each once."""
        return " ".join(dict.fromkeys(word for part in (self.title, *self.tags) for word in words_of(part)))


@dataclass(frozen=True)
class Library:
    """A library: its packages with the paths of the files that are read, and the reader of these files.

    Attributes:
        color: Whether its icons are drawn in color.
    """

    packages: Mapping[str, str]
    read: Callable[[str, Files], Iterator[Icon]]
    color: bool = False


def words_of(text: str) -> list[str]:
    """Return the words of a text in lowercase.

    Example:
        >>> words_of("woman’s ice-cream_2")
        ['womans', 'ice', 'cream', '2']
    """
    return re.findall(r"[^\W_]+", re.sub("['’]", "", text.lower()))


def _tabler(silo: str, files: Files) -> Iterator[Icon]:
    for name, entry in _json(files, "icons.json").items():
        style = "outline" if "outline" in entry["styles"] else "filled"
        if entry["category"].lower() not in BRANDS:
            svg = files[f"icons/{style}/{name}.svg"].decode()
            yield Icon(silo, name, name, tuple(map(str, entry["tags"])), (entry["category"],), svg)


def _lucide(silo: str, files: Files) -> Iterator[Icon]:
    for name, tags in _json(files, "tags.json").items():
        yield Icon(silo, name, name, tuple(tags), (), files[f"icons/{name}.svg"].decode())


def _phosphor(silo: str, files: Files) -> Iterator[Icon]:
    for entry in PHOSPHOR_ENTRY.finditer(files["dist/icons.d.ts"].decode()):
        name, categories = entry["name"], tuple(re.findall(r"\.(\w+)", entry["categories"]))
        tags = tuple(tag for tag in re.findall('"([^"]+)"', entry["tags"]) if not tag.startswith("*"))
        if BRANDS.isdisjoint(map(str.lower, categories)):
            yield Icon(silo, name, name, tags, categories, files[f"assets/regular/{name}.svg"].decode())


def _mdi(silo: str, files: Files) -> Iterator[Icon]:
    entries = {entry["name"]: entry for entry in _json(files, "meta.json") if not entry["deprecated"]}
    for name, entry in entries.items():
        first = name.removesuffix("-outline")
        if BRANDS.isdisjoint(map(str.lower, entry["tags"])) and (first == name or first not in entries):
            svg = files[f"svg/{name}.svg"].decode()
            yield Icon(silo, name, name, tuple(entry["aliases"]), tuple(entry["tags"]), svg)


def _awesome(silo: str, files: Files) -> Iterator[Icon]:
    categories: dict[str, list[str]] = defaultdict(list)
    for found in AWESOME_CATEGORY.finditer(files["metadata/categories.yml"].decode()):
        for name in re.findall(r"- ['\"]?([\w-]+)", found["icons"]):
            categories[name].append(found["label"])
    for name, entry in _json(files, "metadata/icon-families.json").items():
        drawn = (files.get(f"svgs/{style}/{name}.svg") for style in ("solid", "regular"))
        if svg := next(filter(None, drawn), b""):
            terms = tuple(map(str, entry["search"]["terms"]))
            yield Icon(silo, name, name, terms, tuple(categories[name]), svg.decode())


def _iconify(silo: str, files: Files) -> Iterator[Icon]:
    """Read a set in the form of Iconify that has names and perhaps categories, without its further styles."""
    drawings, categories = _drawings(files), defaultdict(list)
    for category, names in _json(files, "metadata.json").get("categories", {}).items():
        for name in names:
            categories[name].append(category)
    for name, svg in drawings.items():
        first = name
        while OTHER_STYLE.search(first):
            first = OTHER_STYLE.sub("", first)
        if (first == name or first not in drawings) and not name.startswith("abstract-"):
            yield Icon(silo, name, name, (), tuple(categories[name]), svg)


def _emoji(silo: str, files: Files) -> Iterator[Icon]:
    """Read a set of emoji. Its words are those of emojilib, or else those of emojibase, which also has the categories."""
    drawings = _drawings(files)
    names = {_code(code): name for code, name in _json(files, "chars.json").items()}
    subgroups = {one["order"]: one["key"] for one in _json(files, "en/messages.json")["subgroups"]}
    keywords = {
        _code("-".join(f"{ord(character):x}" for character in emoji)): tuple(words)
        for emoji, words in _json(files, "dist/emoji-en-US.json").items()
    } if "dist/emoji-en-US.json" in files else {}  # fmt: skip
    for entry in _json(files, "en/data.json"):
        code, group = _code(entry["hexcode"]), entry.get("group", COMPONENTS)
        name = names.get(code, "")
        if name in drawings and group not in {FLAGS, COMPONENTS}:
            title, tags = (name, keywords.get(code, ())) if keywords else (entry["label"], tuple(entry.get("tags", ())))
            yield Icon(silo, name, title, tags, (subgroups[entry["subgroup"]],), drawings[name])


def _drawings(files: Files) -> dict[str, str]:
    """Return the drawings of a set in the form of Iconify by their names."""
    content = _json(files, "icons.json")
    found = {}
    for name, icon in content["icons"].items():
        if not icon.get("hidden"):
            box = [icon.get(side, content.get(side, usual)) for side, usual in BOX.items()]
            view = " ".join(map(str, box))
            found[name] = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{view}">{icon["body"]}</svg>'
    return found


BOX = {"left": 0, "top": 0, "width": 16, "height": 16}
"""Sides of a drawing's box in the form of Iconify, and their values where none is stated."""


def _code(code: str) -> str:
    """Return the code points of an emoji without those that only choose how it is shown."""
    return "-".join(point for point in code.lower().split("-") if point != "fe0f")


def _json(files: Files, name: str) -> Any:  # noqa: ANN401  any JSON value
    return json.loads(files[name]) if name in files else {}


def _iconify_package(name: str, extra: str = "metadata") -> dict[str, str]:
    return {f"@iconify-json/{name}": rf"(icons|{extra})\.json"}


EMOJIBASE = {"emojibase-data": r"en/(data|messages)\.json"}
LIBRARIES: Mapping[str, Library] = {
    "tabler": Library({"@tabler/icons": r"icons\.json|icons/(outline|filled)/.+\.svg"}, _tabler),
    "lucide": Library({"lucide-static": r"tags\.json|icons/.+\.svg"}, _lucide),
    "phosphor": Library({"@phosphor-icons/core": r"dist/icons\.d\.ts|assets/regular/.+\.svg"}, _phosphor),
    "mdi": Library({"@mdi/svg": r"meta\.json|svg/.+\.svg"}, _mdi),
    "fontawesome": Library(
        {
            "@fortawesome/fontawesome-free": r"metadata/(icon-families\.json|categories\.yml)|svgs/(solid|regular)/.+\.svg"
        },
        _awesome,
    ),
    "material": Library(_iconify_package("material-symbols"), _iconify),
    "game-icons": Library(_iconify_package("game-icons"), _iconify),
    "healthicons": Library(_iconify_package("healthicons"), _iconify),
    "noto": Library(_iconify_package("noto", "chars") | EMOJIBASE, _emoji, color=True),
    "fluent-emoji": Library(
        _iconify_package("fluent-emoji-flat", "chars") | EMOJIBASE | {"emojilib": r"dist/emoji-en-US\.json"},
        _emoji,
        color=True,
    ),
}
"""The libraries in the order of the items."""
