"""On which device networks run, and in how many bits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from silohash.types import UserError

if TYPE_CHECKING:
    import torch


def choose_device(name: str, setting: str = "train.device") -> torch.device:
    """Return the device that a setting names; ``auto`` takes an accelerator if there is one.

    Raises:
        UserError: if the device is not there.
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
        raise UserError(
            f'{setting} = "{name}" is not there ({str(error).splitlines()[0]}). Use "auto" or "cpu".'
        ) from error
    return device


def half_type(device: torch.device) -> torch.dtype | None:
    """Return the type of 16 bits that is faster than float32 on a device, or None where none is."""
    import torch

    if device.type == "cuda":
        return torch.float16
    capable = ("_is_amx_tile_supported", "_is_avx512_bf16_supported")
    if device.type == "cpu" and any(getattr(torch.cpu, name, bool)() for name in capable):
        return torch.bfloat16
    return None
