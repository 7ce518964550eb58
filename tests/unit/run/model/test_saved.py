"""The folder of a trained model: what is read when, which program runs the towers, and files that have changed."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from silohash.base.errors import (
    ChoiceNeeded,
    DamagedFile,
    DependencyMissing,
    MissingFile,
    ModelMissing,
    OtherVersion,
    UnknownName,
)
from silohash.base.files import digest_file, read_arrays, write_arrays, write_json
from silohash.base.types import MODALITIES
from silohash.run.folder import Run
from silohash.run.model.encoder import OnnxTowers
from silohash.run.model.saved import SavedModel
from silohash.run.model.torch_towers import TorchTowers
from silohash.run.model.trained import Weights
from tests.runs import BITS, train, write_archive

pytestmark = pytest.mark.whole_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("saved")
    return train(write_archive(folder / "archive", text="words"), folder / "run", federated={"rounds": 1})


@pytest.fixture
def copy(run: Run, tmp_path: Path) -> Path:
    """A copy of the model's folder that a test may damage."""
    return Path(shutil.copytree(run.model_folder, tmp_path / "model"))


def change_record(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    record = json.loads((folder / "model.json").read_text())
    change(record)
    write_json(folder / "model.json", record)


def test_a_search_reads_the_record_one_featurizer_and_one_onnx_file(run: Run, copy: Path) -> None:
    for name in ("features-image.safetensors", "image-000.onnx", "weights-000.safetensors"):
        (copy / name).write_bytes(b"never read")
    model = SavedModel.open(copy, lambda: pytest.fail("the config is not read"))
    code = model.encoder().encode("parrot harbour", "text")
    assert code.words.tolist() == run.model.trained.encoder().encode("parrot harbour", "text").words.tolist()
    assert (code.model_digest, code.bits) == (run.model.trained.digest(), BITS)
    assert (model.names, model.personalized, tuple(model.featurizers)) == (("global",), False, MODALITIES)


def test_onnxruntime_is_preferred_unless_torch_is_wanted(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(run.model.encoder().towers, OnnxTowers)
    assert isinstance(run.model.encoder(run_by="torch").towers, TorchTowers)
    monkeypatch.setitem(sys.modules, "torch", None)
    assert isinstance(run.model.encoder(run_by="torch").towers, OnnxTowers)


def test_a_model_without_onnx_files_needs_torch(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (copy / "text-000.onnx").unlink()
    assert isinstance(SavedModel.open(copy).encoder().towers, TorchTowers)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(DependencyMissing, match=r"needs.*torch.*silohash\[train"):
        SavedModel.open(copy).encoder()


def test_models_that_there_are_not(run: Run, tmp_path: Path) -> None:
    for ask in (run.model.encoder, run.model.digest):
        with pytest.raises(UnknownName, match=r"north.*global"):
            ask("north")
    assert run.model.deployed_by("north") == "global"
    assert run.model.shared_name() == "global"
    with pytest.raises(ModelMissing):
        SavedModel.open(tmp_path / "model")


@pytest.mark.parametrize("key", ["digests", "onnx", "without_onnx", "model_digests"])
def test_a_record_that_lacks_an_entry_is_damaged(copy: Path, key: str) -> None:
    change_record(copy, lambda record: record.pop(key))
    with pytest.raises(DamagedFile, match=r"model\.json"):
        SavedModel.open(copy)


def test_a_record_without_the_digest_of_a_model_or_of_a_file_is_damaged(copy: Path) -> None:
    change_record(copy, lambda record: record["digests"].pop("text-000.onnx"))
    with pytest.raises(DamagedFile, match=r"text-000\.onnx"):
        SavedModel.open(copy).encoder().encode("parrot", "text")
    change_record(copy, lambda record: record["model_digests"].clear())
    with pytest.raises(DamagedFile, match=r"model_digests.*lack"):
        SavedModel.open(copy)


def test_records_of_other_versions_and_damaged_ones(copy: Path) -> None:
    for version in (0, 2):
        change_record(copy, lambda record, version=version: record.update(format_version=version))
        with pytest.raises(OtherVersion, match=f"{version}.*1"):
            SavedModel.open(copy)
    (copy / "model.json").write_text("{")
    with pytest.raises(DamagedFile, match=r"model\.json"):
        SavedModel.open(copy)


@pytest.mark.parametrize("name", ["features-text.safetensors", "weights-000.safetensors", "text-000.onnx"])
def test_a_file_that_has_changed_is_refused(copy: Path, name: str) -> None:
    def use() -> None:
        """Read every file."""
        model = SavedModel.open(copy)
        model.encoder().encode("parrot", "text")
        assert model.trained

    use()
    again = rf"Restore it, or write it again: silohash resume {copy.parent}$"
    content = (copy / name).read_bytes()
    for damaged in (content[:-9], content[:-5] + bytes([content[-5] ^ 1]) + content[-4:]):
        (copy / name).write_bytes(damaged)
        with pytest.raises(DamagedFile, match=f"{name}.*{again}"):
            use()
    if not name.endswith(".onnx"):  # without an ONNX file, torch runs the towers
        (copy / name).unlink()
        with pytest.raises(MissingFile, match=f"{name}.*{again}"):
            use()


def test_weights_of_another_run_are_refused(copy: Path) -> None:
    """The file is whole and fits the towers, so only its digest shows that it is another one."""
    arrays, about = read_arrays(copy / "weights-000.safetensors")
    other = {name: array[..., ::-1].copy() for name, array in arrays.items()}
    write_arrays(copy / "weights-000.safetensors", other, about)
    with pytest.raises(DamagedFile):
        assert SavedModel.open(copy).trained


@pytest.mark.parametrize("name", ["features-text.safetensors", "weights-000.safetensors"])
def test_truncated_files_are_damaged_even_if_their_digests_match(copy: Path, name: str) -> None:
    (copy / name).write_bytes((copy / name).read_bytes()[:-9])
    change_record(copy, lambda record: record["digests"].update({name: digest_file(copy / name)}))
    with pytest.raises(DamagedFile, match=rf"{name} is damaged"):
        assert SavedModel.open(copy).trained


def test_a_known_config_is_used_if_it_is_the_models(run: Run, copy: Path) -> None:
    assert run.model.trained.resolved is run.resolved
    change_record(copy, lambda record: record["config"].update(seed=77))
    other = SavedModel.open(copy, lambda: run.resolved)
    assert other.trained.config.seed == 77


def test_personal_models(run: Run, tmp_path: Path) -> None:
    trained = run.model.trained
    changed = {name: array + 1 for name, array in trained.weights["global"].params.items()}
    both = replace(trained, weights={**trained.weights, "silo-0": Weights(params=changed, extras={})})
    both.save(tmp_path / "model")
    model = SavedModel.open(tmp_path / "model")
    assert model.personalized
    assert (model.deployed_by("silo-0"), model.deployed_by("silo-1")) == ("silo-0", "global")
    for name in ("global", "silo-0"):
        assert model.digest(name) == both.digest(name)
        assert model.name_of(model.digest(name)) == name
    with pytest.raises(ModelMissing, match="nonsense"):
        model.name_of("nonsense")
    with pytest.raises(ChoiceNeeded, match="silo-0"):
        model.shared_name()


def test_featurizers_are_read_once(run: Run, copy: Path) -> None:
    featurizers = SavedModel.open(copy).featurizers
    assert featurizers["text"] is featurizers["text"]
    assert len(featurizers) == 2
    change_record(copy, lambda record: record.update(modalities=["text"]))
    only = SavedModel.open(copy).featurizers
    assert list(only) == ["text"]
    assert "image" not in only
    assert json.dumps(only["text"].state()[1], sort_keys=True) == json.dumps(
        run.model.featurizers["text"].state()[1], sort_keys=True
    )


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda record: record["spec"]["towers"].pop("image"), "image"),
        (lambda record: record.update(weights=["globe"]), None),
        (
            lambda record: record["config"]["local"].update(bits=7),
            r"7.*8.*256",
        ),
        (lambda record: record["config"]["local"].update(name="dcmg"), "config: .*dcmg"),
        (
            lambda record: record["spec"]["towers"]["text"].update(shape=[3]),
            "3",
        ),
        (lambda record: record["spec"]["towers"]["text"].update(hidden=17), "shape"),
        (lambda record: record["spec"]["towers"]["text"].update(shape=[]), None),
    ],
)
def test_records_that_contradict_themselves_or_the_files(
    copy: Path, change: Callable[[dict[str, Any]], object], says: str | None
) -> None:
    change_record(copy, change)
    with pytest.raises(DamagedFile, match=says):
        SavedModel.open(copy).encoder(run_by="torch").encode("parrot", "text")
