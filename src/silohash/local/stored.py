"""Stored outputs: what a silo's networks last returned for all of its items, which a batch is compared with.

A step thereby covers ``B x N`` pairs with only ``B`` forward passes. The outputs of a modality are a working tensor with the
name of the modality, ``(n, K)``, and rows without the modality are zero.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from silohash.local.base import SiloData, SiloState, outputs_of, signs
from silohash.types import MODALITIES, Modality, Outputs, PairBatch


def store_all(model: nn.Module, data: SiloData, state: SiloState) -> None:
    """Store the model's relaxed codes of all items, and which items have them (``has_image``, ``has_text``)."""
    outputs = outputs_of(model, data)
    state.buffers |= {str(modality): codes for modality, codes in outputs.items()}
    state.buffers |= {f"has_{modality}": data.has(modality) for modality in outputs}


def store_batch(modality: Modality, outputs: Outputs, batch: PairBatch, state: SiloState) -> None:
    """Replace the stored outputs of a batch's items."""
    codes = outputs.code[modality].detach().float()
    state.buffers[modality][batch.row] = codes * batch.has(modality).unsqueeze(1)


def stored_modalities(state: SiloState) -> tuple[Modality, ...]:
    """Return the modalities whose outputs are stored."""
    return tuple(modality for modality in MODALITIES if modality in state.buffers)


def joint_codes(state: SiloState) -> Tensor:
    """Return the signs of the sum of the stored outputs over the modalities, ``(n, K)``."""
    return signs(torch.stack([state.buffers[modality] for modality in stored_modalities(state)]).sum(0))


def partner_outputs(state: SiloState, modality: Modality, rows: Tensor) -> Tensor:
    """Return the stored outputs of the other modality, ``(B, K)``.

    Items without the other modality have those of the same modality.

    Args:
        state: Working tensors.
        modality: The modality that is compared.
        rows: ``(B,)`` int64, positions of the items.
    """
    other: Modality = "text" if modality == "image" else "image"
    if other not in state.buffers:
        return state.buffers[modality][rows]
    has = state.buffers[f"has_{other}"][rows]
    values = state.buffers[other][rows]
    return values if bool(has.all()) else torch.where(has.unsqueeze(1), values, state.buffers[modality][rows])
