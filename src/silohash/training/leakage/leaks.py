"""What a curious server can learn from a run: measured with the data of the run, which the attacker does not have.

The attacker has what the server has: the updates of the last round, class statistics, the final model, and items of its own,
the queries of the archive, which no silo trained on. Each figure says how often its best guess would be right.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch

from silohash.base import seeds
from silohash.base.errors import NotSupported, TooFew
from silohash.base.types import MODALITIES, Modality, ReadArrays, Rows
from silohash.features.vectors import vectors
from silohash.index.codes import pack, unpack
from silohash.methods.local.base import SiloData
from silohash.methods.message import Message
from silohash.models.parameters import to_array
from silohash.run.folder import Run
from silohash.training.experiment import prepare_run
from silohash.training.leakage import attacks
from silohash.training.updates.received import FOLDER, ReceivedUpdates
from silohash.training.worker import Worker

MOST_SILOS = 10
"""Number of silos that are attacked, and whose models calibrate scores."""

MOST_ITEMS = 400
"""Number of items of each silo, and of items of the attacker, on which updates are attacked."""

MOST_CODES = 2000
"""Number of items whose codes are attacked."""

FEWEST_OF_A_LABEL = 5
"""Labels of fewer items than this, or of nearly all items, are left out."""

GUESSING = 0.5
"""The area under the curve of an attacker who guesses."""


@dataclass(frozen=True)
class Leak:
    """The success of one attack.

    Attributes:
        attack: What the attacker guesses.
        seen: From what.
        figure: ``AUC``, or ``explained`` for the share of the variance that is reconstructed.
        low: Lower end of its 95 % interval, as ``high`` is its upper end.
        without: The figure of an attacker who has seen nothing.
    """

    attack: str
    seen: str
    figure: str
    value: float
    low: float
    high: float
    without: float


def leak(attack: str, seen: str, found: attacks.Estimate, *, figure: str = "AUC", without: float = GUESSING) -> Leak:
    """Return the success of an attack with an estimate."""
    return Leak(attack, seen, figure, found.value, found.low, found.high, without)


def protection(run: Run) -> str:
    """Return what protected the updates of a run, in words."""
    compression, last = run.config.exchange.compression, run.rounds()[-1:]
    released = [(one.privacy.unit, one.privacy.epsilon) for one in last if one.privacy is not None]
    words = [f"noise per {unit}, epsilon {'infinite' if e is None else f'{e:.3g}'}" for unit, e in released]
    if compression is not None:
        words.append(f"compression {compression.kind}")
    return ", ".join(words) or "none"


class Attacker:
    """Attack one run, which is trained and has its archive."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.seed = run.config.seed
        self.received = ReceivedUpdates(run.folder / FOLDER)

    @cached_property
    def worker(self) -> Worker:
        """The model and the silos' training items."""
        prepared, _ = prepare_run(self.run.archive, self.run.partition, self.run.resolved)
        return Worker(prepared, torch.device("cpu"))

    @cached_property
    def outside(self) -> Rows:
        """Archive rows of the attacker's own items: queries that no silo trained on, and that have all modalities.

        Raises:
            UserError: If there are too few of them.
        """
        archive = self.run.archive
        rows = np.setdiff1d(archive.split("query"), archive.split("train"))
        for modality in self.run.model.featurizers:
            rows = rows[archive.has(modality)[rows]]
        if len(rows) < 2 * FEWEST_OF_A_LABEL:
            raise TooFew(
                f'Archive "{archive.card.name}" has {len(rows)} queries that no silo trained on, and an audit needs at '
                f'least {2 * FEWEST_OF_A_LABEL} to compare with. Add items to the split "query".'
            )
        return rows

    def some(self, rows: Rows, most: int, purpose: str) -> Rows:
        """Return at most some of the rows, drawn at random, in ascending order."""
        if len(rows) <= most:
            return rows
        return np.sort(seeds.numpy_generator(self.seed, f"audit/{purpose}").choice(rows, most, replace=False))

    def leaks(self) -> Iterator[Leak]:
        """Yield the success of each attack that the run allows.

        Raises:
            UserError: If the archive has no items to compare with, or training items were drawn with replacement.
        """
        if self.run.partition.params.get("bootstrap"):
            raise NotSupported(
                "partition.bootstrap leaves out items of the training split, so an audit cannot tell which items were "
                "trained on. Audit a run without partition.bootstrap."
            )
        yield from self.of_statistics()
        if self.kept:
            yield from self.of_updates()
        yield from self.of_codes()

    @property
    def kept(self) -> bool:
        """Whether the run kept the updates of its last round, and they can be turned into models."""
        traits = self.run.resolved.federated.traits
        return self.received.kept and traits.shares != "none" and not traits.sends_changes

    def missing(self) -> str:
        """Return what was not measured and how to measure it, as a sentence; empty if all was measured."""
        if self.kept:
            return ""
        if self.run.config.exchange.encryption:
            return f"{self.run.name}: the server cannot read the encrypted updates, so they were not attacked."
        if self.received.kept:
            return f"{self.run.name}: silos do not send models, so their updates were not attacked."
        return (
            f"{self.run.name} did not keep the updates of its last round, so they were not attacked. Train it again with "
            "--set exchange.keep_updates=true."
        )

    def silos(self) -> list[int]:
        """Return the numbers of the silos that are attacked: those with enough training items, at most some."""
        sizes = [train for _, train, _ in self.worker.prepared.silos]
        return [number for number, size in enumerate(sizes) if size >= FEWEST_OF_A_LABEL][:MOST_SILOS]

    def label_shares(self, silos: Sequence[int]) -> attacks.Values:
        """Return which share of each silo's training items has each label, ``(J, C)``."""
        labels = self.run.archive.labels
        assert labels is not None  # noqa: S101  checked by the caller
        train = self.run.archive.split("train")
        rows = [np.intersect1d(self.run.partition.silos[silo].rows, train) for silo in silos]
        return np.stack([labels[each].astype(np.float64).mean(axis=0) for each in rows])

    def of_statistics(self) -> Iterator[Leak]:
        """Yield how well the counts of labels that silos send tell which silos have more items of a label."""
        resolved, silos = self.run.resolved, self.silos()
        if self.run.archive.labels is None or not resolved.needs_labels or len(silos) < 2:
            return
        shares = self.label_shares(silos)
        private = resolved.config.exchange.privacy is not None
        sent = np.zeros_like(shares) if private else shares
        yield from _label_leak("counts of labels before the first round", sent, shares)
        counts = [self._class_counts(update) for silo, update in self.received.updates() if silo in silos]
        if self.received.kept and counts and all(found is not None for found in counts):
            given = np.stack([found for found in counts if found is not None])
            yield from _label_leak("class statistics of the last round", given, shares)

    def _class_counts(self, update: Message) -> attacks.Values | None:
        """Return the class counts of an update divided by its number of items, ``(C,)``; None if it has none."""
        means = [mean for mean in self.run.resolved.federated.traits.means if mean.by_row]
        found = (mean.values(update)[name] for mean in means for name in mean.pairs(update).values())
        counts = next(found, None)
        return None if counts is None else counts.astype(np.float64) / max(1, update.counts["items"])

    def of_updates(self) -> Iterator[Leak]:
        """Yield how well the updates of the last round tell members and label shares."""
        origin, wanted = self.received.origin(), self.silos()
        updates = {silo: update for silo, update in self.received.updates() if silo in wanted}
        if len(updates) < 2:
            return
        scores = attacks.FitScores(self.run.resolved, self.worker.model, origin.extras)
        models: list[ReadArrays] = [{**origin.params, **update.params} for update in updates.values()]
        outside = self.outside_items()
        fits = np.stack([scores.of(params, outside) for params in models])
        areas = []
        for own, silo in enumerate(updates):
            members = self.members(silo)
            inside = np.stack([scores.of(params, members) for params in models])
            areas.append(
                self._membership(members, attacks.calibrated(inside, own), outside, attacks.calibrated(fits, own))
            )
        yield leak("membership of an item", "updates of the last round", attacks.mean_estimate(areas))
        labels = self.run.archive.labels
        if labels is not None:
            rows = self.some(self.outside, MOST_ITEMS, "outside")
            guessed = np.stack(
                [_means_by_label(attacks.calibrated(fits, own), labels[rows]) for own in range(len(models))]
            )
            shares = self.label_shares(list(updates))
            yield from _label_leak("updates of the last round", guessed, shares)

    def _membership(
        self, members: SiloData, inside: attacks.Values, outside: SiloData, beyond: attacks.Values
    ) -> attacks.Estimate:
        """Return how well scores separate members from other items, without what their labels explain of the scores."""
        # A silo's model fits items of its frequent labels better, whether or not it was trained on them.
        if members.labels is None or outside.labels is None:
            return attacks.area_under_curve(inside, beyond)
        known, wanted = (to_array(labels).astype(np.float64) for labels in (outside.labels, members.labels))
        expected = [attacks.ridge_predictions(known, beyond[:, None], labels)[:, 0] for labels in (wanted, known)]
        return attacks.area_under_curve(inside - expected[0], beyond - expected[1])

    def members(self, silo: int) -> SiloData:
        """Return some training items of a silo."""
        data = self.worker.prepared.silo(silo, torch.device("cpu"))[0]
        rows = self.some(np.arange(len(data)), MOST_ITEMS, f"members/{silo}")
        return data.take(torch.from_numpy(rows))

    def outside_items(self) -> SiloData:
        """Return some items of the attacker, in the form of training items."""
        archive, like = self.run.archive, self.worker.prepared.silo(0, torch.device("cpu"))[0]
        rows = self.some(self.outside, MOST_ITEMS, "outside")
        there = torch.ones(len(rows), dtype=torch.bool)
        values: dict[Modality, torch.Tensor] = {
            modality: torch.from_numpy(np.ascontiguousarray(vectors(archive, featurizer, rows)))
            for modality, featurizer in self.run.model.featurizers.items()
        }
        labels = None if like.labels is None else torch.from_numpy(_labels(archive.labels, rows)).float()
        return replace(
            like, image=values.get("image"), text=values.get("text"), labels=labels, has_image=there & ("image" in values),
            has_text=there & ("text" in values), coarse_labels=None, pictures=None,
        )  # fmt: skip

    def of_codes(self) -> Iterator[Leak]:
        """Yield how well the codes of items tell members, labels and vectors. The global model computes the codes."""
        archive, featurizers = self.run.archive, self.run.model.featurizers
        train = archive.split("train")
        for modality in featurizers:
            train = train[archive.has(modality)[train]]
        members, outside = self.some(train, MOST_CODES, "codes"), self.outside
        codes = {name: self._codes(rows) for name, rows in (("members", members), ("outside", outside))}
        if len(featurizers) == len(MODALITIES):
            pairs = (list(codes[name].values()) for name in ("members", "outside"))
            inside, beyond = ((first == second).mean(axis=1) for first, second in pairs)
            found = attacks.area_under_curve(inside, beyond)
            yield leak("membership of an item", "codes of its picture and its text", found)
        known, wanted = (np.concatenate(list(codes[name].values()), axis=1) for name in ("outside", "members"))
        if archive.labels is not None:
            guesses = attacks.ridge_predictions(known, _labels(archive.labels, outside), wanted)
            if areas := list(_areas_by_label(guesses, _labels(archive.labels, members))):
                yield leak("labels of an item", "its codes", attacks.mean_estimate(areas))
        for modality, featurizer in featurizers.items():
            if len(featurizer.shape) != 1:
                continue
            mine, theirs = (vectors(archive, featurizer, rows).astype(np.float64) for rows in (outside, members))
            found = attacks.explained_share(attacks.ridge_predictions(known, mine, wanted), theirs)
            yield leak(f"{modality} vector of an item", "its codes", found, figure="explained", without=0.0)

    def _codes(self, rows: Rows) -> dict[Modality, attacks.Values]:
        """Return the signs of the codes of items by the model that is deployed, ``(n, K)`` per modality."""
        model = self.run.model
        encoder = model.encoder(next(iter(model.names)))
        found = {}
        for modality, featurizer in model.featurizers.items():
            outputs = encoder.outputs(vectors(self.run.archive, featurizer, rows), modality)
            found[modality] = unpack(pack(outputs), outputs.shape[1]).astype(np.float64)
        return found


def _labels(labels: npt.NDArray[np.generic] | None, rows: Rows) -> attacks.Values:
    assert labels is not None  # noqa: S101  checked by the callers
    return np.asarray(labels[rows], np.float64)


def _means_by_label(scores: attacks.Values, labels: npt.NDArray[np.generic]) -> attacks.Values:
    """Return the mean score of the items with each label minus that of the others, ``(C,)``; 0 for labels of too few."""
    held = np.asarray(labels, np.float64)
    count, others = held.sum(axis=0), len(held) - held.sum(axis=0)
    means = scores @ held / np.maximum(count, 1) - scores @ (1.0 - held) / np.maximum(others, 1)
    return np.where((count >= FEWEST_OF_A_LABEL) & (others >= FEWEST_OF_A_LABEL), means, 0.0)


def _label_leak(seen: str, guessed: attacks.Values, shares: attacks.Values) -> Iterator[Leak]:
    """Yield how well guesses ``(J, C)`` tell which silos have a larger share of a label than the median silo."""
    above, guess = (values - np.median(values, axis=0) for values in (shares, guessed))
    more, less = guess[above > 0], guess[above < 0]
    if len(more) and len(less):
        yield leak("label shares of a silo", seen, attacks.area_under_curve(more, less))


def _areas_by_label(guesses: attacks.Values, labels: attacks.Values) -> Iterator[attacks.Estimate]:
    """Yield the area under the curve of each label that enough items have and lack."""
    for guess, held in zip(guesses.T, labels.T > 0, strict=True):
        if min(held.sum(), (~held).sum()) >= FEWEST_OF_A_LABEL:
            yield attacks.area_under_curve(guess[held], guess[~held])
