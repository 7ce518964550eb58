"""Configs: what is refused and how it is said, overrides, TOML and back, what the digest covers."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from silohash.base import registry
from silohash.base.errors import (
    InvalidFile,
    MissingFile,
    WrongForm,
    WrongKindOfFile,
    WrongKindOfPath,
    WrongOverride,
    WrongValue,
)
from silohash.base.registry import AddedMember
from silohash.run.config.load import cards_of, evaluate_config, load_config, load_resolved, read_config
from silohash.run.config.toml import to_toml

GLYPHS = {"data": {"name": "glyphs"}}


def said(section: str | None, **values: object) -> str:
    """The sentence that a config is refused with."""
    config = {**GLYPHS, **values} if section is None else {**GLYPHS, section: {**GLYPHS.get(section, {}), **values}}
    with pytest.raises(WrongValue) as error:
        load_config(config)
    text = str(error.value)
    assert text.startswith("the config: ")
    assert "\n" not in text
    return text


@pytest.mark.parametrize(
    ("section", "typed", "meant"),
    [
        (None, "fedrated", "federated"),
        ("data", "nam", "name"),
        ("features", "imag", "image"),
        ("model", "hiden", "hidden"),
        ("local", "bit", "bits"),
        ("local", "quantisation_weight", "quantization_weight"),
        ("federated", "round", "rounds"),
        ("federated", "weightin", "weighting"),
        ("train", "learning_rat", "learning_rate"),
        ("evaluate", "mesures", "measures"),
    ],
)
def test_unknown_key_names_the_nearest(section: str | None, typed: str, meant: str) -> None:
    text = said(section, **{typed: {} if section is None else 1})
    key = typed if section is None else f"{section}.{typed}"
    assert f'unknown key "{key}" (did you mean "{meant}"?)' in text
    assert "The known keys are: " in text


@pytest.mark.parametrize(
    ("section", "key", "value", "part"),
    [
        ("train", "batch", "many", 'train.batch: the value must be a whole number (got "many"). Write batch = 128.'),
        ("train", "batch", 1, "greater than or equal to 2 (got 1)"),
        ("train", "learning_rate", 0, "greater than 0 (got 0)"),
        ("train", "optimizer", "adm", "'adam', 'adamw' or 'sgd' (got 'adm')"),
        ("train", "precision", "float16", "'float32', 'bfloat16' or 'auto'"),
        ("federated", "rounds", 0, "greater than or equal to 1 (got 0)"),
        ("federated", "fraction", 1.5, "less than or equal to 1 (got 1.5)"),
        ("federated", "weighting", "sizes", "federated.weighting: input should be 'examples' or 'uniform'"),
        ("local", "bits", 7, "local.bits: input should be greater than or equal to 8 (got 7)"),
        ("local", "bits", 257, "less than or equal to 256 (got 257)"),
        ("local", "anchors", 0, "local.anchors: "),
        ("model", "dropout", 1.0, "less than 1 (got 1.0)"),
        ("evaluate", "evaluations", ["GG", "GX"], '"GX" is not one of GG, GL, GF, GA, PL, PF, PA, PG, XS'),
        ("evaluate", "tasks", ["i2v"], '"i2v" is not one of i2t, t2i, i2i, t2t, i2item, t2item'),
        ("evaluate", "measures", ["mPA@all"], "mPA"),
        ("evaluate", "validation", 1, "less than 1 (got 1)"),
        (None, "seed", -1, "seed: input should be greater than or equal to 0 (got -1)"),
        (None, "train", 5, "train: the value must be a table (got 5). Write train = {batch = 128}."),
    ],
)
def test_wrong_value_is_named_with_what_was_seen(section: str | None, key: str, value: object, part: str) -> None:
    assert part in said(section, **{key: value})


def test_methods_and_presets_that_there_are_not() -> None:
    assert '"dcmj" (did you mean "dcmh"?)' in said("local", name="dcmj")
    assert '"fedavgg" (did you mean "fedavg"?)' in said("federated", name="fedavgg")
    assert 'local.preset: dcmh has no preset "papre" (did you mean "paper"?)' in said("local", preset="papre")
    assert 'federated.preset: fedavg has no preset "papers"' in said("federated", preset="papers")


def test_data_has_one_source() -> None:
    with pytest.raises(WrongValue, match="set either name"):
        load_config({"data": {}})
    with pytest.raises(WrongValue, match="set either name"):
        load_config({"data": {"name": "glyphs", "path": "x"}})
    with pytest.raises(WrongValue, match=r"\[data\] is missing. Add it"):
        load_config({})


def test_preset_sets_what_is_not_given() -> None:
    paper = load_resolved({**GLYPHS, "local": {"name": "dcmh", "preset": "paper", "balance_weight": 0.5}}).local
    assert paper.params.normalization == "paper"
    assert paper.params.balance_weight == 0.5
    assert load_resolved(GLYPHS).local.params.normalization == "mean"


def test_config_is_frozen() -> None:
    config = load_config(GLYPHS)
    with pytest.raises(ValueError, match="frozen"):
        config.seed = 3
    with pytest.raises(ValueError, match="frozen"):
        config.train.batch = 3


@pytest.mark.parametrize(
    ("override", "section", "key", "value"),
    [
        ("federated.rounds=5", "federated", "rounds", 5),
        (" federated.rounds =5", "federated", "rounds", 5),
        ("train.learning_rate=1e-2", "train", "learning_rate", 0.01),
        ("train.decay=true", "train", "decay", "cosine"),
        ("train.decay=steps", "train", "decay", "steps"),
        ("model.widths.text=[64, 32]", "model", "widths", {"text": (64, 32)}),
        ("train.device=cpu", "train", "device", "cpu"),
        ('train.device="cpu"', "train", "device", "cpu"),
        ('evaluate.measures=["P@5", "R@5"]', "evaluate", "measures", ("P@5", "R@5")),
        ("partition.kind=dirichlet", "partition", "kind", "dirichlet"),
        ("features.image={ size = 24 }", "features", "image", {"size": 24}),
        ("features.image.size=24", "features", "image", {"size": 24}),
    ],
)
def test_set(override: str, section: str, key: str, value: object) -> None:
    assert getattr(getattr(load_config(GLYPHS, [override]), section), key) == value


def test_set_of_the_seed_and_of_parameters() -> None:
    resolved = load_resolved(GLYPHS, ["seed=7", "partition.kind=dirichlet", "partition.beta=0.5", "local.anchors=9"])
    config = resolved.config
    assert config.seed == 7
    assert config.partition.parameters() == {"beta": 0.5}
    assert resolved.local.params.anchors == 9


@pytest.mark.parametrize(
    ("overrides", "named"),
    [
        (["partition.kind=iid", "partition.beta=0.5"], '"partition.beta=0.5": .* kind "iid" does not take "beta"'),
        (["partition.kind=idd"], '"partition.kind=idd": There is no partition "idd"'),
    ],
)
def test_a_kind_of_partition_is_checked_with_its_parameters_before_the_data_is_read(
    overrides: list[str], named: str
) -> None:
    with pytest.raises(WrongOverride, match=named):
        load_resolved(GLYPHS, overrides)


@pytest.mark.parametrize("override", ["federated.rounds", "=5", "federated.=5", ".rounds=5"])
def test_set_of_another_form(override: str) -> None:
    with pytest.raises(WrongForm, match=r"section\.key=value"):
        load_config(GLYPHS, [override])


def test_set_below_what_is_no_table() -> None:
    with pytest.raises(WrongOverride, match="seed"):
        load_config({**GLYPHS, "seed": 1}, ["seed.x=5"])
    with pytest.raises(WrongOverride, match="did you mean"):
        load_config(GLYPHS, ["fedrated.rounds=5"])


def test_toml_round_trip(tmp_path: Path) -> None:
    config = load_config(
        {
            "seed": 3,
            "data": {
                "path": str(tmp_path / 'a "quoted" \\ folder'),
                "options": {"labels": "color", "deep": {"x": [1, 2]}},
            },
            "features": {"text": {"kind": "tfidf", "buckets": 64, "vocabulary": ["é", "b"]}},
            "partition": {"kind": "dirichlet", "silos": 4, "beta": 1e-7, "minimum": 3},
            "local": {"preset": "paper", "anchors": 5},
            "train": {"decay": False},
            "evaluate": {"measures": ["mAP@50[denominator=retrieved,ties=index]"], "ignore_labels": ["a=b", "[c]"]},
        }
    )
    path = tmp_path / "config.toml"
    path.write_text(config.to_toml(), encoding="utf-8")
    read = load_config(path)
    assert read == config
    assert read.digest() == config.digest()
    assert read.to_toml() == config.to_toml()


def test_toml_of_odd_keys_and_values() -> None:
    value = {"a b": 1, "plain-key": {"ünder": True, "x.y": [0.1, "z\n"]}, "big": 1e300, "whole": 2.0, "empty": []}
    assert tomllib.loads(to_toml(value)) == value


def test_data_path_is_relative_to_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "recipes").mkdir()
    file = tmp_path / "recipes" / "run.toml"
    file.write_text('[data]\npath = "../pictures"\n', encoding="utf-8")
    monkeypatch.chdir("/")
    assert load_config(file).data.path == tmp_path / "pictures"


def test_data_path_from_elsewhere_is_relative_to_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert load_config({"data": {"path": "pictures"}}).data.path == tmp_path / "pictures"
    file = tmp_path / "elsewhere.toml"
    file.write_text('[data]\npath = "x"\n', encoding="utf-8")
    assert load_config(file, ["data.path=pictures"]).data.path == tmp_path / "pictures"


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(MissingFile):
        load_config(tmp_path / "none.toml")
    (tmp_path / "pictures.toml").touch()
    with pytest.raises(MissingFile):
        load_config(tmp_path / "none.toml")
    with pytest.raises(MissingFile, match="pictures"):
        load_config(tmp_path / "picturs.toml")
    with pytest.raises(WrongKindOfPath):
        load_config(tmp_path)
    broken = tmp_path / "broken.toml"
    broken.write_text("[data\n")
    with pytest.raises(InvalidFile, match=r"broken\.toml.*line.*1"):
        load_config(broken)
    study = tmp_path / "study.toml"
    study.write_text('[[axis]]\nname = "bits"\n')
    with pytest.raises(WrongKindOfFile, match=r"study\.toml"):
        load_config(study)
    broken.write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidFile):
        load_config(broken)


def test_digest_ignores_the_machine_and_nothing_else() -> None:
    digest = load_config(GLYPHS).digest()
    for same in ("train.workers=4", "train.threads=3", "train.device=cpu"):
        assert load_config(GLYPHS, [same]).digest() == digest, same
    others = (
        *("seed=1", "local.bits=32", "local.anchors=3", "federated.rounds=3", "partition.silos=2", "train.batch=64"),
        *("train.precision=bfloat16", "model.hidden=64", "evaluate.validation=0.2", "features.image.size=24"),
    )
    digests = {load_config(GLYPHS, [other]).digest() for other in others}
    assert len(digests | {digest}) == len(others) + 1
    assert len(digest) == 12


def test_one_table_by_itself() -> None:
    assert evaluate_config({"measures": ["P@3"]}).measures == ("P@3",)
    with pytest.raises(WrongValue, match=r"evaluate\.measures: .*mPA"):
        evaluate_config({"measures": ["mPA"]})


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("train.batch=0", "input should be greater than or equal to 2 (got 0)."),
        ("federated.rounds=many", 'the value must be a whole number (got "many"). Write rounds = 20.'),
        ("local.name=dcmhh", 'There is no local method "dcmhh" (did you mean "dcmh"?).'),
        ("federated.name=fedavgg", 'There is no federated method "fedavgg" (did you mean "fedavg"?).'),
        ("local.preset=papre", 'dcmh has no preset "papre" (did you mean "paper"?).'),
        ("local.anchors=0", "input should be greater than or equal to 1 (got 0)."),
        ("train.bach=3", 'unknown key "train.bach" (did you mean "batch"?).'),
        ("data.path=photos", "data: set either name"),
        ('federated.server={ optimizer = "adam" }', "federated.server.optimizer: input should be"),
        ("federated.server.optimizer=adam", "input should be 'fedavgm', 'fedadam' or 'fedyogi' (got 'adam')."),
        ("seed=-1", "input should be greater than or equal to 0 (got -1)."),
    ],
)
def test_a_wrong_override_is_named_in_place_of_the_file(tmp_path: Path, override: str, message: str) -> None:
    file = tmp_path / "run.toml"
    file.write_text('[data]\nname = "glyphs"\n', encoding="utf-8")
    with pytest.raises(WrongOverride) as error:
        load_config(file, ["model.hidden=32", override, "evaluate.validation=0"])
    assert str(error.value).startswith(f'--set "{override}": {message}')
    assert "run.toml" not in str(error.value)


def test_the_error_of_an_override_holds_its_parts() -> None:
    with pytest.raises(WrongOverride) as error:
        load_config(GLYPHS, ["train.batch=0"])
    assert error.value.override == "train.batch=0"
    assert error.value.reason == "input should be greater than or equal to 2 (got 0)."
    with pytest.raises(WrongOverride, match=r'^--set "seed\.x=3": "seed" is a value, not a table'):
        load_config({**GLYPHS, "seed": 1}, ["seed.x=3"])


@pytest.mark.parametrize("section", ["local", "federated"])
def test_a_method_of_another_package_without_a_card_is_named(
    section: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = {"local": "local.supervised.dcmh import DCMH", "federated": "federated.general.fedavg import FedAvg"}[
        section
    ]
    module = f"plain_{section}"
    (tmp_path / f"{module}.py").write_text(f"from silohash.methods.{base} as Plain\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    added = (AddedMember("plain", f"{module}:Plain", "plain 1"),)
    monkeypatch.setattr(registry, "added_members", lambda group: added if group == f"silohash.{section}" else ())
    with pytest.raises(WrongValue) as error:
        load_config({**GLYPHS, section: {"name": "plain"}})
    assert str(error.value) == (
        f'the config: {module} has no MethodCard with the key "plain", so the {section} method cannot be described. '
        "Add one there."
    )
    card = 'CARD = MethodCard("plain", "A title", "A", "V", 2020, "", "A summary.", supervised=False)'
    (tmp_path / f"{module}_card.py").write_text(
        f"from silohash.methods.{base} as Plain\nfrom silohash.base.types import MethodCard\n\n{card}\n",
        encoding="utf-8",
    )
    added = (AddedMember("plain", f"{module}_card:Plain", "plain 1"),)
    assert getattr(load_config({**GLYPHS, section: {"name": "plain"}}), section).name == "plain"


def test_a_wrong_value_of_the_file_is_not_blamed_on_an_override(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text('[data]\nname = "glyphs"\n[train]\nbatch = 0\n', encoding="utf-8")
    with pytest.raises(WrongValue) as error:
        load_config(file, ["train.batches=3", "train.workers=2", "local.bits=16"])
    assert str(error.value).startswith(f"{file}: train.batch: ")


@pytest.mark.parametrize("override", ["local.name=vsepp", 'local.name = "vsepp"'])
def test_a_setting_that_another_method_does_not_have_can_go_with_its_table(override: str) -> None:
    config = {"data": {"name": "glyphs"}, "local": {"name": "scan", "direction": "t2i"}}
    replaced = """Remove it, or replace the whole table: --set 'local={name="vsepp"}'"""
    with pytest.raises(WrongValue, match=rf"config.*local\.direction.*{re.escape(replaced)}"):
        load_resolved(config, [override])
    assert load_resolved(config, ['local={name="vsepp"}']).config.local.name == "vsepp"
    config["local"]["name"] = "vsepp"
    with pytest.raises(WrongValue, match=r"known keys are: [^:]*\.$"):
        load_resolved(config, ["federated.name=fedavg"])


def test_the_last_of_two_overrides_is_named() -> None:
    with pytest.raises(WrongOverride, match=r'^--set "train\.batch=1": input'):
        load_config(GLYPHS, ["train.batch=64", "train.batch=1"])


def test_names_of_methods_are_checked_before_the_methods_are_made() -> None:
    with pytest.raises(WrongValue, match="fedavgg"):
        read_config({**GLYPHS, "federated": {"name": "fedavgg"}})
    assert read_config({**GLYPHS, "local": {"anchors": 0}}).local.name == "dcmh"


@pytest.mark.parametrize(
    ("federated", "keys"),
    [
        ({"name": "moon"}, ["dcmh", "moon"]),
        ({"name": "compose"}, ["dcmh", "compose", "fedprox", "moon"]),
        ({"name": "compose", "methods": [{"name": "fedhap"}, {"name": "fedhap"}]}, ["dcmh", "compose", "fedhap"]),
    ],
)
def test_cards_of_the_methods_are_read_without_making_them(federated: dict[str, object], keys: list[str]) -> None:
    config = read_config({"data": {"name": "glyphs"}, "local": {"name": "dcmh"}, "federated": federated})
    assert [card.key for card in cards_of(config)] == keys


def test_no_robust_rule_protects_the_sums_that_a_local_method_sends() -> None:
    given = {"data": {"name": "glyphs"}, "local": {"name": "shdch"}}
    resolved = load_resolved(given)
    assert resolved.federated.solver is resolved.local
    assert load_resolved({**given, "local": {"name": "dcmh"}}).federated.solver is None
    with pytest.raises(WrongValue, match="shdch"):
        load_resolved({**given, "federated": {"robust": {"rule": "median"}}})
