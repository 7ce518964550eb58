"""Our figures against ir-measures and torchmetrics, on rankings without ties: there is only one right answer.

The program behind ir-measures' exponential gain prints five digits.
"""

import ir_measures
import numpy as np
import pytest
import torch
from ir_measures import AP, P, R, Success, nDCG

from silohash.evaluate.measures import Measure, evaluate_all
from silohash.evaluate.relevance import Relevance

BITS, QUERIES, ITEMS, CLASSES = 256, 6, 240, 12


@pytest.fixture(scope="module")
def retrieval():
    """The functions of torchmetrics, which takes seconds to import: not while tests are only collected."""
    return pytest.importorskip("torchmetrics.functional.retrieval")


@pytest.fixture(scope="module")
def task():
    """Items at distances 0..239 from every query: a query of zeros, and items with so many ones, in mixed order."""
    generator = np.random.default_rng(11)
    ones = generator.permutation(ITEMS)
    signs = np.arange(BITS)[None] < ones[:, None]
    database = np.packbits(signs, axis=1, bitorder="little").view(np.uint64)
    queries = np.zeros((QUERIES, BITS // 64), np.uint64)
    labels = [(generator.random((count, CLASSES)) < 0.15).astype(np.uint8) for count in (QUERIES, ITEMS)]
    for part in labels:
        part[:QUERIES] |= np.eye(QUERIES, CLASSES, dtype=np.uint8)
    shared = labels[0].astype(int) @ labels[1].T.astype(int)
    assert (shared > 0).any(1).all()
    score = (BITS + 1.0 - ones)[None].repeat(QUERIES, 0)
    return queries, database, Relevance(*labels), shared, score


def ours(task, text, ties):
    measure = Measure.parse(text[:-1] + f",ties={ties}]" if text.endswith("]") else f"{text}[ties={ties}]")
    queries, database, relevance, _, _ = task
    found = evaluate_all([measure], queries, database, relevance, BITS)[measure]
    np.testing.assert_allclose(found.best, found.worst, atol=1e-12)
    return found.value


@pytest.mark.parametrize("ties", ["expected", "index"])
@pytest.mark.parametrize(
    ("text", "theirs"),
    [
        ("mAP@all", AP),
        ("mAP@25[denominator=all]", AP @ 25),
        ("P@10", P @ 10),
        ("R@25", R @ 25),
        ("Success@1", Success @ 1),
        ("nDCG@20", nDCG @ 20),
        ("nDCG@all", nDCG),
        ("nDCG@20[gain=exponential]", nDCG(dcg="exp-log2") @ 20),
    ],
)
def test_equal_to_ir_measures(task, ties, text, theirs):
    *_, shared, score = task
    judged = {str(q): {str(i): int(shared[q, i]) for i in range(ITEMS)} for q in range(QUERIES)}
    run = {str(q): {str(i): float(score[q, i]) for i in range(ITEMS)} for q in range(QUERIES)}
    by_query = {int(found.query_id): found.value for found in ir_measures.iter_calc([theirs], judged, run)}
    rounded = 5.1e-6 if "exponential" in text else 1e-6
    np.testing.assert_allclose(ours(task, text, ties), [by_query[q] for q in range(QUERIES)], atol=rounded)


@pytest.mark.parametrize(
    ("text", "theirs"),
    [
        ("mAP@all", "average_precision"),
        ("mAP@25[denominator=retrieved]", "average_precision"),
        ("P@10", "precision"),
        ("R@25", "recall"),
        ("Success@2", "hit_rate"),
    ],
)
def test_equal_to_torchmetrics(task, retrieval, text, theirs):
    *_, shared, score = task
    function, cut = getattr(retrieval, f"retrieval_{theirs}"), Measure.parse(text).cutoff
    expected = [
        function(torch.from_numpy(score[q]), torch.from_numpy(shared[q] > 0), top_k=cut).item() for q in range(QUERIES)
    ]
    np.testing.assert_allclose(ours(task, text, "expected"), expected, atol=1e-6)


def test_graded_gain_equal_to_torchmetrics(task, retrieval):
    *_, shared, score = task
    expected = [
        retrieval.retrieval_normalized_dcg(torch.from_numpy(score[q]), torch.from_numpy(shared[q]), top_k=20).item()
        for q in range(QUERIES)
    ]
    np.testing.assert_allclose(ours(task, "nDCG@20", "expected"), expected, atol=1e-6)
