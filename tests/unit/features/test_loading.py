from __future__ import annotations

import threading

import pytest

from silohash.features.loading import loader_threads, prefetched, progress


def test_results_come_in_order_and_few_wait():
    lock, now, most = threading.Lock(), 0, 0

    def work(number: int) -> int:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        return number * number

    found = []
    for result in prefetched(range(50), work, threads=3, ahead=4):
        found.append(result)
        with lock:
            now -= 1
    assert found == [number * number for number in range(50)]
    assert most <= 5


def test_an_error_comes_when_its_turn_has_come():
    def work(number: int) -> int:
        if number == 3:
            raise ValueError("the third")
        return number

    begun = prefetched(range(9), work, threads=2, ahead=3)
    assert [next(begun) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match="the third"):
        next(begun)


def test_threads_end_when_nobody_listens_any_more():
    begun = prefetched(range(1000), lambda number: number, threads=2, ahead=4)
    next(begun)
    begun.close()
    assert not [t for t in threading.enumerate() if t.name.startswith("silohash-loader")]


def test_nothing_to_do():
    assert list(prefetched([], str, threads=2, ahead=4)) == []


def test_lines_of_progress_where_there_is_no_terminal(monkeypatch):
    said: list[str] = []
    with progress("Encoding", 3, said.append) as advance:
        advance(1)
    assert said == []
    monkeypatch.setattr("silohash.features.loading.QUIET_SECONDS", 0.0)
    with progress("Encoding", 3, said.append) as advance:
        for _ in range(3):
            advance(1)
    assert said == ["Encoding: 1 of 3"]


def test_a_bar_in_a_terminal(monkeypatch, capsys):
    monkeypatch.setattr("silohash.features.loading.QUIET_SECONDS", 0.0)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    said: list[str] = []
    with progress("Encoding", 3, said.append) as advance:
        advance(1)
        advance(1)
    assert said == []


@pytest.mark.parametrize(("cores", "threads"), [(1, 1), (8, 8), (9, 8), (20, 8)])
def test_threads_are_one_per_core_up_to_a_limit(monkeypatch, cores, threads):
    monkeypatch.setattr("os.sched_getaffinity", lambda process: range(cores), raising=False)
    assert loader_threads() == threads


class Clock:
    """A clock that is set by hand."""

    def __init__(self, monkeypatch):
        self.now = 100.0
        monkeypatch.setattr("silohash.features.loading.time.monotonic", lambda: self.now)


def test_lines_come_after_two_seconds_and_then_every_thirty(monkeypatch):
    clock, said = Clock(monkeypatch), []
    monkeypatch.setattr("sys.stderr.isatty", lambda: False, raising=False)
    with progress("Encoding", 2_000, said.append) as advance:
        for seconds in (1.9, 2.0, 31.9, 32.0, 61.0, 62.0):
            clock.now = 100.0 + seconds
            advance(300)
        clock.now = 200.0
        advance(200)
    assert said == ["Encoding: 600 of 2,000", "Encoding: 1,200 of 2,000", "Encoding: 1,800 of 2,000"]


def test_a_bar_shows_what_is_done_and_is_removed(monkeypatch):
    clock, shown = Clock(monkeypatch), []

    class Bar:
        task_ids = (7,)

        def update(self, task, *, completed):
            shown.append((task, completed))

        def stop(self):
            shown.append("stopped")

    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setattr("silohash.features.loading._bar", lambda *given: shown.append(given) or Bar())
    with progress("Encoding", 9, lambda line: None) as advance:
        advance(2)
        clock.now += 2.0
        advance(3)
        advance(1)
    assert shown == [("Encoding", 9, 5), (7, 6), "stopped"]
