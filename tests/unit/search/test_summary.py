"""The summary of a silo. Further tests are in `test_node`."""

from __future__ import annotations

import numpy as np

from silohash.search.policy import Policy
from silohash.search.summary import summary_of
from tests.silos import MODEL, made_up_node


def test_a_summary_states_what_the_policy_releases(tmp_path):
    policy = Policy(fields=("caption",), columns=("museum",), accept_query_words=True, rights="CC BY 4.0")
    status = summary_of(made_up_node(tmp_path, "north", np.zeros((3, 1), np.uint16), 16, policy=policy))
    assert (status.name, status.items, status.model_digest) == ("north", {"image": 3}, MODEL)
    assert (status.fields, status.columns, status.labels) == (("caption",), ("museum",), {})
    assert (status.accepts_words, status.accepts_content) == (True, False)
    assert status.about == {"rights": "CC BY 4.0"}
