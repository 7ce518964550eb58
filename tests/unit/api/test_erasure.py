"""What a run keeps about removed items is deleted or named: example searches, the report, the model, and the rest."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from silohash.api.erasure import delete_examples, remains, trained_on
from silohash.api.runs import open_run
from silohash.base.errors import UnknownItem
from silohash.report.examples import ExampleHit, ExampleItem, Examples, ExampleSearch, write_examples
from silohash.run.folder import Run
from tests.runs import silohash
from tests.served import served_run

pytestmark = pytest.mark.whole_run
NOBODY = 'a "picture" of Orsay é'


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A run with an archive of its own and an example search, which shows a query and an item."""
    folder = served_run(tmp_path)
    archive = Path(shutil.copytree(Run(folder).config.data.path or "", tmp_path / "items"))
    config = folder / "config.toml"
    config.write_text(config.read_text().replace(str(Run(folder).config.data.path), str(archive)))
    run = Run.open(folder)
    query, hit = (ExampleItem(item_id=name, silo="silo-1") for name in (first(run, "query"), NOBODY))
    search = ExampleSearch(task="t2i", query=query, hits=(ExampleHit(item=hit, distance_bits=1),))
    write_examples(run.examples_path, Examples(searches=(search,)))
    run.report_path.write_text("the report")
    return run


def first(run: Run, split: str) -> str:
    return str(run.archive.ids[run.archive.split(split)][0])


def test_example_searches_and_the_report_go_if_they_show_an_item(run: Run) -> None:
    query, hidden = first(run, "query"), first(run, "train")
    with open_run(run.folder) as opened:
        opened.remove(hidden)
        assert run.examples_path.exists()
        assert run.report_path.exists()
        assert opened.remove(query) == {}, "a query is not in the indexes, and was shown"
    assert not run.examples_path.exists()
    assert not run.report_path.exists()
    assert not delete_examples(run, [query])
    with open_run(run.folder) as opened, pytest.raises(UnknownItem):
        opened.remove(query)


def test_ids_with_unusual_characters_are_found_in_example_searches(run: Run) -> None:
    assert not delete_examples(run, [NOBODY[:-1]])
    assert delete_examples(run, [NOBODY])


def test_the_model_is_named_that_was_trained_on_an_item(run: Run) -> None:
    query, item = first(run, "query"), first(run, "train")
    assert trained_on(run, [query, item, "nobody"]) == [item]
    assert any(f"it was trained on {item}. After removal" in line for line in remains(run, [item]))
    assert not any("trained on" in line for line in remains(run, [query]))
    shutil.rmtree(run.folder.parent / "items")
    changed = Run(run.folder)
    assert trained_on(changed, [query, item, "nobody"]) == [query, item], "the splits are not known any more"
    run.fingerprint_path.unlink()
    assert any("may have been trained on the items" in line for line in remains(changed, [item]))


def test_what_can_hold_items_is_listed_if_it_exists(run: Run) -> None:
    def listed() -> str:
        return next(line for line in remains(run, [NOBODY]) if "docs/how-to/leave.md" in line)

    assert listed().startswith("archive.safetensors")
    assert "audit" not in listed()
    (run.folder / "audit").mkdir()
    assert "audit in " in listed()


def test_removing_again_says_what_remains(run: Run) -> None:
    gone = first(run, "train")
    for expected in (f"removed {gone}", ""):
        said = silohash("index", run.folder, "--remove", gone)
        assert said.code == 0, said.err
        assert expected in said.out
        assert "archives: they are never changed." in said.err
        assert "silohash retrain" in said.err
