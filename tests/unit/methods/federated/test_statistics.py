"""Class statistics, their release, and what is computed from their sums."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from silohash.base.errors import ConflictingOptions, RevealsItems, UserError
from silohash.methods.federated.base import ServerState
from silohash.methods.federated.prototypes import (
    PrototypeParams,
    prototype_sums,
)
from silohash.methods.federated.statistics import (
    ENCRYPTION,
    ClassStatistics,
    ReleaseParams,
    check_revealing_sums,
    class_shares,
    class_statistics,
    mean_over_modalities,
    merged_prototypes,
    released,
    sum_statistics,
    with_release,
)
from silohash.methods.message import Message
from silohash.methods.traits import Release, Traits
from tests.unit.methods.federated.helpers import BITS, CLASSES, context_of, draw, hot


def test_class_statistics_are_sums_a_class_with_bounded_shares() -> None:
    values, labels = draw(12, 4), hot(12, 5)
    release = ReleaseParams(min_count=4, max_labels=2)
    found = class_statistics(values, labels, release)
    for c in range(5):
        sums, count = torch.zeros(4, dtype=torch.float64), 0.0
        for i in range(12):
            if labels[i, c]:
                share = min(1.0, 2 / float(labels[i].sum()))
                sums, count = sums + share * values[i], count + share
        if labels[:, c].sum() < 4:
            sums, count = 0 * sums, 0.0
        torch.testing.assert_close(found.sums[c], sums)
        assert float(found.counts[c]) == pytest.approx(count)
    one = class_statistics(values[:1], torch.ones(1, 5, dtype=torch.float64), ReleaseParams(min_count=1, max_labels=2))
    assert float(one.counts.sum()) == pytest.approx(2.0)


def test_shares_of_classes_without_a_prototype_are_left_out() -> None:
    shares = class_shares(torch.tensor([[1.0, 1.0, 0.0], [0.0, 1.0, 0.0]]), torch.tensor([True, False, True]))
    assert shares.tolist() == [[1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]


def test_merged_prototypes_of_identical_ones_are_those_and_absent_classes_keep_theirs() -> None:
    own = np.asarray([[1.0, -1.0], [0.5, 0.25], [0.0, 0.0]])
    counts = np.asarray([7.0, 3.0, 0.0])
    before = np.asarray([[9.0, 9.0], [9.0, 9.0], [4.0, 4.0]])
    merged, mask = merged_prototypes(2 * own * counts[:, None], 2 * counts, before)
    np.testing.assert_allclose(merged, [[1.0, -1.0], [0.5, 0.25], [4.0, 4.0]])
    assert mask.all()


class TestUniformPrototypes:
    def test_are_the_mean_of_the_silos_means_and_identical_ones_are_kept(self) -> None:
        values, labels = [draw(n, 3, seed=n) for n in (9, 4)], [hot(n, 4, seed=n) for n in (9, 4)]
        labels[1][:, 0] = 0
        release = ReleaseParams(min_count=1)
        silos = [class_statistics(v, lab, release) for v, lab in zip(values, labels, strict=True)]
        sums = sum(silo.with_equal_counts().sums for silo in silos)
        counts = sum(silo.with_equal_counts().counts for silo in silos)
        merged, mask = merged_prototypes(sums.numpy(), counts.numpy(), np.zeros((4, 3), np.float32))
        for c in range(4):
            means = []
            for v, lab in zip(values, labels, strict=True):
                shares = [min(1.0, 3 / float(lab[i].sum())) if lab[i, c] else 0.0 for i in range(len(v))]
                if sum(shares):
                    means.append(sum(s * v[i] for i, s in enumerate(shares)) / sum(shares))
            assert len(means) == (1 if c == 0 else 2)
            np.testing.assert_allclose(merged[c], sum(means).numpy() / len(means), rtol=1e-5)
        assert mask.all()
        same, _ = merged_prototypes(3 * merged, np.full(4, 3.0), np.zeros((4, 3), np.float32))
        np.testing.assert_allclose(same, merged, rtol=1e-6)

    @pytest.mark.parametrize("weighting", ["examples", "uniform"])
    def test_a_silo_sends_means_instead_of_sums(self, weighting: str) -> None:
        extras = {"prototypes/fused": np.zeros((CLASSES, BITS), np.float32)}
        context = context_of(ServerState(params={}, extras=extras))
        sums = prototype_sums(context, PrototypeParams(min_count=1, prototype_weighting=weighting))
        counts = sums["prototype_count/fused"]
        assert counts.max() == (1 if weighting == "uniform" else pytest.approx(counts.max()))
        assert (counts.max() > 2) == (weighting == "examples")
        plain = prototype_sums(context, PrototypeParams(min_count=1))
        means = plain["prototype_sum/fused"] / plain["prototype_count/fused"][:, None]
        np.testing.assert_allclose(sums["prototype_sum/fused"], counts[:, None] * means, rtol=1e-5)


def test_release_rules_by_default() -> None:
    assert (ReleaseParams().min_count, ReleaseParams().max_labels) == (5, 3)


def test_a_class_is_released_from_exactly_min_count_items_on() -> None:
    labels = torch.tensor([[1.0, 1.0]] * 3 + [[1.0, 0.0]])
    values = torch.tensor([[1.0], [2.0], [3.0], [10.0]])
    found = class_statistics(values, labels, ReleaseParams(min_count=4, max_labels=2))
    assert found.counts.tolist() == [4.0, 0.0]
    assert found.sums.tolist() == [[16.0], [0.0]]
    assert found.present().tolist() == [True, False]
    assert found.means().tolist() == [[4.0], [0.0]]
    equal = found.with_equal_counts()
    assert equal.counts.tolist() == [1.0, 0.0]
    assert equal.sums.tolist() == [[4.0], [0.0]]


def test_statistics_without_a_released_class_are_those_of_zeros() -> None:
    labels = torch.tensor([[1.0, 1.0, 0.0], [0.0, 1.0, 0.0]])
    assert released(labels, ReleaseParams(min_count=2)).tolist() == [False, True, False]
    assert not released(labels, ReleaseParams(min_count=3)).any()
    found = ClassStatistics.none(np.zeros((3, 2), np.int8), labels)
    full = class_statistics(torch.ones(2, 2), labels, ReleaseParams(min_count=3))
    torch.testing.assert_close(found.sums, full.sums, rtol=0, atol=0)
    torch.testing.assert_close(found.counts, full.counts, rtol=0, atol=0)
    assert not found.present().any()


def test_an_item_with_more_labels_than_allowed_splits_its_weight() -> None:
    labels = torch.tensor([[1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 0.0, 0.0]])
    found = class_statistics(torch.tensor([[2.0], [4.0]]), labels, ReleaseParams(min_count=1, max_labels=2))
    assert found.counts.tolist() == [1.5, 1.5, 0.5, 0.5]
    assert found.sums.squeeze(1).tolist() == [5.0, 5.0, 1.0, 1.0]


def test_class_shares_sum_to_one_within_the_mask() -> None:
    labels = torch.tensor([[1.0, 1.0, 1.0, 0.0]])
    assert class_shares(labels, torch.tensor([True, True, False, True])).tolist() == [[0.5, 0.5, 0.0, 0.0]]


def test_merged_prototypes_mask_classes_that_never_had_one() -> None:
    sums, counts = np.asarray([[3.0, 6.0], [0.0, 0.0], [0.0, 0.0]]), np.asarray([3.0, 0.0, 0.0])
    merged, mask = merged_prototypes(sums, counts, np.asarray([[7.0, 7.0], [0.0, 2.0], [0.0, 0.0]]))
    assert merged.tolist() == [[1.0, 2.0], [0.0, 2.0], [0.0, 0.0]]
    assert merged.dtype == np.float32
    assert mask.tolist() == [True, True, False]


def test_statistics_are_added_up_by_name() -> None:
    updates = [
        Message("update", "s", 0, sums={"both": np.asarray([1.0, 2.0]), **more})
        for more in ({"one": np.asarray(5.0)}, {}, {"other": np.asarray(7.0)})
    ]
    found = sum_statistics(updates)
    assert {name: array.tolist() for name, array in found.items()} == {"both": [3.0, 6.0], "one": 5.0, "other": 7.0}


def test_items_are_averaged_over_the_modalities_that_they_have() -> None:
    values = {"image": torch.tensor([[2.0], [2.0], [9.0], [9.0]]), "text": torch.tensor([[4.0], [8.0], [6.0], [8.0]])}
    has = {"image": torch.tensor([True, True, False, False]), "text": torch.tensor([True, False, True, False])}
    assert mean_over_modalities(values, has).tolist() == [[3.0], [2.0], [6.0], [0.0]]
    assert mean_over_modalities({"text": values["text"]}, has).tolist() == [[4.0], [0.0], [6.0], [0.0]]


@pytest.mark.parametrize(
    ("allowed", "rules", "kind", "text"),
    [
        (False, (), RevealsItems, "reveal_items"),
        (False, (ENCRYPTION, "federated.robust"), ConflictingOptions, r"federated.robust"),
        (True, ("federated.robust",), ConflictingOptions, r"federated.robust"),
    ],
)
def test_sums_that_reveal_items_must_be_allowed(
    allowed: bool, rules: tuple[str, ...], kind: type[UserError], text: str
) -> None:
    with pytest.raises(kind, match=text):
        check_revealing_sums("fedsums", "sums that reveal", allowed=allowed, rules=rules)
    check_revealing_sums("fedsums", "sums that reveal", allowed=True, rules=())


def test_release_rules_are_traits() -> None:
    traits = with_release(Traits(), ReleaseParams(min_count=4, max_labels=2), by_class=False)
    assert traits.release == Release(4, 2, used=True, by_class=False)
    assert list(traits.not_private) == ["min_count"]
    assert with_release(Traits(), ReleaseParams(min_count=1)).not_private == {}
