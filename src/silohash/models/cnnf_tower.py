"""CNN-F as a tower that is trained on, as the older hashing papers do."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from silohash.features.base import Featuriser
from silohash.features.image import PixelFeatures
from silohash.files import digest_file
from silohash.models.cnnf import CNNF, SIDE_PIXELS, WIDTH, Normalisation, Orientation, load_cnnf, weights_file
from silohash.types import Arrays, Modality, UserError


def settings(
    modality: Modality,
    featuriser: Featuriser,
    *,
    weights: str = "",
    lrn: Normalisation = "matconvnet",
    orientation: Orientation = "normal",
) -> dict[str, Any]:
    """Return what the network is built of, and where its weights lie.

    Args:
        modality: must be ``image``.
        featuriser: ``pixels`` in colour, 224 a side.
        weights: the user's ``imagenet-vgg-f.mat``.
        lrn: the normalisation, see `silohash.models.cnnf.local_response`.
        orientation: ``legacy-port`` for pictures that come with width and height exchanged.

    Raises:
        UserError: if the weights are not there, or the network does not take what the featuriser gives.
    """
    if modality != "image":
        raise UserError(f'[model.{modality}] the backbone "cnnf" takes pictures only. Choose another backbone.')
    if not isinstance(featuriser, PixelFeatures) or featuriser.shape != (3, SIDE_PIXELS, SIDE_PIXELS):
        raise UserError(
            f'[model.image] CNN-F takes colour pictures of {SIDE_PIXELS} pixels. Set features.image = {{ kind = "pixels", '
            f"channels = 3, size = {SIDE_PIXELS} }}."
        )
    path = weights_file(weights, '[model.image] backbone "cnnf"').resolve()
    made = {"source": str(path), "digest": digest_file(path), "lrn": lrn, "orientation": orientation, "width": WIDTH}
    return {**made, "factor": [1.0, 1.0, 1.0], "offset": [0.0, 0.0, 0.0]}


def build(about: Mapping[str, Any]) -> CNNF:
    """Return the network that the settings describe, with random weights."""
    return CNNF(lrn=about["lrn"])


def weights(about: Mapping[str, Any]) -> Arrays:
    """Return the published weights by their names in the network that `build` makes.

    Raises:
        UserError: if the file is gone, has changed since the settings were made, or is of another network.
    """
    path = Path(about["source"])
    if not path.is_file() or digest_file(path) != about["digest"]:
        raise UserError(f"The weights in {path} have changed while the run was prepared. Run the command again.")
    net = load_cnnf(path, lrn=about["lrn"], orientation=about["orientation"])
    return {name: tensor.numpy() for name, tensor in net.state_dict().items()}
