"""The model card states what the run recorded: data, methods, figures, what left the silos, and limits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from silohash.base.errors import MissingFile
from silohash.report.card import card_text, input_words
from silohash.report.finish import finish_run
from silohash.report.headline import headline
from silohash.report.tables import number, read_results
from silohash.run.folder import Run
from tests import runs


def section(text: str, heading: str) -> str:
    """Return the text below a heading."""
    return text.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("card")
    archive = runs.write_archive(folder / "archive", text="words")
    trained = runs.train(
        archive,
        folder / "run",
        federated={"rounds": 2},
        partition={"missing_text": 0.4, "unpaired": 0.3},
        model={"dropout": 0.0},
    )
    finish_run(trained)
    return trained


@pytest.fixture(scope="module")
def text(run: Run) -> str:
    return (run.model_folder / "card.md").read_text(encoding="utf-8")


@pytest.mark.whole_run
def test_the_card_has_the_runs_own_figures(run: Run, text: str) -> None:
    good = section(text, "Figures")
    for row in read_results(run.results_path):
        assert (
            f"| {row.evaluation} | {row.task} | {row.bits} | {row.measure} | {number(row.value, percent=True)} |"
            in good
        )
    assert good.strip().startswith(headline(read_results(run.results_path)).sentence)
    assert "120 items" in good
    assert f"round {run.model.record.round + 1} of 2" in good


@pytest.mark.whole_run
def test_the_card_tells_data_methods_and_origin(run: Run, text: str) -> None:
    trained_on = section(text, "Trained on")
    assert run.archive.card.license in trained_on
    assert run.archive.card.protocol in trained_on
    assert "query 20, database 100, train 100" in trained_on
    assert "iid over 3 silos (missing_text 0.4, unpaired 0.3)" in trained_on
    methods = section(text, "Methods")
    assert "Deep Cross-Modal Hashing" in methods
    assert "- Image and text steps alternate per batch instead of per epoch." in methods
    origin = section(text, "Origin")
    assert run.config.digest() in origin
    assert run.model.encoder().digest in origin
    assert str(run.folder.parent) not in text


@pytest.mark.whole_run
def test_the_card_tells_what_left_the_silos(run: Run, text: str) -> None:
    left = section(text, "What left the silos")
    assert "- fedavg: parameters, number of items" in left
    assert "- image features, before training, as sums over the items of a silo: count, sum, sum_squares" in left
    assert "- text features, before training, as sums over the items of a silo: texts, document_frequency" in left
    sent = sum(record.uplink_bytes for record in run.rounds()) / 1e6
    assert f"{sent:,.2f} MB from the silos" in left
    assert "no noise was added" in left


@pytest.mark.whole_run
@pytest.mark.parametrize(
    ("privacy", "hidden"),
    [
        ({"unit": "record"}, "whether any one item was among a silo's training items"),
        ({"unit": "silo", "repeatable": True}, "what any one silo did"),
    ],
)
def test_the_card_tells_what_privacy_hides(tmp_path: Path, privacy: dict[str, object], hidden: str) -> None:
    archive = runs.write_archive(tmp_path / "archive", text="words")
    trained = runs.train(
        archive, tmp_path / "run", federated={"rounds": 2}, local={"name": "csq"}, evaluate={"validation": 0.0},
        features={"image": {"standardize": False, "equal_lengths": True}}, exchange={"privacy": privacy},
    )  # fmt: skip
    finish_run(trained)
    written = (trained.model_folder / "card.md").read_text(encoding="utf-8")
    left, last = section(written, "What left the silos"), trained.rounds()[-1].privacy
    assert last is not None
    assert f"Differential privacy hides {hidden}, with epsilon {last.epsilon:.2f} (delta 1e-05) after 2 rounds" in left
    assert f"received each silo's updates: epsilon {last.epsilon_server:.2f}." in left
    assert "before training" not in left
    assert ("This model has no guarantee" in left) is bool(privacy.get("repeatable"))
    assert f"per {privacy['unit']}, epsilon {last.epsilon:.2f}" in section(written, "Trained on")


@pytest.mark.whole_run
def test_the_card_tells_limits(run: Run, text: str) -> None:
    lacking = [silo.name for silo in run.partition.silos if not silo.has_text]
    assert lacking
    assert f"Trained without texts: {', '.join(lacking)}." in section(text, "Limits")
    assert f"Trained without pairs: {', '.join(s.name for s in run.partition.silos if not s.paired)}." in text
    assert "distances cannot be compared" not in text
    assert "each silo's own ranks" not in text
    assert "A query does not need a label." in text


@pytest.mark.whole_run
def test_warnings_and_rejected_updates_are_limits(run: Run, tmp_path: Path) -> None:
    for path in run.folder.iterdir():
        if path.name != "rounds.jsonl":
            (tmp_path / path.name).symlink_to(path)
    records = [json.loads(line) for line in run.rounds_path.read_text(encoding="utf-8").splitlines()]
    records[0]["warnings"] = ["all codes are alike", "<script>\x1b", "north: its move is 12 times as large"]
    records[1]["warnings"] = ["north: its move is 34 times as large"]
    records[1]["silos"][0]["rejected"] = "not finite"
    (tmp_path / "rounds.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    limits = section(card_text(Run(tmp_path)), "Limits")
    assert "all codes are alike" in limits
    assert "north: its move is 34 times as large (in 2 rounds)" in limits
    assert "12 times" not in limits
    assert "\\<script>⟨U+001B⟩" in limits
    assert "not finite" in limits


@pytest.mark.whole_run
def test_silos_with_models_of_their_own_are_told(tmp_path: Path) -> None:
    archive = runs.write_archive(tmp_path / "archive", text=None)
    run = runs.train(archive, tmp_path / "run", federated={"name": "local", "rounds": 1}, evaluate={"tasks": ["i2i"]})
    finish_run(run)
    text = run.card_path.read_text(encoding="utf-8")
    assert "A network that encodes pictures as codes" in text
    assert "The model cannot encode texts." in text
    assert "distances cannot be compared" in text
    assert "merges the results by each silo's own ranks" in text
    assert "--model SILO" in section(text, "Usage")
    assert "languages of the texts are not recorded" not in text
    for silo in run.partition.silos:
        assert run.model.encoder(silo.name).digest in section(text, "Origin")


@pytest.mark.whole_run
def test_a_composition_tells_what_its_members_send_and_keep(tmp_path: Path) -> None:
    methods = [{"name": "fedproc", "min_count": 1}, {"name": "moon"}, {"name": "moon", "temperature": 0.2}]
    archive = runs.write_archive(tmp_path / "archive")
    run = runs.train(archive, tmp_path / "run", federated={"name": "compose", "methods": methods, "rounds": 1})
    finish_run(run)
    assert [card.key for card in run.resolved.cards] == ["dcmh", "compose", "fedproc", "moon"]
    left = section(run.card_path.read_text(encoding="utf-8"), "What left the silos")
    for card in run.resolved.cards[2:]:
        assert f"{card.key}: {', '.join(card.sends)}" in left
        assert all(line in left for line in card.keeps)


@pytest.mark.whole_run
def test_training_by_the_command_leaves_a_card_and_evaluating_renews_it(tmp_path: Path) -> None:
    archive = runs.write_archive(tmp_path / "archive")
    config = runs.write_config(tmp_path / "run.toml", archive, federated={"rounds": 1})
    assert runs.silohash("train", config, "--out", tmp_path / "run").code == 0
    card = Run(tmp_path / "run").card_path
    before = card.read_text(encoding="utf-8")
    assert before.startswith("# run: dcmh codes of 16 bits")
    card.unlink()
    assert runs.silohash("evaluate", tmp_path / "run").code == 0
    assert card.read_text(encoding="utf-8") == before


@pytest.mark.whole_run
def test_commands_fit_what_the_model_takes(text: str) -> None:
    used = section(text, "Usage")
    assert "silohash search run --vector FILE.npy --vector-of image" in used
    assert 'silohash search run "WORDS"' in used
    assert "| image | vectors, made in the same way as those of the archive (width 16) |" in used


def test_settings_are_told_without_lists_and_empty_ones() -> None:
    class Words:
        kind = "tfidf"

        def state(self) -> tuple[dict[str, object], dict[str, object]]:
            about = {"kind": "tfidf", "buckets": 64, "vocabulary": ["a", "b"], "log_tf": True, "numbers": False}
            return {}, about

    assert input_words(Words()) == 'kind "tfidf" (buckets 64, log_tf)'  # type: ignore[arg-type]


def test_a_network_is_told_without_the_folder_of_its_weights() -> None:
    class Network:
        kind = "cnnf"

        def state(self) -> tuple[dict[str, object], dict[str, object]]:
            options = {"weights": "/home/somebody/imagenet-vgg-f.mat", "lrn": "matconvnet"}
            return {}, {"kind": "cnnf", "modality": "image", "width": 4096, "options": options, "half": False}

    words = input_words(Network())  # type: ignore[arg-type]
    assert words == 'kind "cnnf" (width 4096, weights imagenet-vgg-f.mat, lrn matconvnet)'


@pytest.mark.whole_run
def test_a_run_without_figures_has_no_card(tmp_path: Path) -> None:
    run = runs.train(runs.write_archive(tmp_path / "archive"), tmp_path / "run", federated={"rounds": 1})
    with pytest.raises(MissingFile):
        card_text(run)
