"""The analysis of texts: which terms a text has, for training, for queries and for the words that silos index alike.

An analysis is named, because codes and indexes of one are useless with another: `WORDS` reads English, `UNICODE` all scripts
and, by the rules of the languages that it names, their stop words and inflected forms.
"""

import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from importlib import import_module
from itertools import chain, groupby
from pathlib import Path
from typing import Any, TypeAlias

from silohash.base.errors import RepeatedValue, UnknownName
from silohash.base.files import read_toml
from silohash.base.forms import REINSTALL
from silohash.base.registry import suggestion

VERSIONS = {"words": 1, "unicode": 1}
"""The version of each analysis. It rises when an analysis returns other terms."""

_Terms: TypeAlias = tuple[str, ...]

COMMON_SHARE = 0.05
"""Share of an archive's texts that a language needs to be detected."""

MOST_TEXTS = 20_000
"""Number of texts, spread evenly, from which languages are detected."""

LONGEST_KEPT = 24
"""Most characters of a part of a text, between spaces, whose terms are kept for other texts."""

_COMMON_LINE = (
    "a an and are as at be been being but by for from has have he her him his in into is it its of on or she some than "
    "that the their them there these they this those to up was were which while who with"
)
COMMON_WORDS = frozenset(_COMMON_LINE.split())
"""Words that say almost nothing about a picture, which the analysis ``words`` leaves out."""


@dataclass(frozen=True)
class Analysis:
    """An analysis of texts.

    ``words`` lowercases a text, removes ``'s`` and apostrophes, and takes runs of letters of any script and runs of digits.
    ``unicode`` folds case and compatible forms, removes invisible characters and marks that writers leave out, splits elided
    articles from nouns (``l'homme``), and cuts runs of scripts without spaces (and Korean) into characters and pairs of
    neighbors. It leaves out the stop words of its languages and reduces words to their stems.

    Attributes:
        name: ``words`` or ``unicode``.
        version: Version of its rules.
        languages: ISO 639 codes of the languages whose rules apply, the main one first. Empty for the rules of scripts only.
    """

    name: str = "unicode"
    version: int = 1
    languages: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            UserError: If the analysis or a language is unknown, or a language is named twice.
        """
        label, known = f"{self.name}-{self.version}", [f"{name}-{version}" for name, version in VERSIONS.items()]
        if label not in known:
            raise UnknownName(f'There is no analysis "{label}"{suggestion(label, known)}. Choose {" or ".join(known)}.')
        for language in self.languages:
            if language not in languages():
                raise UnknownName(f'There is no language "{language}". Choose among {", ".join(languages())}.')
        if len(set(self.languages)) < len(self.languages) or (self.languages and self.name == "words"):
            raise RepeatedValue(
                f"The languages {', '.join(self.languages)} of the analysis {label} are not used or contain one twice. "
                "List each language once, with the analysis unicode-1."
            )

    def __str__(self) -> str:
        """Return the name with the version and the languages."""
        return f"{self.name}-{self.version}" + (f" ({', '.join(self.languages)})" if self.languages else "")


def parsed_analysis(label: str, languages: tuple[str, ...] = ()) -> Analysis:
    """Return the analysis with a name and a version, such as ``unicode-1``.

    Raises:
        UserError: If there is no such analysis or language.
    """
    name, _, version = label.rpartition("-")
    return Analysis(name or label, int(version) if version.isdecimal() else 0, languages)


def analyze(text: str, analysis: Analysis) -> tuple[str, ...]:
    """Return the terms of a text in order, without stop words unless the text has nothing else.

    A term holds only letters, combining marks and digits.

    Example:
        >>> analyze("The dogs’ bowls aren't full: l'école", Analysis(languages=("en",)))
        ('dog', 'bowl', 'arent', 'full', 'ecole')
        >>> analyze("红色的船", Analysis())
        ('红', '红色', '色', '色的', '的', '的船', '船')
    """
    read = _reader(analysis)
    found = [read(part) if len(part) <= LONGEST_KEPT else _terms(part, analysis) for part in text.split()]
    kept = tuple(chain.from_iterable(terms for terms, _ in found))
    return kept or tuple(chain.from_iterable(terms for _, terms in found))


@cache
def _reader(analysis: Analysis) -> Callable[[str], tuple[_Terms, _Terms]]:
    """Return `_terms` for one analysis, which keeps its results, because texts share most of their words."""
    return lru_cache(maxsize=1 << 16)(partial(_terms, analysis=analysis))


def _terms(part: str, analysis: Analysis) -> tuple[_Terms, _Terms]:
    """Return the terms of a part of a text that has no spaces, without stop words and with them."""
    words, left_out = words_of(part, analysis), stop_words(analysis)
    terms = tuple(term_of(word, analysis) for word in words)
    return tuple(term for word, term in zip(words, terms, strict=True) if word not in left_out), terms


def words_of(text: str, analysis: Analysis) -> list[str]:
    """Return the words of a text as they are written, in order; of scripts without spaces characters and pairs of them."""
    if analysis.name == "words":
        plain = _APOSTROPHES.sub("", unicodedata.normalize("NFKC", text).lower())
        return (_ASCII_WORDS if plain.isascii() else _patterns()[0]).findall(plain)
    turkish = analysis.languages[:1] == ("tr",)
    plain = folded(text.replace("İ", "i").replace("I", "ı") if turkish else text)
    found = (_ASCII_RUNS if plain.isascii() else _patterns()[1]).findall(plain)
    return [word for run in found for word in _split(run, suffixes=turkish)]


def folded(text: str) -> str:
    """Return a text in the form in which texts that readers take for the same are equal (case, width, invisible marks)."""
    if text.isascii():
        return text.lower()
    plain = unicodedata.normalize("NFKC", text.translate(_QUOTES)).casefold()
    plain = unicodedata.normalize("NFKC", "".join(filter(_visible, plain)))
    plain = _DECORATION.sub("", _GREEK.sub(lambda letter: unicodedata.normalize("NFD", letter[0])[0], plain))
    return "".join(str(unicodedata.decimal(c)) if c.isdecimal() else c for c in plain).translate(_LETTERS)


def stop_words(analysis: Analysis) -> frozenset[str]:
    """Return the words that the analysis leaves out, as `words_of` gives them."""
    return COMMON_WORDS if analysis.name == "words" else _stop_words(analysis.languages)


def term_of(word: str, analysis: Analysis) -> str:
    """Return the term of a word: its stem in the languages of the analysis that have its script, one after another."""
    return _stem(word, analysis.languages) if analysis.languages else word


@cache
def languages() -> dict[str, dict[str, Any]]:
    """Return the known languages by their codes, as ``languages.toml`` describes them."""
    return read_toml(Path(__file__).with_name("languages.toml"), remedy=REINSTALL, missing=REINSTALL)


def named_languages(codes: Sequence[str]) -> str:
    """Return the names of languages with their codes, such as ``French (fr), English (en)``."""
    return ", ".join(f"{languages()[code]['name']} ({code})" for code in codes)


def detected_languages(texts: Sequence[str]) -> tuple[str, ...]:
    """Return the languages of an archive's texts, the most frequent first, by their scripts and stop words.

    Empty if too few texts have any of them. After the first, a language does not count texts for which only its most
    frequent stop word speaks: English tags hold "plus" and "no" as well.
    """
    found = [evidence for evidence in map(_evidence, _sampled(texts)) if evidence[0]]
    total = {code: sum(weights.get(code, 0.0) for weights, _ in found) for code in languages()}
    best, lone = Counter[str](), {code: Counter[str]() for code in languages()}
    for weights, words in found:
        code = max(weights, key=lambda code: (weights[code], total[code], code))
        best[code] += 1
        if len(telling := [word for word in words if code in _owners()[word]]) == 1:
            lone[code].update(telling)
    ordered = sorted(best, key=lambda code: (-best[code], code))
    best.subtract({code: max(lone[code].values(), default=0) for code in ordered[1:]})
    least = COMMON_SHARE * max(len(found), COMMON_SHARE * len(_sampled(texts)))
    return tuple(code for code in ordered if best[code] > least)


def default_analysis(texts: Sequence[str]) -> Analysis:
    """Return the analysis of an archive whose config does not name one: `WORDS` for English texts, `UNICODE` for others.

    If the language cannot be detected, it is `WORDS` for texts that both divide into the same letters.
    """
    found = detected_languages(texts)
    alike = not found and all("".join(words_of(t, WORDS)) == "".join(words_of(t, UNICODE)) for t in _sampled(texts))
    return WORDS if alike or found == ("en",) else UNICODE


def _sampled(texts: Sequence[str]) -> Sequence[str]:
    return texts[:: max(1, -(-len(texts) // MOST_TEXTS))]


def _evidence(text: str) -> tuple[dict[str, float], list[str]]:
    """Return the languages that a text may be in, each with the weight of what speaks for it, and its stop words."""
    words = set(words_of(text, UNICODE))
    scripts = Counter(script_of(word[0]) for word in words)
    if not scripts.keys() - {""}:
        return {}, []
    script = max(scripts, key=lambda name: (scripts[name] if name else 0, name))
    if script not in LATIN and scripts.keys() & {"HIRAGANA", "KATAKANA"}:
        return {"ja": 1.0}, []
    able = [code for code, about in languages().items() if script in about.get("scripts", LATIN)]
    if len(able) == 1:
        return {able[0]: 1.0}, []
    known = sorted(words & _owners().keys(), key=len, reverse=True)
    return _told_by(known, able, latin=script in LATIN), [word for word in known if len(word) > 1]


def _told_by(words: Sequence[str], able: Sequence[str], *, latin: bool) -> dict[str, float]:
    """Return the weights of languages by stop words, the longest of which come first."""
    weights: dict[str, float] = {}
    for word in words:
        # A single Latin letter is also the name of a letter, so that it only adds to what a longer word says.
        telling = able if len(word) > 1 or not latin else weights
        for code in filter(telling.__contains__, _owners()[word]):
            weights[code] = weights.get(code, 0.0) + 1 / len(_owners()[word])
    return weights


@cache
def _owners() -> dict[str, list[str]]:
    """Return the languages of each stop word."""
    owners: dict[str, list[str]] = {}
    for code in languages():
        for word in _stop_words((code,)):
            owners.setdefault(word, []).append(code)
    return owners


@cache
def _stop_words(chosen: tuple[str, ...]) -> frozenset[str]:
    return frozenset(folded(word) for code in chosen for word in languages()[code].get("words", "").split())


@cache
def _stemmer(language: str) -> Callable[[], Any]:
    """Return the class of a language's stemmer: that in pure Python, so that all machines find the same stems."""
    name = languages()[language]["name"]
    found: Callable[[], Any] = vars(import_module(f"snowballstemmer.{name.lower()}_stemmer"))[f"{name}Stemmer"]
    return found


@lru_cache(maxsize=1 << 17)
def _stem(word: str, chosen: tuple[str, ...]) -> str:
    """Return the stem of a word by the languages that have its script."""
    script, drops = script_of(word[0]), []
    for code in chosen:
        about = languages()[code]
        if script in about.get("scripts", LATIN) and "words" in about:
            # A new stemmer per word: it keeps the word, and threads must not share it.
            given = word.translate(_PERSIAN) if code == "fa" else word
            word = folded(_stemmer(code)().stemWord(given)) or word
            drops.append(about.get("drop_accents", False))
    if drops and all(drops):
        word = "".join(c for c in unicodedata.normalize("NFD", word) if not unicodedata.combining(c))
    return word


@lru_cache(maxsize=1 << 14)
def script_of(character: str) -> str:
    """Return the first word of a letter's name, which is its script (``LATIN``, ``CJK``); empty for any other character."""
    return unicodedata.name(character, "").split(" ")[0].split("-")[0] if character.isalpha() else ""


def _split(run: str, *, suffixes: bool) -> Iterator[str]:
    """Yield the words of a run of letters, digits and apostrophes. What follows an apostrophe may be a suffix (Turkish)."""
    if suffixes:
        run = run.partition("'")[0]
    whole = _ELIDED.sub("", run.removesuffix("'s")).translate(_INNER)
    if whole.isascii():
        yield whole
        return
    for spaceless, characters in groupby(_clusters(whole), key=lambda cluster: script_of(cluster[0]) in SPACELESS):
        if not spaceless:
            yield "".join(characters)
            continue
        before = ""
        for character in characters:
            yield from (before + character, character) if before else (character,)
            before = character


def _clusters(word: str) -> list[str]:
    """Return the letters of a word, each with its combining marks."""
    found: list[str] = []
    for character in word:
        if found and unicodedata.category(character)[0] == "M":
            found[-1] += character
        else:
            found.append(character)
    return found


@cache
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return what finds the words of ``words`` and of ``unicode``, with combining marks (accents, vowel signs)."""
    marks = re.escape("".join(c for c in map(chr, range(sys.maxunicode + 1)) if unicodedata.category(c)[0] == "M"))
    letters = rf"(?:[^\W_][{marks}]*)+"
    return re.compile(rf"(?:[^\W\d_][{marks}]*)+|\d+"), re.compile(rf"{letters}(?:['·״׳]{letters})*")


def _visible(character: str) -> bool:
    """Return whether a character is part of what a text says. Format characters, tatweel and vowel points are not."""
    category = unicodedata.category(character)
    if category == "Mn":
        return unicodedata.name(character, "").split(" ")[0] not in ("ARABIC", "HEBREW", "VARIATION")
    return category != "Cf" and character not in "ـ\u115f\u1160\u3164"


WORDS, UNICODE = Analysis("words"), Analysis("unicode")

LATIN = ("LATIN",)
SPACELESS = frozenset(
    ("CJK", "HIRAGANA", "KATAKANA", "IDEOGRAPHIC", "HANGUL", "BOPOMOFO", "THAI", "LAO", "KHMER", "MYANMAR")
)
"""Scripts that do not separate words, and Korean, which writes particles with the word."""

_APOSTROPHES = re.compile(r"['’]s\b|['’]")
_ASCII_WORDS = re.compile(r"[a-z]+|[0-9]+")
_ASCII_RUNS = re.compile(r"[a-z0-9]+(?:'[a-z0-9]+)*")
_ELIDED = re.compile(
    r"(?i:(?<![\w'’])(?:[ldjmtsnc]|qu|jusqu|lorsqu|puisqu|quoiqu|dell|all|dall|nell|sull|coll|un|quell|bell|sant|gl|degl|agl))['’]"
    r"(?=[^\W\d_]{2}|[àâèéêëìîïòôùûœæy]\b)"
)
_QUOTES = str.maketrans(dict.fromkeys("’‘‛ʼʹ′´`＇ꞌ", "'"))
_INNER = str.maketrans("", "", "'·״׳")
_DECORATION = re.compile("[\u0300-\u036f]+")
_GREEK = re.compile("[\u0370-\u03ff\u1f00-\u1fff]")
_LETTERS = str.maketrans("یىکأإآٱۀە", "ييكااااهه")
_PERSIAN = str.maketrans("يك", "یک")
