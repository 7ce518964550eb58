"""Outputs of all of a silo's items, with which a step compares its batch, so that it needs ``B`` forward passes only.

They are working tensors of the silo. `silohash.methods.local.base.store_all` computes them at the start of a phase, and
`store_batch` replaces those of a batch after each step. A batch is compared with a random subset, the anchors.
"""

import torch
from torch import Tensor

from silohash.base.types import MODALITIES, Modality, Outputs, PairBatch
from silohash.methods.local.base import SiloData, SiloState, signs


def store_batch(outputs: Outputs, batch: PairBatch, state: SiloState) -> None:
    """Replace the stored outputs of a batch's items."""
    for modality, codes in outputs.code.items():
        state.buffers[modality][batch.row] = codes.detach().float() * batch.has(modality).unsqueeze(1)


def stored_modalities(state: SiloState) -> tuple[Modality, ...]:
    """Return the modalities whose outputs are stored."""
    return tuple(modality for modality in MODALITIES if modality in state.buffers)


def joint_codes(state: SiloState, *others: str) -> Tensor:
    """Return the signs of the sum of the stored outputs of other networks and of the modalities, ``(n, K)``."""
    return signs(torch.stack([state.buffers[name] for name in (*others, *stored_modalities(state))]).sum(0))


def drawn_rows(count: int, most: int, device: torch.device) -> Tensor:
    """Return the positions of at most ``most`` random items in ascending order, ``(min(count, most),)`` int64."""
    rows = torch.arange(count) if count <= most else torch.randperm(count)[:most].sort().values
    return rows.to(device)


def draw_anchors(data: SiloData, state: SiloState, most: int) -> None:
    """Draw at most ``most`` stored items with which batches are compared (`drawn_rows`).

    Their positions are the working tensor ``anchors``, ``(min(n, most),)`` int64.
    """
    state.buffers["anchors"] = drawn_rows(len(data), most, data.has_image.device)


def partner_outputs(state: SiloState, modality: Modality, rows: Tensor) -> Tensor:
    """Return the stored outputs ``(B, K)`` of the other modality than the given one for some items.

    Items without the other modality have those of the same modality.
    """
    other: Modality = "text" if modality == "image" else "image"
    if other not in state.buffers:
        return state.buffers[modality][rows]
    has = state.buffers[f"has_{other}"][rows]
    values = state.buffers[other][rows]
    # If all items have the other modality, `where` would only copy.
    return values if bool(has.all()) else torch.where(has.unsqueeze(1), values, state.buffers[modality][rows])
