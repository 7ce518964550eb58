"""Runs whose models encode items with their true labels: codes, figures, indexes, searches and exports."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from silohash.api.runs import open_run
from silohash.base.errors import UserError
from silohash.base.types import MODALITIES, ORACLE, WITH_LABELS
from silohash.features.vectors import vectors
from silohash.index.store import Store
from silohash.report.card import card_text
from silohash.report.finish import finish_run
from silohash.report.gather import report_data
from silohash.report.tables import read_results
from silohash.run.codes import RunCodes
from silohash.run.folder import Run
from silohash.run.indexing import index_run
from silohash.run.model.export import export_onnx
from tests import runs

pytestmark = pytest.mark.whole_run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("labels")


@pytest.fixture(scope="module")
def trained(folder: Path) -> dict[str, Run]:
    """Return a measured run per input of the label networks."""
    archive = runs.write_archive(folder / "archive", text="words")
    found = {}
    for kind in ("label-free", "db-labels", "oracle-labels"):
        local = {"name": "dlffh", "labels": kind}
        found[kind] = runs.train(archive, folder / kind, local=local, federated={"rounds": 1})
        finish_run(found[kind])
    return found


SIDES = {"label-free": (), "db-labels": ("database",), "oracle-labels": ("query", "database")}


@pytest.mark.parametrize("kind", SIDES)
def test_each_side_has_the_labels_that_the_method_declares(trained: dict[str, Run], kind: str) -> None:
    run, rows = trained[kind], np.arange(40)
    encoder, codes = run.model.encoder(), RunCodes(run, rows)
    labels = run.archive.labels[rows]
    for modality in MODALITIES:
        given = vectors(run.archive, encoder.featurizers[modality], rows)
        for side in ("query", "database"):
            shown = labels if side in SIDES[kind] else None
            expected = encoder.codes_of(given, modality, run.archive.ids[rows], shown)
            assert np.array_equal(codes.words("global", modality, rows, side), expected.words)
        database = encoder.codes(run.archive, rows, modality)
        assert np.array_equal(database.words, codes.words("global", modality, rows, "database"))
        same = np.array_equal(database.words, codes.words("global", modality, rows, "query"))
        assert same == (kind != "db-labels")


@pytest.mark.parametrize(
    ("kind", "ending"), [("label-free", ""), ("db-labels", WITH_LABELS), ("oracle-labels", ORACLE)]
)
def test_figures_state_what_codes_were_computed_from(trained: dict[str, Run], kind: str, ending: str) -> None:
    rows = read_results(trained[kind].results_path)
    assert {row.database_code for row in rows if row.task in {"i2t", "t2i"}} == {f"one view{ending}"}
    assert {(row.oracle, row.uses_labels) for row in rows} == {(kind == "oracle-labels", bool(ending))}


def test_every_figure_of_an_oracle_run_is_marked(trained: dict[str, Run]) -> None:
    oracle = trained["oracle-labels"]
    page = oracle.report_path.read_text(encoding="utf-8")
    assert "These are oracle figures" in page
    figures = page[page.index('id="results"') :]
    assert figures.count("<td>mAP@all (oracle)</td>") > 1
    assert "<td>mAP@all</td>" not in figures
    text = card_text(oracle)
    assert "A query needs its own label" in text
    assert "| mAP@all |" not in text
    both = report_data([trained["label-free"], oracle])
    assert [run.name for run in both.runs] == ["label-free", "oracle-labels (oracle)"]
    assert {row.run for row in both.fair_rows} == {"label-free"}
    for kind in ("label-free", "db-labels"):
        assert "(oracle)" not in trained[kind].report_path.read_text(encoding="utf-8")


def test_only_models_without_labels_are_exported(trained: dict[str, Run], tmp_path: Path) -> None:
    assert trained["label-free"].model.record.onnx
    for kind in ("db-labels", "oracle-labels"):
        run = trained[kind]
        assert not run.model.record.onnx
        assert "true labels" in run.model.record.without_onnx
        with pytest.raises(UserError, match=r"cannot be exported, because .* true labels.*label-free"):
            export_onnx(run.model, run.archive, tmp_path / kind)


def test_an_index_has_the_labels_and_a_search_only_those_it_needs(
    trained: dict[str, Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("silohash.index.store.SMALL_ITEMS", -1)  # these indexes return their codes
    for kind, run in trained.items():
        index_run(run)
        encoder = run.model.encoder()
        silo = run.partition.silos[0]
        with Store(run.index_folder / silo.name / "text.sqlite") as store:
            index = store.load()
            rows = np.array([int(name.removeprefix("item-")) for name in store.item_ids(index.keys)])
            assert np.array_equal(index.words(index.keys), encoder.codes(run.archive, rows, "text").words)
        with open_run(run.folder) as opened:
            if kind == "oracle-labels":
                with pytest.raises(UserError, match=r"queries with their true labels.*label-free"):
                    opened.search("parrot")
            else:
                assert len(opened.search("parrot", k=3)) == 3


def test_an_archive_with_other_labels_is_refused(trained: dict[str, Run], tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    runs.write_metadata(
        other, [{"id": f"n{i}", "text": "parrot", "labels": "parrot" if i else "zebra"} for i in range(4)]
    )
    for kind in ("db-labels", "oracle-labels"):
        with (
            open_run(trained[kind].folder) as opened,
            pytest.raises(UserError, match=r"other labels than .*label-free"),
        ):
            opened.encode(other, "text")
        with (
            open_run(trained[kind].folder) as opened,
            pytest.raises(UserError, match=r"other labels than .*label-free"),
        ):
            opened.index(other)
    with open_run(trained["label-free"].folder) as opened:
        assert len(opened.encode(other, "text").ids) == 4
