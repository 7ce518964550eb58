"""The command line as a whole: its help, its imports, its JSON, and how errors and interruptions end."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import typer.main

from silohash import __version__
from silohash.base.errors import UnknownName
from silohash.cli import app, inspect, main
from silohash.cli.help import ABOUT
from silohash.run.config.load import load_config
from silohash.run.folder import Run
from tests import interrupts
from tests.runs import silohash, write_archive, write_config

QUICK = {"federated": {"rounds": 1, "local_epochs": 1}}
COMMANDS = (
    *(
        "demo",
        "new",
        "train",
        "resume",
        "evaluate",
        "report",
        "compare",
        "reproduce",
        "study",
        "sweep",
        "index",
        "search",
        "audit-log",
    ),
    *("export", "encode", "data", "partition", "list", "doctor"),
)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_archive(tmp_path_factory.mktemp("data") / "archive", text="words")


def test_help_lists_every_command() -> None:
    said = silohash("--help")
    assert said.code == 0
    assert all(f"\n  {command} " in said.out for command in COMMANDS)
    assert "simulated on this machine" in " ".join(said.out.split())
    headings = [line for line in said.out.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert headings == ["Options:", "Start:", "Train:", "Search:", "Compare:", "Data and methods:"]
    assert silohash("--version").out.strip() == __version__


def commands() -> list[tuple[str, ...]]:
    """Return every command, and the commands of each group."""
    root = typer.main.get_command(app)
    found: list[tuple[str, ...]] = []
    for name, command in root.commands.items():
        inner = getattr(command, "commands", {})
        found += [(name, one) for one in inner] if inner else [(name,)]
    return found


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_every_command_and_option_has_a_help_text(words: tuple[str, ...]) -> None:
    command = typer.main.get_command(app)
    for word in words:
        command = command.commands[word]
    assert re.match(r"[A-Z].*\.$", (command.help or "").strip().splitlines()[0])
    for parameter in command.params:
        assert parameter.help, parameter.name
        assert re.search(r"[.)\]]$", parameter.help), f"{parameter.name}: {parameter.help}"
        assert parameter.metavar or parameter.is_flag, f"{parameter.name} would be shown with its type in Python"
    said = silohash(*words, "--help")
    assert said.code == 0
    assert not re.search("<[a-z]", said.out)
    assert "..." not in re.sub(r"\b(RUN|FILE)\.\.\.", "", said.out)
    assert max(map(len, said.out.splitlines())) <= 80


def test_every_text_of_the_help_table_is_shown() -> None:
    root = typer.main.get_command(app)
    groups = [command for command in root.commands.values() if hasattr(command, "commands")]
    every = [*root.commands.values(), *(command for group in groups for command in group.commands.values())]
    shown = {root.help, *(group.help for group in groups), *(one.help for each in every for one in each.params)}
    assert set(ABOUT.values()) <= shown


@pytest.mark.whole_run
def test_json_is_one_document_and_nothing_else(tmp_path: Path, archive: Path) -> None:
    config = write_config(tmp_path / "run.toml", archive, **QUICK)
    calls = [
        ("train", config, "--out", tmp_path / "out", "--json"),
        ("resume", tmp_path / "out", "--json"),
        ("evaluate", tmp_path / "out", "--json"),
        ("index", tmp_path / "out", "--json"),
        ("search", tmp_path / "out", "parrot", "--json"),
        ("partition", config, "--json"),
        ("data", "check", archive, "--json"),
        ("list", "--json"),
        ("doctor", "--json"),
    ]
    for call in calls:
        said = silohash(*call)
        assert said.code == 0, said
        assert said.document()["schema"] == 1, call


def ending(monkeypatch: pytest.MonkeyPatch, error: BaseException):
    def raising() -> None:
        raise error

    monkeypatch.setattr(sys.modules["silohash.cli.app"], "app", raising)
    return silohash()


def test_errors_become_a_sentence_and_an_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    said = ending(monkeypatch, UnknownName("There is no such thing."))
    assert (said.code, said.out, said.err) == (2, "", "silohash: There is no such thing.\n  [unknown-name]\n")
    said = ending(monkeypatch, UnknownName('"\x1b[2J" is not\nsilohash: all is well'))
    assert said.err == 'silohash: "⟨U+001B⟩[2J" is not\n  silohash: all is well\n  [unknown-name]\n'
    for interruption in (KeyboardInterrupt(), SystemExit(130)):
        said = ending(monkeypatch, interruption)
        assert said.code == 130
        assert "silohash resume RUN" in said.err
    said = ending(monkeypatch, SystemExit(0))
    assert (said.code, said.err) == (0, "")
    with pytest.raises(ZeroDivisionError):
        ending(monkeypatch, ZeroDivisionError())


@pytest.mark.parametrize("command", [("train",), ("study", "--smoke")])
def test_a_second_setting_behind_one_option_is_explained(command: tuple[str, ...]) -> None:
    said = silohash(*command, "mine.toml", "--set", "local.bits=64", "train.device=cpu")
    assert said.code == 2
    assert "Repeat --set before each setting: --set local.bits=64 --set train.device=cpu" in said.err


def test_ctrl_c_inside_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(kind: str) -> list:
        raise KeyboardInterrupt

    monkeypatch.setattr(inspect, "entries", interrupted)
    said = silohash("list")
    assert said.code == 130
    assert said.err.splitlines()[-1].startswith("silohash: interrupted.")


def test_reader_that_stops_early_ends_the_command_quietly(monkeypatch: pytest.MonkeyPatch) -> None:
    def raising() -> None:
        raise BrokenPipeError

    monkeypatch.setattr(sys.modules["silohash.cli.app"], "app", raising)
    written = io.StringIO()
    monkeypatch.setattr(sys, "stderr", written)
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 1
    assert written.getvalue() == ""


@pytest.mark.whole_run
def test_ctrl_c_leaves_a_resumable_run(archive: Path, tmp_path: Path) -> None:
    config = write_config(tmp_path / "run.toml", archive, federated={"rounds": 5000, "local_epochs": 4})
    out = tmp_path / "out"
    with interrupts.start("train", str(config), "--out", str(out)) as process:
        deadline = time.monotonic() + 300
        while time.monotonic() < deadline and process.poll() is None:
            if (out / "checkpoint" / "state.json").exists():
                break
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        output, status = process.communicate(timeout=120)
    assert process.returncode == 130, status
    assert output == ""
    assert "Traceback" not in status
    assert "interrupted" in status.splitlines()[-1]
    assert "silohash resume" in status.splitlines()[-1]
    assert [path.name for path in out.iterdir() if path.name.endswith((".part", ".old"))] == []
    done = len(Run(out).rounds())
    assert 1 <= done < 5000
    assert Run(out).config == load_config(config)


@pytest.mark.whole_run
def test_command_line_does_not_import_torch_before_it_must() -> None:
    code = "import sys; from silohash.cli import app; assert 'torch' not in sys.modules and 'numba' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


REFUSED_EARLY = (
    "train missing.toml",
    "train wrong.toml",
    "train run.toml --set train.batch=0",
    "train run.toml --set local.name=dcmhh",
    "train run.toml --set train.batch",
    "train run.toml --seeds x",
    "train run.toml --seeds 1,1",
    "partition missing.toml",
    "partition run.toml --set partition.silos=0",
    "resume missing",
    "evaluate missing",
    "evaluate missing --measure zap",
    "evaluate missing --task x2y",
    "report missing",
    "compare missing run",
    "index missing",
    "index missing --remove @missing.txt",
    "search missing words",
    "search missing --find zap words",
    "export missing",
    "export missing --onnx",
    "encode missing --out codes.txt",
    "encode missing --out codes.npz",
    "study missing.toml",
    "sweep run.toml --over local.bits",
    "sweep run.toml --over local.bits=16 --seeds x",
    "reproduce zap",
    "train run.toml --out busy",
    "data check missing",
    "data card zap",
    "list zap",
    "new run.toml",
    "new other.toml --local dcmhh",
    "new other.toml --federated fedavgg",
    "new other.toml --backbone clpi",
    "demo --set zap",
)
"""Command lines that are refused for their arguments alone, so that the answer need not wait for torch."""

ANSWERS_WITHOUT_TORCH = """
import sys
from silohash.cli import main
for line in sys.argv[1:]:
    sys.argv = ["silohash", *line.split()]
    try:
        main()
    except SystemExit as end:
        print(line, end.code, "torch" in sys.modules)
"""


@pytest.mark.whole_run
def test_wrong_arguments_are_refused_before_torch_is_imported(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text('[data]\nname = "glyphs"\n', encoding="utf-8")
    (tmp_path / "wrong.toml").write_text('[data]\nname = "glyphs"\n[train]\nbatch = 0\n', encoding="utf-8")
    (tmp_path / "busy").mkdir()
    (tmp_path / "busy" / "notes.txt").write_text("mine")
    command = [sys.executable, "-c", ANSWERS_WITHOUT_TORCH, *REFUSED_EARLY]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=True)
    assert done.stdout.splitlines() == [f"{line} 2 False" for line in REFUSED_EARLY], done.stderr[-2000:]
    answers = [line for line in done.stderr.splitlines() if line.startswith("silohash: ")]
    assert len(answers) == len(REFUSED_EARLY)


PIPED = "import sys; sys.argv = ['silohash', *sys.argv[1:]]; from silohash.cli import main; main()"


def piped(*arguments: str, stdout: int) -> subprocess.CompletedProcess[bytes]:
    """Run a command in a process of its own, with a given standard output."""
    command = [sys.executable, "-c", PIPED, *arguments]
    return subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, check=False, timeout=300)


@pytest.mark.whole_run
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("arguments", [("list",), ("--help",), ("--version",)])
def test_output_that_cannot_be_written_ends_in_a_sentence(arguments: tuple[str, ...]) -> None:
    with Path("/dev/full").open("wb") as full:
        ended = piped(*arguments, stdout=full.fileno())
    assert ended.returncode == 2
    lines = ended.stderr.decode().splitlines()
    assert lines == [
        "silohash: The output could not be written (No space left on device). Redirect it to another place, or free some "
        "space."
    ]


@pytest.mark.whole_run
@pytest.mark.parametrize("arguments", [("list", "--json"), ("--help",)])
def test_a_reader_that_has_gone_ends_a_command_quietly(arguments: tuple[str, ...]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    ended = piped(*arguments, stdout=writing)
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (1, b"")


@pytest.mark.whole_run
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_message_that_cannot_be_written_keeps_the_exit_code() -> None:
    with Path("/dev/full").open("wb") as full:
        command = [sys.executable, "-c", PIPED, "search", "no-run", "x"]
        assert subprocess.run(command, stdout=subprocess.PIPE, stderr=full, timeout=300).returncode == 2


@pytest.mark.whole_run
def test_errors_of_the_system_name_the_file(tmp_path: Path) -> None:
    said = silohash("train", tmp_path / ("x" * 300), "--out", tmp_path / "out")
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith(f"silohash: {tmp_path}/xxx")
    assert said.err.endswith("could not be read or written (File name too long). Check the path.\n")


@pytest.mark.parametrize(("package", "extra"), [("torch", "train"), ("h5py", "matlab")])
def test_a_missing_optional_package_is_named_with_its_extra(
    package: str, extra: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails() -> None:
        raise ModuleNotFoundError(f"No module named '{package}.part'", name=f"{package}.part")

    monkeypatch.setattr(sys.modules["silohash.cli.app"], "app", fails)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    expected = f"silohash: This command needs {package}, which is not installed: pip install 'silohash[{extra}]'"
    expected += "\n  [dependency-missing]\n"
    assert capsys.readouterr().err == expected


def test_another_missing_module_is_a_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> None:
        raise ModuleNotFoundError("No module named 'silohash.gone'", name="silohash.gone")

    monkeypatch.setattr(sys.modules["silohash.cli.app"], "app", fails)
    with pytest.raises(ModuleNotFoundError):
        main()


@pytest.mark.whole_run
def test_a_console_that_is_neither_utf8_nor_ascii(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "big5"}
    command = [sys.executable, "-m", "silohash"]
    listed = subprocess.run([*command, "list", "--json"], capture_output=True, env=environment, timeout=300)
    assert (listed.returncode, listed.stderr) == (0, b"")
    assert json.loads(listed.stdout.decode("big5"))
    missing = subprocess.run([*command, "search", "\U0001f600", "x"], capture_output=True, env=environment, timeout=300)
    assert missing.returncode == 2
    assert b"Traceback" not in missing.stderr


@pytest.mark.parametrize("text", ["-5 degrees", "-disc", "- 5", "--disc", "-key west"])
def test_a_query_that_begins_with_a_dash(text: str) -> None:
    said = silohash("search", "run", text)
    assert said.code == 2
    assert f' search … -- "{text}"' in " ".join(said.err.split())
    assert "does not hold a run" in silohash("search", "run", "--", text).err
