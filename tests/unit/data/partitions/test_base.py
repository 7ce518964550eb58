"""Partitions: cuts, settings, minimum, missing modalities, storage and description."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from silohash.base.errors import (
    ConflictingOptions,
    DamagedFile,
    DataChanged,
    NoEffect,
    NothingUsable,
    OutOfRange,
    PairsNeeded,
    SettingNeeded,
    TooFew,
    UnknownName,
    UserError,
    WrongChoice,
    WrongType,
)
from silohash.data.partitions import PARTITIONS, base
from silohash.data.partitions.base import (
    DRAWS,
    LACKING,
    Partition,
    SiloRows,
    aligned,
    as_runs,
    cut,
    from_runs,
    partition,
    silos_that_lack,
)
from silohash.data.partitions.kinds import (
    Classes,
    check_count,
    counted_rows,
    nested_rows,
    primary_labels,
    strata_of,
)
from tests.archives import made_up_archive, stored_partition
from tests.archives import silo_of as silo_of_items


def test_shares_are_drawn_anew_until_every_silo_has_its_minimum():
    archive = made_up_archive(600)
    made = partition(archive, "dirichlet", 6, 3, beta=0.2, minimum=15)
    assert min(len(silo.split(archive, "train")) for silo in made.silos) >= 15


def test_a_minimum_out_of_reach_says_what_to_change():
    archive = made_up_archive(100)
    with pytest.raises(
        TooFew, match=rf"best of {DRAWS} draws.*minimum is 40 .*raise beta, use fewer silos.*minimum = \d"
    ):
        partition(archive, "dirichlet", 4, 0, beta=0.5, minimum=40)


def test_missing_modalities_never_meet_in_a_silo():
    made = partition(made_up_archive(400), "iid", 5, 0, missing_image=0.4, missing_text=0.6)
    assert sorted((silo.has_image, silo.has_text) for silo in made.silos) == [(False, True)] * 2 + [(True, False)] * 3
    few = partition(made_up_archive(400), "iid", 5, 0, missing_image=0.01)
    assert sum(not silo.has_image for silo in few.silos) == 1


def test_a_silo_must_keep_something():
    with pytest.raises(ConflictingOptions, match=r"missing_image.*takes.*2.*missing_text.*takes"):
        partition(made_up_archive(400), "iid", 3, 0, missing_image=0.7, missing_text=0.7)
    with pytest.raises(NothingUsable):
        partition(made_up_archive(400, text=None), "iid", 3, 0, missing_image=0.4)
    with pytest.raises(OutOfRange):
        partition(made_up_archive(400), "iid", 3, 0, missing_image=1.4)


@pytest.mark.parametrize(
    ("kind", "silos", "params", "error", "message"),
    [
        ("dirichlett", 3, {}, WrongChoice, r'did you mean "dirichlet"\?'),
        ("iid", 3, {"beta": 0.5}, WrongChoice, "beta"),
        ("dirichlet", 3, {"betta": 0.5}, WrongChoice, r'did you mean "beta"\?'),
        ("dirichlet", 3, {"beta": 0}, OutOfRange, None),
        ("quantity", 3, {"beta": float("nan")}, OutOfRange, "nan"),
        ("dirichlet", 3, {"primary": "rare"}, WrongChoice, r'did you mean "rarest"\?'),
        ("iid", 0, {}, OutOfRange, None),
        ("iid", None, {}, OutOfRange, None),
        ("iid", 500, {}, TooFew, r"500.*180"),
        ("iid", 3, {"minimum": -1}, OutOfRange, "minimum is -1"),
        ("shards", 3, {"classes": 40}, TooFew, "7"),
        ("column", 3, {"column": "plaice"}, UnknownName, None),
        ("column", 3, {}, SettingNeeded, "column is not set.*which has: place"),
        ("column", 9, {"column": "place"}, TooFew, None),
        ("column", 2, {"column": "place", "groups": {"a": ["*"]}}, ConflictingOptions, "1"),
        ("pseudo", 3, {"clusters": 5000}, TooFew, "5000"),
        ("pseudo", 3, {"spread": "shard"}, WrongChoice, r'did you mean "shards"\?'),
        ("nested", 2, {"fractions": [0.2, 0.4, 1.0]}, ConflictingOptions, "3"),
        ("iid", 3, {"bootstrap": "trian"}, WrongChoice, r'did you mean "train"\?'),
        ("iid", 3, {"bootstrap": True}, WrongChoice, "True"),
        ("iid", 3, {"separate_queries": True}, NoEffect, "iid"),
        ("column", None, {"column": "place", "separate_queries": True}, NoEffect, "column"),
        ("nested", 3, {"separate_queries": True}, NoEffect, "nested"),
        ("dirichlet", 3, {"separate_queries": 1}, WrongType, "1"),
    ],
)
def test_what_cannot_be_done_is_said(kind, silos, params, error: type[UserError], message: str | None):
    with pytest.raises(error, match=message):
        partition(made_up_archive(400), kind, silos, 0, **params)


def test_silos_are_left_out_after_the_division():
    archive = made_up_archive(400)
    whole = partition(archive, "dirichlet", 4, 3, beta=0.5, missing_image=0.5)
    left = partition(archive, "dirichlet", 4, 3, beta=0.5, missing_image=0.5, without=["silo-2"], without_items=7)
    assert [vars(silo)["name"] for silo in left.silos] == ["silo-1", "silo-3", "silo-4"]
    for silo, same in zip(left.silos, [one for one in whole.silos if one.name != "silo-2"], strict=True):
        assert (silo.rows == same.rows).all()
        assert silo.lacks == same.lacks
    assert (left.params["without"], left.params["without_items"]) == (["silo-2"], 7)
    for wrong in (["silo-9"], ["silo-1", "silo-2", "silo-3", "silo-4"], [["silo-2"]]):
        with pytest.raises(UnknownName, match="silo-1, silo-2"):
            partition(archive, "dirichlet", 4, 3, beta=0.5, without=wrong)
    for wrong in ({"without": "silo-2"}, {"without": 2}, {"without_items": "7"}):
        with pytest.raises(WrongType):
            partition(archive, "dirichlet", 4, 3, beta=0.5, **wrong)


def test_queries_can_have_proportions_of_their_own():
    archive = made_up_archive(1200)
    plain = partition(archive, "dirichlet", 4, 0, beta=0.5)
    apart = partition(archive, "dirichlet", 4, 0, beta=0.5, separate_queries=True)
    query, rest = archive.split("query"), np.setdiff1d(np.arange(1200), archive.split("query"))
    for silo, same in zip(apart.silos, plain.silos, strict=True):
        np.testing.assert_array_equal(np.intersect1d(silo.rows, rest), np.intersect1d(same.rows, rest))
    assert not all(
        np.array_equal(silo.split(archive, "query"), same.split(archive, "query"))
        for silo, same in zip(apart.silos, plain.silos, strict=True)
    )
    assert sorted(np.concatenate([silo.split(archive, "query") for silo in apart.silos])) == query.tolist()
    classes = primary_labels(archive, 4, {"primary": "uniform"}, 0).of_row

    def shares(made: Partition, part: np.ndarray) -> np.ndarray:
        """Return the share of the items of each class in a part of the archive that each silo holds."""
        counts = np.array([np.bincount(classes[np.intersect1d(silo.rows, part)], minlength=9) for silo in made.silos])
        return counts / np.maximum(counts.sum(axis=0), 1)

    together, independent = (np.abs(shares(made, query) - shares(made, rest)).mean() for made in (plain, apart))
    assert together < 0.03 < 0.1 < independent
    assert stored_partition(apart.to_json()).digest() == apart.digest() != plain.digest()
    assert "separate_queries" not in plain.params


def test_the_minimum_counts_the_items_that_are_drawn_from():
    archive = made_up_archive(400)
    few = replace(archive, splits={**archive.splits, "train": archive.split("train")[:40]})
    with pytest.raises(TooFew):
        partition(few, "iid", 4, 0, minimum=20)
    partition(few, "iid", 4, 0, minimum=20, bootstrap="database")


def test_a_partition_prints_as_one_line():
    made = partition(made_up_archive(401), "iid", 2, 7)
    assert repr(made) == "Partition(iid, seed 7: 2 silos with 200 to 201 items)"


def test_json_and_back():
    archive = made_up_archive(400)
    made = partition(archive, "dirichlet", 3, 0, missing_text=0.3, unpaired=0.3)
    back = stored_partition(made.to_json())
    assert back.digest() == made.digest()
    for silo, again in zip(made.silos, back.silos, strict=True):
        np.testing.assert_array_equal(silo.rows, again.rows)
        assert (silo.name, silo.lacks) == (again.name, again.lacks)
    assert sorted(silo.lacks for silo in back.silos) == [(), ("pairs",), ("texts",)]
    back.check(archive)
    with pytest.raises(DataChanged):
        back.check(made_up_archive(401))


def test_a_silo_without_a_note_on_pairs_has_them():
    value = partition(made_up_archive(60), "iid", 2, 0, unpaired=1.0).to_json()
    for silo in value["silos"]:
        del silo["paired"]
    assert [silo.paired for silo in stored_partition(value).silos] == [True, True]


@pytest.mark.parametrize("kind", ["iid", "dirichlet", "quantity"])
@pytest.mark.parametrize(("part", "silos"), [(0.0, 0), (0.2, 1), (0.5, 3), (1.0, 5)])
def test_silos_lose_their_pairs_and_keep_their_items(kind, part, silos):
    archive = made_up_archive(400)
    made, whole = (partition(archive, kind, 5, 0, minimum=5, unpaired=share) for share in (part, 0.0))
    assert sum(not silo.paired for silo in made.silos) == silos
    for silo, before in zip(made.silos, whole.silos, strict=True):
        assert np.array_equal(silo.rows, before.rows)
        assert (silo.has_image, silo.has_text) == (True, True)


@pytest.mark.parametrize("lost", ["image", "text"])
def test_without_pairs_none_can_be_lost(lost):
    archive = made_up_archive(60)
    alone = replace(archive, **{lost: None, f"has_{lost}": np.zeros(60, bool)})
    with pytest.raises(PairsNeeded, match=r"0\.5"):
        partition(alone, "iid", 2, 0, unpaired=0.5)


@pytest.mark.parametrize("damage", [{"schema": 9}, {"silos": 3}, {"silos": [{"name": "a"}]}, {"seed": None}])
def test_a_damaged_partition_is_refused(damage):
    value = partition(made_up_archive(60), "iid", 2, 0).to_json()
    with pytest.raises(DamagedFile):
        stored_partition({**value, **damage})


def test_a_shortened_silo_is_noticed():
    value = partition(made_up_archive(60), "iid", 2, 0).to_json()
    value["silos"][0]["rows"] = value["silos"][0]["rows"].rsplit(" ", 1)[0]
    with pytest.raises(DamagedFile, match="damaged"):
        stored_partition(value)


def test_description_and_label_table():
    archive = made_up_archive(400)
    made = partition(archive, "iid", 2, 0, missing_image=0.5)
    table = made.label_table(archive)
    np.testing.assert_array_equal(table.sum(axis=0), archive.labels.sum(axis=0))
    lines = made.describe(archive).splitlines()
    assert lines[0].startswith("partition iid, seed 0, digest ")
    assert lines[1].split()[:5] == ["silo", "items", "query", "database", "train"]
    assert [line.split()[0] for line in lines[2:]] == ["silo-1", "silo-2"]
    assert sum("pictures" in line for line in lines[2:]) == 1
    unlabeled = made_up_archive(400, labeled=False)
    assert partition(unlabeled, "iid", 2, 0).label_table(unlabeled).shape == (2, 0)


def test_seeds_matter():
    archive = made_up_archive(400)
    digests = {partition(archive, "iid", 2, seed).digest() for seed in (0, 1, 0)}
    assert len(digests) == 2


def test_rows_are_stored_as_runs():
    rows = [np.array([0, 1, 2, 5, 7, 8]), np.array([], np.int64), np.array([3])]
    made = Partition("iid", {}, 0, tuple(SiloRows(str(place), part) for place, part in enumerate(rows)))
    assert [silo["rows"] for silo in made.to_json()["silos"]] == ["0-2 5 7-8", "", "3"]
    for silo, part in zip(stored_partition(made.to_json()).silos, rows, strict=True):
        assert silo.rows.tolist() == part.tolist()
    value = made.to_json()
    value["silos"][0]["rows"] = "0-2 2 7-8"
    with pytest.raises(DamagedFile):
        stored_partition(value)


@pytest.mark.parametrize(("count", "silos", "minimum"), [(400, 3, 15), (400, 2, 22), (2000, 5, 32), (40, 9, 1)])
def test_the_default_minimum_is_a_quarter_of_an_even_share_and_at_most_32(count, silos, minimum):
    archive = made_up_archive(count)
    trained = len(archive.split("train"))
    assert max(1, min(32, trained // (4 * silos))) == minimum
    with pytest.raises(TooFew, match=str(minimum)):
        partition(archive, "quantity", silos, 0, beta=1e-9)


@pytest.mark.parametrize(("part", "silos"), [(0.0, 0), (0.01, 1), (0.29, 1), (0.3, 2), (0.5, 3), (1.0, 5)])
def test_a_share_of_the_silos_is_rounded_and_at_least_one(part, silos):
    made = partition(made_up_archive(400), "iid", 5, 0, missing_text=part)
    assert sum(not silo.has_text for silo in made.silos) == silos


def test_the_table_counts_each_split_and_names_what_is_missing_and_common():
    archive = replace(
        made_up_archive(5),
        labels=np.array([[1, 0], [1, 1], [0, 1], [1, 0], [0, 0]], np.uint8),
        label_names=("cat", "dog"),
        splits={"query": np.array([0]), "database": np.array([1, 2, 3]), "train": np.array([1])},
    )
    silos = (SiloRows("north", np.array([0, 1, 3]), has_text=False), SiloRows("s", np.array([2, 4]), paired=False))
    lines = Partition("iid", {}, 3, silos).describe(archive).splitlines()
    assert lines[0].startswith("partition iid, seed 3, digest ")
    assert [line.split() for line in lines[1:]] == [
        ["silo", "items", "query", "database", "train", "lacks", "most", "common", "labels"],
        ["north", "3", "1", "2", "1", "texts", "cat", "3,", "dog", "1"],
        ["s", "2", "0", "1", "0", "pairs", "dog", "1"],
    ]
    assert "silos overlap" in Partition("nested", {}, 3, silos, disjoint=False).describe(archive)


def test_columns_are_as_wide_as_their_widest_cell():
    lines = [["silo", "items", "note"], ["a", "10,000", ""], ["long name", "7", "x"]]
    assert aligned(lines, right={1}) == ["silo        items  note", "a          10,000", "long name       7  x"]


def test_iid_cuts_every_split_evenly():
    archive = made_up_archive(403)
    made = partition(archive, "iid", 4, 0)
    for name in ("query", "train"):
        sizes = [len(silo.split(archive, name)) for silo in made.silos]
        assert max(sizes) - min(sizes) <= 1
    assert max(map(len, (s.rows for s in made.silos))) - min(map(len, (s.rows for s in made.silos))) <= 3


def test_nested_silos_contain_each_other_and_the_last_holds_all():
    archive = made_up_archive(500)
    made = partition(archive, "nested", 3, 0)
    assert not made.disjoint
    assert made.params["fractions"] == [0.6, 0.8, 1.0]
    assert [len(silo.rows) for silo in made.silos] == [300, 400, 500]
    for small, large in zip(made.silos, made.silos[1:], strict=False):
        assert np.isin(small.rows, large.rows).all()
    assert len(partition(archive, "nested", None, 0, fractions=[0.5, 1.0])) == 2


@pytest.mark.parametrize("fractions", [[1.0, 0.6], [0.5, 0.9], [], "all", [0.0, 1.0], [0.5, "x"]])
def test_fractions_that_lose_items_are_refused(fractions):
    with pytest.raises(OutOfRange, match="fractions"):
        partition(made_up_archive(50), "nested", None, 0, fractions=fractions)


def test_rows_outside_every_split_are_kept():
    archive = replace(made_up_archive(100), splits={"query": np.arange(5), "database": np.arange(20, 90)})
    made = partition(archive, "iid", 3, 0)
    np.testing.assert_array_equal(np.sort(np.concatenate([silo.rows for silo in made.silos])), np.arange(100))


def test_classes_of_one_item_do_not_all_go_to_the_same_silo():
    classes = Classes(np.arange(400), 400)
    silo_of = cut(classes, np.zeros(400, np.int64), np.full((400, 4), 0.25), np.random.default_rng(0))
    assert np.bincount(silo_of, minlength=4).min() > 60


def test_a_cut_is_off_by_less_than_one_item_and_gives_nothing_for_no_share():
    shares = np.array([[0.0, 0.31, 0.0, 0.44, 0.25, 0.0]])
    for count in (1, 7, 50, 333):
        silo_of = cut(
            Classes(np.zeros(count, np.int64), 1), np.zeros(count, np.int64), shares, np.random.default_rng(1)
        )
        sizes = np.bincount(silo_of, minlength=6)
        assert (np.abs(sizes - shares[0] * count) < 1).all()
        assert (sizes[[0, 2, 5]] == 0).all()


def test_a_nested_silo_holds_its_share_of_each_split_rounded_up():
    archive = replace(made_up_archive(7), splits={"query": np.arange(3), "database": np.arange(3, 7)})
    parts, settings = nested_rows(archive, None, {"fractions": [0.5, 1.0]}, 0)
    assert settings["fractions"] == [0.5, 1.0]
    assert [len(np.intersect1d(parts[0], archive.split(name))) for name in ("query", "database")] == [2, 2]
    assert nested_rows(archive, 1, {"fractions": None}, 0)[1]["fractions"] == [1.0]
    assert nested_rows(archive, 5, {"fractions": None}, 0)[1]["fractions"] == [0.6, 0.7, 0.8, 0.9, 1.0]


def test_a_stratum_encodes_the_splits_of_an_item():
    archive = replace(
        made_up_archive(5), splits={"query": np.array([0]), "database": np.array([1, 2]), "train": np.array([2, 3])}
    )
    assert strata_of(archive).tolist() == [1, 2, 6, 4, 0]


def test_training_items_are_counted_or_all_where_there_are_none():
    archive = made_up_archive(4)
    assert counted_rows(replace(archive, splits={"train": np.array([1, 3])})).tolist() == [False, True, False, True]
    assert counted_rows(replace(archive, splits={"train": np.array([], int)})).all()
    assert counted_rows(replace(archive, splits={})).all()


def test_as_many_silos_as_items_are_allowed_and_one_more_is_not():
    assert check_count(5, 5) == 5
    with pytest.raises(TooFew, match=r"6.*5"):
        check_count(6, 5)


def test_items_of_a_stratum_are_cut_by_themselves():
    strata = np.repeat([0, 1], 40)
    shares = np.array([[0.25, 0.75]])
    silo_of = cut(Classes(np.zeros(80, np.int64), 1), strata, shares, np.random.default_rng(0))
    assert [np.bincount(silo_of[strata == stratum]).tolist() for stratum in (0, 1)] == [[10, 30], [10, 30]]


def test_shares_need_not_sum_to_one():
    nothing = np.zeros(40, np.int64)
    silo_of = cut(Classes(nothing, 1), nothing, np.array([[1.0, 3.0]]), np.random.default_rng(0))
    assert np.bincount(silo_of).tolist() == [10, 30]


def test_fractions_may_be_given_with_their_number_and_nothing_else():
    archive = made_up_archive(20)
    assert nested_rows(archive, 2, {"fractions": [0.5, 1.0]}, 0)[1]["fractions"] == [0.5, 1.0]
    assert nested_rows(archive, 2, {"fractions": None}, 0)[1]["fractions"] == [0.6, 1.0]
    with pytest.raises(ConflictingOptions, match="2"):
        nested_rows(archive, 3, {"fractions": [0.5, 1.0]}, 0)
    with pytest.raises(OutOfRange, match="5"):
        nested_rows(archive, None, {"fractions": 5}, 0)


def test_hidden_characters_do_not_break_the_table():
    lines = [["silo", "items"], ["no\nrth\x1b", "7"]]
    assert aligned(lines, right={1}) == ["silo                   items", "no⟨U+000A⟩rth⟨U+001B⟩      7"]


def test_a_column_states_the_number_of_silos_and_other_kinds_need_it():
    archive = made_up_archive(200)
    assert len(partition(archive, "column", None, 0, column="place")) == 5
    with pytest.raises(OutOfRange, match=r"silos.*None"):
        partition(archive, "iid", None, 0)
    with pytest.raises(TooFew, match=r"500.*90"):
        partition(archive, "column", 500, 0, column="place")


def test_sizes_are_aligned_to_the_right():
    archive = made_up_archive(20)
    small = Partition("iid", {}, 0, (SiloRows("a", np.arange(3)), SiloRows("b", np.arange(3, 20))))
    head, *lines = small.describe(archive).splitlines()[1:]
    for name, sizes in (("items", [" 3", "17"]), ("train", [" 0", " 9"])):
        end = head.index(name) + len(name)
        assert [line[end - 2 : end] for line in lines] == sizes


def captioned_archive(count: int = 400, captions: int = 5):
    """Returns an archive with several texts per picture, which are not next to each other, and the pictures' numbers."""
    archive = made_up_archive(count)
    shuffled = np.random.default_rng(1).permutation(count)
    pictures = (np.arange(count) // captions)[shuffled]
    splits = {name: np.sort(np.argsort(shuffled)[rows]) for name, rows in archive.splits.items()}
    return replace(archive, columns={**archive.columns, "picture": pictures.astype(str)}, splits=splits), pictures


@pytest.mark.parametrize("kind", sorted({*PARTITIONS.names()} - {"column"}))
def test_items_of_the_same_picture_stay_together(kind):
    archive, pictures = captioned_archive()
    made = partition(archive, kind, 3, 0, minimum=0)
    for silo in made.silos:
        held = np.unique(pictures[silo.rows])
        assert len(held) < 80 or kind == "nested"
        np.testing.assert_array_equal(silo.rows, np.flatnonzero(np.isin(pictures, held)))


@pytest.mark.parametrize("kind", sorted({*PARTITIONS.names()} - {"column"}))
def test_pictures_of_a_single_item_are_partitioned_as_if_they_had_no_name(kind):
    archive = made_up_archive(400)
    named = replace(archive, columns={**archive.columns, "picture": np.arange(400)[::-1].astype(str)})
    assert partition(archive, kind, 3, 5).digest() == partition(named, kind, 3, 5).digest()


def test_an_even_partition_gives_silos_equal_numbers_of_pictures_from_every_split():
    archive, pictures = captioned_archive()
    made = partition(archive, "iid", 4, 0)
    for name, count in (("query", 8), ("train", 36)):
        assert [len(set(pictures[silo.split(archive, name)])) for silo in made.silos] == [count // 4] * 4


def test_values_of_a_column_separate_items_of_the_same_picture():
    archive, pictures = captioned_archive()
    found = silo_of_items(partition(archive, "column", 5, 0, column="place"), 400)
    assert {(place, silo) for place, silo in zip(archive.columns["place"], found, strict=True)} == {
        (place, int(found[archive.columns["place"] == place][0])) for place in set(archive.columns["place"])
    }
    mixed = silo_of_items(partition(archive, "column", 5, 0, column="place", mixed=1.0), 400)
    for picture, place in {*zip(pictures.tolist(), archive.columns["place"].tolist(), strict=True)}:
        assert len(set(mixed[(pictures == picture) & (archive.columns["place"] == place)])) == 1


@pytest.mark.parametrize(
    ("part", "silos", "count"),
    [(0.0, 5, 0), (0.01, 5, 1), (0.29, 5, 1), (0.3, 5, 2), (0.5, 5, 3), (1.0, 5, 5), (0.1, 1, 1)],
)
def test_a_share_is_rounded_half_up_and_at_least_one(part: float, silos: int, count: int) -> None:
    assert len(silos_that_lack(settings(unpaired=part), silos, 0)["unpaired"]) == count


def settings(**given: float) -> dict[str, float]:
    return {**dict.fromkeys(LACKING, 0.0), **given}


def test_no_silo_is_affected_twice() -> None:
    chosen = silos_that_lack(settings(missing_image=0.2, missing_text=0.3, unpaired=0.5), 10, 0)
    assert {name: len(places) for name, places in chosen.items()} == {
        "missing_image": 2, "missing_text": 3, "unpaired": 5
    }  # fmt: skip
    assert sorted(np.concatenate(list(chosen.values())).tolist()) == list(range(10))
    again = silos_that_lack(settings(missing_image=0.2, missing_text=0.3, unpaired=0.5), 10, 0)
    assert all(np.array_equal(chosen[name], again[name]) for name in chosen)


def test_a_larger_share_affects_the_same_silos_and_more() -> None:
    fewer, more = (set(silos_that_lack(settings(unpaired=part), 10, 3)["unpaired"].tolist()) for part in (0.2, 0.6))
    assert (len(fewer), len(more)) == (2, 6)
    assert fewer < more
    others = {tuple(silos_that_lack(settings(unpaired=0.2), 10, seed)["unpaired"].tolist()) for seed in range(5)}
    assert len(others) > 1


def test_settings_that_cannot_hold() -> None:
    with pytest.raises(
        ConflictingOptions,
        match=r"missing_image.*pictures.*2.*unpaired.*3.*4",
    ):
        silos_that_lack(settings(missing_image=0.5, unpaired=0.75), 4, 0)
    with pytest.raises(OutOfRange, match=r"unpaired.*1\.1"):
        silos_that_lack(settings(unpaired=1.1), 4, 0)
    with pytest.raises(OutOfRange, match=r"missing_text is -0\.1"):
        silos_that_lack(settings(missing_text=-0.1), 4, 0)


@pytest.mark.parametrize(
    ("rows", "text"),
    [([], ""), ([3], "3"), ([0, 1], "0-1"), ([0, 2], "0 2"), ([0, 1, 2, 5, 7, 8], "0-2 5 7-8"), ([4, 9, 10], "4 9-10")],
)
def test_rows_come_back(rows: list[int], text: str) -> None:
    assert as_runs(np.array(rows, np.int64)) == text
    found = from_runs(text, len(rows))
    assert found.dtype == np.int64
    assert found.tolist() == rows


@pytest.mark.parametrize(
    ("text", "items", "says"),
    [
        ("0-2", 2, "differs from its items"),
        ("0-2", 4, "differs from its items"),
        ("5-3", 0, "differs from its items"),
        ("0-1-2", 3, "differs from its items"),
        ("3 2", 2, "not sorted"),
        ("2 2", 2, "not sorted"),
        ("a", 1, "invalid literal"),
        ("-3", 1, "invalid literal"),
        ("0-999999999999999", 10**15, "more than 1,073,741,824"),
    ],
)
def test_other_texts_are_refused(text: str, items: int, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        from_runs(text, items)


def test_the_largest_number_of_items_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "MOST_ITEMS", 3)
    assert from_runs("0-2", 3).tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="4 items, more than 3"):
        from_runs("0-3", 4)
