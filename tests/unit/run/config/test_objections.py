"""Settings that have no effect beside others, and methods that do not fit: what is refused, remarked on, or left alone."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

import silohash
from silohash.base.errors import UserError, WrongValue
from silohash.methods.federated import FEDERATED_METHODS
from silohash.methods.local import LOCAL_METHODS
from silohash.methods.traits import Traits
from silohash.run.config.load import ResolvedConfig, load_config, load_resolved
from silohash.run.config.objections import KEYS_OF_RULES, cap_is_too_low, objections_to_silos
from silohash.run.config.sections import FederatedConfig, RobustConfig, TrainConfig

CONFIG = Path(silohash.__file__).parent / "run" / "config"


def test_each_objection_has_a_text_and_each_text_is_used() -> None:
    texts = tomllib.loads((CONFIG / "objections.toml").read_text(encoding="utf-8"))
    calls = [
        node
        for name in ("objections.py", "exchange.py")
        for node in ast.walk(ast.parse((CONFIG / name).read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "objection"
    ]
    named = {ast.literal_eval(call.args[0]): {keyword.arg for keyword in call.keywords} for call in calls}
    assert named.keys() == texts.keys()
    stated = {name: set(re.findall(r"\{(\w+)", text["message"])) for name, text in texts.items()}
    assert stated == {name: facts | ({"key"} & stated[name]) for name, facts in named.items()}


def error_of(*, silos: int = 5, kind: str = "iid", **federated: Any) -> str:
    """Return the message about a table ``[federated]``, or an empty string if it is accepted."""
    partition = {"kind": kind, "silos": silos, **({"column": "place"} if kind == "column" else {})}
    try:
        load_resolved({"data": {"name": "glyphs"}, "partition": partition, "federated": federated})
    except UserError as error:
        return str(error).removeprefix("the config: ")
    return ""


@pytest.mark.parametrize(
    ("robust", "message"),
    [
        ({"rule": "median", "clip_factor": 2.0}, 'clip_factor has no effect: the rule "median" does not use it.'),
        (
            {"rule": "trimmed_mean", "clip_factor": 2.0},
            'clip_factor has no effect: the rule "trimmed_mean" does not use it.',
        ),
        (
            {"rule": "multi_krum", "clip_factor": 2.0},
            'clip_factor has no effect: the rule "multi_krum" does not use it.',
        ),
        ({"rule": "median", "faulty": 0.2}, 'faulty has no effect: the rule "median" does not use it.'),
        ({"rule": "clip", "faulty": 0.2}, 'faulty has no effect: the rule "clip" does not use it.'),
        ({"rule": "trimmed_mean", "faulty": 0}, 'faulty = 0 means that the rule "trimmed_mean" drops nothing.'),
        ({"rule": "multi_krum", "faulty": 0}, 'faulty = 0 means that the rule "multi_krum" drops nothing.'),
    ],
)
def test_keys_that_the_robust_rule_does_not_use(robust: dict[str, Any], message: str) -> None:
    assert error_of(silos=20, robust=robust).startswith(f"federated.robust.{message}")


@pytest.mark.parametrize(
    "robust",
    [
        {"rule": "median", "faulty": 0.3, "clip_factor": 1.0},
        {"rule": "trimmed_mean", "faulty": 0.1},
        {"rule": "multi_krum", "faulty": 0.1},
        {"rule": "clip", "clip_factor": 2.0, "faulty": 0.3},
    ],
)
def test_keys_that_it_uses_and_defaults_are_left_alone(robust: dict[str, Any]) -> None:
    assert not error_of(silos=20, robust=robust)


def test_rules_use_the_share_of_faulty_silos_to_protect_class_statistics() -> None:
    assert not error_of(name="fedproc", robust={"rule": "median", "faulty": 0.2})
    assert not error_of(name="fedproto", robust={"rule": "median", "faulty": 0})
    assert "faulty has no effect" in error_of(robust={"rule": "median", "faulty": 0.2})


def test_methods_that_no_rule_can_protect() -> None:
    message = error_of(name="fedcafe", memory="reference", robust={"rule": "median"})
    assert message.startswith("federated.robust: ")


def test_every_rule_has_its_keys() -> None:
    rules = RobustConfig.model_fields["rule"].annotation.__args__  # type: ignore[union-attr]
    assert tuple(KEYS_OF_RULES) == rules


@pytest.mark.parametrize("rule", ["median", "trimmed_mean"])
def test_a_cap_beside_a_rule_with_equal_silos(rule: str) -> None:
    assert error_of(robust={"rule": rule}, weight_cap=0.5) == (
        f'federated.weight_cap has no effect: the rule "{rule}" gives all silos the same weight. '
        "Remove federated.weight_cap."
    )
    assert not error_of(robust={"rule": "clip"}, weight_cap=0.5)


@pytest.mark.parametrize(
    ("silos", "fraction", "cap", "refused"),
    [
        (5, 1.0, 0.19, True),
        (5, 1.0, 0.2, False),
        (3, 1.0, 1 / 3, False),
        (10, 0.5, 0.19, True),
        (10, 0.5, 0.2, False),
        (10, 0.1, 0.9, True),
        (1, 1.0, 0.9, True),
        (1, 1.0, 1.0, False),
    ],
)
def test_a_cap_below_equal_shares(silos: int, fraction: float, cap: float, refused: bool) -> None:
    message = error_of(silos=silos, fraction=fraction, weight_cap=cap)
    assert message.startswith("federated.weight_cap = ") == refused
    assert bool(message) == refused
    assert not error_of(silos=silos, kind="column", fraction=fraction, weight_cap=cap), "their number is not known yet"


@pytest.mark.parametrize(
    ("silos", "fraction", "limit", "refused"),
    [
        (3, 1.0, 5, False),
        (2, 1.0, 5, True),
        (5, 0.4, 5, True),
        (5, 1.0, 0.5, True),
        (5, 1.0, 1, False),
        (2, 1.0, 0, False),
    ],
)
def test_a_limit_on_lengths_needs_three_silos_and_lets_the_median_through(
    silos: int, fraction: float, limit: float, refused: bool
) -> None:
    message = error_of(silos=silos, fraction=fraction, norm_limit=limit)
    assert message.startswith("federated.norm_limit = ") == refused
    assert bool(message) == refused


def test_methods_whose_updates_are_not_averaged_have_a_limit_on_lengths() -> None:
    assert not error_of(name="plfedcmh", norm_limit=5)


def test_the_message_about_a_cap() -> None:
    assert error_of(silos=4, weight_cap=0.1) == (
        "federated.weight_cap = 0.1 cannot hold: 4 silos take part in a round, and the largest share is at least 1/4. "
        "Set it above 0.25, or remove it."
    )
    assert cap_is_too_low(0.2, 4)
    assert not cap_is_too_low(0.25, 4)


def test_too_few_silos_for_a_robust_rule() -> None:
    assert error_of(silos=4, fraction=0.5, robust={"rule": "median"}) == (
        'federated.robust has no effect: the rule "median" needs at least 3 silos per round, but 2 of 4 take part. '
        "Raise federated.fraction or the number of silos, or remove federated.robust."
    )
    assert not error_of(silos=3, robust={"rule": "median"})
    settings = FederatedConfig(robust=RobustConfig(rule="trimmed_mean"))
    assert [key for key, _ in objections_to_silos(settings, 2)] == ["federated.robust"]
    assert not list(objections_to_silos(settings, 3))


@pytest.mark.parametrize(
    ("silos", "fraction", "faulty", "needed"),
    [(5, 1.0, 0.3, 7), (7, 1.0, 0.3, 9), (10, 0.5, 0.3, 7), (4, 1.0, 0.2, 5)],
)
def test_multi_krum_is_refused_with_too_few_silos(silos: int, fraction: float, faulty: float, needed: int) -> None:
    robust = {"rule": "multi_krum", "faulty": faulty}
    message = error_of(silos=silos, fraction=fraction, robust=robust)
    assert message.startswith(f'federated.robust: "multi_krum" needs at least {needed} silos per round to withstand')
    assert not error_of(silos=silos, fraction=fraction, robust={"rule": "median"})


@pytest.mark.parametrize(
    ("silos", "fraction", "faulty"), [(10, 1.0, 0.3), (9, 1.0, 0.3), (5, 1.0, 0.2), (18, 0.5, 0.3)]
)
def test_multi_krum_is_accepted_with_enough_silos(silos: int, fraction: float, faulty: float) -> None:
    robust = {"rule": "multi_krum", "faulty": faulty}
    assert not error_of(silos=silos, fraction=fraction, robust=robust)


def test_silos_that_the_archive_counts_are_checked_once_they_are_known() -> None:
    krum = {"rule": "multi_krum", "faulty": 0.3}
    assert not error_of(silos=3, kind="column", robust=krum)
    settings = FederatedConfig(robust=RobustConfig(**krum))
    assert not list(objections_to_silos(settings, 9))
    ((key, message),) = objections_to_silos(settings, 8)
    assert key == "federated.robust"
    assert "needs at least 9 silos per round to withstand 3 faulty ones, but 8 of 8 take part" in message


@pytest.mark.parametrize(
    ("key", "value", "decay"),
    [("final_learning_rate", 1e-5, "geometric"), ("decay_factor", 0.5, "steps"), ("decay_epochs", 3, "steps")],
)
def test_keys_that_another_decay_uses(key: str, value: float, decay: str) -> None:
    def given(decay: str, value: float) -> dict[str, Any]:
        return {"data": {"name": "glyphs"}, "train": {"decay": decay, key: value}}

    with pytest.raises(WrongValue) as error:
        load_config(given("cosine", value))
    assert error.value.setting == f"train.{key}"
    load_config(given(decay, value))
    load_config(given("cosine", TrainConfig.model_fields[key].default))


@pytest.mark.parametrize("key", ["square_decay", "floor"])
def test_keys_that_momentum_does_not_use(key: str) -> None:
    server = {"optimizer": "fedavgm", key: 0.5}
    assert error_of(server=server).startswith(f'federated.server.{key} has no effect: "fedavgm" does not use it.')
    assert not error_of(server={**server, "optimizer": "fedadam"})
    assert not error_of(server={"optimizer": "fedavgm", "square_decay": 0.99, "floor": 1e-3})


@pytest.mark.parametrize(
    ("name", "settings", "reason"),
    [
        ("local", {"weight_cap": 0.5}, "does not average parameters"),
        ("fedproto", {"robust": {"rule": "clip"}}, "does not average parameters"),
        ("plfedcmh", {"server": {"optimizer": "fedadam"}}, "does not average parameters"),
        ("centralized", {"weight_cap": 0.5}, "trains on the pooled data of all silos"),
        ("centralized", {"robust": {"rule": "clip"}}, "trains on the pooled data of all silos"),
        ("centralized", {"norm_limit": 5}, "trains on the pooled data of all silos"),
        ("fedproto", {"norm_limit": 5}, "does not average parameters"),
    ],
)
def test_methods_without_an_average_of_silos(name: str, settings: dict[str, Any], reason: str) -> None:
    (key,) = settings
    expected = f'federated.{key} has no effect: "{name}" {reason}. Remove federated.{key}.'
    assert error_of(name=name, **settings) == expected


def test_pooled_training_may_have_a_server_optimizer() -> None:
    assert not error_of(name="centralized", server={"optimizer": "fedadam"})


def remarks_of(**federated: Any) -> tuple[str, ...]:
    return load_resolved({"data": {"name": "glyphs"}, "federated": federated}).remarks


def test_settings_of_a_comparison_are_remarked_on() -> None:
    assert remarks_of(name="centralized", fraction=0.5) == (
        'federated.fraction has no effect: "centralized" trains on the pooled data of all silos.',
    )
    assert remarks_of(weighting="uniform", robust={"rule": "median"}) == (
        'federated.weighting has no effect: the rule "median" gives all silos the same weight.',
    )
    assert remarks_of(weighting="examples", robust={"rule": "median"}) == ()
    assert remarks_of(weighting="uniform", robust={"rule": "clip"}) == ()
    assert remarks_of(name="centralized") == remarks_of(fraction=0.5) == ()


@pytest.mark.parametrize(
    ("name", "settings", "key", "switch"),
    [
        ("fedhap", {"margin": 0.7, "triplet_weight": 0.0}, "margin", "triplet_weight = 0.0"),
        ("fedhap", {"judge_width": 64, "adversarial_weight": 0.0}, "judge_width", "adversarial_weight = 0.0"),
        ("fedcafe", {"enhance_weight": 1.0, "enhance": False}, "enhance_weight", "enhance = false"),
        ("fedcafe", {"align": False}, "align", 'memory = "kmeans"'),
        ("fedcafe", {"sharpness": 2.0, "weighting": "examples"}, "sharpness", 'weighting = "examples"'),
        ("fedcafe", {"reduction": "batchmean", "class_weight": 0.0}, "reduction", "class_weight = 0.0"),
        ("fedproc", {"temperature": 0.5, "contrast_weight": 0.0}, "temperature", "contrast_weight = 0.0"),
        ("fedproto", {"fuse": False, "prototype_weight": 0.0}, "fuse", "prototype_weight = 0.0"),
        ("moon", {"buffer": 2, "contrast_weight": 0.0}, "buffer", "contrast_weight = 0.0"),
        ("fednova", {"effective_steps": "count"}, "effective_steps", "proximal_weight = 0.0"),
        ("fedala", {"mixing_share": 0.5, "mixing_rate": 0.0}, "mixing_share", "mixing_rate = 0.0"),
        ("fedcmr", {"loss_factor": 2.0, "weighting": "uniform"}, "loss_factor", 'weighting = "uniform"'),
    ],
)
def test_parameters_that_another_one_switches_off(name: str, settings: dict[str, Any], key: str, switch: str) -> None:
    assert error_of(name=name, **settings) == (
        f"federated.{key} has no effect with federated.{switch}. Remove federated.{key}, or change "
        f"federated.{switch.partition(' ')[0]}."
    )
    default = FEDERATED_METHODS.resolve(name).Params.model_fields[key].default
    assert not error_of(name=name, **{**settings, key: default})


def test_parameters_of_a_preset_and_of_a_member() -> None:
    assert not error_of(name="fedcafe", preset="authors_code", align=False)
    assert not error_of(name="fedcmr", preset="authors_code", weighting="uniform")
    assert not error_of(name="fedcafe", enhance=False, enhance_weight=0.0), "a weight of 0 is off anyway"
    assert not error_of(name="fednova", effective_steps="count", proximal_weight=0.1, preset="recommended")
    member = {"name": "moon", "contrast_weight": 0.0, "temperature": 2.0}
    assert error_of(name="compose", methods=[{"name": "fedprox"}, member]).startswith(
        "federated.methods.1.temperature has no effect with federated.methods.1.contrast_weight = 0.0."
    )


@pytest.mark.parametrize("name", FEDERATED_METHODS.table)
def test_declared_parameters_exist(name: str) -> None:
    params = FEDERATED_METHODS.resolve(name).Params
    fields = params.model_fields
    for key, switches in params.without_effect.items():
        assert {key, *switches} <= set(fields)
        for switch, values in switches.items():
            for value in values:
                assert getattr(params(**{switch: value}), switch) == value


def resolved(local: dict[str, Any], federated: dict[str, Any]) -> ResolvedConfig:
    return load_resolved({"data": {"name": "glyphs"}, "local": {"bits": 16, **local}, "federated": federated})


def refusal(local: dict[str, Any], federated: dict[str, Any]) -> str:
    with pytest.raises(UserError) as error:
        resolved(local, federated)
    return str(error.value)


SCM = {"name": "scm"}


@pytest.mark.parametrize(
    "name", [n for n in FEDERATED_METHODS.table if FEDERATED_METHODS.resolve(n).traits.closed_form == "none"]
)
def test_methods_that_need_gradient_steps_are_refused(name: str) -> None:
    assert refusal(SCM, {"name": name}) == (
        f'the config: "{name}" trains by gradient steps, and local.name = "scm" has none. Set federated.name = "local", '
        '"fedavg", "centralized", "fedsums".'
    )
    resolved({"name": "dcmh"}, {"name": name})


def test_methods_that_fit_each_silo() -> None:
    kinds = {name: FEDERATED_METHODS.resolve(name).traits.closed_form for name in FEDERATED_METHODS.table}
    assert {name for name, kind in kinds.items() if kind == "silos"} == {"fedavg", "centralized", "local"}
    assert {name for name, kind in kinds.items() if kind == "sums"} == {"fedsums"}
    for name in ("fedavg", "centralized", "local"):
        assert resolved(SCM, {"name": name, "rounds": 1}).remarks == ()
        (remark,) = resolved(SCM, {"name": name, "rounds": 3}).remarks
        assert remark.endswith("Set federated.rounds = 1 instead of 3.")


def test_bits_that_differ_between_silos_are_not_averaged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LOCAL_METHODS.resolve("scm"), "traits", Traits(needs_labels=True, codes_comparable=False))
    text = refusal(SCM, {"name": "fedavg"})
    assert '"fedavg" averages the models of silos, and a bit of local.name = "scm" means something else' in text
    assert text.endswith('Set federated.name = "local", "centralized", "fedsums".')
    assert '"fedavg", "centralized"' not in refusal(SCM, {"name": "fedcafe"})
    for name in ("centralized", "local"):
        resolved(SCM, {"name": name, "rounds": 1})


@pytest.mark.parametrize(("bits", "variant", "needed"), [(16, "seq", 17), (64, "seq", 65), (16, "orth", 2)])
def test_sums_need_rounds_and_all_silos(bits: int, variant: str, needed: int) -> None:
    local = {**SCM, "bits": bits, "variant": variant}
    assert refusal(local, {"name": "fedsums", "rounds": needed - 1}) == (
        f'the config: federated.rounds = {needed - 1}, and "scm" with local.bits = {bits} needs {needed} rounds of sums. '
        f"Set federated.rounds = {needed}."
    )
    assert resolved(local, {"name": "fedsums", "rounds": needed}).remarks == ()
    assert 'federated.fraction = 0.5, and "fedsums" needs the sums of the same silos' in refusal(
        local, {"name": "fedsums", "rounds": needed, "fraction": 0.5}
    )


def test_sums_need_a_method_that_defines_them() -> None:
    assert refusal({"name": "seph"}, {"name": "fedsums"}).endswith('federated.name = "local", "centralized".')
    assert refusal({"name": "dcmh"}, {"name": "fedsums"}) == (
        'the config: "fedsums" solves a local method from sums over items, which local.name = "dcmh" does not define. Set '
        'local.name = "scm" or "itq" or "hyperplanes" or "cmfh", or federated.name = "local", "fedavg", "centralized".'
    )


SCORED = {"data": {"name": "flickr8k-1k", "options": {"image": "regions"}}, "local": {"name": "vsepp"}}


@pytest.mark.parametrize(
    ("section", "values", "message"),
    [
        ("federated", {"name": "fedcafe"}, r'"fedcafe" trains codes, .* Set federated\.name = local, fedavg, '),
        ("federated", {"name": "moon"}, '"moon" trains codes'),
        ("federated", {"name": "fedproto"}, '"fedproto" trains codes'),
        ("evaluate", {"tasks": ["i2t", "i2i"]}, "only the tasks i2t and t2i can be measured"),
        ("evaluate", {"validation_by": "labels"}, 'Set it to "pairs" or "auto"'),
        ("evaluate", {"measures": ["P@radius2"]}, r'no distance in bits\. Remove "P@radius2"'),
    ],
)
def test_settings_that_need_codes_are_refused(section: str, values: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        load_resolved({**SCORED, section: values})
    load_resolved({**SCORED, section: values, "local": {"name": "dgcpn"}})


@pytest.mark.parametrize("name", ["fedavg", "fedprox", "fednova", "fedbignns", "local", "centralized"])
def test_methods_that_average_parameters_train_scores(name: str) -> None:
    assert load_resolved({**SCORED, "federated": {"name": name}}).federated.traits.trains_scores


@pytest.mark.parametrize(
    ("tables", "reason"),
    [
        ({"local": {"name": "cmfh"}, "federated": {"name": "local"}}, "has no optimizer"),
        ({"local": {"name": "dcmh", "fresh_optimizers": True}}, "fresh_optimizers"),
        ({"train": {"optimizer": "sgd", "momentum": 0.0}}, "momentum = 0"),
        ({"federated": {"name": "fednova"}}, "fednova"),
        ({"federated": {"name": "compose", "methods": [{"name": "fednova"}]}}, "compose"),
        (
            {
                "local": {"name": "csq"},
                "exchange": {"privacy": {"unit": "record"}},
                "evaluate": {"validation": 0.0},
            },
            "privacy",
        ),
    ],
)
def test_state_of_optimizers_that_cannot_be_kept(tables: dict[str, Any], reason: str) -> None:
    load_resolved({"data": {"name": "glyphs"}, **tables})
    train = {**tables.get("train", {}), "optimizer_state": "keep"}
    with pytest.raises(WrongValue, match=reason) as found:
        load_resolved({"data": {"name": "glyphs"}, **tables, "train": train})
    assert found.value.setting == "train.optimizer_state"
    load_resolved({"data": {"name": "glyphs"}, "train": {"optimizer": "sgd", "optimizer_state": "keep"}})
