"""Papers' tables: that every file loads and fits its printed figures, what the papers have, ours beside theirs."""

from __future__ import annotations

import csv
import io
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from silohash.base.errors import DamagedFile, MissingFile, UnknownName, UserError
from silohash.data.benchmarks.dataset import benchmarks
from silohash.run.config.load import resolve
from silohash.study.config import make_study
from silohash.study.papers import (
    PUBLISHED,
    Paper,
    PaperTable,
    SettingDifference,
    Stated,
    differences,
    differences_table,
    paper_table,
    paper_tables,
    read_published,
    shown,
    write_comparison,
)
from silohash.study.plan import planned_runs
from silohash.study.reproduction import missing_methods, on_open_data, without_missing
from tests.synthetic_studies import axis, synthetic_study

METHODS = axis("method", "Local", "FedAvg")
PAPER_TABLES = paper_tables(Path(__file__).parents[3] / "recipes")
STUDIES = {key: table for key, table in PAPER_TABLES.items() if table.study_path}
PRINTED = {key: table for key, table in STUDIES.items() if table.published}

COVERED = {
    "fedcafe": {"table": range(2, 6), "figure": (2, 3)},
    "fedhap": {"table": range(2, 8), "figure": (1, 5, 6)},
    "feduch": {"table": range(2, 16), "figure": range(4, 9)},
    "dlffh": {"table": (1, 3), "figure": range(3, 7)},
    "fedbignns": {"table": (2, 3), "figure": (3, 4)},
}
"""The tables and figures of each paper that measure something."""


@pytest.fixture
def recipes(repository):
    return repository / "recipes"


def built(table):
    """Return the study of a table without the methods that silohash does not have."""
    config = table.study()
    return without_missing(config, missing_methods(config))


def test_every_table_and_figure_of_the_papers_is_there_once():
    found = {
        paper: Counter(number for key, table in PAPER_TABLES.items() if key.startswith(f"{paper}/")
                       for number in table.item.covers)
        for paper in COVERED
    }  # fmt: skip
    assert {key.partition("/")[0] for key in PAPER_TABLES} == set(COVERED)
    for paper, kinds in COVERED.items():
        wanted = {f"{kind} {number}" for kind, numbers in kinds.items() for number in numbers}
        assert wanted <= found[paper].keys()
        assert set(found[paper].values()) == {1}


@pytest.mark.parametrize(
    "key", [key for key, table in STUDIES.items() if any("figure" in n for n in table.item.covers)]
)
def test_a_study_draws_the_figures_that_it_covers(key):
    assert STUDIES[key].study().figures


def test_every_file_beside_the_papers_belongs_to_an_item(recipes):
    studies = {table.study_path.name for table in STUDIES.values()}
    figures = {f"{key.replace('/', '-')}.csv" for key in PRINTED}
    papers = {f"{paper}.toml" for paper in COVERED}
    assert {path.name for path in (recipes / "papers").iterdir()} == studies | figures | papers


@pytest.mark.parametrize("table", PRINTED.values(), ids=PRINTED)
def test_printed_figures_are_those_of_the_studys_choices(table):
    config = table.study()
    places = [tuple(sorted(line.items() - {(PUBLISHED, line[PUBLISHED])})) for line in table.published]
    assert len(set(places)) == len(places)
    for line in table.published:
        config.check_choices(table.key, {name: line[name] for name in config.axis_names})
        assert 0 < float(line[PUBLISHED]) < 1


@pytest.mark.parametrize("table", STUDIES.values(), ids=STUDIES)
def test_protocols_are_known(table):
    config = table.study()
    sets = [config.base.set, *(choice.set for a in config.axes for choice in a.choices)]
    for values in sets:
        if "data.protocol" in values:
            assert benchmarks()[values["data.name"]].protocol(values["data.protocol"]).name


@pytest.mark.slow
@pytest.mark.parametrize("table", STUDIES.values(), ids=STUDIES)
def test_every_run_has_a_config_on_open_data(table):
    if table.item.open:
        assert planned_runs(on_open_data(built(table), table.item.open), refuse_equal=False)


@pytest.mark.parametrize("paper", COVERED)
def test_the_comparison_runs_and_every_statement_is_about_some_run(paper):
    tables = [table for key, table in STUDIES.items() if key.startswith(f"{paper}/")]
    found = [used(table.settings, built(table)) for table in tables]
    for table, of_item in zip(tables, found, strict=True):
        assert marked(table.item.settings) <= of_item
    assert not tables or marked(tables[0].paper.settings) <= set().union(*found)


def test_statements_about_no_run_are_found():
    config = real_config()
    silos = config.model_copy(update={"set": {"partition.kind": "dirichlet", "partition.beta": 0.5}})
    for key, more, expected in (
        ("partition.beta", {}, [False, True]),
        ("federated.temprature", {}, [False, False]),
        ("train.batch", {"where": {"metod": "Local"}}, [False, False]),
        ("train.batch", {"where": {"method": "Local"}}, [True, True]),
    ):
        statements = {key: (Stated(value=1, source="p. 1", **more),)}
        assert [marked(statements) <= used(statements, one) for one in (config, silos)] == expected


def used(settings, config):
    """Return the marks of the statements that are about some run: a value that nothing has differs in each of them."""
    statements = {
        key: [one.model_copy(update={"value": mark(key, one)}) for one in several] for key, several in settings.items()
    }
    return {one.paper for one in differences(statements, config)}


def marked(settings):
    """Return the marks of statements."""
    return {mark(key, one) for key, several in settings.items() for one in several}


def mark(key, one):
    """Return a value that no setting has, and no other statement."""
    return f"{key} {one.value} {one.source} {one.where}"


def test_some_figures_as_they_are_printed(recipes):
    def of(key, **wanted):
        lines = paper_table(recipes, key).published
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
        lines = paper_table(recipes, key).published
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
        config = paper_table(recipes, key).study()
        runs = planned_runs(config.model_copy(update={"seeds": (0,)}))
        assert {run.choices["data"] for run in runs} <= selected.keys()
        for run in runs:
            contrast, distillation, rounds = selected[run.choices["data"]]
            assert run.config.federated.rounds == rounds
            assert (run.config.partition.silos, run.config.train.optimizer_state) == (10, "keep")
            if run.config.federated.preset == "authors_code":
                contrast, distillation = 0.3, 0.7
            if run.config.federated.name == "feduch":
                on = off.get(run.choices["method"], (1, 1))
                found = resolve(run.config).federated.params.model_dump()
                assert found["contrast_weight"] == on[0] * contrast
                assert found["distillation_weight"] == on[1] * distillation


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
    study = replace(study, config=real_config())
    lines = [f"{method},{task},0.5000" for method in ("Local", "FedAvg") for task in ("i2t", "t2i")]
    (tmp_path / "some-table1.csv").write_text("\n".join(["method,task,published", *lines]), encoding="utf-8")
    paths = write_comparison(made_up(tmp_path), study, tmp_path, ["All is different."])
    text = paths[0].read_text(encoding="utf-8")
    assert "| FedAvg | i2t | 0.5000 | 0.5100 | 0.383–0.637 | +0.0100 |" in text
    assert "| Local" not in text
    assert "2 of 4 published figures have one of ours next to them." in text
    assert "- They trained longer." in text
    # What differs stands before the first figure.
    assert text.index("**All is different.**") < text.index("| `train.batch` | 12 |") < text.index("| FedAvg")
    lines = list(csv.DictReader(io.StringIO(paths[1].read_text(encoding="utf-8"))))
    assert [line["ours"] for line in lines] == ["", "", "0.51", "0.51"]
    assert [line["seeds"] for line in lines] == ["0", "0", "2", "2"]


def test_differences_are_written_without_published_figures(tmp_path):
    study = replace(synthetic_study(METHODS, evaluations=("GG",)), config=real_config())
    (path,) = write_comparison(made_up(tmp_path), study, tmp_path)
    assert "| `train.batch` | 12 | p. 3 | 128 | all |" in path.read_text(encoding="utf-8")


def real_config():
    """Return a study on glyphs with the choices of `METHODS`."""
    choices = [{"name": name, "set": {"federated.name": name.lower()}} for name in ("Local", "FedAvg")]
    return make_study(
        {"title": "Made up", "seeds": [0, 1], "base": {"set": {"data.name": "glyphs"}},
         "axis": [{"name": "method", "choice": choices}]}, where="a study",
    )  # fmt: skip


def made_up(folder):
    """Return a table of a paper that is made up."""
    paper = Paper.model_validate({
        "title": "A paper", "notes": ["They trained longer."],
        "settings": {"train.batch": {"value": 12, "source": "p. 3"}},
        "items": {"table1": {"title": "all", "covers": ["table 1"]}},
    })  # fmt: skip
    return PaperTable("some/table1", paper, paper.items["table1"], folder)


def test_settings_of_an_item_replace_those_of_the_paper(tmp_path):
    table = made_up(tmp_path)
    item = table.item.model_copy(update={"settings": {"train.batch": (Stated(value=7, source="table 1"),)}})
    assert [one.value for one in table.settings["train.batch"]] == [12]
    assert [one.value for one in PaperTable("some/table1", table.paper, item, tmp_path).settings["train.batch"]] == [7]


def test_what_has_no_study_is_not_run(tmp_path):
    with pytest.raises(MissingFile, match="A paper, table 1"):
        made_up(tmp_path).study()
    named = made_up(tmp_path).item.model_copy(update={"study": "none.toml"})
    with pytest.raises(MissingFile, match=r"none\.toml"):
        PaperTable("some/table1", made_up(tmp_path).paper, named, tmp_path).study()


@pytest.mark.parametrize(
    ("line", "place"),
    [
        ("titel = 1", "titel"),
        ('settings = { "train.batch" = 3 }', "train.batch"),
        ('settings = { "train.batch" = { value = 3 } }', "source"),
        ("covers = []", "covers"),
        ('open = [{ set = { "data.name" = "coco18" } }]', "name"),
    ],
)
def test_damaged_papers_are_named(tmp_path, line, place):
    (tmp_path / "papers").mkdir()
    given = {"title": 'title = "a"', "covers": 'covers = ["table 1"]'} | {line.split(" ")[0]: line}
    (tmp_path / "papers" / "some.toml").write_text(
        'title = "A paper"\n[items.table1]\n' + "\n".join(given.values()), encoding="utf-8"
    )
    with pytest.raises(DamagedFile) as caught:
        paper_tables(tmp_path)
    assert "some.toml" in str(caught.value)
    assert place in str(caught.value)


def test_damaged_figures_are_named(tmp_path):
    with pytest.raises(UserError, match="missing"):
        read_published(tmp_path / "none.csv")
    (tmp_path / "bad.csv").write_text("method,published\nLocal,much\n", encoding="utf-8")
    with pytest.raises(DamagedFile, match="damaged"):
        read_published(tmp_path / "bad.csv")


COMPARED = [
    {"name": "FedAvg", "set": {"federated.name": "fedavg"}},
    {"name": "FedProx", "set": {"federated.name": "fedprox"}},
    {"name": "MOON", "set": {"federated.name": "moon"}},
]


def study(*rules, axes=(), **settings):
    """Return a study of three methods on glyphs."""
    return make_study(
        {
            "seeds": [0, 1],
            "base": {"set": {"data.name": "glyphs", **settings}},
            "axis": [{"name": "method", "choice": COMPARED}, *axes],
            "where": list(rules),
        },
        where="a study",
    )


BITS = {"name": "bits", "key": "local.bits", "values": [16, 32]}


def stated(key, value, **more):
    return {key: [Stated(value=value, source="p. 1", **more)]}


def found(statements, config):
    return [(one.key, one.paper, one.ours, one.runs) for one in differences(statements, config)]


def test_a_changed_learning_rate_is_a_difference():
    statements = stated("train.learning_rate", 0.005)
    assert found(statements, study(**{"train.learning_rate": 0.005})) == []
    assert found(statements, study(**{"train.learning_rate": 0.004})) == [("train.learning_rate", "0.005", "0.004", "")]
    rule = {"choices": {"method": "MOON"}, "set": {"train.learning_rate": 0.1}}
    assert found(statements, study(rule, **{"train.learning_rate": 0.005})) == [
        ("train.learning_rate", "0.005", "0.1", "method MOON")
    ]


def test_defaults_and_presets_are_compared():
    assert found(stated("train.optimizer", "sgd"), study()) == [("train.optimizer", "sgd", "adamw", "")]
    # Only one of the methods has the parameter.
    (one,) = found(stated("federated.temperature", 99), study())
    assert one[3] == "method MOON"


@pytest.mark.parametrize(
    ("key", "value", "setting", "equal"),
    [
        ("train.batch", 128, {}, True),
        ("train.batch", 129, {}, False),
        ("train.learning_rate", 0.0316, {"train.learning_rate": 0.0316228}, True),
        ("train.learning_rate", 0.031, {"train.learning_rate": 0.0316228}, False),
        ("train.decay", "none", {}, True),
        ("train.decay", "cosine", {}, False),
        ("data.follow_links", False, {}, True),
        ("data.follow_links", 0, {}, False),
        ("evaluate.tasks", ["i2t", "t2i"], {}, True),
        ("evaluate.tasks", ["t2i", "i2t"], {}, False),
        ("exchange.encryption", "none", {}, True),
        ("exchange.encryption", "ckks", {}, False),
        ("federated.server.optimizer", "none", {}, True),
        ("features.text.kind", "lda", {}, False),
        ("features.text.kind", "tfidf", {"features.text": {"kind": "tfidf"}}, True),
    ],
)
def test_values_are_equal(key, value, setting, equal):
    assert (found(stated(key, value), study(**setting)) == []) == equal


def test_runs_are_described_by_their_choices():
    rules = [
        {"choices": {"method": "MOON", "bits": "16"}, "set": {"train.batch": 7}},
        {"choices": {"method": "FedAvg", "bits": "32"}, "set": {"train.batch": 7}},
    ]
    config = study(*rules[:1], axes=[BITS])
    assert found(stated("train.batch", 128), config) == [("train.batch", "128", "7", "method MOON; bits 16")]
    assert found(stated("local.bits", 16), config) == [("local.bits", "16", "32", "bits 32")]
    config = study(*rules, axes=[BITS])
    (one,) = found(stated("train.batch", 128), config)
    assert one[3] == "method MOON, FedAvg; 2 of 6 runs" or one[3] == "method FedAvg, MOON; 2 of 6 runs"


def test_a_statement_may_be_about_some_runs():
    config = study(axes=[BITS])
    assert found(stated("train.batch", 7, where={"method": "MOON"}), config) == [
        ("train.batch", "7", "128", "method MOON")
    ]
    both = found(stated("train.batch", 7, where={"method": ["MOON", "FedAvg"], "bits": "16"}), config)
    assert both == [("train.batch", "7", "128", "method FedAvg, MOON; bits 16")]
    assert found(stated("train.batch", 7, where={"data.name": "coco"}), config) == []
    assert len(found(stated("train.batch", 7, where={"data.name": "glyphs"}), config)) == 1
    assert found(stated("train.batch", 7, where={"data": "Wiki"}), config) == []


def test_a_key_may_have_several_statements():
    statements = {
        "train.batch": [
            Stated(value=128, source="p. 1", where={"method": "MOON"}),
            Stated(value=64, source="p. 2", where={"method": "FedAvg"}),
        ]
    }
    assert found(statements, study()) == [("train.batch", "64", "128", "method FedAvg")]


def test_what_the_config_cannot_express_always_differs():
    (one,) = differences(stated("paper.encryption", "models are encrypted"), study())
    assert (one.paper, one.ours, one.runs) == ("models are encrypted", "", "")
    assert str(one) == "paper.encryption: models are encrypted in the paper (p. 1), cannot be set here"


@pytest.mark.parametrize("key", ["trian.batch", "train.bacth", "seed.x.y", "papers.encryption", "exchange.privacy.x"])
def test_keys_that_do_not_exist_are_refused(key):
    if key == "seed.x.y":  # nothing is known about what is below a value
        assert found(stated(key, 1), study()) == [(key, "1", "none", "")]
        return
    with pytest.raises(UnknownName):
        differences(stated(key, 1), study())


def test_table_of_differences():
    assert "No setting" in differences_table([])
    one = SettingDifference("train.batch", "a|b", "7", "p. 1", "method MOON")
    text = differences_table([one, SettingDifference("paper.x", "y", "", "p. 2")])
    assert "| `train.batch` | a\\|b | p. 1 | 7 | method MOON |" in text
    assert "| `paper.x` | y | p. 2 | cannot be set | all |" in text
    assert asdict(one)["runs"] == "method MOON"


def test_values_are_shown_as_in_toml():
    assert [shown(value) for value in (None, "sgd", 0.5, True, [1, "a"])] == ["none", "sgd", "0.5", "true", '[1, "a"]']
