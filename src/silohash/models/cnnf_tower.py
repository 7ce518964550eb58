"""CNN-F as a tower that is fine-tuned, as in earlier hashing papers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from silohash.base.files import digest_file
from silohash.base.types import Arrays, Modality, UserError
from silohash.features.base import Featurizer
from silohash.features.image import PixelFeatures
from silohash.models.cnnf import CNNF, SIDE_PIXELS, WIDTH, Normalization, Orientation, load_cnnf, weights_file


def settings(
    modality: Modality,
    featurizer: Featurizer,
    *,
    weights: str = "",
    lrn: Normalization = "matconvnet",
    orientation: Orientation = "normal",
) -> dict[str, Any]:
    """Return the structure of the network and the path of its weights.

    Args:
        modality: Must be ``image``.
        featurizer: ``pixels`` in color, 224 per side.
        weights: The user's ``imagenet-vgg-f.mat``.
        lrn: The normalization, see `silohash.models.cnnf.local_response`.
        orientation: ``normal``, or ``legacy-port`` for pictures whose width and height are swapped.

    Raises:
        UserError: If the weights do not exist, or if the network does not support the featurizer's output.
    """
    if modality != "image":
        raise UserError(f'[model.{modality}] the backbone "cnnf" supports pictures only. Choose another backbone.')
    if not isinstance(featurizer, PixelFeatures) or featurizer.shape != (3, SIDE_PIXELS, SIDE_PIXELS):
        raise UserError(
            f"[model.image] CNN-F needs color pictures of {SIDE_PIXELS} pixels per side. Set features.image = {{ "
            f'kind = "pixels", channels = 3, size = {SIDE_PIXELS} }}.'
        )
    path = weights_file(weights, '[model.image] backbone "cnnf"').resolve()
    made = {"source": str(path), "digest": digest_file(path), "lrn": lrn, "orientation": orientation, "width": WIDTH}
    return {**made, "factor": [1.0, 1.0, 1.0], "offset": [0.0, 0.0, 0.0]}


def build(about: Mapping[str, Any]) -> CNNF:
    """Return the network that the settings describe, with random weights."""
    return CNNF(lrn=about["lrn"])


def weights(about: Mapping[str, Any]) -> Arrays:
    """Return the published weights by their names in the network that `build` returns.

    Raises:
        UserError: If the file no longer exists, has changed since the settings were created, or is of another network.
    """
    path = Path(about["source"])
    if not path.is_file() or digest_file(path) != about["digest"]:
        raise UserError(f"The weights in {path} changed while the run was prepared. Run the command again.")
    net = load_cnnf(path, lrn=about["lrn"], orientation=about["orientation"])
    return {name: tensor.numpy() for name, tensor in net.state_dict().items()}
