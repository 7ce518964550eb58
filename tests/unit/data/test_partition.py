from __future__ import annotations

import json

import numpy as np
import pytest

from silohash.data.partition.base import DRAWS, Partition, partition
from silohash.data.partition.cuts import cut
from silohash.data.partition.kinds import Classes, folder_names, primary_labels, shard_shares
from silohash.types import UserError
from tests.archives import made_up_archive


def silo_of(made: Partition, count: int) -> np.ndarray:
    found = np.full(count, -1)
    for number, silo in enumerate(made.silos):
        found[silo.rows] = number
    return found


def test_iid_cuts_every_split_evenly():
    archive = made_up_archive(403)
    made = partition(archive, "iid", 4, 0)
    for name in ("query", "train"):
        sizes = [len(silo.split(archive, name)) for silo in made.silos]
        assert max(sizes) - min(sizes) <= 1
    assert max(map(len, (s.rows for s in made.silos))) - min(map(len, (s.rows for s in made.silos))) <= 3


def test_dirichlet_gives_queries_and_train_rows_the_same_proportions():
    archive = made_up_archive(20_000, classes=3)
    made = partition(archive, "dirichlet", 4, 1, beta=0.3)
    assigned = silo_of(made, 20_000)
    classes = primary_labels(archive, 4, made.params, 1)
    assert classes.count == 4
    for label in range(classes.count):
        shares = []
        for name in ("query", "train"):
            rows = archive.split(name)[classes.of_row[archive.split(name)] == label]
            counts = np.bincount(assigned[rows], minlength=4)
            shares.append(counts / counts.sum())
            slack = 1.0 / len(rows)
        assert np.abs(shares[0] - shares[1]).max() <= 2 / 30 + slack
        assert np.abs(shares[0] - 0.25).max() > 0.05, "beta = 0.3 is not even"


def test_large_beta_is_nearly_even_and_small_beta_is_not():
    archive = made_up_archive(4000)
    even = partition(archive, "dirichlet", 4, 0, beta=1e5).label_table(archive)
    uneven = partition(archive, "dirichlet", 4, 0, beta=0.05, minimum=1).label_table(archive)
    largest = [(table.max(axis=0) / table.sum(axis=0)).mean() for table in (even, uneven)]
    assert largest[0] < 0.35
    assert largest[1] > 0.5


def test_shares_are_drawn_anew_until_every_silo_has_its_minimum():
    archive = made_up_archive(600)
    made = partition(archive, "dirichlet", 6, 3, beta=0.2, minimum=15)
    assert min(len(silo.split(archive, "train")) for silo in made.silos) >= 15


def test_a_minimum_out_of_reach_says_what_to_change():
    archive = made_up_archive(100)
    with pytest.raises(UserError, match=rf"best of {DRAWS} draws.*raise beta, ask for fewer silos.*minimum = \d"):
        partition(archive, "dirichlet", 4, 0, beta=0.5, minimum=40)


@pytest.mark.parametrize("primary", ["uniform", "rarest"])
def test_shards_hold_so_many_classes(primary):
    archive = made_up_archive(2000, classes=7)
    made = partition(archive, "shards", 5, 2, classes=3, primary=primary)
    of_row = primary_labels(archive, 5, made.params, 2).of_row
    assert [len(np.unique(of_row[silo.rows])) for silo in made.silos] == [3] * 5


def test_shards_leave_no_class_without_a_silo():
    generator = np.random.default_rng(0)
    for silos, wanted, classes in [(4, 2, 8), (5, 3, 7), (3, 3, 3), (2, 5, 9), (20, 3, 24)]:
        settings = {"classes": wanted, "leftover": "error"}
        shares = shard_shares(np.full(classes, 10), silos, settings, generator)
        assert ((shares > 0).sum(axis=0) == wanted).all()
        assert ((shares > 0).sum(axis=1) >= 1).all()
        np.testing.assert_allclose(shares.sum(axis=1), 1.0)


def test_shards_that_cannot_hold_every_class_are_refused_or_merged():
    archive = made_up_archive(2000, classes=9)
    with pytest.raises(UserError, match="Set classes = 5, silos = 5, or leftover"):
        partition(archive, "shards", 2, 0, classes=2)
    made = partition(archive, "shards", 2, 0, classes=2, leftover="merge")
    assert sum(len(silo.rows) for silo in made.silos) == 2000


def test_the_rarest_label_is_taken_where_asked():
    archive = made_up_archive(500)
    of_row = primary_labels(archive, 2, {"primary": "rarest"}, 0).of_row
    totals = archive.labels.sum(axis=0)
    for row in range(500):
        own = np.flatnonzero(archive.labels[row])
        assert of_row[row] == (own[np.argmin(totals[own])] if len(own) else 6)


def test_uniform_primary_labels_are_the_items_own_and_evenly_drawn():
    archive = made_up_archive(4000, classes=2)
    of_row = primary_labels(archive, 2, {"primary": "uniform"}, 0).of_row
    both = archive.labels.all(axis=1)
    assert abs((of_row[both] == 0).mean() - 0.5) < 0.06
    only = archive.labels[:, 1].astype(bool) & ~both
    assert (of_row[only] == 1).all()


def test_quantity_skews_the_sizes_and_not_the_labels():
    archive = made_up_archive(6000, classes=3)
    made = partition(archive, "quantity", 4, 5, beta=0.5)
    sizes = np.array([len(silo.rows) for silo in made.silos])
    assert sizes.max() > 2 * sizes.min()
    shares = made.label_table(archive) / sizes[:, None]
    assert np.ptp(shares, axis=0).max() < 0.15


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
    with pytest.raises(UserError, match="fractions"):
        partition(made_up_archive(50), "nested", None, 0, fractions=fractions)


def test_a_column_gives_a_silo_a_value_and_spreads_the_rest():
    archive = made_up_archive(1000)
    each = partition(archive, "column", None, 0, column="place")
    assert sorted(silo.name for silo in each.silos) == ["centre", "east-west", "north", "sea", "south"]
    for silo in each.silos:
        assert len(np.unique(archive.columns["place"][silo.rows])) == 1
    three = partition(archive, "column", 3, 0, column="place")
    assert [silo.name for silo in three.silos] == ["north", "south", "east-west"]
    assert set(archive.columns["place"][three.silos[2].rows]) == {"east/west", "centre", "sea"}


def test_a_column_may_be_mixed():
    archive = made_up_archive(4000)
    own = {
        silo.name: str(archive.columns["place"][silo.rows[0]])
        for silo in partition(archive, "column", None, 0, column="place").silos
    }
    for mixed in (0.4, 1.0):
        made = partition(archive, "column", None, 0, column="place", mixed=mixed)
        assert sum(len(silo.rows) for silo in made.silos) == len(archive)
        for silo in made.silos:
            total = int((archive.columns["place"] == own[silo.name]).sum())
            held = int((archive.columns["place"][silo.rows] == own[silo.name]).sum())
            assert held == pytest.approx((1 - mixed + mixed / len(made.silos)) * total, abs=8)


@pytest.mark.parametrize("mixed", [-0.1, 1.5, "half", True])
def test_a_column_refuses_a_share_that_is_none(mixed):
    with pytest.raises(UserError, match="mixed"):
        partition(made_up_archive(200), "column", None, 0, column="place", mixed=mixed)


def test_groups_of_values():
    archive = made_up_archive(1000)
    groups = {"land": ["north", "south"], "water": ["sea"], "other": ["*"]}
    made = partition(archive, "column", 3, 0, column="place", groups=groups)
    held = {silo.name: set(archive.columns["place"][silo.rows]) for silo in made.silos}
    assert held == {"land": {"north", "south"}, "water": {"sea"}, "other": {"east/west", "centre"}}


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ({"a": ["north"], "b": ["sea"]}, r"leaves out 3 values.*centre"),
        ({"a": ["nort", "*"]}, r'"nort" \(did you mean "north"\?\)'),
        ({"a": ["north"], "b": ["north", "*"]}, "more than once"),
        ({"a": "north"}, "lists of values"),
    ],
)
def test_groups_that_do_not_add_up(groups, message):
    with pytest.raises(UserError, match=message):
        partition(made_up_archive(300), "column", None, 0, column="place", groups=groups)


@pytest.mark.parametrize("over", ["image", "text"])
@pytest.mark.parametrize("image", ["features", "pictures"])
def test_clusters_stand_in_for_labels(over, image):
    archive = made_up_archive(300, labelled=False, image=image)
    made = partition(archive, "pseudo", 3, 0, clusters=4, over=over, beta=0.3)
    assert sum(len(silo.rows) for silo in made.silos) == 300
    again = partition(archive, "pseudo", 3, 0, clusters=4, over=over, beta=0.3)
    assert made.digest() == again.digest()


def test_clusters_follow_the_features():
    archive = made_up_archive(600, classes=4)
    made = partition(archive, "pseudo", 2, 0, clusters=6, spread="shards", classes=3, minimum=1)
    table = made.label_table(archive)
    assert (np.abs(table[0] / table[0].sum() - table[1] / table[1].sum())).max() > 0.1


def test_missing_modalities_never_meet_in_a_silo():
    made = partition(made_up_archive(400), "iid", 5, 0, missing_image=0.4, missing_text=0.6)
    assert sorted((silo.has_image, silo.has_text) for silo in made.silos) == [(False, True)] * 2 + [(True, False)] * 3
    few = partition(made_up_archive(400), "iid", 5, 0, missing_image=0.01)
    assert sum(not silo.has_image for silo in few.silos) == 1


def test_a_silo_must_keep_something():
    with pytest.raises(UserError, match="must keep one"):
        partition(made_up_archive(400), "iid", 3, 0, missing_image=0.7, missing_text=0.7)
    with pytest.raises(UserError, match="without anything"):
        partition(made_up_archive(400, text=None), "iid", 3, 0, missing_image=0.4)
    with pytest.raises(UserError, match="between 0 and 1"):
        partition(made_up_archive(400), "iid", 3, 0, missing_image=1.4)


@pytest.mark.parametrize(
    ("kind", "silos", "params", "message"),
    [
        ("dirichlett", 3, {}, r'did you mean "dirichlet"\?'),
        ("iid", 3, {"beta": 0.5}, 'takes no "beta"'),
        ("dirichlet", 3, {"betta": 0.5}, r'did you mean "beta"\?'),
        ("dirichlet", 3, {"beta": 0}, "beta is 0; it must be a number above 0"),
        ("quantity", 3, {"beta": float("nan")}, "beta is nan"),
        ("dirichlet", 3, {"primary": "rare"}, r'did you mean "rarest"\?'),
        ("iid", 0, {}, "silos is 0"),
        ("iid", None, {}, "silos is None"),
        ("iid", 500, {}, "500 silos are asked for, and there are 180 items"),
        ("iid", 3, {"minimum": -1}, "minimum is -1"),
        ("shards", 3, {"classes": 40}, "Set classes = 7 or fewer"),
        ("column", 3, {"column": "plaice"}, r'did you mean "place"\?'),
        ("column", 3, {}, "column is not given; this archive has: place"),
        ("column", 9, {"column": "place"}, "has 5 values"),
        ("column", 2, {"column": "place", "groups": {"a": ["*"]}}, "Set silos = 1"),
        ("pseudo", 3, {"clusters": 5000}, "clusters is 5000"),
        ("pseudo", 3, {"spread": "shard"}, r'did you mean "shards"\?'),
        ("nested", 2, {"fractions": [0.2, 0.4, 1.0]}, "Set silos = 3"),
    ],
)
def test_what_cannot_be_done_is_said(kind, silos, params, message):
    with pytest.raises(UserError, match=message):
        partition(made_up_archive(400), kind, silos, 0, **params)


@pytest.mark.parametrize("kind", ["dirichlet", "shards"])
def test_label_kinds_need_labels(kind):
    with pytest.raises(UserError, match="has no labels"):
        partition(made_up_archive(400, labelled=False), kind, 3, 0)


def test_json_and_back():
    archive = made_up_archive(400)
    made = partition(archive, "dirichlet", 3, 0, missing_text=0.3)
    back = Partition.from_json(json.loads(json.dumps(made.to_json())))
    assert back.digest() == made.digest()
    for silo, again in zip(made.silos, back.silos, strict=True):
        np.testing.assert_array_equal(silo.rows, again.rows)
        assert (silo.name, silo.has_image, silo.has_text) == (again.name, again.has_image, again.has_text)
    back.check(archive)
    with pytest.raises(UserError, match="not made for the items"):
        back.check(made_up_archive(401))


@pytest.mark.parametrize("damage", [{"schema": 9}, {"silos": 3}, {"silos": [{"name": "a"}]}, {"seed": None}])
def test_a_damaged_partition_is_refused(damage):
    value = partition(made_up_archive(60), "iid", 2, 0).to_json()
    with pytest.raises(UserError, match=r"Make it again"):
        Partition.from_json({**value, **damage})


def test_a_shortened_silo_is_noticed():
    value = partition(made_up_archive(60), "iid", 2, 0).to_json()
    value["silos"][0]["rows"] = value["silos"][0]["rows"].rsplit(" ", 1)[0]
    with pytest.raises(UserError, match="damaged"):
        Partition.from_json(value)


def test_description_and_label_table():
    archive = made_up_archive(400)
    made = partition(archive, "iid", 2, 0, missing_image=0.5)
    table = made.label_table(archive)
    np.testing.assert_array_equal(table.sum(axis=0), archive.labels.sum(axis=0))
    lines = made.describe(archive).splitlines()
    assert lines[0].startswith("partition iid, seed 0, digest ")
    assert lines[1].split()[:5] == ["silo", "items", "query", "database", "train"]
    assert [line.split()[0] for line in lines[2:]] == ["silo-1", "silo-2"]
    assert sum("image" in line for line in lines[2:]) == 1
    unlabelled = made_up_archive(400, labelled=False)
    assert partition(unlabelled, "iid", 2, 0).label_table(unlabelled).shape == (2, 0)


def test_seeds_matter():
    archive = made_up_archive(400)
    digests = {partition(archive, "iid", 2, seed).digest() for seed in (0, 1, 0)}
    assert len(digests) == 2


def test_rows_outside_every_split_are_kept():
    archive = made_up_archive(100).with_splits({"query": np.arange(5), "database": np.arange(20, 90)})
    made = partition(archive, "iid", 3, 0)
    np.testing.assert_array_equal(np.sort(np.concatenate([silo.rows for silo in made.silos])), np.arange(100))


def test_folder_names_are_safe_and_unique():
    assert folder_names(["../up", "A", "a", "", "x" * 90]) == ["up", "A", "a-2", "none", "x" * 60]


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
