from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from silohash.base.errors import InUse, MissingFile, UserError
from silohash.index.store import Store
from silohash.run.folder import Run
from silohash.service.items.indexer import Indexer, encoder_of, open_indexer, prepare_index
from silohash.service.items.keeper import ItemState, Keeper
from silohash.service.items.scan import Record
from tests.served import drawn, png

LONGEST_SECONDS = 120.0
"""Limit on every wait. The thread that reads the folder gives way to all others."""


@pytest.fixture
def keeper(run: Run, folder: Path, request: pytest.FixtureRequest) -> Keeper:
    return keeper_of(run, folder, request.node.name)


def keeper_of(run: Run, folder: Path, silo: str) -> Keeper:
    prepare_index(run, silo)
    lock = run.index_folder / f".{silo}.items.lock"
    return Keeper(folder, lock, lambda: open_indexer(run, silo, folder, ("caption", "preview")))


def until(holds: Callable[[], object]) -> None:
    end = time.monotonic() + LONGEST_SECONDS
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_programs_put_replace_and_delete_items(keeper: Keeper) -> None:
    with keeper:
        assert keeper.keeps
        state = keeper.put(Record(id="a", text="red square"), png(), ".png")
        assert state == keeper.state("a")
        assert (state.indexed, state.modalities, state.problem) == (True, ("image", "text"), "")
        assert keeper.put(Record(id="a", text="blue")).modalities == ("text",)
        unknown = keeper.put(Record(id="b", text="zzz"))
        assert (unknown.indexed, unknown.problem) == (False, "its text does not contain a word that the model knows")
        assert [each.id for each in keeper.page()] == ["a", "b"]
        assert [each.id for each in keeper.page("a")] == ["b"]
        assert keeper.delete("a")
        assert not keeper.delete("a")
        assert keeper.state("a") is None
        assert [each.id for each in keeper.page()] == ["b"]
    with pytest.raises(InUse):
        keeper.put(Record(id="a", text="red"))


def test_the_folder_is_followed(keeper: Keeper) -> None:
    folder = keeper.folder
    (folder / "before.png").write_bytes(png())
    with keeper:
        until(lambda: keeper.state("before.png"))
        (folder / "sub").mkdir()
        (folder / "sub" / "a.png").write_bytes(png(drawn("blue", "frame")))
        (folder / "bad.png").write_bytes(png()[:90])
        until(lambda: keeper.state("sub/a.png") and "bad.png" in {each.id for each in keeper.page()})
        [bad] = [each for each in keeper.page() if each.id == "bad.png"]
        assert "can no longer be read" in bad.problem
        (folder / "before.png").unlink()
        until(lambda: keeper.state("before.png") is None)
        assert keeper.state("sub/a.png") is not None


def test_a_file_that_could_not_be_read_is_found_when_it_can(keeper: Keeper, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file does not change meanwhile, and nothing else in the folder does."""
    monkeypatch.setattr("silohash.service.items.keeper.RESCAN_SECONDS", 0.0)
    broken, read = threading.Event(), Path.read_bytes
    broken.set()

    def failing(path: Path) -> bytes:
        if path.name == "a.png" and broken.is_set():
            raise OSError(errno.EIO, "Input/output error")
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", failing)
    (keeper.folder / "a.png").write_bytes(png())
    with keeper:
        until(lambda: keeper.page())
        [state] = keeper.page()
        assert (state.indexed, "Input/output error" in state.problem) == (False, True)
        broken.clear()
        until(lambda: keeper.page()[0].indexed)
        assert keeper.page()[0].problem == ""


def test_deleted_items_of_the_folder_stay_hidden(run: Run, folder: Path) -> None:
    (folder / "a.png").write_bytes(png())
    with keeper_of(run, folder, "hidden") as keeper:
        until(keeper.first_update.is_set)
        until(lambda: keeper.state("a.png"))
        assert keeper.delete("a.png")
        keeper.update()
        assert keeper.state("a.png") is None
    assert (folder / "a.png").exists()
    with keeper_of(run, folder, "hidden") as keeper:
        keeper.update()
        assert keeper.state("a.png") is None
        assert keeper.put(Record(id="a.png", text="red")).indexed


def test_an_item_of_the_first_indexing_stays_hidden_after_a_text_without_a_code(run: Run, folder: Path) -> None:
    with keeper_of(run, folder, "first") as keeper:
        keeper.put(Record(id="first", text="red"))
        keeper._writer().ledger.forget(["first"])  # as the first indexing leaves an item
        until(keeper.first_update.is_set)
        assert not keeper.put(Record(id="first", text="zzz")).indexed
        assert keeper.delete("first")
        assert keeper._scanner.records.read("first") == Record(id="first", deleted=True)


def test_what_was_put_is_indexed_after_a_crash_in_between(run: Run, folder: Path) -> None:
    keeper = keeper_of(run, folder, "crash")
    keeper._scanner.records.write(Record(id="a", text="red square"))
    with keeper:
        until(lambda: keeper.state("a"))
        keeper._scanner.records.remove("a")
        keeper.update()
        assert keeper.state("a") is None


def test_an_empty_folder_of_a_missing_disk_removes_nothing(
    run: Run, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with keeper_of(run, folder, "disk") as keeper:
        keeper.put(Record(id="a", text="red square"))
    folder.rename(folder.with_name("elsewhere"))
    with keeper_of(run, folder, "disk") as keeper:
        for _ in range(2):
            keeper.update()
            assert keeper.state("a") is not None
            with pytest.raises(MissingFile):
                keeper.put(Record(id="b", text="red"))
            with pytest.raises(MissingFile):
                keeper.delete("a")
            assert not any(folder.iterdir())
    assert any("does not have the subfolder put" in str(vars(record).get("fields")) for record in caplog.records)


def test_another_process_takes_over(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("silohash.service.items.keeper.TAKEOVER_SECONDS", 0.05)
    served: list[str] = []

    @contextmanager
    def server(keeper: Keeper) -> Iterator[None]:
        served.append("begin")
        yield
        served.append("end")

    first, second = keeper_of(run, folder, "two"), keeper_of(run, folder, "two")
    second._server = server
    with first:
        with second:
            assert (first.keeps, second.keeps, served) == (True, False, [])
            first.__exit__()
            until(lambda: second.keeps)
            assert second.put(Record(id="a", text="red square")) == ItemState(
                "a", True, ("text",), run.model.digest("global")
            )
        assert served == ["begin", "end"]
        first._thread.join()


def test_errors_do_not_end_the_thread(
    keeper: Keeper, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("silohash.service.items.keeper.RETRY_SECONDS", 0.01)
    errors = [UserError("The disk is full."), ValueError("unexpected")]
    update = keeper.update

    def failing(*, again: bool) -> object:
        if errors:
            raise errors.pop(0)
        return update(again=again)

    monkeypatch.setattr(keeper, "update", failing)
    with keeper:
        until(keeper.first_update.is_set)
    logged = [record.getMessage() for record in caplog.records]
    assert [each for each in logged if "index" in each and "keeping" not in each][:2] == [
        "the items cannot be indexed",
        "indexing items failed",
    ]


class Following:
    """A successor that builds an empty index of the same model in a folder of its own."""

    def __init__(self, run: Run, folder: Path, silo: str, place: Path) -> None:
        self._open = lambda: Indexer(place, silo, folder, encoder_of(run, silo), ("caption",))
        self.finished = self.removed = False
        self.failures = 1

    def build(self, stopped: object) -> Indexer:
        if self.failures:
            self.failures -= 1
            raise UserError("The archive cannot be read.")
        return self._open()

    def finish(self, indexer: Indexer) -> Indexer:
        indexer.close()
        self.finished = True
        return self._open()

    def open(self) -> Indexer:
        return self._open()

    def remove_old(self) -> None:
        self.removed = True


def test_items_go_to_the_index_of_a_new_model_too(
    run: Run, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("silohash.service.items.keeper.RETRY_SECONDS", 0.05)
    following = Following(run, folder, "changing", tmp_path / "next")

    def held() -> set[str]:
        with Store(tmp_path / "next" / "text.sqlite") as store:
            return {payload["caption"] for payload in store.first_payloads(10)}

    with keeper_of(run, folder, "changing") as keeper:
        keeper.put(Record(id="before", text="red"))
        keeper.drop_old()
        keeper.follow(following)  # type: ignore[arg-type]
        until(lambda: keeper._following is not None)
        assert held() == {"red"}
        keeper.put(Record(id="after", text="blue"))
        assert held() == {"red", "blue"}
        keeper.delete("before")
        assert held() == {"blue"}
        assert not following.removed
        keeper.drop_old()
        assert following.removed
        assert keeper.put(Record(id="last", text="green")).indexed
        assert held() == {"blue", "green"}
    with keeper_of(run, folder, "changing") as keeper:
        keeper.follow(following)  # type: ignore[arg-type]
        until(lambda: keeper._following is not None)
        assert [each.index for each in keeper._writers()] == [run.index_folder / "changing", tmp_path / "next"]


def test_a_new_model_that_is_named_while_another_process_hands_over_is_built_once(
    run: Run, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    following = Following(run, folder, "twice", tmp_path / "next")
    built, going_on = [], threading.Event()

    def build(stopped: threading.Event) -> Indexer:
        built.append(threading.current_thread())
        going_on.wait(LONGEST_SECONDS)
        return following._open()

    monkeypatch.setattr(following, "build", build)
    keeper = keeper_of(run, folder, "twice")

    @contextmanager
    def server(begun: Keeper) -> Iterator[None]:
        begun.follow(following)  # type: ignore[arg-type]
        yield

    keeper._server = server
    with keeper:
        until(lambda: built)
        keeper.follow(following)  # type: ignore[arg-type]
        going_on.set()
        until(lambda: keeper._following is not None)
    assert len(built) == 1


def test_an_index_that_has_replaced_the_old_one_is_not_opened_again(
    run: Run, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("silohash.service.items.keeper.RETRY_SECONDS", 0.05)
    following, dropped = Following(run, folder, "quick", tmp_path / "next"), threading.Event()
    finish = following.finish

    def slowly(indexer: Indexer) -> Indexer:
        made = finish(indexer)
        monkeypatch.setattr(indexer, "close", lambda: dropped.wait(LONGEST_SECONDS))  # the thread goes on only then
        return made

    monkeypatch.setattr(following, "finish", slowly)
    with keeper_of(run, folder, "quick") as keeper:
        keeper.follow(following)  # type: ignore[arg-type]
        until(lambda: keeper._following is not None)
        keeper.drop_old()
        dropped.set()
        assert keeper._builder is not None
        keeper._builder.join(LONGEST_SECONDS)
        assert not keeper._builder.is_alive()
        assert [each.index for each in keeper._writers()] == [tmp_path / "next"]
