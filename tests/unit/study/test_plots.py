"""Plots of a study: which there are, what lines they hold, and that they are the same files again."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import patch

import matplotlib.image
import numpy as np
import pytest

from silohash.base.errors import NotMeasured
from silohash.base.files import write_json
from silohash.report.style import drawing
from silohash.run.folder import Run
from silohash.study.figures import Figure
from silohash.study.plots import PLOTS, plotters, write_plots
from tests.reports import row
from tests.synthetic_studies import axis, records, synthetic_study

MEANS = {"Local": 0.4, "FedAvg": 0.6}
METHODS = axis("method", *MEANS)
BITS = axis("bits", "16", "32", "128", key="local.bits")


def value(choices, seed, task):
    return MEANS.get(choices.get("method"), 0.5) + 0.001 * int(choices.get("bits", 0)) + 0.02 * seed


def plots_of(study):
    """Returns the plots of all figures of a study."""
    return [plot for plotter in plotters(study) for plot in plotter.plots()]


def drawing_of(study, *figures):
    """Returns a study that asks for figures."""
    return replace(study, config=study.config.model_copy(update={"figures": figures}))


def panels(study, name, look):
    """Draws a plot and returns what ``look`` sees in its axes."""
    (plot,) = [plot for plot in plots_of(study) if plot.name == name]
    with drawing(7.2, plot.height_inches) as figure:
        plot.draw(figure)
        return [look(axes) for axes in figure.axes]


def curves(axes):
    """Returns the plotted lines, without the bars of intervals."""
    return [np.asarray(line.get_ydata(), float) for line in axes.lines]


def test_a_line_a_method_over_bits():
    study = synthetic_study(METHODS, BITS, value=value, evaluations=("GG",))
    found = panels(study, "over-bits-GG_PG", curves)
    assert len(found) == 2
    for lines in found:
        assert len(lines) == 2
        assert lines[0] == pytest.approx([0.426, 0.442, 0.538])
        assert lines[1] == pytest.approx([0.626, 0.642, 0.738])


def test_bits_stand_at_equal_steps_of_their_logarithm():
    study = synthetic_study(METHODS, BITS, value=value, evaluations=("GG",))
    scales = panels(study, "over-bits-GG_PG", lambda axes: (axes.get_xscale(), list(axes.get_xticks())))
    assert scales == [("log", [16, 32, 128])] * 2
    silos = axis("silos", "2", "5", "10", key="partition.silos")
    study = synthetic_study(METHODS, silos, value=value, evaluations=("GG",))
    assert panels(study, "over-silos-GG_PG", lambda axes: axes.get_xscale()) == ["linear"] * 2


def test_intervals_stand_beside_the_means():
    study = synthetic_study(METHODS, BITS, value=value, evaluations=("GG",))
    bars = panels(study, "over-bits-GG_PG", lambda axes: [c.get_segments() for c in axes.collections])[0]
    low, high = (bars[0][0][end][1] for end in (0, 1))
    assert (low + high) / 2 == pytest.approx(0.426)
    # Two seeds 0.02 apart: t is 12.7062, the standard error 0.01.
    assert high - low == pytest.approx(2 * 12.7062 * 0.01, rel=1e-4)


def test_figures_that_are_missing_are_left_out():
    one = {"method": "Local", "bits": "32"}
    study = synthetic_study(
        METHODS, BITS, value=value, evaluations=("GG",), missing=lambda choices, seed: choices == one
    )
    lines = panels(study, "over-bits-GG_PG", curves)[0]
    assert [len(line) for line in lines] == [2, 3]


def test_loss_and_validation_over_the_rounds():
    study = synthetic_study(METHODS, value=value, evaluations=("GG",))
    runs = [replace(run, rounds=records(5, start=0.3 + 0.1 * run.seed)) for run in study.runs]
    study = replace(study, runs=tuple(runs))
    losses, validations = panels(study, "rounds", curves)
    assert len(losses) == len(validations) == 2
    assert losses[0] == pytest.approx([2 / n for n in range(1, 6)])
    assert validations[0] == pytest.approx([0.35 + 0.1 * n for n in range(5)])
    bands = panels(study, "rounds", lambda axes: [c.get_datalim(axes.transData).height for c in axes.collections])
    assert [len(of_panel) for of_panel in bands] == [2, 2]
    assert bands[1][0] == pytest.approx(0.5)


def test_no_validation_no_panel_for_it():
    study = synthetic_study(METHODS, value=value, evaluations=("GG",), seeds=(0,))
    bare = tuple(replace(record, validation=None) for record in records(3))
    study = replace(study, runs=tuple(replace(run, rounds=bare) for run in study.runs))
    assert [len(lines) for lines in panels(study, "rounds", curves)] == [2]
    assert panels(study, "rounds", lambda axes: len(axes.collections)) == [0]


def test_relative_loss_over_seconds():
    study = synthetic_study(METHODS, value=value, evaluations=("GG",), seeds=(0,))
    names = ("validation", "relative loss")
    study = drawing_of(study, Figure(kind="seconds", curves=names), Figure(kind="rounds", curves=names))
    assert [plot.name for plot in plots_of(study)] == ["seconds", "rounds"]
    titles = panels(study, "seconds", lambda axes: (axes.get_title(loc="left"), axes.get_xlabel()))
    assert titles == [
        ("Validation score", "seconds of training"), ("Loss relative to round 1", "seconds of training"),
    ]  # fmt: skip
    assert panels(study, "seconds", curves)[1][0] == pytest.approx([1.0, 1 / 2, 1 / 3, 1 / 4])
    across = panels(study, "seconds", lambda axes: list(axes.lines[0].get_xdata()))
    assert across == [[1.0, 2.0, 3.0, 4.0]] * 2


def test_loss_is_drawn_where_no_other_curve_is_known():
    study = synthetic_study(METHODS, value=value, evaluations=("GG",), seeds=(0,))
    bare = tuple(replace(record, validation=None) for record in records(3))
    study = drawing_of(study, Figure(kind="rounds", curves=("validation",)))
    study = replace(study, runs=tuple(replace(run, rounds=bare) for run in study.runs))
    assert panels(study, "rounds", lambda axes: axes.get_title(loc="left")) == ["Training loss"]


def test_precision_over_recall_of_the_stored_curves(tmp_path):
    study = synthetic_study(METHODS, value=value, evaluations=("GG",), missing=lambda choices, seed: seed == 1)
    runs = [replace(run, folder=tmp_path / run.choices["method"]) for run in study.runs]
    stored = [{"task": "i2t", "precision": [None, 0.75, 0.5], "recall": [0.0, 0.25, 1.0], "prior": 0.5}]
    write_json(Run(runs[0].folder).curves_path, [])
    write_json(Run(runs[1].folder).curves_path, stored)
    study = drawing_of(replace(study, runs=tuple(runs)), Figure(kind="precision_recall"))
    assert [plot.name for plot in plots_of(study)] == ["precision-recall"]
    found = panels(study, "precision-recall", lambda axes: [line.get_xydata().tolist() for line in axes.lines])
    assert found == [[[[0.25, 0.75], [1.0, 0.5]]], []]
    write_plots(study, tmp_path)
    numbers = (tmp_path / PLOTS / "precision-recall.csv").read_text().splitlines()
    assert numbers == [
        "method,seed,curve,recall,precision",
        *(f"FedAvg,0,A picture finds texts,{point}" for point in ("0.0,nan", "0.25,0.75", "1.0,0.5")),
    ]


def test_a_run_without_stored_curves_is_named_and_other_figures_are_drawn(tmp_path):
    study = synthetic_study(METHODS, value=value, evaluations=("GG",))
    runs = tuple(replace(run, folder=tmp_path / f"{run.choices['method']}-{run.seed}") for run in study.runs)
    study = drawing_of(replace(study, runs=runs), Figure(kind="precision_recall"), Figure(kind="methods"))
    written, (error,) = write_plots(study, tmp_path)
    assert isinstance(error, NotMeasured)
    assert str(tmp_path / "Local-0") in str(error)
    assert [path.name for path in written] == [f"methods-GG_PG.{suffix}" for suffix in ("svg", "png", "csv")]
    for run in runs:
        write_json(Run(run.folder).curves_path, [])
    assert "needs labels" in str(write_plots(study, tmp_path)[1][0])


def test_nearest_items_of_each_evaluation_and_task(tmp_path):
    study = synthetic_study(METHODS, value=value, evaluations=("PG", "XS"), seeds=(0,))
    study = replace(study, runs=tuple(replace(run, folder=tmp_path / run.choices["method"]) for run in study.runs))
    figure = Figure(kind="top_n", first=(1, 10))
    numbers = {
        ("PG", "i2t", "P@1"): 0.5,
        ("PG", "i2t", "R@1"): 0.1,
        ("PG", "i2t", "R@10"): 0.4,
        ("XS", "i2t", "P@1"): 0.7,
    }
    with patch("silohash.study.plots.top_rows") as top_rows:
        top_rows.return_value = [
            row(evaluation=evaluation, task=task, measure=measure, value=value)
            for (evaluation, task, measure), value in numbers.items()
        ]
        study = drawing_of(study, figure)
        assert [plot.name for plot in plots_of(study)] == ["top-n-GG_PG", "top-n-XS"]
        found = panels(study, "top-n-GG_PG", lambda axes: (axes.get_title(loc="left"), curves(axes)))
        assert [(title, [line.tolist() for line in lines]) for title, lines in found] == [
            ("Precision, i2t", [[0.5]] * 2), ("Recall, i2t", [[0.1, 0.4]] * 2),
            ("Precision, t2i", []), ("Recall, t2i", []),
        ]  # fmt: skip
        assert top_rows.call_count == 2 * 1  # once per run


def test_numbers_give_panels_and_names_give_plots():
    study = synthetic_study(axis("data", "glyphs", "coco18"), METHODS, BITS, value=value, evaluations=("GG", "XS"))
    assert [plot.name for plot in plots_of(study)] == [
        *("rounds-glyphs", "rounds-coco18"),
        *("over-bits-glyphs-GG_PG", "over-bits-glyphs-XS", "over-bits-coco18-GG_PG", "over-bits-coco18-XS"),
    ]
    titles = panels(study, "rounds-glyphs", lambda axes: axes.get_title(loc="left"))
    assert titles[::2] == ["Training loss, bits 16", "Training loss, bits 32", "Training loss, bits 128"]


def test_methods_side_by_side_without_an_axis_of_numbers():
    study = synthetic_study(METHODS, value=value, evaluations=("GG",), seeds=(0,))
    assert [plot.name for plot in plots_of(study)] == ["rounds", "methods-GG_PG"]
    dots = panels(study, "methods-GG_PG", lambda axes: [line.get_xdata()[0] for line in axes.lines])
    assert dots == [[0.4, 0.6]] * 2


def test_a_sweep_without_methods_is_one_line():
    rate = axis("train.learning_rate", "0.0001", "0.01", key="train.learning_rate")
    study = synthetic_study(rate, evaluations=("GG",))
    assert [len(lines) for lines in panels(study, "over-train.learning_rate-GG_PG", curves)] == [1, 1]


def test_two_axes_give_a_map_per_combination_of_the_others():
    mu, phi = axis("mu", "0.2", "0.8", key="federated.mu"), axis("phi", "0.3", "0.5", "0.7", key="federated.phi")
    study = synthetic_study(
        axis("data", "glyphs", "coco18"), mu, phi, BITS, evaluations=("GG",),
        value=lambda choices, seed, task: float(choices["mu"]) / 10 + float(choices["phi"]) / 100 + 0.02 * seed,
        missing=lambda choices, seed: choices["data"] == "coco18" and choices["bits"] != "16",
    )  # fmt: skip
    study = drawing_of(study, Figure(kind="surface", axes=("phi", "mu")))
    names = [f"surface-glyphs-bits_{bits}-GG_PG" for bits in (16, 32, 128)]
    assert [plot.name for plot in plots_of(study)] == [*names, "surface-coco18-bits_16-GG_PG"]
    fields = panels(study, names[0], lambda axes: np.asarray(axes.images[0].get_array()))
    assert len(fields) == 2
    assert fields[0] == pytest.approx(np.array([[0.033, 0.093], [0.035, 0.095], [0.037, 0.097]]))
    assert panels(study, names[0], lambda axes: (axes.get_xlabel(), axes.get_ylabel())) == [("mu", "phi"), ("mu", "")]


def test_figures_of_one_kind_have_files_of_their_own():
    study = synthetic_study(METHODS, BITS, value=value, evaluations=("GG",))
    axes = {"axes": ("method", "bits")}, {"axes": ("bits", "method"), "view": "relief"}
    study = drawing_of(study, *(Figure(kind="surface", **one) for one in axes), Figure(kind="axis", axis="bits"))
    assert [plot.name for plot in plots_of(study)] == ["surface-GG_PG", "surface-GG_PG-2", "over-bits-GG_PG"]


def test_each_measure_has_plots_where_it_was_measured():
    study = synthetic_study(
        axis("data", "coco18", "flickr"), METHODS, BITS, evaluations=("GG",),
        changed=lambda choices: {"measure": "R@10[by=pairs]"} if choices["data"] == "flickr" else {},
        table={"measure": "mAP@all", "further_measures": ["R@10[by=pairs]", "P@5"]},
    )  # fmt: skip
    assert [plot.name for plot in plots_of(study)] == [
        "rounds-coco18", "rounds-flickr", "over-bits-coco18-GG_PG-mAP_all", "over-bits-flickr-GG_PG-R_10_by_pairs_",
    ]  # fmt: skip
    found = panels(study, "over-bits-flickr-GG_PG-R_10_by_pairs_", lambda axes: (axes.get_ylabel(), len(axes.lines)))
    assert found == [("R@10[by=pairs]", 2), ("", 2)]


def test_nothing_finished_nothing_drawn(tmp_path):
    study = synthetic_study(METHODS, missing=lambda choices, seed: True)
    assert write_plots(study, tmp_path) == ([], [])


def test_plots_of_an_earlier_layout_go_and_files_of_others_stay(tmp_path):
    one = synthetic_study(METHODS, value=value, evaluations=("GG",), tasks=("i2t",))
    before = {path.name for path in write_plots(one, tmp_path)[0]}
    (tmp_path / PLOTS / "mine.svg").write_text("mine")
    rates = axis("train.learning_rate", "0.0001", "0.01", key="train.learning_rate")
    after = {path.name for path in write_plots(synthetic_study(rates, evaluations=("GG",)), tmp_path)[0]}
    assert before - after
    assert {path.name for path in (tmp_path / PLOTS).glob("[!.]*")} == {"mine.svg", *after}


def test_same_study_same_bytes(tmp_path):
    study = synthetic_study(METHODS, value=value, evaluations=("GG",), tasks=("i2t",), title="A & B")
    first, _ = write_plots(study, tmp_path / "a")
    second, _ = write_plots(study, tmp_path / "b")
    assert [path.name for path in first] == [
        f"{name}.{suffix}" for name in ("rounds", "methods-GG_PG") for suffix in ("svg", "png", "csv")
    ]
    assert first[0].parent == tmp_path / "a" / PLOTS
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    shown = matplotlib.image.imread(first[1])[..., :3]
    assert 0.005 < (shown.min(axis=2) < 0.9).mean() < 0.5
