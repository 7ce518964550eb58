from __future__ import annotations

import asyncio
import io
import json
import logging

import pytest

from silohash.service.logs import Record, current_record, log_event, recording, request_id, start_logging


@pytest.fixture
def lines():
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    stream = io.StringIO()
    start_logging(stream)
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    root.handlers[:] = before
    root.setLevel(level)


def test_an_event_is_one_line_of_json(lines):
    log_event("answered", silo="north", items=3)
    log_event("lost", level=logging.WARNING, error="two\nlines\x1b[31m")
    log_event("hidden", level=logging.DEBUG)
    first, second = lines()
    assert {name: first[name] for name in ("level", "event", "silo", "items")} == {
        "level": "info", "event": "answered", "silo": "north", "items": 3,
    }  # fmt: skip
    assert first["time"].endswith("+00:00")
    assert (second["level"], second["error"]) == ("warning", "two\nlines\x1b[31m")


def test_other_loggers_are_written_in_the_same_form(lines):
    try:
        raise ValueError("broken")
    except ValueError:
        logging.getLogger("other").exception("failed")
    [line] = lines()
    assert line["event"] == "failed"
    assert "ValueError: broken" in line["error"]


def test_lines_of_a_request_hold_its_id(lines):
    with recording() as record:
        log_event("within")
        logging.getLogger("other").warning("too")
    log_event("outside")
    within, other, outside = lines()
    assert within["request_id"] == other["request_id"] == record.id
    assert "request_id" not in outside


def test_the_end_of_an_encrypted_connection_is_not_a_warning(lines):
    logging.getLogger("asyncio").warning("returning true from eof_received() has no effect when using ssl")
    logging.getLogger("asyncio").warning("socket.send() raised exception.")
    assert [line["event"] for line in lines()] == ["socket.send() raised exception."]


def test_a_record_belongs_to_its_request() -> None:
    assert (current_record(), request_id()) == (None, "")

    async def handled(delay: float) -> tuple[str, str, str]:
        with recording() as record:
            await asyncio.sleep(delay)
            return record.id, request_id(), await asyncio.to_thread(request_id)

    async def two() -> list[tuple[str, str, str]]:
        return await asyncio.gather(handled(0.02), handled(0.0))

    first, second = asyncio.run(two())
    assert len({*first}) == len({*second}) == 1
    assert first != second
    assert (current_record(), request_id()) == (None, "")


def test_a_record_begins_without_a_query() -> None:
    record = Record()
    assert (record.kind, record.outcome, record.silos_answered, record.missing) == (None, None, 0, {})
    assert len(bytes.fromhex(record.id)) == 8
