"""`uniot export`: a run as one ONNX file, or its cells as an .h5ad file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from uniot.cli.options import check_writable
from uniot.cli.screen import console, print_line, working
from uniot.errors import SettingsError
from uniot.io.text import quoted


def export(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    onnx: Annotated[Path | None, typer.Option(help="The ONNX file to write.")] = None,
    h5ad: Annotated[
        Path | None, typer.Option(help="For a run of cells: the .h5ad file to write, with their present labels.")
    ] = None,
) -> None:
    """Write a run as one ONNX file, from pixels or embeddings to predictions.

    With --h5ad, write the unlabelled cells of a run with their labels, confidence and groups as columns of obs, after
    all that you answered or named since.

    Example: `uniot export run/ --onnx model.onnx`
    """
    if h5ad is not None and onnx is None:
        _export_cells(run, h5ad)
        return
    if onnx is None or h5ad is not None:
        raise SettingsError("expected one of --onnx and --h5ad, such as: uniot export run/ --onnx model.onnx")
    check_writable(onnx)
    with working("Loading PyTorch and the run"):
        from uniot.export.onnx import OUTPUTS, export_onnx
        from uniot.runs import Run

        model = Run.open(run).answered_model
    with working("Writing network and rule as ONNX; this takes up to a minute") as next_part:
        written = export_onnx(model, onnx, on_part=next_part)
    screen = console()
    shape = ", ".join(["n", *map(str, written.input_shape)])
    screen.print(f"Input: {written.input_name}, {written.input_type} ({shape}). Outputs: {', '.join(OUTPUTS)}.")
    if written.was_run:
        screen.print("Checked: ONNX Runtime gives the same results as torch.")
    else:
        screen.print(
            "Not checked: ONNX Runtime is not installed. `pip install onnxruntime`, and export again to check."
        )
    size = onnx.stat().st_size / 1e6
    following = f"onnxruntime.InferenceSession({str(onnx)!r}).run(None, {{{written.input_name!r}: x}})"
    if written.input_name == "pixels":
        following = f"python examples/run_onnx.py {quoted(onnx)} photo.jpg"
    print_line(f"{quoted(onnx)} is written, {size:.1f} MB. Next: {following}")


def _export_cells(run: Path, h5ad: Path) -> None:
    check_writable(h5ad, (".h5ad",))
    with working("Loading the run"):
        from uniot.cells.results import LABEL, export_cells
        from uniot.runs import Run

        opened = Run.open(run)
    with working("Writing the cells"):
        export_cells(opened, h5ad)
    print_line(f"{quoted(h5ad)} is written. Next: scanpy.pl.umap(scanpy.read_h5ad({str(h5ad)!r}), color={LABEL!r})")
