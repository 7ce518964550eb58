"""The workflow of a job: it runs our loop, and leaves what is fetched in the folder of the job."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from silohash import __version__
from silohash.base.errors import UserError
from silohash.run.config.load import load_resolved
from tests.runs import tiny

pytest.importorskip("nvflare")

from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal

from silohash.run.events import JsonLines, RoundRecord, SiloRecord
from silohash.training.engines.flare import controller as module
from silohash.training.engines.flare.controller import EARLIER, FAILED, NOTE, RESULT, ROUND, RoundsController
from silohash.training.engines.port import Limits


class Context(FLContext):
    def __init__(self, root: Path) -> None:
        super().__init__()
        self.root = root

    def get_job_id(self) -> str:
        return "job"

    def get_engine(self, *arguments: object, **options: object) -> object:
        workspace = SimpleNamespace(get_root_dir=lambda: str(self.root), get_run_dir=lambda job: str(self.root / job))
        return SimpleNamespace(get_workspace=lambda: workspace, get_clients=list)


class Controller(RoundsController):
    """Keeps what is logged, and why the job was ended."""

    def __init__(self, **arguments: object) -> None:
        super().__init__(**arguments)
        self.lines: list[str] = []
        self.panics: list[str] = []

    def log_info(self, fl_ctx: FLContext, msg: str, **options: object) -> None:
        self.lines.append(msg)

    def log_warning(self, fl_ctx: FLContext, msg: str, **options: object) -> None:
        self.lines.append(msg)

    def log_error(self, fl_ctx: FLContext, msg: str, **options: object) -> None:
        self.lines.append(msg)

    def system_panic(self, reason: str, fl_ctx: FLContext) -> None:
        self.panics.append(reason)


def made(run: str = "first", **changes: str) -> Controller:
    config = load_resolved({**tiny(Path("x")), "data": {"name": "glyphs"}}).config
    shared = {"version": __version__, "digest": config.shared_digest()}
    return Controller(
        run=run,
        config=config.to_toml(),
        silos=["north", "south"],
        deadline_seconds=5.0,
        quorum=2,
        **{**shared, **changes},
    )


@pytest.mark.whole_run
def test_run_is_trained_in_the_folder_of_the_server_and_its_model_is_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called = []

    def train(resolved, folder, engine, silos, *, limits, observers, notify):
        observers[0].start(name="fedavg", total_rounds=2, first_round=1)
        notify("north has not stored its model.")
        called.append((resolved.config.local.name, folder, list(silos), limits))
        liar = SiloRecord("south", 10**9, 0.1, 1.0, "it claims\nmore items")
        observers[0].round(RoundRecord(1, 1.0, 0.5, {}, None, True, [SiloRecord("north", 9, 0.1, 1.0), liar], 10, 10))
        (folder / "model").mkdir()
        (folder / "checkpoint").mkdir()
        (folder / "model" / "card.md").write_text("card")
        (folder / "config.toml").write_text("")

    monkeypatch.setattr(module, "train_at_sites", train)
    controller = made()
    earlier = JsonLines(tmp_path / "runs" / "first" / "rounds.jsonl")
    earlier.start(name="fedavg", total_rounds=2, first_round=0)
    earlier.round(RoundRecord(0, 1.0, 0.7, {}, None, True, [], 10, 10))
    earlier.finish()
    controller.control_flow(Signal(), Context(tmp_path))
    assert called == [("dcmh", tmp_path / "runs" / "first", ["north", "south"], Limits(5.0, 2))]
    assert controller.lines[1] == f"{NOTE}north has not stored its model."
    records = [json.loads(controller.lines[place].removeprefix(start)) for place, start in ((0, EARLIER), (3, ROUND))]
    assert controller.lines[2] == "south has no part in round 2: it claims⟨U+000A⟩more items"
    assert [(record["round"], record["loss"]) for record in records] == [(0, 0.7), (1, 0.5)]
    fetched = {path.relative_to(tmp_path / "job" / RESULT).as_posix() for path in (tmp_path / "job").rglob("*.*")}
    assert fetched == {"config.toml", "model/card.md", "rounds.jsonl"}
    assert controller.panics == []


@pytest.mark.whole_run
@pytest.mark.parametrize(("run", "reason"), [("first", "too few silos"), ("../x", "cannot have the name")])
def test_failure_ends_the_job_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: str, reason: str
) -> None:
    def train(*arguments, **options):
        raise UserError("too few silos")

    monkeypatch.setattr(module, "train_at_sites", train)
    controller = made(run)
    controller.control_flow(Signal(), Context(tmp_path))
    assert len(controller.panics) == 1
    assert reason in controller.panics[0]
    assert controller.lines == [f"{FAILED}{controller.panics[0]}"]
    assert not (tmp_path / "job").exists()


@pytest.mark.parametrize("changes", [{"version": "0.0.1"}, {"version": ""}, {"digest": "other"}])
def test_a_leader_with_another_version_or_digest_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, str]
) -> None:
    monkeypatch.setattr(module, "train_at_sites", lambda *arguments, **options: pytest.fail("it trains"))
    controller = made(**changes)
    controller.control_flow(Signal(), Context(tmp_path))
    assert "the leader" in controller.panics[0]


def test_late_result_makes_the_silo_live_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heard = []
    controller = made()
    late = (SimpleNamespace(name="south"), "silohash", "id", Shareable(), FLContext())
    controller.process_result_of_unknown_task(*late)
    controller.rounds = SimpleNamespace(heard_of=heard.append)
    controller.process_result_of_unknown_task(*late)
    assert heard == ["south"]
