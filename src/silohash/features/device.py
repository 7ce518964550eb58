"""The device that networks run on, and the precision they use there."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from silohash.base.errors import DeviceUnavailable

if TYPE_CHECKING:
    import torch


def choose_device(name: str, setting: str = "train.device") -> torch.device:
    """Return the device that a setting names. ``auto`` selects an accelerator if there is one.

    Raises:
        UserError: If the device is not available.
    """
    import torch

    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError, ValueError) as error:
        raise DeviceUnavailable(
            f'{setting} = "{name}" is not available ({str(error).splitlines()[0]}). Use "auto" or "cpu".'
        ) from error
    return device


def computes_bfloat16(device: torch.device) -> bool:
    """Return whether a device has instructions for bfloat16, rather than emulating it."""
    import torch

    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    capable = ("_is_amx_tile_supported", "_is_avx512_bf16_supported")
    return device.type == "cpu" and any(getattr(torch.cpu, name, bool)() for name in capable)


def half_type(device: torch.device) -> torch.dtype | None:
    """Return the 16-bit type that is faster than float32 on a device, or None if there is none."""
    import torch

    if device.type == "cuda":
        return torch.float16
    return torch.bfloat16 if device.type == "cpu" and computes_bfloat16(device) else None


def autocast(precision: str, device: torch.device) -> AbstractContextManager[object]:
    """Return the context manager for forward passes: autocast to bfloat16, or one that changes nothing.

    The precision is ``float32``, ``bfloat16``, or ``auto`` for bfloat16 on devices that compute in it.
    """
    if precision == "float32" or (precision == "auto" and not computes_bfloat16(device)):
        return nullcontext()
    import torch

    return torch.autocast(device_type=device.type, dtype=torch.bfloat16)
