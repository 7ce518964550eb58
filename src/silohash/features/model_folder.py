"""A published model as a folder of files: found by path or by name, never downloaded unasked, known by its content."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

from silohash.files import digest_file, digest_json, read_json
from silohash.types import Modality, UserError

PARTS = ("config.json", "*.safetensors", "model.safetensors.index.json")
PARTS_OF: dict[Modality, tuple[str, ...]] = {
    "image": ("preprocessor_config.json", "processor_config.json"),
    "text": (
        *("tokenizer*.json", "vocab.*", "merges.txt", "*.model", "special_tokens_map.json", "added_tokens.json"),
        *("modules.json", "sentence_bert_config.json", "1_Pooling/config.json"),
    ),
}
"""The files that decide a model's vectors, beside `PARTS`."""

SENTENCE_POOLING: dict[str, Literal["cls", "mean"]] = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
}


@dataclass(frozen=True)
class SentenceRule:
    """How a sentence encoder's folder says that vectors are made.

    Attributes:
        pooling: ``mean`` or ``cls``.
        unit_length: whether vectors are brought to length one.
        most_pieces: texts are cut to so many word pieces; 0 where the folder does not say.
    """

    pooling: Literal["cls", "mean"]
    unit_length: bool
    most_pieces: int


def find_model(model: str, where: str, *, download: bool) -> Path:
    """Return the folder of a model.

    Args:
        model: the path of a folder, or the name under which the model is published, which is looked for in the local
            cache of Hugging Face.
        where: the table of the config, for messages.
        download: whether a model that is not there may be downloaded.

    Raises:
        UserError: if there is no such folder, the model is not there and may not be downloaded, or its weights are not in
            the safetensors format.
    """
    if not model:
        raise UserError(f"[{where}] model is not given. Set it to the folder of a Hugging Face model, or to its name.")
    folder = Path(model).expanduser()
    if not folder.is_dir():
        if model.startswith((".", "~", os.sep)) or model.count("/") > 1:
            raise UserError(
                f'[{where}] there is no folder "{model}". Put the model there (config.json, model.safetensors and its '
                "preprocessor or tokenizer), or set model to where it lies."
            )
        folder = _from_hub(model, where, download=download)
    if not (folder / "config.json").is_file():
        raise UserError(f"{folder / 'config.json'} is missing, so that the folder holds no Hugging Face model.")
    if not any(folder.glob("*.safetensors")):
        raise UserError(
            f"{folder} holds no weights in the safetensors format, and no other is read (a pickled file can run code). "
            "Save the model with save_pretrained of a recent transformers and put model.safetensors there."
        )
    return folder


def folder_digest(folder: Path, modality: Modality) -> str:
    """Return a digest of the files that decide a model's vectors."""
    found = {path for pattern in (*PARTS, *PARTS_OF[modality]) for path in folder.glob(pattern) if path.is_file()}
    return digest_json({path.relative_to(folder).as_posix(): _digest(path) for path in sorted(found)})


def sentence_rule(folder: Path) -> SentenceRule | None:
    """Return how a sentence encoder's folder says that vectors are made, or None where it says nothing.

    Raises:
        UserError: if it asks for what is not done here.
    """
    path = folder / "1_Pooling" / "config.json"
    if not path.is_file():
        return None
    asked = [name for name, value in read_json(path).items() if name.startswith("pooling_mode_") and value is True]
    if len(asked) != 1 or asked[0] not in SENTENCE_POOLING:
        raise UserError(f"{path} asks for {', '.join(asked) or 'no pooling'}, which silohash does not do. Set pooling.")
    unit_length, most_pieces = True, 0
    if (folder / "modules.json").is_file():
        kinds = [str(module["type"]).rpartition(".")[2] for module in read_json(folder / "modules.json")]
        strange = [kind for kind in kinds if kind not in {"Transformer", "Pooling", "Normalize"}]
        if strange:
            raise UserError(f"{folder} has the module {strange[0]}, which silohash does not do. Choose another model.")
        unit_length = "Normalize" in kinds
    if (folder / "sentence_bert_config.json").is_file():
        most_pieces = int(read_json(folder / "sentence_bert_config.json").get("max_seq_length") or 0)
    return SentenceRule(SENTENCE_POOLING[asked[0]], unit_length, most_pieces)


def needs_transformers(what: str) -> UserError:
    """Return the error for a machine without transformers."""
    return UserError(f"{what} needs transformers. Install it: pip install 'silohash[backbones]'")


def _from_hub(name: str, where: str, *, download: bool) -> Path:
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise needs_transformers(f'The model "{name}"') from error
    wanted: Sequence[str] = (*PARTS, *PARTS_OF["image"], *PARTS_OF["text"])
    try:
        return Path(snapshot_download(name, local_files_only=not download, allow_patterns=list(wanted)))
    except Exception as error:  # of many kinds: no such name, no network, refused, not in the cache
        if download:
            raise UserError(f'The model "{name}" could not be downloaded ({_first_line(error)}).') from error
        raise UserError(
            f'[{where}] "{name}" is neither a folder nor a model in the local cache of Hugging Face, and nothing is '
            "downloaded unasked. Set model to the folder that holds it (config.json, model.safetensors and its preprocessor "
            "or tokenizer), or allow the download with download = true."
        ) from error


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _digest(path: Path) -> str:
    stat = path.stat()
    with suppress(OSError):
        return _digest_of(path.resolve(), stat.st_mtime_ns, stat.st_size)
    return ""


@lru_cache(maxsize=256)
def _digest_of(path: Path, changed_nanoseconds: int, size_bytes: int) -> str:  # noqa: ARG001  they make the key
    return digest_file(path)
