"""Searches of a run whose indexes were deleted, copied, renamed or damaged: no silo vanishes, and none answers twice."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from silohash.api.runs import open_run
from silohash.run.folder import Run
from tests.read_only import python_on_read_only
from tests.runs import silohash, train, write_archive, write_config

pytestmark = pytest.mark.whole_run

SILOS = ("silo-1", "silo-2", "silo-3")


@pytest.fixture(scope="module", params=["fedavg", "local"])
def indexed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run with one model for all silos, and one in which every silo has its own."""
    folder = tmp_path_factory.mktemp(request.param)
    archive = write_archive(folder / "archive", count=60, text="words")
    run = train(archive, folder / "run", federated={"name": request.param, "rounds": 1, "local_epochs": 1})
    more = write_archive(folder / "more", count=30, text="words", seed=3)
    model = ("--model", "silo-1") if request.param == "local" else ()
    for command, *arguments in (("index",), ("index", more, *model), ("evaluate",)):
        done = silohash(command, run.folder, *arguments)
        assert done.code == 0, done.err
    return run


@pytest.fixture
def run(indexed: Run, tmp_path: Path) -> Path:
    return shutil.copytree(indexed.folder, tmp_path / "run")


def searched(run: Path, find: str = "image") -> tuple[int, set[str], dict[str, str]]:
    """Return the exit code, the silos with hits, and the missing silos of a search for everything."""
    done = silohash("search", run, "parrot", "-k", 200, "--json", "--find", find)
    document = done.document()
    names = [(hit["silo"], hit["id"]) for hit in document["hits"]]
    assert len(names) == len(set(names))
    return done.code, {silo for silo, _ in names}, document["missing_silos"]


@pytest.mark.parametrize("find", ["item", "image", "text"])
def test_all_silos_and_the_further_archive_answer(run: Path, find: str) -> None:
    assert searched(run, find) == (0, {*SILOS, "more"}, {})


@pytest.mark.parametrize("name", ["silo-2", "more"])
def test_an_index_that_is_gone_is_a_missing_silo(run: Path, name: str) -> None:
    shutil.rmtree(run / "index" / name)
    code, silos, missing = searched(run)
    assert (code, silos) == (0, {*SILOS, "more"} - {name})
    assert "does not exist. Index it again" in missing.pop(name)
    assert missing == {}
    assert f"{name} did not answer: Its index" in silohash("search", run, "parrot").err
    hits = open_run(run).search("parrot")
    assert set(hits.missing_silos) == {name}
    assert hits.answered


def test_an_index_under_another_name_does_not_answer_twice(run: Path) -> None:
    shutil.rmtree(run / "index" / "silo-2")
    shutil.copytree(run / "index" / "silo-1", run / "index" / "silo-2")
    code, silos, missing = searched(run)
    assert (code, silos) == (0, {"silo-1", "silo-3", "more"})
    assert missing == {"silo-2": 'The index was built for the silo "silo-1", not for "silo-2". Index "silo-2" again.'}


def test_the_index_of_another_modality_is_refused(run: Path) -> None:
    folder = run / "index" / "silo-1"
    (folder / "text.sqlite").replace(folder / "image.sqlite")
    code, silos, missing = searched(run)
    assert (code, silos) == (0, {"silo-2", "silo-3", "more"})
    assert missing["silo-1"].startswith("The index holds text codes instead of image codes.")


@pytest.mark.parametrize("name", ["silo-3", "more"])
def test_a_damaged_silo_does_not_prevent_the_others(run: Path, name: str) -> None:
    path = run / "index" / name / "image.sqlite"
    path.write_bytes(path.read_bytes()[:5000])
    code, silos, missing = searched(run)
    assert (code, silos) == (0, {*SILOS, "more"} - {name})
    assert "damaged" in missing[name]


def test_a_silo_with_one_damaged_index_is_searched_by_the_other(run: Path) -> None:
    path = run / "index" / "silo-3" / "image.sqlite"
    path.write_bytes(path.read_bytes()[:5000])
    document = silohash("search", run, "parrot", "-k", 200, "--json").document()
    assert document["missing_silos"] == {}
    assert {tuple(hit["found_by"]) for hit in document["hits"] if hit["silo"] == "silo-3"} == {("text",)}
    [(name, reason)] = document["limited_silos"].items()
    assert name == "silo-3"
    assert reason.startswith(f"It searched its texts only. The index {path} is damaged")
    assert f"silo-3: {reason}" in silohash("search", run, "parrot").err


def test_a_search_that_no_silo_answers_exits_with_2_and_names_each_silo(run: Path) -> None:
    for name in (*SILOS, "more"):
        (run / "index" / name / "image.sqlite").write_bytes(b"nonsense" * 1000)
    code, silos, missing = searched(run)
    assert (code, silos, set(missing)) == (2, set(), {*SILOS, "more"})
    for arguments in ((), ("--json",), ("--files",)):
        done = silohash("search", run, "parrot", "--find", "image", *arguments)
        assert done.code == 2
        for name in (*SILOS, "more"):
            assert f"{name} did not answer: The index {run / 'index' / name / 'image.sqlite'}" in done.err
        assert done.err.endswith("No silo answered.\n")
    hits = open_run(run).search("parrot", find="image")
    assert (len(hits), hits.answered, set(hits.missing_silos)) == (0, False, {*SILOS, "more"})


def test_a_search_without_a_hit_is_an_answer(run: Path) -> None:
    done = silohash("search", run, "parrot", "--label", "nothing has this label")
    about = "Only items that pass the filters (nothing has this label) were searched."
    assert (done.code, done.out, done.err.splitlines()) == (0, "", ["No silo returned an item.", about])
    done = silohash("search", run, "parrot", "--radius", "0", "--label", "nothing")
    assert done.err.endswith(
        "Only items that pass the filters (nothing) and within 0 bits of the query were searched.\n"
    )


def test_a_silo_that_is_not_indexed_yet_is_named(run: Path) -> None:
    """As after an interrupted command, or where only a further archive was indexed."""
    for name in SILOS:
        shutil.rmtree(run / "index" / name)
    (run / "index" / "silos.json").unlink()
    code, silos, missing = searched(run)
    assert (code, silos) == (0, {"more"})
    assert missing == dict.fromkeys(SILOS, f"It is not indexed. Run: silohash index {run}")


def test_hostile_text_of_a_silo_is_shown_as_it_is_spelled(tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "archive", count=60, text="words")
    table = archive / "metadata.csv"
    hostile = "parrot \x1b[31m\x9b\u202e\u200b[red]<b>"
    lines = table.read_text(encoding="utf-8").splitlines()
    lines[2] = f"{lines[2].split(',')[0]},{hostile},{','.join(lines[2].split(',')[2:])}"
    table.write_text("\n".join(lines) + "\n", encoding="utf-8")
    run = train(archive, tmp_path / "run", federated={"rounds": 1, "local_epochs": 1})
    assert silohash("index", run.folder).code == 0
    done = silohash("search", run.folder, "parrot", "-k", 100)
    assert "parrot ⟨U+001B⟩[31m⟨U+009B⟩⟨U+202E⟩⟨U+200B⟩[red]<b>" in done.out
    assert not {"\x1b", "\x9b", "\u202e", "\u200b"} & set(done.out)
    printed = silohash("search", run.folder, "parrot", "-k", 100, "--json")
    assert not {"\x1b", "\x9b", "\u202e", "\u200b"} & set(printed.out)
    assert hostile in {hit["caption"] for hit in printed.document()["hits"]}
    html = open_run(run.folder).search("parrot", k=100)._repr_html_()
    assert "parrot ⟨U+001B⟩[31m⟨U+009B⟩⟨U+202E⟩⟨U+200B⟩[red]&lt;b&gt;" in html


def test_hostile_labels_are_shown_as_they_are_spelled_in_reports_cards_and_tables(tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "archive", count=60, text="words")
    table = archive / "metadata.csv"
    label, shown = "par\x1b[2J\u202e\u2066rot", "par⟨U+001B⟩[2J⟨U+202E⟩⟨U+2066⟩rot"
    table.write_text(table.read_text(encoding="utf-8").replace("parrot", label), encoding="utf-8")
    config = write_config(
        tmp_path / "run.toml", archive, federated={"rounds": 1, "local_epochs": 1}, local={"bits": 16}
    )
    done = silohash("partition", config)
    assert shown in done.out, done.err
    done = silohash("train", config, "--out", tmp_path / "run")
    assert done.code == 0, done.err
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert shown in page
    card = (tmp_path / "run" / "model" / "card.md").read_text(encoding="utf-8")
    checked = silohash("data", "check", archive)
    for text in (page, card, done.out, done.err, checked.out, checked.err):
        assert not {"\x1b", "\u202e", "\u2066"} & set(text)


PROGRAM = """
import sys
from silohash.cli import main

sys.argv = ["silohash", *sys.argv[1:]]
main()
"""
WRITING = ("report {}", "index {}", "evaluate {}", "index {} --remove item-001")
WRITES = """
import sys
from silohash.cli import main

for command in sys.argv[1:]:
    sys.argv = ["silohash", *command.split()]
    print(command, file=sys.stderr)
    try:
        main()
    except SystemExit as end:
        print(end.code)
"""
"""Runs commands, and prints the exit code of each."""


def test_a_run_on_a_read_only_mount_is_searched_and_reported_elsewhere(run: Path, tmp_path: Path) -> None:
    expected = silohash("search", run, "parrot", "-k", 20)
    done = python_on_read_only([run], PROGRAM, "search", run, "parrot", "-k", 20)
    assert (done.returncode, done.stdout, done.stderr) == (0, expected.out, expected.err)
    page = tmp_path / "page.html"
    done = python_on_read_only([run], PROGRAM, "report", run, "--out", page)
    assert done.returncode == 0, done.stderr
    assert page.is_file()


def test_what_would_write_into_a_read_only_run_says_so(run: Path) -> None:
    commands = [command.format(run) for command in WRITING]
    done = python_on_read_only([run], WRITES, *commands)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["2"] * len(commands)
    assert "Traceback" not in done.stderr
    _, *said = re.split("|".join(map(re.escape, sorted(commands, key=len, reverse=True))), done.stderr)
    assert len(said) == len(commands)
    assert all(str(run) in text for text in said)
