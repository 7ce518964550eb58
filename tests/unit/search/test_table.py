"""Results as text and as HTML: alignment, notes, and that nothing from a silo escapes its cell."""

from __future__ import annotations

from dataclasses import replace

import pytest
from PIL import Image
from rich.cells import cell_len

from silohash.evaluate.calibration import Calibration
from silohash.features.truncation import Unread
from silohash.index.preview import make_preview, preview_url
from silohash.search.hits import Hits
from silohash.search.table import (
    NOTHING_CLOSE,
    aligned,
    as_fields,
    as_html,
    as_lines,
    as_text,
    cut,
    fitted_widths,
    notes,
    opening,
    padded,
    sureness,
)

PREVIEW = preview_url(make_preview(Image.new("L", (6, 4))))
HITS = Hits(
    ids=("a", "item-2"),
    distances=(1, 12),
    silos=("north", "far south"),
    payloads=({"caption": "two parrots", "labels": ["bird", "red"]}, {}),
)


def test_one_line_per_hit():
    assert as_lines(HITS) == [
        " 1 bits  north      a       two parrots  bird, red",
        "12 bits  far south  item-2",
    ]
    assert as_lines(replace(HITS, ranks=(1, 10)))[1] == "rank 10  12 bits  far south  item-2"
    assert as_lines(Hits()) == []


def test_the_path_of_a_picture_follows_its_hit(tmp_path, monkeypatch):
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "a.jpg").touch()
    hits = replace(
        HITS,
        payloads=({"file": "a.jpg", "caption": "c" * 200}, {"file": "none.jpg"}),
        folders=dict.fromkeys(HITS.silos, (tmp_path / "pictures",)),
    )
    monkeypatch.chdir(tmp_path / "pictures")
    first, path, second = as_lines(hits)
    assert cell_len(first) == 80
    assert first.endswith("c…")
    assert path == "    a.jpg"
    assert second == "12 bits  far south  item-2"
    monkeypatch.chdir("/")
    assert as_lines(hits)[1] == f"    {str(tmp_path / 'pictures' / 'a.jpg').removeprefix('/')}"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert as_lines(hits, cells=20)[1] == f"    {tmp_path / 'pictures' / 'a.jpg'}", "a path is never cut"


def test_fields_for_other_programs_are_whole(tmp_path):
    (tmp_path / "a.jpg").touch()
    long = {"caption": "two\tparrots " * 20, "labels": ["bird", "red"], "file": "a.jpg"}
    hits = replace(HITS, payloads=(long, {}), folders={"north": (tmp_path,)}, ranks=(1, 7))
    assert [line.split("\t") for line in as_fields(hits)] == [
        ["1", "north", "a", "two⟨U+0009⟩parrots " * 20, "bird|red", str(tmp_path / "a.jpg"), "1", ""],
        ["12", "far south", "item-2", "", "", "", "7", ""],
    ]
    assert as_fields(HITS)[0] == "1\tnorth\ta\ttwo parrots\tbird|red\t\t\t"


def test_the_table_is_aligned():
    assert as_text(HITS).splitlines() == [
        "#  distance  silo       id      caption      labels",
        "1    1 bits  north      a       two parrots  bird, red",
        "2   12 bits  far south  item-2",
    ]
    assert repr(HITS) == str(HITS) == as_text(HITS)


def test_the_table_shows_scores_where_they_give_the_order():
    scored = replace(HITS, scores=(0.875, -1.5))
    assert as_text(scored).splitlines()[:3] == [
        "#   score  silo       id      caption      labels",
        "1   0.875  north      a       two parrots  bird, red",
        "2  -1.500  far south  item-2",
    ]
    assert as_fields(scored)[1].split("\t")[-2:] == ["", "-1.5"]


def test_the_table_shows_ranks_where_they_give_the_order():
    ranked = replace(HITS, ranks=(1, 10), model_digests=frozenset({"m", "n"}))
    lines = as_text(ranked).splitlines()
    assert lines[0].split() == ["#", "rank", "distance", "silo", "id", "caption", "labels"]
    assert lines[2].startswith("2    10   12 bits")
    short = replace(ranked, silos=("a", "far south"))
    assert "  a          a       two parrots" in as_text(short).splitlines()[1], "names are aligned to the left"
    assert "different models" in lines[-1]
    one_model = as_text(replace(ranked, model_digests=frozenset({"m"}))).splitlines()
    assert one_model[-1].startswith("Some silos compared codes only. Hits are ordered by their rank")


def test_hits_without_a_distance_show_their_rank():
    ranked = replace(HITS, distances=(1, None), ranks=(1, 1))
    assert as_lines(ranked)[1] == "rank 1          far south  item-2"
    assert as_fields(ranked)[1].split("\t") == ["", "far south", "item-2", "", "", "", "1", ""]
    assert notes(ranked)[-1].startswith("Some silos release ranks and no distances.")
    assert "None" not in as_html(ranked)


@pytest.mark.parametrize("letter", ["x", "鸚", "e\u0301"])
def test_long_cells_are_cut_to_the_width_of_a_terminal(letter):
    hits = replace(HITS, payloads=({"caption": letter * 90, "labels": [letter * 70]}, {"caption": "short"}))
    for lines in (as_lines(hits), as_text(hits).splitlines(), as_lines(hits, cells=60)):
        assert max(map(cell_len, lines)) in (80, 60)
        assert sum(line.count("…") for line in lines) >= 2
    first, second = as_lines(hits)
    assert cell_len(first.partition(letter)[0]) == cell_len(second.partition("short")[0]), (
        "captions begin in one column"
    )


def test_words_without_weight_are_named():
    assert notes(replace(HITS, unknown_words=("zebra",))) == ["zebra is unknown to this model; searched with the rest."]
    assert notes(replace(HITS, unknown_words=("zebra", "qua\x1bgga"))) == [
        "zebra, qua⟨U+001B⟩gga are unknown to this model; searched with the rest."
    ]
    many = tuple(f"w{number}" for number in range(12))
    assert notes(replace(HITS, unknown_words=many))[0].startswith("w0, w1, ")
    assert "w9 and 2 more words are unknown" in notes(replace(HITS, unknown_words=many))[0]
    assert notes(replace(HITS, unread=Unread("\x1bfoo", 5, "words"))) == [
        "The query is longer than the 5 words that the text model reads. Its end was not read: “⟨U+001B⟩foo”"
    ]
    unknown = replace(HITS, unknown_words=("zebra",))
    assert notes(unknown)[0] in as_html(unknown)


def test_notes_name_excluded_words_and_the_silos_that_do_not_exclude_them():
    assert notes(replace(HITS, excluded_words=("fog", "old boat"))) == ["Items with fog, old boat are left out."]
    assert notes(replace(HITS, excluded_words=("fog",), by_code_only=("east",))) == [
        "Items with fog are left out, except by silos that do not compare words.",
        "Searched by code only, without comparing words: east.",
    ]


def test_notes_say_what_is_left_out():
    hits = replace(
        HITS,
        left_out={12: 1500},
        missing_silos={"east": "It was late."},
        limited_silos={"north": "It releases little."},
    )
    assert notes(hits) == [
        "1,500 more are equally near (12 bits). Increase k to see more.",
        "east did not answer: It was late.",
        "north: It releases little.",
    ]
    assert as_text(hits).splitlines()[-3:] == notes(hits)
    ranked = replace(HITS, ranks=(1, 3), left_out={3: 2})
    assert notes(ranked)[0].startswith("2 more are equally near (rank 3).")
    by_outputs = replace(HITS, cosines=(65536, 65000), left_out={-1 - 65000: 2})
    assert notes(by_outputs)[0].startswith("2 more are equally near (at the place of the last one).")
    assert notes(HITS) == []


def test_an_empty_result_says_so():
    assert as_text(Hits()) == "No silo returned an item."
    assert as_html(Hits()) == "<p>No silo returned an item.</p>"


def test_control_characters_do_not_reach_the_terminal():
    hits = replace(
        HITS,
        ids=("a", "\u202etxt.exe"),
        silos=("nor\x07th", "far south"),
        payloads=({"caption": "a\x1b[31mred\nline\x9b", "labels": ["\u200b"]}, {}),
        missing_silos={"e\x1b": "x\ry"},
    )
    assert as_lines(hits, cells=120) == [
        " 1 bits  nor⟨U+0007⟩th  a                a⟨U+001B⟩[31mred⟨U+000A⟩line⟨U+009B⟩  ⟨U+200B⟩",
        "12 bits  far south      ⟨U+202E⟩txt.exe",
    ]
    assert as_fields(hits)[0] == "1\tnor⟨U+0007⟩th\ta\ta⟨U+001B⟩[31mred⟨U+000A⟩line⟨U+009B⟩\t⟨U+200B⟩\t\t\t"
    assert notes(hits) == ["e⟨U+001B⟩ did not answer: x⟨U+000D⟩y"]
    assert as_text(hits).splitlines() == [
        "#  distance  silo        id          caption                            labels",
        "1    1 bits  nor⟨U+000…  a           a⟨U+001B⟩[31mred⟨U+000A⟩line⟨U+0…  ⟨U+200B⟩",
        "2   12 bits  far south   ⟨U+202E⟩t…",
        "e⟨U+001B⟩ did not answer: x⟨U+000D⟩y",
    ]
    assert not {"\x07", "\x1b", "\x9b", "\n", "\r", "\u200b", "\u202e"} & set(as_html(hits))


def test_html_is_escaped():
    hostile = '<script>alert("1")</script>'
    hits = replace(
        HITS,
        silos=(hostile, "south"),
        payloads=({"caption": hostile, "labels": [hostile], "preview": PREVIEW}, {"preview": f'{PREVIEW}"><script>'}),
        missing_silos={hostile: hostile},
    )
    html = hits._repr_html_()
    assert html == as_html(hits)
    assert "<script" not in html
    assert html.count("&lt;script&gt;") == 6
    assert html.count("<img") == 1
    assert f'<img src="{PREVIEW}"' in html


def test_html_has_a_column_of_previews_only_if_there_are_any():
    assert "<th>preview</th>" not in as_html(HITS)
    assert (
        "<tr><td>1</td><td>1 bits</td><td>north</td><td>a</td><td>two parrots</td><td>bird, red</td></tr>"
        in as_html(HITS)
    )
    shown = as_html(replace(HITS, payloads=({"preview": PREVIEW}, {})))
    assert "<tr><th>#</th><th>preview</th><th>distance</th>" in shown
    assert "<td>2</td><td></td><td>12 bits</td>" in shown
    assert "<th>rank</th>" in as_html(replace(HITS, ranks=(1, 2)))


def test_a_result_of_no_silo_says_so():
    assert notes(Hits(missing_silos={"north": "Gone."})) == ["north did not answer: Gone.", "No silo answered."]
    answered = Hits(missing_silos={"north": "Gone."}, model_digests=frozenset({"m"}))
    assert notes(answered)[-1] == "No silo returned an item."
    assert (answered.answered, Hits().answered) == (True, False)


@pytest.mark.parametrize(
    ("text", "cells", "expected"),
    [
        ("two parrots", 11, "two parrots"),
        ("two parrots", 10, "two parro…"),
        ("鸚鵡", 4, "鸚鵡"),
        ("鸚鵡", 3, "鸚…"),
        ("a鸚鵡", 4, "a鸚…"),
        ("", 0, ""),
    ],
)
def test_texts_are_cut_by_the_cells_they_take(text: str, cells: int, expected: str) -> None:
    assert cut(text, cells) == expected


def test_padding_counts_cells() -> None:
    assert padded("鸚", 4) == "鸚  "
    assert padded("7", 3, right=True) == "  7"
    assert padded("four", 4) == "four"


@pytest.mark.parametrize(
    ("natural", "weights", "cells", "expected"),
    [
        ([5, 20], {1: 1.0}, 27, [5, 20]),
        ([5, 20], {1: 1.0}, 26, [5, 19]),
        ([5, 40, 40], {1: 1.0, 2: 1.0}, 49, [5, 20, 20]),
        ([5, 60, 60], {1: 1.0, 2: 2.0}, 69, [5, 20, 40]),
        ([5, 10, 60], {1: 1.0, 2: 1.0}, 39, [5, 10, 20]),
        ([50, 9], {1: 1.0}, 10, [50, 6]),
        ([50, 3], {1: 1.0}, 10, [50, 3]),
    ],
)
def test_columns_are_cut_in_proportion(
    natural: list[int], weights: dict[int, float], cells: int, expected: list[int]
) -> None:
    assert fitted_widths(natural, weights, cells) == expected


def test_rows_are_aligned() -> None:
    rows = [("1", "north", "two parrots"), ("12", "鸚", "")]
    assert aligned(rows, numeric=1, weights={2: 1.0}, cells=80) == [" 1  north  two parrots", "12  鸚"]
    assert aligned(rows, numeric=1, weights={2: 1.0}, cells=20) == [" 1  north  two parr…", "12  鸚"]
    without = [("1", "", "two parrots"), ("12", "", "")]
    assert aligned(without, numeric=1, weights={2: 1.0}, cells=13) == [" 1  two parr…", "12"]


def test_how_sure_hits_are_stands_beside_their_distances() -> None:
    hits = Hits(
        ids=("a", "b", "c"),
        silos=("s",) * 3,
        payloads=({},) * 3,
        distances=(0, 5, None),
        model_digests=frozenset({"m"}),
    )
    judged = hits.judged(Calibration(2.6, 0.5, 0.0, 3, 20, 40))
    assert [sureness(hit) for hit in judged] == ["strong 93 %", "none", ""]
    lines = as_text(judged).splitlines()
    assert "sure" in lines[0]
    assert lines[1].split() == ["1", "0", "bits", "strong", "93", "%", "s", "a"]
    assert "<th>sure</th>" in as_html(judged)
    assert "sure" not in as_text(hits).splitlines()[0]


def test_nothing_close_is_the_first_line() -> None:
    hits = Hits(ids=("a",), silos=("s",), payloads=({},), distances=(7,), model_digests=frozenset({"m"}))
    far = hits.judged(Calibration(2.0, 0.0, 0.0, 3, 20, 40))
    assert as_text(far).startswith(NOTHING_CLOSE)
    assert NOTHING_CLOSE in as_html(far)
    assert opening(hits) == opening(hits.judged(Calibration(2.0, 0.0, 0.0, 7, 20, 40))) == opening(hits.taken([])) == []


def test_hits_become_a_table_of_pandas():
    hits = Hits(ids=("a", "b"), distances=(1, 4), silos=("x", "y"), payloads=({"caption": "cat"}, {}))
    table = hits.to_pandas()
    assert table["id"].tolist() == ["a", "b"]
    assert table["distance_bits"].tolist() == [1, 4]
    assert table["caption"].tolist() == ["cat", ""]
    assert len(Hits().to_pandas()) == 0
