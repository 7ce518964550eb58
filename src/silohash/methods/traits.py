"""What shared code must know about a method beside its hooks: one frozen value per method.

A class states its traits in the attribute ``traits``. If they depend on parameters, a local method replaces that value in
its constructor, ``self.traits = replace(self.traits, item_bits=params.item_bits)``, and a federated method overrides
`silohash.methods.federated.base.FederatedMethod.chosen_traits`. Config checks, privacy, encryption, training and
documentation read nothing else about a method, and never its class or its parameters by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from silohash.base.types import Side

if TYPE_CHECKING:
    from silohash.methods.federated.shared_means import SharedMean

WeightsKnown: TypeAlias = Literal["before training", "after statistics", "with update"]
Shares: TypeAlias = Literal["all", "hash", "body", "none"]


@dataclass(frozen=True)
class EpochRules:
    """How a silo trains for an epoch. By default, an epoch is a pass over the items, and an optimizer lasts for a phase.

    Attributes:
        fresh_optimizers: Whether the state of the optimizers is reset at the start of each epoch.
        independent_batches: Whether each batch is a random subset of all items, independent of the other batches of the
            epoch. An epoch then has as many batches as fit into the silo's items, at least one, and leaves some items out.
    """

    fresh_optimizers: bool = False
    independent_batches: bool = False


@dataclass(frozen=True)
class Release:
    """How a federated method releases class statistics (`silohash.methods.federated.statistics.ReleaseParams`).

    Attributes:
        min_count: Minimum number of items a silo must have in a class before it shares that class's statistics.
        max_labels: Maximum total weight of one item in the statistics.
        used: Whether silos use the statistics of others. If not, terms with released classes are all off.
        by_class: Whether rows belong to classes. If not, they are free clusters.
    """

    min_count: int
    max_labels: int = 1
    used: bool = True
    by_class: bool = True


@dataclass(frozen=True)
class Traits:
    """Facts about a local or federated method. The defaults are those of a method that asks for nothing special.

    Attributes:
        needs_labels: Whether silos need labels for the method's terms.
        codes_comparable: Whether codes of different silos may be ranked together. For a local method in closed form, whether
            its bits mean the same in every silo, so that models can be averaged.

        needs_label_counts: Local. Whether silos need the numbers of items per label of all silos.
        takes_tokens: Local. Whether towers take the vectors of an item and of its tokens.
        scores_pairs: Local. Whether models score an image against a text with a number, and are measured by the scores.
            The model is then a `silohash.models.matching_net.MatchingNet`, and `terms` reads ``outputs.pair_score``.
        modalities_comparable: Local. Whether codes of images may be compared with codes of texts.
        record_terms: Local. Whether the loss of an item depends on nothing but that item's outputs and constants, in all
            steps. Steps then train different parameters, each with the terms of its own modalities, and working tensors do
            not depend on the silo's items. Differential privacy per record needs this: an item that takes part in another
            item's loss would have more than one share in a gradient.
        quantizes: Local. Whether the loss includes the distance of relaxed codes from their signs.
        label_sides: Local. Sides of a search whose items the model encodes with their true labels. Models then use the
            labels of a batch in evaluation mode, if it has any, and only items of these sides are encoded with labels.
        label_free: Local. Setting with which no side is encoded with labels, as in a config; empty if there is none.
        item_bits: Local. Number of bits that tell items of a class apart instead of classes.
        coarse_column: Local. Column of the archive with coarser labels; empty if none is used.
        epochs: Local. How a silo trains for an epoch.
        remarks: Approximations that the method makes in this run, as sentences.

        needs_scores: Federated. Whether silos must hold queries back for validation.
        min_modalities: Federated. Minimum number of modalities of the model.
        class_head: Federated. Whether towers need a classifier on their outputs.
        pooled: Federated. Whether the data of all silos are pooled (no federation; a reference).
        closed_form: Federated. Which local methods without gradient steps can be trained: none, those that each silo fits to
            its own pairs, or those that are solved from sums over silos.
        trains_scores: Federated. Whether the method can train local methods with `scores_pairs`.
        separate_steps: Federated. Whether the terms have optimizer steps of their own, one per tower, after those of the
            local method. If not, they are added to its loss.
        class_codes: Federated. Whether the method sets hash layers to codes of classes, so that no bits tell items apart.
        shares: Federated. Parameters that silos send: ``all``, only the ``hash`` layers, the ``body`` without them, or
            ``none``.
        sends_changes: Federated. Whether silos send changes of the parameters rather than the parameters.
        uniform_broadcast: Federated. Whether every silo receives the same message.
        uplink: Federated. ``sum`` if the server needs only sums over silos, ``records`` if it needs each silo's message.
        averages: Federated. Whether silos continue training from the average of their parameters. If not, robust rules and
            server-side optimizers have no effect and are rejected.
        weights_known: Federated. When a silo can announce its weights: before it trains, once the statistics are merged, or
            with its update. Unless it is with the update, updates of many silos can be added up as they arrive.
        weighting: Federated. Parameter that changes nothing but the weights of silos; empty if there is none. If it is
            ``uniform``, all silos with items of a parameter group have the same weight.
        largest_weight: Federated. Largest weight that a silo can have. If None, it is the silo's number of items. Larger
            weights of silos on other machines are rejected.
        proximal_weight: Federated. Weight of a proximal term.
        normalizes: Federated. Whether updates are divided by the length of their training, which takes only the method's own
            proximal term into account.
        means: Federated. Sums and records that silos send, of which the server uses the mean only. Impossible values are
            rejected, and robust rules protect them. Other sums or records are described in `FederatedMethod.template`,
            and cannot have a robust rule.
        unprotected: Federated. Why no robust rule can protect what the method sends, as a sentence with the remedy.
        reveals: Federated. What each silo sends that reveals its items, in words that end with "reveal"; empty if nothing
            does.
        release: Federated. How class statistics are released; None if there are none.
        private_units: Federated. Units of differential privacy (`silohash.run.config.sections.PrivacyConfig`) for which what
            silos send has a guarantee. For ``record``, the terms for an item depend on that item's outputs and on what the
            silo received or trained under the same guarantee. For ``silo``, silos send nothing but parameters.
        not_private: Federated. Parameters with which differential privacy would not hold, each with the reason and the
            remedy as sentences.
        personalized: Federated. Whether each silo deploys its own model.
        keeps_model: Federated. Whether a silo keeps its trained model for later rounds, under ``model``.
        encode_extras: Federated. Names of the extras that encoding needs.
        adds: Federated. Overridden hooks that leave parameters, weights and phases as in FedAvg, each with the parameter
            values for which this holds. With these values the method can be composed with others.
    """

    needs_labels: bool = False
    codes_comparable: bool = True

    needs_label_counts: bool = False
    takes_tokens: bool = False
    scores_pairs: bool = False
    modalities_comparable: bool = True
    record_terms: bool = False
    quantizes: bool = False
    label_sides: tuple[Side, ...] = ()
    label_free: str = ""
    item_bits: int = 0
    coarse_column: str = ""
    epochs: EpochRules = EpochRules()
    remarks: tuple[str, ...] = ()

    needs_scores: bool = False
    min_modalities: int = 1
    class_head: bool = False
    pooled: bool = False
    closed_form: Literal["none", "silos", "sums"] = "none"
    trains_scores: bool = False
    class_codes: bool = False
    separate_steps: bool = False
    shares: Shares = "all"
    sends_changes: bool = False
    uniform_broadcast: bool = True
    uplink: Literal["sum", "records"] = "sum"
    averages: bool = True
    weights_known: WeightsKnown = "before training"
    weighting: str = ""
    largest_weight: float | None = None
    proximal_weight: float = 0.0
    normalizes: bool = False
    means: tuple[SharedMean, ...] = ()
    unprotected: str = ""
    reveals: str = ""
    release: Release | None = None
    private_units: tuple[Literal["record", "silo"], ...] = ()
    not_private: Mapping[str, str] = field(default_factory=dict)
    personalized: bool = False
    keeps_model: bool = False
    encode_extras: tuple[str, ...] = ()
    adds: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
