"""Tiny published models with random weights, as folders; and small pictures as an archive's column."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from silohash.base.files import write_json
from silohash.data.pictures.reading import PictureFiles

SIDE = 32
WIDTH = 16
WORDS = ("a", "two", "parrot", "parrots", "violin", "harbour", "on", "the", "red", "blue", "tree")
SMALL: dict[str, Any] = {
    "hidden_size": WIDTH,
    "intermediate_size": 24,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
}


def _saved(folder: Path, model: Any, *, seed: int = 0) -> Path:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.2)
    model.save_pretrained(folder)
    return folder


def _with_pictures(folder: Path) -> Path:
    settings = {
        "image_processor_type": "ViTImageProcessor", "size": {"height": SIDE, "width": SIDE}, "resample": 2,
        "image_mean": [0.5, 0.4, 0.3], "image_std": [0.5, 0.25, 0.2],
    }  # fmt: skip
    write_json(folder / "preprocessor_config.json", settings)
    return folder


def _with_words(folder: Path, begin: str, end: str, pad: str) -> Path:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    special = list(dict.fromkeys([pad, "[UNK]", begin, end])) if pad != end else ["[UNK]"]
    names = [*special, *WORDS, *((begin, end) if pad == end else ())]
    vocabulary = {name: number for number, name in enumerate(names)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))  # noqa: S106  no password
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{begin} $A {end}", special_tokens=[(name, vocabulary[name]) for name in (begin, end)]
    )
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=pad,
        unk_token="[UNK]",  # noqa: S106  no password
        bos_token=begin,
        eos_token=end,
    )
    fast.save_pretrained(folder)
    return folder


def vit(folder: Path, *, seed: int = 0) -> Path:
    from transformers import ViTConfig, ViTModel

    return _with_pictures(_saved(folder, ViTModel(ViTConfig(**SMALL, image_size=SIDE, patch_size=8)), seed=seed))


def dinov2(folder: Path, *, seed: int = 0) -> Path:
    from transformers import Dinov2Config, Dinov2Model

    small = {name: value for name, value in SMALL.items() if name != "intermediate_size"}
    return _with_pictures(_saved(folder, Dinov2Model(Dinov2Config(**small, image_size=SIDE, patch_size=8)), seed=seed))


def resnet(folder: Path, *, seed: int = 0) -> Path:
    from transformers import ResNetConfig, ResNetModel

    config = ResNetConfig(embedding_size=8, hidden_sizes=[8, WIDTH], depths=[1, 1], layer_type="basic")
    return _with_pictures(_saved(folder, ResNetModel(config), seed=seed))


def bert(folder: Path, *, seed: int = 0) -> Path:
    from transformers import BertConfig, BertModel

    config = BertConfig(**SMALL, vocab_size=len(WORDS) + 4, max_position_embeddings=12, pad_token_id=0)
    return _with_words(_saved(folder, BertModel(config), seed=seed), "[CLS]", "[SEP]", "[PAD]")


def sentence_encoder(folder: Path, *, seed: int = 0) -> Path:
    bert(folder, seed=seed)
    (folder / "1_Pooling").mkdir()
    pooling = {"word_embedding_dimension": WIDTH, "pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}
    write_json(folder / "1_Pooling" / "config.json", pooling)
    kinds = ("Transformer", "Pooling", "Normalize")
    write_json(folder / "modules.json", [{"type": f"sentence_transformers.models.{kind}"} for kind in kinds])
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": 6})
    return folder


def clip(folder: Path, *, seed: int = 0) -> Path:
    from transformers import CLIPConfig, CLIPModel

    last = len(WORDS) + 2
    text = {
        **SMALL, "vocab_size": last + 1, "max_position_embeddings": 12,
        "bos_token_id": last - 1, "eos_token_id": last, "pad_token_id": last,
    }  # fmt: skip
    vision = {**SMALL, "image_size": SIDE, "patch_size": 8}
    config = CLIPConfig(text_config=text, vision_config=vision, projection_dim=10)
    _with_pictures(_saved(folder, CLIPModel(config), seed=seed))
    return _with_words(folder, "<|startoftext|>", "<|endoftext|>", "<|endoftext|>")


IMAGE_MODELS: dict[str, Callable[..., Path]] = {"vit": vit, "dinov2": dinov2, "resnet": resnet, "clip": clip}
TEXT_MODELS: dict[str, Callable[..., Path]] = {"bert": bert, "sentence_encoder": sentence_encoder, "clip": clip}


def jpegs(folder: Path, count: int, *, seed: int = 0) -> PictureFiles:
    """Writes pictures of various sizes and returns them as a column."""
    generator = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"{number:04}.jpg" for number in range(count)]
    for name in names:
        width, height = generator.integers(40, 90, 2)
        coarse = generator.integers(0, 255, (4, 4, 3)).astype(np.uint8)
        stream = io.BytesIO()
        Image.fromarray(coarse).resize((int(width), int(height)), Image.Resampling.BICUBIC).save(stream, "JPEG")
        (folder / name).write_bytes(stream.getvalue())
    return PictureFiles(folder, names)


def sentences(count: int) -> np.ndarray:
    """Returns texts, each another."""
    generator = np.random.default_rng(1)
    drawn = [" ".join(generator.choice(WORDS, generator.integers(2, 7))) for _ in range(4 * count)]
    return np.array(list(dict.fromkeys(drawn))[:count], np.str_)
