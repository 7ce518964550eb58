"""The languages of the pages. Their texts are in ``messages``, a file per language, under the same names.

Errors, and what silos say, are English sentences. They are recognized by their forms in the English file, and a sentence
that is not in it is marked as English.
"""

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from fastapi import Request
from markupsafe import Markup

from silohash.base.visible import visible

MESSAGES = Path(__file__).parent / "messages"
CODES = ("en", "de", "zh")
PARAMETER, COOKIE = "lang", "silohash-language"
COOKIE_SECONDS = 365 * 86_400
AMOUNT = re.compile(r"[0-9][0-9,]*(\.[0-9]+)?( [kMG]?B)?")
RANGE = re.compile(r"(?:^|,)\s*([a-zA-Z]+)[^,;]*(?:;\s*q=([01](?:\.[0-9]{0,3})?))?")


@dataclass(frozen=True)
class Language:
    """A language of the pages. It is called with the name of a text and with values for its fields.

    Attributes:
        code: The code of the language, as in the attribute ``lang`` of HTML.
        texts: The texts by name, such as ``search.try``. One with a number has a form per plural.
    """

    code: str
    texts: Mapping[str, str | Mapping[str, str]]

    def __call__(self, name: str, /, **values: object) -> str:
        """Return a text. Whole numbers are written as in the language, and ``count`` chooses the plural."""
        text = self.texts[name]
        if not isinstance(text, str):
            text = text["one" if values.get("count") == 1 and "one" in text else "other"]
        shown = {key: self.number(value) if isinstance(value, int) else value for key, value in values.items()}
        if any(isinstance(value, Markup) for value in shown.values()):
            text = Markup(text)  # noqa: S704  texts of this package, which escape the values
            shown = {key: value if isinstance(value, Markup) else visible(str(value)) for key, value in shown.items()}
        return text.format(**shown)

    def number(self, value: float, form: str = ",") -> str:
        """Return a number in a format, with the separators of the language."""
        return self.separated(format(value, form))

    def separated(self, text: str) -> str:
        """Return a text in which a number is written as in English, with the separators of the language."""
        return text.translate(
            str.maketrans(",.", f"{self.texts['language.thousands']}{self.texts['language.decimal']}")
        )

    def sentence(self, text: str) -> str:
        """Return English sentences of other parts of silohash in the language. The others are marked as English."""
        if self.code == CODES[0] or not text:
            return text
        found = ((name, form.match(text)) for name, form in _forms())
        name, match = next(((name, match) for name, match in found if match), ("", None))
        if match is None:
            return Markup('<span lang="en">{}</span>').format(visible(text))
        values = {
            key: self.separated(each) if AMOUNT.fullmatch(each) else each for key, each in match.groupdict().items()
        }
        if "reason" in values:
            values["reason"] = self.sentence(values["reason"])
        parts = (self(name, **values), self.sentence(text[match.end() :].strip()))
        return Markup(" ").join(each if isinstance(each, Markup) else visible(each) for each in parts if each)

    @cached_property
    def script(self) -> Mapping[str, str | Mapping[str, str]]:
        """The texts that the scripts of the page show, by names without ``script.``."""
        return {name[7:]: text for name, text in self.texts.items() if name.startswith("script.")}


@cache
def language(code: str) -> Language:
    """Return a language by its code, one of `CODES`."""
    tables = tomllib.loads((MESSAGES / f"{code}.toml").read_text(encoding="utf-8"))
    return Language(code, {f"{table}.{name}": text for table, texts in tables.items() for name, text in texts.items()})


def language_of(request: Request) -> Language:
    """Return the language that a request asks for: by its address, its cookie, or its header; English if there is none."""
    asked = (request.query_params.get(PARAMETER), request.cookies.get(COOKIE), *_accepted(request))
    return language(next((code for code in asked if code in CODES), CODES[0]))


def _accepted(request: Request) -> list[str]:
    """Return the languages that a browser accepts, the preferred ones first."""
    ranges = RANGE.findall(request.headers.get("accept-language", ""))
    weighed = sorted(((float(weight or 1), name.lower()) for name, weight in ranges), key=lambda each: -each[0])
    return [name for weight, name in weighed if weight > 0]


@cache
def _forms() -> Iterable[tuple[str, re.Pattern[str]]]:
    """Return the name and the form of each known sentence."""
    field = re.compile(r"\\{(\w+)\\}")
    texts = {name: str(text) for name, text in language(CODES[0]).texts.items() if name.startswith("sentences.")}
    ends = {name: r"\Z" if text.endswith("}") else r"(?=\s|\Z)" for name, text in texts.items()}
    forms = {name: field.sub(r"(?P<\1>.+?)", re.escape(text)) + ends[name] for name, text in texts.items()}
    return [(name, re.compile(form, re.DOTALL)) for name, form in forms.items()]
