"""Settings that have no effect beside others or with too few silos, and methods that do not fit together.

A value that equals its default is not objected to, because the config of a run spells out every value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from silohash.base.files import read_toml
from silohash.base.forms import REINSTALL
from silohash.base.types import PAIR_TASKS
from silohash.methods.federated import FEDERATED_METHODS
from silohash.methods.local import LOCAL_METHODS
from silohash.run.config.sections import DECAY_KEYS, FederatedConfig, RobustConfig, RunConfig, TrainConfig
from silohash.run.config.toml import toml_value

if TYPE_CHECKING:
    from silohash.methods.federated.base import FederatedMethod
    from silohash.methods.local.base import LocalMethod, MethodParams

Objection: TypeAlias = tuple[str, str]
"""The dotted key of a setting, and the message about it."""

SELF_COUNTING = ("column", "nested")
"""Kinds of partition whose number of silos may come from the archive or from their parameters."""

KEYS_OF_RULES: Mapping[str, tuple[str, ...]] = {
    "median": (), "trimmed_mean": ("faulty",), "multi_krum": ("faulty",), "clip": ("clip_factor",),
}  # fmt: skip
"""Robust rule -> the keys of ``[federated.robust]`` that it uses."""

EQUAL_SILOS = ("median", "trimmed_mean")
"""Robust rules that give all silos the same weight, and need at least three of them."""

FEWEST_SILOS = 3
"""With fewer silos, the median and the trimmed mean are plain means."""

ADAPTIVE_KEYS = ("square_decay", "floor")
"""Keys of ``[federated.server]`` that momentum does not use."""


_TEXTS = read_toml(Path(__file__).with_name("objections.toml"), remedy=REINSTALL, missing=REINSTALL)


def objection(text: str, /, **facts: object) -> Objection:
    """Return an objection by the name of its text in ``objections.toml``, with the facts that the text states."""
    about = {**_TEXTS[text], **facts}
    return about["key"], about["message"].format_map(about)


def no_effect(key: str, why: str) -> Objection:
    """Return the objection to a setting that has no effect."""
    return key, f"{key} has no effect: {why}. Remove {key}."


def objections(config: RunConfig, federated: FederatedMethod) -> Iterator[Objection]:
    """Yield the settings that have no effect, as far as this can be told from the config alone."""
    settings = config.federated
    yield from _beside_the_method(settings, federated)
    yield from _beside_the_decay(config.train)
    if settings.robust is not None:
        yield from _beside_the_rule(settings, settings.robust, federated)
    for key in ADAPTIVE_KEYS if settings.server is not None and settings.server.optimizer == "fedavgm" else ():
        if _differs(settings.server, key):
            yield no_effect(f"federated.server.{key}", '"fedavgm" does not use it')
    if config.partition.kind not in SELF_COUNTING and not federated.traits.pooled:
        yield from objections_to_silos(settings, config.partition.silos)


def remarks_on_settings(config: RunConfig, federated: FederatedMethod) -> list[str]:
    """Return remarks on settings that have no effect but are common to the runs of a comparison, as sentences."""
    name, found = config.federated.name, []
    if federated.traits.pooled and config.federated.fraction < 1:
        found.append(f'federated.fraction has no effect: "{name}" trains on the pooled data of all silos.')
    rule = config.federated.robust.rule if config.federated.robust else ""
    weighting = federated.traits.weighting
    if rule in EQUAL_SILOS and weighting and _differs(federated.params, weighting):
        found.append(f'federated.{weighting} has no effect: the rule "{rule}" gives all silos the same weight.')
    return found


def _beside_the_method(settings: FederatedConfig, federated: FederatedMethod) -> Iterator[Objection]:
    """Yield the settings of the average that a method without an average of several silos does not use."""
    why = "trains on the pooled data of all silos" if federated.traits.pooled else "does not average parameters"
    pooled, sends_nothing = federated.traits.pooled, federated.traits.shares == "none"
    averages, rule = federated.traits.averages and not pooled, settings.robust and settings.robust.rule
    protected = federated.traits.means and sends_nothing and rule == "median"  # the median of means alone
    given = {  # whether a setting is given, and whether the method uses it
        "federated.robust": (rule, averages or protected),
        "federated.server": (settings.server, federated.traits.averages),
        "federated.weight_cap": (settings.given_cap < 1, averages),
        "federated.norm_limit": (settings.norm_limit, not (pooled or sends_nothing)),
    }
    for key, (is_set, is_used) in given.items():
        if is_set and not is_used:
            yield no_effect(key, f'"{settings.name}" {why}')
    if settings.robust is not None and federated.traits.unprotected:
        yield "federated.robust", f"federated.robust: {federated.traits.unprotected}"


def _beside_the_rule(
    settings: FederatedConfig, robust: RobustConfig, federated: FederatedMethod
) -> Iterator[Objection]:
    """Yield the settings that a robust rule does not use, and the rule itself if it does not tolerate any faulty silo."""
    # Every rule uses the share of faulty silos to protect class statistics.
    statistics = any(mean.quorum for mean in federated.traits.means)
    used = (*KEYS_OF_RULES[robust.rule], *(("faulty",) if statistics else ()))
    for key in ("faulty", "clip_factor"):
        if key not in used and _differs(robust, key):
            yield no_effect(f"federated.robust.{key}", f'the rule "{robust.rule}" does not use it')
    if "faulty" in used and not robust.faulty and not statistics:
        key = "federated.robust.faulty"
        yield key, f'{key} = 0 means that the rule "{robust.rule}" drops nothing. Raise it, or remove federated.robust.'
    if robust.rule in EQUAL_SILOS and settings.given_cap < 1:
        yield no_effect("federated.weight_cap", f'the rule "{robust.rule}" gives all silos the same weight')


def objections_to_kept_state(config: RunConfig, local: LocalMethod, federated: FederatedMethod) -> Iterator[Objection]:
    """Yield ``train.optimizer_state`` if it is to be kept over rounds and a method or another setting prevents that."""
    from silohash.methods.local.base import ClosedForm

    train, privacy = config.train, config.exchange.privacy
    reasons = {
        f'local.name = "{config.local.name}" has no optimizer': isinstance(local, ClosedForm),
        "local.fresh_optimizers resets the state in every epoch": local.traits.epochs.fresh_optimizers,
        "plain SGD (train.momentum = 0) has no state": train.optimizer == "sgd" and not train.momentum,
        f'"{config.federated.name}" divides updates by the length of a training that starts anew': (
            any(part.traits.normalizes for part in federated.parts("").values())
        ),
        'the steps of exchange.privacy.unit = "record" start anew in every round': (
            privacy is not None and privacy.unit == "record"
        ),
    }
    for reason, there in reasons.items():
        if there and train.optimizer_state == "keep":
            key = "train.optimizer_state"
            yield key, f'{key} = "keep" is not possible: {reason}. Set it to "reset".'


def _beside_the_decay(train: TrainConfig) -> Iterator[Objection]:
    """Yield the settings that only other choices of ``train.decay`` use."""
    for decay, keys in DECAY_KEYS.items():
        for key in keys if decay != train.decay else ():
            if _differs(train, key):
                remedy = f'Remove it, or set train.decay = "{decay}".'
                yield f"train.{key}", f'train.{key} has no effect with train.decay = "{train.decay}". {remedy}'


def objections_to_silos(settings: FederatedConfig, silos: int) -> Iterator[Objection]:
    """Yield the settings that have no effect because too few silos take part in a round."""
    count = settings.participants(silos)
    if cap_is_too_low(settings.given_cap, count):
        yield objection("cap-too-low", cap=settings.given_cap, count=count, share=1 / count)
    if settings.norm_limit and (settings.norm_limit < 1 or count < FEWEST_SILOS):
        yield objection("norm-limit", limit=settings.norm_limit, count=count, fewest=FEWEST_SILOS)
    if settings.robust is not None:
        yield from _too_few_for_the_rule(settings, settings.robust, silos)


def _too_few_for_the_rule(settings: FederatedConfig, robust: RobustConfig, silos: int) -> Iterator[Objection]:
    """Yield the robust rule if it needs more silos than take part in a round."""
    from silohash.methods.federated.robust import faulty_silos, fewest_for_krum

    count = settings.participants(silos)
    faulty = faulty_silos(robust.faulty, count)
    if robust.rule == "multi_krum" and count < fewest_for_krum(faulty):
        yield objection("few-for-krum", fewest=fewest_for_krum(faulty), faulty=faulty, count=count, silos=silos)
    if robust.rule in EQUAL_SILOS and count < FEWEST_SILOS:
        yield objection("few-for-the-rule", rule=robust.rule, fewest=FEWEST_SILOS, count=count, silos=silos)


def cap_is_too_low(cap: float, silos: int) -> bool:
    """Return whether no shares of some silos can stay within a cap, because even equal shares exceed it."""
    return cap * silos < 1 - 1e-9


def objections_to_parameters(
    section: str, given: Iterable[str], params: MethodParams, preset: Mapping[str, Any]
) -> Iterator[Objection]:
    """Yield the parameters of a method that another parameter switches off, although the config changes them.

    A weight of 0 is left alone.
    """
    for name in given:
        for other, values in params.without_effect.get(name, {}).items():
            default = preset.get(name, type(params).model_fields[name].default)
            value = getattr(params, name)
            off = isinstance(value, float) and value == 0
            if getattr(params, other) in values and value != default and not off:
                key, switch = f"{section}.{name}", f"{section}.{other}"
                yield (
                    key,
                    f"{key} has no effect with {switch} = {toml_value(getattr(params, other))}. Remove {key}, or change "
                    f"{switch}.",
                )


def _differs(section: Any, key: str) -> bool:  # noqa: ANN401  a table or parameters
    """Return whether the value of a key exists and is not its default."""
    field = type(section).model_fields.get(key)
    return field is not None and getattr(section, key) != field.default


def objections_to_methods(config: RunConfig, local: LocalMethod, federated: FederatedMethod) -> Iterator[Objection]:
    """Yield why the federated method cannot train the local method, and the settings with which it cannot."""
    from silohash.methods.local.base import ClosedForm

    if isinstance(local, ClosedForm):
        yield from _objections_to_closed_form(config, local, federated)
    if federated.traits.closed_form == "sums":
        yield from _objections_to_sums(config, local)
    yield from _objections_to_scores(config, federated) if local.traits.scores_pairs else _without_scores(config)


def remarks_on_methods(config: RunConfig, local: LocalMethod, federated: FederatedMethod) -> Iterator[str]:
    """Yield a remark if rounds of a local method without gradient steps repeat what the first one computes."""
    from silohash.methods.local.base import ClosedForm

    rounds = config.federated.rounds
    if isinstance(local, ClosedForm) and federated.traits.closed_form == "silos" and rounds > 1:
        yield (
            f'local.name = "{config.local.name}" has no gradient steps, so further rounds repeat most of the first one. '
            f"Set federated.rounds = 1 instead of {rounds}."
        )


def _objections_to_closed_form(
    config: RunConfig, local: LocalMethod, federated: FederatedMethod
) -> Iterator[Objection]:
    """Yield the federated method if it adds terms to a loss, or averages models whose bits differ in meaning."""
    from silohash.methods.local.closed_form.base import FromSums

    name, method, traits = config.local.name, config.federated.name, federated.traits
    remedy = (
        f"Set federated.name = {_that_fit(alone=not local.traits.codes_comparable, sums=isinstance(local, FromSums))}."
    )
    if traits.closed_form == "none":
        yield objection("gradient-steps", method=method, name=name, remedy=remedy)
    averages = traits.closed_form == "silos" and not (traits.pooled or traits.personalized)
    if averages and not local.traits.codes_comparable:
        yield objection("bits-differ", method=method, name=name, remedy=remedy)


def _objections_to_sums(config: RunConfig, local: LocalMethod) -> Iterator[Objection]:
    """Yield what keeps a model from being solved from the sums of all silos."""
    from silohash.methods.local.closed_form.base import FromSums

    name, method, settings = config.local.name, config.federated.name, config.federated
    if not isinstance(local, FromSums):
        summed = [f'"{one}"' for one in LOCAL_METHODS.table if issubclass(LOCAL_METHODS.resolve(one), FromSums)]
        fitting = _that_fit(alone=not local.traits.codes_comparable)
        yield objection("not-from-sums", method=method, name=name, summed=" or ".join(summed), fitting=fitting)
        return
    needed = local.exchanges(config.local.bits)
    if settings.rounds < needed:
        yield objection("few-rounds-of-sums", rounds=settings.rounds, name=name, bits=config.local.bits, needed=needed)
    if settings.fraction < 1:
        yield objection("fraction-of-sums", fraction=settings.fraction, method=method)


def _that_fit(*, alone: bool, sums: bool = False) -> str:
    """Return the built-in federated methods that fit a model to pairs: pooled or per silo only, or also from sums."""
    found = {name: FEDERATED_METHODS.resolve(name).traits for name in FEDERATED_METHODS.table}
    fit = {name for name, t in found.items() if t.closed_form == "silos" and (t.pooled or t.personalized or not alone)}
    return ", ".join(f'"{name}"' for name, t in found.items() if name in fit or (sums and t.closed_form == "sums"))


def _objections_to_scores(config: RunConfig, federated: FederatedMethod) -> Iterator[Objection]:
    """Yield the settings that need codes to be measured, for a local method whose scores are measured."""
    from silohash.evaluate.measures import Measure

    scores = f'local.name = "{config.local.name}" scores pairs of an image and a text'
    if not federated.traits.trains_scores:
        able = [name for name in FEDERATED_METHODS.table if FEDERATED_METHODS.resolve(name).traits.trains_scores]
        yield objection("trains-codes", method=config.federated.name, scores=scores, able=", ".join(able))
    if set(config.evaluate.tasks) - set(PAIR_TASKS):
        yield objection("tasks-of-scores", scores=scores, tasks=" and ".join(PAIR_TASKS))
    if config.evaluate.validation_by == "labels":
        yield objection("validation-of-scores", scores=scores)
    for text in config.evaluate.measures:
        if Measure.parse(text).radius_bits is not None:
            yield objection("radius-of-scores", scores=scores, measure=text)


def _without_scores(config: RunConfig) -> Iterator[Objection]:
    """Yield the measures that need scores of pairs, for a local method that has only codes."""
    from silohash.evaluate.measures import Measure

    for text in config.evaluate.measures:
        if Measure.parse(text).by == "scores":
            yield objection("scores-of-codes", measure=text, name=config.local.name)
