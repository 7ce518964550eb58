"""Results as people read them: lines and a table for a terminal, and an HTML table for a notebook.

Captions, labels, ids and names come from other silos. Their invisible characters are replaced by code points (`visible`),
and everything is escaped before it reaches a browser.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from silohash.search.hits import Hit, Hits
from silohash.visible import visible

CAPTION_COLUMNS = 48
LABEL_COLUMNS = 32
PREVIEW_PIXELS = 48
"""Height of a preview in a notebook."""


def as_lines(hits: Hits) -> list[str]:
    """Return one line per hit: rank if there is one, distance, silo, caption (or id), labels."""
    width = max((len(visible(silo)) for silo in hits.silos), default=0)
    return [_line(hit, width) for hit in hits]


def notes(hits: Hits) -> list[str]:
    """Return sentences about what a result leaves out: ties, silos that did not answer, limits, and the order."""
    found = []
    if hits.ties_at_cut:
        last = f"{hits.places[-1]} bits" if hits.comparable else f"rank {hits.places[-1]}"
        found.append(f"Not shown: {hits.ties_at_cut:,} more at {last}. Increase k to see more.")
    found += [f"{silo} did not answer: {reason}" for silo, reason in hits.missing_silos.items()]
    found += [f"{silo}: {reason}" for silo, reason in hits.limited_silos.items()]
    if not hits:
        found.append("No silo returned an item.")
    if not hits.comparable:
        found.append(
            "The silos use different models. Hits are ordered by their rank within each silo, because distances of "
            "different silos are not comparable."
        )
    return [visible(note) for note in found]


def as_text(hits: Hits) -> str:
    """Return an aligned table of the hits, followed by the notes."""
    heading = ("#", *(() if hits.comparable else ("rank",)), "distance", "silo", "caption", "labels")
    table = [heading] if len(hits) else []
    table += [_cells(number, hit) for number, hit in enumerate(hits, 1)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    numeric = len(heading) - 3
    lines = ["  ".join(_aligned(row, widths, numeric)).rstrip() for row in table]
    return "\n".join([*lines, *notes(hits)])


def as_html(hits: Hits) -> str:
    """Return the hits as an HTML table with previews, followed by the notes."""
    with_previews = any(hit.preview_url for hit in hits)
    headings = ["#", *(["preview"] if with_previews else []), *([] if hits.comparable else ["rank"])]
    headings += ["distance", "silo", "caption", "labels"]
    rows = [_html_row([escape(heading) for heading in headings], "th")]
    for number, hit in enumerate(hits, 1):
        first, *rest = (escape(cell) for cell in _whole_cells(number, hit))
        rows.append(_html_row([first, *([_image(hit)] if with_previews else []), *rest], "td"))
    table = f"<table>{''.join(rows)}</table>" if len(hits) else ""
    return table + "".join(f"<p>{escape(note)}</p>" for note in notes(hits))


def _line(hit: Hit, width: int) -> str:
    rank = "" if hit.rank is None else f"rank {hit.rank:3d}  "
    labels = f"  [{', '.join(hit.labels)}]" if hit.labels else ""
    return (
        f"{rank}{hit.distance_bits:3d} bits  {visible(hit.silo):{width}}  {visible((hit.caption or hit.id) + labels)}"
    )


def _whole_cells(number: int, hit: Hit) -> tuple[str, ...]:
    rank = () if hit.rank is None else (str(hit.rank),)
    cells = (str(number), *rank, f"{hit.distance_bits} bits", hit.silo, hit.caption or hit.id, ", ".join(hit.labels))
    return tuple(map(visible, cells))


def _cells(number: int, hit: Hit) -> tuple[str, ...]:
    *first, caption, labels = _whole_cells(number, hit)
    return (*first, _short(caption, CAPTION_COLUMNS), _short(labels, LABEL_COLUMNS))


def _aligned(row: tuple[str, ...], widths: list[int], numeric: int) -> Iterable[str]:
    """Yield the cells of a row at the widths of their columns; the first ``numeric`` columns are right-aligned."""
    for column, (cell, width) in enumerate(zip(row, widths, strict=True)):
        yield cell.rjust(width) if column < numeric else cell.ljust(width)


def _html_row(cells: list[str], tag: str) -> str:
    return "<tr>" + "".join(f"<{tag}>{cell}</{tag}>" for cell in cells) + "</tr>"


def _image(hit: Hit) -> str:
    if hit.preview_url is None:
        return ""
    return f'<img src="{escape(hit.preview_url)}" alt="{escape(visible(hit.caption or hit.id))}" height="{PREVIEW_PIXELS}">'


def _short(text: str, columns: int) -> str:
    return text if len(text) <= columns else f"{text[: columns - 1]}…"
