"""The record of a request: everything that runs for the request finds it, and nothing else does."""

from __future__ import annotations

import asyncio

from silohash.service.request_record import Record, current_record, recording, request_id


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
