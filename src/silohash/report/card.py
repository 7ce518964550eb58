"""The model card in ``RUN/model/card.md``: what to know about a trained model before using it.

The card states what the run recorded and nothing else.
"""

import shlex
from collections.abc import Mapping, Sequence
from importlib.resources import files

import jinja2
import numpy as np
from markupsafe import Markup

from silohash.base.templates import visible_value
from silohash.base.types import MethodCard
from silohash.base.visible import markdown as markdown_of
from silohash.data.partitions.base import LACKING
from silohash.features.base import SETS, Featurizer
from silohash.measure.measurable import unmeasured
from silohash.report.gather import facts, method_run, warnings
from silohash.report.headline import headline
from silohash.report.page import EVALUATION_WORDS
from silohash.report.tables import choices, markdown
from silohash.run.events import epsilon_words
from silohash.run.folder import Run
from silohash.run.model.export import plain_settings
from silohash.run.model.trained import GLOBAL

MEGABYTE = 1e6
ABOUT_MODEL = ("seed", "config digest", "machine", "silohash")
"""The facts of a run that tell where the model comes from. The others tell what it was trained on."""


def card_text(run: Run) -> str:
    """Return the card as Markdown.

    Raises:
        UserError: If the run does not have a model or figures yet.
    """
    source = files("silohash.report").joinpath("templates/card.md").read_text(encoding="utf-8")
    environment = jinja2.Environment(  # noqa: S701  Markdown does not need escaping
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=visible_value,
    )
    environment.filters |= {
        "cell": lambda value: markdown_of(" ".join(str(value).split())).replace("|", "\\|"), "plain": markdown_of,
    }  # fmt: skip
    saved, measured = run.model, method_run(run)
    known = facts(run)
    evaluations = {row.evaluation for row in measured.rows}
    return environment.from_string(source).render(
        title=f"{run.name}: {run.config.local.name} codes of {known['bits']} bits",
        run=run,
        commands=commands(run),
        inputs={modality: input_words(featurizer) for modality, featurizer in saved.featurizers.items()},
        needs_label_at_query=measured.needs_label_at_query,
        data=data_facts(run, known),
        cards=measured.cards,
        headline="" if measured.needs_label_at_query else headline(measured.rows).sentence,
        figures=Markup(markdown(measured.rows, percent=True)) if measured.rows else "",  # noqa: S704  a table
        unseen=Markup(markdown(measured.unseen, percent=True)) if measured.unseen else "",  # noqa: S704  a table
        unmeasured=unmeasured(run.archive),
        evaluations={name: words for name, words in EVALUATION_WORDS.items() if name in evaluations},
        choices=choices(measured.rows[0]) if measured.rows else "not recorded",
        round=f"The model is from round {saved.record.round + 1} of {len(run.rounds())}.",
        left=what_left(run, measured.cards),
        kept=[line for card in measured.cards for line in card.keeps],
        privacy=run.config.exchange.privacy,
        spent=[record.privacy for record in run.rounds() if record.privacy],
        epsilon_words=epsilon_words,
        lacking=silos_lacking(run),
        warnings=warnings(run),
        origin=origin(run, known),
    )


def commands(run: Run) -> list[str]:
    """Return the commands that use the model, in the form that its inputs need."""
    folder, featurizers = shlex.quote(run.name), run.model.featurizers
    lines = [f"silohash index {folder}"]
    for modality, featurizer in featurizers.items():
        if featurizer.kind == "given":
            lines.append(f"silohash search {folder} --vector FILE.npy --vector-of {modality}")
        else:
            lines.append(f"silohash search {folder} " + ('"WORDS"' if modality == "text" else "--image FILE"))
    model = " --model SILO" if run.model.personalized else ""
    lines.append(f"silohash encode {folder} ARCHIVE --modality {next(iter(featurizers))} --out codes.npz{model}")
    return [*lines, f"silohash export {folder} --onnx{model}"]


def input_words(featurizer: Featurizer) -> str:
    """Return what the featurizer takes, with its settings: words, nonzero numbers and enabled switches."""
    about = plain_settings(featurizer)
    shown = {n: v for n, v in about.items() if n not in {"kind", "modality"} and v and isinstance(v, str | int | float)}
    settings = ", ".join(name if value is True else f"{name} {value}" for name, value in shown.items())
    what = (
        "vectors, made in the same way as those of the archive"
        if featurizer.kind == "given"
        else f'kind "{featurizer.kind}"'
    )
    return f"{what} ({settings})" if settings else what


def data_facts(run: Run, known: Mapping[str, str]) -> dict[str, str]:
    """Return what the model was trained on, as name -> value."""
    card = run.archive.card
    splits = ", ".join(f"{name} {len(rows):,}" for name, rows in run.archive.splits.items())
    trained_on = {name: value for name, value in known.items() if name not in (*ABOUT_MODEL, "evaluation")}
    return {
        **trained_on,
        "source of the data": card.source,
        "splits": splits,
        "digest of the data": card.digest,
        **card.notes,
    }


def what_left(run: Run, cards: Sequence[MethodCard]) -> list[str]:
    """Return what the silos sent: per method, for the features, and the number of bytes."""
    lines = [f"{card.key}: {', '.join(card.sends)}" for card in cards if card.sends]
    shared = {} if run.config.exchange.privacy else run.model.featurizers
    for modality, featurizer in shared.items():
        column = run.archive.values(modality)
        sums = {} if column is None else featurizer.statistics(column, np.zeros(0, np.int64))
        added = [name for name in sums if name not in SETS]
        if added:
            lines.append(f"{modality} features, before training, as sums over the items of a silo: {', '.join(added)}")
        if SETS & set(sums):
            lines.append(f"{modality} features, before training: a digest of every word in the texts of a silo")
    rounds = run.rounds()
    up, down = sum(r.uplink_bytes for r in rounds) / MEGABYTE, sum(r.downlink_bytes for r in rounds) / MEGABYTE
    return [
        *lines,
        f"in {len(rounds):,} rounds: {up:,.2f} MB from the silos, {down:,.2f} MB to them, summed over all silos",
    ]


def silos_lacking(run: Run) -> dict[str, list[str]]:
    """Return the silos that were trained without pictures, texts or pairs, as content -> names of silos."""
    return {name: [silo.name for silo in run.partition.silos if name in silo.lacks] for name in LACKING.values()}


def origin(run: Run, known: Mapping[str, str]) -> dict[str, str]:
    """Return where the model comes from: digests, seed and versions."""
    names = [name for name in run.model.names if name != GLOBAL] if run.model.personalized else [GLOBAL]
    digests = {f"model digest{'' if name == GLOBAL else f', {name}'}": run.model.digest(name) for name in names}
    return {**{name: known[name] for name in ABOUT_MODEL}, **digests}
