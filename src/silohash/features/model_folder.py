"""Folders of published models, which are found by path or name, are not downloaded by default, and have a digest."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from silohash.base.errors import DependencyMissing, MissingFile, NetworkUnavailable, SettingNeeded, UnsupportedNetwork
from silohash.base.files import digest_json, read_json
from silohash.base.forms import reading
from silohash.base.stamps import file_digests
from silohash.base.types import Modality

COPY_AGAIN = "Copy it from the source of the model."

PARTS = ("config.json", "*.safetensors", "model.safetensors.index.json")
PARTS_OF: dict[Modality, tuple[str, ...]] = {
    "image": ("preprocessor_config.json", "processor_config.json"),
    "text": (
        *("tokenizer*.json", "vocab.*", "merges.txt", "*.model", "special_tokens_map.json", "added_tokens.json"),
        *("modules.json", "sentence_bert_config.json", "1_Pooling/config.json"),
    ),
}
"""The files per modality that affect a model's vectors, in addition to `PARTS`."""

SENTENCE_POOLING: dict[str, Literal["cls", "mean"]] = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
}
SENTENCE_MODULES = {"Transformer", "Pooling", "Normalize"}


@dataclass(frozen=True)
class SentenceRule:
    """How a sentence encoder turns word pieces into one vector, as specified in its folder.

    Attributes:
        pooling: ``mean`` or ``cls``.
        unit_length: Whether vectors are scaled to length one.
        most_pieces: Number of word pieces after which a text is truncated; 0 if the folder does not specify it.
    """

    pooling: Literal["cls", "mean"]
    unit_length: bool
    most_pieces: int


def find_model(model: str, where: str, *, download: bool) -> Path:
    """Return the folder of a model, given as a path or as a name in the local cache of Hugging Face.

    Messages name ``where``, the table of the config. With ``download``, a model that is not in the cache is downloaded.

    Raises:
        UserError: If the folder does not exist, if the model is not in the cache and may not be downloaded, or if its
            weights are not in the safetensors format.
    """
    if not model:
        raise SettingNeeded(f"[{where}] model is not set. Set it to the folder or the name of a Hugging Face model.")
    folder = Path(model).expanduser()
    if not folder.is_dir():
        if model.startswith((".", "~", os.sep)) or model.count("/") > 1:
            raise MissingFile(
                f'[{where}] the folder "{model}" does not exist. Put the model there (config.json, model.safetensors '
                "and its preprocessor or tokenizer), or set model to its path."
            )
        folder = _from_hub(model, where, download=download)
    if not (folder / "config.json").is_file():
        raise MissingFile(
            f"{folder / 'config.json'} is missing, so the folder does not hold a Hugging Face model. "
            "Set model to another folder."
        )
    if not any(folder.glob("*.safetensors")):
        raise MissingFile(
            f"{folder} does not hold weights in the safetensors format. Other formats are not read, because a pickled file "
            "can run code: save the model with save_pretrained of a recent transformers."
        )
    return folder


def folder_digest(folder: Path, modality: Modality) -> str:
    """Return a digest of the files that affect a model's vectors.

    Raises:
        UserError: If one of them cannot be read.
    """
    found = {path for pattern in (*PARTS, *PARTS_OF[modality]) for path in folder.glob(pattern) if path.is_file()}
    digests: dict[str, str] = {}
    for name in (path.relative_to(folder).as_posix() for path in sorted(found)):
        with reading(folder / name, remedy=COPY_AGAIN):
            digests |= file_digests(folder, [name])
    return digest_json(digests)


def sentence_rule(folder: Path) -> SentenceRule | None:
    """Return the rule in a sentence encoder's folder, or None if the folder does not have one.

    Raises:
        UserError: If the rule is not supported.
    """
    path = folder / "1_Pooling" / "config.json"
    if not path.is_file():
        return None
    config = read_json(path, dict[str, Any], remedy=COPY_AGAIN)
    modes = [name for name, value in config.items() if name.startswith("pooling_mode_") and value is True]
    if len(modes) != 1 or modes[0] not in SENTENCE_POOLING:
        raise UnsupportedNetwork(
            f"{path} requires {', '.join(modes) or 'no pooling'}, which is not supported. Set pooling."
        )
    return SentenceRule(SENTENCE_POOLING[modes[0]], _has_unit_length(folder), _sentence_pieces(folder))


@dataclass(frozen=True)
class _Module:
    """The form of an entry of ``modules.json``."""

    type: str


@dataclass(frozen=True)
class _SentenceConfig:
    """The entry of ``sentence_bert_config.json`` that is used."""

    max_seq_length: int | None = None


def _has_unit_length(folder: Path) -> bool:
    """Tell whether a sentence encoder normalizes its vectors, which is the default if it does not list its modules."""
    if not (folder / "modules.json").is_file():
        return True
    modules = read_json(folder / "modules.json", list[_Module], remedy=COPY_AGAIN)
    kinds = [module.type.rpartition(".")[2] for module in modules]
    unknown = [kind for kind in kinds if kind not in SENTENCE_MODULES]
    if unknown:
        raise UnsupportedNetwork(f"{folder} has the module {unknown[0]}, which is not supported. Choose another model.")
    return "Normalize" in kinds


def _sentence_pieces(folder: Path) -> int:
    if not (folder / "sentence_bert_config.json").is_file():
        return 0
    return read_json(folder / "sentence_bert_config.json", _SentenceConfig, remedy=COPY_AGAIN).max_seq_length or 0


@contextmanager
def needing_transformers(what: str) -> Iterator[None]:
    """Translate the error of a missing transformers package, or of one that it installs.

    Raises:
        UserError: In place of an import error.
    """
    try:
        yield
    except ImportError as error:
        raise DependencyMissing(f"{what} needs transformers. Install it: pip install 'silohash[backbones]'") from error


def _from_hub(name: str, where: str, *, download: bool) -> Path:
    with needing_transformers(f'The model "{name}"'):
        from huggingface_hub import snapshot_download
    wanted: Sequence[str] = (*PARTS, *PARTS_OF["image"], *PARTS_OF["text"])
    try:
        return Path(snapshot_download(name, local_files_only=not download, allow_patterns=list(wanted)))
    # An unknown name, no network, denied access and an empty cache raise errors of many types.
    except Exception as error:
        if download:
            raise NetworkUnavailable(
                f'The model "{name}" could not be downloaded ({first_line(error)}). Set model to a folder.'
            ) from error
        raise NetworkUnavailable(
            f'[{where}] "{name}" is neither a folder nor a model in the local cache of Hugging Face, and nothing is '
            "downloaded by default. Set model to its folder, or allow the download with download = true."
        ) from error


def first_line(error: Exception) -> str:
    """Return the first line of an error's text, or its type if it has none."""
    return (str(error).splitlines() or [type(error).__name__])[0]
