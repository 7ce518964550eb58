"""``silohash audit-log verify``: what it prints of a whole log, and of one that was changed."""

from __future__ import annotations

from pathlib import Path

from silohash.service.audit import AuditLog, verify_log
from tests.runs import silohash


def test_a_log_is_verified(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "north.jsonl")
    for number in range(3):
        log.append({"request": "search", "k": number})
    log.close()
    digest = verify_log(log.path).digest
    assert f"3 lines, all unchanged. Digest of the last line: {digest}" in silohash("audit-log", "verify", log.path).out
    assert silohash("audit-log", "verify", log.path, "--json").document() == {"schema": 1, "lines": 3, "digest": digest}
    log.path.write_text(log.path.read_text().replace('"k": 1', '"k": 7'))
    failed = silohash("audit-log", "verify", log.path)
    assert failed.code == 2
    assert "line 3 does not follow the line before it" in failed.err
