"""Published networks by short names, for the configs that ``silohash new --backbone`` writes. Nothing is downloaded here."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from silohash.base.registry import suggestion
from silohash.base.types import MODALITIES, Modality, UserError
from silohash.features.model_folder import PARTS_OF
from silohash.run.config.toml import toml_value


@dataclass(frozen=True)
class PublishedBackbone:
    """A network for pictures, for texts, or for both.

    Attributes:
        summary: What the network is, as a sentence for the config.
        models: The model per modality: its name on huggingface.co, or a folder.
        megabytes: Size of the download per model. A folder is not downloaded.
    """

    summary: str
    models: Mapping[Modality, str]
    megabytes: Mapping[str, int]


def _of_both(summary: str, model: str, megabytes: int) -> PublishedBackbone:
    return PublishedBackbone(summary, {"image": model, "text": model}, {model: megabytes})


DINOV2, MINILM = "facebook/dinov2-small", "sentence-transformers/all-MiniLM-L6-v2"

BACKBONES: Mapping[str, PublishedBackbone] = {
    "clip": _of_both(
        "CLIP ViT-B/32, trained on two billion pictures with English texts.",
        "laion/CLIP-ViT-B-32-laion2B-s34B-b79K",
        605,
    ),
    "clip-large": _of_both(
        "CLIP ViT-L/14, trained on 400 million pictures with English texts. It is better and much slower than ViT-B/32.",
        "openai/clip-vit-large-patch14",
        1710,
    ),
    "siglip": _of_both(
        "SigLIP base, trained on pictures with texts of the web.",
        "google/siglip-base-patch16-256",
        814,
    ),
    "dinov2+minilm": PublishedBackbone(
        "DINOv2 small for pictures and MiniLM for English sentences, two small and fast networks.",
        {"image": DINOV2, "text": MINILM},
        {DINOV2: 88, MINILM: 91},
    ),
    "dinov2": PublishedBackbone(
        "DINOv2 small for pictures. Texts are used as bags of words.", {"image": DINOV2}, {DINOV2: 88}
    ),
}
"""The networks that ``silohash new --backbone`` knows by name."""


def find_backbone(name: str, file: Path) -> PublishedBackbone:
    """Return the network of that name, or that in the folder at that path.

    Args:
        name: One of `BACKBONES`, or the path of a folder with a Hugging Face model.
        file: The config file, to which the path of a folder is made relative.

    Raises:
        UserError: If there is no such network or folder, or if the folder does not hold a model.
    """
    if name in BACKBONES:
        return BACKBONES[name]
    folder = Path(name).expanduser()
    if not folder.is_dir():
        raise UserError(
            f'There is no backbone "{name}"{suggestion(name, BACKBONES)}. Choose {", ".join(BACKBONES)}, or give the folder '
            "of a Hugging Face model."
        )
    held = [m for m in MODALITIES if any(any(folder.glob(pattern)) for pattern in PARTS_OF[m])]
    if not (folder / "config.json").is_file() or not held:
        raise UserError(
            f'The folder "{name}" does not hold a Hugging Face model. It needs config.json, model.safetensors, and '
            "preprocessor_config.json (pictures) or a tokenizer (texts)."
        )
    path = os.path.relpath(folder.resolve(), file.resolve().parent)
    return PublishedBackbone(f"The network in the folder {path}.", dict.fromkeys(held, path), {})


def feature_tables(backbone: PublishedBackbone, present: tuple[Modality, ...]) -> list[tuple[Modality, list[str], str]]:
    """Return the tables ``[features.image]`` and ``[features.text]`` of a network.

    Args:
        backbone: The network.
        present: The modalities of the archive.

    Returns:
        Per table the modality, the paragraphs of the comment above it, and its keys as TOML without ``download``.

    Raises:
        UserError: If the network is for neither of the modalities.
    """
    held = [modality for modality in present if modality in backbone.models]
    if not held:
        raise UserError(
            f"The backbone is for {' and '.join(backbone.models)} data, and the archive has only "
            f"{' and '.join(present)}. Choose another backbone, or leave out --backbone."
        )
    tables: list[tuple[Modality, list[str], str]] = []
    seen: set[str] = set()
    for modality in held:
        model = backbone.models[modality]
        paragraphs = (
            [] if tables else [f"{backbone.summary} Each item is encoded once, and the towers train on vectors."]
        )
        if model in seen:
            paragraphs.append("The same network, which is downloaded only once.")
        elif model in backbone.megabytes:
            size = _size(backbone.megabytes[model])
            paragraphs.append(
                f"Nothing is downloaded unless download is true. Then {size} are fetched from huggingface.co/{model}, and "
                "kept in the local cache of Hugging Face for later runs."
            )
        seen.add(model)
        tables.append((modality, paragraphs, f'kind = "huggingface"\nmodel = {toml_value(model)}\n'))
    return tables


def _size(megabytes: int) -> str:
    return f"{megabytes / 1000:.1f} GB" if megabytes >= 1000 else f"{megabytes} MB"
