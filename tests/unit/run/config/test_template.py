"""The config that a user starts from: every key, the archive's tasks, the method's presets and tables."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from silohash.base.errors import MissingFile, ModalityNeeded, UnknownName
from silohash.base.registry import suggestion
from silohash.run.config.load import load_config
from silohash.run.config.sections import RunConfig
from silohash.run.config.template import BACKBONES, config_template, feature_tables, find_backbone
from tests.backbones import clip, vit
from tests.runs import write_archive


def test_template_is_a_config_with_every_key(tmp_path: Path) -> None:
    file = tmp_path / "new.toml"
    text = config_template(file, local="dcmh", federated="fedavg", data=str(tmp_path / "pictures"))
    assert text.startswith(f"# silohash train {file} --out runs/new\n")
    file.write_text(text, encoding="utf-8")
    config = load_config(file)
    assert config.data.path == tmp_path / "pictures"
    assert config.model_copy(update={"data": None}) == RunConfig(data=config.data).model_copy(update={"data": None})
    for name in ("anchors", "balance_weight", "weighting", "rounds", "validation", "clip_norm"):
        assert f"{name} = " in text


@pytest.mark.parametrize(
    ("image", "text", "tasks", "said"),
    [
        ("given", None, ("i2i",), "The archive has only the modality image."),
        (None, "words", ("t2t",), "The archive has only the modality text."),
        ("given", "words", ("i2t", "t2i"), "# Retrieval tasks: i2t, t2i, i2i, t2t, from"),
    ],
)
def test_template_has_the_tasks_of_its_archive(
    tmp_path: Path, image: str | None, text: str | None, tasks: tuple[str, ...], said: str
) -> None:
    archive = write_archive(tmp_path / "archive", count=30, image=image, text=text)
    written = config_template(tmp_path / "new.toml", local="triplet", federated="fedhap", data=str(archive))
    (tmp_path / "new.toml").write_text(written, encoding="utf-8")
    assert load_config(tmp_path / "new.toml").evaluate.tasks == tasks
    assert said in written


@pytest.mark.parametrize(("labeled", "local"), [(True, "centerap"), (False, "ucch")])
def test_template_without_a_local_method_takes_one_that_the_archive_allows(
    tmp_path: Path, labeled: bool, local: str
) -> None:
    archive = write_archive(tmp_path / "archive", count=30, text="words", labeled=labeled)
    written = config_template(tmp_path / "new.toml", local="", federated="fedavg", data=str(archive))
    (tmp_path / "new.toml").write_text(written, encoding="utf-8")
    assert load_config(tmp_path / "new.toml").local.name == local


def test_template_names_the_languages_of_the_texts(tmp_path: Path) -> None:
    file = tmp_path / "new.toml"
    file.write_text(config_template(file, local="", federated="fedavg", data="glyphs"), encoding="utf-8")
    assert load_config(file).features.text == {"kind": "tfidf", "analysis": "unicode-1", "languages": ["en"]}
    assert "Found in the texts: English (en)." in file.read_text(encoding="utf-8").replace("\n# ", " ")
    pictures = write_archive(tmp_path / "given", count=12, text="given")
    file.write_text(config_template(file, local="dcmh", federated="fedavg", data=str(pictures)), encoding="utf-8")
    assert load_config(file).features.text == {}


def test_template_for_an_archive_that_is_not_there_says_which_tasks_there_are(tmp_path: Path) -> None:
    written = config_template(tmp_path / "new.toml", local="dcmh", federated="fedavg", data=str(tmp_path / "no"))
    assert (
        '["i2i"] if there are only images, and ["t2t"] if there\n# are only texts.\ntasks = ["i2t", "t2i"]\n' in written
    )


def test_template_offers_the_tables_of_a_method_that_averages(tmp_path: Path) -> None:
    file = tmp_path / "new.toml"
    written = config_template(file, local="dcmh", federated="fedavg", data="glyphs")
    assert '\n# robust = {rule = "median"' in written
    assert '\n# server = {optimizer = "fedavgm"' in written
    assert "\n# weight_cap = 0.4\n" in written
    assert "\n# norm_limit = 5.0\n" in written
    file.write_text(written.replace("# robust =", "robust =").replace("# server =", "server ="), encoding="utf-8")
    federated = load_config(file).federated
    assert federated.robust is not None
    assert federated.server is not None
    assert (federated.robust.rule, federated.server.optimizer) == ("median", "fedavgm")
    without = config_template(file, local="dcmh", federated="fedproto", data="glyphs")
    assert "# robust =" not in without
    assert "[exchange]" not in without


def test_template_offers_to_compress_what_silos_send(tmp_path: Path) -> None:
    file = tmp_path / "new.toml"
    written = config_template(file, local="dcmh", federated="plfedcmh", data="glyphs")
    assert '\n# encryption = "ckks"\n' in written
    file.write_text(written.replace("# compression =", "compression ="), encoding="utf-8")
    compression = load_config(file).exchange.compression
    assert compression is not None
    assert (compression.kind, compression.share) == ("half", 0.1)


@pytest.mark.parametrize(
    ("federated", "presets"),
    [
        ("compose", "`recommended`"),
        ("fedhap", "`recommended` and `paper`"),
        ("fedcafe", "`recommended`, `paper` and `authors_code`"),
    ],
)
def test_template_offers_the_presets_that_there_are(tmp_path: Path, federated: str, presets: str) -> None:
    written = config_template(tmp_path / "new.toml", local="dcmh", federated=federated, data="glyphs")
    assert f"# Presets of {federated}: {presets}." in written
    assert "# Presets of dcmh: `recommended` and `paper`." in written


def test_template_for_a_method_that_there_is_not(tmp_path: Path) -> None:
    with pytest.raises(UnknownName):
        config_template(tmp_path / "new.toml", local="dcmm", federated="fedavg", data="glyphs")
    assert suggestion("x", []) == ""


def test_template_with_a_backbone_has_a_table_per_modality_and_downloads_nothing(tmp_path: Path) -> None:
    file = tmp_path / "new.toml"
    written = config_template(file, local="dcmh", federated="fedavg", data=str(tmp_path / "no"), backbone="clip")
    file.write_text(written, encoding="utf-8")
    features = load_config(file).features
    table = {"kind": "huggingface", "model": "laion/CLIP-ViT-B-32-laion2B-s34B-b79K", "download": False}
    assert (features.image, features.text) == (table, table)
    assert "605 MB" in written
    assert max(map(len, written.splitlines())) <= 120
    assert written.index("[features.text]") < written.index("\n[model]\n")
    allowed = load_config(file, ["features.image.download=true"]).features
    assert (allowed.image["download"], allowed.text["download"]) == (True, False)


def test_template_with_a_backbone_leaves_a_missing_modality_out(tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "archive", count=30, image=None, text="words")
    file = tmp_path / "new.toml"
    written = config_template(file, local="dcmh", federated="fedavg", data=str(archive), backbone="clip")
    file.write_text(written, encoding="utf-8")
    features = load_config(file).features
    assert (features.image, features.text["kind"]) == ({}, "huggingface")
    with pytest.raises(UnknownName):
        config_template(file, local="dcmh", federated="fedavg", data=str(archive), backbone="siglp")


@pytest.mark.parametrize(("items", "batch", "epochs"), [(30, 8, 10), (240, 8, 10), (960, 32, 10), (3300, 128, 2)])
def test_template_for_few_items_has_smaller_batches_and_more_epochs(
    tmp_path: Path, items: int, batch: int, epochs: int
) -> None:
    archive = write_archive(tmp_path / "archive", count=items, text="words")  # five of six are training items
    file = tmp_path / "new.toml"
    file.write_text(config_template(file, local="dcmh", federated="fedavg", data=str(archive)), encoding="utf-8")
    config = load_config(file)
    assert (config.train.batch, config.federated.local_epochs) == (batch, epochs)


BOTH = ("image", "text")


def test_names_are_found_and_a_wrong_one_suggests_the_closest(tmp_path: Path) -> None:
    for name, backbone in BACKBONES.items():
        assert find_backbone(name, tmp_path / "run.toml") is backbone
        assert set(backbone.megabytes) == set(backbone.models.values())
    with pytest.raises(UnknownName) as error:
        find_backbone("clpi", tmp_path / "run.toml")
    assert str(error.value).startswith(
        'There is no backbone "clpi" (did you mean "clip"?). Choose clip, clip-large, siglip'
    )


@pytest.mark.parametrize("name", BACKBONES)
def test_tables_are_toml_and_state_the_size_of_every_download_once(name: str) -> None:
    backbone = BACKBONES[name]
    tables = feature_tables(backbone, BOTH)
    assert [modality for modality, _, _ in tables] == [m for m in BOTH if m in backbone.models]
    words = " ".join(paragraph for _, paragraphs, _ in tables for paragraph in paragraphs)
    assert words.startswith(backbone.summary)
    assert words.count("Nothing is downloaded unless download is true.") == len(set(backbone.models.values()))
    for modality, _, keys in tables:
        assert tomllib.loads(keys) == {"kind": "huggingface", "model": backbone.models[modality]}


def test_sizes_have_units() -> None:
    (_, clip_words, _), (_, again, _) = feature_tables(BACKBONES["clip"], BOTH)
    assert "Then 605 MB are fetched from huggingface.co/laion/CLIP-ViT-B-32-laion2B-s34B-b79K" in clip_words[1]
    assert "Then 1.7 GB are" in feature_tables(BACKBONES["clip-large"], BOTH)[0][1][1]
    assert again == ["The same network, which is downloaded only once."]
    (_, small, _), (_, texts, _) = feature_tables(BACKBONES["dinov2+minilm"], BOTH)
    assert "Then 88 MB are fetched from huggingface.co/facebook/dinov2-small" in small[1]
    assert "Then 91 MB are fetched from huggingface.co/sentence-transformers/all-MiniLM-L6-v2" in texts[0]


def test_only_the_modalities_of_the_archive_get_tables() -> None:
    assert [modality for modality, _, _ in feature_tables(BACKBONES["clip"], ("text",))] == ["text"]
    with pytest.raises(ModalityNeeded, match=r"image.*text"):
        feature_tables(BACKBONES["dinov2"], ("text",))


def test_a_folder_is_used_for_what_it_holds(tmp_path: Path) -> None:
    file = tmp_path / "configs" / "run.toml"
    file.parent.mkdir()
    both = find_backbone(str(clip(tmp_path / "clip")), file)
    assert (dict(both.models), dict(both.megabytes)) == ({"image": "../clip", "text": "../clip"}, {})
    pictures = find_backbone(str(vit(tmp_path / "vit")), file)
    assert dict(pictures.models) == {"image": "../vit"}
    (table,) = feature_tables(pictures, BOTH)
    assert table[2] == 'kind = "huggingface"\nmodel = "../vit"\n'
    assert not any("download" in paragraph for paragraph in table[1])


@pytest.mark.parametrize("name", ["config.json", "preprocessor_config.json"])
def test_a_folder_without_a_model_is_refused(tmp_path: Path, name: str) -> None:
    (vit(tmp_path / "model") / name).unlink()
    with pytest.raises(MissingFile, match=r"config\.json"):
        find_backbone(str(tmp_path / "model"), tmp_path / "run.toml")
