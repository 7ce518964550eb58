"""What methods need of the data, and settings without an effect on it: unreleased classes, towers of too few silos."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from silohash.base.errors import LabelsNeeded, NotPrivate, UserError, ValidationNeeded
from silohash.data.partitions.base import partition
from silohash.features import featurizer
from silohash.features.base import add_statistics
from silohash.methods.federated import FEDERATED_METHODS
from silohash.methods.local import LOCAL_METHODS
from silohash.run.config.load import load_resolved, resolve
from silohash.run.config.sections import LocalConfig
from silohash.training.checks import decay_of_absent_words, no_statistics, training_rows, without_labels
from silohash.training.experiment import check_methods
from silohash.training.prepared import _remarks_on_silos, training_silos
from tests.archives import made_up_archive
from tests.runs import tiny_config

SILOS = [("a", 4, 1), ("b", 3, 1), ("c", 2, 0)]
ROWS = 11


def config(tmp_path, **sections):
    return resolve(tiny_config(tmp_path, **sections))


def remarks(
    *, text: tuple[str, ...] = ("a", "b", "c"), labels: np.ndarray | None = None, **federated: Any
) -> list[str]:
    """Return the remarks on three silos, some of which have texts. By default, all items have one of two classes in turn."""
    resolved = load_resolved({"data": {"name": "glyphs"}, "partition": {"silos": 3}, "federated": federated})
    if labels is None:
        labels = np.eye(2, dtype=np.float32)[np.arange(ROWS) % 2]
    has_text = np.concatenate([np.full(train + held, name in text) for name, train, held in SILOS])
    arrays = {"labels": labels, "has_image": np.ones(ROWS, bool), "has_text": has_text}
    return list(_remarks_on_silos(resolved, SILOS, arrays))


def test_decay_of_absent_words_names_the_values_and_the_remedy() -> None:
    (remark,) = decay_of_absent_words("adam", 5e-4)
    assert remark == (
        'train.weight_decay = 0.0005 with train.optimizer = "adam" moves the weights of words that a batch lacks toward '
        'zero at the full learning rate. Set train.optimizer = "adamw", or train.weight_decay = 0.'
    )


def test_rows_of_the_training_items() -> None:
    assert training_rows(SILOS) == [slice(0, 4), slice(5, 8), slice(9, 11)]


@pytest.mark.parametrize("name", ["fedhap", "fedcafe", "fedproc", "fedproto", "plfedcmh"])
def test_no_class_is_released(name: str) -> None:
    assert remarks(name=name, min_count=3) == [
        "No class is released: no silo has federated.min_count = 3 training items of one class, so what "
        f'"{name}" does with released classes has no effect. The largest class of a silo has 2 items.'
    ]
    assert remarks(name=name, min_count=2) == []


def test_validation_items_and_items_without_a_modality_are_not_released() -> None:
    labels = np.zeros((ROWS, 2), np.float32)
    labels[:5, 0] = 1  # four training items of the first silo and its validation item
    assert len(remarks(name="fedproc", min_count=5, labels=labels)) == 1
    assert remarks(name="fedproc", min_count=4, labels=labels) == []


def test_free_clusters_may_hold_all_items_of_a_silo() -> None:
    assert remarks(name="fedcafe", min_count=4, memory="reference") == []
    assert len(remarks(name="fedcafe", min_count=5, memory="reference")) == 1


def test_methods_that_do_not_use_released_classes() -> None:
    assert remarks(name="fedavg") == remarks(name="fedproc", contrast_weight=0.0) == []
    assert remarks(name="fedhap", triplet_weight=0.0, adversarial_weight=0.0) == []
    assert len(remarks(name="fedhap", triplet_weight=0.0)) == 1


def test_members_of_a_composition_are_named() -> None:
    (remark,) = remarks(name="compose", methods=[{"name": "fedprox"}, {"name": "fedproc", "min_count": 3}])
    assert '"fedproc" does with released classes' in remark


def test_towers_of_too_few_silos() -> None:
    assert remarks(weight_cap=0.4, text=("a", "b")) == [
        "federated.weight_cap = 0.4 cannot hold for the text tower, because only 2 silos train it. They have equal weights."
    ]
    assert remarks(weight_cap=0.5, text=("a", "b")) == remarks(weight_cap=0.4) == []
    assert remarks(robust={"rule": "median"}, text=("a", "b")) == [
        'The rule "median" does not protect the text tower, because only 2 of the silos train it and 3 are needed.'
    ]
    assert remarks(robust={"rule": "median"}, text=()) == remarks(robust={"rule": "clip"}, text=("a", "b")) == []
    assert remarks(name="local", text=("a",)) == []


@pytest.mark.parametrize("validation", [0, 0.2])
def test_scores_need_labeled_validation_queries(tmp_path, validation: float) -> None:
    given = {"federated": {"name": "fedbignns"}, "evaluate": {"validation": validation}}
    archive = made_up_archive(60)
    resolved = config(tmp_path, **given)
    silos = training_silos(archive, partition(archive, "iid", 3, 0), resolved)
    held = sum(len(silo.validation) for silo in silos)
    if validation:
        check_methods(archive, 1, held, resolved)
    else:
        with pytest.raises(ValidationNeeded, match=r"evaluate.validation"):
            check_methods(archive, 1, held, resolved)


@pytest.mark.parametrize(
    ("local", "federated", "modalities", "message"),
    [
        (
            {"item_bits": 16},
            {},
            2,
            "item_bits = 16 does not leave any bits for the classes, because codes have 16 bits",
        ),
        ({"item_bits": 15}, {}, 2, ""),
        (
            {"item_bits": 8},
            {},
            1,
            "Nothing trains the bits of local.item_bits = 8, because the archive has one modality",
        ),
        ({"item_bits": 8}, {"name": "fedridge", "reveal_items": True}, 2, '"fedridge" replaces the bits of local.item'),
        ({"item_bits": 0}, {"name": "fedridge", "reveal_items": True}, 1, ""),
    ],
)
def test_bits_of_items_need_bits_of_classes_pairs_and_a_method_that_keeps_them(
    tmp_path, local, federated, modalities, message
) -> None:
    archive = made_up_archive(60)
    resolved = config(tmp_path, local={"name": "centerap", "bits": 16, **local}, federated=federated)
    if not message:
        check_methods(archive, modalities, 0, resolved)
        return
    with pytest.raises(UserError, match=re.escape(message)):
        check_methods(archive, modalities, 0, resolved)


@pytest.mark.parametrize(
    ("local", "federated", "message"),
    [
        (
            "dcmh",
            "fedavg",
            r"dcmh.*learns.*made-up.*local\.name.*cmfh",
        ),
        (
            "cmfh",
            "fedhap",
            r'"fedhap" learns from labels.*or set federated\.name to one of centralized, .*fedavg, .*moon',
        ),
        ("dcmh", "fedhap", r"dcmh.*fedhap.*local\.name.*federated\.name"),
    ],
)
def test_methods_that_learn_from_labels_name_those_that_do_not(tmp_path, local, federated, message) -> None:
    archive = made_up_archive(60, labeled=False)
    resolved = config(tmp_path, local={"name": "dcmh"}, federated={"name": federated})
    resolved = replace(resolved, config=resolved.config.model_copy(update={"local": LocalConfig(name=local)}))
    if local == "cmfh":
        resolved = replace(resolved, local=config(tmp_path, local={"name": "cmfh"}).local)
    with pytest.raises(LabelsNeeded, match=message):
        check_methods(archive, 2, 0, resolved)
    zeros = np.zeros((60, 2), np.uint8)
    with pytest.raises(LabelsNeeded, match=message):
        check_methods(replace(archive, labels=zeros, label_names=("a", "b")), 2, 0, resolved)


def test_names_of_methods_without_labels_are_those_of_the_cards() -> None:
    assert "cmfh" in without_labels(LOCAL_METHODS)
    assert not {"dcmh", "triplet", "csq"} & set(without_labels(LOCAL_METHODS))
    assert {"fedavg", "fedprox", "moon", "compose"} <= set(without_labels(FEDERATED_METHODS))


@pytest.mark.parametrize(
    ("settings", "modalities", "message"),
    [
        ({"validation_by": "labels"}, 2, r'"labels" chooses the round by labels, and archive "made-up" has none\.'),
        ({"validation_by": "labels", "validation": 0}, 2, ""),
        ({"validation_by": "pairs"}, 1, r'"made-up" has one modality\. Set evaluate\.validation = 0'),
        ({"validation_by": "pairs"}, 2, ""),
        ({"validation_by": "pairs", "validation": 0}, 1, ""),
        ({"validation_by": "auto"}, 1, ""),
    ],
)
def test_the_round_is_chosen_by_what_the_archive_has(tmp_path, settings, modalities, message) -> None:
    archive = made_up_archive(60, labeled=False)
    resolved = config(tmp_path, local={"name": "cmfh"}, evaluate=settings)
    if not message:
        check_methods(archive, modalities, 0, resolved)
        return
    with pytest.raises(UserError, match=message):
        check_methods(archive, modalities, 0, resolved)


def test_scores_on_pairs_need_no_labels(tmp_path) -> None:
    given = config(
        tmp_path, local={"name": "dcmh"}, federated={"name": "fedbignns"}, evaluate={"validation_by": "pairs"}
    )
    labels = np.eye(60, dtype=np.uint8)
    archive = replace(made_up_archive(60), labels=labels, label_names=tuple(map(str, range(60))))
    check_methods(archive, 2, 5, given)
    with pytest.raises(ValidationNeeded):
        check_methods(archive, 2, 0, given)


TEXTS = np.array(["a red parrot", "a green parrot", "harbour at night"])
VECTORS = np.arange(12, dtype=np.float32).reshape(3, 4)
EVERY_ROW = np.arange(3)


@pytest.mark.parametrize("kind", ["tfidf", "count", "binary"])
def test_words_are_weighed_without_the_silos_texts(kind: str) -> None:
    made = featurizer("text", TEXTS, {"kind": kind, "buckets": 64})
    sums = no_statistics(made, TEXTS, EVERY_ROW)
    assert not any(array.any() for array in sums.values())
    assert "word_digests" not in sums
    fitted = made.fitted(add_statistics([sums, sums]))
    rows = fitted.transform(TEXTS, EVERY_ROW)
    assert rows.any(axis=1).all()
    if kind == "tfidf":
        assert np.allclose(np.linalg.norm(rows, axis=1), 1.0)
    assert fitted.encode_one("a purple zebra").any()


def test_vectors_are_left_as_they_are() -> None:
    made = featurizer("image", VECTORS, {"kind": "given", "standardize": False})
    fitted = made.fitted(add_statistics([no_statistics(made, VECTORS, EVERY_ROW)]))
    assert np.array_equal(fitted.transform(VECTORS, EVERY_ROW), VECTORS)


@pytest.mark.parametrize(
    ("modality", "column", "options", "remedy"),
    [
        ("image", VECTORS, {}, r"features\.image\.standardize"),
        ("text", TEXTS, {"min_texts": 2}, "with min_texts = 1"),
    ],
)
def test_features_that_need_sums_are_refused(modality, column, options, remedy) -> None:
    with pytest.raises(NotPrivate, match=remedy):
        no_statistics(featurizer(modality, column, options), column, EVERY_ROW)
