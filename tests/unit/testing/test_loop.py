"""The rounds on made-up inputs."""

from __future__ import annotations

import pytest

from silohash.testing.check import same_arrays
from silohash.testing.inputs import prepared_inputs
from silohash.testing.loop import Records, run_loop

pytestmark = pytest.mark.whole_run


def test_rounds_are_run_recorded_stopped_and_continued() -> None:
    inputs, listener = prepared_inputs("dcmh", "fedavg", (12, 8), validation=4), Records()
    whole = run_loop(inputs, listener)
    assert [record.round for record in listener.records] == [0, 1, 2]
    assert listener.records[-1].validation is not None
    half = run_loop(inputs, stop=2)
    assert half.round == 2
    assert same_arrays(run_loop(inputs, state=half).server.params, whole.server.params)
    assert same_arrays(run_loop(inputs, wire=True).server.params, whole.server.params)


def test_a_fraction_of_the_silos_and_no_validation() -> None:
    listener = Records()
    run_loop(prepared_inputs("dcmh", "fedavg", (8, 8), rounds=2), listener, fraction=0.5, validate=False)
    assert [len(record.silos) for record in listener.records] == [1, 1]
    assert {record.validation for record in listener.records} == {None}
