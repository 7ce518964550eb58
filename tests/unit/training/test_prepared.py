"""Training inputs: which items each silo trains on and holds back, vectors, and the files that workers map."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from silohash.base.errors import ConflictingOptions, LabelsNeeded, ModalityNeeded, NothingUsable, UnknownName
from silohash.data.partitions.base import SiloRows, partition
from silohash.features import featurizer
from silohash.features.given import GivenFeatures
from silohash.features.image import PixelFeatures
from silohash.features.text import BagOfWords
from silohash.features.vectors import pixel_statistics, vectors
from silohash.measure.evaluation import trained_rows
from silohash.methods.federated.base import FederationInfo
from silohash.methods.local.base import SiloData
from silohash.run.config.load import resolve
from silohash.training.experiment import check_methods, prepare_run
from silohash.training.prepared import (
    Prepared,
    fit_featurizers,
    remarks_on,
    training_silos,
)
from tests.archives import made_up_archive
from tests.runs import prepared, same_arrays, tiny_config, train, write_archive

CPU = torch.device("cpu")


def config(tmp_path, **sections):
    return resolve(tiny_config(tmp_path, **sections))


def silos_of(archive, tmp_path, *, kind: str = "iid", **sections):
    given = config(tmp_path, **sections)
    parts = partition(archive, kind, 3, 0)
    return training_silos(archive, parts, given), parts, given


def test_training_items_are_split_and_never_asked(tmp_path) -> None:
    archive = made_up_archive(200)
    silos, parts, _ = silos_of(archive, tmp_path)
    train = set(archive.split("train").tolist())
    for silo, part in zip(silos, parts.silos, strict=True):
        ours = set(silo.train.tolist()) | set(silo.validation.tolist())
        assert ours == set(part.rows.tolist()) & train
        assert not set(silo.train.tolist()) & set(silo.validation.tolist())
        assert len(silo.validation) == int(0.2 * len(ours))
        assert not ours & set(archive.split("query").tolist())
    again, _, _ = silos_of(archive, tmp_path)
    assert all(np.array_equal(a.validation, b.validation) for a, b in zip(silos, again, strict=True))
    without, _, _ = silos_of(archive, tmp_path, evaluate={"validation": 0})
    assert not any(len(silo.validation) for silo in without)


def test_pairs_hold_back_all_texts_of_a_picture(tmp_path) -> None:
    archive = made_up_archive(300)
    pictures = np.array([f"picture-{row // 3}" for row in range(300)])
    archive = replace(archive, columns={"picture": pictures})
    for by in ("pairs", "labels"):
        silos, parts, given = silos_of(archive, tmp_path, evaluate={"validation_by": by})
        assert given.validation_by == by
        for silo, part in zip(silos, parts.silos, strict=True):
            rows = np.intersect1d(part.rows, archive.split("train"))
            assert np.array_equal(np.union1d(silo.train, silo.validation), rows)
        held, trained = (
            set(pictures[np.concatenate([getattr(silo, name) for silo in silos])]) for name in ("validation", "train")
        )
        assert not held & trained
        silo_by_silo = sum(int(0.2 * len(set(pictures[[*silo.train, *silo.validation]]))) for silo in silos)
        assert len(held) == (int(0.2 * len(held | trained)) if by == "pairs" else silo_by_silo)
    again, _, _ = silos_of(archive, tmp_path, evaluate={"validation_by": "labels"})
    first, _, _ = silos_of(archive, tmp_path)
    assert all(np.array_equal(a.validation, b.validation) for a, b in zip(again, first, strict=True))


@pytest.mark.parametrize("split", ["train", "database"])
def test_training_items_can_be_drawn_with_replacement(tmp_path, split: str) -> None:
    archive = made_up_archive(3000)
    archive = replace(archive, splits={**archive.splits, "train": archive.split("train")[::2]})
    parts = partition(archive, "iid", 3, 5, bootstrap=split)
    given = config(tmp_path, evaluate={"validation": 0.1})
    silos = training_silos(archive, parts, given)
    for silo, part in zip(silos, parts.silos, strict=True):
        held = part.split(archive, split)
        assert len(silo.train) + len(silo.validation) == len(held)
        assert set(silo.train) <= set(held) - set(silo.validation)
        assert (np.diff(silo.train) >= 0).all()
        assert 0.58 < len(np.unique(silo.train)) / len(silo.train) < 0.68  # 1 - 1/e is 0.632
    again = training_silos(archive, parts, given)
    assert all(np.array_equal(a.train, b.train) for a, b in zip(silos, again, strict=True))
    assert not np.array_equal(silos[0].train, training_silos(archive, replace(parts, seed=6), given)[0].train)
    (pooled,) = training_silos(
        archive, parts, config(tmp_path, federated={"name": "centralized"}, evaluate={"validation": 0.1})
    )
    assert np.array_equal(pooled.train, np.sort(np.concatenate([silo.train for silo in silos])))
    by_pairs = training_silos(archive, parts, config(tmp_path, local={"name": "dgcpn"}, evaluate={"validation": 0.1}))
    assert all(len(silo.validation) and not set(silo.train) & set(silo.validation) for silo in by_pairs)


def test_a_silo_without_items_draws_none(tmp_path) -> None:
    archive = made_up_archive(100)
    parts = partition(archive, "iid", 2, 0, bootstrap="train")
    parts = replace(parts, silos=(replace(parts.silos[0], rows=np.zeros(0, np.int64)), parts.silos[1]))
    assert [len(silo.train) > 0 for silo in training_silos(archive, parts, config(tmp_path))] == [False, True]


@pytest.mark.whole_run
@pytest.mark.parametrize("validation", [0.1, 0.0])
def test_a_run_with_items_drawn_with_replacement(tmp_path, validation) -> None:
    folder = write_archive(tmp_path / "archive")
    drawn = {
        "partition": {"kind": "dirichlet", "beta": 0.8, "minimum": 1, "bootstrap": "database", "separate_queries": True}
    }
    measured = {"evaluations": ["GL", "GG"], "validation": validation}
    run = train(folder, tmp_path / "run", **drawn, evaluate=measured, local={"name": "dgcpn"})
    assert run.partition.params["bootstrap"] == "database"
    sizes = [len(silo.split(run.archive, "database")) for silo in run.partition.silos]
    silos = training_silos(run.archive, run.partition, run.resolved)
    trained = np.unique(np.concatenate([silo.train for silo in silos]))
    assert np.array_equal(trained_rows(run), run.archive.split("database") if validation else trained)
    assert len(trained) < sum(sizes)
    prepared_again, _ = prepare_run(run.archive, run.partition, run.resolved)
    assert [train + held for _, train, held in prepared_again.silos] == sizes


def test_silos_without_pairs_hold_nothing_back_for_pairs(tmp_path) -> None:
    archive = made_up_archive(200)
    parts = partition(archive, "iid", 3, 0)
    parts = replace(parts, silos=(replace(parts.silos[0], has_text=False), *parts.silos[1:]))
    by_pairs = training_silos(archive, parts, config(tmp_path, local={"name": "cmfh"}))
    assert [len(silo.validation) > 0 for silo in by_pairs] == [False, True, True]
    assert all(len(silo.validation) for silo in training_silos(archive, parts, config(tmp_path)))
    one = made_up_archive(200, text=None)
    given = config(tmp_path, local={"name": "cmfh"})
    assert not any(len(silo.validation) for silo in training_silos(one, partition(one, "iid", 3, 0), given))


def test_silo_of_three_items_trains_on_all(tmp_path) -> None:
    archive = made_up_archive(40)
    parts = partition(archive, "iid", 2, 0)
    few = archive.split("train")[:3]
    rest = np.setdiff1d(archive.split("train"), few)
    small = replace(parts, silos=(SiloRows("small", few), SiloRows("large", rest)))
    silos = training_silos(archive, small, config(tmp_path, evaluate={"validation": 0.5}))
    assert (len(silos[0].train), len(silos[0].validation)) == (3, 0)
    assert len(silos[1].validation) == len(rest) // 2


def test_pooled_silo_trains_on_the_same_items_as_all_together(tmp_path) -> None:
    archive = made_up_archive(200)
    silos, parts, _ = silos_of(archive, tmp_path)
    (pooled,) = training_silos(archive, parts, config(tmp_path, federated={"name": "centralized"}))
    assert np.array_equal(pooled.train, np.sort(np.concatenate([silo.train for silo in silos])))
    assert np.array_equal(pooled.validation, np.sort(np.concatenate([silo.validation for silo in silos])))
    lacking = replace(parts, silos=(replace(parts.silos[0], has_text=False), *parts.silos[1:]))
    unpaired = replace(parts, silos=(replace(parts.silos[0], paired=False), *parts.silos[1:]))
    for less in (lacking, unpaired):
        with pytest.raises(ConflictingOptions, match=r"partition\.missing_text"):
            training_silos(archive, less, config(tmp_path, federated={"name": "centralized"}))


def test_nothing_to_train_on(tmp_path) -> None:
    archive = made_up_archive(60)
    empty = replace(archive, splits={**archive.splits, "train": np.zeros(0, np.int64)})
    parts = partition(archive, "iid", 3, 0)
    with pytest.raises(NothingUsable):
        training_silos(empty, parts, config(tmp_path))


def test_featurizers_are_fitted_to_the_sums_of_what_silos_train_on(tmp_path) -> None:
    archive = made_up_archive(200, text="features")
    silos, _, _ = silos_of(archive, tmp_path)
    unfitted = {m: featurizer(m, archive.values(m), {}) for m in ("image", "text")}
    fitted = fit_featurizers(archive, silos, unfitted)
    rows = np.concatenate([silo.train for silo in silos])
    values = archive.image[rows].astype(np.float64)
    expected = (archive.image - values.mean(0)) / values.std(0)
    assert np.allclose(fitted["image"].transform(archive.image, np.arange(200)), expected, atol=1e-4)
    without = [replace(silo, has_image=number > 0) for number, silo in enumerate(silos)]
    others = np.concatenate([silo.train for silo in silos[1:]])
    fewer = fit_featurizers(archive, without, unfitted)["image"].transform(archive.image, np.arange(200))
    values = archive.image[others].astype(np.float64)
    assert np.allclose(fewer, (archive.image - values.mean(0)) / values.std(0), atol=1e-4)
    with pytest.raises(ModalityNeeded, match=r"image.*image"):
        fit_featurizers(archive, [replace(silo, has_image=False) for silo in silos], unfitted)


def inputs(archive, tmp_path, *, lacking: bool = False, unpaired: bool = False, **sections) -> tuple[Prepared, list]:
    given = config(tmp_path, **sections)
    parts = partition(archive, "iid", 3, 0)
    if lacking:
        parts = replace(parts, silos=(replace(parts.silos[0], has_text=False), *parts.silos[1:]))
    if unpaired:
        parts = replace(parts, silos=(replace(parts.silos[0], paired=False), *parts.silos[1:]))
    return prepare_run(archive, parts, given)[0], training_silos(archive, parts, given)


def test_silos_get_their_own_rows_in_order(tmp_path) -> None:
    archive = made_up_archive(200)
    prepared, silos = inputs(archive, tmp_path, lacking=True)
    assert prepared.silos == [(silo.name, len(silo.train), len(silo.validation)) for silo in silos]
    for number, silo in enumerate(silos):
        train, validation = prepared.silo(number, CPU)
        for data, rows in ((train, silo.train), (validation, silo.validation)):
            assert isinstance(data, SiloData)
            assert np.array_equal(data.labels.numpy(), archive.labels[rows].astype(np.float32))
            assert data.has_text.tolist() == [number > 0] * len(rows)
            assert bool((data.text == 0).all()) == (number == 0)
            assert data.has_image.all()


def test_unpaired_silos_train_on_all_their_pictures_and_texts(tmp_path) -> None:
    archive = made_up_archive(200)
    prepared, silos = inputs(archive, tmp_path, unpaired=True)
    assert [size[1:] for size in prepared.silos] == [
        (len(silo.train) * times, len(silo.validation) * times) for silo, times in zip(silos, (2, 1, 1), strict=True)
    ]
    whole, _ = inputs(archive, tmp_path)
    for part, complete in zip(prepared.silo(0, CPU), whole.silo(0, CPU), strict=True):
        count = len(complete)
        assert not (part.has_image & part.has_text).any()
        assert torch.equal(part.image, torch.cat([complete.image, torch.zeros_like(complete.image)]))
        assert torch.equal(part.text, torch.cat([torch.zeros_like(complete.text), complete.text]))
        assert torch.equal(part.labels, torch.cat([complete.labels, complete.labels]))
        assert (part.count("image"), part.count("text")) == (count, count)
    for number in (1, 2):
        for part, complete in zip(prepared.silo(number, CPU), whole.silo(number, CPU), strict=True):
            assert torch.equal(part.image, complete.image)
            assert torch.equal(part.text, complete.text)
    labels = [archive.labels[np.tile(silo.train, 2 if number == 0 else 1)] for number, silo in enumerate(silos)]
    assert prepared.arrays["label_counts"].tolist() == np.concatenate(labels).sum(0).tolist()
    by_pairs, _ = inputs(archive, tmp_path, unpaired=True, local={"name": "cmfh"})
    assert [size[2] > 0 for size in by_pairs.silos] == [False, True, True]


def test_methods_without_labels_do_not_get_any(tmp_path) -> None:
    archive = made_up_archive(200)
    prepared, silos = inputs(archive, tmp_path, local={"name": "cmfh"})
    assert sorted(prepared.arrays) == ["has_image", "has_text", "image", "pictures", "text"]
    prepared, silos = inputs(archive, tmp_path, local={"name": "cmfh"}, evaluate={"validation_by": "labels"})
    assert sorted(prepared.arrays) == ["has_image", "has_text", "image", "judged_labels", "text"]
    assert (prepared.spec.classes, prepared.info().classes) == (0, 0)
    for number, silo in enumerate(silos):
        parts = prepared.silo(number, CPU)
        for data, judged, rows in zip(
            parts, prepared.judged(number, parts), (silo.train, silo.validation), strict=True
        ):
            assert (data.labels, data.federation, data.coarse_labels) == (None, None, None)
            assert np.array_equal(judged.labels.numpy(), archive.labels[rows].astype(np.float32))
            assert judged.image is data.image
            assert judged.text is data.text
    bare, _ = inputs(replace(archive, labels=None, label_names=()), tmp_path, local={"name": "cmfh"})
    parts = bare.silo(0, CPU)
    assert bare.judged(0, parts) is parts


def test_ignored_labels_are_known_to_the_validation_score(tmp_path) -> None:
    archive = made_up_archive(200)
    name = archive.label_names[2]
    assert inputs(archive, tmp_path)[0].ignored_labels == ()
    prepared, _ = inputs(archive, tmp_path, evaluate={"ignore_labels": [name]})
    assert prepared.ignored_labels == (2,)
    prepared.save(tmp_path)
    assert Prepared.load(tmp_path).ignored_labels == (2,)
    assert inputs(archive, tmp_path, local={"name": "cmfh"}, evaluate={"ignore_labels": [name]})[0].ignored_labels == ()


def test_round_trip_through_mapped_files(tmp_path) -> None:
    archive = made_up_archive(100, image="pictures")
    prepared, _ = inputs(archive, tmp_path, features={"image": {"kind": "pixels", "size": 16}}, data={"path": "x y"})
    (tmp_path / "inputs").mkdir()
    prepared.save(tmp_path / "inputs")
    read = Prepared.load(tmp_path / "inputs")
    assert read.config == prepared.config
    assert read.spec == prepared.spec
    assert read.silos == prepared.silos
    assert same_arrays(read.arrays, prepared.arrays)
    assert read.arrays["image"].dtype == np.uint8
    first, again = prepared.silo(1, CPU)[0], read.silo(1, CPU)[0]
    batch, same = (data.batch(torch.arange(5)).image for data in (first, again))
    assert torch.equal(batch, same)
    assert abs(float(batch.mean())) < 1


def test_towers_fit_the_vectors(tmp_path) -> None:
    archive = made_up_archive(100, image="pictures")
    prepared, _ = inputs(
        archive, tmp_path, features={"image": {"kind": "pixels", "size": 16}, "text": {"kind": "tfidf", "buckets": 64}}
    )
    towers = prepared.spec.towers
    assert (towers["image"].kind, towers["image"].shape, towers["image"].scale) == ("conv", (3, 16, 16), 1.0)
    assert (towers["text"].kind, towers["text"].shape, towers["text"].scale) == ("mlp", (64,), 2.0)
    assert towers["image"].hidden == 16
    assert prepared.spec.classes == 6
    widths = {"text": [24, 12]}
    wide, _ = inputs(archive, tmp_path, model={"widths": widths}, features={"image": {"kind": "pixels", "size": 16}})
    assert {m: (t.layers, t.hidden) for m, t in wide.spec.towers.items()} == {"image": ((), 16), "text": ((24,), 12)}
    given = made_up_archive(100, text=None)
    assert list(inputs(given, tmp_path)[0].spec.towers) == ["image"]
    assert pixel_statistics({}) == {}


def test_vectors_of_rows_that_lack_the_modality_are_zero(tmp_path) -> None:
    archive = made_up_archive(60)
    silos, _, _ = silos_of(archive, tmp_path)
    fitted = fit_featurizers(archive, silos, {"image": featurizer("image", archive.image, {})})["image"]
    rows, has = np.array([5, 1, 9]), np.array([True, False, True])
    found = vectors(archive, fitted, rows, has)
    assert (found[1] == 0).all()
    assert np.array_equal(found[[0, 2]], vectors(archive, fitted, rows[[0, 2]], np.ones(2, bool)))


def test_methods_that_need_what_is_not_there(tmp_path, monkeypatch) -> None:
    archive = made_up_archive(60, labeled=False)
    with pytest.raises(LabelsNeeded, match=r"dcmh.*learns.*made-up"):
        inputs(archive, tmp_path)
    one = made_up_archive(60, text=None)
    _, _, given = silos_of(one, tmp_path)
    monkeypatch.setattr(given.federated, "traits", replace(given.federated.traits, min_modalities=2))
    with pytest.raises(ModalityNeeded, match=r"fedavg.*2.*made-up.*1"):
        check_methods(one, 1, 0, given)


def test_few_color_pictures_for_a_tower_from_scratch_are_remarked() -> None:
    inputs = prepared((30, 20), validation=5)
    (remark,) = remarks_on(inputs, {"image": PixelFeatures(channels=3)})
    assert remark.startswith("The image tower is trained from scratch on 60 color pictures, which can teach it colors")
    assert remark.endswith("silohash new CONFIG --data FOLDER --backbone clip")
    assert remarks_on(inputs, {"image": PixelFeatures(channels=1)}) == []
    assert remarks_on(inputs, {"image": GivenFeatures("image", 16)}) == []
    assert remarks_on(inputs, {}) == []
    tuned = prepared((30, 20), model={"image": {"backbone": "huggingface"}})
    assert remarks_on(tuned, {"image": PixelFeatures(channels=3)}) == []


@pytest.mark.parametrize(("without", "count"), [(0, 0), (1, 1)])
def test_pictures_are_few_below_a_limit(monkeypatch: pytest.MonkeyPatch, without: int, count: int) -> None:
    monkeypatch.setattr("silohash.training.prepared.FEW_PHOTOGRAPHS", 60)
    inputs = prepared((30, 20), validation=5)
    inputs.arrays["has_image"][:without] = False
    assert len(remarks_on(inputs, {"image": PixelFeatures(channels=3)})) == count


@pytest.mark.parametrize(
    ("train", "count"),
    [
        ({"optimizer": "adam", "weight_decay": 5e-4}, 1),
        ({"optimizer": "adam", "weight_decay": 0.0}, 0),
        ({"optimizer": "adamw", "weight_decay": 5e-4}, 0),
        ({"optimizer": "sgd", "weight_decay": 5e-4}, 0),
        ({}, 0),
    ],
)
def test_weight_decay_that_erases_absent_words_is_remarked(train: dict[str, Any], count: int) -> None:
    inputs = prepared((30, 20), train=train)
    assert len(remarks_on(inputs, {"text": BagOfWords()})) == count
    assert remarks_on(inputs, {"text": GivenFeatures("text", 16), "image": GivenFeatures("image", 16)}) == []


def test_four_items_are_enough_for_validation(tmp_path) -> None:
    archive = made_up_archive(40)
    train = archive.split("train")
    parts = replace(partition(archive, "iid", 2, 0), silos=(SiloRows("a", train[:4]), SiloRows("b", train[4:9])))
    silos = training_silos(archive, parts, config(tmp_path, evaluate={"validation": 0.5}))
    assert [(len(silo.train), len(silo.validation)) for silo in silos] == [(2, 2), (3, 2)]


def test_a_single_pooled_silo_keeps_its_name(tmp_path) -> None:
    archive = made_up_archive(40)
    parts = replace(partition(archive, "iid", 2, 0), silos=(SiloRows("only", archive.split("train")),))
    (silo,) = training_silos(archive, parts, config(tmp_path, federated={"name": "centralized"}))
    assert silo.name == "only"
    (pooled,) = training_silos(
        archive, partition(archive, "iid", 2, 0), config(tmp_path, federated={"name": "centralized"})
    )
    assert (pooled.name, pooled.has_image, pooled.has_text) == ("pooled", True, True)


def test_a_pooled_run_needs_the_images_of_every_silo(tmp_path) -> None:
    archive = made_up_archive(40)
    parts = partition(archive, "iid", 2, 0)
    lacking = replace(parts, silos=(parts.silos[0], replace(parts.silos[1], has_image=False)))
    with pytest.raises(ConflictingOptions):
        training_silos(archive, lacking, config(tmp_path, federated={"name": "centralized"}))


def test_silos_without_training_items_may_stand_beside_others(tmp_path) -> None:
    archive = made_up_archive(40)
    train = archive.split("train")
    parts = replace(partition(archive, "iid", 2, 0), silos=(SiloRows("none", train[:0]), SiloRows("all", train)))
    silos = training_silos(archive, parts, config(tmp_path))
    assert [len(silo.train) + len(silo.validation) for silo in silos] == [0, len(train)]
    fitted = fit_featurizers(archive, silos, {"image": featurizer("image", archive.image, {})})
    assert fitted["image"].shape == (12,)


def test_labels_that_nobody_has_are_no_labels(tmp_path) -> None:
    archive = made_up_archive(60)
    with pytest.raises(LabelsNeeded):
        inputs(replace(archive, labels=np.zeros_like(archive.labels)), tmp_path)


def test_a_class_head_is_built_for_methods_that_need_one(tmp_path) -> None:
    archive = made_up_archive(60)
    assert inputs(archive, tmp_path, federated={"name": "fedcafe"})[0].spec.class_head
    assert not inputs(archive, tmp_path)[0].spec.class_head


def test_all_silos_share_the_label_counts_of_the_training_items(tmp_path) -> None:
    archive = made_up_archive(200)
    given, silos = inputs(archive, tmp_path, seed=4)
    rows = np.concatenate([silo.train for silo in silos])
    given.save(tmp_path)
    for source in (given, Prepared.load(tmp_path)):
        for number in range(3):
            for data in source.silo(number, CPU):
                assert data.federation is not None
                assert (data.federation.items, data.federation.seed) == (len(rows), 4)
                assert data.federation.counts.tolist() == archive.labels[rows].sum(axis=0).tolist()
                assert data.federation.exclusive == (not (archive.labels[rows].sum(axis=1) > 1).any())


def test_items_without_labels_have_no_label_counts(tmp_path) -> None:
    given, _ = inputs(made_up_archive(60), tmp_path)
    arrays = {name: array for name, array in given.arrays.items() if not name.startswith("label")}
    assert replace(given, arrays=arrays).silo(0, CPU)[0].federation is None


def test_a_coarser_level_of_labels_is_a_column_of_the_archive(tmp_path) -> None:
    archive = made_up_archive(60)
    kinds = np.asarray(["shoes", "bags", "", "belts"])[np.arange(60) % 4]
    typed = np.where(np.arange(60) % 8 == 0, "shoes\u200b", kinds)
    archive = replace(archive, columns={**archive.columns, "kind": typed})
    given, silos = inputs(archive, tmp_path, local={"name": "shdch", "coarse_column": "kind"})
    assert given.spec.coarse_classes == 3
    for number, silo in enumerate(silos):
        for data, rows in zip(given.silo(number, CPU), (silo.train, silo.validation), strict=True):
            expected = kinds[rows][:, None] == np.asarray(["bags", "belts", "shoes"])
            assert data.coarse_labels.tolist() == expected.astype(float).tolist()
    flat, _ = inputs(archive, tmp_path, local={"name": "shdch"})
    assert flat.spec.coarse_classes == 0
    assert flat.silo(0, CPU)[0].coarse_labels is None
    with pytest.raises(UnknownName, match="kinds"):
        inputs(archive, tmp_path, local={"name": "shdch", "coarse_column": "kinds"})
    with pytest.raises(UnknownName, match="kinds"):
        inputs(replace(archive, columns={}), tmp_path, local={"name": "shdch", "coarse_column": "kinds"})


@pytest.mark.parametrize(("counts", "exclusive"), [([3, 1], False), ([3, 0], True), (None, True)])
def test_the_server_knows_whether_labels_are_exclusive(counts: list[int] | None, exclusive: bool) -> None:
    inputs = prepared((6, 4), seed=3, federated={"rounds": 5})
    arrays = {name: array for name, array in inputs.arrays.items() if name != "label_items"}
    if counts is not None:
        arrays["label_items"] = np.asarray(counts)
    info = replace(inputs, arrays=arrays).info()
    assert info == FederationInfo(
        silos=2, classes=inputs.spec.classes, bits=inputs.config.local.bits, total_rounds=5, seed=3, exclusive=exclusive
    )
