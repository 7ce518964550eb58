"""Pictures in a terminal: which protocol it has, and what is sent to it."""

from __future__ import annotations

import base64
import io
import re
import sys
from pathlib import Path

import pytest
from PIL import Image

from silohash.cli import pictures
from silohash.cli.pictures import CHUNK, SHOWN_PIXELS, graphics_of, picture_of, sequence, show_picture
from silohash.index.preview import make_preview, preview_url
from silohash.search.hits import Hit


@pytest.mark.parametrize(
    ("environment", "graphics"),
    [
        ({"TERM": "xterm-kitty"}, "kitty"),
        ({"TERM": "xterm-ghostty"}, "kitty"),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "ghostty"}, "kitty"),
        ({"TERM": "xterm-256color", "KONSOLE_VERSION": "220400"}, "kitty"),
        ({"TERM": "xterm-256color", "KONSOLE_VERSION": "220399"}, None),
        ({"TERM": "xterm-256color", "KONSOLE_VERSION": "new"}, None),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "iTerm.app"}, "iterm2"),
        ({"TERM": "xterm-256color", "LC_TERMINAL": "iTerm2"}, "iterm2"),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "WezTerm"}, "iterm2"),
        ({"TERM": "xterm", "TERM_PROGRAM": "mintty"}, "iterm2"),
        ({"TERM": "tmux-256color", "LC_TERMINAL": "iTerm2"}, None),
        ({"TERM": "screen", "TERM_PROGRAM": "ghostty"}, None),
        ({"TERM": "xterm-kitty", "TMUX": "socket"}, None),
        ({"TERM": "dumb", "TERM_PROGRAM": "iTerm.app"}, None),
        ({"TERM": "xterm-256color"}, None),
        ({}, None),
    ],
)
def test_protocols_of_terminals(environment: dict[str, str], graphics: str | None) -> None:
    assert graphics_of(environment) == graphics


def noise(side: int) -> Image.Image:
    return Image.effect_noise((side, side // 2), 80)


def test_iterm2_gets_one_sequence_with_a_png() -> None:
    found = re.fullmatch(r"\x1b\]1337;File=inline=1;size=(\d+):([A-Za-z0-9+/=]+)\x07", sequence(noise(20), "iterm2"))
    assert found is not None
    content = base64.b64decode(found[2], validate=True)
    assert len(content) == int(found[1])
    assert Image.open(io.BytesIO(content)).size == (20, 10)


def test_kitty_gets_chunks_with_a_png() -> None:
    chunks = re.findall(r"\x1b_G([^;]*);([^\x1b]*)\x1b\\", sequence(noise(600), "kitty"))
    assert "".join(f"\x1b_G{control};{text}\x1b\\" for control, text in chunks) == sequence_again(chunks)
    controls = [control for control, _ in chunks]
    assert controls == ["a=T,f=100,q=2,m=1", *["m=1"] * (len(chunks) - 2), "m=0"]
    assert all(len(text) == CHUNK for _, text in chunks[:-1])
    picture = Image.open(io.BytesIO(base64.b64decode("".join(text for _, text in chunks), validate=True)))
    assert (picture.format, picture.size) == ("PNG", (SHOWN_PIXELS, SHOWN_PIXELS // 2))


def sequence_again(chunks: list[tuple[str, str]]) -> str:
    return "".join(f"\x1b_G{control};{text}\x1b\\" for control, text in chunks)


@pytest.mark.parametrize(("length", "sizes"), [(4096, [4096]), (4097, [4096, 1]), (8192, [4096, 4096])])
def test_chunks_are_full_and_the_last_one_says_so(length: int, sizes: list[int]) -> None:
    chunks = [chunk.removesuffix("\x1b\\").split(";") for chunk in pictures._kitty_chunks("x" * length)]
    assert [len(text) for _, text in chunks] == sizes
    assert [control[-1] for control, _ in chunks] == ["1"] * (len(sizes) - 1) + ["0"]


def test_a_small_picture_is_one_chunk() -> None:
    text = sequence(Image.new("L", (2, 2)), "kitty")
    assert text.startswith("\x1b_Ga=T,f=100,q=2,m=0;")
    assert text.count("\x1b_G") == 1


def hit(path: Path | None = None, preview: str | None = None) -> Hit:
    return Hit(id="a", silo="north", distance_bits=1, path=path, payload={"preview": preview})


def test_the_file_comes_before_the_preview(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.png"
    Image.new("RGB", (30, 20), "red").save(path)
    preview = preview_url(make_preview(Image.new("L", (6, 4))))
    sizes = [found and found.size for found in map(picture_of, (hit(path, preview), hit(None, preview), hit()))]
    assert sizes == [(30, 20), (6, 4), None]
    path.write_bytes(b"no picture")
    assert picture_of(hit(path, preview)).size == (6, 4)
    assert picture_of(hit(path, preview_url(b"\xff\xd8\xff"))) is None
    show_picture(hit(), "kitty")
    assert capsys.readouterr().out == ""
    show_picture(hit(None, preview), "iterm2")
    assert capsys.readouterr().out.endswith("\a\n")


@pytest.mark.parametrize(
    ("terminal", "environment", "expected"),
    [
        (True, {"TERM": "xterm-kitty"}, ("kitty", "")),
        (True, {"TERM": "xterm"}, (None, pictures.NO_GRAPHICS)),
        (False, {"TERM": "xterm-kitty"}, (None, pictures.NO_TERMINAL)),
    ],
)
def test_without_a_protocol_there_is_a_reason(
    terminal: bool, environment: dict[str, str], expected: tuple[object, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal, raising=False)
    monkeypatch.setattr(pictures.os, "environ", environment)
    assert pictures.terminal_graphics() == expected
