"""The languages of the pages: their files, how one is chosen, and that no page is translated in part."""

from __future__ import annotations

import json
import re
import string
from collections.abc import Mapping
from html.parser import HTMLParser

import pytest
from markupsafe import Markup

from silohash.search import policy
from silohash.search.bus import late
from silohash.search.merge import WAITING
from silohash.service.web import language as languages
from silohash.service.web import pages
from silohash.service.web.language import CODES, COOKIE, Language, language
from silohash.service.web.page_templates import STATIC
from tests.served import MadeUpBackend, client_of, png

ENGLISH, GERMAN, CHINESE = map(language, CODES)
TEMPLATES = STATIC.parent / "templates"
PAGES = (
    "/", "/?q=red&label=red", "/?q=red&silo=north&find=image&where=year%3E%3D1900", "/?browse=1", "/?q=red&within=999",
    "/?like=item-3&of=south&by=text", "/item?silo=south&id=item-3",
    "/item?silo=south&id=item-3&results=q%3Dred%26at%3D4", "/item?silo=south&id=none", "/federation", "/nothing",
)  # fmt: skip
DATA = re.compile(
    r"silohash|red|shapes?|item-\d+|none|north|south|west|within|made-up|dcmh|fedavg|museum|Louvre"
    r"|Orsay, Paris|date|year|labels?|m{8}|CSV|JSON|API|English|Deutsch|中文|GB|MB|kB|mAP|KB|\W|\d|_"
)
"""What a page does not translate: names and values of silos, of items and of methods, units and signs."""


def fields(text: str | Mapping[str, str]) -> list[set[str]]:
    """Return the names of the fields of each form of a text."""
    forms = [text] if isinstance(text, str) else list(text.values())
    return [{name for _, name, *_ in string.Formatter().parse(form) if name} for form in forms]


@pytest.mark.parametrize("other", [GERMAN, CHINESE], ids=["de", "zh"])
def test_all_languages_have_the_same_texts_with_the_same_fields(other: Language) -> None:
    assert [*other.texts] == [*ENGLISH.texts]
    for name, text in other.texts.items():
        known = set().union(*fields(ENGLISH.texts[name]))
        assert all(found <= known for found in fields(text)), name
        assert known - {"count"} <= set.intersection(*fields(text)) | {"count"}, name
        if isinstance(text, Mapping):
            assert {*text} == ({"other"} if other is CHINESE else {"one", "other"}), name
        elif name.split(".")[0] not in ("language",) and DATA.sub("", str(ENGLISH.texts[name])):
            assert text.strip(), name
    same = [name for name, text in other.texts.items() if text == ENGLISH.texts[name] and len(str(text)) > 12]
    assert same == ["filters.condition"]


def test_every_text_is_used_and_every_used_text_exists() -> None:
    sources = [*TEMPLATES.iterdir(), *STATIC.glob("*.js"), STATIC.parent / "cards.py"]
    used = "\n".join(path.read_text(encoding="utf-8") for path in sources)
    named = {*re.findall(r"""\bt\(["']([a-z]+\.[a-z_]+[a-z])["'][,)]""", used)}
    assert len(named) > 90
    assert named <= {*ENGLISH.texts}
    told = {f"script.{name}" for name in re.findall(r"""\bt\("([a-z_]+)"[,)]""", used)}
    assert {"script.copy", "script.late_new"} <= told <= {*ENGLISH.texts}


def test_templates_hold_no_text_of_their_own() -> None:
    not_told = re.compile(
        r"\{% block place %\}\S+?\{% endblock %\}|\{#.*?#\}|\{%.*?%\}|\{\{.*?\}\}|silohash|CSV|JSON|&results=",
        re.DOTALL,
    )
    for path in TEMPLATES.iterdir():
        text = not_told.sub("", path.read_text(encoding="utf-8"))
        told = re.findall(r'(?:aria-label|title|placeholder|alt)="([^"]*)"', text)
        told += re.sub(r"<[^>]*>", "\n", text).split("\n")
        assert not [each for each in told if re.search(r"[A-Za-z]{2}", each)], path.name


class Texts(HTMLParser):
    """Collect what a page shows or tells: its texts, and those of attributes. Texts marked as English are left out."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.english = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.english = tag == "span" and given.get("lang") == "en"
        self.found += [given[name] or "" for name in ("aria-label", "title", "placeholder", "alt") if name in given]

    def handle_endtag(self, tag: str) -> None:
        self.english = False

    def handle_data(self, data: str) -> None:
        if not self.english:
            self.found.append(data)


@pytest.fixture
def backend() -> MadeUpBackend:
    backend = MadeUpBackend(silos=("north", "south", "west"))
    backend.missing = {"west": late(10.0)}
    backend.limited = {"south": policy.NOT_COUNTED}
    backend.unknown_words = ("shape",)
    backend.about = {"rights": "red", "contact": "red"}
    return backend


@pytest.mark.parametrize("path", PAGES)
def test_no_page_is_translated_in_part(backend: MadeUpBackend, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def marked(text: str | Mapping[str, str]) -> str:
        form = text if isinstance(text, str) else text["other"]
        return "".join(part if number % 2 else f"«{part}»" for number, part in enumerate(re.split(r"(\{\w+\})", form)))

    names = {name: text for name, text in ENGLISH.texts.items() if not name.startswith("language.")}
    signs = {name: text for name, text in ENGLISH.texts.items() if name not in names}
    made_up = Language("de", {**{name: marked(text) for name, text in names.items()}, **signs})
    monkeypatch.setattr(languages, "language_of", lambda _: made_up)
    for module in ("pages", "page_templates"):
        monkeypatch.setattr(f"silohash.service.web.{module}.language_of", lambda _: made_up)
    answer = client_of(backend).get(path)
    told = Texts(answer.text).found
    assert any("«" in text for text in told)
    left = [DATA.sub("", re.sub(r"«.*?»", "", text, flags=re.DOTALL)) for text in told]
    assert [text for text in left if text] == []


@pytest.mark.parametrize(
    ("query", "cookie", "header", "code"),
    [
        ("", "", "", "en"),
        ("", "", "fr, de-AT;q=0.8, en;q=0.5", "de"),
        ("", "", "de;q=0.2, zh-CN", "zh"),
        ("", "", "de;q=0, en-GB", "en"),
        ("", "", "de;q=., *;q=.5", "de"),
        ("", "zh", "de", "zh"),
        ("?lang=de", "zh", "en", "de"),
        ("?lang=xx", "xx", "zh", "zh"),
    ],
)
def test_the_language_is_chosen_by_address_cookie_and_header(query: str, cookie: str, header: str, code: str) -> None:
    headers = {"accept-language": header} | ({"cookie": f"{COOKIE}={cookie}"} if cookie else {})
    answer = client_of(MadeUpBackend()).get(f"/{query}", headers=headers)
    assert f'<html lang="{code}">' in answer.text
    assert language(code)("search.with_words") in answer.text
    assert (f"{COOKIE}={code}" in answer.headers.get("set-cookie", "")) == (query == "?lang=de")


def test_the_pages_of_errors_are_translated() -> None:
    client = client_of(MadeUpBackend())
    german = {"accept-language": "de"}
    text = client.get("/item?silo=south&id=none", headers=german).text
    assert "Nicht gefunden" in text
    assert "Das Silo south hat kein Objekt „none“." in text
    text = client.post("/picture", files={"picture_file": png()[:60]}, headers=german).text
    assert "Das hat nicht geklappt" in text
    assert "Das Bild ist beschädigt" in text
    error = client.get("/api/v1/item?silo=south&id=none", headers=german).json()["error"]
    assert "does not have an item" in error["message"], "programs get English"


def test_numbers_and_plurals() -> None:
    assert ENGLISH("search.items", count=1) == "1 item, kept by its own silo."
    assert ENGLISH("search.items", count=12345).startswith("12,345 items")
    assert GERMAN("search.items", count=12345).startswith("12.345 Objekte")
    assert CHINESE("search.items", count=1).startswith("共 1 个条目")
    assert (GERMAN.number(0.5, ".2f"), CHINESE.number(0.5, ".2f")) == ("0,50", "0.50")
    assert GERMAN.separated("1,234.5 MB") == "1.234,5 MB"


def test_values_are_escaped_beside_markup() -> None:
    text = GERMAN("search.begin_with", link=Markup("<a>x</a>"))
    assert isinstance(text, Markup)
    assert text.endswith("<a>x</a>")
    hidden = GERMAN("account.signed_in", name=Markup("<b>{}</b>").format("<i>"))
    assert "<b>&lt;i&gt;</b>" in hidden
    assert "&lt;i&gt;⟨U+202E⟩" in GERMAN("results.filtered_or", without=Markup("x"), all="<i>\u202e")


@pytest.mark.parametrize(
    ("said", "german"),
    [
        (late(2.5), "Es hat nicht innerhalb von 2,5 Sekunden geantwortet."),
        (WAITING, "Es hat noch nicht geantwortet."),
        (policy.NOT_COUNTED, "Seine Richtlinie begrenzt, was Antworten verraten. Deshalb zählt es keine Werte."),
        (policy.FILTERED_NEAREST.format(2000), "Deshalb hat es nur seine 2.000 nächsten Objekte gefiltert."),
        (
            f"It limits results to 5 per query. {policy.NOT_COUNTED}",
            "Es gibt höchstens 5 Treffer pro Anfrage frei. Seine Richtlinie begrenzt, was Antworten verraten.",
        ),
        (
            "The silo south cannot be searched: It is not running, or cannot be reached.",
            "Das Silo south kann nicht durchsucht werden: Es läuft nicht oder ist nicht erreichbar.",
        ),
        ("It failed: OSError: <b> is gone", "Es ist ein Fehler aufgetreten: OSError: &lt;b&gt; is gone"),
        ("foo, bar are unknown to this model; searched with the rest.", "Dieses Modell kennt foo, bar nicht."),
        (pages.EXPIRED, "Das Bild dieser Suche wird nicht mehr aufbewahrt."),
        (pages.NOT_SENT, "Es wurde kein Bild gesendet."),
    ],
)
def test_known_sentences_are_translated(said: str, german: str) -> None:
    assert german in GERMAN.sentence(said)
    assert ENGLISH.sentence(said) == said


def test_unknown_sentences_are_marked_as_english() -> None:
    found = GERMAN.sentence("It limits results to 5 per query. The <moon> is full.\u202e")
    assert found == (
        'Es gibt höchstens 5 Treffer pro Anfrage frei. <span lang="en">The &lt;moon&gt; is full.⟨U+202E⟩</span>'
    )


def test_the_texts_of_scripts_are_in_the_page(backend: MadeUpBackend) -> None:
    page = client_of(backend).get("/?lang=zh").text
    [texts] = re.findall(r"data-texts='([^']*)'", page)
    assert json.loads(texts)["late_done"] == "所有参与方均已响应。"
