"""Published backbones of Hugging Face: one vector an item, frozen or trained on.

A backbone is built of its stored config alone, so that workers and finished runs need no folder; the published weights are
read once, when a run starts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from silohash.features.model_folder import needs_transformers
from silohash.features.word_pieces import PADDING
from silohash.types import Modality, UserError

Pooling = Literal["auto", "projection", "pooler", "cls", "mean"]

OTHER_HALF: dict[Modality, tuple[str, ...]] = {
    "image": ("text_model", "text_projection", "logit_scale", "logit_bias"),
    "text": ("vision_model", "visual_projection", "logit_scale", "logit_bias"),
}
"""What a model of both modalities does not need for one of them."""

UNMASKED = ("siglip", "siglip2")
"""Models whose texts are padded to one length, and that see the padding."""

CLASS_TOKENS = ("cls_token", "class_embedding")
NEEDLESS_CONFIG = ("id2label", "label2id", "architectures", "transformers_version", "dtype", "torch_dtype")

CHUNK_ITEMS = 64
"""Without gradients, so many items pass at a time: memory stays flat however many are asked for."""


class Backbone(nn.Module):
    """A published network that gives one vector an item.

    Args:
        config: the published config as a JSON value.
        modality: the modality.
        pooling: how the vector is made, see `pooled`; not ``auto``.
        unit_length: whether vectors are brought to length one.
        padding: what stands for a text's missing word pieces.
        network: the network if it is there already; else it is built of the config, with random weights.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        modality: Modality,
        pooling: Pooling,
        *,
        unit_length: bool = False,
        padding: int = 0,
        network: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.config = dict(config)
        self.modality = modality
        self.pooling = pooling
        self.unit_length = unit_length
        self.padding = padding
        self.network = _stripped(_built(config) if network is None else network, modality, pooling)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return ``(B, width)`` float.

        Args:
            inputs: ``(B, 3, h, w)`` pictures on the model's own scale, or ``(B, L)`` numbers of word pieces, -1 where
                there are no more.
        """
        if torch.is_grad_enabled() or len(inputs) <= CHUNK_ITEMS:
            return self._vectors(inputs)
        return torch.cat([self._vectors(chunk) for chunk in torch.split(inputs, CHUNK_ITEMS)])

    def _vectors(self, inputs: Tensor) -> Tensor:
        network: Any = self.network
        mask: Tensor | None = None
        if self.modality == "image":
            arguments = {"pixel_values": inputs}
        else:
            mask = (inputs != PADDING).long()
            arguments = {"input_ids": torch.where(inputs == PADDING, self.padding, inputs).long()}
            if self.config["model_type"] not in UNMASKED:
                arguments["attention_mask"] = mask
        if self.pooling == "projection":
            made = getattr(network, f"get_{self.modality}_features")(**arguments)
            vectors: Tensor = getattr(made, "pooler_output", made)
        else:
            vectors = pooled(network(**arguments), self.pooling, mask)
        return nn.functional.normalize(vectors, dim=1) if self.unit_length else vectors


def pooled(output: Any, pooling: Pooling, mask: Tensor | None = None) -> Tensor:  # noqa: ANN401  transformers' own
    """Return one vector an item of a network's last layer, ``(B, width)``.

    Args:
        output: what the network gave: ``last_hidden_state``, ``(B, L, width)`` or ``(B, width, h, w)``, and where it has
            one ``pooler_output``.
        pooling: ``pooler`` for the network's own summary, ``cls`` for the first token, ``mean`` over all.
        mask: ``(B, L)``, 0 where a text has no more word pieces.

    Raises:
        UserError: if the network has nothing of the kind.
    """
    hidden: Tensor = output.last_hidden_state
    if pooling == "pooler":
        if getattr(output, "pooler_output", None) is None:
            raise UserError('The model has no pooler of its own. Set pooling = "cls" or "mean".')
        summary: Tensor = output.pooler_output
        return summary.flatten(1)
    if hidden.ndim > 3:
        if pooling == "cls":
            raise UserError('The model gives maps, which have no first token. Set pooling = "mean".')
        return hidden.mean(dim=(2, 3))
    if pooling == "cls":
        return hidden[:, 0]
    if mask is None:
        return hidden.mean(dim=1)
    weight = mask.unsqueeze(2).to(hidden.dtype)
    return (hidden * weight).sum(dim=1) / weight.sum(dim=1).clamp_min(1.0)


def read_backbone(
    folder: Path, sample: Tensor, modality: Modality, pooling: Pooling, *, unit_length: bool = False, padding: int = 0
) -> tuple[Backbone, int]:
    """Return a folder's network with its published weights, in evaluation mode and float32, and how wide vectors are.

    Args:
        folder: the folder.
        sample: any one input, as `Backbone.forward` takes it.
        modality: the modality.
        pooling: see `pooled`; ``auto`` takes the projection of models of both modalities, the mean over texts' word pieces,
            and the summary that a network of pictures is made for.
        unit_length: whether vectors are brought to length one.
        padding: what stands for a text's missing word pieces.

    Raises:
        UserError: if the folder holds no model that can be read, lacks weights, or has no such pooling.
    """
    if pooling not in get_args(Pooling):
        raise UserError(f'pooling is "{pooling}"; it must be one of: {", ".join(get_args(Pooling))}.')
    config, network, missing = _published(folder)
    dual = hasattr(network, f"get_{modality}_features")
    if pooling == "projection" and not dual:
        raise UserError(f'{folder} is no model of pictures and texts, so it has no projection. Set pooling = "auto".')
    if dual and pooling not in {"auto", "projection"}:
        raise UserError(f"{folder} is a model of pictures and texts: it gives its projection only. Leave pooling out.")
    with torch.inference_mode(), _explaining(folder, sample):
        chosen: Pooling = "projection" if dual else pooling
        if chosen == "auto":
            chosen = "mean" if modality == "text" else _natural(network, sample)
        backbone = Backbone(config, modality, chosen, unit_length=unit_length, padding=padding, network=network).eval()
        width = backbone(sample).shape[1]
    lacking = sorted(missing & set(backbone.network.state_dict()))
    if lacking:
        raise UserError(
            f"{folder} lacks weights of its own network ({lacking[0]} and {len(lacking) - 1} more), which would be random. "
            "Choose another pooling, or put the whole model there."
        )
    return backbone, width


def _natural(network: Any, sample: Tensor) -> Pooling:  # noqa: ANN401  transformers' own
    own = hasattr(getattr(network, "pooler", None), "dense")  # published weights are often without it
    if not own and getattr(network(pixel_values=sample), "pooler_output", None) is not None:
        return "pooler"
    return "cls" if any(name.endswith(CLASS_TOKENS) for name, _ in network.named_parameters()) else "mean"


@contextmanager
def _explaining(folder: Path, sample: Tensor) -> Iterator[None]:
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # of many kinds: a network says in its own words what it does not take
        what = "word pieces" if sample.ndim == 2 else f"pictures of {sample.shape[-1]} x {sample.shape[-2]} pixels"
        raise UserError(f"The model in {folder} does not take {what} ({_first_line(error)}).") from error


def _published(folder: Path) -> tuple[dict[str, Any], nn.Module, set[str]]:
    """Return a folder's config, its network in float32, and the names of the weights that it lacks."""
    try:
        from transformers import AutoConfig, AutoModel
    except ImportError as error:
        raise needs_transformers(f"The model in {folder}") from error
    try:
        with _quietly():
            config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
            network, about = AutoModel.from_pretrained(
                folder,
                config=config,
                local_files_only=True,
                trust_remote_code=False,
                use_safetensors=True,
                output_loading_info=True,
            )
    except Exception as error:  # of many kinds: an unknown architecture, a damaged file, other shapes
        raise UserError(f"The model in {folder} cannot be read ({_first_line(error)}). Put it there again.") from error
    plain = {name: value for name, value in json.loads(config.to_json_string()).items() if name not in NEEDLESS_CONFIG}
    return plain, network.float().eval(), set(about["missing_keys"])


def _built(config: Mapping[str, Any]) -> nn.Module:
    try:
        from transformers import AutoConfig, AutoModel
    except ImportError as error:
        raise needs_transformers(f'A backbone of the kind "{config["model_type"]}"') from error
    rest = {name: value for name, value in config.items() if name != "model_type"}
    with _quietly():
        make: Any = AutoModel.from_config
        network: nn.Module = make(AutoConfig.for_model(config["model_type"], **rest))
    return network.float()


def _stripped(network: nn.Module, modality: Modality, pooling: Pooling) -> nn.Module:
    """Return a network without the parts that a modality and a pooling do not need: they would travel for nothing."""
    if pooling == "projection":
        for name in OTHER_HALF[modality]:
            if hasattr(network, name):
                delattr(network, name)
    elif pooling != "pooler" and hasattr(getattr(network, "pooler", None), "dense"):
        network.pooler = None  # type: ignore[assignment]
    return network


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


@contextmanager
def _quietly() -> Iterator[None]:
    """Keeps transformers from talking: what it has to say is checked here."""
    from transformers import utils

    logging: Any = utils.logging
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
