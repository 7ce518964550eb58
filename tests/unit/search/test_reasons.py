from __future__ import annotations

import json

from silohash.search.hits import silent
from silohash.search.reasons import Reason, kind_of


def test_a_reason_is_a_text_with_a_kind():
    reason = Reason("It sleeps.", "late")
    assert reason == "It sleeps."
    assert json.dumps({"reason": reason}) == '{"reason": "It sleeps."}'
    assert (kind_of(reason), kind_of("It sleeps.")) == ("late", "refused")
    assert kind_of(silent("north", reason).missing_silos["north"]) == "late"
