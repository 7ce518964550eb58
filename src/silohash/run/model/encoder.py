"""From items to codes: featurizer, towers, signs.

An `Encoder` does not depend on the program that runs the towers. `silohash.run.model.torch_towers` runs them with torch and
`silohash.run.model.encoder` runs them with onnxruntime. Both include the federated method's adaptation of the outputs.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from silohash.base.analysis import UNICODE, WORDS, Analysis
from silohash.base.errors import CannotEncode, UserError
from silohash.base.types import Modality, Rows, Side
from silohash.data.archive import Archive
from silohash.features.base import Featurizer, Value
from silohash.features.onnx_session import open_session, run_session
from silohash.features.text import BagOfWords
from silohash.features.vectors import vectors
from silohash.index.codes import Codes, magnitudes_of, pack

Vectors: TypeAlias = npt.NDArray[np.generic]
"""A featurizer's vectors, ``(n, *shape)``."""

Labels: TypeAlias = npt.NDArray[np.uint8]
"""True labels of some items, ``(n, C)`` multi-hot."""


class Towers(Protocol):
    """The towers of one trained model, ready to run."""

    def outputs(self, values: Vectors, modality: Modality, labels: Labels | None = None) -> npt.NDArray[np.float32]:
        """Return the real-valued outputs whose signs are the codes, ``(n, bits)`` float32.

        Args:
            values: A featurizer's vectors, ``(n, *shape)``, at least one.
            modality: Their modality.
            labels: The true labels of the items, for models that encode items with them.
        """
        ...


@dataclass(eq=False)
class Encoder:
    """One model that turns the items of an archive, or one query, into codes.

    Attributes:
        towers: The towers with the federated method's adaptation.
        featurizers: One fitted featurizer per modality of the model.
        bits: Code length.
        digest: Digest of everything that decides the codes.
        label_sides: The sides of a search whose items are encoded with their true labels; usually none.
        label_free: Setting with which a model is trained that encodes no side with labels.
    """

    towers: Towers
    featurizers: Mapping[Modality, Featurizer]
    _: KW_ONLY
    bits: int
    digest: str
    label_sides: tuple[Side, ...] = ()
    label_free: str = ""

    @property
    def analysis(self) -> Analysis:
        """The analysis of the words of items: the one for all scripts, with the languages of the model's texts if known."""
        texts = self.featurizers.get("text")
        read = texts.rule.analysis if isinstance(texts, BagOfWords) else UNICODE
        return Analysis(languages=("en",) if read == WORDS else read.languages)

    def codes(self, archive: Archive, rows: Rows, modality: Modality) -> Codes:
        """Return the codes of some items of an archive as database items; each must have the modality.

        Raises:
            UserError: If the model does not have the modality, or needs the labels of the items and there are none.
        """
        self._check(modality)
        labels = self.labels_for("database", archive, rows)
        return self.codes_of(vectors(archive, self.featurizers[modality], rows), modality, archive.ids[rows], labels)

    def labels_for(self, side: Side, archive: Archive, rows: Rows) -> Labels | None:
        """Return the true labels with which items of a side are encoded, ``(n, C)``, or None if they are not used.

        Raises:
            UserError: If they are used and the archive has none.
        """
        if side not in self.label_sides:
            return None
        return archive.required_labels(
            'with which the model encodes items. Add a column "labels" to its metadata, or train with '
            f"{self.label_free}."
        )[rows]

    def check_without_labels(self, what: str) -> None:
        """Check that items are encoded without their labels. ``what`` is the beginning of the message if they are not.

        Raises:
            UserError: If a side needs labels.
        """
        if self.label_sides:
            raise CannotEncode(
                f"{what} because the model encodes items of the {' and the '.join(self.label_sides)} with their true "
                f"labels. Train with {self.label_free}."
            )

    def encode(self, value: Value, modality: Modality) -> Codes:
        """Return the code of one text, image or feature vector.

        Raises:
            UserError: If the model does not have the modality or needs the labels of queries, or the query is of the
                wrong kind.
        """
        return self._coded(self._query_outputs([value], modality), modality, np.asarray(["query"]))

    def encode_queries(self, values: Sequence[Value], modality: Modality) -> Codes:
        """Return the codes of texts, images or feature vectors, whose ids are their places. For errors see `encode`."""
        ids = np.asarray([str(place) for place in range(len(values))], np.str_)
        return self._coded(self._query_outputs(values, modality), modality, ids)

    def encode_all(self, values: Mapping[Modality, Value], text_weight: float) -> Codes:
        """Return the code of one value or, of two, the code of the weighted sum of their outputs, each divided by its norm.

        The weights are ``text_weight`` and the rest. The exceptions are those of `encode`.
        """
        modality = next(iter(values))
        if len(values) == 1:
            return self.encode(values[modality], modality)
        total = np.zeros((1, self.bits))
        for name, value in values.items():
            outputs = self._query_outputs([value], name).astype(np.float64)
            weight = text_weight if name == "text" else 1 - text_weight
            total += weight * outputs / max(float(np.linalg.norm(outputs)), np.finfo(np.float64).tiny)
        return self._coded(total, modality, np.asarray(["query"]))

    def _query_outputs(self, values: Sequence[Value], modality: Modality) -> npt.NDArray[np.float32]:
        """Return the outputs of queries, ``(n, bits)``. The exceptions are those of `encode`."""
        self._check(modality)
        if "query" in self.label_sides:
            raise CannotEncode(
                "The model encodes queries with their true labels, which a search does not have. Train with "
                f"{self.label_free} to search."
            )
        vectors = [self.featurizers[modality].encode_one(value) for value in values]
        return self.outputs(np.concatenate(vectors) if vectors else np.zeros((0, 1), np.float32), modality)

    def codes_of(
        self, values: Vectors, modality: Modality, ids: npt.NDArray[np.str_], labels: Labels | None = None
    ) -> Codes:
        """Return the codes of a featurizer's vectors, ``(n, *shape)``; ``labels`` as `labels_for` returns them."""
        return self._coded(self.outputs(values, modality, labels), modality, ids)

    def _coded(self, outputs: npt.NDArray[np.floating[Any]], modality: Modality, ids: npt.NDArray[np.str_]) -> Codes:
        """Return the codes of outputs, ``(n, bits)``."""
        about: dict[str, Any] = {"bits": self.bits, "modality": modality, "model_digest": self.digest}
        return Codes(words=pack(outputs), ids=ids, magnitudes=magnitudes_of(outputs), **about)

    def outputs(self, values: Vectors, modality: Modality, labels: Labels | None = None) -> npt.NDArray[np.float32]:
        """Return the outputs, ``(n, bits)`` float32, whose signs are the codes of a featurizer's vectors ``(n, *shape)``."""
        if not len(values):
            return np.zeros((0, self.bits), np.float32)
        return self.towers.outputs(values, modality, labels)

    def warm_up(self, modality: Modality) -> None:
        """Encode one blank item of a modality, so that its tower is loaded and the next item is encoded fast.

        Raises:
            UserError: If the tower cannot be read, or the model does not have the modality.
        """
        from PIL import Image

        self._check(modality)
        featurizer = self.featurizers[modality]
        try:
            values = featurizer.encode_one("a" if modality == "text" else Image.new("L", (32, 32), "white"))
        except UserError:  # it takes vectors, or texts with a known word
            values = np.zeros((1, *featurizer.shape), np.float32)
        if not self.label_sides:
            self.outputs(values, modality)

    def _check(self, modality: Modality) -> None:
        if modality not in self.featurizers:
            raise CannotEncode(
                f"The model was trained without {modality} data and encodes only {' and '.join(self.featurizers)}. "
                f"Ask with {' or '.join(self.featurizers)} instead."
            )


class OnnxTowers:
    """The towers of one model, as adapted, run by onnxruntime. A modality's file is read when it is first encoded."""

    def __init__(self, content: Callable[[Modality], bytes]) -> None:
        self._content = content
        self._sessions: dict[Modality, Any] = {}

    def outputs(self, values: Vectors, modality: Modality, labels: Labels | None = None) -> npt.NDArray[np.float32]:
        """Return the outputs, see `Towers.outputs`. Labels must be None: models that use them have no ONNX files."""
        assert labels is None  # noqa: S101  see `Encoder.check_without_labels`
        if modality not in self._sessions:
            self._sessions[modality] = open_session(self._content(modality))
        return run_session(self._sessions[modality], values)
