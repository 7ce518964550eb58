"""What figures show of a run besides its results: its curves, and what is computed from its model and kept in its folder.

A run computes the latter after its evaluation if its study asks for such a figure. Otherwise it is computed when the figure
is first drawn.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from silohash.base.errors import ModelMissing, NotMeasured, TooFew, UnknownName
from silohash.base.files import digest_json, read_arrays, write_arrays
from silohash.base.forms import reading
from silohash.base.registry import suggestion
from silohash.base.seeds import numpy_generator
from silohash.base.types import ResultRow
from silohash.data.partitions.holdings import Holdings
from silohash.index.codes import unpack
from silohash.measure.evaluation import evaluate_run, or_nan
from silohash.report.gather import radius_curves
from silohash.report.tables import read_results, write_results
from silohash.run.codes import RunCodes
from silohash.run.folder import Run
from silohash.study.figures import POINTS_PER_NEIGHBOR, CurveName, Figure
from silohash.study.results import RunResult

FOLDER = "figure-data"
REMOVE = "Remove it and run the study again."
Points: TypeAlias = tuple[Sequence[float], Sequence[float]]
"""Places and values of a curve."""

MOST_LABELS = 6
"""Number of labels that a t-SNE figure shows if it does not name them."""


@dataclass(frozen=True)
class LabeledCodes:
    """Codes of some items, each with one label.

    Attributes:
        signs: ``(n, bits)`` int8, each -1 or +1.
        label: ``(n,)`` int64, positions in ``labels``.
        items: ``(n,)`` ids.
        labels: Names of the labels.
    """

    signs: npt.NDArray[np.int8]
    label: npt.NDArray[np.int64]
    items: tuple[str, ...]
    labels: tuple[str, ...]


def store(run: Run, figures: Sequence[Figure]) -> None:
    """Compute and keep what figures need of a run, unless its folder has it. See `top_rows` and `labeled_codes`."""
    for figure in figures:
        if figure.kind == "top_n":
            top_rows(run, figure)
        if figure.kind == "tsne":
            labeled_codes(run, figure)


def top_rows(run: Run, figure: Figure) -> list[ResultRow]:
    """Return the precision ``P@N`` and the recall ``R@N`` of a run for each N of a figure, as expectations over ties.

    Raises:
        UserError: If the run does not have its model any more, its archive lacks labels, or the stored file is damaged.
    """
    measures = [f"{name}@{count}" for name in ("P", "R") for count in figure.first]
    path = _kept(run, f"top-n-{digest_json(measures)[:12]}.csv")
    if not path.exists():
        write_results(path, evaluate_run(run, measures=measures).rows)
    return read_results(path)


def labeled_codes(run: Run, figure: Figure) -> LabeledCodes:
    """Return the codes of the items that a t-SNE figure shows. Each item is encoded by the model that its silo deploys.

    The exceptions are those of `top_rows`.
    """
    chosen = figure.model_dump(mode="json", include={"modality", "split", "labels", "items"})
    path = _kept(run, f"codes-{digest_json(chosen)[:12]}.safetensors")
    if not path.exists():
        found = _encoded(run, figure)
        about = {"items": found.items, "labels": found.labels}
        write_arrays(path, {"signs": found.signs, "label": found.label}, about)
    arrays, read = read_arrays(path, remedy=REMOVE)
    with reading(path, remedy=REMOVE):
        return LabeledCodes(arrays["signs"], arrays["label"], tuple(read["items"]), tuple(read["labels"]))


def _kept(run: Run, name: str) -> Path:
    path = run.folder / FOLDER / name
    if not path.exists() and not run.model_folder.exists():
        raise ModelMissing(
            f"A figure needs the codes of {run.folder}, whose model was removed. Remove the folder and run the study again."
        )
    return path


def _encoded(run: Run, figure: Figure) -> LabeledCodes:
    archive, bits = run.archive, run.config.local.bits
    labels = archive.required_labels("by which a t-SNE figure colors items. Remove the figure.") > 0
    owner = Holdings(archive, run.partition).owner[figure.modality]
    rows = archive.split(figure.split)
    rows = rows[owner[rows] >= 0]
    for name in figure.labels:
        if name not in archive.label_names:
            known = suggestion(name, archive.label_names)
            raise UnknownName(f'{run.folder}: a t-SNE figure names the label "{name}", which does not exist{known}.')
    frequent = np.argsort(-labels[rows].sum(0), kind="stable")[:MOST_LABELS]
    shown = [archive.label_names.index(name) for name in figure.labels] or frequent.tolist()
    rows = rows[labels[rows][:, shown].sum(1) == 1]
    drawn = numpy_generator(run.config.seed, "figures/items").permutation(len(rows))[: figure.items]
    rows = rows[np.sort(drawn)]
    codes, signs = RunCodes(run, rows), np.empty((len(rows), bits), np.int8)
    for silo in np.unique(owner[rows]).tolist():
        model, of_silo = run.model.deployed_by(run.partition.silos[silo].name), owner[rows] == silo
        words = codes.words(model, figure.modality, rows[of_silo], "query" if figure.split == "query" else "database")
        signs[of_silo] = unpack(words, bits)
    return LabeledCodes(
        signs=signs,
        label=labels[rows][:, shown].argmax(1),
        items=tuple(str(name) for name in archive.ids[rows]),
        labels=tuple(archive.label_names[place] for place in shown),
    )


def in_plane(codes: LabeledCodes, figure: Figure, name: str) -> npt.NDArray[np.float64]:
    """Return the places of items in the plane by t-SNE, ``(n, 2)``. Equal codes give equal places.

    Raises:
        UserError: If the items of the run with this name are too few for the perplexity.

    Source: L. van der Maaten, G. Hinton, "Visualizing data using t-SNE", JMLR 2008.
    """
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    least = POINTS_PER_NEIGHBOR * figure.perplexity
    if len(codes.items) <= least:
        raise TooFew(
            f"{name} has {len(codes.items)} items for a t-SNE figure, and a perplexity of {figure.perplexity:g} needs more "
            f"than {least:g}. Lower perplexity, or choose another split or other labels."
        )
    # The principal components of equal codes have no length to divide by.
    start = "pca" if (codes.signs != codes.signs[0]).any() else "random"
    method = TSNE(perplexity=figure.perplexity, init=start, random_state=figure.seed)
    # In one thread, so that the sums of floats are reproducible.
    with threadpool_limits(limits=1):
        return np.asarray(method.fit_transform(codes.signs.astype(np.float32)), np.float64)


def over_rounds(run: RunResult, over: str, name: CurveName) -> Points:
    """Return one value per round, NaN where there is none.

    The places are the numbers of the rounds from 1 or, over ``seconds``, the time of local training until the end of each
    round, added up over the silos.
    """
    values = [or_nan(record.validation if name == "validation" else record.loss) for record in run.rounds]
    if name == "relative loss":
        first = values[0] if values and values[0] > 0 else math.nan
        values = [loss / first for loss in values]
    if over == "rounds":
        return range(1, len(values) + 1), values
    return list(accumulate(sum(silo.seconds for silo in record.silos) for record in run.rounds)), values


def within_radius(run: RunResult, task: str) -> Points:
    """Return recall and precision within each Hamming radius, as the evaluation of a run stored them.

    Raises:
        UserError: If it did not store any, or the file is damaged.
    """
    if not Run(run.folder).curves_path.exists():
        raise NotMeasured(f'{run.folder} has no curves.json. Run "silohash evaluate {run.folder}".')
    found = [curve for curve in radius_curves(Run(run.folder)) if curve.task == task]
    return (found[0].recall, found[0].precision) if found else ((), ())
