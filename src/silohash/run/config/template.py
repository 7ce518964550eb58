"""Write the config that a user starts from: every key with its default and a comment, taken from the config's models."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from silohash.base.analysis import UNICODE, named_languages
from silohash.base.attempts import attempted
from silohash.base.errors import MissingFile, ModalityNeeded, UnknownName, UserError
from silohash.base.files import read_toml
from silohash.base.forms import REINSTALL
from silohash.base.registry import suggestion
from silohash.base.types import MODALITIES, TASKS, Modality, Task, database_modalities, query_modality
from silohash.data import ARCHIVES
from silohash.data.archive import Archive, is_features
from silohash.data.catalogue import named_or_folder
from silohash.features.model_folder import PARTS_OF
from silohash.methods.federated import FEDERATED_METHODS
from silohash.methods.local import LOCAL_METHODS
from silohash.run.config.sections import RunConfig
from silohash.run.config.toml import toml_value

WIDTH = 116
"""Columns of a comment, after "# "."""

SMALL_ARCHIVE = 2_500
"""A folder with fewer training items than this gets smaller batches and more local epochs."""

EPOCHS_OF_FEW = 10

WITH_LABELS, WITHOUT_LABELS = "centerap", "ucch"
"""Local methods of a config for which the user does not name one, by whether the archive has labels."""


def config_template(file: Path, *, local: str, federated: str, data: str, backbone: str = "") -> str:
    """Return a commented TOML config.

    Args:
        file: The file that it will be written to. Its first line shows how to run it, and a data path is relative to it.
        local: The name of the local method. Empty to choose one by whether the archive has labels.
        federated: The name of the federated method.
        data: The name of an archive, or the path of a folder.
        backbone: A published network: one of `silohash.run.config.template.BACKBONES`, or the path of a folder. Empty to
            train the towers from scratch.

    Raises:
        UserError: If there is no such method or backbone, or a method cannot be imported.
    """
    LOCAL_METHODS.target(local or WITH_LABELS)  # names are checked before the methods are imported
    FEDERATED_METHODS.target(federated)
    published = find_backbone(backbone, file) if backbone else None
    archive = attempted(lambda: named_or_folder(data), UserError, otherwise=None)  # it may not exist yet
    words, words_comment = _words(archive)
    networks = _network_tables(published, MODALITIES if archive is None else _present(archive), words, words_comment)
    tasks, tasks_comment = _tasks(archive)
    few = archive is not None and data not in ARCHIVES.names() and 0 < len(archive.split("train")) < SMALL_ARCHIVE
    chosen: dict[str, dict[str, Any]] = {
        "data": {"name": data} if data in ARCHIVES.names() else {"path": _relative(data, file)},
        "features": words,
        "local": {"name": local or (WITH_LABELS if archive is None or archive.labels is not None else WITHOUT_LABELS)},
        "federated": {"name": federated, **({"local_epochs": EPOCHS_OF_FEW} if few else {})},
        "train": {"batch": _batch_of_few(archive)} if archive is not None and few else {},
        "evaluate": tasks,
    }
    comments = {"evaluate": tasks_comment, "features": dict.fromkeys(words, words_comment)}
    return _document(file, chosen, comments, networks)


def _document(
    file: Path, chosen: Mapping[str, Mapping[str, Any]], given: Mapping[str, dict[str, str]], networks: str
) -> str:
    """Return the whole text, with the given comments instead of those of the config's models."""
    local, federated = chosen["local"]["name"], chosen["federated"]["name"]
    methods = {"local": LOCAL_METHODS.resolve(local), "federated": FEDERATED_METHODS.resolve(federated)}
    comments = {**given, **{section: {"preset": _presets_comment(section, chosen[section]["name"], methods[section])}
                            for section in methods}}  # fmt: skip
    seed = RunConfig.model_fields["seed"]
    parts = [f"# silohash train {file} --out runs/{file.stem}\n", f"# {seed.description}\nseed = {seed.default}\n"]
    traits = methods["federated"].traits
    for section, about in RunConfig.model_fields.items():
        kind = about.annotation
        if section == "features" and networks:
            parts.append(networks)
            continue
        sends = section != "exchange" or not (traits.shares == "none" or traits.pooled)
        if not (isinstance(kind, type) and issubclass(kind, BaseModel) and sends):
            continue
        keys = _keys(kind, chosen.get(section, {}), comments.get(section, {}), skip_unset=section == "data")
        parts += [f"\n[{section}]\n", keys]
        if section in methods:
            parts.append(_method_keys(chosen[section]["name"], methods[section], kind))
        if section == "exchange":
            parts.append(_optional_tables(kind))
    return "".join(parts)


def _relative(data: str, file: Path) -> str:
    return os.path.relpath(Path(data).resolve(), file.resolve().parent)


def _presets_comment(section: str, name: str, method: Any) -> str:  # noqa: ANN401  a class of the family
    *first, last = (f"`{preset}`" for preset in method.presets)
    presets = f"{', '.join(first)} and {last}" if first else last
    return f"Presets of {name}: {presets}. `silohash list {section} {name}` shows their values."


def _present(archive: Archive) -> tuple[Modality, ...]:
    return tuple(modality for modality in MODALITIES if archive.has(modality).any())


def _network_tables(
    published: PublishedBackbone | None, present: tuple[Modality, ...], words: Mapping[str, Any], words_comment: str
) -> str:
    """Return the tables that turn items into vectors with a network, if any, and texts into words if it reads none."""
    text = ""
    if published is None:
        return text
    for modality, paragraphs, keys in feature_tables(published, present):
        comment = "".join(f"{line}\n" for paragraph in paragraphs for line in _comment(paragraph))
        download = "download = false\n" if published.megabytes else ""
        text += f"\n[features.{modality}]\n{comment}{keys}{download}"
    for name, table in words.items() if "text" not in published.models else ():
        lines = [*_comment(words_comment), *(f"{key} = {toml_value(value)}" for key, value in table.items())]
        text += f"\n[features.{name}]\n" + "".join(f"{line}\n" for line in lines)
    return text


def _words(archive: Archive | None) -> tuple[dict[str, Any], str]:
    """Return the text features of an archive whose texts are to be divided into words, and the comment on them."""
    if archive is None or archive.text is None or is_features(archive.text):
        return {}, ""
    codes = archive.languages()
    found = f"Found in the texts: {named_languages(codes)}." if codes else "No language was found in the texts."
    comment = (
        "Texts as bags of words. The analysis divides texts of all scripts into words; the languages are those whose stop "
        f"words are left out and whose words are reduced to stems. {found}"
    )
    return {"text": {"kind": "tfidf", "analysis": str(UNICODE), "languages": list(codes)}}, comment


def _batch_of_few(archive: Archive) -> int:
    """Return a batch size that gives each silo of a small archive at least four batches, but at least 8."""
    most = len(archive.split("train")) / RunConfig.model_fields["partition"].default.silos / 4
    return next(size for size in (128, 64, 32, 16, 8) if size <= most or size == 8)


def _tasks(archive: Archive | None) -> tuple[dict[str, list[Task]], dict[str, str]]:
    """Return the tasks that an archive allows and the comment on them, by the key; both empty to use the defaults."""
    if archive is None:
        only = f'{", ".join(TASKS)}. Use ["i2i"] if there are only images, and ["t2t"] if there are only texts.'
        return {}, {"tasks": only}
    present = _present(archive)
    if len(present) == len(MODALITIES):
        return {}, {}
    possible = [task for task in TASKS if {query_modality(task), *database_modalities(task)} <= set(present)]
    comment = f"{', '.join(TASKS)}. The archive has only the modality {' and '.join(present)}."
    return {"tasks": possible} if possible else {}, {"tasks": comment}


def _method_keys(name: str, method: Any, kind: type[BaseModel]) -> str:  # noqa: ANN401  a class of the family
    """Return the optional tables and the parameters of a method, as comments."""
    text = _optional_tables(kind) if method.traits.averages else ""
    if method.Params.model_fields:
        text += f"# Parameters of {name}. The preset sets them unless they are given here.\n"
        text += _keys(method.Params, {}, {}, commented=True)
    return text


def _optional_tables(kind: type[BaseModel]) -> str:
    """Return the tables and choices that a section may have, as comments with an example of each that fits on a line."""
    lines = []
    for name, about in kind.model_fields.items():
        for table in get_args(about.annotation):
            if isinstance(table, type) and issubclass(table, BaseModel):
                example = {key: _example(field) for key, field in table.model_fields.items()}
                entry = f"# {name} = {toml_value(example)}"
                if len(entry) > WIDTH:
                    required = {key: value for key, value in example.items() if table.model_fields[key].is_required()}
                    entry = f"# {name} = {toml_value(required)}"
                lines += [*_comment(about.description), entry]
            elif table is float and about.examples:
                lines += [*_comment(about.description), f"# {name} = {toml_value(about.examples[0])}"]
            elif get_origin(table) is Literal:
                lines += [*_comment(about.description), f"# {name} = {toml_value(get_args(table)[0])}"]
    return "".join(f"{line}\n" for line in lines)


def _example(field: FieldInfo) -> Any:  # noqa: ANN401  as the field's type says
    """Return a field's default, or the first of its choices if it is required."""
    return get_args(field.annotation)[0] if field.is_required() else field.get_default(call_default_factory=True)


def _keys(
    kind: type[BaseModel],
    chosen: Mapping[str, Any],
    comments: Mapping[str, str],
    *,
    skip_unset: bool = False,
    commented: bool = False,
) -> str:
    """Return the keys of a table, each below its comment."""
    lines = []
    for name, about in kind.model_fields.items():
        value = chosen.get(name, about.get_default(call_default_factory=True))
        if value is None or (skip_unset and name not in chosen):
            continue
        entry = f"{name} = {toml_value(value)}"
        lines += [*_comment(comments.get(name, about.description)), f"# {entry}" if commented else entry]
    return "".join(f"{line}\n" for line in lines)


def _comment(text: str | None) -> list[str]:
    return [f"# {line}" for line in textwrap.wrap(text or "", WIDTH)]


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


BACKBONES: Mapping[str, PublishedBackbone] = {
    name: PublishedBackbone(**about)
    for name, about in read_toml(
        Path(__file__).with_name("backbones.toml"), remedy=REINSTALL, missing=REINSTALL
    ).items()
}
"""The networks that ``silohash new --backbone`` knows by name."""


def find_backbone(name: str, file: Path) -> PublishedBackbone:
    """Return the network of that name, or that in the folder at that path, relative to the config file.

    Raises:
        UserError: If there is no such network or folder, or if the folder does not hold a model.
    """
    if name in BACKBONES:
        return BACKBONES[name]
    folder = Path(name).expanduser()
    if not folder.is_dir():
        raise UnknownName(
            f'There is no backbone "{name}"{suggestion(name, BACKBONES)}. Choose {", ".join(BACKBONES)}, or give the folder '
            "of a Hugging Face model."
        )
    held = [m for m in MODALITIES if any(any(folder.glob(pattern)) for pattern in PARTS_OF[m])]
    if not (folder / "config.json").is_file() or not held:
        raise MissingFile(
            f'The folder "{name}" does not hold a Hugging Face model. It needs config.json, model.safetensors, and '
            "preprocessor_config.json (pictures) or a tokenizer (texts)."
        )
    path = _relative(str(folder), file)
    return PublishedBackbone(f"The network in the folder {path}.", dict.fromkeys(held, path), {})


def feature_tables(backbone: PublishedBackbone, present: tuple[Modality, ...]) -> list[tuple[Modality, list[str], str]]:
    """Return the tables ``[features.image]`` and ``[features.text]`` of a network.

    Returns:
        Per table the modality, the paragraphs of the comment above it, and its keys as TOML without ``download``.

    Raises:
        UserError: If the network is for neither of the modalities.
    """
    held = [modality for modality in present if modality in backbone.models]
    if not held:
        raise ModalityNeeded(
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
            megabytes = backbone.megabytes[model]
            size = f"{megabytes / 1000:.1f} GB" if megabytes >= 1000 else f"{megabytes} MB"
            paragraphs.append(
                f"Nothing is downloaded unless download is true. Then {size} are fetched from huggingface.co/{model}, and "
                "kept in the local cache of Hugging Face for later runs."
            )
        seen.add(model)
        tables.append((modality, paragraphs, f'kind = "huggingface"\nmodel = {toml_value(model)}\n'))
    return tables
