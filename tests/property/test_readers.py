"""No file, however damaged, ends a reader of ours with anything but a `UserError` that names the file.

``SILOHASH_FUZZ=2000 pytest tests/property/test_readers.py`` tries more examples per reader than the tests do by default.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import tomlkit
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from silohash import features
from silohash.base.errors import UserError
from silohash.base.files import digest_file, write_json
from silohash.data.formats.folder import read_folder
from silohash.data.formats.native import read_native, write_native
from silohash.data.partitions.base import read_partition
from silohash.data.pictures.reading import PackedPictures
from silohash.features import cache as pixels
from silohash.features.cache import NetworkVectors, PixelCache
from silohash.features.image import PixelFeatures
from silohash.features.model_folder import sentence_rule
from silohash.features.preprocess import read_preparation
from silohash.index.listing import read_listing
from silohash.index.source import PictureSource
from silohash.index.store import Store
from silohash.measure.evaluation import read_per_query
from silohash.methods.message import Message
from silohash.report.examples import read_examples
from silohash.report.finish import finish_run
from silohash.report.gather import facts, radius_curves
from silohash.report.tables import read_results
from silohash.run.config.load import load_resolved
from silohash.run.events import read_rounds
from silohash.run.folder import Run
from silohash.run.indexing import index_run
from silohash.run.model.saved import SavedModel
from silohash.search.inputs import read_input
from silohash.search.policy import read_policy
from silohash.study.config import load_study
from silohash.study.plan import read_best
from silohash.training.checkpoint import load_checkpoint
from tests.archives import drawn_pictures, made_up_archive
from tests.mutations import changed_bytes, changed_json, changed_json_lines, changed_safetensors, changed_value
from tests.runs import train, write_archive
from tests.studies import tiny_study

FEWEST_WORDS = 5
EXAMPLES = int(os.environ.get("SILOHASH_FUZZ", "12"))
FUZZ = settings(
    max_examples=EXAMPLES, deadline=None, derandomize="SILOHASH_FUZZ" not in os.environ, database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)  # fmt: skip


PREPARATION = {
    "do_resize": True, "size": {"height": 8, "width": 8}, "resample": 2, "do_rescale": True, "rescale_factor": 1 / 255,
    "do_normalize": True, "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5], "do_center_crop": False,
}  # fmt: skip


@dataclass(frozen=True)
class Scratch:
    """Intact files of every kind, and a digest that a checkpoint needs."""

    folder: Path
    digest: str

    @property
    def run(self) -> Run:
        """The run, with nothing of it read yet."""
        return Run(self.folder / "run")


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Scratch:
    """Write intact files of every kind."""
    folder = tmp_path_factory.mktemp("files")
    archive = write_archive(folder / "archive", text="words", count=60)
    run = train(archive, folder / "run", federated={"rounds": 2, "local_epochs": 1})
    finish_run(run)
    index_run(run)
    (folder / "run" / "policies").mkdir()
    policy = 'max_results = 5\nfields = ["caption"]\nmodalities = ["text"]\n'
    (folder / "run" / "policies" / "silo-1.toml").write_text(policy)
    shutil.copytree(run.model_folder, folder / "matching" / "model", ignore=shutil.ignore_patterns("*.onnx"))
    write_native(folder / "native", made_up_archive(30))
    packed = folder / "packed"
    packed.mkdir()
    pictures = [png(number) for number in range(3)]
    offsets = np.cumsum([0, *map(len, pictures)])
    np.savez(packed / "images-000.npz", data=np.frombuffer(b"".join(pictures), np.uint8), offsets=offsets)
    (folder / "study.toml").write_text(tomlkit.dumps(tiny_study(archive)))
    (folder / "best.toml").write_text('[FedAvg]\ntrial = 3\ntrials = 5\nvalidation = 0.5\nset = {"local.bits" = 16}\n')
    (folder / "words.txt").write_text("parrot\nharbour\n")
    np.save(folder / "vector.npy", np.zeros(16, np.float32))
    (folder / "picture.png").write_bytes(png(9))
    unfitted = PixelFeatures(8, 3)
    summed = unfitted.statistics(drawn_pictures(30), np.arange(30))
    features.save(unfitted.fitted(summed), folder / "features-pixels.safetensors")
    PictureSource(folder / "archive", ".").write(folder / "run/index/silo-1")
    network = folder / "network"
    write_json(network / "preprocessor_config.json", PREPARATION)
    write_json(
        network / "1_Pooling" / "config.json", {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}
    )
    write_json(network / "modules.json", [{"idx": 0, "type": "sentence_transformers.models.Transformer"}])
    write_json(network / "sentence_bert_config.json", {"max_seq_length": 128})
    message = Message(kind="update", sender="north", round=1, params={"w": np.ones((2, 3))}, counts={"items": 3})
    (folder / "message.bin").write_bytes(message.encode())
    return Scratch(folder, run.config.digest())


def png(seed: int) -> bytes:
    """Return a small picture file."""
    stream = io.BytesIO()
    noise = np.random.default_rng(seed).integers(0, 255, (9, 9, 3)).astype(np.uint8)
    Image.fromarray(noise).save(stream, "PNG")
    return stream.getvalue()


def all_of_index(scratch: Scratch) -> None:
    path = scratch.folder / "run/index/silo-1/image.sqlite"
    with Store(path) as store:
        index = store.load()
        names = store.item_ids(index.keys)
        store.payloads(index.keys)
        store.previews(names)
        store.label_keys()


def encoded(scratch: Scratch, run: str = "run") -> None:
    for run_by in ("any", "torch"):
        encoder = SavedModel.open(scratch.folder / run / "model").encoder(run_by=run_by)
        encoder.encode("a parrot in a tram", "text")
        encoder.encode(np.ones(16, np.float32), "image")


def encoded_under_matching_digests(scratch: Scratch) -> None:
    """Encodes with a model whose record has the digests of the damaged files, so that these are read."""
    model = scratch.folder / "matching" / "model"
    record = json.loads((model / "model.json").read_text())
    record["digests"] = {path.name: digest_file(path) for path in model.glob("*.safetensors")}
    write_json(model / "model.json", record)
    encoded(scratch, "matching")


def pixel_features(scratch: Scratch) -> None:
    restored = features.load(scratch.folder / "features-pixels.safetensors")
    restored.encode_one(Image.new("RGB", (10, 10)))


def packed_pictures(scratch: Scratch) -> None:
    pictures = PackedPictures(scratch.folder / "packed")
    for row in range(len(pictures)):
        pictures.picture(row)


def whole_native(scratch: Scratch) -> None:
    archive = read_native(scratch.folder / "native")
    for column in (archive.image, archive.text):
        if column is not None:
            _ = [column.picture(row) if hasattr(column, "picture") else column[row] for row in range(len(archive))]


def resumed(scratch: Scratch) -> object:
    return load_checkpoint(scratch.folder / "run/checkpoint", scratch.digest)


Read = Callable[[Scratch], object]
BYTES, JSON, LINES, TENSORS, TOML = "bytes", "JSON", "lines", "tensors", "TOML"
READERS: dict[str, tuple[Read, tuple[str, ...]]] = {
    "run/config.toml": (lambda s: load_resolved(s.folder / "run/config.toml"), (BYTES, TOML)),
    "run/partition.json": (lambda s: read_partition(s.folder / "run/partition.json"), (BYTES, JSON)),
    "run/environment.json": (lambda s: facts(s.run), (BYTES, JSON)),
    "run/curves.json": (lambda s: radius_curves(s.run), (BYTES, JSON)),
    "run/examples.json": (lambda s: read_examples(s.run.examples_path), (BYTES, JSON)),
    "run/rounds.jsonl": (lambda s: read_rounds(s.run.rounds_path), (BYTES, LINES)),
    "run/results.csv": (lambda s: read_results(s.run.results_path), (BYTES,)),
    "run/per_query.safetensors": (lambda s: read_per_query(s.run.per_query_path), (BYTES, TENSORS)),
    "run/checkpoint/state.json": (resumed, (BYTES, JSON)),
    "run/checkpoint/server.safetensors": (resumed, (BYTES, TENSORS)),
    "run/checkpoint/silos.safetensors": (resumed, (BYTES, TENSORS)),
    "run/model/model.json": (encoded, (BYTES, JSON)),
    "run/model/weights-000.safetensors": (encoded, (BYTES,)),
    "matching/model/weights-000.safetensors": (encoded_under_matching_digests, (BYTES, TENSORS)),
    "matching/model/features-image.safetensors": (encoded_under_matching_digests, (BYTES, TENSORS)),
    "matching/model/features-text.safetensors": (encoded_under_matching_digests, (BYTES, TENSORS)),
    "features-pixels.safetensors": (pixel_features, (BYTES, TENSORS)),
    "run/index/silo-1/image.sqlite": (all_of_index, (BYTES,)),
    "run/policies/silo-1.toml": (lambda s: read_policy(s.folder / "run/policies/silo-1.toml"), (BYTES, TOML)),
    "archive/metadata.csv": (lambda s: read_folder(s.folder / "archive"), (BYTES,)),
    "archive/image.npy": (lambda s: read_folder(s.folder / "archive"), (BYTES,)),
    "native/manifest.json": (whole_native, (BYTES, JSON)),
    "native/ids.txt": (whole_native, (BYTES,)),
    "packed/images-000.npz": (packed_pictures, (BYTES,)),
    "study.toml": (lambda s: load_study(s.folder / "study.toml"), (BYTES, TOML)),
    "best.toml": (lambda s: read_best(s.folder / "best.toml"), (BYTES, TOML)),
    "vector.npy": (lambda s: read_input(vector=s.folder / "vector.npy"), (BYTES,)),
    "picture.png": (lambda s: read_input(image=s.folder / "picture.png"), (BYTES,)),
    "network/preprocessor_config.json": (lambda s: read_preparation(s.folder / "network"), (BYTES, JSON)),
    "network/1_Pooling/config.json": (lambda s: sentence_rule(s.folder / "network"), (BYTES, JSON)),
    "network/modules.json": (lambda s: sentence_rule(s.folder / "network"), (BYTES, JSON)),
    "network/sentence_bert_config.json": (lambda s: sentence_rule(s.folder / "network"), (BYTES, JSON)),
    "run/index/silos.json": (lambda s: read_listing(s.folder / "run/index"), (BYTES, JSON)),
    "run/index/silo-1/source.json": (lambda s: PictureSource.read(s.folder / "run/index/silo-1"), (BYTES, JSON)),
    "message.bin": (lambda s: Message.decode((s.folder / "message.bin").read_bytes()), (BYTES,)),
}
"""File -> its reader, and the ways in which the file is damaged."""


def damaged(content: bytes, how: str) -> st.SearchStrategy[bytes]:
    """Return a strategy of damaged contents."""
    if how == TOML:
        value = tomlkit.parse(content.decode()).unwrap()
        return changed_value(value).map(as_toml).filter(bool)
    return {BYTES: changed_bytes, JSON: changed_json, LINES: changed_json_lines, TENSORS: changed_safetensors}[how](
        content
    )


def as_toml(value: object) -> bytes:
    """Return a value as TOML; empty where TOML has no such value."""
    try:
        return tomlkit.dumps(value).encode() if isinstance(value, dict) else b""
    except (TypeError, ValueError):
        return b""


@pytest.mark.whole_run
@pytest.mark.parametrize(("name", "how"), [(name, how) for name, (_, ways) in READERS.items() for how in ways])
@FUZZ
@given(data=st.data())
def test_damage_ends_in_a_sentence(scratch: Scratch, name: str, how: str, data: st.DataObject) -> None:
    path = scratch.folder / name
    content = path.read_bytes()
    path.write_bytes(data.draw(damaged(content, how), label="content"))
    try:
        sentence = sentence_of(READERS[name][0], scratch)
    finally:
        restore(path, content)
    assert not sentence or len(sentence.split()) > FEWEST_WORDS


def sentence_of(read: Read, scratch: Scratch) -> str:
    """Return how a file is refused; empty if it is read."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            read(scratch)
    except UserError as error:
        return str(error)
    return ""


def restore(path: Path, content: bytes) -> None:
    """Write the intact content again, without the files that SQLite leaves beside a damaged index."""
    path.write_bytes(content)
    for ending in ("-wal", "-shm"):
        path.with_name(path.name + ending).unlink(missing_ok=True)


@pytest.mark.whole_run
def test_intact_files_are_read(scratch: Scratch) -> None:
    for name, (read, _) in READERS.items():
        assert (scratch.folder / name).is_file(), name
        assert sentence_of(read, scratch) == "", name


def pixel_cache(folder: Path) -> np.ndarray:
    """Return decoded pictures from a cache in a folder, which is written if it is not there or damaged."""
    pixels._checked.clear()  # what this process has checked is not read again
    cache = PixelCache(folder, notify=lambda line: None)
    found = cache.decoded("entry", (2, 1, 3, 3), lambda row: np.full((1, 3, 3), row + 1, np.uint8))
    assert found is not None
    return np.array(found.pixels)


def vectors(folder: Path) -> np.ndarray:
    """Return vectors from a cache in a folder, computed again where it is damaged."""
    digests = ["0" * 32, "1" * 32]
    blocks = NetworkVectors(folder, 3, notify=lambda line: None)
    lacking = blocks.missing(digests)
    blocks.add([digests[place] for place in lacking], np.array([[place + 1.0] * 3 for place in lacking], np.float32))
    blocks.flush()
    return blocks.take(digests)


CACHES: dict[str, tuple[Callable[[Path], np.ndarray], str, tuple[str, ...]]] = {
    "pixels": (pixel_cache, "entry/about.json", (BYTES, JSON)),
    "readable": (pixel_cache, "entry/readable.npy", (BYTES,)),
    "vectors": (vectors, "*.safetensors", (BYTES, TENSORS)),
}


@pytest.mark.parametrize(("name", "how"), [(name, how) for name, (_, _, ways) in CACHES.items() for how in ways])
@FUZZ
@given(data=st.data())
def test_damaged_caches_are_replaced(
    tmp_path_factory: pytest.TempPathFactory, name: str, how: str, data: st.DataObject
) -> None:
    read, pattern, _ = CACHES[name]
    folder = tmp_path_factory.mktemp("cache")
    intact = read(folder)
    [path] = folder.glob(pattern)
    content = path.read_bytes()
    path.write_bytes(data.draw(damaged(content, how), label="content"))
    assert np.array_equal(read(folder), intact)
    assert np.array_equal(read(folder), intact)
