"""SHDCH: its objective by loops, the descent of its class codes, its sums over silos, its terms, its figures."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from silohash.base import seeds
from silohash.base.types import Outputs, Step
from silohash.methods.local.base import SiloData, SiloState, outputs_of, signs
from silohash.methods.local.label_counts import FederationLabels
from silohash.methods.local.supervised.shdch import (
    CARD,
    NO_HIERARCHY,
    SHDCH,
    HierarchyNet,
    SHDCHParams,
    Weights,
    class_residual,
    hierarchy_of,
    level_sums,
    objective,
    updated_codes,
)
from silohash.models.parameters import fixed_buffers, params_of
from silohash.models.specs import ModelSpec, TowerSpec
from silohash.models.towers import Adapted
from silohash.report.gather import warnings
from silohash.run.config.load import load_resolved
from silohash.study.config import load_study
from silohash.study.plan import planned_runs
from silohash.testing.inputs import prepared_inputs
from silohash.testing.loop import run_loop
from silohash.training.worker import Worker
from tests.runs import model_spec, silo_data, train, write_archive
from tests.unit.methods.federated.helpers import accepts
from tests.unit.methods.local.synthetic import synthetic

BITS = 8
IMAGE = Step("image", ("image.",), ("image",))
WEIGHTS = Weights(coarse=0.3, fine=0.7, hierarchy=2.0)


def problem(count: int = 40, seed: int = 0):
    """Return relaxed codes and labels of two modalities, class codes of both levels, and the pairs of labels."""
    generator = np.random.default_rng(seed)
    fine = np.eye(6)[generator.integers(0, 6, count)]
    coarse = fine @ np.eye(2)[[0, 0, 0, 1, 1, 1]]
    mixing = generator.normal(size=(6, BITS))
    drawn = [np.tanh(fine @ mixing + 0.5 * generator.normal(size=(count, BITS))) for _ in range(2)]
    codes = [(values, coarse, fine) for values in drawn]
    of_coarse, of_fine = (generator.choice([-1, 1], (classes, BITS)).astype(np.int8) for classes in (2, 6))
    return codes, of_coarse, of_fine, coarse.T @ fine


def test_the_objective_equals_its_sums_by_loops() -> None:
    codes, coarse, fine, pairs = problem(5)
    expected = 0.0
    for values, of_coarse, of_fine in codes:
        for level, classes, weight in ((of_coarse, coarse, 0.3), (of_fine, fine, 0.7)):
            for item in range(5):
                for number in range(len(classes)):
                    product = sum(values[item, k] * float(classes[number, k]) for k in range(BITS))
                    expected += weight * (BITS * level[item, number] - product) ** 2
    for above in range(2):
        for below in range(6):
            product = sum(float(coarse[above, k]) * float(fine[below, k]) for k in range(BITS))
            expected += 2.0 * (BITS * float(pairs[above, below] > 0) - product) ** 2
    found = objective(codes, coarse, fine, (pairs > 0).astype(float), WEIGHTS)
    assert found == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("weights", [WEIGHTS, Weights(0.3, 0.7, 0.0), Weights(0.3, 0.7, 100.0), Weights(0.0, 1.0, 5.0)])
def test_sweeps_never_increase_the_objective_and_reach_a_local_minimum(weights: Weights) -> None:
    codes, coarse, fine, pairs = problem()
    sums = level_sums(codes, pairs)
    before = objective(codes, coarse, fine, hierarchy_of(sums), weights)
    values = [before]
    for _ in range(10):
        coarse, fine = updated_codes(coarse, fine, sums, weights, 1)
        values.append(objective(codes, coarse, fine, hierarchy_of(sums), weights))
    assert all(after <= earlier * (1 + 1e-12) for earlier, after in pairwise(values))
    assert values[-1] < values[0]
    for level, classes in enumerate((coarse, fine)):
        for place in np.ndindex(classes.shape):
            flipped = classes.copy()
            flipped[place] *= -1
            pair = (flipped, fine) if level == 0 else (coarse, flipped)
            assert objective(codes, *pair, hierarchy_of(sums), weights) >= values[-1] * (1 - 1e-12)


def test_several_sweeps_are_single_sweeps_in_a_row_and_none_changes_nothing() -> None:
    codes, coarse, fine, pairs = problem()
    sums = level_sums(codes, pairs)
    expected = (coarse, fine)
    for number in range(4):
        found = updated_codes(coarse, fine, sums, WEIGHTS, number)
        assert all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))
        assert {array.dtype for array in found} == {np.dtype(np.int8)}
        expected = updated_codes(*expected, sums, WEIGHTS, 1)


def test_one_bit_follows_the_sum_of_its_class_and_keeps_its_value_where_nothing_decides() -> None:
    codes = np.asarray([[1], [1], [-1]], np.int8)
    sums = {
        "coarse": np.zeros((0, 1)), "fine": np.asarray([[-3.0], [2.0], [0.0]]), "gram": np.ones((1, 1)),
        "pairs": np.zeros((0, 3)), "rows": np.asarray(5.0),
    }  # fmt: skip
    _, found = updated_codes(np.zeros((0, 1), np.int8), codes, sums, Weights(0.0, 1.0, 0.0), 1)
    assert found.tolist() == [[-1], [1], [-1]]


def test_a_large_agreement_gives_a_fine_class_the_code_of_its_coarse_class() -> None:
    codes, coarse, fine, pairs = problem()
    found = updated_codes(coarse, fine, level_sums(codes, pairs), Weights(0.3, 0.7, 1e6), 5)
    assert all((found[1][number] @ found[0].astype(int).T).argmax() == number // 3 for number in range(6))


def two_levels(count: int = 24, *, text: bool = True) -> SiloData:
    """Return pairs with six fine classes, of which three each lie under a coarse one."""
    data = silo_data(count, single=True, text=text)
    assert data.labels is not None
    return replace(data, coarse_labels=data.labels @ torch.eye(2)[[0, 0, 0, 1, 1, 1]])


def built(data: SiloData, *, levels: int = 2, seed: int = 0, bits: int = BITS) -> HierarchyNet:
    spec = replace(model_spec(text=data.text is not None), coarse_classes=2 if levels == 2 else 0)
    with seeds.torch_globally(seed, "weights"):
        model = SHDCH(SHDCHParams()).build(spec, bits)
    assert isinstance(model, HierarchyNet)
    return model


def test_sums_of_silos_are_those_of_the_pooled_items_and_leave_out_what_is_missing() -> None:
    data = two_levels(30)
    labels, has_text = data.labels.clone(), torch.arange(30) % 4 > 0
    labels[3] = 0
    data = replace(data, labels=labels, has_text=has_text)
    model, method = built(data), SHDCH(SHDCHParams())
    parts = [method.silo_sums(model, data.take(torch.arange(start, end))) for start, end in ((0, 7), (7, 7), (7, 30))]
    pooled = method.silo_sums(model, data)
    assert pooled.keys() == {"coarse", "fine", "gram", "pairs", "rows"}
    for name, values in pooled.items():
        assert values.dtype == np.float64
        assert np.allclose(sum(part[name] for part in parts), values, rtol=1e-6, atol=1e-6)
    codes = outputs_of(model, data)
    fine, gram, rows = torch.zeros(6, BITS), torch.zeros(BITS, BITS), 0
    for item in range(30):
        for modality in ("image", "text"):
            if item != 3 and data.has(modality)[item]:
                fine += torch.outer(labels[item], codes[modality][item])
                gram += torch.outer(codes[modality][item], codes[modality][item])
                rows += 1
    assert np.allclose(pooled["fine"], fine, atol=1e-4)
    assert np.allclose(pooled["gram"], gram, atol=1e-4)
    assert pooled["rows"] == rows
    assert pooled["pairs"].sum() == 29
    empty = method.empty_sums(params_of(model))
    assert {name: (array.shape, array.dtype) for name, array in empty.items()} == {
        name: (array.shape, array.dtype) for name, array in pooled.items()
    }
    assert not any(array.any() for array in empty.values())
    assert method.empty_sums({}) == {}


@pytest.mark.parametrize("preset", ["recommended", "paper"])
def test_the_server_solves_with_the_weights_of_the_preset(preset: str) -> None:
    data = two_levels(30)
    model, method = built(data), SHDCH(SHDCHParams(**SHDCH.presets[preset]))
    sums = method.silo_sums(model, data)
    params = params_of(model)
    weights = Weights(0.3, 0.7, 100.0) if preset == "paper" else Weights(0.3 / 60, 0.7 / 60, 0.1 / 6)
    expected = updated_codes(params["coarse_codes"], params["fine_codes"], sums, weights, 3)
    found = method.solve(params, sums)
    assert np.array_equal(found["coarse_codes"], expected[0])
    assert np.array_equal(found["fine_codes"], expected[1])
    assert not np.array_equal(found["fine_codes"], params["fine_codes"])
    assert method.solve({"image.hash.weight": params["image.hash.weight"]}, sums) == {}


def test_class_codes_are_fixed_buffers_that_start_far_apart_and_depend_on_the_seed() -> None:
    data = two_levels()
    first, again, other = built(data), built(data), built(data, seed=1)
    assert fixed_buffers(first) == {"coarse_codes", "fine_codes"}
    assert torch.equal(first.get_buffer("fine_codes"), again.get_buffer("fine_codes"))
    assert not torch.equal(first.get_buffer("fine_codes"), other.get_buffer("fine_codes"))
    codes = first.get_buffer("fine_codes").int()
    assert torch.equal(codes @ codes.T, BITS * torch.eye(6, dtype=torch.int32))
    assert first.get_buffer("coarse_codes").shape == (2, BITS)
    assert built(data, levels=1).get_buffer("coarse_codes").shape == (0, BITS)
    assert len(built(data, bits=4).get_buffer("fine_codes").unique(dim=0)) == 6


@pytest.mark.parametrize("preset", ["recommended", "paper"])
def test_terms_by_loops(preset: str) -> None:
    data = two_levels(12)
    labels = data.labels.clone()
    labels[2] = 0
    data = replace(data, labels=labels)
    method, model, state = SHDCH(SHDCHParams(**SHDCH.presets[preset])), built(data), SiloState()
    method.init_state(Adapted(model, _Unchanged(), {}), data, state)
    rows = torch.tensor([5, 2, 0, 9])
    codes = torch.tanh(torch.from_numpy(np.random.default_rng(1).normal(size=(4, BITS)))).float()
    terms = method.terms(IMAGE, Outputs({}, {}, {"image": codes}), data.batch(rows), state)
    totals = {"fine": 0.0, "coarse": 0.0, "quantization": 0.0}
    for place, row in enumerate(rows.tolist()):
        totals["quantization"] += float((state.buffers["code"][row] - codes[place]).square().sum())
        if row == 2:
            continue
        for level, of_item in (("fine", labels[row]), ("coarse", data.coarse_labels[row])):
            for number, code in enumerate(model.get_buffer(f"{level}_codes")):
                product = float((codes[place] * code).sum())
                totals[level] += (float(of_item[number]) * BITS - product) ** 2
    if preset == "paper":
        expected = {name: total / (12 * 4) for name, total in totals.items()}
    else:
        expected = {name: totals[name] / BITS**2 / 3 for name in ("fine", "coarse")}
        expected["quantization"] = totals["quantization"] / (4 * BITS)
    assert {name: float(value) for name, (_, value) in terms.items()} == pytest.approx(expected, rel=1e-5)
    weights = {"fine": 0.7, "coarse": 0.3, "quantization": 10.0 if preset == "paper" else 0.1}
    assert {name: weight for name, (weight, _) in terms.items()} == weights


class _Unchanged:
    """An adapter that changes nothing."""

    adapts_training = True

    def adapt_outputs(self, outputs: Outputs, extras: object) -> Outputs:
        return outputs


def test_residual_is_zero_at_the_own_code_if_codes_are_orthogonal_and_one_at_zero() -> None:
    classes = torch.tensor([[1.0, 1.0], [1.0, -1.0]])
    labels = torch.eye(2)
    assert class_residual(classes, labels, classes).tolist() == [[0, 0], [0, 0]]
    assert class_residual(torch.zeros(1, 2), labels[:1], classes).tolist() == [[1, 0]]


def test_one_level_leaves_the_coarse_term_out() -> None:
    data = silo_data(12)
    method, model, state = SHDCH(SHDCHParams()), built(data, levels=1), SiloState()
    method.init_state(model, data, state)
    batch = data.batch(torch.arange(12))
    assert set(method.terms(IMAGE, model(batch, ("image",)), batch, state)) == {"fine", "quantization"}
    none = replace(data, has_image=torch.zeros(12, dtype=torch.bool)).batch(torch.arange(12))
    assert method.terms(IMAGE, model(none, ("image",)), none, state) == {}


def test_a_run_without_the_hierarchy_says_so() -> None:
    def remarks(**local: Any) -> tuple[str, ...]:
        return load_resolved({"data": {"name": "glyphs"}, "local": {"name": "shdch", **local}}).remarks

    assert remarks() == (NO_HIERARCHY,)
    assert remarks(preset="paper") == (NO_HIERARCHY,)
    assert remarks(coarse_column="kind") == remarks(coarse_weight=0.0) == ()


@pytest.mark.whole_run
def test_the_report_of_a_run_without_the_hierarchy_says_so(tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "archive", count=24, single=True)
    run = train(
        archive, tmp_path / "run", local={"name": "shdch"}, federated={"rounds": 1, "local_epochs": 1},
        evaluate={"validation": 0.0},
    )  # fmt: skip
    assert any(NO_HIERARCHY in warning.text for warning in warnings(run))


def test_the_tables_of_fedcafe_have_the_hierarchy_and_would_say_if_they_had_not(repository: Path) -> None:
    for name in ("table3", "table4", "table5"):
        (run, *_) = planned_runs(load_study(repository / f"recipes/papers/fedcafe-{name}.toml"))
        config = run.config.to_json()
        assert NO_HIERARCHY not in load_resolved(config).remarks
        del config["local"]["coarse_column"]
        assert NO_HIERARCHY in load_resolved(config).remarks


def test_targets_are_the_joint_signs_and_are_renewed_each_epoch() -> None:
    data = two_levels(10)
    method, model, state = SHDCH(SHDCHParams()), built(data), SiloState()
    method.init_state(model, data, state)
    assert torch.equal(state.buffers["code"], signs(state.buffers["image"] + state.buffers["text"]))
    method.record(IMAGE, Outputs({}, {}, {"image": torch.full((1, BITS), 9.0)}), data.batch(torch.tensor([4])), state)
    method.end_epoch(model, data, state)
    assert (state.buffers["code"][4] == 1).all()
    assert [step.name for step in method.steps(model)] == ["image", "text"]


@pytest.mark.whole_run
def test_silos_of_a_federation_train_with_the_codes_that_the_server_solves() -> None:
    inputs = prepared_inputs("shdch", "fedavg", (30, 20, 10), single=True)
    start = Worker(inputs, torch.device("cpu")).first_state().server.params["fine_codes"]
    states = [run_loop(inputs, stop=rounds, validate=False) for rounds in (1, 2)]
    found = [state.server.params["fine_codes"] for state in states]
    assert not np.array_equal(found[0], start)
    assert all(np.abs(codes).min() == 1 and codes.dtype == np.int8 for codes in found)
    inputs = prepared_inputs("shdch", "local", (30, 20, 10), single=True)
    state = run_loop(inputs, validate=False)
    assert all(np.array_equal(kept["model/fine_codes"], start) for kept in state.silos.values())


def test_warns_if_zeros_would_fit_as_well() -> None:
    assert "do not separate the classes" in SHDCH(SHDCHParams()).warnings({"fine": 1.0})[0]
    assert SHDCH(SHDCHParams()).warnings({"fine": 0.99}) == []
    assert SHDCH(SHDCHParams()).warnings({}) == []
    assert SHDCH(SHDCHParams(normalization="paper")).warnings({"fine": 1.0}) == []


def test_figures_on_single_labels_of_the_synthetic_archive() -> None:
    """Each item keeps its first label. Three labels form a coarse class."""
    torch.set_num_threads(1)
    split = synthetic()
    kept = {name: getattr(split, name).labels.argmax(1) for name in ("query", "database", "train")}
    train = split.train.silo()
    labels = torch.eye(12)[torch.from_numpy(kept["train"])]
    counts = FederationLabels(len(labels), labels.sum(0), exclusive=True, seed=0)
    data = replace(train, labels=labels, coarse_labels=torch.eye(4)[kept["train"] // 3], federation=counts)
    method = SHDCH(SHDCHParams(coarse_column="coarse"))
    towers = {m: TowerSpec("mlp", (width,), hidden=64) for m, width in (("image", 96), ("text", 150))}
    with seeds.torch_globally(0, "weights"):
        model = method.build(ModelSpec(towers, classes=12, coarse_classes=4), 16)
    generator = seeds.torch_generator(0, "order")
    for _ in range(8):
        state = SiloState()
        optimizers = {
            s.name: torch.optim.Adam(model.get_submodule(s.name).parameters(), 2e-3) for s in method.steps(model)
        }
        method.init_state(model, data, state)
        for _ in range(3):
            for rows in torch.randperm(len(data), generator=generator).split(128):
                for step in method.steps(model):
                    batch = data.batch(rows)
                    terms = method.terms(step, model(batch, step.modalities), batch, state)
                    optimizers[step.name].zero_grad()
                    sum(weight * value for weight, value in terms.values()).backward()
                    optimizers[step.name].step()
            method.end_epoch(model, data, state)
        solved = method.solve(params_of(model), method.silo_sums(model, data))
        for name, values in solved.items():
            model.get_buffer(name).copy_(torch.from_numpy(values))
    codes = [outputs_of(model, part.silo()) for part in (split.query, split.database)]
    relevant = torch.from_numpy(kept["query"][:, None] == kept["database"])
    for query, found in (("image", "text"), ("text", "image")):
        products = signs(codes[0][query]) @ signs(codes[1][found]).T
        near = torch.stack([relevant[row][products[row].argsort(descending=True)][:100] for row in range(300)])
        assert near.float().mean() > 0.38
    assert relevant.float().mean() < 0.1


def test_card_and_presets() -> None:
    assert (CARD.year, CARD.supervised, SHDCH.traits.needs_labels) == (2020, True, True)
    assert set(SHDCH.presets) == {"recommended", "paper", "authors_code"}
    assert SHDCHParams(**SHDCH.presets["authors_code"]).sweeps == 1
    paper = SHDCHParams(**SHDCH.presets["paper"])
    assert (paper.coarse_weight, paper.fine_weight, paper.hierarchy_weight) == (0.3, 0.7, 100.0)
    assert (paper.quantization_weight, paper.sweeps, paper.normalization) == (10.0, 3, "paper")
    assert SHDCH(SHDCHParams(coarse_column="sub_category")).traits.coarse_column == "sub_category"


@pytest.mark.parametrize(
    ("name", "value", "accepted"),
    [
        *((name, value, value >= 0) for name in ("coarse_weight", "fine_weight", "hierarchy_weight",
                                                 "quantization_weight") for value in (0, -0.1)),
        ("sweeps", 0, True),
        ("sweeps", -1, False),
    ],
)  # fmt: skip
def test_bounds_of_parameters(name: str, value: float, accepted: bool) -> None:
    assert accepts(SHDCHParams, name, value) == accepted
