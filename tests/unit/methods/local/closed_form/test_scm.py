"""SCM: the correlation and its deflation against explicit loops in float64, the rank, the pooled codes from sums."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch

from silohash.base import seeds
from silohash.methods.local.base import outputs_of
from silohash.methods.local.closed_form.base import Views, fit_from_sums, total, views_of
from silohash.methods.local.closed_form.scm import (
    SCM,
    SCMParams,
    aligned,
    leading_pairs,
    signs_of,
    unit_rows,
    whitening,
)
from silohash.models.parameters import install, params_of
from silohash.models.specs import ModelSpec, TowerSpec
from tests.runs import model_spec, silo_data
from tests.unit.methods.local.synthetic import BAND, IMAGE_WIDTH, TEXT_WIDTH, figures, synthetic

SPEC = ModelSpec({"image": TowerSpec("mlp", (IMAGE_WIDTH,)), "text": TowerSpec("mlp", (TEXT_WIDTH,))}, 12)
RANDOM = 0.241


def built(method: SCM, bits: int, spec: ModelSpec = SPEC) -> torch.nn.Module:
    with seeds.torch_globally(0, "weights"):
        return method.build(spec, bits)


def solved(method: SCM, silos: Sequence[Views], bits: int, spec: ModelSpec = SPEC):
    """Return the solutions after every exchange with the silos."""
    solutions = [method.begin(params_of(built(method, bits, spec)))]
    for exchange in range(method.exchanges(bits)):
        sums = total(method.sums(views, solutions[-1].sent, exchange) for views in silos)
        solutions.append(method.solve(solutions[-1], sums, exchange))
    return solutions


def expected_directions(
    views: Views, bits: int, ridge: float, variant: str
) -> tuple[np.ndarray, np.ndarray, list[float]]:
    """Return projections of standardized vectors and singular values, by the definition and with all matrices formed."""
    x, y = ((v - v.mean(0)) / v.std(0) for v in (views.vectors[m].astype(np.float64) for m in ("image", "text")))
    unit = views.labels / np.linalg.norm(views.labels, axis=1, keepdims=True)
    similarity = 2.0 * unit @ unit.T - 1.0
    correlation = bits * x.T @ similarity @ y
    inverse = []
    for rows in (x, y):
        moments = rows.T @ rows
        values, vectors = np.linalg.eigh(moments + ridge * np.trace(moments) / len(moments) * np.eye(len(moments)))
        inverse.append(vectors @ np.diag(values**-0.5) @ vectors.T)
    found_x, found_y, singular = [], [], []
    for bit in range(bits):
        left, values, right = np.linalg.svd(inverse[0] @ correlation @ inverse[1])
        which = bit if variant == "orth" else 0
        found_x.append(inverse[0] @ left[:, which])
        found_y.append(inverse[1] @ right[which])
        singular.append(float(values[which]))
        if variant == "seq":
            correlation = correlation - np.outer(
                x.T @ np.where(x @ found_x[-1] >= 0, 1, -1), y.T @ np.where(y @ found_y[-1] >= 0, 1, -1)
            )
    return np.array(found_x).T, np.array(found_y).T, singular


@pytest.mark.parametrize("variant", ["orth", "seq"])
def test_directions_are_those_of_the_definition(variant: str) -> None:
    views = views_of(built(SCM(SCMParams()), 6), synthetic().train.silo())
    last = solved(SCM(SCMParams(variant=variant, ridge=0.01)), [views], 6)[-1].private
    image, text, values = expected_directions(views, 6, 0.01, variant)
    np.testing.assert_allclose(last["values"], values, rtol=1e-6)
    for modality, expected in (("image", image), ("text", text)):
        found = last[f"{modality}/directions"]
        flips = np.sign((found * expected).sum(0))
        np.testing.assert_allclose(found * flips, expected, atol=1e-7)
    joint = np.sign((last["image/directions"] * image).sum(0)), np.sign((last["text/directions"] * text).sum(0))
    assert np.array_equal(*joint), "a bit has the same sign in both modalities"


@pytest.mark.parametrize("bits", [16, 32])
def test_singular_values_do_not_increase(bits: int) -> None:
    views = views_of(built(SCM(SCMParams()), bits), synthetic().train.silo())
    values = solved(SCM(SCMParams()), [views], bits)[-1].private["values"]
    assert len(values) == bits
    assert (np.diff(values) <= 0).all()
    assert (values > 0).all()


SPLITS = {"7 silos": np.arange(0, 1501, 1500 // 7)[1:7], "an empty silo": [500, 500, 510], "single items": [1, 2, 3]}


@pytest.mark.parametrize("variant", ["orth", "seq"])
@pytest.mark.parametrize("split", SPLITS)
def test_sums_of_silos_give_the_codes_of_the_pooled_items(variant: str, split: str) -> None:
    method, everything = SCM(SCMParams(variant=variant)), synthetic()
    model = built(method, 12)
    views = views_of(model, everything.train.silo())
    parts = [views.take(rows) for rows in np.split(np.random.default_rng(0).permutation(1500), SPLITS[split])]
    assert sum(map(len, parts)) == 1500
    shared = solved(method, parts, 12)[-1].params
    method.fit(model, everything.train.silo())
    pooled = outputs_of(model, everything.database.silo())
    install(model, shared)
    again = outputs_of(model, everything.database.silo())
    for modality, outputs in pooled.items():
        assert torch.equal(outputs >= 0, again[modality] >= 0)


def test_silos_receive_one_direction_per_bit_and_no_moments() -> None:
    method = SCM(SCMParams())
    views = views_of(built(method, 5), synthetic().train.silo())
    solutions = solved(method, [views], 5)
    assert method.exchanges(5) == len(solutions) - 1 == 6
    names = {f"{m}/{part}" for m in ("image", "text") for part in ("mean", "factor")}
    directions = {f"{m}/direction" for m in ("image", "text")}
    assert [set(solution.sent) for solution in solutions] == [set(), names, *[names | directions] * 5]
    assert solutions[2].sent["image/direction"].shape == (IMAGE_WIDTH,)
    sums = method.sums(views, solutions[2].sent, 2)
    assert {name: array.shape for name, array in sums.items()} == {"image/signs": (96,), "text/signs": (150,)}
    assert all(solution.params is solutions[0].params for solution in solutions[:-1])
    assert SCM(SCMParams(variant="orth")).exchanges(64) == 2


def test_pairs_of_a_product_that_is_not_formed() -> None:
    generator = np.random.default_rng(0)
    left, right, weights = generator.normal(size=(9, 4)), generator.normal(size=(7, 4)), np.array([3.0, 2.0, 1.0, -1.0])
    u, values, _ = np.linalg.svd(left @ np.diag(weights) @ right.T)
    found, first, second = leading_pairs(left, right, weights, 6)
    np.testing.assert_allclose(found, [*values[:4], 0.0, 0.0], atol=1e-12)
    np.testing.assert_allclose(np.abs(first[:, :4]), np.abs(u[:, :4]), atol=1e-10)
    assert not first[:, 4:].any()
    assert not second[:, 4:].any()
    np.testing.assert_allclose(first * found @ second.T, left @ np.diag(weights) @ right.T, atol=1e-10)
    assert leading_pairs(left, right, 0.0 * weights, 2)[0].tolist() == [0.0, 0.0]


def test_pairs_of_one_modality_are_eigenvectors_with_positive_values() -> None:
    left = np.random.default_rng(0).normal(size=(6, 3))
    weights = np.array([1.0, 1.0, -50.0])
    values = np.linalg.eigvalsh(left @ np.diag(weights) @ left.T)[::-1]
    found, first, second = leading_pairs(left, left, weights, 3)
    np.testing.assert_allclose(found, [*values[:2], 0.0], atol=1e-10)
    assert np.array_equal(first, second)


def test_a_rise_of_the_singular_value_ends_in_canonical_correlation() -> None:
    method = SCM(SCMParams(ridge=1e-3))
    views = views_of(built(method, 4), synthetic().train.silo())
    private = dict(solved(method, [views], 4)[2].private) | {"values": np.array([1e-3])}
    private |= {f"{m}/directions": private[f"{m}/directions"][:, :1] for m in ("image", "text")}
    found = method._with_next_bit(private, 4)
    x, y = ((v - v.mean(0)) / v.std(0) for v in (views.vectors[m].astype(np.float64) for m in ("image", "text")))
    roots = [np.linalg.inv(whitening(rows.T @ rows, 1e-3)) for rows in (x, y)]
    values = np.linalg.svd(roots[0] @ x.T @ y @ roots[1].T, compute_uv=False)
    np.testing.assert_allclose(found["values"][1:], values[:3], rtol=1e-6)
    w, v = found["image/directions"][:, 1], found["text/directions"][:, 1]
    assert float(w @ x.T @ y @ v) == pytest.approx(values[0], rel=1e-6)
    forever = SCM(SCMParams(after_rise="continue"))
    assert "paired" not in forever.sums(views, solved(method, [views], 4)[1].sent, 1)
    assert len(forever._with_next_bit({n: a for n, a in private.items() if n != "paired"}, 4)["values"]) == 2


def test_signs_agree_with_the_hash_layers_that_silos_start_from() -> None:
    params = {"image.hash.weight": np.array([[1.0, 0.0], [0.0, 1.0]]), "text.hash.weight": np.array([[0.0], [4.0]])}
    found = aligned({"image": np.array([[2.0, 0.0], [0.0, 1.0]]), "text": np.array([[1.0, -3.0]])}, params)
    assert found["image"].tolist() == [[2.0, 0.0], [0.0, -1.0]]
    assert found["text"].tolist() == [[1.0, 3.0]]
    assert signs_of(np.array([-0.0, 0.0, -1.0])).tolist() == [1.0, 1.0, -1.0]


def test_labels_of_length_one() -> None:
    np.testing.assert_allclose(unit_rows(np.array([[3.0, 4.0], [0.0, 0.0]])), [[0.6, 0.8], [0.0, 0.0]])


def test_bits_beyond_the_rank_are_constant_and_named() -> None:
    method, data = SCM(SCMParams(variant="orth")), silo_data(60)
    model = built(method, 16, model_spec())
    method.fit(model, data)
    constant = {m: (o.abs().max(0).values == 0).sum().item() for m, o in outputs_of(model, data).items()}
    assert constant == {"image": 10, "text": 10}, "the labels have rank 6"
    (remark,) = method.remarks(model_spec(), 16)
    assert 'local.variant = "orth" gives at most 6 bits here' in remark
    assert "so 10 of the 16 bits are constant" in remark
    assert method.remarks(model_spec(), 6) == SCM(SCMParams()).remarks(model_spec(), 16) == []


def test_outputs_have_unit_variance_and_scales_do_not_matter() -> None:
    method, train = SCM(SCMParams(ridge=1e-6)), synthetic().train
    model = built(method, 8)
    method.fit(model, train.silo())
    for outputs in outputs_of(model, train.silo()).values():
        np.testing.assert_allclose(outputs.double().std(0, unbiased=False), 1.0, atol=1e-3)
    codes = outputs_of(model, train.silo())["image"] >= 0
    scaled = train.silo()
    method.fit(model, type(scaled)(**{**vars(scaled), "image": scaled.image * torch.linspace(1, 9, IMAGE_WIDTH) + 3}))
    other = type(scaled)(**{**vars(scaled), "image": scaled.image * torch.linspace(1, 9, IMAGE_WIDTH) + 3})
    assert (codes == (outputs_of(model, other)["image"] >= 0)).float().mean() > 0.999


@pytest.mark.whole_run
@pytest.mark.parametrize(("variant", "i2t", "t2i"), [("orth", 0.405, 0.404), ("seq", 0.481, 0.489)])
def test_figures_on_the_synthetic_archive(variant: str, i2t: float, t2i: float) -> None:
    method, split = SCM(SCMParams(variant=variant)), synthetic()
    model = built(method, 16)
    solution = fit_from_sums(method, model, split.train.silo())
    found = figures(outputs_of(model, split.query.silo()), outputs_of(model, split.database.silo()))
    assert found == pytest.approx((i2t, t2i), abs=BAND)
    assert min(found) > RANDOM + 0.1
    assert solution.params.keys() == params_of(model).keys()
