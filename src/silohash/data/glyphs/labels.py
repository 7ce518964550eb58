"""What a character is: its block, script, library and kinds, told from its Unicode name, category and block."""

from __future__ import annotations

import unicodedata
from bisect import bisect_right
from dataclasses import dataclass

BLOCKS: tuple[tuple[int, str, str], ...] = (
    (0x0000, "Basic Latin", "punctuation"),
    (0x0080, "Latin-1 Supplement", "punctuation"),
    (0x0100, "Latin Extended-A", "latin"),
    (0x0180, "Latin Extended-B", "latin"),
    (0x0250, "IPA Extensions", "latin"),
    (0x02B0, "Spacing Modifier Letters", "latin"),
    (0x0370, "Greek and Coptic", "greek"),
    (0x0400, "Cyrillic", "cyrillic"),
    (0x0500, "Cyrillic Supplement", "cyrillic"),
    (0x0530, "Armenian", "armenian"),
    (0x0590, "Hebrew", "hebrew"),
    (0x0600, "Arabic", "arabic"),
    (0x0750, "Arabic Supplement", "arabic"),
    (0x07C0, "NKo", "nko"),
    (0x0800, "other", "other scripts"),
    (0x0E00, "Thai", "punctuation"),
    (0x0E80, "Lao", "lao"),
    (0x0F00, "other", "other scripts"),
    (0x10A0, "Georgian", "georgian"),
    (0x1100, "other", "other scripts"),
    (0x1400, "Canadian Aboriginal Syllabics", "syllabics"),
    (0x1680, "Ogham", "ogham"),
    (0x16A0, "other", "other scripts"),
    (0x1D00, "Phonetic Extensions", "latin"),
    (0x1D80, "Phonetic Extensions Supplement", "latin"),
    (0x1E00, "Latin Extended Additional", "latin"),
    (0x1F00, "Greek Extended", "greek"),
    (0x2000, "General Punctuation", "punctuation"),
    (0x2070, "Superscripts and Subscripts", "numbers"),
    (0x20A0, "Currency Symbols", "punctuation"),
    (0x2100, "Letterlike Symbols", "mathematical letters"),
    (0x2150, "Number Forms", "numbers"),
    (0x2190, "Arrows", "arrows"),
    (0x2200, "Mathematical Operators", "operators"),
    (0x2300, "Miscellaneous Technical", "technical"),
    (0x2400, "Control Pictures", "technical"),
    (0x2460, "Enclosed Alphanumerics", "numbers"),
    (0x2500, "Box Drawing", "box drawing"),
    (0x2580, "Block Elements", "box drawing"),
    (0x25A0, "Geometric Shapes", "shapes"),
    (0x2600, "Miscellaneous Symbols", "symbols"),
    (0x2700, "Dingbats", "symbols"),
    (0x27C0, "Miscellaneous Mathematical Symbols-A", "operators"),
    (0x27F0, "Supplemental Arrows-A", "arrows"),
    (0x2800, "Braille Patterns", "braille"),
    (0x2900, "Supplemental Arrows-B", "arrows"),
    (0x2980, "Miscellaneous Mathematical Symbols-B", "operators"),
    (0x2A00, "Supplemental Mathematical Operators", "operators"),
    (0x2B00, "Miscellaneous Symbols and Arrows", "arrows"),
    (0x2C60, "Latin Extended-C", "latin"),
    (0x2C80, "Coptic", "other scripts"),
    (0x2D00, "Georgian Supplement", "georgian"),
    (0x2D30, "Tifinagh", "tifinagh"),
    (0x2E00, "Supplemental Punctuation", "punctuation"),
    (0x2E80, "other", "other scripts"),
    (0x3000, "CJK Symbols and Punctuation", "punctuation"),
    (0x3040, "other", "other scripts"),
    (0x4DC0, "Yijing Hexagram Symbols", "divination"),
    (0x4E00, "other", "other scripts"),
    (0xA4D0, "Lisu", "lisu"),
    (0xA640, "Cyrillic Extended-B", "cyrillic"),
    (0xA700, "Modifier Tone Letters", "latin"),
    (0xA720, "Latin Extended-D", "latin"),
    (0xA800, "other", "other scripts"),
    (0xFB00, "Alphabetic Presentation Forms", "hebrew"),
    (0xFB50, "Arabic Presentation Forms-A", "arabic"),
    (0xFE20, "other", "other scripts"),
    (0xFE70, "Arabic Presentation Forms-B", "arabic"),
    (0xFF00, "Specials", "symbols"),
    (0x10300, "Old Italic", "old italic"),
    (0x10330, "other", "other scripts"),
    (0x1D300, "Tai Xuan Jing Symbols", "divination"),
    (0x1D360, "other", "symbols"),
    (0x1D400, "Mathematical Alphanumeric Symbols", "mathematical letters"),
    (0x1D800, "other", "symbols"),
    (0x1EE00, "Arabic Mathematical Alphabetic Symbols", "arabic"),
    (0x1F030, "Domino Tiles", "games"),
    (0x1F0A0, "Playing Cards", "games"),
    (0x1F100, "Enclosed Alphanumeric Supplement", "numbers"),
    (0x1F300, "Miscellaneous Symbols and Pictographs", "symbols"),
    (0x1F600, "Emoticons", "symbols"),
    (0x1F650, "other", "symbols"),
)
"""First code point, name and usual script of each block that the fonts draw from."""

NAMED_SCRIPTS = ("latin", "greek", "cyrillic", "hebrew", "arabic", "armenian", "georgian", "coptic")
"""Scripts that a character's name states in its first word, whatever its block."""

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
"""The library that holds a script; what stands here with none is in the library of signs."""

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
    "Nd": "number",
    "Nl": "number",
    "No": "number",
    "Sc": "currency",
    "Sm": "mathematical sign",
    "Pc": "punctuation",
    "Pd": "punctuation",
    "Po": "punctuation",
    "Ps": "bracket",
    "Pe": "bracket",
    "Pi": "quotation mark",
    "Pf": "quotation mark",
}

KIND_OF_RANGE: tuple[tuple[int, int, str], ...] = (
    (0x2639, 0x263B, "face"),
    (0x1F42D, 0x1F435, "face"),
    (0x1F600, 0x1F64F, "face"),
    (0x2609, 0x260D, "zodiac or planet"),
    (0x263C, 0x2653, "zodiac or planet"),
    (0x26B3, 0x26B8, "zodiac or planet"),
    (0x2616, 0x2617, "chess or draughts"),
    (0x2654, 0x265F, "chess or draughts"),
    (0x26C0, 0x26C3, "chess or draughts"),
    (0x2660, 0x2667, "playing card"),
    (0x1F0A0, 0x1F0FF, "playing card"),
    (0x2669, 0x266F, "music"),
    (0x1D100, 0x1D1FF, "music"),
    (0x2680, 0x2685, "dice or domino"),
    (0x1F030, 0x1F09F, "dice or domino"),
    (0x2630, 0x2637, "divination figure"),
    (0x268A, 0x268F, "divination figure"),
)
"""First and last code point of what people call by one name."""

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
"""Kind -> words of a name that tell it wherever they stand."""

WORDS_OF_LETTERS = {
    "capital letter": "capital",
    "small letter": "small",
    "ligature or digraph": "ligature digraph ae oe dz lj nj",
    "breathing or iota": "psili dasia ypogegrammeni prosgegrammeni",
    "dot or dots": "dot dots",
    "hook or tail": "hook tail horn curl descender cedilla ogonek comma fishhook swash",
    "ornate letter": "script fraktur black struck",
}
"""Kind -> words that mean this in the names of letters alone ("arrow with hook" is none of them)."""

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
"""Kind -> words that mean this in the names of signs alone ("open o with right hook" is none of them)."""

REST = "other sign"


def _kinds_by_word(*tables: dict[str, str]) -> dict[str, str]:
    return {word: kind for table in tables for kind, words in table.items() for word in words.split()}


KIND_OF_LETTER_WORD = _kinds_by_word(WORDS_OF_ANY, WORDS_OF_LETTERS)
KIND_OF_SIGN_WORD = _kinds_by_word(WORDS_OF_ANY, WORDS_OF_SIGNS)
KIND_OF_CODEPOINT = {codepoint: kind for first, last, kind in KIND_OF_RANGE for codepoint in range(first, last + 1)}

KINDS: tuple[str, ...] = tuple(
    dict.fromkeys(
        (
            *KIND_OF_SCRIPT.values(),
            *KIND_OF_CATEGORY.values(),
            *WORDS_OF_ANY,
            *WORDS_OF_LETTERS,
            *WORDS_OF_SIGNS,
            *(kind for _, _, kind in KIND_OF_RANGE),
            REST,
        )
    )
)
"""Every kind, in the order of the label columns."""


@dataclass(frozen=True)
class Glyph:
    """What is known of a character without looking at it.

    Attributes:
        character: the character.
        name: its Unicode name in small letters.
        block: the Unicode block.
        script: the script, or the sort of sign.
        library: one of the five libraries that a federation of glyphs has.
        kinds: some of `KINDS`, at least one.
    """

    character: str
    name: str
    block: str
    script: str
    library: str
    kinds: frozenset[str]


_STARTS = [start for start, _, _ in BLOCKS]


def describe(character: str) -> Glyph:
    """Tells what a named character is.

    Example:
        >>> glyph = describe("\u00e9")
        >>> glyph.name, glyph.script, sorted(glyph.kinds)
        ('latin small letter e with acute', 'latin', ['acute accent', 'latin', 'small letter'])
    """
    name = unicodedata.name(character).lower()
    words = name.replace("-", " ").split()
    category = unicodedata.category(character)
    _, block, script = BLOCKS[bisect_right(_STARTS, ord(character)) - 1]
    if words[0] in NAMED_SCRIPTS and not category.startswith("M") and script != "mathematical letters":
        script = words[0]
    is_letter = category.startswith("L")
    of_word = KIND_OF_LETTER_WORD if is_letter else KIND_OF_SIGN_WORD
    kinds = {of_word[word] for word in words if word in of_word}
    if "letter" in words:
        kinds.update(KIND_OF_LETTER_WORD[word] for word in ("capital", "small") if word in words)
    if script in KIND_OF_SCRIPT:
        kinds.add(KIND_OF_SCRIPT[script])
    if category in KIND_OF_CATEGORY:
        kinds.add(KIND_OF_CATEGORY[category])
    if ord(character) in KIND_OF_CODEPOINT:
        kinds.add(KIND_OF_CODEPOINT[ord(character)])
    library = LIBRARIES.get(script, SIGNS)
    return Glyph(character, name, block, script, library, frozenset(kinds or {REST}))
