"""The page about Python: its examples run, one after another, and print what the page says about them."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest

import silohash

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tutorial" / "python.md"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
NAME = re.compile(r"`silohash\.(\w+)")


@pytest.mark.whole_run
def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    printed = []
    for block in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(block, str(PAGE), "exec"), names)  # noqa: S102  the page's own examples
        printed.append(out.getvalue())
    whole_way, results, codes = printed
    assert whole_way.startswith("partition column")
    assert [line.split()[0] for line in whole_way.splitlines() if " bits " in line] == list("12345")
    assert all("braille pattern" in hit.caption for hit in names["hits"]), "the first answers are right"
    assert "zebra is unknown to this model; searched with the rest." in results
    score = names["run"].evaluate(["mAP@all"], tasks=["i2i"], evaluations=["GG"])[0]
    first = float(re.search(r"mAP@all = ([\d.]+)", whole_way)[1])
    assert first == pytest.approx(score.value, abs=1e-4), "the same figure as that of the command"
    assert first > score.prior + 0.05, "clearly above random codes"
    assert len(results.splitlines()) >= 5
    assert "Image" in results.splitlines()[0], "the archive has pictures, so hits have previews"
    assert codes.startswith("mAP@all = 0.7083 (0.5833 to 0.8333 over the orders of ties; ")
    assert codes.splitlines()[1].startswith("P@1 = 0.5000 (0.0000 to 1.0000 ")
    hits = names["hits"]
    assert hits._repr_html_().count("<img") == 5


def test_the_table_of_names_is_complete() -> None:
    text = PAGE.read_text(encoding="utf-8")
    named = set(NAME.findall(text)) | set(re.findall(r"`([A-Z]\w+)`", text))
    assert set(silohash.__all__) - {"__version__"} <= named
    assert all(hasattr(silohash, name) for name in NAME.findall(text))
    first = BLOCK.findall(text)[0]
    assert len([line for line in first.splitlines() if line]) <= 24, "the whole way in about twenty lines"
