"""Settings, classes, clusters and shares of each kind of partition."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from sklearn.cluster import KMeans

from silohash.base.errors import LabelsNeeded, ModalityNeeded, OutOfRange, TooFew, UserError
from silohash.base.seeds import derive, numpy_generator
from silohash.data.archive import is_features
from silohash.data.partitions import PARTITIONS
from silohash.data.partitions.base import partition
from silohash.data.partitions.kinds import (
    FITTED_ROWS,
    Classes,
    Kind,
    _vectors,
    choice,
    clusters,
    dirichlet_shares,
    even_shares,
    is_number,
    matching_shares,
    one_class,
    primary_labels,
    pseudo_shares,
    shard_shares,
    share,
    whole,
)
from silohash.data.regions import Regions
from tests.archives import DrawnPictures, made_up_archive, silo_of


def pseudo_classes(archive, count: int, over: str, seed: int):
    return clusters(archive, None, {"clusters": count, "over": over}, seed).of_row


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
    with pytest.raises(TooFew, match=r"5.*5"):
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
    with pytest.raises(OutOfRange, match="mixed"):
        partition(made_up_archive(200), "column", None, 0, column="place", mixed=mixed)


@pytest.mark.parametrize("kind", ["dirichlet", "shards"])
def test_label_kinds_need_labels(kind):
    with pytest.raises(LabelsNeeded):
        partition(made_up_archive(400, labeled=False), kind, 3, 0)


def test_even_shares_are_one_over_the_number_of_silos():
    generator = np.random.default_rng(0)
    for silos in (1, 2, 5):
        shares = even_shares(np.array([3, 0, 9]), silos, {}, generator)
        assert shares.tolist() == [[1 / silos] * silos] * 3
        np.testing.assert_allclose(shares.sum(axis=1), 1.0)


def test_matching_shares_mix_the_class_of_each_silo_with_all():
    shares = matching_shares(np.array([3, 4]), 2, {"mixed": 0.4}, np.random.default_rng(0))
    np.testing.assert_allclose(shares, [[0.8, 0.2], [0.2, 0.8]])
    whole = matching_shares(np.array([3, 4]), 2, {"mixed": 0}, np.random.default_rng(0))
    assert whole.tolist() == [[1, 0], [0, 1]]


def test_a_class_that_two_silos_hold_is_halved_and_an_empty_one_is_even():
    settings = {"classes": 1, "leftover": "error"}
    shares = shard_shares(np.array([5, 0, 5]), 4, settings, np.random.default_rng(0))
    assert sorted(shares[0].tolist()) == sorted(shares[2].tolist()) == [0, 0, 0.5, 0.5]
    assert (shares[0] + shares[2]).tolist() == [0.5] * 4
    assert shares[1].tolist() == [0.25] * 4


def test_the_two_smallest_classes_are_merged_first():
    settings = {"classes": 1, "leftover": "merge"}
    shares = shard_shares(np.array([1, 9, 2, 20, 4]), 3, settings, np.random.default_rng(0))
    # 1 + 2 = 3, then 3 + 4 = 7: three groups are left, of 7, 9 and 20 items.
    assert shares[0].tolist() == shares[2].tolist() == shares[4].tolist()
    assert len({tuple(shares[label]) for label in (0, 1, 3)}) == 3


def test_merged_classes_leave_every_silo_its_number_of_classes():
    settings = {"classes": 2, "leftover": "merge"}
    shares = shard_shares(np.array([1, 9, 2, 20, 4]), 2, settings, np.random.default_rng(0))
    # 1 + 2 = 3 is enough: two silos of two classes hold the groups of 3, 4, 9 and 20 items.
    assert shares[0].tolist() == shares[2].tolist()
    assert shares[[0, 1, 3, 4]].sum(axis=0).tolist() == [2, 2]
    assert shares.max(axis=1).tolist() == [1] * 5


def test_a_merged_class_is_as_large_as_its_parts_together():
    settings = {"classes": 1, "leftover": "merge"}
    shares = shard_shares(np.array([5, 6, 7, 8]), 2, settings, np.random.default_rng(0))
    # 5 + 6 = 11 is more than 7 and 8, so that these two are merged next.
    assert shares[0].tolist() == shares[1].tolist() == shares[2][::-1].tolist() == shares[3][::-1].tolist()


def test_kinds_without_labels_count_their_classes():
    archive = made_up_archive(30)
    whole_archive = one_class(archive, 2, {}, 0)
    assert (whole_archive.of_row.tolist(), whole_archive.count) == ([0] * 30, 1)
    found = clusters(archive, 2, {"clusters": 3, "over": "auto"}, 0)
    assert found.count == 4  # the last is that of items without features
    assert found.sizes().tolist()[3] == 0
    assert found.silos == ()


def test_the_defaults_of_each_kind():
    shards = {"classes": 3, "leftover": "error"}
    kinds = {name: PARTITIONS.resolve(name) for name in PARTITIONS.names()}
    assert {name: dict(kind.defaults) for name, kind in kinds.items()} == {
        "iid": {},
        "dirichlet": {"beta": 0.5, "primary": "uniform"},
        "shards": {**shards, "primary": "uniform"},
        "quantity": {"beta": 0.5},
        "column": {"column": None, "groups": None, "mixed": 0.0},
        "pseudo": {**shards, "clusters": 10, "over": "auto", "spread": "dirichlet", "beta": 0.1},
        "nested": {"fractions": None},
    }
    assert [name for name, kind in kinds.items() if isinstance(kind, Kind) and not kind.drawn] == ["column"]


def test_clusters_are_shared_as_labels_are():
    sizes, generator = np.array([5, 5]), np.random.default_rng
    by_shards = {"spread": "shards", "classes": 1, "leftover": "error", "beta": 0.1}
    np.testing.assert_array_equal(
        pseudo_shares(sizes, 2, by_shards, generator(3)), shard_shares(sizes, 2, by_shards, generator(3))
    )
    by_beta = {**by_shards, "spread": "dirichlet"}
    np.testing.assert_array_equal(
        pseudo_shares(sizes, 2, by_beta, generator(3)), generator(3).dirichlet([0.1, 0.1], size=2)
    )


def test_sizes_count_the_items_of_each_class_also_of_empty_ones():
    assert Classes(np.array([2, 0, 2]), 4).sizes().tolist() == [1, 0, 2, 0]


def test_of_equally_rare_labels_the_first_is_taken():
    archive = made_up_archive(4, classes=2)
    both = replace(archive, labels=np.array([[1, 1], [1, 0], [0, 1], [0, 0]], np.uint8))
    assert primary_labels(both, 2, {"primary": "rarest"}, 0).of_row.tolist() == [0, 0, 1, 2]
    rarer = replace(archive, labels=np.array([[1, 1], [1, 0], [0, 0], [0, 0]], np.uint8))
    assert primary_labels(rarer, 2, {"primary": "rarest"}, 0).of_row.tolist() == [1, 0, 2, 2]


@pytest.mark.parametrize(
    ("value", "expected"), [(1, True), (0.5, True), (True, False), (math.inf, False), ("1", False)]
)
def test_numbers_are_finite_and_not_booleans(value, expected):
    assert is_number(value) is expected


@pytest.mark.parametrize(
    ("check", "good", "bad"),
    [
        (share, [0, 1, 0.5], [-1e-9, 1.0001, math.nan, True, "half"]),
        (lambda settings, name: whole(settings, name, 2), [2, 7], [1, 2.0, True, None]),
        (lambda settings, name: choice(settings, name, ("near", "far")), ["near"], ["nea", None, 1]),
    ],
)
def test_bounds(check, good, bad):
    for value in good:
        assert check({"x": value}, "x") == value
    for value in bad:
        with pytest.raises(UserError, match=r"\[partition\] x (is|cannot be)"):
            check({"x": value}, "x")


@pytest.mark.parametrize("beta", [0, -1, math.nan, True, "1"])
def test_beta_is_above_zero(beta):
    with pytest.raises(OutOfRange):
        dirichlet_shares(np.array([5]), 2, {"beta": beta}, np.random.default_rng(0))
    assert dirichlet_shares(np.array([5]), 2, {"beta": 3}, np.random.default_rng(0)).shape == (1, 2)


@pytest.mark.parametrize("over", ["image", "text"])
@pytest.mark.parametrize("image", ["features", "pictures"])
def test_clusters_stand_in_for_labels(over, image):
    archive = made_up_archive(300, labeled=False, image=image)
    made = partition(archive, "pseudo", 3, 0, clusters=4, over=over, beta=0.3)
    assert sum(len(silo.rows) for silo in made.silos) == 300
    again = partition(archive, "pseudo", 3, 0, clusters=4, over=over, beta=0.3)
    assert made.digest() == again.digest()


def test_clusters_of_regions_are_those_of_their_means():
    archive = made_up_archive(300)
    assert is_features(archive.image)
    length = np.linalg.norm(archive.image, axis=1, keepdims=True)
    features = np.stack([archive.image / length, np.zeros_like(archive.image)], axis=1)
    boxes = np.tile(np.array([0.1, 0.1, 0.9, 0.9], np.float32), (300, 2, 1))
    boxes[:, 1] = 0.0
    regions = replace(archive, image=Regions(features, boxes, np.arange(300)))
    found = partition(regions, "pseudo", 3, 0, clusters=4, over="image")
    expected = partition(archive, "pseudo", 3, 0, clusters=4, over="image")
    assert [silo.rows.tolist() for silo in found.silos] == [silo.rows.tolist() for silo in expected.silos]


def test_clusters_follow_the_features():
    archive = made_up_archive(600, classes=4)
    made = partition(archive, "pseudo", 2, 0, clusters=6, spread="shards", classes=3, minimum=1)
    table = made.label_table(archive)
    assert (np.abs(table[0] / table[0].sum() - table[1] / table[1].sum())).max() > 0.1


def test_two_clusters_are_the_fewest():
    archive = made_up_archive(60, labeled=False)
    assert len(partition(archive, "pseudo", 2, 0, clusters=2, beta=50.0, minimum=1)) == 2
    with pytest.raises(OutOfRange, match=r"clusters.*1.*2"):
        partition(archive, "pseudo", 2, 0, clusters=1)


def noise_archive(count, missing=()):
    features = np.random.default_rng(7).normal(size=(count, 5)).astype(np.float32)
    features[list(missing)] = np.nan
    return replace(made_up_archive(count, labeled=False), image=features, has_image=np.isfinite(features).all(axis=1))


def k_means(archive, clusters, seed, fitted, predicted):
    """Returns clusters of unit vectors, by scikit-learn itself."""
    vectors = archive.image / np.linalg.norm(archive.image, axis=1, keepdims=True)
    state = derive(seed, "partition k-means") & 0xFFFF_FFFF
    model = KMeans(clusters, n_init=1, max_iter=100, random_state=state).fit(vectors[fitted])
    return model.predict(vectors[predicted]).tolist()


@pytest.mark.parametrize("seed", [0, 1])  # the derived seed of 1 has its bit 32 set
def test_clusters_are_those_of_k_means_and_items_without_features_form_one_more(seed):
    archive = noise_archive(60, missing=[0, 17])
    found = pseudo_classes(archive, 4, "image", seed)
    rows = [row for row in range(60) if row not in {0, 17}]
    assert found[[0, 17]].tolist() == [4, 4]
    assert found[rows].tolist() == k_means(archive, 4, seed, rows, rows)


def test_k_means_is_fitted_on_a_sample_of_many_rows(monkeypatch):
    assert FITTED_ROWS == 5_000
    archive = noise_archive(40)
    monkeypatch.setattr("silohash.data.partitions.kinds.BLOCK_ROWS", 16)
    for limit in (40, 30):
        monkeypatch.setattr("silohash.data.partitions.kinds.FITTED_ROWS", limit)
        fitted = np.arange(40)
        if limit == 30:
            drawn = numpy_generator(3, "partition k-means rows").choice(fitted, 30, replace=False)
            fitted = np.sort(drawn)
        assert pseudo_classes(archive, 3, "image", 3).tolist() == k_means(archive, 3, 3, fitted, np.arange(40))


def test_as_many_clusters_as_items_are_possible_and_one_more_is_not():
    archive = noise_archive(5, missing=[2])
    found = pseudo_classes(archive, 4, "image", 0)
    assert sorted(found.tolist()) == [0, 1, 2, 3, 4]
    assert found[2] == 4
    with pytest.raises(TooFew, match=r"5.*4.*image.*4"):
        pseudo_classes(archive, 5, "image", 0)


@pytest.mark.parametrize(("over", "other"), [("image", "text"), ("text", "image")])
def test_clusters_need_items_of_the_modality(over, other):
    archive = made_up_archive(20, labeled=False, **{over: None})
    with pytest.raises(ModalityNeeded, match=f"{over}.*{over}.*{other}"):
        pseudo_classes(archive, 2, over, 0)
    assert pseudo_classes(archive, 2, "auto", 0).tolist() == pseudo_classes(archive, 2, other, 0).tolist()


def test_given_features_become_unit_vectors_and_numbers_without_a_size_become_zero():
    rows = np.array([[3, 4, 0], [0, 0, 0], [np.nan, 0, -2], [np.inf, 5, -np.inf]], np.float32)
    archive = replace(made_up_archive(4, labeled=False), image=rows)
    expected = [[0.6, 0.8, 0], [0, 0, 0], [0, 0, -1], [0, 1, 0]]
    np.testing.assert_allclose(_vectors(archive, "image", np.arange(4)), expected, rtol=1e-6)


def test_pictures_become_eight_by_eight_pixels_between_zero_and_one():
    shades = [np.full((20, 30), shade, np.uint8) for shade in (0, 51, 255)]
    archive = replace(made_up_archive(3, labeled=False), image=DrawnPictures(shades))
    found = _vectors(archive, "image", np.array([2, 0, 1]))
    assert found.shape == (3, 8 * 8 * 3)
    np.testing.assert_allclose(found, np.repeat([[1.0], [0.0], [0.2]], 192, axis=1), rtol=1e-6)


def test_texts_become_256_counts_of_hashed_words_of_unit_length():
    archive = replace(made_up_archive(3, labeled=False), text=np.array(["boat", "boat boat", "boat sea"]))
    found = _vectors(archive, "text", np.arange(3))
    assert found.shape == (3, 256)
    assert sorted(found[0][found[0] > 0]) == sorted(found[1][found[1] > 0]) == [1]
    np.testing.assert_allclose(found[2][found[2] > 0], [0.5**0.5] * 2, rtol=1e-6)
