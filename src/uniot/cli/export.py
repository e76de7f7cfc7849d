"""`uniot export`: a run as one ONNX file, or its cells as an .h5ad file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from uniot.cli.options import check_writable, renamed
from uniot.cli.screen import console, print_line, working_in_parts
from uniot.errors import SettingsError
from uniot.io.text import quoted
from uniot.runs.files import check_run_folder

# Parts that a bar counts: two of this command, and those of `export_onnx`.
_PARTS = 6


def export(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    out: Annotated[
        Path | None,
        typer.Option(help="File to write: .onnx; or, for a run of cells, .h5ad with their present labels."),
    ] = None,
    onnx: Annotated[str | None, renamed("--onnx", "--out", "uniot export run/ --out model.onnx")] = None,
    h5ad: Annotated[str | None, renamed("--h5ad", "--out", "uniot export run/ --out labelled.h5ad")] = None,
) -> None:
    """Write a run as one ONNX file, from pixels or embeddings to predictions.

    With --out labelled.h5ad, write the unlabelled cells of a run with their labels, confidence and groups as columns of
    obs, after all that you answered or named since.

    Example: `uniot export run/ --out model.onnx`

    For cells: `uniot export run/ --out labelled.h5ad`
    """
    if out is None:
        raise SettingsError("expected the file to write: uniot export run/ --out model.onnx")
    check_writable(out, (".onnx", ".h5ad"))
    check_run_folder(run)
    if out.suffix.lower() == ".h5ad":
        _export_cells(run, out)
        return
    with working_in_parts(_PARTS) as next_part:
        next_part("Loading PyTorch")
        from uniot.export.onnx import OUTPUTS, export_onnx
        from uniot.runs import Run

        next_part("Reading the run")
        model = Run.open(run).answered_model
        written = export_onnx(model, out, on_part=next_part)
    screen = console()
    shape = ", ".join(["n", *map(str, written.input_shape)])
    screen.print(f"Input: {written.input_name}, {written.input_type} ({shape}). Outputs: {', '.join(OUTPUTS)}.")
    if written.was_run:
        screen.print("Checked: ONNX Runtime gives the same results as torch.")
    else:
        screen.print(
            "Not checked: ONNX Runtime is not installed. `pip install onnxruntime`, and export again to check."
        )
    size = out.stat().st_size / 1e6
    following = f"onnxruntime.InferenceSession({str(out)!r}).run(None, {{{written.input_name!r}: x}})"
    if written.input_name == "pixels":
        following = f"python examples/run_onnx.py {quoted(out)} photo.jpg"
    print_line(f"{quoted(out)} is written, {size:.1f} MB. Next: {following}")


def _export_cells(run: Path, out: Path) -> None:
    with working_in_parts(2) as next_part:
        next_part("Loading the run")
        from uniot.cells.results import LABEL, export_cells
        from uniot.runs import Run

        opened = Run.open(run)
        next_part("Writing the cells")
        export_cells(opened, out)
    print_line(f"{quoted(out)} is written. Next: scanpy.pl.umap(scanpy.read_h5ad({str(out)!r}), color={LABEL!r})")
