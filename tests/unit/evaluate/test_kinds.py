"""What measures count; their values are compared in tests/contract and test_measures."""

from __future__ import annotations

import pytest

from silohash.base.errors import SettingNeeded, UnknownName
from silohash.evaluate.kinds import RECALL_SUM, cutoff_of, kind_of
from silohash.evaluate.measures import Measure


def test_an_unknown_measure_is_refused_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match=r"mAPP.*mAP"):
        kind_of("mAPP")


def test_a_measure_without_a_cutoff_has_none_to_give() -> None:
    assert cutoff_of(Measure.parse("P@3")) == 3
    with pytest.raises(SettingNeeded, match="mAP@10"):
        cutoff_of(Measure.parse("mAP@all"))


def test_a_sum_of_recalls_keeps_the_conventions() -> None:
    parts = RECALL_SUM.parts(Measure.parse("RSum[by=pairs,ties=worst]"))
    assert list(map(str, parts)) == [f"R@{k}[by=pairs,ties=worst]" for k in (1, 5, 10)]
