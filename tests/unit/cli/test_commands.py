"""The commands: what they answer, where they say it, and with which exit code they end."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from silohash import __version__, registry
from silohash.cli import console
from silohash.config.load import load_config
from silohash.data.catalogue import ARCHIVES
from silohash.federated import FEDERATED_METHODS
from silohash.local import LOCAL_METHODS
from silohash.registry import Registry
from silohash.report.tables import read_results
from silohash.runtime.run import Run
from silohash.types import UserError
from tests.runs import silohash, write_archive, write_config

QUICK = {"federated": {"rounds": 1, "local_epochs": 1}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cli")


@pytest.fixture(scope="module")
def config(folder: Path) -> Path:
    return write_config(folder / "run.toml", write_archive(folder / "archive", text="words"), **QUICK)


@pytest.fixture(scope="module")
def run(folder: Path, config: Path) -> Run:
    said = silohash("train", config, "--out", folder / "out")
    assert said.code == 0, said.err
    return Run(folder / "out")


def test_help_and_version() -> None:
    said = silohash("--help")
    assert said.code == 0
    for command in (
        "demo",
        "new",
        "train",
        "resume",
        "evaluate",
        "report",
        "index",
        "search",
        "data",
        "partition",
        "list",
    ):
        assert f"  {command}" in said.out
    assert silohash("--version").out.strip() == __version__


def test_new_writes_a_config_that_trains(tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "archive", count=60, text="words")
    file = tmp_path / "new.toml"
    said = silohash("new", file, "--local", "dcmh", "--federated", "local", "--data", archive)
    assert said.code == 0
    assert said.out == ""
    assert f"Next: silohash train {file}" in said.err
    assert load_config(file).federated.name == "local"
    tiny = (
        "--set",
        "model.hidden=16",
        "--set",
        "partition.silos=2",
        "--set",
        "train.threads=1",
        "--set",
        "train.device=cpu",
    )
    said = silohash("train", file, "--out", tmp_path / "out", "--smoke", *tiny)
    assert said.code == 0, said.err
    assert len(Run(tmp_path / "out").rounds()) == 2


def test_training_answers_with_figures_and_says_the_rest_beside(run: Run, folder: Path, config: Path) -> None:
    assert run.results_path.exists()
    assert run.report_path.exists()
    assert run.curves_path.exists()
    said = silohash("train", config, "--out", folder / "again")
    assert said.code == 0
    assert "mAP@all" in said.out
    assert "fedavg: round 1/1  loss " in said.err
    assert "Next: silohash index" in said.err
    first, again = (read_results(place.results_path) for place in (run, Run(folder / "again")))
    assert [row.value for row in first] == [row.value for row in again]


def test_several_seeds_are_several_runs(config: Path, tmp_path: Path) -> None:
    said = silohash("train", config, "--out", tmp_path / "out", "--seeds", "0,3", "--json")
    assert said.code == 0, said.err
    assert said.document()["runs"] == [str(tmp_path / "out" / "seed-0"), str(tmp_path / "out" / "seed-3")]
    assert {row["seed"] for row in said.document()["results"]} == {0, 3}
    for wrong in ("1,x", "1,1", "-1"):
        refused = silohash("train", config, "--out", tmp_path / "other", f"--seeds={wrong}")
        assert refused.code == 2
        assert "--seeds" in refused.err
    again = silohash("train", config, "--out", tmp_path / "out", "--seeds", "5,3")
    assert again.code == 2
    assert not (tmp_path / "out" / "seed-5").exists()


def test_default_folder_is_called_as_the_config(config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert silohash("train", config).code == 0
    assert Run(tmp_path / "runs" / "run").results_path.exists()


def test_evaluate_with_options_leaves_the_figures_alone(run: Run) -> None:
    before = run.results_path.read_bytes()
    said = silohash("evaluate", run.folder, "--measure", "P@3", "--evaluation", "GL", "--task", "i2i", "--json")
    assert said.code == 0, said.err
    assert [(r["evaluation"], r["task"], r["measure"]) for r in said.document()["results"]] == [("GL", "i2i", "P@3")]
    assert run.results_path.read_bytes() == before
    run.results_path.unlink()
    assert silohash("evaluate", run.folder).code == 0
    assert run.results_path.read_bytes() == before


def test_report_of_several_runs(run: Run, folder: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    said = silohash("report", run.folder, run.folder, "--out", page)
    assert said.code == 0, said.err
    assert said.out.strip() == str(page)
    assert page.exists()


@pytest.mark.parametrize("kind", ["local", "federated", "data", "partition", "measure"])
def test_lists(kind: str) -> None:
    said = silohash("list", kind, "--json")
    assert said.code == 0
    keys = [entry["key"] for entry in said.document()[kind]]
    assert all(entry["summary"] for entry in said.document()[kind])
    known = {"local": LOCAL_METHODS.names(), "federated": FEDERATED_METHODS.names(), "data": list(ARCHIVES)}
    assert keys == known.get(kind, keys)
    plain = silohash("list", kind)
    assert plain.out.startswith(f"{kind}:\n")
    assert all(f"  {key}" in plain.out for key in keys)


@pytest.mark.parametrize(("kind", "family"), [("local", LOCAL_METHODS), ("federated", FEDERATED_METHODS)])
def test_every_method_shows_its_card(kind: str, family: Registry) -> None:
    assert silohash("list", kind).out.splitlines()[-1] == f"silohash list {kind} NAME shows a method's card."
    for name in family.names():
        card, plain = family.card(name), silohash("list", kind, name)
        assert plain.code == 0, plain.err
        words = " ".join(plain.out.split())
        for text in (card.title, card.authors, str(card.year), card.link, card.summary, *card.sends, *card.keeps):
            assert " ".join(text.split()) in words
        assert all(f"- {' '.join(text.split())}" in words for text in card.differs_from_paper)
        (about,) = silohash("list", kind, name, "--json").document()[kind]
        assert [entry["name"] for entry in about["parameters"]] == list(family.resolve(name).Params.model_fields)
        assert all(f"    {entry['name']} = " in plain.out for entry in about["parameters"])
        assert set(about["presets"]) == set(family.resolve(name).presets)


def test_card_of_a_method() -> None:
    said = silohash("list", "federated", "fedhap").out
    assert "  labels: needed\n" in said
    assert "  a silo keeps:\n    - nothing\n" in said
    assert "    min_count = 5\n        Minimum number of items a silo must have" in said
    assert '    paper: min_count = 1, max_labels = 1000, adversary = "printed"' in said
    assert 'did you mean "fedhap"' in silohash("list", "federated", "fedhapp").err
    assert "silohash data card glyphs" in silohash("list", "data", "glyphs").err
    assert silohash("list", "measure", "mAP@all").code == 2


def test_broken_plug_ins_are_listed_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: Path) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    about = 'title="x", authors="x", venue="x", year=2020, link="x", summary="x", supervised=True'
    card = f'CARD = MethodCard(key="plug_raises", {about})\n'
    other = "from silohash.types import MethodCard\n" + card + "class Other: ...\n"
    sources = {"plug_syntax": "def (:\n", "plug_raises": "raise OSError('no model')\n" + card, "plug_other": other}
    for name, source in sources.items():
        (tmp_path / f"{name}.py").write_text(source)
    reasons = {"plug_syntax": "SyntaxError", "plug_raises": "OSError (no model)", "plug_other": "another key"}
    reasons["plug_missing"] = "No module named 'plug_missing'"
    points = [EntryPoint(name, f"{name}:Other", "silohash.federated") for name in reasons]
    monkeypatch.setattr(registry, "entry_points", lambda group: [p for p in points if p.group == group])
    lines = silohash("list", "federated").out.splitlines()
    keys = [line.split()[0] for line in lines[1:-1]]
    assert keys == [*FEDERATED_METHODS.table, *reasons]
    for name, reason in reasons.items():
        (line,) = (line for line in lines if line.startswith(f"  {name} "))
        assert "broken: " in line
        assert reason in line
        for command in (
            ("list", "federated", name),
            ("train", config, "--out", tmp_path / "out", "--set", f"federated.name={name}"),
        ):
            refused = silohash(*command)
            assert (refused.code, refused.out) == (2, "")
            assert f'"{name}"' in refused.err
            assert reason in refused.err.replace("has no MethodCard with the key", "another key")
    assert silohash("list").code == 0


def test_data_and_partition(config: Path, folder: Path) -> None:
    said = silohash("data", "check", folder / "archive")
    assert said.out.startswith("archive: 120 items; query 20, database 100, train 100\n")
    card = silohash("data", "card", folder / "archive")
    assert "protocol: folder/given-splits" in card.out
    spread = silohash("partition", config, "--json").document()
    assert sum(spread["silos"].values()) == 120
    assert "silo-3" in silohash("partition", config).out
    other = silohash("partition", config, "--set", "partition.silos=2", "--json").document()
    assert len(other["silos"]) == 2
    assert "did you mean" in silohash("data", "check", "glyfs").err


def test_doctor_tells_what_is_there() -> None:
    facts = silohash("doctor", "--json").document()
    assert facts["silohash"] == __version__
    assert facts["torch"]
    assert silohash("doctor").out.startswith("python ")


# --- how errors end ---


def ending(monkeypatch: pytest.MonkeyPatch, error: BaseException):
    def raising() -> None:
        raise error

    monkeypatch.setattr(sys.modules["silohash.cli.app"], "app", raising)
    return silohash()


def test_errors_become_a_sentence_and_an_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    said = ending(monkeypatch, UserError("There is no such thing."))
    assert (said.code, said.out, said.err) == (2, "", "silohash: There is no such thing.\n")
    said = ending(monkeypatch, KeyboardInterrupt())
    assert said.code == 130
    assert "silohash resume RUN" in said.err
    said = ending(monkeypatch, SystemExit(130))
    assert said.code == 130
    assert "silohash resume RUN" in said.err
    said = ending(monkeypatch, SystemExit(0))
    assert (said.code, said.err) == (0, "")
    with pytest.raises(ZeroDivisionError):
        ending(monkeypatch, ZeroDivisionError())


def test_ctrl_c_inside_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    from silohash.cli import inspect

    def interrupted(kind: str) -> list:
        raise KeyboardInterrupt

    monkeypatch.setattr(inspect, "entries", interrupted)
    said = silohash("list")
    assert said.code == 130
    assert said.err.splitlines()[-1].startswith("silohash: interrupted.")


def test_json_has_no_figure_that_is_no_number(capsys: pytest.CaptureFixture[str]) -> None:
    console.print_json({"a": [float("nan"), 1.5, {"b": float("inf")}], "c": (2,), "d": Path("x")})
    said = type("Said", (), {"out": capsys.readouterr().out})
    import json

    assert json.loads(said.out) == {"schema": 1, "a": [None, 1.5, {"b": None}], "c": [2], "d": "x"}


def test_command_line_does_not_import_torch_before_it_must() -> None:
    import subprocess

    code = "import sys; from silohash.cli import app; assert 'torch' not in sys.modules and 'numba' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
