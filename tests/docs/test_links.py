"""Every relative link in the documents leads somewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
SKIPPED = {".venv", ".git", ".pytest_cache", "runs", "demo", "build", "dist"}
PAGES = sorted(p for p in REPOSITORY.rglob("*.md") if not SKIPPED & set(p.relative_to(REPOSITORY).parts))

FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]*`")
LINK = re.compile(r"\[[^\]]*\]\(<?([^)>\s]+)>?(?:\s+\"[^\"]*\")?\)")
HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*$", re.MULTILINE)
ELSEWHERE = ("http://", "https://", "mailto:")


def anchors(text: str) -> set[str]:
    """Returns the anchors of a page's headings, as the usual viewers of Markdown make them."""
    headings = HEADING.findall(FENCE.sub("", text))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(page: Path, text: str) -> Iterator[str]:
    """Yields the links of a page that lead nowhere."""
    for link in LINK.findall(CODE.sub("", FENCE.sub("", text))):
        if link.startswith(ELSEWHERE):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if not target.exists():
            yield f"{link}: there is no {name}"
        elif not target.is_relative_to(REPOSITORY):
            yield f"{link}: leads out of the repository"
        elif anchor and anchor not in anchors(text if target == page else target.read_text(encoding="utf-8")):
            yield f"{link}: {target.name} has no heading for it"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_links_resolve(page: Path) -> None:
    assert list(broken_links(page, page.read_text(encoding="utf-8"))) == []


def test_every_page_of_the_documents_can_be_reached() -> None:
    seen: set[Path] = set()
    todo = [REPOSITORY / "README.md"]
    while todo:
        page = todo.pop()
        if page in seen:
            continue
        seen.add(page)
        links = LINK.findall(CODE.sub("", FENCE.sub("", page.read_text(encoding="utf-8"))))
        names = [link.partition("#")[0] for link in links if not link.startswith(ELSEWHERE)]
        todo += [target for name in names if (target := (page.parent / name).resolve()).suffix == ".md"]
    assert {page for page in PAGES if page.is_relative_to(REPOSITORY / "docs")} <= seen


def test_the_check_of_links_sees() -> None:
    page = REPOSITORY / "README.md"
    good = "# One Two!\n[a](LICENSE) [b](#one-two) [c](https://a.b/c) `[d](none)`\n```\n[e](none)\n```\n"
    assert list(broken_links(page, good)) == []
    bad = "# One\n[a](none.md) [b](#two) [c](../elsewhere) [d](LICENSE#none)\n"
    assert len(list(broken_links(page, bad))) == 4
