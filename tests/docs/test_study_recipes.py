"""The studies among the recipes: every run has a valid config, and the counts in the heads of the files are true."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path

import pytest

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
