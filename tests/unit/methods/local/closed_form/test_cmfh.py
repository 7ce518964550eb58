"""CMFH: the updates against the formulas with all items in float64, the monotone objective, the pooled codes from sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from silohash.base import seeds
from silohash.base.types import Modality
from silohash.methods.local.base import outputs_of
from silohash.methods.local.closed_form.base import Views, joint_moments, total, views_of
from silohash.methods.local.closed_form.cmfh import (
    BOTH,
    CMFH,
    CMFHParams,
    Factors,
    Problem,
    factorized,
    factors_of,
    latent_maps,
    latent_of,
    objective,
    unit_variance,
)
from silohash.models.parameters import install, params_of
from silohash.models.specs import ModelSpec, TowerSpec
from tests.unit.methods.local.synthetic import BAND, IMAGE_WIDTH, TEXT_WIDTH, figures, synthetic

SPEC = ModelSpec({"image": TowerSpec("mlp", (IMAGE_WIDTH,)), "text": TowerSpec("mlp", (TEXT_WIDTH,))}, 12)
RANDOM, SCM_SEQ = 0.241, 0.48
BITS, WEIGHTS, MU, GAMMA = 3, {"image": 0.3, "text": 0.7}, 5.0, 0.2
IDENTITY = {
    f"{m}/{a}": v for m, d in (("image", 4), ("text", 5)) for a, v in (("mean", np.zeros(d)), ("factor", np.ones(d)))
}


def some_views() -> Views:
    """Return 12 items, of which some lack a modality and one lacks both."""
    generator = np.random.default_rng(0)
    held = {"image": np.arange(12) > 2, "text": np.arange(12) < 9}
    held["text"][5] = held["image"][5] = False
    vectors = {"image": generator.normal(size=(12, 4)), "text": generator.normal(size=(12, 5))}
    return Views({m: v * held[m][:, None] for m, v in vectors.items()}, held, np.zeros((12, 0)))


def problem_of(views: Views) -> Problem:
    sums = joint_moments(IDENTITY, views)
    moments = {("image",): sums["image/moments"], ("text",): sums["text/moments"], BOTH: sums["both/moments"]}
    return Problem(moments, WEIGHTS, MU, GAMMA)


def random_factors(seed: int = 1) -> Factors:
    generator = np.random.default_rng(seed)
    sizes: dict[Modality, int] = {"image": 4, "text": 5}
    return Factors(
        {m: generator.normal(size=(d, BITS)) for m, d in sizes.items()},
        {m: generator.normal(size=(BITS, d)) for m, d in sizes.items()},
    )


def latent_vectors(views: Views, factors: Factors) -> np.ndarray:
    """Return the optimal latent vectors, item by item, ``(n, K)``."""
    rows = []
    for i in range(len(views)):
        matrix, pull = GAMMA * np.eye(BITS), np.zeros(BITS)
        for m, held in views.held.items():
            if held[i]:
                matrix = matrix + WEIGHTS[m] * factors.bases[m].T @ factors.bases[m] + MU * np.eye(BITS)
                pull = pull + WEIGHTS[m] * factors.bases[m].T @ views.vectors[m][i]
                pull = pull + MU * factors.projections[m] @ views.vectors[m][i]
        rows.append(np.linalg.solve(matrix, pull))
    return np.array(rows)


def plain_objective(views: Views, factors: Factors, latent: np.ndarray) -> float:
    value = GAMMA * sum((f[m] ** 2).sum() for f in (factors.bases, factors.projections) for m in f)
    for i in range(len(views)):
        value += GAMMA * (latent[i] ** 2).sum()
        for m, held in views.held.items():
            if held[i]:
                x = views.vectors[m][i]
                value += WEIGHTS[m] * ((x - factors.bases[m] @ latent[i]) ** 2).sum()
                value += MU * ((latent[i] - factors.projections[m] @ x) ** 2).sum()
    return float(value)


def test_updates_and_objective_are_those_of_the_items() -> None:
    views, factors = some_views(), random_factors()
    problem, latent = problem_of(views), latent_vectors(views, factors)
    maps = latent_maps(problem, factors)
    for group in (("image",), ("text",), BOTH):
        rows = np.all([views.held[m] == (m in group) for m in BOTH], axis=0)
        stacked = np.concatenate([views.vectors[m] for m in group], axis=1)[rows]
        assert len(stacked)
        np.testing.assert_allclose(stacked @ maps[group].T, latent[rows], atol=1e-12)
    found = latent_of(problem, maps)
    assert found.squares == pytest.approx((latent**2).sum())
    assert objective(problem, factors, found) == pytest.approx(plain_objective(views, factors, latent))
    inverses = {}
    for m in BOTH:
        own = views.vectors[m].T @ views.vectors[m]
        np.testing.assert_allclose(problem.moments_of(m), own, atol=1e-12)
        inverses[m] = np.linalg.inv(own + GAMMA / MU * np.eye(len(own)))
    new = factors_of(problem, found, inverses)
    for m, held in views.held.items():
        x, v = views.vectors[m][held], latent[held]
        basis = x.T @ v @ np.linalg.inv(v.T @ v + GAMMA / WEIGHTS[m] * np.eye(BITS))
        np.testing.assert_allclose(new.bases[m], basis, atol=1e-10)
        np.testing.assert_allclose(new.projections[m], v.T @ x @ inverses[m], atol=1e-10)


def test_each_update_is_a_minimum() -> None:
    views = some_views()
    problem, factors = problem_of(views), random_factors()
    latent = latent_vectors(views, factors)
    found = latent_of(problem, latent_maps(problem, factors))
    inverses = {m: np.linalg.inv(problem.moments_of(m) + GAMMA / MU * np.eye(d)) for m, d in problem.sizes.items()}
    best = factors_of(problem, found, inverses)
    generator = np.random.default_rng(2)
    for _ in range(20):
        moved = latent + 0.01 * generator.normal(size=latent.shape)
        assert plain_objective(views, factors, moved) > plain_objective(views, factors, latent)
        other = Factors(
            {m: u + 0.01 * generator.normal(size=u.shape) for m, u in best.bases.items()},
            {m: p + 0.01 * generator.normal(size=p.shape) for m, p in best.projections.items()},
        )
        assert plain_objective(views, other, latent) > plain_objective(views, best, latent)


@pytest.mark.parametrize("seed", [0, 1])
def test_the_objective_never_increases(seed: int) -> None:
    start = random_factors(seed).projections
    projections, objectives = factorized(problem_of(some_views()), start, 60)
    assert len(objectives) == 60
    assert (np.diff(objectives) <= 1e-12 * objectives[0]).all()
    assert objectives[-1] < 0.9 * objectives[0]
    assert {m: p.shape for m, p in projections.items()} == {"image": (BITS, 4), "text": (BITS, 5)}


def built(method: CMFH, bits: int) -> torch.nn.Module:
    with seeds.torch_globally(0, "weights"):
        return method.build(SPEC, bits)


def shared_params(method: CMFH, silos: Sequence[Views], bits: int):
    solution = method.begin(params_of(built(method, bits)))
    for exchange in range(method.exchanges(bits)):
        sums = total(method.sums(views, solution.sent, exchange) for views in silos)
        solution = method.solve(solution, sums, exchange)
    return solution.params


@pytest.mark.parametrize("cuts", [[200, 400, 600, 800, 1000, 1200], [700, 700], [1]])
def test_sums_of_silos_give_the_model_of_the_pooled_items(cuts: list[int]) -> None:
    method, archive = CMFH(CMFHParams(iterations=20)), synthetic()
    model = built(method, 12)
    views = views_of(model, archive.train.silo())
    parts = [views.take(rows) for rows in np.split(np.random.default_rng(0).permutation(1500), cuts)]
    shared = shared_params(method, parts, 12)
    loss = method.fit(model, archive.train.silo())
    for name, array in params_of(model).items():
        np.testing.assert_allclose(shared[name], array, rtol=1e-4, atol=1e-5)
    pooled = outputs_of(model, archive.database.silo())
    install(model, shared)
    again = outputs_of(model, archive.database.silo())
    assert all(torch.equal(outputs >= 0, again[modality] >= 0) for modality, outputs in pooled.items())
    assert loss["loss"] > 0


def test_a_modality_whose_vectors_are_all_equal_is_left_out() -> None:
    method, train = CMFH(CMFHParams(iterations=3)), synthetic().train.silo()
    model = built(method, 8)
    start = params_of(model)
    method.fit(model, replace(train, text=torch.ones_like(train.text)))
    fitted = params_of(model)
    assert np.array_equal(fitted["text.hash.weight"], start["text.hash.weight"])
    assert not np.array_equal(fitted["image.hash.weight"], start["image.hash.weight"])


def test_outputs_have_unit_variance() -> None:
    method, train = CMFH(CMFHParams(iterations=5)), synthetic().train.silo()
    model = built(method, 8)
    method.fit(model, train)
    for outputs in outputs_of(model, train).values():
        np.testing.assert_allclose(outputs.double().std(0, unbiased=False), 1.0, atol=1e-3)


def test_rows_without_variance_stay_as_they_are() -> None:
    moments, projection = np.diag([8.0, 0.0]), np.array([[3.0, 5.0], [0.0, 2.0]])
    found = unit_variance(projection, moments, 2.0)
    np.testing.assert_allclose(found, [[0.5, 5.0 / 6.0], [0.0, 2.0]])


def test_outputs_of_the_preset_paper_have_the_scale_of_the_latent_vectors() -> None:
    train, models = synthetic().train.silo(), {}
    assert CMFH.presets["paper"] == {"outputs": "latent"}
    for outputs in ("unit", "latent"):
        method = CMFH(CMFHParams(iterations=5, outputs=outputs))
        models[outputs] = built(method, 8)
        method.fit(models[outputs], train)
    unit, latent = (outputs_of(model, train) for model in models.values())
    for modality, outputs in latent.items():
        assert torch.equal(outputs >= 0, unit[modality] >= 0)
        scale = outputs.double().std(0, unbiased=False)
        assert scale.max() < 0.5
        torch.testing.assert_close(outputs.double(), unit[modality].double() * scale, rtol=1e-3, atol=1e-4)


@pytest.mark.whole_run
def test_figures_on_the_synthetic_archive() -> None:
    method, split = CMFH(CMFHParams(preprocess="center")), synthetic()
    model = built(method, 16)
    method.fit(model, split.train.silo())
    found = figures(outputs_of(model, split.query.silo()), outputs_of(model, split.database.silo()))
    assert found == pytest.approx((0.424, 0.422), abs=BAND)
    assert min(found) > RANDOM + 0.1
    assert max(found) < SCM_SEQ
