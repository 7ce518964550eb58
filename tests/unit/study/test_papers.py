"""Papers' tables: that every file loads and fits its printed figures, what is left out and why, ours beside theirs."""

from __future__ import annotations

import csv
import io
from itertools import product
from pathlib import Path

import pytest

from silohash.base.errors import DamagedFile, UnknownName, UserError
from silohash.base.registry import Registry
from silohash.data.benchmarks.dataset import benchmarks
from silohash.run.config.load import resolve
from silohash.study import papers
from silohash.study.papers import (
    PUBLISHED,
    MissingRequirement,
    missing_requirements,
    paper_table,
    paper_tables,
    read_published,
    without_missing,
    write_comparison,
)
from silohash.study.plan import planned_runs
from tests.synthetic_studies import axis, synthetic_study

METHODS = axis("method", "Local", "FedAvg")
PAPER_TABLES = paper_tables(Path(__file__).parents[3] / "recipes")


@pytest.fixture
def recipes(repository):
    return repository / "recipes"


@pytest.mark.parametrize("table", PAPER_TABLES.values(), ids=PAPER_TABLES)
def test_printed_figures_are_those_of_the_studys_choices(table, recipes):
    config = table.study(recipes)
    printed = read_published(table.file(recipes, ".csv"))
    tasks = sorted({line["task"] for line in printed})
    places = [tuple(line[name] for name in (*config.axis_names, "task")) for line in printed]
    assert len(set(places)) == len(places)
    assert set(places) == set(product(*([choice.name for choice in a.choices] for a in config.axes), tasks))
    assert all(0 < float(line[PUBLISHED]) < 1 for line in printed)


@pytest.mark.parametrize("table", PAPER_TABLES.values(), ids=PAPER_TABLES)
def test_protocols_and_settings_are_known(table, recipes):
    config = table.study(recipes)
    sets = [config.base.set, *(choice.set for a in config.axes for choice in a.choices)]
    named = [values for values in sets if "data.name" in values]
    assert named
    for values in named:
        assert values["data.protocol"] in benchmarks()[values["data.name"]].protocols
    assert config.table.measure == ("mAP@50[denominator=retrieved]" if table.key.startswith("feduch") else "mAP@all")


def test_some_figures_as_they_are_printed(recipes):
    def of(key, **wanted):
        lines = read_published(paper_table(recipes, key).file(recipes, ".csv"))
        (line,) = [line for line in lines if wanted.items() <= line.items()]
        return line[PUBLISHED]

    assert of("dlffh/table1", data="MIRFlickr-25K", method="MMACH", bits="32", task="i2t") == "0.8107"
    assert of("dlffh/table1", data="IAPR TC-12", method="DLFFH", bits="64", task="t2i") == "0.6329"
    assert of("dlffh/table1", data="NUS-WIDE", method="SCM", bits="16", task="i2t") == "0.4807"
    assert of("dlffh/table3", method="DLFFH-1", bits="64", task="i2t") == "0.7064"
    assert of("fedcafe/table2", data="MIRFlickr-25K", method="FedAvg", bits="64", task="t2i") == "0.7143"
    assert of("fedcafe/table2", data="NUS-WIDE", method="FedCAFE", bits="16", task="i2t") == "0.5987"
    assert of("fedcafe/table3", beta="0.2", method="MOON", bits="32", task="t2i") == "0.6419"
    assert of("fedcafe/table4", beta="0.5", method="Local", bits="16", task="t2i") == "0.6763"
    assert of("fedhap/table2", data="MIRFlickr", method="FedHAP", bits="48") == "0.8778"
    assert of("fedhap/table3", data="NUS-WIDE", method="DCH (MOON)", bits="12") == "0.3950"
    assert of("feduch/table2", data="Wikipedia", method="Standalone", bits="128", task="i2t") == "0.233"
    assert of("feduch/table2", data="MS-COCO", method="FedUCH", bits="16", task="t2i") == "0.635"
    assert of("feduch/table7", data="NUS-WIDE", method="FedUCH-3", bits="64", task="t2i") == "0.748"
    assert of("feduch/table12", data="MIRFlickr-25K", base="JDSH", method="MOON", bits="32", task="i2t") == "0.772"


def test_rows_without_the_terms_of_feduch_are_those_of_fedavg(recipes):
    def figures(key, method):
        lines = read_published(paper_table(recipes, key).file(recipes, ".csv"))
        return {
            (line["data"], line["bits"], line["task"]): line[PUBLISHED] for line in lines if line["method"] == method
        }

    for variant, method in (("FedUCH-1", "FedAvg"), ("FedUCH", "FedUCH")):
        found, among = figures("feduch/table7", variant), figures("feduch/table2", method)
        assert len(found) == 20
        assert found.items() <= among.items()


def test_weights_of_feduch_are_those_that_the_paper_selects(recipes):
    selected = {
        "Wikipedia": (0.6, 0.4, 25), "MIRFlickr-25K": (0.6, 0.4, 30), "IAPR TC-12": (0.5, 0.5, 30),
        "MS-COCO": (0.4, 0.7, 35), "NUS-WIDE": (0.3, 0.7, 35),
    }  # fmt: skip
    off = {"FedUCH-1": (0, 0), "FedUCH-2": (1, 0), "FedUCH-3": (0, 1)}
    for key in ("feduch/table2", "feduch/table7", "feduch/table12"):
        config = paper_table(recipes, key).study(recipes)
        runs = planned_runs(config.model_copy(update={"seeds": (0,)}))
        assert {run.choices["data"] for run in runs} <= selected.keys()
        for run in runs:
            contrast, distillation, rounds = selected[run.choices["data"]]
            assert run.config.federated.rounds == rounds
            if run.config.federated.name == "feduch":
                on = off.get(run.choices["method"], (1, 1))
                found = resolve(run.config).federated.params.model_dump()
                assert found["contrast_weight"] == on[0] * contrast
                assert found["distillation_weight"] == on[1] * distillation


def test_methods_and_data_that_are_not_there_are_named(recipes, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SILOHASH_DATA", raising=False)
    monkeypatch.setattr(
        papers, "FEDERATED_METHODS", Registry("federated method", "none", {"fedavg": "m:A", "local": "m:B"})
    )
    found = missing_requirements(paper_table(recipes, "fedcafe/table2").study(recipes))
    said = {(lack.axis, lack.choice): str(lack) for lack in found}
    assert said["method", "FedCAFE"] == "FedCAFE needs fedcafe (federated method)"
    assert ("method", "FedAvg") not in said
    assert said["data", "NUS-WIDE"] == "NUS-WIDE needs the files of nus-wide"
    assert "nus-wide-tc21-iall.mat" in next(lack.remedy for lack in found if lack.choice == "NUS-WIDE")


def test_methods_of_a_table_that_cannot_be_built_are_named(recipes):
    found = missing_requirements(paper_table(recipes, "dlffh/table1").study(recipes))
    assert {lack.choice for lack in found if lack.axis == "method"} == {"MSDH", "MMACH"}


def test_what_lacks_something_is_left_out(recipes):
    config = paper_table(recipes, "fedcafe/table2").study(recipes)
    left = without_missing(
        config, [MissingRequirement("method", "FedCAFE", "fedcafe"), MissingRequirement("data", "NUS-WIDE", "files")]
    )
    assert [choice.name for choice in left.axis("data").choices] == ["MIRFlickr-25K"]
    assert "FedCAFE" not in [choice.name for choice in left.axis("method").choices]
    with pytest.raises(UserError, match=r"MIRFlickr-25K needs files.*\nput them there"):
        without_missing(
            config,
            [MissingRequirement("data", name, "files", "put them there") for name in ("MIRFlickr-25K", "NUS-WIDE")],
        )
    with pytest.raises(UserError, match="every run needs shdch"):
        without_missing(config, [MissingRequirement("", "", "shdch (local method)")])


def test_unknown_tables_have_a_suggestion(recipes):
    with pytest.raises(UnknownName, match=r"fedcafe/tabel2.*fedcafe/table2"):
        paper_table(recipes, "fedcafe/tabel2")


def test_ours_beside_the_printed(tmp_path):
    study = synthetic_study(
        METHODS,
        value=lambda choices, seed, task: 0.5 + 0.02 * seed,
        missing=lambda choices, seed: choices["method"] == "Local",
        evaluations=("GG",),
    )
    printed = [
        {"method": method, "task": task, PUBLISHED: "0.5000"}
        for method in ("Local", "FedAvg")
        for task in ("i2t", "t2i")
    ]
    table = papers.PaperTable("some/table1", "A paper's", ("They trained longer.",))
    paths = write_comparison(table, study, printed, tmp_path)
    text = paths[0].read_text(encoding="utf-8")
    assert "| FedAvg | i2t | 0.5000 | 0.5100 | 0.383–0.637 | +0.0100 |" in text
    assert "| Local" not in text
    assert "- 2 of 4 published figures have one of ours next to them." in text
    assert "- They trained longer." in text
    lines = list(csv.DictReader(io.StringIO(paths[1].read_text(encoding="utf-8"))))
    assert [line["ours"] for line in lines] == ["", "", "0.51", "0.51"]
    assert [line["seeds"] for line in lines] == ["0", "0", "2", "2"]


def test_damaged_figures_are_named(tmp_path):
    with pytest.raises(UserError, match="missing"):
        read_published(tmp_path / "none.csv")
    (tmp_path / "bad.csv").write_text("method,published\nLocal,much\n", encoding="utf-8")
    with pytest.raises(DamagedFile, match="damaged"):
        read_published(tmp_path / "bad.csv")
