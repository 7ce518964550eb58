"""What a run keeps about removed items is deleted or named: example searches, the report, the model, and the rest."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from silohash.api.erasure import delete_examples, remains, trained_on
from silohash.api.runs import open_run
from silohash.base.errors import UnknownItem
from silohash.report.examples import read_examples
from silohash.run.folder import Run
from tests.runs import silohash, write_archive, write_config

pytestmark = pytest.mark.whole_run


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    archive = write_archive(folder / "items", count=60, text="words")
    config = write_config(folder / "run.toml", archive, federated={"rounds": 1, "local_epochs": 1})
    assert silohash("train", config, "--out", folder / "run").code == 0
    return folder


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Run:
    """A run and its archive, which a test may change."""
    for name in ("run", "items"):
        shutil.copytree(trained / name, tmp_path / name)
    config = tmp_path / "run" / "config.toml"
    config.write_text(config.read_text().replace(str(trained / "items"), str(tmp_path / "items")))
    return Run.open(tmp_path / "run")


def shown(run: Run) -> set[str]:
    examples = read_examples(run.examples_path)
    assert examples is not None
    return {item.item_id for one in examples.searches for item in (one.query, *(hit.item for hit in one.hits))}


def test_example_searches_and_the_report_go_if_they_show_an_item(run: Run) -> None:
    hidden = next(name for name in run.archive.ids[run.archive.split("train")].tolist() if name not in shown(run))
    asked = next(name for name in run.archive.ids[run.archive.split("query")].tolist() if name in shown(run))
    with open_run(run.folder) as opened:
        opened.remove(hidden)
        assert run.examples_path.exists()
        assert run.report_path.exists()
        assert opened.remove(asked) == {}, "a query is not in the indexes, and was shown"
    assert not run.examples_path.exists()
    assert not run.report_path.exists()
    assert not delete_examples(run, [asked])
    with open_run(run.folder) as opened, pytest.raises(UnknownItem):
        opened.remove(asked)


def test_the_model_is_named_that_was_trained_on_an_item(run: Run) -> None:
    query, item = (str(run.archive.ids[run.archive.split(name)][0]) for name in ("query", "train"))
    assert trained_on(run, [query, item, "nobody"]) == [item]
    assert any("it was trained on item-001. After removal" in line for line in remains(run, ["item-001"]))
    assert not any("trained on" in line for line in remains(run, [query]))
    shutil.rmtree(run.folder.parent / "items")
    changed = Run(run.folder)
    assert trained_on(changed, [query, item, "nobody"]) == [query, item], "the splits are not known any more"
    run.fingerprint_path.unlink()
    assert any("may have been trained on the items" in line for line in remains(changed, [item]))


def test_what_can_hold_items_is_listed_if_it_exists(run: Run) -> None:
    line = next(line for line in remains(run, ["item-001"]) if "docs/how-to/leave.md" in line)
    assert line.startswith("archive.safetensors")
    assert "audit" not in line
    (run.folder / "audit").mkdir()
    assert any("archive.safetensors, " in line and "audit in " in line for line in remains(run, ["item-001"]))


def test_removing_again_says_what_remains(run: Run) -> None:
    with open_run(run.folder) as opened:
        gone = opened.search("parrot", k=1).ids[0]
    for expected in (f"removed {gone}", ""):
        said = silohash("index", run.folder, "--remove", gone)
        assert said.code == 0, said.err
        assert expected in said.out
        assert f"{run.folder.parent / 'items'}: it is never changed." in said.err
        assert "silohash retrain" in said.err
