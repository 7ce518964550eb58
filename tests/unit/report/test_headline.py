"""The headline: the sentence and its notes agree with the rows, and no sentence says more than they hold."""

from __future__ import annotations

import pytest

from silohash.report.headline import Bar, headline
from tests.reports import NAN, row


def rows_of(run, federated, evaluation, i2t, t2i, width=0.01, **changed):
    """Return one row per direction, each with an interval of twice the width."""
    return [
        row(
            run=run, federated=federated, evaluation=evaluation, task=task, value=value, low=value - width,
            high=value + width, prior=0.25, **changed,
        )
        for task, value in (("i2t", i2t), ("t2i", t2i))
    ]  # fmt: skip


TOGETHER = rows_of("federated", "fedavg", "XS", 0.577, 0.590)
ALONE = [*rows_of("alone", "local", "PG", 0.480, 0.474), *rows_of("alone", "local", "XS", 0.358, 0.404)]
POOLED = rows_of("pooled", "centralized", "GG", 0.604, 0.691)


def test_sentence_compares_training_together_with_alone_and_pooled():
    found = headline([*POOLED, *TOGETHER, *ALONE])
    assert found.sentence == (
        "Training together finds relevant items with 58 % average precision (mAP), each silo alone with 38 %, "
        "and pooling all data with 65 %."
    )
    assert found.explanation == (
        "Average precision: the share of relevant items among the results down to each relevant one, on average; "
        "100 % is perfect. Random codes reach 25 %. The sentence gives the mean over both search directions."
    )
    assert found.notes == (
        "The 95 % interval of training together lies above that of each silo alone in both directions.",
        "The 95 % interval of training together lies below that of pooled training in both directions.",
        "If the model of one silo encodes the items of all silos, it reaches 48 %.",
    )
    assert found.measure == "mAP@all"


def test_bars_give_every_direction_with_its_interval():
    first, second = headline([*POOLED, *TOGETHER, *ALONE]).groups
    assert (first.title, second.title) == ("A picture finds texts", "A text finds pictures")
    assert [(bar.label, bar.kind, bar.value) for bar in first.bars] == [
        ("Training together", "together", 0.577),
        ("Each silo alone", "alone", 0.358),
        ("One silo's model for all items", "other", 0.480),
        ("All data pooled", "pooled", 0.604),
        ("Random codes", "chance", 0.25),
    ]
    assert (second.bars[0].low, second.bars[0].high) == (0.590 - 0.01, 0.590 + 0.01)
    assert str(second.bars[-1].low) == "nan"


def test_baselines_that_are_missing_are_not_mentioned():
    assert headline([*TOGETHER, *ALONE]).sentence.endswith("(mAP) and each silo alone with 38 %.")
    assert headline([*TOGETHER, *POOLED]).sentence.endswith("(mAP) and pooling all data with 65 %.")
    assert headline([*POOLED, *ALONE]).sentence == (
        "Each silo alone finds relevant items with 38 % average precision (mAP) and pooling all data with 65 %."
    )


@pytest.mark.parametrize(
    ("i2t", "t2i", "note"),
    [
        (0.50, 0.50, "The 95 % intervals of training together and of each silo alone overlap."),
        (0.51, 0.50, "The 95 % intervals of training together and of each silo alone overlap."),
        (0.53, 0.50, "The 95 % interval of training together lies above that of each silo alone in 1 of 2 directions."),
        (0.53, 0.53, "The 95 % interval of training together lies above that of each silo alone in both directions."),
        (0.47, 0.50, "The 95 % interval of training together lies below that of each silo alone in 1 of 2 directions."),
        (0.47, 0.40, "The 95 % interval of training together lies below that of each silo alone in both directions."),
    ],
)
def test_intervals_that_touch_are_not_apart(i2t, t2i, note):
    alone = rows_of("b", "local", "XS", 0.50, 0.50, width=0.0078125)
    together = rows_of("a", "fedavg", "XS", i2t, t2i, width=0.0078125)
    assert headline([*together, *alone]).notes[0] == note


def test_intervals_with_a_common_end_overlap():
    alone = [row(run="b", federated="local", value=0.5, low=0.25, high=0.75)]
    together = [row(run="a", federated="fedavg", value=0.8, low=0.75, high=0.875)]
    assert headline([*together, *alone]).notes == (
        "The 95 % intervals of training together and of each silo alone overlap.",
    )
    apart = [row(run="a", federated="fedavg", value=0.8, low=0.76, high=0.875)]
    assert headline([*apart, *alone]).notes == (
        "The 95 % interval of training together lies above that of each silo alone.",
    )


@pytest.mark.parametrize(
    ("federated", "start"),
    [
        ("fedavg", "Training together with fedavg finds"),
        ("local", "Each silo alone finds"),
        ("centralized", "Training on all data pooled finds"),
    ],
)
def test_one_run_has_a_sentence_of_its_own(federated, start):
    found = headline(rows_of("a", federated, "GG", 0.6, 0.7))
    assert found.sentence == (f"{start} relevant items with 65 % average precision (mAP); random codes reach 25 %.")
    assert "Random codes" not in found.explanation
    assert found.notes == ()


def test_few_runs_of_one_kind_are_named_and_many_give_a_range():
    few = [*rows_of("a", "fedavg", "GG", 0.5, 0.5), *rows_of("b", "fedcafe", "GG", 0.6, 0.6)]
    assert headline(few).sentence == "a finds relevant items with 50 % average precision (mAP) and b with 60 %."
    assert [bar.label for bar in headline(few).groups[0].bars] == ["a", "b", "Random codes"]
    many = [each for n in range(4) for each in rows_of(f"run-{n}", "fedavg", "GG", 0.5 + n / 10, 0.5 + n / 10)]
    assert headline(many).sentence == "4 runs find relevant items with 50 to 80 % average precision (mAP)."


def test_several_runs_of_one_role_give_a_range():
    other = rows_of("other", "fedprox", "XS", 0.60, 0.64)
    assert headline([*TOGETHER, *other, *POOLED]).sentence == (
        "Training together (2 runs) finds relevant items with 58 to 62 % average precision (mAP) and pooling all data "
        "with 65 %."
    )
    assert headline([*TOGETHER, *other, *POOLED]).notes == ()


def test_runs_that_round_alike_get_a_decimal():
    close = [*rows_of("a", "fedavg", "GG", 0.581, 0.581), *rows_of("b", "local", "GG", 0.584, 0.584)]
    assert headline(close).sentence == (
        "Training together finds relevant items with 58.1 % average precision (mAP) and each silo alone with 58.4 %."
    )
    equal = [*rows_of("a", "fedavg", "GG", 0.58, 0.58), *rows_of("b", "local", "GG", 0.58, 0.58)]
    assert "with 58 % average precision (mAP) and each silo alone with 58 %." in headline(equal).sentence


def test_runs_on_different_data_or_protocols_are_not_compared():
    for changed in ({"dataset": "other"}, {"protocol": "other"}, {"measure": "P@10"}):
        found = headline([*TOGETHER, *rows_of("b", "local", "XS", 0.3, 0.3, **changed)])
        assert found.sentence == "These 2 runs differ in data, protocol or measures, so they cannot be compared."
        assert found.groups == ()


def test_no_figures_are_no_claim():
    assert headline([]).sentence == "There are no figures yet."
    assert headline([row(value=NAN)]).sentence == "There are no figures yet."


def test_directions_across_modalities_come_first_and_only_common_ones_count():
    within = [row(run="a", federated="fedavg", task="i2i", value=0.9), *rows_of("a", "fedavg", "GG", 0.5, 0.5)]
    assert "with 50 % average" in headline(within).sentence
    only = [row(run="a", federated="fedavg", task="i2i", value=0.9, prior=NAN)]
    assert (
        headline(only).sentence
        == "Training together with fedavg finds relevant items with 90 % average precision (mAP)."
    )
    assert "directions" not in headline(only).explanation
    half = [*rows_of("a", "fedavg", "GG", 0.5, 0.7), row(run="b", federated="local", task="t2i", value=0.3)]
    assert headline(half).sentence == (
        "Training together finds relevant items with 70 % average precision (mAP) and each silo alone with 30 %."
    )


def test_same_scope_is_compared_although_it_is_not_the_first_of_a_run():
    personal = rows_of("alone", "local", "PG", 0.4, 0.4)
    shared = [*rows_of("a", "fedavg", "GG", 0.6, 0.6), *rows_of("a", "fedavg", "GL", 0.9, 0.9)]
    assert "with 60 % average precision (mAP) and each silo alone with 40 %" in headline([*shared, *personal]).sentence
    own = rows_of("alone", "local", "PL", 0.8, 0.8)
    assert "with 90 % average precision (mAP) and each silo alone with 80 %" in headline([*shared, *own]).sentence


def test_other_measures_are_named_without_the_level_of_random_codes():
    found = headline(
        [row(run="a", federated="fedavg", measure="P@10", value=0.5), row(run="b", measure="P@10", value=0.25)]
    )
    assert found.sentence == "a reaches 50 % (P@10) and b 25 %."
    assert found.explanation == (
        "Precision: the share of relevant items among the results that the measure looks at; 100 % is perfect."
    )
    assert [bar.kind for bar in found.groups[0].bars] == ["together", "together"]
    assert headline([row(measure="mAP@50", value=0.5)]).sentence.startswith(
        "Training together with fedcafe finds relevant items with 50 % average precision (mAP@50)"
    )


def test_bar_without_interval_has_none():
    assert str(Bar(label="a", kind="chance", value=0.5).high) == "nan"


def test_one_direction_above_and_one_below_counts_as_above():
    alone = rows_of("b", "local", "XS", 0.50, 0.50, width=0.0078125)
    together = rows_of("a", "fedavg", "XS", 0.53, 0.47, width=0.0078125)
    assert headline([*together, *alone]).notes[0] == (
        "The 95 % interval of training together lies above that of each silo alone in 1 of 2 directions."
    )


def test_three_runs_are_named_and_share_the_decimals():
    three = [each for n in range(3) for each in rows_of(f"r{n}", "fedavg", "GG", 0.5 + n / 10, 0.5 + n / 10)]
    assert headline(three).sentence == (
        "r0 finds relevant items with 50 % average precision (mAP), r1 with 60 %, and r2 with 70 %."
    )


def test_equal_runs_of_one_role_give_one_value():
    same = [*rows_of("a", "fedavg", "XS", 0.6, 0.6), *rows_of("b", "fedprox", "XS", 0.6, 0.6), *POOLED]
    assert headline(same).sentence.startswith("Training together (2 runs) finds relevant items with 60 % average")


def test_a_single_direction_has_neither_directions_nor_a_mean():
    found = headline([row(run="a", federated="fedavg", value=0.5), row(run="b", federated="local", value=0.25)])
    assert "both search directions" not in found.explanation
    assert len(found.groups) == 1


def test_the_level_of_random_codes_is_the_mean_over_known_ones():
    rows = [row(run="a", task="i2t", value=0.5, prior=0.1), row(run="a", task="t2i", value=0.5, prior=0.3)]
    found = headline(rows)
    assert found.sentence.endswith("random codes reach 20 %.")
    assert [group.bars[-1].value for group in found.groups] == [0.1, 0.3]
    rows[0] = row(run="a", task="i2t", value=0.5, prior=NAN)
    assert headline(rows).sentence.endswith("random codes reach 30 %.")


def test_only_the_first_figure_of_a_task_counts():
    rows = [row(run="a", federated="fedavg", value=0.5), row(run="a", federated="fedavg", value=0.9)]
    assert "with 50 % average" in headline(rows).sentence


def of_pairs(run, federated, i2t, t2i):
    return [
        *rows_of(run, federated, "XS", 0.1, 0.2, measure="R@1[by=pairs]"),
        *rows_of(run, federated, "XS", i2t, t2i, measure="R@10[by=pairs]"),
        *rows_of(run, federated, "XS", 7.5, 8.5, measure="MedR[by=pairs]"),
    ]


def test_pairs_are_found_among_the_first_results():
    found = headline(of_pairs("a", "fedavg", 0.5, 0.6))
    assert found.sentence == (
        "Training together with fedavg finds the right partner among the first 10 results in 55 % of the searches "
        "(R@10[by=pairs]); random codes reach 25 %."
    )
    assert found.explanation == (
        "Recall of pairs: how often a picture's own text, or a text's own picture, is among the first 10 results; "
        "100 % is perfect. The sentence gives the mean over both search directions."
    )
    assert found.measure == "R@10[by=pairs]"
    assert [bar.kind for bar in found.groups[0].bars] == ["together", "chance"]
    compared = headline([*of_pairs("a", "fedavg", 0.5, 0.6), *of_pairs("b", "local", 0.25, 0.35)])
    assert compared.sentence == (
        "Training together finds the right partner among the first 10 results in 55 % of the searches (R@10[by=pairs]) "
        "and each silo alone in 30 %."
    )


def test_measures_by_labels_lead_and_ranks_are_left_to_the_table():
    rows = of_pairs("a", "fedavg", 0.5, 0.6)
    assert headline([*rows, *rows_of("a", "fedavg", "XS", 0.3, 0.3, measure="P@5")]).measure == "P@5"
    precise = rows_of("a", "fedavg", "XS", 0.3, 0.3, measure="P@5")
    assert headline([*precise, *rows_of("a", "fedavg", "XS", 0.4, 0.4, measure="mAP@50")]).measure == "mAP@50"
    assert headline([row for row in rows if row.measure.startswith("MedR")]).sentence == "All figures are ranks."
    assert headline([row for row in rows if row.measure.startswith("R@1[")]).measure == "R@1[by=pairs]"


@pytest.mark.parametrize(
    ("i2t", "t2i", "start", "notes"),
    [
        (0.255, 0.25, "Not better than random codes: training together with fedavg finds relevant items with 25 %", ()),
        (0.255, 0.20, "Not better than random codes: training together", ()),
        (0.20, 0.23, "Worse than random codes: training together with fedavg finds", ()),
        (0.255, 0.30, "Training together", ("not better than random codes where a picture finds texts.",)),
        (0.30, 0.20, "Training together", ("worse than random codes where a text finds pictures.",)),
        (0.27, 0.27, "Training together", ()),
    ],
)
def test_a_run_whose_intervals_do_not_exceed_random_codes_says_so_first(i2t, t2i, start, notes):
    found = headline(rows_of("a", "fedavg", "GG", i2t, t2i))
    assert found.sentence.startswith(start)
    assert found.sentence.endswith("random codes reach 25 %.")
    assert found.notes == tuple(f"Training together is {note}" for note in notes)


@pytest.mark.parametrize("changed", [{"low": NAN, "high": NAN}, {"low": NAN}, {"high": NAN}, {"prior": NAN}])
def test_without_an_interval_nothing_is_said_about_random_codes(changed):
    rows = [row(task="i2t", value=0.1, low=0.05, high=0.2), row(task="t2i", **{"value": 0.1, "low": 0, **changed})]
    found = headline(rows)
    assert found.sentence.startswith("Training together")
    assert found.notes == ("Training together is not better than random codes where a picture finds texts.",)
    assert headline([row(value=0.1, **changed)]).notes == ()


def test_queries_that_all_fail_do_not_show_that_codes_are_worse():
    few = {"measure": "R@10[by=pairs]", "value": 0.0, "prior": 0.02}
    assert headline([row(low=0.0, high=0.0, **few)]).sentence.startswith("Not better than random codes: ")
    assert headline([row(low=0.0, high=0.01, **few)]).sentence.startswith("Worse than random codes: ")


def test_measures_whose_random_level_is_unknown_are_not_compared_with_it():
    assert headline([row(measure="P@5", value=0.1, low=0.05, high=0.2)]).sentence.startswith("Training together with")


def test_of_several_runs_those_not_better_than_random_codes_are_named():
    weak, bad = rows_of("weak", "local", "XS", 0.25, 0.25), rows_of("bad", "centralized", "GG", 0.1, 0.1)
    assert headline([*TOGETHER, *weak, *bad]).sentence.startswith(
        "Worse than random codes: all data pooled. Not better than random codes: each silo alone. Training together finds"
    )
    also = rows_of("Also", "fedprox", "XS", 0.25, 0.25)
    assert headline([*rows_of("One", "fedavg", "XS", 0.25, 0.255), *also]).sentence.startswith(
        "Not better than random codes: One and Also. One finds relevant items with 25.2 %"
    )
    assert headline([*TOGETHER, *rows_of("a", "fedprox", "XS", 0.25, 0.5)]).notes == (
        "a is not better than random codes where a picture finds texts.",
    )
