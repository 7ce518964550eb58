"""Tables of results: what they print, and what a damaged file says."""

from __future__ import annotations

import math
from dataclasses import astuple, replace

import pytest
from rich.console import Console

from silohash.base.errors import BadLine, DamagedFile, MissingFile, UserError, WrongKindOfFile
from silohash.base.types import ORACLE, WITH_LABELS
from silohash.report.tables import (
    COLUMNS,
    choices,
    choices_besides_round,
    compare,
    console,
    figure,
    interval,
    markdown,
    measure_name,
    number,
    read_results,
    span,
    write_results,
)
from tests.reports import NAN, ROW, row


def test_results_come_back_to_the_last_bit(tmp_path):
    rows = [
        row(run="=cmd()"),
        row(dataset="-\x1b"),
        row(run='a, "b"\nc', value=1 / 3, best=NAN, worst=NAN, task="i2t"),
        row(low=-0.0, queries=0),
    ]
    write_results(tmp_path / "results.csv", rows)
    found = read_results(tmp_path / "results.csv")
    for before, after in zip(rows, found, strict=True):
        for a, b in zip(astuple(before), astuple(after), strict=True):
            assert type(a) is type(b)
            assert a == b or (math.isnan(a) and math.isnan(b))


def test_the_choices_of_the_protocol_stand_in_a_sentence():
    one = row(population=20_015, no_hits="zero", query_in_database=True, database_code="one view", round_by="last")
    assert choices(one) == (
        "20,015 items; queries without a relevant item count 0; the query's own item is in the database; "
        "database code of one view; last round"
    )
    assert "are left out" in choices(row(population=3, no_hits="skip", round_by="validation"))
    assert choices(replace(one, round_by="only")) == f"{choices_besides_round(one)}; a single round"
    assert choices(replace(one, round_by="validation")) == f"{choices_besides_round(one)}; round chosen by validation"


def test_no_results_are_a_table_without_lines(tmp_path):
    write_results(tmp_path / "results.csv", [])
    assert read_results(tmp_path / "results.csv") == []
    assert (tmp_path / "results.csv").read_text().startswith("run,dataset,")


def damaged(change):
    def write(path):
        write_results(path, [row(), row()])
        path.write_text(change(path.read_text()))

    return write


@pytest.mark.parametrize(
    ("write", "kind", "says"),
    [
        (lambda path: None, MissingFile, None),
        (lambda path: path.write_text(""), WrongKindOfFile, None),
        (lambda path: path.write_bytes(b"\xff\xfe\x00"), DamagedFile, None),
        (damaged(lambda text: text.replace("evaluation", "evalution")), WrongKindOfFile, None),
        (damaged(lambda text: text.replace(",round_by", "")), WrongKindOfFile, None),
        (damaged(lambda text: text[:-40] + "\n"), BadLine, r"3.*26"),
        (damaged(lambda text: text.replace("1994", "many", 1)), BadLine, r"2.*many.*queries"),
        (damaged(lambda text: text.replace("0.69", "high", 1)), BadLine, r"2.*high.*low"),
        (
            damaged(lambda text: text.replace(",False,", ",maybe,", 1)),
            BadLine,
            r"2.*maybe.*query_in_database",
        ),
        (damaged(lambda text: text.replace("GG", "QQ", 1)), BadLine, r"2.*QQ.*evaluation"),
        (damaged(lambda text: text.replace("t2i", "t2x", 1)), BadLine, r"2.*t2x.*task"),
        (damaged(lambda text: text[:-2]), DamagedFile, None),
        (damaged(lambda text: text.replace("fedcafe", '"fedcafe"x', 1)), DamagedFile, None),
    ],
)
def test_damaged_files_are_named(tmp_path, write, kind: type[UserError], says: str | None):
    path = tmp_path / "results.csv"
    write(path)
    with pytest.raises(kind, match=says) as error:
        read_results(path)
    assert str(path) in str(error.value)
    assert "silohash evaluate" in str(error.value)


def test_columns_are_the_fields_in_order():
    assert COLUMNS[:3] == ("run", "dataset", "protocol")
    assert COLUMNS[20:] == (
        "code_version",
        "population",
        "no_hits",
        "query_in_database",
        "database_code",
        "round_by",
    )
    assert len(COLUMNS) == len(astuple(ROW))


def test_markdown_has_value_interval_ties_and_prior():
    lines = markdown([row()]).splitlines()
    assert lines[2] == (
        "| GG | t2i | 64 | mAP@all | 0.712 | 0.690–0.730 | 0.660–0.750 | 0.170 | 1,994 (+12 without a relevant item) |"
    )
    assert lines[1].startswith("| --- | --- | --- | --- | ---: |")


def test_markdown_in_points():
    text = markdown([row(best=NAN, worst=NAN)], percent=True)
    assert "| 71.2 | 69.0–73.0 | – | 17.0 |" in text


def test_run_is_named_where_there_are_several():
    assert "| run |" not in markdown([row()])
    assert "| a\\|b | GG |" in markdown([row(), row(run="a|b")])


def test_console_shows_every_row():
    table = console([row(), row(run="fedavg", value=0.5)], percent=True, title="Results")
    output = Console(width=200, record=True, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123
    output.print(table)
    text = output.export_text()
    output.file.close()
    assert "71.2" in text
    assert "50.0" in text
    assert "fedavg" in text


def test_comparison_leads_and_settles():
    rows = [
        row(run="a", value=0.7, low=0.69, high=0.71),
        row(run="b", value=0.6, low=0.59, high=0.61),
        row(run="a", task="i2t", value=0.5, low=0.48, high=0.52),
        row(run="b", task="i2t", value=0.51, low=0.49, high=0.53),
        row(run="a", measure="P@10", value=0.5),
        row(run="c", task="i2i", value=0.5),
        row(run="a", task="i2i", value=0.5),
        row(run="b", task="i2i", value=NAN),
    ]
    table = compare(rows)
    assert table.runs == ("a", "b", "c")
    assert [table.leader(line) for line in range(4)] == [0, 1, None, None]
    assert [table.settled(line) for line in range(4)] == [True, False, False, False]
    assert [[r and r.value for r in table.rows[line]] for line in (0, 2)] == [[0.7, 0.6, None], [0.5, None, None]]


def test_names_are_neither_formulas_nor_markup_nor_hidden(tmp_path):
    rows = [row(run="=cmd()"), row(run="<b>\x1b|")]
    write_results(tmp_path / "results.csv", rows)
    lines = (tmp_path / "results.csv").read_text(encoding="utf-8").splitlines()
    assert [line.split(",")[0] for line in lines[1:]] == ["'=cmd()", "<b>\x1b|"]
    assert [line.split(" | ")[0] for line in markdown(rows).splitlines()[2:]] == ["| =cmd()", "| \\<b>⟨U+001B⟩\\|"]


@pytest.mark.parametrize(
    ("value", "options", "text"),
    [
        (0.71234, {}, "0.712"),
        (0.71234, {"digits": 1}, "0.7"),
        (0.71234, {"percent": True}, "71.2"),
        (0.71234, {"percent": True, "digits": 4}, "71.23"),
        (0.71234, {"percent": True, "digits": 1}, "71"),
        (math.inf, {}, "–"),
    ],
)
def test_figures_as_text(value, options, text):
    assert number(value, **options) == text


def test_an_interval_needs_both_ends():
    assert span(0.1, 0.25) == "0.100–0.250"
    assert span(NAN, 0.25) == span(0.1, NAN) == "–"


def test_choices_that_differ_from_the_usual_ones():
    one = row(population=3, no_hits="skip", query_in_database=False, database_code="all views", round_by="validation")
    assert choices(one) == (
        "3 items; queries without a relevant item are left out; the query's own item is not in the database; "
        "database code of all views; round chosen by validation"
    )


def test_queries_without_relevant_items_are_named_if_there_are_any():
    assert markdown([row(queries_without_relevant=0)]).endswith("| 1,994 |\n")


def test_console_columns_are_aligned_by_kind():
    one, several = console([row()], title="Results"), console([row(), row(run="b", bits=32)])
    assert [column.justify for column in one.columns] == ["left"] * 3 + ["right"] * 5
    assert [column.justify for column in several.columns] == ["left"] * 3 + ["right", "left"] + ["right"] * 5
    assert list(one.columns[3].cells) == ["0.712"]
    assert list(one.columns[-1].cells) == ["1,994 (+12)"]
    assert (one.title, several.title) == ("Results, 64 bits", "")
    assert list(console([row(queries_without_relevant=0)]).columns[-1].cells) == ["1,994"]


def test_a_leader_is_settled_only_above_every_other_interval():
    leader = row(run="a", value=0.7, low=0.6, high=0.8)
    for high, settled in ((0.6, False), (0.59, True)):
        assert compare([leader, row(run="b", value=0.5, low=0.4, high=high)]).settled(0) is settled
    unknown = row(run="b", value=NAN, low=NAN, high=NAN)
    third = row(run="c", value=0.5, low=0.4, high=0.5)
    assert compare([leader, unknown, third]).settled(0)
    assert not compare([leader, unknown]).settled(0)


@pytest.mark.parametrize("several", [False, True])
def test_a_table_of_figures_needs_at_most_eighty_columns(several):
    typical = dict.fromkeys(("value", "low", "high", "worst", "best", "prior"), 0.577)
    rows = [
        row(
            run=run, evaluation="XS", task="t2i", measure=measure, queries=12_345, queries_without_relevant=0, **typical
        )
        for run in (["seed-0", "seed-1"] if several else ["seed-0"])
        for measure in ("mAP@all", "P@10")
    ]
    table = console(rows, percent=True)
    widths = [
        max(len(part) for text in (str(column.header), *column.cells) for part in str(text).splitlines())
        for column in table.columns
    ]
    assert sum(widths) + 2 * (len(widths) - 1) <= 80
    headings = [" ".join(str(column.header).split()) for column in table.columns]
    assert headings == [
        *(["run"] if several else []),
        *("evaluation", "task", "measure", "value", "95 % interval", "ties worst–best", "random codes", "queries"),
    ]
    assert [column.justify for column in table.columns] == ["left"] * (3 + several) + ["right"] * 5
    assert table.title == "64 bits"
    assert table.caption is None


def test_a_table_of_several_lengths_has_a_column_for_them():
    table = console([row(bits=16), row(bits=32)], title="Results")
    assert table.title == "Results"
    assert [list(column.cells) for column in table.columns if column.header == "bits"] == [["16", "32"]]


def test_queries_without_relevant_items_are_explained_once():
    table = console([row(queries=1200, queries_without_relevant=1034), row(queries=1200, queries_without_relevant=0)])
    assert list(table.columns[-1].cells) == ["1,200 (+1,034)", "1,200"]
    assert table.caption == "Queries: (+n) have no relevant item."


def test_figures_of_queries_with_labels_are_marked() -> None:
    oracle, labeled = row(database_code=f"one view{ORACLE}"), row(database_code=f"one view{WITH_LABELS}")
    assert [measure_name(one) for one in (oracle, labeled, row())] == ["mAP@all (oracle)", "mAP@all", "mAP@all"]
    assert "| mAP@all (oracle) |" in markdown([oracle])
    assert "oracle" in choices(replace(oracle, population=3))
    assert len(compare([row(run="a"), replace(oracle, run="b")]).keys) == 2


RANKED = {"measure": "MedR[by=pairs]", "low": 6.25, "high": 9.0, "best": 6.0, "worst": 11.0, "prior": 150.5}


def test_ranks_are_printed_as_they_are():
    ranked, share = row(value=7.5, **RANKED), row(value=0.075)
    assert figure(ranked, ranked.value, percent=True) == "7.5"
    assert figure(share, share.value, percent=True) == "7.5"
    assert interval(ranked, ranked.low, ranked.high, percent=True) == "6.2–9.0"
    assert interval(ranked, ranked.worst, ranked.best) == "6.0–11.0"
    assert interval(ranked, NAN, 9.0) == "–"
    assert interval(share, 0.1, 0.2, percent=True) == "10.0–20.0"
    line = markdown([ranked], percent=True).splitlines()[2]
    assert "| 7.5 | 6.2–9.0 | 6.0–11.0 | 150.5 |" in line


def test_the_lowest_rank_leads():
    rows = [row(run="a", value=7.5, **RANKED), row(run="b", value=5.0, **{**RANKED, "low": 4.0, "high": 6.0})]
    table = compare(rows)
    assert (table.leader(0), table.settled(0)) == (1, True)
    wide = compare([rows[0], row(run="b", value=5.0, **{**RANKED, "low": 4.0, "high": 6.25})])
    assert (wide.leader(0), wide.settled(0)) == (1, False)
