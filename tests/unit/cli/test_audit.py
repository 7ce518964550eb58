"""``silohash audit``, and ``audit-log verify``: what they print of runs, of a whole log, and of one that was changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from silohash.service.audit import AuditLog, verify_log
from tests import runs
from tests.runs import silohash


def test_a_log_is_verified(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "north.jsonl")
    for number in range(3):
        log.append({"request": "search", "k": number})
    log.close()
    digest = verify_log(log.path).digest
    assert f"3 lines, all unchanged. Digest of the last line: {digest}" in silohash("audit-log", "verify", log.path).out
    assert silohash("audit-log", "verify", log.path, "--json").document() == {"schema": 1, "lines": 3, "digest": digest}
    log.path.write_text(log.path.read_text().replace('"k":1', '"k":7'))
    failed = silohash("audit-log", "verify", log.path)
    assert failed.code == 2
    assert "line 3 does not follow the line before it" in failed.err


@pytest.mark.whole_run
def test_audit_compares_runs_and_names_what_was_not_kept(tmp_path: Path) -> None:
    archive = runs.write_archive(tmp_path / "archive", count=150)
    plain = runs.train(archive, tmp_path / "plain")
    keeping = runs.train(
        archive, tmp_path / "keeping", exchange={"keep_updates": True, "compression": {"kind": "int8"}}
    )
    said = silohash("audit", plain.folder, keeping.folder)
    assert said.code == 0
    assert "plain did not keep the updates of its last round" in said.err
    assert "Train it again with --set exchange.keep_updates=true." in said.err
    assert "keeping did not keep" not in said.err
    assert said.out.count("counts of labels before the first round") == 2
    assert said.out.count("updates of the last round") == 2
    assert "compression int8" in said.out
    document = silohash("audit", keeping.folder, "--json").document()
    (found,) = document["runs"]
    assert (found["run"], found["protection"]) == ("keeping", "compression int8")
    for leak in found["leaks"]:
        assert leak["low"] <= leak["value"] <= leak["high"]
        assert leak["without"] in (0.0, 0.5)
