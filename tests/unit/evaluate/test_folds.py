"""Measures over parts of the pictures equal those of each part by itself."""

from __future__ import annotations

import numpy as np
import pytest

from silohash.base.errors import OutOfRange, TooFew, UnknownOption
from silohash.evaluate.measures import Measure, evaluate_all, evaluate_in_folds, folds_of
from silohash.evaluate.relevance import Pairs
from silohash.evaluate.scores import NO_WORDS, Scores

PICTURES, FOLDS = 20, 4
TEXTS = np.arange(PICTURES).repeat(3)
ORDER = np.random.default_rng(1).permutation(len(TEXTS))
SCORES = np.random.default_rng(0).normal(size=(PICTURES, len(TEXTS))).round(1)
TO_TEXT = Pairs.of_groups(np.arange(PICTURES), TEXTS[ORDER])
TO_IMAGE = Pairs.of_groups(TEXTS[ORDER], np.arange(PICTURES))
NAMES = ("R@1[by=pairs,folds=4]", "MedR[by=pairs,folds=4]", "RSum[by=pairs,folds=4,ties=worst]", "R@5[by=pairs]")
MEASURES = [Measure.parse(name) for name in NAMES]


def test_names_state_the_folds() -> None:
    assert [str(measure) for measure in MEASURES] == list(NAMES)
    assert Measure.parse("R@1[by=pairs,folds=1]") == Measure.parse("R@1[by=pairs]")
    with pytest.raises(UnknownOption, match=r"R@1.*folds"):
        Measure.parse("R@1[folds=5]")
    with pytest.raises(OutOfRange, match="0"):
        Measure.parse("R@1[by=pairs,folds=0]")
    with pytest.raises(OutOfRange, match="few"):
        Measure.parse("R@1[by=pairs,folds=few]")


@pytest.mark.parametrize(("values", "pairs"), [(SCORES, TO_TEXT), (SCORES.T, TO_IMAGE)])
def test_each_query_is_ranked_among_its_own_fold(values: np.ndarray, pairs: Pairs) -> None:
    found = evaluate_in_folds(MEASURES, NO_WORDS, Scores(values), pairs, 0)
    assert list(found) == MEASURES
    asked = np.arange(PICTURES) if len(values) == PICTURES else TEXTS[ORDER]
    searched = TEXTS[ORDER] if len(values) == PICTURES else np.arange(PICTURES)
    priors = []
    for fold in range(FOLDS):
        queries, items = (np.flatnonzero(of // (PICTURES // FOLDS) == fold) for of in (asked, searched))
        alone = Pairs.of_groups(asked[queries], searched[items])
        for measure in MEASURES[:3]:
            plain = Measure.parse(str(measure).replace(",folds=4", ""))
            of_fold = evaluate_all([plain], NO_WORDS, Scores(values[np.ix_(queries, items)]), alone, 0)[plain]
            for name in ("value", "best", "worst"):
                np.testing.assert_allclose(getattr(found[measure], name)[queries], getattr(of_fold, name))
            priors.append(of_fold.prior)
    assert found[MEASURES[0]].prior == pytest.approx(np.mean(priors[::3]))
    whole = evaluate_all(MEASURES[3:], NO_WORDS, Scores(values), pairs, 0)[MEASURES[3]]
    np.testing.assert_array_equal(found[MEASURES[3]].value, whole.value)


def test_codes_have_folds_too() -> None:
    codes = np.random.default_rng(2).integers(0, 256, (PICTURES + len(TEXTS), 2)).astype(np.uint8)
    queries, items = codes[:PICTURES], codes[PICTURES:]
    distances = np.bitwise_count(queries[:, None] ^ items).sum(2)
    by_codes = evaluate_in_folds(MEASURES[:1], queries, items, TO_TEXT, 16)[MEASURES[0]]
    by_scores = evaluate_in_folds(MEASURES[:1], NO_WORDS, Scores(-distances.astype(float)), TO_TEXT, 0)[MEASURES[0]]
    np.testing.assert_allclose(by_codes.value, by_scores.value)


def test_folds_are_consecutive_and_cover_everything() -> None:
    folds = folds_of(Pairs.of_groups(np.arange(7), np.arange(7).repeat(2)), 3)
    assert [queries.tolist() for queries, _ in folds] == [[0, 1, 2], [3, 4], [5, 6]]
    assert np.concatenate([items for _, items in folds]).tolist() == list(range(14))
    with pytest.raises(TooFew, match=r"7.*8"):
        folds_of(Pairs.of_groups(np.arange(7), np.arange(7)), 8)
