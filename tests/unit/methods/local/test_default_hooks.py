"""The default hooks leave the state alone and do not warn."""

from __future__ import annotations

import torch

from silohash.base.types import Outputs, Step
from silohash.methods.local.base import SiloState
from silohash.methods.local.default_hooks import DefaultHooks
from tests.runs import silo_data


def test_default_hooks_keep_nothing_and_do_not_warn() -> None:
    hooks, data, model = DefaultHooks(), silo_data(4), torch.nn.Linear(2, 2)
    state = SiloState(buffers={"codes": torch.ones(2)}, kept={"model": torch.ones(1)}, epochs_before=3)
    hooks.init_state(model, data, state)
    hooks.record(Step("joint", ("",), ("image",)), Outputs({}, {}, {}), data.batch(torch.arange(2)), state)
    hooks.end_epoch(model, data, state)
    assert (state.buffers["codes"].tolist(), state.kept["model"].tolist(), state.epochs_before) == ([1, 1], [1], 3)
    assert hooks.warnings({"loss": float("nan")}) == []
