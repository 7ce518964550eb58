"""The studies among the recipes: every run has a valid config, and the counts in the heads of the files are true."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path

import pytest

from silohash.evaluate.measures import Measure
from silohash.run.config.load import resolve
from silohash.study.config import StudyConfig, load_study
from silohash.study.plan import PlannedRun, planned_runs
from silohash.study.tuning import searches

REPOSITORY = Path(__file__).resolve().parents[2]
STUDIES = sorted(
    path for path in (REPOSITORY / "recipes").glob("*.toml") if "axis" in tomllib.loads(path.read_text("utf-8"))
)
CLOSED_FORM = {"CMFH", "SCM-orth", "SCM-seq", "SePH"}


def counted(path: Path, noun: str) -> int | None:
    """Returns the number before a noun in the comment at the head of a file; None if there is none."""
    head = path.read_text(encoding="utf-8").partition("\n\n")[0].replace("\n#", "")
    found = re.search(rf"([\d,]+) {noun}\b", head)
    return int(found[1].replace(",", "")) if found else None


@cache
def plan_of_one_seed(name: str) -> tuple[StudyConfig, list[PlannedRun]]:
    """Returns a study of the recipes, and the runs of its first seed."""
    config = load_study(REPOSITORY / "recipes" / f"{name}.toml")
    return config, planned_runs(config.model_copy(update={"seeds": config.seeds[:1]}))


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_counts_are_those_of_the_plan(path: Path) -> None:
    config, runs = plan_of_one_seed(path.stem)
    assert counted(path, "runs") in (None, len(config.seeds) * len(runs))
    trials = len(searches(config, config.tune)) * config.tune.trials if config.tune else 0
    assert counted(path, "trials") in (None, trials)


def test_methods_of_the_table_of_dlffh_have_the_same_training() -> None:
    config, runs = plan_of_one_seed("dlffh")
    assert config.seeds == (0, 1, 2)
    assert {(run.choices["data"], run.choices["bits"]) for run in runs} == {
        (data, bits) for data in ("coco18", "fashion", "wiki") for bits in ("16", "32", "64")
    }
    epochs = {run.choices["method"]: run.config.federated.rounds * run.config.federated.local_epochs for run in runs}
    assert {epochs[method] for method in epochs.keys() - CLOSED_FORM} == {32}
    first = runs[0].config
    for run in runs:
        assert (run.config.train, run.config.model) == (first.train, first.model)
        assert (run.config.partition.silos, run.config.federated.name) == (1, "centralized")
    assert config.tune is not None
    assert {len(search.parameters) for search in searches(config, config.tune)} == {1}


def test_labels_of_each_row_of_dlffh() -> None:
    for name in ("dlffh", "dlffh-ablation", "dlffh-sensitivity", "dlffh-convergence"):
        for run in plan_of_one_seed(name)[1]:
            if not run.choices["method"].startswith("DLFFH"):
                continue
            parameters = run.config.local.model_dump()
            labels = parameters.get("labels", "label-free")
            words = run.choices["method"]
            assert labels in words or (labels, words) == ("no-label-net", "DLFFH-1")
            assert (parameters.get("label_weight") == 0.0) == ("DLFFH-2" in words)


def test_sensitivity_sets_both_weights_of_eta() -> None:
    _, runs = plan_of_one_seed("dlffh-sensitivity")
    found = {
        (run.choices["gamma"], run.choices["eta"]): (
            run.config.local.model_dump()["label_weight"],
            run.config.local.model_dump()["quantization_weight"],
            run.config.local.model_dump()["balance_weight"],
        )
        for run in runs
    }
    assert len(found) == 16
    assert all(values == (float(gamma), float(eta), float(eta)) for (gamma, eta), values in found.items())


def test_image_hashing_has_every_local_under_every_federated_method() -> None:
    _, runs = plan_of_one_seed("image-hashing")
    pairs = {
        (run.config.local.name, run.config.federated.name, run.config.federated.model_dump().get("share"))
        for run in runs
    }
    hashing = {"dpsh", "dch", "hashnet", "greedyhash", "csq"}
    federated = {("fedavg", None), ("fedprox", None), ("fedcmr", None), ("fedcmr", "all"), ("moon", None)}
    expected = {(local, *method) for local in hashing for method in federated}
    assert pairs == {*expected, ("triplet", "fedavg", None), ("triplet", "fedhap", None)}
    assert {(run.config.partition.silos, run.config.partition.kind) for run in runs} == {(20, "iid"), (20, "shards")}


def test_two_levels_of_labels_in_every_silo_of_the_tables_of_fedcafe() -> None:
    _, runs = plan_of_one_seed("fedcafe-shdch")
    assert {run.config.local.model_dump()["coarse_column"] for run in runs} == {"sub_category"}
    assert {run.config.partition.model_dump()["beta"] for run in runs} == {0.5, 0.2}


FEDUCH = ("feduch", "feduch-bases", "feduch-ablation", "feduch-weights", "feduch-convergence")


@pytest.mark.parametrize("name", FEDUCH)
def test_studies_of_feduch_differ_in_what_they_compare_alone(name: str) -> None:
    config, runs = plan_of_one_seed(name)
    assert config.seeds == (0, 1, 2)
    assert {run.choices["data"] for run in runs} == {"coco18", "fashion", "wiki", "flickr8k"}
    first = runs[0].config
    for run in runs:
        assert (run.config.train, run.config.model) == (first.train, first.model)
        standardized = (run.config.features.model_dump()[modality]["standardize"] for modality in ("image", "text"))
        assert set(standardized) == {run.choices["data"] == "wiki"}
        assert run.config.federated.local_epochs == first.federated.local_epochs
        assert not resolve(run.config).local.traits.needs_labels
        uneven = run.choices.get("shares", "Dirichlet 0.5") == "Dirichlet 0.5"
        clustered = run.choices["data"] == "flickr8k"
        assert run.config.partition.kind == (("pseudo" if clustered else "dirichlet") if uneven else "iid")
        assert run.config.partition.silos == 4
        if uneven:
            assert run.config.partition.model_dump()["beta"] == 0.5
        by_pairs = [Measure.parse(text).by == "pairs" for text in run.config.evaluate.measures]
        assert by_pairs == [clustered, clustered]


def test_methods_and_bases_of_feduch() -> None:
    federated = {run.config.federated.name for run in plan_of_one_seed("feduch")[1]}
    assert federated == {"local", "fedavg", "fedprox", "moon", "feduch", "ptfuch"}
    found = {(run.config.local.name, run.config.federated.name) for run in plan_of_one_seed("feduch-bases")[1]}
    assert found == {(local, method) for local in ("djsrh", "jdsh") for method in ("fedavg", "feduch")}


def test_weights_of_each_part_of_feduch() -> None:
    weights = {
        "without both": (0.0, 0.0),
        "contrast only": (0.6, 0.0),
        "distillation only": (0.0, 0.4),
        "FedUCH": (0.6, 0.4),
    }
    for run in plan_of_one_seed("feduch-ablation")[1]:
        params = resolve(run.config).federated.params.model_dump()
        assert (params["contrast_weight"], params["distillation_weight"]) == weights[run.choices["method"]]
    config, runs = plan_of_one_seed("feduch-weights")
    assert [(figure.kind, figure.axes) for figure in config.figures] == [("surface", ("mu", "phi"))]
    for run in runs:
        params = resolve(run.config).federated.params.model_dump()
        chosen = (float(run.choices["mu"]), float(run.choices["phi"]))
        assert (params["contrast_weight"], params["distillation_weight"]) == chosen


def test_points_of_a_line_of_convergence_differ_in_their_rounds_alone() -> None:
    settings: dict[tuple[str, str], list[object]] = {}
    for run in plan_of_one_seed("feduch-convergence")[1]:
        value = run.config.model_dump()
        assert value["federated"].pop("rounds") == int(run.choices["rounds"])
        assert value["evaluate"]["validation"] == 0
        settings.setdefault((run.choices["data"], run.choices["method"]), []).append(value)
    assert len(settings) == 8
    for of_line in settings.values():
        assert of_line == [of_line[0]] * 5
