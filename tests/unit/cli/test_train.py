"""``new``, ``train`` and ``resume``: from a config to a measured run."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from silohash.api.runs import TrainedRun
from silohash.base.errors import UserError
from silohash.base.types import Modality
from silohash.cli.train import _example_query, seed_numbers
from silohash.report.finish import finish_run
from silohash.report.headline import headline
from silohash.report.tables import read_results
from silohash.run.config.load import load_config
from silohash.run.folder import Run
from tests.runs import silohash, train, write_archive, write_config

QUICK = {"federated": {"rounds": 1, "local_epochs": 1}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cli")


@pytest.fixture(scope="module")
def config(folder: Path) -> Path:
    return write_config(folder / "run.toml", write_archive(folder / "archive", text="words"), **QUICK)


@pytest.mark.parametrize(("text", "numbers"), [("", []), ("0", [0]), ("0,1, 2", [0, 1, 2]), ("3,1,", [3, 1])])
def test_seeds_are_read(text: str, numbers: list[int]) -> None:
    assert seed_numbers(text) == numbers


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("1,x", "is not a list of whole numbers"),
        ("1,1", "repeats a seed"),
        ("-1", "has one below 0"),
        ("1.5", "is not"),
    ],
)
def test_seeds_that_cannot_be_used_are_refused(text: str, reason: str) -> None:
    with pytest.raises(UserError, match=f'--seeds "{text}".*{reason}'):
        seed_numbers(text)


@pytest.mark.whole_run
def test_new_writes_a_config_that_trains(tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "archive", count=60, text="words")
    file = tmp_path / "new.toml"
    said = silohash("new", file, "--local", "dcmh", "--federated", "local", "--data", archive)
    assert said.code == 0
    assert said.out == ""
    assert f"Next: silohash train {file}" in said.err
    assert load_config(file).federated.name == "local"
    again = silohash("new", file)
    assert (again.code, again.out) == (2, "")
    assert f'"{file}" already exists.' in again.err
    values = ("model.hidden=16", "partition.silos=2", "train.threads=1", "train.device=cpu")
    tiny = [word for value in values for word in ("--set", value)]
    said = silohash("train", file, "--out", tmp_path / "out", "--smoke", *tiny)
    assert said.code == 0, said.err
    assert len(Run(tmp_path / "out").rounds()) == 2


@pytest.mark.parametrize(("labeled", "given"), [(False, ()), (False, ("--local", "ucch")), (True, ())])
def test_new_says_what_may_be_better_without_labels(tmp_path: Path, labeled: bool, given: tuple[str, ...]) -> None:
    archive = write_archive(tmp_path / "archive", count=30, text="words", labeled=labeled)
    said = silohash("new", tmp_path / "new.toml", "--data", archive, *given)
    assert said.code == 0
    assert ("docs/how-to/costs.md" in said.err) == (not labeled and not given)


def test_new_names_a_folder_that_does_not_exist(tmp_path: Path) -> None:
    said = silohash("new", tmp_path / "new.toml", "--data", tmp_path / "no")
    assert said.code == 0
    assert f'"{tmp_path / "no"}" is not the name of an archive, and not a folder yet.' in said.err
    said = silohash("new", tmp_path / "named.toml", "--data", "glyphs")
    assert "not a folder yet" not in said.err


@pytest.mark.whole_run
@pytest.mark.parametrize(("rate", "start"), [(1e-12, "Not better than random codes: training"), (0.02, "Training")])
def test_a_run_that_learned_nothing_says_so_in_terminal_report_and_card(
    folder: Path, config: Path, rate: float, start: str
) -> None:
    out = folder / f"rate {rate}"
    values = [f"train.learning_rate={rate}", "federated.rounds=6", "federated.local_epochs=4"]
    said = silohash("train", config, "--out", out, *(word for value in values for word in ("--set", value)))
    assert said.code == 0, said.err
    sentence = f"{start} together with fedavg finds relevant items with "
    assert said.out.startswith(sentence)
    assert f"\n{sentence}" in Run(out).card_path.read_text(encoding="utf-8")
    assert f"<h1>{sentence}" in Run(out).report_path.read_text(encoding="utf-8")


@pytest.mark.whole_run
def test_training_prints_figures_and_equals_itself(folder: Path, config: Path) -> None:
    first, again = folder / "out", folder / "again"
    for out in (first, again):
        said = silohash("train", config, "--out", out)
        assert said.code == 0, said.err
        assert "mAP@all" in said.out
        assert f"Report: {out / 'report.html'}" in said.out
        assert "fedavg: round 1/1  loss " in said.err
        assert said.out.splitlines()[0] == headline(read_results(Run(out).results_path)).sentence
        assert f"Next: silohash search {out}" in said.err
        folders = [path.name for path in sorted((out / "index").iterdir()) if path.is_dir()]
        assert folders == ["silo-1", "silo-2", "silo-3"]
        assert "silo-3: 34 items\n" in said.err
        assert "20 query items of archive are held out of the indexes" in said.err
    rows = [[row.value for row in read_results(Run(out).results_path)] for out in (first, again)]
    assert rows[0] == rows[1]
    refused = silohash("train", config, "--out", first)
    assert refused.code == 2
    assert f"silohash resume {first}" in refused.err


@pytest.mark.parametrize(
    ("given", "numbers", "says"),
    [
        (("image", "text"), (), '"…"'),
        (("text",), ("image",), '"…"'),
        (("image",), (), "--image FILE"),
        ((), ("image", "text"), "--vector FILE.npy"),
        ((), ("text",), "--vector FILE.npy --vector-of text"),
    ],
)
def test_the_next_step_is_a_search_that_the_model_takes(
    given: tuple[Modality, ...], numbers: tuple[Modality, ...], says: str
) -> None:
    model = SimpleNamespace(
        modalities_of_queries=lambda *, vectors: numbers if vectors else given,
        featurizers=dict.fromkeys((*given, *numbers)),
    )
    run: Any = SimpleNamespace(model=model)
    assert _example_query(run) == says


@pytest.mark.whole_run
def test_indexing_can_be_left_out_and_made_up_for(config: Path, tmp_path: Path) -> None:
    said = silohash("train", config, "--out", tmp_path / "out", "--no-index")
    assert said.code == 0, said.err
    assert not (tmp_path / "out" / "index").exists()
    assert f"Next: silohash index {tmp_path / 'out'}; silohash search" in said.err
    assert silohash("resume", tmp_path / "out", "--no-index").code == 0
    assert not (tmp_path / "out" / "index").exists()
    said = silohash("resume", tmp_path / "out")
    assert said.code == 0, said.err
    assert "silo-3: 34 items\n" in said.err
    assert silohash("search", tmp_path / "out", "parrot", "-k", 1).code == 0


@pytest.mark.whole_run
def test_several_seeds_are_several_runs(config: Path, tmp_path: Path) -> None:
    said = silohash("train", config, "--out", tmp_path / "out", "--seeds", "0,3", "--json")
    assert said.code == 0, said.err
    assert said.document()["runs"] == [str(tmp_path / "out" / "seed-0"), str(tmp_path / "out" / "seed-3")]
    assert {row["seed"] for row in said.document()["results"]} == {0, 3}
    again = silohash("train", config, "--out", tmp_path / "out", "--seeds", "5,3")
    assert again.code == 2
    assert not (tmp_path / "out" / "seed-5").exists()


@pytest.mark.whole_run
def test_default_folder_has_the_name_of_the_config(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert silohash("train", config).code == 0
    assert Run(tmp_path / "runs" / "run").results_path.exists()


def test_a_folder_without_a_run_cannot_be_resumed(tmp_path: Path) -> None:
    said = silohash("resume", tmp_path)
    assert (said.code, said.out) == (2, "")
    assert str(tmp_path) in said.err


@pytest.mark.whole_run
def test_training_on_a_federation_passes_the_limits_and_names_the_folder(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("nvflare")
    called = []

    def train(kit, resolved, folder, silos, *, limits, observers, notify):
        called.append((kit, resolved.config.federated.rounds, folder, silos, limits.deadline_seconds, limits.quorum))

    monkeypatch.setattr("silohash.training.engines.flare.jobs.train_in_federation", train)
    options = ("--silo", "north", "--deadline", "30", "--quorum", "2", "--set", "federated.rounds=7")
    done = silohash("train", config, "--on", tmp_path / "leader", "--out", tmp_path / "first", *options)
    assert called == [(tmp_path / "leader", 7, tmp_path / "first", ["north"], 30.0, 2)]
    assert done.out.splitlines() == [f"Run: {tmp_path / 'first'}"]


def test_a_run_on_a_federation_can_be_started_again_with_the_same_config(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("nvflare")
    monkeypatch.setattr("silohash.training.engines.flare.jobs.train_in_federation", lambda *given, **options: None)
    folder = tmp_path / "first"
    (folder / "model").mkdir(parents=True)
    (folder / "config.toml").write_text(load_config(config).to_toml())
    again = ("train", config, "--on", tmp_path / "leader", "--out", folder)
    assert silohash(*again).code == 0
    done = silohash(*again, "--set", "federated.rounds=7")
    assert done.code == 2
    assert "already holds a run" in done.err


@pytest.mark.whole_run
def test_seeds_are_not_possible_on_a_federation(config: Path, tmp_path: Path) -> None:
    done = silohash("train", config, "--on", tmp_path / "leader", "--seeds", "0,1")
    assert done.code == 2
    assert "--seeds is not possible with --on" in done.err


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("evaluate")
    trained = train(write_archive(folder / "archive", text="words"), folder / "out", federated={"rounds": 1})
    finish_run(trained)
    return trained


@pytest.mark.whole_run
def test_evaluate_with_options_leaves_the_figures_alone(run: Run) -> None:
    before = run.results_path.read_bytes(), run.examples_path.stat().st_mtime_ns
    said = silohash("evaluate", run.folder, "--measure", "P@3", "--evaluation", "GL", "--task", "i2i", "--json")
    assert said.code == 0, said.err
    assert [(r["evaluation"], r["task"], r["measure"]) for r in said.document()["results"]] == [("GL", "i2i", "P@3")]
    assert (run.results_path.read_bytes(), run.examples_path.stat().st_mtime_ns) == before


@pytest.mark.whole_run
def test_evaluate_without_options_writes_the_figures_again(run: Run) -> None:
    before = run.results_path.read_bytes(), run.examples_path.read_bytes()
    run.results_path.unlink()
    run.examples_path.unlink()
    said = silohash("evaluate", run.folder)
    assert said.code == 0, said.err
    assert "mAP@all" in said.out
    assert (run.results_path.read_bytes(), run.examples_path.read_bytes()) == before


@pytest.mark.whole_run
def test_evaluate_compares_a_run_with_codes_and_vectors_that_are_not_trained(run: Run) -> None:
    printed = silohash("evaluate", run.folder, "--costs", "--task", "t2t", "--measure", "mAP@all", "--json")
    assert printed.code == 0, printed.err
    assert [row["run"] for row in printed.document()["costs"]] == ["cosine, no codes", "ITQ", run.name]
    assert not run.costs_path.exists()
    said = silohash("evaluate", run.folder, "--costs")
    assert said.code == 0, said.err
    assert "What hashing costs" in said.out
    assert {row.run for row in read_results(run.costs_path)} == {"CCA, no codes", "ITQ", run.name}
    assert silohash("report", run.folder).code == 0
    assert 'id="costs"' in run.report_path.read_text(encoding="utf-8")
    run.costs_path.unlink()


@pytest.mark.whole_run
def test_items_that_nobody_trained_on_have_figures_of_their_own(folder: Path) -> None:
    archive = write_archive(folder / "partly", count=60, text="words")
    lines = (archive / "metadata.csv").read_text(encoding="utf-8").splitlines()
    half = [line.replace(",train,", ",database,") if number % 2 else line for number, line in enumerate(lines)]
    (archive / "metadata.csv").write_text("\n".join(half) + "\n", encoding="utf-8")
    trained = train(archive, folder / "partly-trained", federated={"rounds": 1, "local_epochs": 1})
    finish_run(trained)
    said = silohash("evaluate", trained.folder).out
    assert said.index("All items") < said.index("Only items that no silo trained on")
    document = silohash("evaluate", trained.folder, "--measure", "mAP@all", "--json").document()
    assert [row["protocol"] for row in document["unseen"]] == [
        f"{row['protocol']}, without items that silos trained on" for row in document["results"]
    ]
    page, card = trained.report_path.read_text(encoding="utf-8"), trained.card_path.read_text(encoding="utf-8")
    assert "unseen items only</th>" in page
    known = len(trained.archive.split("train"))
    assert 0 < known < 50
    assert f"50 in the database, {known} of which silos trained on" in page
    assert "Without the items that silos trained on (same queries):" in card
    whole, unseen = (read_results(path) for path in (trained.results_path, trained.unseen_results_path))
    assert {row.protocol for row in whole} == {trained.archive.card.protocol}
    assert len(unseen) == len(whole)
    chosen = TrainedRun(trained.folder).evaluate("mAP@all", tasks="i2t", evaluations="GG", database="unseen")
    assert [row.value for row in chosen] == [
        row.value for row in unseen if (row.evaluation, row.task, row.measure) == ("GG", "i2t", "mAP@all")
    ]


@pytest.mark.whole_run
def test_where_silos_trained_on_all_items_there_is_one_table(run: Run) -> None:
    assert "no silo trained on" not in silohash("evaluate", run.folder).out
    assert read_results(run.unseen_results_path) == []
    page = run.report_path.read_text(encoding="utf-8")
    assert "unseen items only" not in page
    assert "in the database, all of which silos trained on" in page


@pytest.mark.whole_run
def test_ignored_labels_are_named_in_the_protocol(run: Run) -> None:
    rows = silohash("evaluate", run.folder, "--ignore-label", "parrot", "--json").document()["results"]
    assert all(row["protocol"].endswith(", without parrot") for row in rows)
    refused = silohash("evaluate", run.folder, "--ignore-label", "parot")
    assert refused.code == 2
    assert "parrot" in refused.err


@pytest.mark.whole_run
def test_report_of_several_runs(run: Run, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    said = silohash("report", run.folder, run.folder, "--out", page)
    assert said.code == 0, said.err
    assert said.out.strip() == str(page)
    assert 'id="comparison"' in page.read_text(encoding="utf-8")


@pytest.mark.whole_run
def test_report_needs_no_model(run: Run, tmp_path: Path) -> None:
    for path in run.folder.iterdir():
        if path != run.model_folder:
            (tmp_path / path.name).symlink_to(path)
    assert silohash("report", tmp_path, "--out", tmp_path / "page.html").code == 0
    assert "Example searches" in (tmp_path / "page.html").read_text(encoding="utf-8")


@pytest.mark.whole_run
def test_report_without_examples_holds_no_item(run: Run, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert silohash("report", run.folder, "--no-examples", "--out", page).code == 0
    text = page.read_text(encoding="utf-8")
    assert "Example searches" not in text
    captions = [run.archive.caption(int(row)) for row in run.archive.split("query")]
    assert not [caption for caption in captions if caption in text]


@pytest.mark.whole_run
def test_report_is_written_into_the_first_run(run: Run) -> None:
    run.report_path.unlink(missing_ok=True)
    assert silohash("report", run.folder).out.strip() == str(run.report_path)
    assert run.report_path.exists()
