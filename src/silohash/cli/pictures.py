"""Pictures inside a terminal, by the graphics protocols of kitty and iTerm2."""

from __future__ import annotations

import base64
import io
import os
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from PIL import Image

    from silohash.search.hits import Hit

Graphics: TypeAlias = Literal["kitty", "iterm2"]

SHOWN_PIXELS = 240
"""Longest side of a picture in the terminal."""

CHUNK = 4096
"""Number of base64 characters per escape sequence of the kitty protocol."""

NO_GRAPHICS = (
    "This terminal is not known to show pictures, so --show has no effect. kitty, Ghostty, Konsole, iTerm2, WezTerm and "
    "mintty can, outside of tmux and screen."
)
NO_TERMINAL = "Standard output is not a terminal, so --show has no effect."

_KITTY_PROGRAMS = ("ghostty",)
_ITERM_PROGRAMS = ("iterm.app", "wezterm", "mintty")


def graphics_of(environment: Mapping[str, str]) -> Graphics | None:
    """Return the graphics protocol of a terminal, as its environment variables tell; None if it is not known to have one.

    Example:
        >>> graphics_of({"TERM": "xterm-kitty"})
        'kitty'
        >>> graphics_of({"TERM": "xterm-256color"}) is None
        True
    """
    term, program = environment.get("TERM", ""), environment.get("TERM_PROGRAM", "").lower()
    if "TMUX" in environment or term.startswith(("screen", "tmux", "dumb")):
        return None
    version = environment.get("KONSOLE_VERSION", "")
    # Konsole 22.04 is the first version with the kitty protocol.
    new_konsole = version.isdecimal() and int(version) >= 220400
    if term in {"xterm-kitty", "xterm-ghostty"} or program in _KITTY_PROGRAMS or new_konsole:
        return "kitty"
    if program in _ITERM_PROGRAMS or environment.get("LC_TERMINAL") == "iTerm2":
        return "iterm2"
    return None


def sequence(picture: Image.Image, graphics: Graphics) -> str:
    """Return the escape sequences that show a picture, reduced to `SHOWN_PIXELS`."""
    small = picture.convert("RGB")
    small.thumbnail((SHOWN_PIXELS, SHOWN_PIXELS))
    stream = io.BytesIO()
    small.save(stream, "PNG")
    content = base64.b64encode(stream.getvalue()).decode("ascii")
    if graphics == "iterm2":
        return f"\x1b]1337;File=inline=1;size={stream.tell()}:{content}\a"
    return "".join(_kitty_chunks(content))


def _kitty_chunks(content: str) -> Iterator[str]:
    """Yield the escape sequences of the kitty protocol. ``q=2`` keeps the terminal from answering."""
    for start in range(0, len(content), CHUNK):
        control = "a=T,f=100,q=2," if start == 0 else ""
        more = int(start + CHUNK < len(content))
        yield f"\x1b_G{control}m={more};{content[start : start + CHUNK]}\x1b\\"


def picture_of(hit: Hit) -> Image.Image | None:
    """Return the picture of a hit: its file on this machine, otherwise its preview; None if neither can be decoded."""
    if hit.path is not None:
        from silohash.base.files import read_bytes
        from silohash.data.pictures.reading import decode

        try:
            return decode(read_bytes(hit.path), at_least_pixels=SHOWN_PIXELS)
        except (OSError, ValueError):
            pass
    try:
        return hit.preview
    except (OSError, ValueError):
        return None


def show_picture(hit: Hit, graphics: Graphics) -> None:
    """Show the picture of a hit in the terminal, if it has one."""
    picture = picture_of(hit)
    if picture is not None:
        sys.stdout.write(sequence(picture, graphics) + "\n")


def terminal_graphics() -> tuple[Graphics | None, str]:
    """Return the graphics protocol of standard output, or None with a sentence that says why there is none."""
    if not sys.stdout.isatty():
        return None, NO_TERMINAL
    graphics = graphics_of(os.environ)
    return graphics, "" if graphics else NO_GRAPHICS
