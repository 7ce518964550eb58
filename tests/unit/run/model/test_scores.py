"""The scores of a run's images with its texts, and the score that validates a model."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from silohash.features.vectors import vectors
from silohash.methods.local.matching.vsepp import VSEpp
from silohash.models.matching_net import MatchingNet
from silohash.run.config.load import load_resolved
from silohash.run.folder import Run
from silohash.run.model.scores import ArchiveScores, match_score
from silohash.testing.inputs import node_data, node_spec
from silohash.training import experiment
from tests.regions import matching_config, write_region_set


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("scores")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SILOHASH_DATA", str(write_region_set(folder / "data")))
        config = matching_config(federated={"rounds": 1, "local_epochs": 1})
        run = experiment.train(load_resolved(config), folder / "run")
        assert len(run.archive) == 500
        return run


@pytest.mark.whole_run
def test_scores_are_those_of_the_model(run: Run) -> None:
    archive, network = run.archive, run.model.trained.network()
    assert isinstance(network, MatchingNet)
    pictures, texts = archive.split("query")[::5], archive.split("query")
    scores = ArchiveScores(run.model, archive)
    found = scores.of_model("i2t", "global", pictures, texts)
    regions, words = (
        torch.from_numpy(vectors(archive, run.model.featurizers[modality], rows))
        for modality, rows in (("image", pictures), ("text", texts))
    )
    with torch.no_grad():
        expected = network.eval().score(network.encoded(regions, "image"), network.encoded(words, "text"))
    np.testing.assert_allclose(found.values, expected.numpy(), atol=1e-5)
    turned = scores.of_model("t2i", "global", texts, pictures)
    np.testing.assert_array_equal(turned.values, found.values.T)
    fewer = scores.of_model("t2i", "global", texts[7:9], pictures[1:])
    np.testing.assert_allclose(fewer.values, found.values.T[7:9, 1:], atol=1e-6)


def test_validation_score_is_the_mean_of_six_recalls() -> None:
    torch.manual_seed(0)
    model = VSEpp(VSEpp.Params()).build(node_spec(), 16)
    data, pictures = node_data(12), np.arange(12) // 2 + 3
    data.has_text[5] = False
    score, chance, auc, _, judged = match_score(model, data, pictures)
    kept = np.flatnonzero(data.has_text.numpy())
    first = kept[np.unique(pictures[kept], return_index=True)[1]]
    with torch.no_grad():
        all_scores = model.score(model.encoded(data.image, "image"), model.encoded(data.text, "text")).numpy()
    values = all_scores[first][:, kept]
    right = pictures[first][:, None] == pictures[kept]
    recalls, priors = [], []
    for matrix, same in ((values, right), (values.T, right.T)):
        ranked = np.take_along_axis(same, np.argsort(-matrix, axis=1), axis=1)
        for cutoff in (1, 5, 10):
            recalls.append(ranked[:, :cutoff].any(1).mean())
            wrong = np.array([[(same.shape[1] - row.sum() - drawn) / (same.shape[1] - drawn) for drawn in range(cutoff)
                               if drawn < same.shape[1]] for row in same])  # fmt: skip
            priors.append(1 - np.maximum(wrong, 0).prod(1).mean())
    assert score == pytest.approx(np.mean(recalls))
    assert chance == pytest.approx(np.mean(priors))
    assert judged == len(first)
    assert 0 < auc < 1


def test_a_single_picture_has_no_score() -> None:
    model = VSEpp(VSEpp.Params()).build(node_spec(), 16)
    assert np.isnan(match_score(model, node_data(3), np.zeros(3, np.int64))[:4]).all()
