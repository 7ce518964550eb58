"""``export`` and ``encode``: the networks and codes of a trained run for use in other programs."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from silohash.base.errors import SettingNeeded
from silohash.cli.console import print_json, print_result, print_status, spinner
from silohash.cli.help import ABOUT, AsJson, argument, flag, option

if TYPE_CHECKING:
    from silohash.run.model.export import ExportedTower


Model = Annotated[str | None, option("SILO", "Silo whose model to use, if silos use different models.")]


def export(
    run: Annotated[Path, argument("RUN", "Folder of a trained run.")],
    onnx: Annotated[bool, flag("Write ONNX files, one per modality.", "--onnx")] = False,
    out: Annotated[Path | None, option("FOLDER", "Folder to write to. Default: RUN/onnx.")] = None,
    model: Model = None,
    as_json: AsJson = False,
) -> None:
    """Export the networks of a run for use in other programs.

    The exported networks are checked to give the same codes.
    """
    if not onnx:
        raise SettingNeeded("No export format is selected. Add --onnx.")
    from silohash.run.folder import Run

    found = Run.open(run)
    with spinner("Exporting"), found.writing() if out is None else nullcontext():
        from silohash.run.model.export import export_onnx

        towers = export_onnx(found.model, found.archive, out or found.onnx_folder, run=found.name, name=model)
    if as_json:
        print_json({"towers": [asdict(tower) for tower in towers]})
        return
    print_result(*map(_sentence, towers))


def _sentence(tower: ExportedTower) -> str:
    parity = tower.parity
    ties = f", not counting {parity.ties:,} with an output close to 0" if parity.ties else ""
    equal = f"{parity.equal_codes:,} of {parity.items - parity.ties:,} codes equal those of torch{ties}"
    return f"{tower.path}: {equal}; outputs differ by at most {parity.largest_difference:.1e}"


def encode(
    run: Annotated[Path, argument("RUN", "Folder of a trained run.")],
    out: Annotated[Path, option("FILE", "File to write: .npz, or .csv for hexadecimal codes.")],
    archive: Annotated[str | None, argument("ARCHIVE", ABOUT["encode ARCHIVE"])] = None,
    modality: Annotated[str | None, option("image|text", ABOUT["encode --modality"])] = None,
    model: Model = None,
    follow_links: Annotated[bool, flag(ABOUT["encode --follow-links"], "--follow-links")] = False,
    as_json: AsJson = False,
) -> None:
    """Write the codes of the items of an archive to a file.

    Labels are not needed.
    """
    from silohash.index.codes import check_output

    check_output(out)
    from silohash.api.data import load_archive
    from silohash.api.runs import open_run
    from silohash.data.catalogue import link_options
    from silohash.features.truncation import truncation_remark
    from silohash.run.folder import Run

    found = open_run(run)
    with spinner("Encoding"):
        items = found.archive if archive is None else load_archive(archive, **link_options(follow_links=follow_links))
        codes = found.encode(items, modality, model=model)
        codes.save(out)
    cut = truncation_remark(items, Run.open(run).model.featurizers) if codes.modality == "text" else ""
    print_status(*filter(None, (*items.card.remarks(), cut)))
    without = len(items) - len(codes)
    if as_json:
        about = {"bits": codes.bits, "modality": codes.modality, "model_digest": codes.model_digest}
        print_json({"file": str(out), "items": len(codes), "items_without": without, **about})
        return
    left_out = f"; {without:,} items without {codes.modality} left out" if without else ""
    print_result(f"{out}: {len(codes):,} codes of {codes.bits} bits{left_out}")
