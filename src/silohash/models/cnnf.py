"""CNN-F (also called VGG-F), the image network of earlier hashing papers, with the authors' weights if the user has them.

It gives fixed features (`frozen`), or is fine-tuned as a tower (`settings`, `build` and `weights`).

================  ==============================  ==============
layer             what                            output
================  ==============================  ==============
``conv1``         11 x 11, stride 4; ReLU; LRN    64 x 54 x 54
``pool1``         3 x 3, stride 2, padded by one  64 x 27 x 27
                  at the right and bottom
``conv2``         5 x 5, padding 2; ReLU; LRN     256 x 27 x 27
``pool2``         3 x 3, stride 2                 256 x 13 x 13
``conv3..5``      3 x 3, padding 1; ReLU          256 x 13 x 13
``pool5``         3 x 3, stride 2                 256 x 6 x 6
``fc6``, ``fc7``  6 x 6 and 1 x 1; ReLU           4096
================  ==============================  ==============

Source: Chatfield, Simonyan, Vedaldi, Zisserman, "Return of the Devil in the Details", BMVC 2014, table 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

import numpy as np
import numpy.typing as npt
import torch
from scipy.io import loadmat
from scipy.io.matlab import matfile_version
from torch import Tensor, nn
from torch.nn import functional

from silohash.base import errors
from silohash.base.files import digest_file, digest_json
from silohash.base.forms import reading
from silohash.base.types import Arrays, Modality
from silohash.data.formats.matlab5_check import check_contents
from silohash.features.base import Featurizer
from silohash.features.image import PixelFeatures
from silohash.features.network import Network
from silohash.features.preprocess import PicturePreparation

Normalization = Literal["matconvnet", "legacy-port"]
Orientation = Literal["normal", "legacy-port"]

SIDE_PIXELS = 224
WIDTH = 4096
TRAINED = ("conv1", "conv2", "conv3", "conv4", "conv5", "fc6", "fc7")
"""The layers that have weights, in order."""

PREPROCESSING = "RGB, 224 x 224 bicubic without crop, 0 to 255, mean picture subtracted"
NORMALIZED_LAYERS = 2
HDF5_VERSION = 2
HINT = 'It should be "imagenet-vgg-f.mat" from the pretrained models of MatConvNet.'


def local_response(kind: Normalization) -> nn.LocalResponseNorm:
    """Return the normalization over neighboring channels.

    ``matconvnet``, with which the weights were trained, is ``x / (2 + 1e-4 * sum over 5 neighbors of x^2) ** 0.75``. torch
    divides its factor by the number of neighbors, hence the 5e-4 below. ``legacy-port`` is what ports of hashing papers use
    with these weights (two neighbors, torch's default factor). It is not CNN-F, but their published figures were obtained
    with it.

    Raises:
        UserError: If there is no such normalization.
    """
    if kind not in get_args(Normalization):
        raise errors.WrongChoice(f'lrn is "{kind}"; it must be one of: {", ".join(get_args(Normalization))}.')
    if kind == "legacy-port":
        return nn.LocalResponseNorm(2, k=2)
    return nn.LocalResponseNorm(5, alpha=5e-4, beta=0.75, k=2)


class CNNF(nn.Module):
    """The network up to ``fc7`` and its ReLU.

    The mean image is a buffer, so that it is saved and sent with the model. `fixed_buffers` excludes it from training and
    averaging. Tests use fewer ``maps`` (channels of ``conv1`` and of the other convolutions) and a smaller ``width`` of
    ``fc6`` and ``fc7``.
    """

    fixed_buffers: ClassVar[tuple[str, ...]] = ("mean",)

    def __init__(
        self, *, lrn: Normalization = "matconvnet", maps: tuple[int, int] = (64, 256), width: int = WIDTH
    ) -> None:
        super().__init__()
        first, more = maps
        self.width = width
        self.normalize = local_response(lrn)
        self.conv1 = nn.Conv2d(3, first, 11, stride=4)
        self.conv2 = nn.Conv2d(first, more, 5, padding=2)
        self.conv3 = nn.Conv2d(more, more, 3, padding=1)
        self.conv4 = nn.Conv2d(more, more, 3, padding=1)
        self.conv5 = nn.Conv2d(more, more, 3, padding=1)
        self.fc6 = nn.Conv2d(more, width, 6)
        self.fc7 = nn.Conv2d(width, width, 1)
        self.pool = nn.MaxPool2d(3, stride=2)
        self.mean: Tensor
        self.register_buffer("mean", torch.zeros(3, SIDE_PIXELS, SIDE_PIXELS))

    def forward(self, pixels: Tensor) -> Tensor:
        """Return the non-negative output of ``fc7``, ``(B, width)``, for ``(B, 3, 224, 224)`` RGB values from 0 to 255."""
        maps = self.normalize(functional.relu(self.conv1(pixels.to(self.mean.dtype) - self.mean)))
        # All values are at least 0, so zero padding never changes a maximum.
        maps = self.pool(functional.pad(maps, (0, 1, 0, 1)))
        maps = self.pool(self.normalize(functional.relu(self.conv2(maps))))
        for layer in (self.conv3, self.conv4, self.conv5):
            maps = functional.relu(layer(maps))
        maps = functional.relu(self.fc6(self.pool(maps)))
        return functional.relu(self.fc7(maps)).flatten(1)


def frozen(
    modality: Modality, *, weights: str = "", lrn: Normalization = "matconvnet", orientation: Orientation = "normal"
) -> Network:
    """Return CNN-F up to the layer ``fc7`` with the user's ``imagenet-vgg-f.mat``, which is loaded on first use.

    Options are those of `load_cnnf`.

    Raises:
        UserError: If the modality is not ``image``, or if the weights do not exist.
    """
    if modality != "image":
        raise errors.UnsuitableFeatures(
            f'[features.{modality}] kind "cnnf" supports pictures only. Choose another kind.'
        )
    path = weights_file(weights, '[features.image] kind "cnnf"')
    return Network(
        name="CNN-F",
        key=digest_json(["cnnf", digest_file(path), "fc7", lrn, orientation, PREPROCESSING]),
        width=WIDTH,
        load=partial(load_cnnf, path, lrn=lrn, orientation=orientation),
        preparation=PicturePreparation(resize=(SIDE_PIXELS, SIDE_PIXELS), crop=(), rescale=1.0),
        # Its normalization squares activations of up to thousands, which are too large for float16.
        half_type=lambda device: torch.bfloat16 if device.type == "cuda" else None,
    )


def settings(
    modality: Modality,
    featurizer: Featurizer,
    *,
    weights: str = "",
    lrn: Normalization = "matconvnet",
    orientation: Orientation = "normal",
) -> dict[str, Any]:
    """Return the structure of the network and the path of its weights.

    The featurizer must be ``pixels`` in color, 224 per side. Options are those of `load_cnnf`.

    Raises:
        UserError: If the weights do not exist, or if the network does not support the featurizer's output.
    """
    if modality != "image":
        raise errors.UnsuitableFeatures(
            f'[model.{modality}] the backbone "cnnf" supports pictures only. Choose another backbone.'
        )
    if not isinstance(featurizer, PixelFeatures) or featurizer.shape != (3, SIDE_PIXELS, SIDE_PIXELS):
        raise errors.UnsuitableFeatures(
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
        raise errors.NetworkChanged(f"The weights in {path} changed while the run was prepared. Run the command again.")
    net = load_cnnf(path, lrn=about["lrn"], orientation=about["orientation"])
    return {name: tensor.numpy() for name, tensor in net.state_dict().items()}


def load_cnnf(
    path: Path, *, lrn: Normalization = "matconvnet", orientation: Orientation = "normal", net: CNNF | None = None
) -> CNNF:
    """Return CNN-F with the weights of the user's ``imagenet-vgg-f.mat``, of any version.

    The normalization ``lrn`` is that of `local_response`. The orientation ``legacy-port`` is for pictures whose width and
    height are swapped, as in some community data files. The default network to fill is a new one of full size.

    Raises:
        UserError: If the file is missing, damaged, incomplete, or of another network.
    """
    found = read_weights(path, orientation)
    filled = CNNF(lrn=lrn) if net is None else net
    state = filled.state_dict()
    for name, array in found.items():
        if tuple(array.shape) != tuple(state[name].shape):
            raise errors.WrongShape(
                f'{path}: "{name}" has the shape {array.shape}, and CNN-F needs {tuple(state[name].shape)}. {HINT}'
            )
    filled.load_state_dict({name: torch.from_numpy(array) for name, array in found.items()})
    return filled.eval()


def weights_file(weights: str, where: str) -> Path:
    """Return the path of the user's file of weights, which the setting ``where`` needs.

    Raises:
        UserError: If the path is empty or the file does not exist.
    """
    path = Path(weights).expanduser()
    if not weights or not path.is_file():
        what = f'the file "{weights}" does not exist' if weights else "weights is not set"
        raise errors.SettingNeeded(f"{where}: {what}. Set weights to the file. {HINT}")
    return path


def read_weights(path: Path, orientation: Orientation = "normal") -> Arrays:
    """Read a MatConvNet file by the names of its fields, in any order.

    The arrays are ``mean (3, 224, 224)`` and, for each layer of `TRAINED`, ``weight (out, in, h, w)`` and ``bias (out,)``;
    float32.

    Raises:
        UserError: If the file is missing, damaged, incomplete, or of another network.
    """
    if orientation not in get_args(Orientation):
        raise errors.WrongChoice(
            f'orientation is "{orientation}"; it must be one of: {", ".join(get_args(Orientation))}.'
        )
    content = _open(path)
    if "layers" not in content:
        raise errors.MissingContent(
            f'{path} does not hold "layers" but: {", ".join(sorted(content)) or "nothing"}. {HINT}'
        )
    layers = [_Struct(layer, f"{path}: layer {number}") for number, layer in enumerate(np.ravel(content["layers"]), 1)]
    _check_kind(path, layers)
    swapped = orientation == "legacy-port"
    by_name = {layer.text("name"): layer for layer in layers}
    found: Arrays = {"mean": _mean(path, content, swapped=swapped)}
    for name in TRAINED:
        if name not in by_name:
            raise errors.MissingContent(f'{path} does not have a layer "{name}" but: {", ".join(by_name)}. {HINT}')
        filters, biases = _filters_and_biases(by_name[name])
        if filters.ndim != 4:
            raise errors.WrongShape(
                f'{path}: the filters of "{name}" have the shape {filters.shape}; four dimensions are needed. {HINT}'
            )
        order = (3, 2, 1, 0) if swapped else (3, 2, 0, 1)
        found[f"{name}.weight"] = np.ascontiguousarray(_float32(filters).transpose(order))
        found[f"{name}.bias"] = _float32(biases).reshape(-1)
    return found


class _Struct:
    def __init__(self, value: Any, called: str) -> None:  # noqa: ANN401  anything that scipy reads
        found = np.asarray(value)
        if found.dtype.names is None or found.size != 1:
            raise errors.WrongType(f"{called} is not a struct. {HINT}")
        self.called = called
        self._value = found.reshape(-1)[0]
        self.names: tuple[str, ...] = found.dtype.names

    def array(self, name: str) -> npt.NDArray[Any]:
        """Return a field, which must exist.

        Raises:
            UserError: If there is no such field.
        """
        if name not in self.names:
            raise errors.MissingContent(
                f'{self.called} does not have a field "{name}" but: {", ".join(self.names)}. {HINT}'
            )
        return np.asarray(self._value[name])

    def text(self, name: str) -> str:
        """Return a string field, or an empty string if there is no such field."""
        found = self.array(name).reshape(-1) if name in self.names else np.zeros(0)
        return str(found[0]) if found.size else ""

    def struct(self, name: str) -> _Struct:
        """Return a field that is itself a struct."""
        return _Struct(self.array(name), f'{self.called}, "{name}"')


def _open(path: Path) -> Mapping[str, Any]:
    with reading(path, remedy=HINT, missing=HINT), path.open("rb") as stream:
        if matfile_version(stream)[0] == HDF5_VERSION:
            raise errors.WrongKindOfFile(
                f"{path} is a MATLAB 7.3 file, which is not the published format of these weights. {HINT}"
            )
        check_contents(path)
        content = loadmat(stream, struct_as_record=True, squeeze_me=False)
    return {name: value for name, value in content.items() if not name.startswith("__")}


def _check_kind(path: Path, layers: list[_Struct]) -> None:
    kinds = [layer.text("type") for layer in layers]
    normalized = sum(kind in {"lrn", "normalize"} for kind in kinds)
    if "bnorm" in kinds or normalized != NORMALIZED_LAYERS:
        seen = "batch normalization" if "bnorm" in kinds else f"{normalized} local response normalizations"
        raise errors.WrongKindOfFile(
            f"{path} has {seen}; CNN-F has two local response normalizations and no batch normalization. "
            f'The file "imagenet-matconvnet-vgg-f.mat" holds another network. {HINT}'
        )


def _filters_and_biases(layer: _Struct) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    if "weights" not in layer.names:
        return layer.array("filters"), layer.array("biases")
    cell = layer.array("weights").reshape(-1)
    if len(cell) < 2:
        raise errors.WrongShape(
            f'{layer.called}: "weights" has {len(cell)} parts; filters and biases are needed. {HINT}'
        )
    return np.asarray(cell[0]), np.asarray(cell[1])


def _mean(path: Path, content: Mapping[str, Any], *, swapped: bool) -> npt.NDArray[np.float32]:
    about = next(_normalizations(path, content), None)
    if about is None:
        raise errors.MissingContent(
            f'{path} has neither "normalization" nor "meta.normalization", which hold the mean image. {HINT}'
        )
    mean = _float32(about.array("averageImage"))
    if mean.size == 3:
        return np.ascontiguousarray(np.broadcast_to(mean.reshape(3, 1, 1), (3, SIDE_PIXELS, SIDE_PIXELS)))
    if mean.shape != (SIDE_PIXELS, SIDE_PIXELS, 3):
        raise errors.WrongShape(
            f'{path}: "averageImage" has the shape {mean.shape}; it should be ({SIDE_PIXELS}, {SIDE_PIXELS}, 3). {HINT}'
        )
    return np.ascontiguousarray(mean.transpose((2, 1, 0) if swapped else (2, 0, 1)))


def _normalizations(path: Path, content: Mapping[str, Any]) -> Iterator[_Struct]:
    """Yield the struct ``normalization``, which newer files hold inside ``meta``."""
    if "normalization" in content:
        yield _Struct(content["normalization"], f'{path}: "normalization"')
    if "meta" in content:
        meta = _Struct(content["meta"], f'{path}: "meta"')
        if "normalization" in meta.names:
            yield meta.struct("normalization")


def _float32(array: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    return np.asarray(array, np.float32)
