"""What is missing to run a paper's study, and the study on other data or cut short."""

from __future__ import annotations

import json

import pytest

from silohash.base.errors import NothingUsable
from silohash.base.registry import Registry
from silohash.run.config.sections import DataConfig
from silohash.study import reproduction
from silohash.study.config import Choice, load_study, make_study
from silohash.study.figures import Figure
from silohash.study.papers import Paper, PaperTable, differences, paper_table
from silohash.study.plan import planned_runs
from silohash.study.reproduction import (
    SMOKE_TITLE,
    MissingRequirement,
    cut_short,
    listed,
    missing_of_data,
    missing_requirements,
    on_open_data,
    study_of,
    without_missing,
)
from tests.benchmark_files import write_wikipedia

STUDY = """
title = "A table"
seeds = [3, 4]
[table]
rows = ["method"]
columns = ["data", "bits"]
against = { data = ["Wiki"] }
[base.set]
"local.name" = "dcmh"
"data.modality" = "image"
"model.hidden" = 4096
"model.widths" = { text = [8192, 4096] }
[[axis]]
name = "method"
choice = [{ name = "FedAvg" }, { name = "Local", set = { "federated.name" = "local" } }]
[[axis]]
name = "data"
[[axis.choice]]
name = "Wiki"
set = { "data.name" = "wikipedia", "data.protocol" = "feduch" }
[[axis.choice]]
name = "Flickr"
set = { "data.name" = "mirflickr25k", "data.protocol" = "fedcafe/drawn" }
[[axis]]
name = "bits"
key = "local.bits"
values = [16, 32]
[[where]]
choices = { data = "Wiki", method = "FedAvg" }
set = { "train.batch" = 7 }
[[where]]
choices = { bits = "32" }
set = { "train.momentum" = 0.8 }
"""
OPEN = (Choice(name="glyphs", set={"data.name": "glyphs", "train.learning_rate": 0.5}),)


@pytest.fixture
def recipes(repository, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SILOHASH_DATA", raising=False)
    return repository / "recipes"


@pytest.fixture
def table(recipes, tmp_path):
    """A table of a made-up paper, with a study in the working folder."""
    (tmp_path / "some-table1.toml").write_text(STUDY, encoding="utf-8")
    paper = Paper.model_validate({
        "title": "A paper", "notes": ["They trained longer."],
        "settings": {
            "train.batch": {"value": 7, "source": "p. 3"},
            "paper.encryption": {"value": "encrypted models", "source": "p. 4"},
        },
        "items": {"table1": {"title": "all", "covers": ["table 1"], "open": [c.model_dump() for c in OPEN]}},
    })  # fmt: skip
    return PaperTable("some/table1", paper, paper.items["table1"], tmp_path)


def test_methods_and_data_that_are_not_there_are_named(recipes, monkeypatch):
    names = {"fedavg": "silohash.methods.federated.general.fedavg:FedAvg"}
    monkeypatch.setattr(reproduction, "FEDERATED_METHODS", Registry("federated method", "none", names))
    found = missing_requirements(paper_table(recipes, "fedcafe/table2").study())
    said = {(lack.axis, lack.choice): str(lack) for lack in found if "(federated method)" in lack.needs}
    assert said["method", "FedCAFE"] == "FedCAFE needs fedcafe (federated method)"
    assert ("method", "FedAvg") not in said
    data = next(lack for lack in found if lack.choice == "NUS-WIDE")
    assert str(data) == "NUS-WIDE needs the files of nus-wide (in data/nus-wide)"
    assert "nus-wide-tc21-iall.mat" in data.remedy


def test_weights_that_are_not_there_are_named(table, tmp_path):
    config = table.study(['features.image={kind="cnnf",weights="net.mat"}'])
    missing = [need for need in missing_requirements(config) if "weights" in need.needs]
    assert [(need.axis, need.needs) for need in missing] == [("", "the weights net.mat")]
    assert "--set features.image.weights=FILE" in missing[0].remedy
    (tmp_path / "net.mat").touch()
    assert not [need for need in missing_requirements(config) if "weights" in need.needs]


def test_weights_are_missing_for_the_choices_that_use_them(table):
    config = table.study()
    wiki = {"features.image": {"kind": "given"}}
    axes = tuple(
        axis.model_copy(update={"choices": tuple(
            c.model_copy(update={"set": c.set | (wiki if c.name == "Wiki" else {})}) for c in axis.choices)})
        for axis in config.axes
    )  # fmt: skip
    base = config.base.model_copy(update={"set": config.base.set | {
        "features.image": {"kind": "cnnf", "weights": "net.mat"}}})  # fmt: skip
    found = missing_requirements(config.model_copy(update={"axes": axes, "base": base}))
    assert [need.choice for need in found if "weights" in need.needs] == ["Flickr"]


def test_methods_of_a_table_that_cannot_be_built_are_named(recipes):
    found = missing_requirements(paper_table(recipes, "dlffh/table1").study())
    assert {lack.choice for lack in found if "(local method)" in lack.needs} == {"MSDH", "MMACH"}


def test_data_that_is_there_is_not_missing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SILOHASH_DATA", str(tmp_path))
    assert missing_of_data(DataConfig(name="wikipedia")) is not None
    assert missing_of_data(DataConfig(name="coco18")) is not None
    assert "silohash data build icons" in str(missing_of_data(DataConfig(name="icons")))
    assert missing_of_data(DataConfig(name="glyphs")) is None
    assert missing_of_data(DataConfig(path=tmp_path)) is None
    write_wikipedia(tmp_path / "data" / "wikipedia")
    (tmp_path / "coco18").mkdir()
    (tmp_path / "icons-2").mkdir()
    (tmp_path / "icons-2" / "metadata.csv").touch()
    assert missing_of_data(DataConfig(name="icons", options={"root": str(tmp_path / "icons-2")})) is None
    assert missing_of_data(DataConfig(name="wikipedia")) is None
    assert missing_of_data(DataConfig(name="wikipedia", options={"layout": "raw"})) is not None
    assert missing_of_data(DataConfig(name="coco18")) is None
    write_wikipedia(tmp_path / "elsewhere")
    assert missing_of_data(DataConfig(name="wikipedia", options={"root": str(tmp_path / "elsewhere")})) is None


def test_what_lacks_something_is_left_out(recipes):
    config = paper_table(recipes, "fedcafe/table2").study()
    left = without_missing(
        config, [MissingRequirement("method", "FedCAFE", "fedcafe"), MissingRequirement("data", "NUS-WIDE", "files")]
    )
    assert [choice.name for choice in left.axis("data").choices] == ["MIRFlickr-25K"]
    assert "FedCAFE" not in [choice.name for choice in left.axis("method").choices]
    with pytest.raises(NothingUsable, match=r"MIRFlickr-25K needs files.*\nput them there"):
        without_missing(
            config,
            [MissingRequirement("data", name, "files", "put them there") for name in ("MIRFlickr-25K", "NUS-WIDE")],
        )
    with pytest.raises(NothingUsable, match="every run needs shdch"):
        without_missing(config, [MissingRequirement("", "", "shdch (local method)")])


def test_rules_and_references_of_what_is_left_out_go_with_it(table, tmp_path):
    left = without_missing(table.study(), [MissingRequirement("data", "Wiki", "files")])
    assert [dict(rule.choices) for rule in left.where] == [{"bits": "32"}]
    assert left.table.against == {}
    (tmp_path / "again.toml").write_text(left.to_toml(), encoding="utf-8")
    assert load_study(tmp_path / "again.toml") == left


def test_open_data_takes_the_place_of_the_papers(table, tmp_path):
    config = on_open_data(table.study(), OPEN)
    assert config.axis_names == ("method", "data", "bits")
    assert [dict(rule.choices) for rule in config.where] == [{"bits": "32"}]
    runs = planned_runs(config)
    assert {(run.config.data.name, run.config.data.protocol, run.config.data.modality) for run in runs} == {
        ("glyphs", None, None)
    }
    assert {run.config.train.learning_rate for run in runs} == {0.5}
    assert {run.config.model.hidden for run in runs} == {4096}
    (tmp_path / "again.toml").write_text(config.to_toml(), encoding="utf-8")
    assert load_study(tmp_path / "again.toml") == config
    with pytest.raises(NothingUsable):
        on_open_data(config, ())


def test_open_data_becomes_an_axis_where_there_is_none():
    config = make_study(
        {
            "base": {"set": {"data.name": "fashionvc", "data.protocol": "fedcafe"}},
            "axis": [{"name": "bits", "key": "local.bits", "values": [16, 32]}],
        },
        where="a study",
    )
    found = on_open_data(config, OPEN)
    assert found.axis_names == ("data", "bits")
    assert {run.config.data.name for run in planned_runs(found)} == {"glyphs"}


def test_few_items_are_enough_for_t_sne_in_a_smoke_test(recipes):
    (plane,) = cut_short(paper_table(recipes, "fedhap/figure1").study()).figures
    assert (plane.kind, plane.perplexity) == ("tsne", 2.0)


def test_a_smoke_test_is_cut_short(table):
    short = study_of(table, smoke=True)
    assert short.title == f"{SMOKE_TITLE}: A table"
    assert short.seeds == (3,)
    assert [choice.name for choice in short.axis("bits").choices] == ["16"]
    assert [dict(rule.choices) for rule in short.where] == [{"data": "Wiki", "method": "FedAvg"}]
    for run in planned_runs(short):
        assert (run.config.federated.rounds, run.config.federated.local_epochs) == (2, 1)
        assert (run.config.model.hidden, run.config.model.widths) == (32, {"text": (32, 32)})
        assert run.config.data.protocol in {"feduch/scaled", "fedcafe/drawn/scaled"}
        assert run.config.data.options == {"sample": 400}
    assert cut_short(short).axis("data") == short.axis("data")  # a protocol is scaled once


def test_a_shortened_axis_is_written_as_it_is(table, tmp_path):
    short = study_of(table, smoke=True)
    (tmp_path / "again.toml").write_text(short.to_toml(), encoding="utf-8")
    assert load_study(tmp_path / "again.toml").axis("bits").choices == short.axis("bits").choices


def test_figures_keep_what_they_are_drawn_over():
    study = make_study(
        {
            "base": {"set": {"data.name": "glyphs"}},
            "axis": [
                {"name": "bits", "key": "local.bits", "values": [16, 32, 64]},
                {"name": "rate", "key": "train.learning_rate", "values": [0.1, 0.2, 0.3, 0.4]},
                {"name": "batch", "key": "train.batch", "values": [8, 16, 32]},
            ],
            "figures": [
                {"kind": "axis", "axis": "rate", "only": {"bits": ["64"], "rate": ["0.2", "0.3", "0.4"]}},
                {"kind": "precision_recall"},
            ],
        },
        where="a study",
    )
    tsne = Figure(kind="tsne")
    (small,) = cut_short(study.model_copy(update={"figures": (tsne,)})).figures
    assert (small.perplexity, small.items) == (2.0, tsne.items)
    short = cut_short(study)
    assert [[choice.name for choice in axis.choices] for axis in short.axes] == [
        ["64"], ["0.2", "0.3"], ["8", "16", "32"]
    ]  # fmt: skip
    assert [figure.only for figure in short.figures] == [{"bits": ("64",), "rate": ("0.2", "0.3")}, {}]
    (left,) = without_missing(
        study,
        [MissingRequirement("rate", f"0.{n}", "luck") for n in (1, 2, 3)] + [MissingRequirement("bits", "64", "x")],
    ).figures
    assert left.kind == "precision_recall"
    on_bits = without_missing(study, [MissingRequirement("bits", "64", "x")]).figures[0]
    assert on_bits.only == {"rate": ("0.2", "0.3", "0.4")}
    bits = make_study(
        {
            "base": {"set": {"data.name": "glyphs"}},
            "axis": [{"name": "bits", "key": "local.bits", "values": [16, 32, 64]}],
            "figures": [{"kind": "axis", "axis": "bits"}],
        },
        where="a study",
    )
    assert [choice.name for choice in cut_short(bits).axes[0].choices] == ["16", "32"]


def test_widths_are_narrowed(table):
    widths = {"model.widths": {"image": [4096], "text": [8192, 16]}, "model.widths.image": [64], "model.hidden": 4096}
    base = table.study().base.model_copy(update={"set": widths})
    short = cut_short(table.study().model_copy(update={"base": base}))
    assert short.base.set["model.widths"] == {"image": [32], "text": [32, 16]}
    assert short.base.set["model.widths.image"] == [32]
    assert short.set["model.hidden"] == 32


def test_settings_of_the_user_win(table):
    config = study_of(table, open_data=True, smoke=True, overrides=["federated.rounds=5", "data.name=fashion"])
    (run, *_) = planned_runs(config, refuse_equal=False)
    assert (run.config.federated.rounds, run.config.data.name) == (5, "fashion")


def test_a_listing_says_what_runs_here(table, tmp_path):
    found = listed(table)
    assert found.status == "open"  # glyphs are everywhere
    assert [need.choice for need in found.needs] == ["Wiki", "Flickr"]
    assert found.open == {"glyphs": ""}
    said = "\n".join(found.lines(in_detail=False))
    assert "runs here with --data open" in said
    assert "the files of wikipedia (in data/wikipedia)" in said
    assert "settings that differ from the paper: 1, and 1 that cannot be set" in said
    detail = "\n".join(found.lines(in_detail=True))
    assert "paper.encryption: encrypted models in the paper (p. 4), cannot be set here" in detail
    assert "They trained longer." in detail
    assert "train_img.mat" in detail
    write_wikipedia(tmp_path / "data" / "wikipedia")
    assert listed(table).status == "part"
    document = json.loads(json.dumps(listed(table).document()))
    assert (document["key"], document["status"], document["covers"]) == ("some/table1", "part", ["table 1"])
    assert [one["key"] for one in document["differs"]] == ["train.batch", "paper.encryption"]


def test_a_listing_of_open_data_compares_that(table):
    found = listed(table, open_data=True)
    assert found.status == "paper"
    assert found.differs == differences(table.settings, on_open_data(table.study(), OPEN))


def test_what_has_no_study_is_listed(table, tmp_path):
    (tmp_path / "some-table1.toml").unlink()
    found = listed(table)
    assert found.status == "no study"
    assert found.lines(in_detail=False) == ["some/table1: A paper, table 1: all", "  not run here"]
