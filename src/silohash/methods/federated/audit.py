"""Inspect the updates and scores of a round for faulty silos. What is found is reported and changes nothing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from silohash.base.types import ReadArrays, ValidationBy
from silohash.methods.message import Message
from silohash.models.towers import group_of

LARGE_UPDATE = 5.0
"""An update longer than this multiple of the median length is reported in the round's record."""

MIN_COSINE = -0.2
"""An update whose cosine with the sum of the others is below this value is reported. Near the end of training,
honest updates are almost orthogonal."""

SAMPLED_VALUES = 1 << 15
"""Approximate number of values per array that are inspected for this."""

SKETCH_BYTES = 1 << 25
"""Memory for these values of all silos. With many silos, fewer values per array are inspected."""

MIN_QUERIES = 10
"""A silo with fewer held-back queries is not judged by its score."""

MAX_CHANCE = 0.8
"""Nor is a silo in which random codes score more than this: nearly all of its items share labels."""

MIN_TYPICAL_SKILL = 0.1
"""Nor is any silo before the median silo's skill reaches this value."""

MIN_RELATIVE_SKILL = 0.3
"""A silo is reported if the model's skill on it is below this share of the median silo's.

Measured on photos and products, with even and very uneven partitions: silos with random labels reach at most about
0.2 of the median from the second round on, honest silos at least 0.65 from the first. Where silos hold few classes
and few items, an honest silo may be reported after the first round."""


class UpdateAudit:
    """Find the silos whose updates are far longer than the median or point away from the others.

    Of each update only a sketch is kept: evenly spaced values of its change, scaled so that inner products of sketches
    estimate those of the changes.

    Args:
        current: Current parameters, from which changes are measured.
        silos: Number of updates that are expected at most.
    """

    def __init__(self, current: ReadArrays, silos: int) -> None:
        floats = {name: array for name, array in current.items() if np.issubdtype(array.dtype, np.floating)}
        values = SKETCH_BYTES // (4 * max(1, silos) * max(1, len(floats)))
        most = max(1, min(SAMPLED_VALUES, values))
        self.spacing = {name: max(1, array.size // most) for name, array in floats.items()}
        self.starts = {name: array.ravel()[:: self.spacing[name]] for name, array in floats.items()}
        self.senders: list[str] = []
        self.weighted: list[bool] = []
        self.sketches: list[npt.NDArray[np.float32]] = []

    def add(self, update: Message) -> None:
        """Add an update that was not rejected."""
        self.senders.append(update.sender)
        self.weighted.append(has_weight(update))
        self.sketches.append(self._sketch(update))

    def _sketch(self, update: Message) -> npt.NDArray[np.float32]:
        """Return the scaled values of an update's change; zero for groups in which the silo has no weight."""
        parts = []
        for name, start in self.starts.items():
            if update.weights.get(group_of(name), 0.0) > 0 and name in update.params:
                every = self.spacing[name]
                parts.append((update.params[name].ravel()[::every] - start) * np.float32(np.sqrt(every)))
            else:
                parts.append(np.zeros_like(start))
        return np.concatenate(parts).astype(np.float32, copy=False) if parts else np.zeros(0, np.float32)

    def remarks(self) -> dict[str, str]:
        """Return the silos whose updates look faulty, with the reason."""
        weighted = np.asarray(self.weighted, bool)
        if weighted.sum() < 3:
            return {}
        norms = np.asarray([np.linalg.norm(sketch.astype(np.float64)) for sketch in self.sketches])
        typical = float(np.median(norms[weighted]))
        large = norms > LARGE_UPDATE * typical
        counted = weighted & ~large
        total = np.zeros(len(self.sketches[0]))
        for sketch in (sketch for sketch, counts in zip(self.sketches, counted, strict=True) if counts):
            total += sketch
        found = {}
        for number, (sender, sketch, norm) in enumerate(zip(self.senders, self.sketches, norms, strict=True)):
            others = total - sketch if counted[number] else total
            if typical > 0 and large[number]:
                found[sender] = f"its update is {norm / typical:.0f} times as long as the median silo's"
            elif float(others @ sketch) < MIN_COSINE * norm * float(np.linalg.norm(others)):
                found[sender] = "its update points away from those of the other silos"
        return found


def has_weight(update: Message) -> bool:
    """Return whether an update has a positive weight in any group."""
    return any(weight > 0 for weight in update.weights.values())


def mislabeled_silos(scores: Sequence[Message], by: ValidationBy = "labels") -> dict[str, str]:
    """Return the silos on which the common model is hardly better than chance although it serves the others.

    This detects wrong labels, which the updates do not show: an honest silo with few classes differs from the others as
    much as a silo with random labels. Skill is the score above chance divided by its maximum, which makes silos with
    few and with many classes comparable. Labels that are renamed consistently within a silo are not detected, because
    similarity does not change. Silos report their own scores, so this finds mistakes but not attacks.

    Args:
        scores: One message per silo with its ``score`` of the common model on its held-back ``queries``, and the
            ``chance`` level of that score.
        by: What the score compares: labels, or pairs of a picture and a text.

    Returns:
        Reason by silo; empty if fewer than three silos can be judged.

    Source: Chen et al., "FOCUS: Dealing with Label Quality Disparity in Federated Learning", 2020, which judges labels
    by the common model's performance on a silo's data. Skill: Cohen, "A Coefficient of Agreement for Nominal Scales",
    1960.
    """
    judged = [m for m in scores if m.counts["queries"] >= MIN_QUERIES and m.scalars.get("chance", 1.0) <= MAX_CHANCE]
    if len(judged) < 3:
        return {}
    skills = [(m.scalars["score"] - m.scalars["chance"]) / (1.0 - m.scalars["chance"]) for m in judged]
    typical = float(np.median(skills))
    what = "its labels" if by == "labels" else "its pairs of pictures and texts"
    reason = f"{what} do not match the others: on its held-back items the model is hardly better than chance"
    return {
        message.sender: reason
        for message, skill in zip(judged, skills, strict=True)
        if typical >= MIN_TYPICAL_SKILL and skill < MIN_RELATIVE_SKILL * typical
    }
