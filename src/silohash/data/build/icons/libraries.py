"""Read the icons of each library from the files of its package: names, words, categories and drawings."""

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

Files: TypeAlias = Mapping[str, bytes]
"""The content of files by their paths in the packages of a library: its own, and those that have words for it."""

COLORED = ("noto", "fluent-emoji")
"""The libraries that are drawn in color."""

BRANDS = {"Brand", "BRAND", "Brand / Logo"}
FLAGS, COMPONENTS = 9, 2
"""Groups of emoji that are left out: flags, and parts such as skin tones."""

OTHER_STYLE = re.compile("(-(24px|negative|outline|rounded|sharp))+$")
PHOSPHOR_ENTRY = re.compile(
    r'\bname: "([^"]+)";.*?\bcategories: readonly \[([^\]]*)\];.*?\btags: readonly \[([^\]]*)\];', re.DOTALL
)
AWESOME_CATEGORY = re.compile(r"^\S+:\n  icons:\n((?:    - .+\n)+)  label: (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Icon:
    """An icon of a library: its silo, its name there and in words, tags, categories, and its drawing as SVG."""

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
        """The words of the name and then of the tags, each once. Categories are not part of it."""
        return " ".join(dict.fromkeys(word for part in (self.title, *self.tags) for word in words_of(part)))


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
        if entry["category"] not in BRANDS:
            svg = files[f"icons/{style}/{name}.svg"].decode()
            yield Icon(silo, name, name, tuple(map(str, entry["tags"])), (entry["category"],), svg)


def _lucide(silo: str, files: Files) -> Iterator[Icon]:
    for name, tags in _json(files, "tags.json").items():
        yield Icon(silo, name, name, tuple(tags), (), files[f"icons/{name}.svg"].decode())


def _phosphor(silo: str, files: Files) -> Iterator[Icon]:
    for name, listed, tagged in PHOSPHOR_ENTRY.findall(files["dist/icons.d.ts"].decode()):
        categories = tuple(re.findall(r"\.(\w+)", listed))
        tags = tuple(tag for tag in re.findall('"([^"]+)"', tagged) if not tag.startswith("*"))
        if BRANDS.isdisjoint(categories):
            yield Icon(silo, name, name, tags, categories, files[f"assets/regular/{name}.svg"].decode())


def _mdi(silo: str, files: Files) -> Iterator[Icon]:
    entries = {entry["name"]: entry for entry in _json(files, "meta.json") if not entry["deprecated"]}
    for name, entry in entries.items():
        first = name.removesuffix("-outline")
        if BRANDS.isdisjoint(entry["tags"]) and (first == name or first not in entries):
            svg = files[f"svg/{name}.svg"].decode()
            yield Icon(silo, name, name, tuple(entry["aliases"]), tuple(entry["tags"]), svg)


def _awesome(silo: str, files: Files) -> Iterator[Icon]:
    categories: dict[str, list[str]] = defaultdict(list)
    for icons, label in AWESOME_CATEGORY.findall(files["metadata/categories.yml"].decode()):
        for name in re.findall(r"- ['\"]?([\w-]+)", icons):
            categories[name].append(label)
    for name, entry in _json(files, "metadata/icon-families.json").items():
        drawn = (files.get(f"svgs/{style}/{name}.svg") for style in ("solid", "regular"))
        if svg := next(filter(None, drawn), b""):
            terms = tuple(map(str, entry["search"]["terms"]))
            yield Icon(silo, name, name, terms, tuple(categories[name]), svg.decode())


def _iconify(silo: str, files: Files) -> Iterator[Icon]:
    """Read a set in the form of Iconify that has names and perhaps categories; one style of each name."""
    drawings, categories = _drawings(files), defaultdict(list)
    for category, names in _json(files, "metadata.json").get("categories", {}).items():
        for name in names:
            categories[name].append(category)
    for name, svg in drawings.items():
        first = OTHER_STYLE.sub("", name)
        if (first == name or first not in drawings) and not name.startswith("abstract-"):
            yield Icon(silo, name, name, (), tuple(categories[name]), svg)


def _emoji(silo: str, files: Files) -> Iterator[Icon]:
    """Read a set of emoji. Its words are those of emojilib, or else those of emojibase, which also has the categories."""
    drawings, lists = _drawings(files), _json(files, "dist/emoji-en-US.json")
    names = {_code(code): name for code, name in _json(files, "chars.json").items()}
    subgroups = {one["order"]: one["key"] for one in _json(files, "en/messages.json")["subgroups"]}
    keywords = {_code("-".join(f"{ord(point):x}" for point in emoji)): tuple(words) for emoji, words in lists.items()}
    for entry in _json(files, "en/data.json"):
        code = _code(entry["hexcode"])
        name = names.get(code, "")
        if name in drawings and entry.get("group", COMPONENTS) not in {FLAGS, COMPONENTS}:
            title, tags = (name, keywords.get(code, ())) if lists else (entry["label"], tuple(entry.get("tags", ())))
            yield Icon(silo, name, title, tags, (subgroups[entry["subgroup"]],), drawings[name])


def _drawings(files: Files) -> dict[str, str]:
    """Return the drawings of a set in the form of Iconify by their names."""
    content = {"left": 0, "top": 0, "width": 16, "height": 16, **_json(files, "icons.json")}
    found = {}
    for name, icon in content["icons"].items():
        box = " ".join(str(icon.get(side, content[side])) for side in ("left", "top", "width", "height"))
        if not icon.get("hidden"):
            found[name] = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{box}">{icon["body"]}</svg>'
    return found


def _code(code: str) -> str:
    """Return the code points of an emoji without those that only choose how it is shown."""
    return "-".join(point for point in code.lower().split("-") if point != "fe0f")


def _json(files: Files, name: str) -> Any:  # noqa: ANN401  any JSON value
    """Return the content of a JSON file; an empty object if the library does not have it."""
    return json.loads(files.get(name, "{}"))


LIBRARIES: Mapping[str, Callable[[str, Files], Iterator[Icon]]] = {
    "tabler": _tabler, "lucide": _lucide, "phosphor": _phosphor, "mdi": _mdi, "fontawesome": _awesome,
    "material": _iconify, "game-icons": _iconify, "healthicons": _iconify, "noto": _emoji, "fluent-emoji": _emoji,
}  # fmt: skip
"""The reader of each library, in the order of the items."""
