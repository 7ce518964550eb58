"""The appearance of plots: colors, series and panels, and the two output forms: SVG inside a page, or a file.

Every color in a page is written as ``var(--name, #fallback)``. A page that sets the variables recolors the plot; a
standalone file shows the fallback. The series' colors can be told apart with color-vision deficiency (the set of Okabe and
Ito, darkened where it was too pale for thin lines), and each series also has its own marker and dash pattern.
"""

import io
import re
import warnings
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from silohash.base.errors import WrongKindOfFile
from silohash.base.files import digest_bytes, write_bytes
from silohash.base.visible import visible

INK, SOFT, LINE, ACCENT = "#15211e", "#4d5b58", "#d5dcd9", "#0a6b62"
SERIES = ("#0072b2", "#c24e00", "#007a5a", "#a8437f", "#8a6a00", "#4a4f9c")
COLORS = {
    INK: "ink",
    SOFT: "ink-soft",
    LINE: "line",
    ACCENT: "accent",
    **{color: f"series-{number}" for number, color in enumerate(SERIES, start=1)},
}
"""Color -> the CSS variable of the page."""

PNG_DOTS_PER_INCH = 200

_SVG = "http://www.w3.org/2000/svg"
ElementTree.register_namespace("", _SVG)
ElementTree.register_namespace("xlink", "http://www.w3.org/1999/xlink")
_MARKERS = ("o", "s", "^", "D", "v", "P")
_DASHES = ("-", "--", "-.", ":")
_NEUTRAL: dict[str, Any] = {"Date": None, "Creator": None}
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none", "text.parse_math": False, "font.family": "DejaVu Sans", "font.size": 9.0,
    "text.color": INK, "axes.edgecolor": LINE, "axes.labelcolor": SOFT, "axes.titlecolor": INK, "axes.titlesize": 9.5,
    "axes.titlelocation": "left", "axes.titleweight": "bold", "axes.titlepad": 10.0, "axes.spines.top": False,
    "axes.spines.right": False, "axes.grid": True, "axes.axisbelow": True, "grid.color": LINE, "grid.linewidth": 0.6,
    "xtick.color": LINE, "ytick.color": LINE, "xtick.labelcolor": SOFT, "ytick.labelcolor": SOFT,
    "xtick.major.size": 0.0, "ytick.major.size": 0.0, "legend.frameon": False, "lines.linewidth": 1.8,
    "lines.markersize": 4.0,
}  # fmt: skip


def short(text: str, most: int) -> str:
    """Return the text with its invisible characters replaced, shortened with an ellipsis to ``most`` characters."""
    shown = visible(text)
    return shown if len(shown) <= most else f"{shown[: most - 1]}…"


def series(number: int, points: int) -> dict[str, Any]:
    """Return the line style of a series. The first 36 series differ in color or marker."""
    return {
        "color": SERIES[number % len(SERIES)],
        "marker": _MARKERS[(number + number // len(SERIES)) % len(_MARKERS)],
        "markevery": 1 if points <= 40 else points // 10,
        "linestyle": _DASHES[number % len(_DASHES)],
    }


def name_panel(axes: Axes, title: str, across: str, up: str) -> None:
    """Set the title of a panel and the names of its axes."""
    axes.set_title(visible(title))
    axes.set_xlabel(visible(across))
    axes.set_ylabel(visible(up))
    axes.margins(x=0.03, y=0.1)


def legend(figure: Figure, names: Sequence[str], drawn: Collection[str]) -> None:
    """Add a legend of the drawn series below the panels, if there is more than one."""
    if len(drawn) < 2:
        return
    shown = [(Line2D([], [], **series(n, 1)), short(name, 40)) for n, name in enumerate(names) if name in drawn]
    handles, texts = zip(*shown, strict=True)
    figure.legend(handles, texts, loc="outside lower left", ncols=len(shown) if len(shown) < 5 else 3)


@contextmanager
def drawing(width_inches: float, height_inches: float) -> Iterator[Figure]:
    """Yield a figure in the style of silohash. The style applies inside the block only."""
    with matplotlib.rc_context(_STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure = Figure(figsize=(width_inches, height_inches), layout="constrained")
        FigureCanvasSVG(figure)
        yield figure


def page_svg(figure: Figure, title: str, salt: Sequence[str], *, css_class: str = "plot") -> str:
    """Return a figure as an SVG element for a page, with its title as the text alternative for screen readers.

    The texts in ``salt`` make the inner ids of this figure differ from those of others on the page.
    """
    stream, title = io.BytesIO(), visible(title)
    # Without a salt, matplotlib draws random ids, so that equal figures would not give equal bytes.
    matplotlib.rcParams["svg.hashsalt"] = digest_bytes("\0".join([title, *salt]).encode())
    figure.savefig(stream, format="svg", transparent=True, metadata=_NEUTRAL)
    root = ElementTree.fromstring(stream.getvalue())  # noqa: S314  matplotlib's own output
    for element in list(root.iter()):
        for child in list(element):
            if child.tag in {f"{{{_SVG}}}metadata", f"{{{_SVG}}}style"}:
                element.remove(child)
        if re.fullmatch(r"[A-Za-z0-9.]+_\d+", element.get("id", "")):
            del element.attrib["id"]
        if "style" in element.attrib:
            element.set("style", _with_variables(re.sub(r"font-family: [^;]*(; |$)", "", element.attrib["style"])))
    width, height = (round(inches * 96) for inches in figure.get_size_inches())
    root.attrib |= {"class": css_class, "role": "img", "aria-label": title, "width": str(width), "height": str(height)}
    return re.sub(r">\n\s*<", ">\n<", ElementTree.tostring(root, encoding="unicode")).strip()


def save_figure(figure: Figure, path: Path, title: str) -> None:
    """Write a figure to a file, with its title as the text alternative. Equal figures give equal bytes.

    The file name ends in ``.svg`` (letters as outlines, so that it looks the same everywhere) or ``.png``.

    Raises:
        UserError: If the name has another ending, or the file cannot be written.
    """
    stream, title = io.BytesIO(), visible(title)
    if path.suffix.lower() == ".svg":
        matplotlib.rcParams["svg.hashsalt"] = digest_bytes(title.encode())
        matplotlib.rcParams["svg.fonttype"] = "path"
        figure.savefig(stream, format="svg", facecolor="white", metadata={**_NEUTRAL, "Title": title})
    elif path.suffix.lower() == ".png":
        FigureCanvasAgg(figure)
        figure.savefig(
            stream, format="png", dpi=PNG_DOTS_PER_INCH, facecolor="white", metadata={"Software": None, "Title": title}
        )
    else:
        raise WrongKindOfFile(f'"{path}" ends in neither .svg nor .png. Plots are written in these two formats.')
    write_bytes(path, stream.getvalue())


def _with_variables(style: str) -> str:
    """Return a style attribute in which the colors are variables of the page."""
    for color, name in COLORS.items():
        style = style.replace(color, f"var(--{name}, {color})")
    return style
