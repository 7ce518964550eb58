"""The second stage's scores equal those of the model, from nodes that were written and read in half precision."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from silohash.base.errors import NotIndexed, QueryUnsuitable
from silohash.features.vectors import vectors
from silohash.models.matching_net import nodes_of, scores_of
from silohash.models.nodes import Nodes, word_tables
from silohash.run.config.load import load_resolved
from silohash.run.folder import Run
from silohash.run.model.matcher import Matcher, arrays_of, matcher_of, network_of, nodes_from, query_nodes, write_nodes
from silohash.run.model.node_files import nodes_folder
from silohash.training import experiment
from tests.regions import matching_config, write_region_set


@pytest.fixture(scope="module", params=["vsepp", "gsmn", "joint_attention"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("matcher")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SILOHASH_DATA", str(write_region_set(folder / "data", pictures=24)))
        config = matching_config(federated={"rounds": 1, "local_epochs": 1}, local={"name": request.param})
        run = experiment.train(load_resolved(config), folder / "run")
        assert len(run.archive) == 120
        return run


@pytest.mark.whole_run
def test_scores_equal_those_of_the_model(run: Run, tmp_path: Path) -> None:
    encoder, archive = run.model.encoder(), run.archive
    network = network_of(encoder)
    assert network is not None
    rows = np.arange(40)
    for modality in ("image", "text"):
        write_nodes(tmp_path, encoder, archive, rows, modality)
    matcher = matcher_of(encoder, tmp_path)
    assert matcher is not None
    assert (matcher.most_shared("image"), matcher.most_shared("text")) == (5, 1)
    assert len(np.load(nodes_folder(tmp_path, "image") / "values.npy")) == 8
    images, texts = (
        nodes_of(network, torch.from_numpy(vectors(archive, encoder.featurizers[name], rows)), name)
        for name in ("image", "text")
    )
    exact = scores_of(network, images, texts)
    query = query_nodes(encoder, archive.caption(7), "text")
    assert query is not None
    keys = [31, 3, 30, 0]
    assert matcher.scores(query, "image", keys) == pytest.approx(exact[keys, 7].tolist(), abs=5e-3)
    asked = arrays_of(images.take(slice(12, 13)))
    assert matcher.scores(asked, "text", keys) == pytest.approx(exact[12, keys].tolist(), abs=5e-3)
    assert matcher.scores(query, "image", []) == []


@pytest.mark.whole_run
def test_nodes_that_were_not_written_are_named(run: Run, tmp_path: Path) -> None:
    with pytest.raises(NotIndexed, match="regions"):
        matcher(run, tmp_path).most_shared("image")


def matcher(run: Run, folder: Path) -> Matcher:
    found = matcher_of(run.model.encoder(), folder)
    assert found is not None
    return found


@pytest.mark.whole_run
def test_the_content_of_a_query_gives_the_nodes_of_the_query(run: Run, tmp_path: Path) -> None:
    encoder, text = run.model.encoder(), run.archive.caption(7)
    words = encoder.featurizers["text"].encode_one(text)
    expected = query_nodes(encoder, text, "text")
    assert expected is not None
    found = matcher(run, tmp_path).nodes(words, "image")
    assert set(found) == set(expected)
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array)
    regions = vectors(run.archive, encoder.featurizers["image"], np.array([3]))
    assert len(matcher(run, tmp_path).nodes(regions, "text")["values"]) == 1


@pytest.mark.whole_run
def test_content_that_does_not_fit_the_model_is_refused(run: Run, tmp_path: Path) -> None:
    featurizers = run.model.encoder().featurizers
    words = featurizers["text"].encode_one("A dog.")
    regions = vectors(run.archive, featurizers["image"], np.array([3]))
    unknown, low, behind, broken = words.copy(), words.copy(), words.copy(), regions.copy()
    [table, *_] = word_tables(run.model.trained.network())
    unknown[0, 1], low[0, 1], behind[0, -1], broken[0, 0, 0] = table.num_embeddings, -2, -2, np.nan
    for content, modality, flaw in (
        (words[:, :-1], "image", r"words.*torch.int32.*shape.*1.*11"),
        (np.repeat(words, 2, 0), "image", r"2.*12.*1.*12"),
        (words.astype(np.float32), "image", "they are torch.float32"),
        (unknown, "image", None),
        (low, "image", None),
        (behind, "image", None),
        (words, "text", "regions"),
        (regions[:, 1:], "text", r"torch.float16"),
        (broken, "text", None),
    ):
        with pytest.raises(QueryUnsuitable, match=flaw):
            matcher(run, tmp_path).nodes(content, modality)


def test_nodes_become_arrays_and_back() -> None:
    mask = torch.tensor([[True, False], [True, True]])
    nodes = Nodes(
        torch.randn(2, 2, 3), mask, edges=mask.unsqueeze(1) & mask.unsqueeze(2), extra={"whole": torch.ones(2, 3)}
    )
    again = nodes_from(arrays_of(nodes))
    torch.testing.assert_close(again.values, nodes.values)
    assert torch.equal(again.mask, nodes.mask)
    assert again.edges is not None
    assert torch.equal(again.edges, nodes.edges)
    assert again.boxes is None
    assert torch.equal(again.extra["whole"], torch.ones(2, 3))
