"""Other people's text: which characters are replaced, in which form, and that plain text of any language is unchanged."""

from __future__ import annotations

import csv
import io
import json
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from silohash.base.visible import csv_cell, csv_text, markdown, visible, visible_json, visible_lines

HIDDEN = {
    "terminal escape": "\x1b[31m", "title of the terminal": "\x1b]0;x\x07", "C1 escape": "\x9b31m", "NUL": "\0",
    "tab": "\t", "line feed": "\n", "carriage return": "\r", "delete": "\x7f", "next line": "\x85",
    "line separator": "\u2028", "paragraph separator": "\u2029", "right-to-left override": "\u202e",
    "isolate": "\u2066", "end of isolate": "\u2069", "left-to-right mark": "\u200e", "Arabic mark": "\u061c",
    "space without width": "\u200b", "joiner": "\u200d", "byte order mark": "\ufeff", "soft hyphen": "\u00ad",
    "tag letter": "\U000e0041", "Hangul filler": "\u3164", "half of a pair": "\udcff", "annotation": "\ufff9",
}  # fmt: skip


@pytest.mark.parametrize("text", HIDDEN.values(), ids=HIDDEN)
def test_an_invisible_character_is_replaced_by_its_code_point(text: str) -> None:
    expected = "".join(letter if " " <= letter <= "~" else f"⟨U+{ord(letter):04X}⟩" for letter in text)
    assert visible(f"a{text}b") == f"a{expected}b"


@pytest.mark.parametrize(
    "text", ["two parrots", "Straße, naïve", "שלום", "日本語", "e\u0301", "\u2764\ufe0f", "🦜", "⟨x⟩"]
)
def test_plain_text_is_unchanged(text: str) -> None:
    assert visible(text) == text


def test_every_control_and_almost_every_format_character_is_replaced() -> None:
    """The format characters that are left are drawn: signs in front of Arabic, Syriac, Kaithi and Egyptian numbers."""
    left = [
        code
        for code in range(sys.maxunicode + 1)
        if unicodedata.category(chr(code)) in {"Cc", "Cf", "Cs", "Zl", "Zp"} and visible(chr(code)) == chr(code)
    ]
    drawn = {*range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD, *range(0x13430, 0x13440)}
    assert set(left) <= drawn


@given(st.text())
def test_the_result_is_printable_and_stays_as_it_is(text: str) -> None:
    shown = visible(text)
    assert visible(shown) == shown
    assert len(shown.splitlines()) <= 1
    shown.encode("utf-8")


def test_line_breaks_of_ours_are_kept() -> None:
    assert visible_lines("a\n\x1bb\r\n\n") == "a\n⟨U+001B⟩b⟨U+000D⟩\n\n"


@given(st.text(st.characters() | st.sampled_from("".join(HIDDEN.values()))))
def test_a_json_document_is_harmless_and_exact(text: str) -> None:
    document = visible_json(json.dumps({"caption": text}, ensure_ascii=False))
    assert visible(document) == document
    assert json.loads(document) == {"caption": text}


def test_letters_of_a_json_document_are_not_escaped() -> None:
    assert visible_json('"é日\u202e\U000e0041"') == '"é日\\u202e\\udb40\\udc41"'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<script>", r"\<script>"),
        ("[a](javascript:b)", r"[a\](javascript:b)"),
        ("![a](b)", r"![a\](b)"),
        ("*bold* `code`", r"\*bold\* \`code\`"),
        ("_slanted_ snake_case", r"\_slanted\_ snake_case"),
        ("\\<b>", r"\\\<b>"),
        ("C:\\data", "C:\\data"),
        ("ends\\", "ends\\\\"),
        ("mAP@50[ties=index]", "mAP@50[ties=index]"),
        ("a\nb", "a⟨U+000A⟩b"),
    ],
)
def test_markdown_shows_a_text_as_it_is_spelled(text: str, expected: str) -> None:
    assert markdown(text) == expected


@pytest.mark.parametrize("text", ["=cmd()", "+1", "-1", "@SUM(A1)", "\t=1", " =1", "'=1", "\r@x", "' ="])
def test_a_formula_is_guarded_in_csv_and_read_back(text: str) -> None:
    assert csv_cell(text) == f"'{text}"
    assert csv_text(csv_cell(text)) == text


@pytest.mark.parametrize("value", ["parrot", "'tis", "a=b", "", -0.5, 3, None, True])
def test_other_values_are_unchanged_in_csv(value: object) -> None:
    assert csv_cell(value) is value
    if isinstance(value, str):
        assert csv_text(value) == value


@given(st.text(st.sampled_from("'=+-@ \tab")))
def test_any_text_survives_csv(text: str) -> None:
    stream = io.StringIO(newline="")
    csv.writer(stream).writerow([csv_cell(text), ""])
    stream.seek(0)
    assert csv_text(next(csv.reader(stream))[0]) == text
