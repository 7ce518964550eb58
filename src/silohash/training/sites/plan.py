"""What silos and the server agree on before the first round: features, labels and towers.

Each silo describes its items by sums (`described`). The server merges the descriptions into a plan (`Plan.merged`), which
every silo receives. From the plan, the server makes the inputs of the model (`Plan.server_inputs`), and each silo those of
its own items (`Plan.silo_inputs`). They equal the inputs of a run in which all items are on one machine.
"""

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt

from silohash import __version__, features
from silohash.base.attempts import attempted
from silohash.base.errors import ModalityNeeded, NotSupported, OtherVersion, SilosDiffer
from silohash.base.files import write_bytes
from silohash.base.forms import reading
from silohash.base.names import canonical, one_spelling, tidy
from silohash.base.types import MODALITIES, Arrays, Modality, Rows
from silohash.base.visible import visible
from silohash.data.archive import Archive
from silohash.data.partitions.base import Partition, SiloRows
from silohash.features.base import Featurizer, add_statistics
from silohash.methods.federated.base import entries_under
from silohash.methods.federated.screening import LARGEST_COUNT, infinite_array
from silohash.methods.local.label_counts import label_sums
from silohash.methods.message import Message
from silohash.models.backbones import published_weights
from silohash.run.config.exchange import objections_to_private_silos
from silohash.run.config.load import ResolvedConfig, refuse
from silohash.run.config.objections import objections_to_silos
from silohash.run.config.sections import RunConfig
from silohash.training.checks import no_statistics
from silohash.training.experiment import check_methods, check_tokens, unfitted_featurizers
from silohash.training.prepared import Networks, Prepared, model_spec, prepare, training_silos
from silohash.training.updates.bounds import Announced, capped

LABEL_SUMS = ("label_counts", "label_items")

COUNTS = ("count", "rows", "texts", "document_frequency")
"""Names of the sums by which means and weights of features are divided."""

ANNOUNCEMENTS = "announcements.safetensors"
"""File of what silos announced before their first rounds, in the folder of the run at the server."""

PLAN = "plan.safetensors"
"""File of the plan, in the folder of the run at the server and at each silo."""


def read_message(path: Path) -> Message:
    """Return a message that was stored before the first round."""
    with reading(path, missing="The server has not announced this run here. Start the run again."):
        content = path.read_bytes()
    return Message.decode(content)


def check_version(version: str, sender: str) -> None:
    """Check that whoever announced a run has the version of silohash that is installed here.

    Raises:
        UserError: If it has another one.
    """
    if version != __version__:
        raise OtherVersion(
            f"silohash has the version {__version__} here, and {visible(version or 'none')} at {sender}. Install the same "
            "version everywhere."
        )


def check_digest(digest: str, config: RunConfig, sender: str) -> None:
    """Check that the config of a run means the same here as at whoever announced it, with the same packages of methods.

    Raises:
        UserError: If it does not, for example because packages that add methods differ.
    """
    own = config.shared_digest()
    if digest != own:
        raise SilosDiffer(
            f"The config has the digest {own} here, and {visible(digest or 'none')} at {sender}. Install the same version "
            "of silohash and of packages that add methods everywhere."
        )


def check_separable(resolved: ResolvedConfig) -> None:
    """Check that a method can be trained where no machine sees the items of several silos.

    Raises:
        UserError: If it needs pooled items, or uses labels of a coarser level, whose names are not exchanged.
    """
    if resolved.federated.traits.pooled:
        raise NotSupported(
            f'federated.name = "{resolved.config.federated.name}" pools the items of all silos, and they are on different '
            "machines. Choose another federated method."
        )
    if resolved.local.traits.coarse_column:
        raise NotSupported("local.coarse_column is not supported across machines. Choose another local method.")


def rows_of_site(archive: Archive, number: int, silos: Sequence[str], seed: int) -> Partition:
    """Return a partition in which all items of the archive belong to the silo with a number, and the others are empty."""
    rows, nothing = np.arange(len(archive)), np.arange(0)
    parts = tuple(SiloRows(name, rows if place == number else nothing) for place, name in enumerate(silos))
    return Partition(kind="sites", params={}, seed=seed, silos=parts)


def described(archive: Archive, resolved: ResolvedConfig, number: int, silos: Sequence[str]) -> Message:
    """Return what a silo tells the server about its items: the sums that features are fitted on, and counts of labels."""
    silo = training_silos(archive, rows_of_site(archive, number, silos, resolved.config.seed), resolved)[number]
    sums: Arrays = {}
    private = resolved.config.exchange.privacy is not None
    notes: dict[str, str] = {"labels": json.dumps(list(archive.label_names))}
    for modality, unfitted in unfitted_featurizers(archive, resolved).items():
        notes[f"features/{modality}"] = json.dumps(unfitted.state()[1], sort_keys=True)
        column = archive.values(modality)
        held = silo.train[archive.has(modality)[silo.train]]
        if column is not None and len(held):
            statistics = no_statistics(unfitted, column, held) if private else unfitted.statistics(column, held)
            sums.update({f"{modality}/{name}": array for name, array in statistics.items()})
    if archive.labels is not None:
        labels = archive.labels[silo.train[:0] if private else silo.train]
        sums.update({f"labels/{name}": array for name, array in label_sums([labels]).items()})
    counts = {"training": len(silo.train), "validation": len(silo.validation)}
    return Message(kind="description", sender=silos[number], round=0, sums=sums, notes=notes, counts=counts)


def unusable(description: Message) -> str | None:
    """Return why what a silo tells about its items cannot be used, or None if it can."""
    labels = _decoded(description.notes.get("labels", ""))
    if not isinstance(labels, list) or not all(isinstance(name, str) for name in labels):
        return "it does not list the names of its labels"
    for modality in MODALITIES:
        about = description.notes.get(f"features/{modality}", "{}")
        if not isinstance(_decoded(about), dict):
            return f"it does not describe its {modality} features"
    for name, count in description.counts.items():
        if not 0 <= count <= LARGEST_COUNT:
            return f"its count of {name} is not between 0 and 2^53"
    found, items = entries_under("labels", description.sums), description.counts["training"]
    return infinite_array("", description.sums) or _miscounted(found, len(labels), items)


def _miscounted(found: Arrays, labels: int, items: int) -> str | None:
    """Return why the sums of a silo's labels cannot be used, or None if they can, or if there are none."""
    wanted = dict(zip(LABEL_SUMS, ((labels,), (2,)), strict=True))
    for name, array in found.items():
        if array.shape != wanted.get(name) or array.dtype.kind != "i" or (array < 0).any() or (array > items).any():
            return f"labels/{name} does not hold counts of its labels"
    return "counts of its labels are missing" if found and found.keys() != wanted.keys() else None


def _decoded(text: str) -> object:
    """Return the value of a JSON text, or None if there is none."""
    return attempted(lambda: json.loads(text), ValueError, RecursionError, otherwise=None)


@dataclass(frozen=True)
class Plan:
    """The agreement of a run.

    Attributes:
        labels: Names of the labels, those of all silos, in alphabetical order. Names that silos typed differently are one
            (`silohash.base.names`).
        sums: The sums of `silohash.methods.local.label_counts.label_sums` over all silos; empty without labels.
        sizes: Name, number of training items and number of validation items of each silo.
        networks: The settings of each tower that is a published network, whose files only the server reads.
        published: The initial weights of these towers; see `Prepared`.
        announced: What each silo announced first. The server does not send it to silos.
    """

    featurizers: Mapping[Modality, Featurizer]
    labels: tuple[str, ...]
    sums: Arrays
    sizes: list[tuple[str, int, int]]
    networks: Networks = field(default_factory=dict)
    published: Arrays = field(default_factory=dict)
    announced: Sequence[Announced] = ()

    @classmethod
    def merged(cls, descriptions: Sequence[Message], silos: Sequence[str]) -> Self:
        """Return the plan of a run. Silos that have not described their items join later, and have no items in the plan.

        Raises:
            UserError: If the silos describe different kinds of features, or none has items of a modality.
        """
        uses = Counter(tidy(name) for message in descriptions for name in json.loads(message.notes["labels"]))
        labels = tuple(sorted(uses.keys() - one_spelling(uses).keys()))
        featurizers = {
            modality: _fitted(modality, descriptions)
            for modality in MODALITIES
            if any(f"features/{modality}" in message.notes for message in descriptions)
        }
        sizes = {one.sender: (one.counts["training"], one.counts["validation"]) for one in descriptions}
        return cls(
            featurizers=featurizers,
            labels=labels,
            sums=_label_sums(labels, descriptions),
            sizes=[(name, *sizes.get(name, (0, 0))) for name in silos],
        )

    def with_networks(self, resolved: ResolvedConfig) -> Self:
        """Return the plan with the published networks of a config, if it has any, from their files on this machine."""
        towers = model_spec(self.featurizers, resolved, len(self.labels), {}).networks
        settings = {modality: tower.settings for modality, tower in towers.items()}
        return replace(self, networks=settings, published=published_weights(towers))

    def encode(self) -> Message:
        """Return the plan as a message."""
        extras, notes = {f"labels/{name}": array for name, array in self.sums.items()}, {}
        if self.networks:
            extras.update({f"published/{name}": array for name, array in self.published.items()})
            notes["networks"] = json.dumps(self.networks)
        for modality, featurizer in self.featurizers.items():
            arrays, about = featurizer.state()
            extras.update({f"{modality}/{name}": array for name, array in arrays.items()})
            notes[f"features/{modality}"] = json.dumps(about)
        notes |= {"labels": json.dumps(self.labels), "sizes": json.dumps(self.sizes)}
        return Message(kind="plan", sender="server", round=0, extras=extras, notes=notes)

    @classmethod
    def decode(cls, message: Message) -> Self:
        """Return the plan that `encode` turned into a message."""
        notes, extras = message.notes, message.extras
        return cls(
            featurizers={
                modality: features.restored(entries_under(modality, extras), json.loads(notes[f"features/{modality}"]))
                for modality in MODALITIES
                if f"features/{modality}" in notes
            },
            labels=tuple(json.loads(notes["labels"])),
            sums=entries_under("labels", extras),
            sizes=[(str(name), int(train), int(held)) for name, train, held in json.loads(notes["sizes"])],
            networks=json.loads(notes.get("networks", "{}")),
            published=entries_under("published", extras),
        )

    def server_inputs(self, resolved: ResolvedConfig) -> Prepared:
        """Return the inputs of the server, which do not contain items."""
        check_tokens(self.featurizers, resolved)
        refuse(objections_to_silos(resolved.config.federated, len(self.sizes)))
        refuse(objections_to_private_silos(resolved.config, len(self.sizes)))
        resolved = capped(resolved, {name: training for name, training, _ in self.sizes})
        return Prepared(
            resolved=resolved,
            spec=model_spec(self.featurizers, resolved, len(self.labels), {}, self.networks),
            silos=list(self.sizes),
            arrays=dict(self.sums) if resolved.needs_labels else {},
            published=self.published,
            announced=self.announced,
        )

    def silo_inputs(self, archive: Archive, resolved: ResolvedConfig, number: int) -> Prepared:
        """Return the inputs of a silo, in which the other silos have no items."""
        own = self._with_labels(archive)
        parts = rows_of_site(own, number, [name for name, _, _ in self.sizes], resolved.config.seed)
        silos = training_silos(own, parts, resolved)
        check_methods(own, len(self.featurizers), len(silos[number].validation), resolved)
        prepared = prepare(own, silos, self.featurizers, resolved, networks=self.networks)
        merged = {name: array for name, array in self.sums.items() if name in prepared.arrays}
        return replace(prepared, arrays={**prepared.arrays, **merged}, published=self.published)

    def _with_labels(self, archive: Archive) -> Archive:
        """Return the archive with the labels of the plan, in their order. Those that only a later silo has are left out."""
        if archive.labels is None:
            return archive
        labels = np.zeros((len(archive), len(self.labels)), archive.labels.dtype)
        places = _places(self.labels, archive.label_names)
        for column in np.flatnonzero(places >= 0).tolist():
            labels[:, places[column]] |= archive.labels[:, column]
        return replace(archive, labels=labels, label_names=self.labels)


def _places(labels: Sequence[str], names: Sequence[str]) -> Rows:
    """Return the place of each name among the labels of a plan, ``(n,)`` int64; -1 if it is not one of them."""
    place = {canonical(label): number for number, label in enumerate(labels)}
    return np.array([place.get(canonical(name), -1) for name in names], np.int64)


def announcements(folder: Path, plan: Plan, descriptions: Sequence[Message], *, begins: bool) -> tuple[Announced, ...]:
    """Return what each silo announced first, and store it, so that no later description in a continued run changes it."""
    path = folder / ANNOUNCEMENTS
    known = Message("announcements", "server", 0) if begins or not path.exists() else read_message(path)
    counts, sums = dict(known.counts), dict(known.sums)
    for one in descriptions:
        if f"training/{one.sender}" not in counts:
            counts |= {f"{part}/{one.sender}": one.counts[part] for part in ("training", "validation")}
            counted = "labels/label_items" in one.sums and one.sums["labels/label_items"][0] > 0
            sums |= {one.sender: _in_order(plan.labels, one)} if counted else {}
    write_bytes(path, replace(known, counts=counts, sums=sums).encode())
    return tuple(
        Announced(counts.get(f"training/{name}", 0), counts.get(f"validation/{name}", 0), sums.get(name))
        for name, _, _ in plan.sizes
    )


def _in_order(labels: Sequence[str], description: Message) -> npt.NDArray[np.int64]:
    """Return a silo's counts of labels in the common order, ``(C,)``. Labels that are not common are left out."""
    counts, places = np.zeros(len(labels), np.int64), _places(labels, json.loads(description.notes["labels"]))
    np.add.at(counts, places[places >= 0], description.sums["labels/label_counts"][places >= 0])
    return counts


def _fitted(modality: Modality, descriptions: Sequence[Message]) -> Featurizer:
    """Return the featurizer of a modality, fitted on the sums of all silos that have it."""
    given = [message for message in descriptions if f"features/{modality}" in message.notes]
    first, about = given[0], given[0].notes[f"features/{modality}"]
    for message in given[1:]:
        if message.notes[f"features/{modality}"] != about:
            raise SilosDiffer(
                f"The {modality} features of {message.sender} ({message.notes[f'features/{modality}']}) are not of the form "
                f"of those of {first.sender} ({about}). Give all silos data of the same kind and width, and name the "
                'analysis of texts: [features] text = { kind = "tfidf", analysis = "unicode-1", languages = ["en", "fr"] }'
            )
    fitted, sums = features.restored({}, json.loads(about)), []
    # counts are per item and pixel, token or region
    most = math.prod(fitted.shape) // fitted.shape[0 if len(fitted.shape) == 3 else -1]
    for message in given:
        found = entries_under(modality, message.sums)
        counted = max((float(found[name].max()) for name in COUNTS if name in found), default=0.0)
        if counted > most * message.counts["training"]:
            raise SilosDiffer(
                f"{message.sender} counts {counted:g} {modality} features, more than its {message.counts['training']:,} "
                "training items have. Train without it: silohash federation disable KIT NAME"
            )
        sums += [found] if found else []
    if not sums:
        raise ModalityNeeded(f"No silo has training items with {modality} data. Give at least one silo some.")
    return fitted.fitted(add_statistics(sums))


def _label_sums(labels: Sequence[str], descriptions: Sequence[Message]) -> Arrays:
    """Return the sums of the silos' counts of labels, in the common order of the labels; empty without labels."""
    if not labels:
        return {}
    counts, items = np.zeros(len(labels), np.int64), np.zeros(2, np.int64)
    for message in descriptions:
        if found := entries_under("labels", message.sums):
            counts += _in_order(labels, message)
            items += found["label_items"]
    return dict(zip(LABEL_SUMS, (counts, items), strict=True))
