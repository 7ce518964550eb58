"""Made-up silos: labels, views of them, and what a silo lacks."""

from __future__ import annotations

import numpy as np
import pytest

from silohash.testing.inputs import (
    BOTH,
    CLASSES,
    MODALITIES,
    WIDTH,
    Held,
    labels_of,
    loop_config,
    model_spec,
    prepared_inputs,
    silo_data,
    views_of,
    without,
)


def test_labels_are_single_or_at_least_one() -> None:
    single, multi = labels_of(50, single=True), labels_of(50)
    assert single.sum(axis=1).tolist() == [1] * 50
    assert (multi >= single).all()
    assert multi.sum() > single.sum()
    assert multi.shape == (50, CLASSES)
    assert (labels_of(50) == multi).all()


def test_views_follow_the_labels_and_differ_between_modalities() -> None:
    labels = labels_of(200, single=True)
    image, text = views_of(labels, "image"), views_of(labels, "text")
    assert (image.shape, image.dtype) == ((200, WIDTH), np.float32)
    assert not np.allclose(image, text)
    classes = labels.argmax(axis=1)
    centers = np.stack([image[classes == c].mean(axis=0) for c in range(CLASSES)])
    nearest = ((image[:, None] - centers) ** 2).sum(axis=2).argmin(axis=1)
    assert (nearest == classes).mean() > 0.9


@pytest.mark.parametrize("held", MODALITIES, ids=str)
def test_silos_and_towers_have_the_same_modalities(held: Held) -> None:
    data, spec = silo_data(7, held=held), model_spec(held=held)
    assert {m for m in ("image", "text") if getattr(data, m) is not None} == set(spec.towers)
    assert (data.has_image.all().item(), data.has_text.all().item()) == (held.image, held.text)
    assert len(data) == 7


def test_a_silo_is_the_only_one_of_its_federation() -> None:
    for single in (True, False):
        data = silo_data(40, single=single)
        assert data.federation is not None
        assert data.federation.items == 40
        assert data.federation.counts.tolist() == data.labels.sum(0).tolist()
        assert data.federation.exclusive is single


def test_names_of_modalities() -> None:
    assert [str(held) for held in MODALITIES] == ["both", "image", "text"]
    assert MODALITIES[0] == BOTH


def test_config_of_one_round() -> None:
    config = loop_config(seed=3, epochs=4, rounds=5, batch=32)
    assert (config.seed, config.federated.local_epochs, config.federated.rounds, config.train.batch) == (3, 4, 5, 32)
    assert config.train.weight_decay == 0


def test_inputs_of_a_training() -> None:
    inputs = prepared_inputs("dcmh", "fedavg", (5, 3), validation=2, train={"batch": 4})
    assert inputs.silos == [("silo-0", 5, 2), ("silo-1", 3, 2)]
    sums = {name: inputs.arrays[name] for name in ("label_counts", "label_items")}
    assert {len(array) for name, array in inputs.arrays.items() if name not in sums} == {12}
    labels = inputs.arrays["labels"]
    assert sums["label_counts"].tolist() == (labels[:5].sum(axis=0) + labels[7:10].sum(axis=0)).tolist()
    assert sums["label_items"].tolist() == [8, sum(labels[row].sum() > 1 for row in (0, 1, 2, 3, 4, 7, 8, 9))]
    assert inputs.config.train.batch == 4
    assert prepared_inputs("dcmh", "centralized", (5, 3), validation=2).silos == [("silo-0", 8, 2)]


@pytest.mark.parametrize(
    ("case", "changed"),
    [
        ("labels", {"labels"}),
        ("all classes but one", {"labels"}),
        ("pictures", {"image", "has_image"}),
        ("texts", {"text", "has_text"}),
        ("items but one", set()),
    ],
)
def test_only_the_first_silo_lacks_something(case: str, changed: set[str]) -> None:
    inputs = prepared_inputs("dcmh", "fedavg", (5, 3), validation=2)
    after = without(inputs, case)
    differing = {name for name, array in inputs.arrays.items() if not np.array_equal(array, after.arrays[name])}
    assert differing - {"label_counts", "label_items"} == changed
    assert ("label_counts" in differing) == ("labels" in changed)
    for name in changed:
        assert np.array_equal(inputs.arrays[name][7:], after.arrays[name][7:])
    if case == "all classes but one":
        assert after.arrays["labels"][:7].tolist() == [[1, 0, 0, 0, 0, 0]] * 7
    elif changed:
        assert not any(after.arrays[name][:7].any() for name in changed)
