"""Screen what silos send: updates that cannot be used are rejected, and silos that look faulty are reported.

A silo may send anything. What a method expects is known from the server's state, the means that the method declares, and its
template, so a message is rejected by these and never by other messages: no silo can decide what is right. What a comparison
of the silos finds is only reported.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from silohash.base.types import ReadArrays, ValidationBy
from silohash.methods.federated.averaging import LARGEST_WEIGHT, has_weight
from silohash.methods.federated.base import FederatedMethod, ServerState
from silohash.methods.federated.server_values import empty_sums
from silohash.methods.federated.shared_means import NOT_OF_METHOD, declared_values, objection
from silohash.methods.message import SECTIONS, Message
from silohash.models.towers import group_of

Skills = npt.NDArray[np.float64]

STATISTICS = "statistics"
"""Kind of the message that a silo sends before its update, if the method exchanges statistics."""

LARGEST_COUNT = 1 << 53
"""Largest number of items, which all types of numbers hold exactly."""

LARGE_UPDATE = 5.0
"""An update longer than this multiple of the median length is reported in the round's record."""

MIN_COSINE = -0.2
"""An update whose cosine with the sum of the others is below this value is reported. Near the end of training,
honest updates are almost orthogonal."""

SAMPLED_VALUES = 1 << 15
"""Approximate number of values per array that are inspected for this."""

SKETCH_BYTES = 1 << 25
"""Memory for these values of all silos. With many silos, fewer values per array are inspected."""

MIN_JUDGED = 10
"""A silo with fewer held-back items that can be judged is not tested."""

MAX_CHANCE = 0.8
"""Nor is a silo in which random codes score more than this: few items are wrong answers, and all queries share them."""

MIN_TYPICAL_SKILL = 0.2
"""Nor is any silo before the median silo's skill reaches this value."""

MIN_RELATIVE_SKILL: Mapping[ValidationBy, float] = {"labels": 0.5, "pairs": 0.75}
"""A silo is reported if the model's skill on it is significantly below this share of the median silo's.

With half of a silo's pairs shuffled, skill is about half of that without. Measured on photos and products, the share of an
honest silo is above 0.8 by pairs, and above 0.6 by labels, which are harder to tell apart in some silos than in others."""

MAX_WRONG = 0.01
"""Upper limit on the probability that any honest silo of a run is reported."""

MEDIAN_VARIANCE = np.pi / 2
"""Variance of a median, as a multiple of that of a mean, of normal values."""


def refusal(update: Message, kept: ReadArrays, server: ServerState, federated: FederatedMethod) -> str | None:
    """Return why an update is rejected, or None if it can be used.

    All numbers must be finite, every parameter must be one of the global model and have its shape and type, no weight may be
    negative, all means must be possible, and all other values must be those of the method's template. The numbers that the
    silo keeps for its next round must be finite, too.
    """
    infinite = (infinite_array(f"{section}/", getattr(update, section)) for section in SECTIONS)
    return (
        next(filter(None, infinite), None)
        or _misfit(update, server)
        or _miscounted(update, server)
        or infinite_array("its stored ", kept)
        or objection(update, federated.traits.means, server.extras)
        or _unlike_template(update, server, federated)
    )


def infinite_array(prefix: str, arrays: ReadArrays) -> str | None:
    """Return which of the arrays holds values that are not finite, or None."""
    for name, array in arrays.items():
        if np.issubdtype(array.dtype, np.floating):
            # a finite sum needs no memory for a test of each value, which is made only if the sum may have overflowed
            total = np.einsum("i->", array.ravel(order="K"))
            if not np.isfinite(total) and not np.isfinite(array).all():
                return f"{prefix}{name} holds NaN or infinite values"
    return None


def _misfit(update: Message, server: ServerState) -> str | None:
    """Return which parameter does not fit the global model, or None."""
    for name, array in update.params.items():
        if name not in server.params:
            return f"{name} is not a parameter of the global model"
        wanted = server.params[name]
        if array.shape != wanted.shape:
            return f"{name} has shape {array.shape}, but {wanted.shape} in the global model"
        if array.dtype != wanted.dtype:
            return f"{name} has type {array.dtype}, but {wanted.dtype} in the global model"
    return None


def _miscounted(update: Message, server: ServerState) -> str | None:
    """Return which count or weight is impossible, or None."""
    for name, count in update.counts.items():
        if not 0 <= count <= LARGEST_COUNT:
            return f"its count of {name} is not between 0 and 2^53"
    if any(not 0 <= weight <= LARGEST_WEIGHT for weight in update.weights.values()):
        return f"its weights are {dict(update.weights)}"
    there, sent = _trained_groups(server.params), _trained_groups(update.params)
    for group, weight in update.weights.items():
        if weight > 0 and group in there - sent:
            return f"it has a weight for the parameters of {group}, and does not send them"
    return None


def _trained_groups(params: ReadArrays) -> set[str]:
    return {group_of(name) for name, array in params.items() if np.issubdtype(array.dtype, np.floating)}


def _unlike_template(update: Message, server: ServerState, federated: FederatedMethod) -> str | None:
    """Return which value beside parameters and means is missing or unexpected; None if there is none."""
    kind = STATISTICS if update.kind == STATISTICS else "update"
    template = federated.template(server, kind=kind, round=update.round)
    if kind == "update":
        template = replace(template, sums={**template.sums, **empty_sums(federated, server.params)})
    elif not update.sums and not update.encrypted:
        return "its statistics are empty"
    declared, needed = declared_values(update, federated.traits.means), update.counts.get("items", 0) > 0
    sums = {name: array for name, array in update.sums.items() if name not in declared.sums}
    records = {name: array for name, array in update.records.items() if name not in declared.records}
    return _difference(sums, template.sums, needed=needed) or _difference(records, template.records, needed=needed)


def _difference(given: ReadArrays, wanted: ReadArrays, *, needed: bool) -> str | None:
    """Return which value is missing or differs from the template, or is not in it; None if there is none."""
    for name, array in given.items():
        if name not in wanted:
            return NOT_OF_METHOD.format(name)
        if (array.shape, array.dtype) != (wanted[name].shape, wanted[name].dtype):
            expected = f"{wanted[name].dtype} {wanted[name].shape}"
            return f"{name} is {array.dtype} {array.shape} instead of {expected}"
    parts = {_beginning(name) for name in given}
    for name in wanted:
        if name not in given and (_beginning(name) in parts or (needed and not given)):
            return f"{name} is missing"
    return None


def _beginning(name: str) -> str:
    return name.rpartition("/")[0]


class Outliers:
    """Find the silos whose updates are far longer than the median or point away from the others.

    Of each update only a sketch is kept: evenly spaced values of its change from the current parameters, scaled so that
    inner products of sketches estimate those of the changes. There are at most as many updates as silos.
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
        # A group in which the silo has no weight is zero.
        parts = []
        for name, start in self.starts.items():
            if update.weights.get(group_of(name), 0.0) > 0 and name in update.params:
                every = self.spacing[name]
                parts.append((update.params[name].ravel()[::every] - start) * np.float32(np.sqrt(every)))
            else:
                parts.append(np.zeros_like(start))
        self.sketches.append(np.concatenate(parts).astype(np.float32, copy=False) if parts else np.zeros(0, np.float32))

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


def mislabeled_silos(scores: Sequence[Message], by: ValidationBy = "labels", *, rounds: int = 1) -> dict[str, str]:
    """Return the silos that the common model serves significantly worse than the others, with the reason.

    This detects wrong labels and pairs, which the updates do not show: an honest silo with few classes differs from the
    others as much as a silo with random labels. Skill is 2 AUC - 1: 0 for random codes and 1 for perfect ones, however many
    items are searched. Labels that are renamed consistently within a silo are not detected, because similarity does not
    change. Silos report their own scores, so this finds mistakes but not attacks.

    Each message holds the ``auc`` of the common model on the silo's held-back items, its standard error ``auc_error``, and
    the number of items ``judged`` that it averages. A silo is reported if the upper confidence limit of its skill is below
    `MIN_RELATIVE_SKILL` of the median. The level is `MAX_WRONG`, divided by the numbers of silos and of ``rounds``
    (Bonferroni), because a wrong report in any round is an error. At least three silos must be judged.

    Source: Chen et al., "FOCUS: Dealing with Label Quality Disparity in Federated Learning", 2020, which judges labels
    by the common model's performance on a silo's data.
    """
    tested = [(message, count) for message in scores if (count := _judged_items(message)) >= MIN_JUDGED]
    if len(tested) < 3:
        return {}
    skills = np.array([2 * message.scalars["auc"] - 1 for message, _ in tested])
    errors = np.array([2 * message.scalars["auc_error"] for message, _ in tested])
    typical, share = float(np.median(skills)), MIN_RELATIVE_SKILL[by]
    if typical < MIN_TYPICAL_SKILL:
        return {}
    sizes = np.array([float(count) for _, count in tested])
    limits = _upper_limits(skills, errors, sizes, share, MAX_WRONG / (len(tested) * rounds))
    return {
        message.sender: f"its {by} do not match the others: on its held-back items the model separates right from wrong "
        f"with {max(0.0, skill / typical):.0%} of the median silo's skill"
        for (message, _), skill, limit in zip(tested, skills, limits, strict=True)
        if limit < share * typical
    }


def _judged_items(message: Message) -> int:
    """Return the number of items whose area a silo reports; 0 if nearly all that they search is relevant."""
    known = message.scalars.keys() >= {"auc", "auc_error", "chance"} and message.scalars["chance"] <= MAX_CHANCE
    return min(message.counts.get("judged", 0), message.counts["queries"]) if known else 0


def _upper_limits(skills: Skills, errors: Skills, sizes: Skills, share: float, level: float) -> Skills:
    """Return the upper confidence limit of each silo's skill, beside a share of the median, which is uncertain as well.

    This is a quasi-binomial t-test: values from -1 to 1 with mean m have at most the variance 1 - m^2, and which part of it
    they have is estimated from the items of all silos.

    Args:
        skills: Mean skill per silo, ``(S,)``.
        errors: Its standard error, ``(S,)``.
        sizes: Number of items per silo, ``(S,)``.
        share: Share of the median skill that a silo is compared with.
        level: Probability that a limit is below the true skill.

    Source: McCullagh and Nelder, "Generalized Linear Models", 1989, section 4.5.
    """
    from scipy.special import stdtrit  # here, because its import is slow

    free = sizes - 1
    largest = float(free @ (1 - skills**2))
    dispersion = float(free @ (sizes * errors**2)) / largest if largest > 0 else 0.0
    squares = dispersion * (1 - (share * np.median(skills)) ** 2) / sizes
    spread = np.sqrt(squares + share**2 * MEDIAN_VARIANCE * squares.mean() / len(sizes))
    return np.asarray(skills + stdtrit(float(free.sum()), 1 - level) * spread)
