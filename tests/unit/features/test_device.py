from __future__ import annotations

import pytest
import torch

from silohash.base.errors import DeviceUnavailable
from silohash.features.device import autocast, choose_device, computes_bfloat16, half_type


def test_a_device_that_is_not_there_is_named_with_its_setting():
    with pytest.raises(DeviceUnavailable, match=r"features\.text\.device.*abacus"):
        choose_device("abacus", "features.text.device")


@pytest.mark.parametrize("fast", [False, True])
def test_sixteen_bits_only_where_they_are_faster(monkeypatch, fast):
    for name in ("_is_amx_tile_supported", "_is_avx512_bf16_supported"):
        monkeypatch.setattr(torch.cpu, name, lambda: fast, raising=False)
    assert half_type(torch.device("cpu")) == (torch.bfloat16 if fast else None)
    assert half_type(torch.device("cuda")) == torch.float16
    assert half_type(torch.device("mps")) is None


@pytest.mark.parametrize(
    ("cuda", "mps", "chosen"),
    [(True, True, "cuda"), (True, False, "cuda"), (False, True, "mps"), (False, False, "cpu")],
)
def test_an_accelerator_is_chosen_if_there_is_one(monkeypatch, cuda, mps, chosen):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)
    assert choose_device("auto").type == chosen
    assert choose_device("cpu").type == "cpu"


def test_only_the_first_line_of_the_reason_is_shown(monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("first\nsecond")

    monkeypatch.setattr(torch, "zeros", fail)
    with pytest.raises(DeviceUnavailable, match=r"train\.device.*first"):
        choose_device("cpu")


def test_a_gpu_computes_bfloat16_unless_it_emulates_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for native in (True, False):
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation, native=native: native)
        assert computes_bfloat16(torch.device("cuda")) is native
    assert not computes_bfloat16(torch.device("mps"))


def test_the_precision_bfloat16_holds_on_every_device() -> None:
    with autocast("bfloat16", torch.device("cpu")):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.bfloat16


@pytest.mark.parametrize("native", [True, False])
def test_the_precision_auto_is_bfloat16_where_the_device_computes_in_it(
    native: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("silohash.features.device.computes_bfloat16", lambda device: native)
    with autocast("auto", torch.device("cpu")):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == (torch.bfloat16 if native else torch.float32)
