"""The script, library and kinds of a character of the embedded archive, from what Unicode says about it.

`tests.draw_glyphs` writes them into the file that the package contains.
"""

from __future__ import annotations

from typing import NamedTuple

from silohash.data.glyphs.archive import Glyph

_BLOCKS_OF_SCRIPT = {
    "latin": "Latin Extended-A|Latin Extended-B|IPA Extensions|Spacing Modifier Letters|Phonetic Extensions|"
    "Phonetic Extensions Supplement|Latin Extended Additional|Latin Extended-C|Modifier Tone Letters|Latin Extended-D",
    "greek": "Greek and Coptic|Greek Extended",
    "cyrillic": "Cyrillic|Cyrillic Supplement|Cyrillic Extended-B",
    "armenian": "Armenian",
    "hebrew": "Hebrew|Alphabetic Presentation Forms",
    "arabic": "Arabic|Arabic Supplement|Arabic Presentation Forms-A|Arabic Presentation Forms-B|"
    "Arabic Mathematical Alphabetic Symbols",
    "georgian": "Georgian|Georgian Supplement",
    "syllabics": "Unified Canadian Aboriginal Syllabics",
    "lao": "Lao",
    "nko": "NKo",
    "tifinagh": "Tifinagh",
    "lisu": "Lisu",
    "ogham": "Ogham",
    "old italic": "Old Italic",
    "punctuation": "Basic Latin|Latin-1 Supplement|Thai|General Punctuation|Currency Symbols|"
    "Supplemental Punctuation|CJK Symbols and Punctuation",
    "numbers": "Superscripts and Subscripts|Number Forms|Enclosed Alphanumerics|Enclosed Alphanumeric Supplement",
    "mathematical letters": "Letterlike Symbols|Mathematical Alphanumeric Symbols",
    "operators": "Mathematical Operators|Miscellaneous Mathematical Symbols-A|Miscellaneous Mathematical Symbols-B|"
    "Supplemental Mathematical Operators",
    "arrows": "Arrows|Supplemental Arrows-A|Supplemental Arrows-B|Miscellaneous Symbols and Arrows",
    "technical": "Miscellaneous Technical|Control Pictures",
    "box drawing": "Box Drawing|Block Elements",
    "shapes": "Geometric Shapes",
    "braille": "Braille Patterns",
    "divination": "Yijing Hexagram Symbols|Tai Xuan Jing Symbols",
    "games": "Domino Tiles|Playing Cards",
}
SCRIPT_OF_BLOCK = {block: script for script, blocks in _BLOCKS_OF_SCRIPT.items() for block in blocks.split("|")}
"""Usual script of a block. In other blocks, what belongs to no script is a symbol."""

NAMED_SCRIPTS = ("latin", "greek", "cyrillic", "hebrew", "arabic", "armenian", "georgian", "coptic")
"""Scripts that the first word of a character's name states, whatever its block."""

ALPHABETS = ("latin", "greek", "cyrillic", "hebrew", "arabic", "armenian", "georgian", "syllabics")
RARE_SCRIPTS = ("lao", "nko", "tifinagh", "lisu", "ogham", "old italic", "coptic", "other scripts")

LIBRARIES = {
    "latin": "latin",
    "greek": "greek and cyrillic",
    "cyrillic": "greek and cyrillic",
    "mathematical letters": "mathematics",
    "operators": "mathematics",
    **dict.fromkeys((*ALPHABETS[3:], *RARE_SCRIPTS), "other scripts"),
}
"""The library of each script. Every other script belongs to the library of signs."""

SIGNS = "signs"

KIND_OF_SCRIPT = {
    **{script: script for script in ALPHABETS},
    **dict.fromkeys(RARE_SCRIPTS, "rare script"),
    "box drawing": "box drawing",
    "braille": "braille",
    "technical": "technical",
    "divination": "divination figure",
    "mathematical letters": "mathematical letter",
}

KIND_OF_CATEGORY = {
    "Lu": "capital letter",
    "Ll": "small letter",
    "Lm": "raised or lowered",
    **dict.fromkeys(("Nd", "Nl", "No"), "number"),
    "Sc": "currency",
    "Sm": "mathematical sign",
    **dict.fromkeys(("Pc", "Pd", "Po"), "punctuation"),
    **dict.fromkeys(("Ps", "Pe"), "bracket"),
    **dict.fromkeys(("Pi", "Pf"), "quotation mark"),
}
"""Kind of each Unicode category."""

RANGES_OF_KIND = {
    "face": [(0x2639, 0x263B), (0x1F42D, 0x1F435), (0x1F600, 0x1F64F)],
    "zodiac or planet": [(0x2609, 0x260D), (0x263C, 0x2653), (0x26B3, 0x26B8)],
    "chess or draughts": [(0x2616, 0x2617), (0x2654, 0x265F), (0x26C0, 0x26C3)],
    "playing card": [(0x2660, 0x2667), (0x1F0A0, 0x1F0FF)],
    "music": [(0x2669, 0x266F), (0x1D100, 0x1D1FF)],
    "dice or domino": [(0x2680, 0x2685), (0x1F030, 0x1F09F)],
    "divination figure": [(0x2630, 0x2637), (0x268A, 0x268F)],
}
"""First and last code points of characters that share a kind."""

WORDS_OF_ANY = {
    "number": "digit number numeral fraction",
    "raised or lowered": "superscript subscript modifier",
    "turned or reversed": "turned reversed inverted sideways rotated",
    "acute accent": "acute oxia tonos",
    "grave accent": "grave varia",
    "circumflex or caron": "circumflex caron",
    "tilde": "tilde perispomeni",
    "diaeresis": "diaeresis dialytika",
    "macron or breve": "macron breve vrachy",
    "stroke through": "stroke barred topbar",
    "currency": "currency",
    "circled": "circled",
}
"""Words of a name that mean a kind, for letters and signs alike."""

WORDS_OF_LETTERS = {
    "capital letter": "capital",
    "small letter": "small",
    "ligature or digraph": "ligature digraph ae oe dz lj nj",
    "breathing or iota": "psili dasia ypogegrammeni prosgegrammeni",
    "dot or dots": "dot dots",
    "hook or tail": "hook tail horn curl descender cedilla ogonek comma fishhook swash",
    "ornate letter": "script fraktur black struck",
}
"""Words that mean a kind in the names of letters alone ("arrow with hook" is not a letter)."""

WORDS_OF_SIGNS = {
    "arrow": "arrow arrows arrowhead arrowheads harpoon harpoons",
    "pointing left": "left leftwards",
    "pointing right": "right rightwards",
    "pointing up": "up upwards",
    "pointing down": "down downwards",
    "double or triple": "double paired doubled triple",
    "comparison": "equal equals less greater equivalent almost approximately precedes succeeds identical similar",
    "set or logic": "subset superset element contains union intersection logical turnstile member",
    "bracket": "bracket parenthesis ceiling floor",
    "quotation mark": "quotation apostrophe prime",
    "circle": "circle circles circular ellipse bullet",
    "square": "square squared rectangle quad",
    "triangle": "triangle triangles triangular",
    "diamond": "diamond lozenge",
    "star or asterisk": "star asterisk snowflake florette sparkle spoked",
    "cross": "cross saltire crossing",
    "black": "black negative",
    "white": "white outlined",
}
"""Words that mean a kind in the names of signs alone ("open o with right hook" is not a sign)."""

REST = "other sign"


def _kinds_by_word(*tables: dict[str, str]) -> dict[str, str]:
    return {word: kind for table in tables for kind, words in table.items() for word in words.split()}


KIND_OF_LETTER_WORD = _kinds_by_word(WORDS_OF_ANY, WORDS_OF_LETTERS)
KIND_OF_SIGN_WORD = _kinds_by_word(WORDS_OF_ANY, WORDS_OF_SIGNS)
KIND_OF_CODEPOINT = {
    codepoint: kind
    for kind, ranges in RANGES_OF_KIND.items()
    for first, last in ranges
    for codepoint in range(first, last + 1)
}

_FROM_NAMES = (*WORDS_OF_ANY, *WORDS_OF_LETTERS, *WORDS_OF_SIGNS)
KINDS: tuple[str, ...] = tuple(
    dict.fromkeys((*KIND_OF_SCRIPT.values(), *KIND_OF_CATEGORY.values(), *_FROM_NAMES, *RANGES_OF_KIND, REST))
)
"""Every kind, in the order of the label columns."""


class Facts(NamedTuple):
    """What Unicode says about a character: name in lower case, category (two letters), block, and script (four letters).

    Later versions of Unicode may say something else.
    """

    name: str
    category: str
    block: str
    script: str


def describe(character: str, facts: Facts) -> Glyph:
    """Return the facts of a character, with the script, the library and the kinds that follow from them.

    Example:
        >>> facts = Facts("latin small letter e with acute", "Ll", "Latin-1 Supplement", "Latn")
        >>> glyph = describe("\u00e9", facts)
        >>> glyph.script, glyph.kinds
        ('latin', ('acute accent', 'latin', 'small letter'))
    """
    words = facts.name.replace("-", " ").split()
    script = _script(facts, words[0])
    kinds = _kinds_of_words(words, is_letter=facts.category.startswith("L")) | {
        KIND_OF_SCRIPT.get(script, ""),
        KIND_OF_CATEGORY.get(facts.category, ""),
        KIND_OF_CODEPOINT.get(ord(character), ""),
    }
    library = LIBRARIES.get(script, SIGNS)
    return Glyph(character, facts.name, facts.block, script, library, tuple(sorted(kinds - {""} or {REST})))


def _script(facts: Facts, first_word: str) -> str:
    script = SCRIPT_OF_BLOCK.get(facts.block, "symbols" if facts.script == "Zyyy" else "other scripts")
    if first_word in NAMED_SCRIPTS and not facts.category.startswith("M") and script != "mathematical letters":
        return first_word
    return script


def _kinds_of_words(words: list[str], *, is_letter: bool) -> set[str]:
    of_word = KIND_OF_LETTER_WORD if is_letter else KIND_OF_SIGN_WORD
    kinds = {of_word[word] for word in words if word in of_word}
    # Names of signs can name a letter, as "circled latin small letter a".
    if "letter" in words:
        kinds |= {KIND_OF_LETTER_WORD[word] for word in ("capital", "small") if word in words}
    return kinds
