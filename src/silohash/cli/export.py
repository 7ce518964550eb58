"""``export`` and ``encode``: a trained run's towers and codes for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from silohash.cli.console import print_json, print_result, print_status, spinner
from silohash.cli.search import modality_named
from silohash.types import UserError

if TYPE_CHECKING:
    from silohash.runtime.export import ExportedTower


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command()(export)
    app.command()(encode)


def export(
    run: Annotated[Path, typer.Argument(help="Folder of a trained run.")],
    onnx: Annotated[bool, typer.Option("--onnx", help="Write ONNX files, one a tower.")] = False,
    out: Annotated[Path | None, typer.Option(help="Folder of the files; RUN/onnx by default.")] = None,
    model: Annotated[str | None, typer.Option(help="A silo's own model, where silos have their own.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Write the towers for other programs, if they give the same codes there."""
    from silohash.runtime.run import Run

    if not onnx:
        raise UserError("Name the form in which the towers are to be written: --onnx.")
    found = Run(run)
    _ = found.config
    with spinner("Exporting"):
        from silohash.runtime.export import export_onnx

        towers = export_onnx(found, out or found.onnx_folder, model)
    if as_json:
        from dataclasses import asdict

        print_json({"towers": [asdict(tower) for tower in towers]})
        return
    for tower in towers:
        print_result(_sentence(tower))


def _sentence(tower: ExportedTower) -> str:
    parity = tower.parity
    ties = f"; {parity.ties:,} with an output next to 0 left out" if parity.ties else ""
    equal = f"{parity.equal_codes:,} of {parity.items - parity.ties:,} codes equal torch's{ties}"
    return f"{tower.path}: {equal}; outputs differ by at most {parity.largest_difference:.1e}"


def encode(
    run: Annotated[Path, typer.Argument(help="Folder of a trained run.")],
    out: Annotated[Path, typer.Option(help="The file: .npz, or .csv for codes in hexadecimal digits.")],
    archive: Annotated[
        str | None, typer.Argument(help="A named archive, or the path of a folder; the run's own by default.")
    ] = None,
    modality: Annotated[str | None, typer.Option(help="image or text, where the archive has both.")] = None,
    model: Annotated[str | None, typer.Option(help="A silo's own model, where silos have their own.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Write the codes of an archive's items into a file; labels are not needed."""
    from silohash.data.catalogue import named_or_folder
    from silohash.runtime.encoding import check_suffix, encode_archive, only_modality, write_codes
    from silohash.runtime.run import Run

    check_suffix(out)
    found = Run(run)
    trained = found.model
    with spinner("Encoding"):
        items = found.archive if archive is None else named_or_folder(archive)
        encoder = trained.encoder(trained.shared_name() if model is None else model)
        chosen = only_modality(items, encoder) if modality is None else modality_named(modality)
        codes = encode_archive(encoder, items, chosen)
        write_codes(codes, out)
    for sentence in items.card.skipped:
        print_status(f"skipped: {sentence}")
    if as_json:
        about = {"bits": codes.bits, "modality": codes.modality, "model_digest": codes.model_digest}
        print_json({"file": str(out), "items": len(codes), "items_without": len(items) - len(codes), **about})
        return
    without = f"; {len(items) - len(codes):,} have no {chosen}" if len(codes) < len(items) else ""
    print_result(f"{out}: {len(codes):,} codes of {codes.bits} bits{without}")
