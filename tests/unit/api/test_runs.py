"""Opened runs: encoding, indexing with policies, searching, removing, evaluating."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from silohash.api.runs import TrainedRun, open_run, train
from silohash.base.errors import (
    AlreadyExists,
    ChoiceNeeded,
    ConflictingOptions,
    InvalidFile,
    NotARun,
    NotIndexed,
    OneInputNeeded,
    UnknownItem,
    UnknownName,
    UserError,
    WrongType,
)
from silohash.index.store import Store
from silohash.run.folder import Run
from tests.runs import tiny, write_archive
from tests.silos import ask_run


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trained run that is not indexed; its archive has words, given vectors and pictures of neither."""
    folder = tmp_path_factory.mktemp("api")
    archive = write_archive(folder / "archive", text="words")
    train(tiny(archive, federated={"rounds": 1}), folder / "run", report=False, index=False)
    return folder / "run"


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> TrainedRun:
    return open_run(shutil.copytree(trained, tmp_path / "run"))


@pytest.mark.whole_run
def test_a_run_is_trained_from_a_mapping_or_a_file(tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "archive", text="words")
    found = train(tiny(archive), tmp_path / "run", overrides=["federated.rounds=1", "seed=3"])
    assert isinstance(found, TrainedRun)
    assert (found.config.seed, found.config.federated.rounds) == (3, 1)
    assert (tmp_path / "run" / "report.html").exists()
    assert len(found.search("parrot", k=3)) == 3, "a trained run is indexed"
    again = train(str(tmp_path / "run" / "config.toml"), str(tmp_path / "again"), report=False)
    assert again.config == found.config
    assert not (tmp_path / "again" / "results.csv").exists()
    with pytest.raises(AlreadyExists):
        train(tiny(archive), tmp_path / "run")


@pytest.mark.whole_run
def test_what_a_run_knows_of_itself(run: TrainedRun) -> None:
    assert run.silos == ("silo-1", "silo-2", "silo-3")
    assert len(run.archive) == 120
    assert len(run.partition) == 3
    assert repr(run) == f'TrainedRun("{run.folder}": dcmh with fedavg, 16 bits, silos: silo-1, silo-2, silo-3)'


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotARun, match=r"config\.toml"):
        open_run(tmp_path)


@pytest.mark.whole_run
def test_codes_of_the_archive_of_the_run_and_of_another(run: TrainedRun, tmp_path: Path) -> None:
    codes = run.encode(modality="text")
    assert (len(codes), codes.bits, codes.modality) == (120, 16, "text")
    assert codes.ids[0] == "item-000"
    other = write_archive(tmp_path / "more", count=12, text="words", image=None, seed=5)
    assert len(run.encode(other)) == len(run.encode(str(other), "text")) == 12
    with pytest.raises(ChoiceNeeded, match="modality"):
        run.encode()
    with pytest.raises(UnknownName, match='"sound" is not a modality'):
        run.encode(modality="sound")
    with pytest.raises(UnknownName, match="silo-9"):
        run.encode(modality="text", model="silo-9")


@pytest.mark.whole_run
@pytest.mark.whole_run
def test_texts_and_images_have_the_codes_of_their_items(tmp_path: Path) -> None:
    glyphs = {"name": "glyphs", "options": {"faces": 1}}
    config = {**tiny(tmp_path, federated={"rounds": 1, "local_epochs": 1}), "data": glyphs}
    found = train(config, tmp_path / "run", report=False, index=False)
    items, pictures = found.archive, found.archive.pictures()
    assert pictures is not None
    texts = found.encode(list(items.text[:3]))
    np.testing.assert_array_equal(texts.words, found.encode(modality="text").words[:3])
    assert texts.ids.tolist() == ["0", "1", "2"]
    images = found.encode_images([pictures.picture(row) for row in range(2)])
    np.testing.assert_array_equal(images.words, found.encode(modality="image").words[:2])
    assert len(found.encode([])) == len(found.encode_images([])) == 0
    with pytest.raises(WrongType):
        found.encode([3])  # type: ignore[list-item]
    with pytest.raises(ConflictingOptions):
        found.encode(("circle",), "image")
    with pytest.raises(WrongType):
        found.encode_images("circle.png")


def test_a_search_equals_one_over_the_silos(run: TrainedRun) -> None:
    with pytest.raises(NotIndexed):
        run.search("parrot")
    lines: list[str] = []
    counts = run.index(notify=lines.append)
    assert counts == {
        name: len(run.partition.silos[n].split(run.archive, "database")) for n, name in enumerate(run.silos)
    }
    assert len(lines) == 4
    assert lines[-1].startswith("20 query items of archive are held out of the indexes")
    hits = run.search("parrot and harbour", k=7)
    expected = ask_run(Run(run.folder), "parrot and harbour", "text", "item", k=7)
    assert hits == expected
    assert [hit.id for hit in hits] == list(expected.ids)
    assert run.search("parrot and harbour", k=4, offset=3).ids == expected.ids[3:]
    near = run.search("parrot and harbour", k=100, radius_bits=expected.distances[3])
    assert set(near.distances) == set(expected.distances[:4])
    assert run.search("parrot", find="text").model_digests == hits.model_digests
    by_vector = run.search(vector=np.asarray(run.archive.image[0]), find="image", k=1)
    assert len(by_vector) == 1


@pytest.mark.whole_run
def test_only_items_with_the_label_are_found(run: TrainedRun) -> None:
    run.index()
    hits = run.search("parrot", label="parrot", k=200)
    held = run.archive.labels[:, run.archive.label_names.index("parrot")] != 0
    database = np.zeros(len(run.archive), bool)
    database[run.archive.split("database")] = True
    assert sorted(hits.ids) == sorted(run.archive.ids[held & database].tolist())
    assert all("parrot" in hit.labels for hit in hits)


@pytest.mark.whole_run
def test_both_backends_give_the_same_hits(run: TrainedRun) -> None:
    pytest.importorskip("faiss")
    run.index()
    assert run.search("parrot", k=30, engine="faiss") == run.search("parrot", k=30)
    with pytest.raises(UnknownName, match="annoy"):
        run.search("parrot", engine="annoy")


@pytest.mark.whole_run
def test_removed_items_are_no_longer_found(run: TrainedRun) -> None:
    run.index()
    first = run.search("parrot", k=2)
    removed = run.remove([first.ids[0], "nobody"])
    assert removed == {first.silos[0]: [first.ids[0]]}
    assert run.search("parrot", k=1).ids == first.ids[1:]
    with pytest.raises(UnknownItem, match='holds "nobody"'):
        run.remove(["nobody"])
    with pytest.raises(UnknownItem):
        run.remove([])
    with pytest.raises(UnknownItem, match='holds "nobody"'):
        run.remove("nobody")
    assert run.remove(first.ids[1]) == {first.silos[1]: [first.ids[1]]}, "a string is one id"
    run.index()
    assert run.search("parrot", k=2) == first


@pytest.mark.whole_run
def test_indexes_store_what_policies_release(run: TrainedRun) -> None:
    policies = run.folder / "policies"
    policies.mkdir()
    (policies / "silo-1.toml").write_text('fields = ["labels"]\nmax_results = 2\n')
    run.index()
    for silo, fields in (("silo-1", {"labels"}), ("silo-2", {"caption", "labels"})):
        with Store(run.folder / "index" / silo / "image.sqlite") as store:
            assert set(store.payloads(store.load().keys[:1])[0]) == fields
    hits = run.search("parrot", k=500)
    assert hits.silos.count("silo-1") == 2
    assert set(hits.limited_silos) == {"silo-1"}
    (policies / "silo-2.toml").write_text("max_results = 0")
    with pytest.raises(InvalidFile, match=r"silo-2\.toml.*max_results.*0"):
        run.index()


@pytest.mark.whole_run
def test_further_items_become_one_more_silo(run: TrainedRun, tmp_path: Path) -> None:
    more = write_archive(tmp_path / "more", text="words", seed=3)
    run.index()
    run.search("parrot")
    assert run.index(more) == {"more": 100}
    assert "more" in run.search("parrot", k=500).silos
    (run.folder / "policies").mkdir()
    (run.folder / "policies" / "more.toml").write_text('modalities = ["text"]')
    reopened = open_run(run.folder)
    assert "does not allow" in reopened.search("parrot", find="image").missing_silos["more"]
    hits = reopened.search("parrot", k=500)
    limit = "It searched its texts only. Its policy does not allow searching for images."
    assert hits.limited_silos == {"more": limit}
    assert {hit.found_by for hit in hits if hit.silo == "more"} == {("text",)}


@pytest.mark.whole_run
@pytest.mark.parametrize(
    ("options", "kind", "says"),
    [
        ({"text": 5}, WrongType, "The text is of type int"),
        ({"k": "2"}, WrongType, "k is '2'. Use a whole number"),
        ({"k": 2.5}, WrongType, "k is 2.5"),
        ({"radius_bits": "3"}, WrongType, "radius_bits is '3'"),
        ({"label": [5]}, WrongType, "labels is compared with 5"),
        ({"where": 5}, WrongType, "where is 5"),
        ({"text": "parrot", "vector": [1.0]}, OneInputNeeded, "text and vector were given"),
    ],
)
def test_values_of_another_type_are_explained(
    run: TrainedRun, options: dict[str, Any], kind: type[UserError], says: str
) -> None:
    run.index()
    with pytest.raises(kind, match=re.escape(says)):
        run.search(**{"text": "parrot", **options})


@pytest.mark.whole_run
def test_figures_of_the_run(run: TrainedRun) -> None:
    rows = run.evaluate(["P@5"], tasks=["t2i"], evaluations=["GG"])
    assert [(row.measure, row.task, row.evaluation) for row in rows] == [("P@5", "t2i", "GG")]
    assert {row.measure for row in run.evaluate(tasks=["t2i"])} == {"mAP@all", "P@5"}
    assert run.evaluate("P@5", tasks="t2i", evaluations="GG") == rows, "a string is one name"
