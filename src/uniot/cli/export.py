"""`uniot export`: a finished run for programs that have neither uniot nor torch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from uniot.cli.checks import check_writable
from uniot.cli.progress import working
from uniot.cli.screen import console


def export(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    onnx: Annotated[Path, typer.Option(help="The ONNX file to write.")],
) -> None:
    """Write a run as one ONNX file: pixels or embeddings in, answers out.

    Example: `uniot export run/ --onnx model.onnx`
    """
    check_writable(onnx)
    with working("Loading torch and the run"):
        from uniot.export import OUTPUTS, export_onnx
        from uniot.model_files import load_model

        model = load_model(run)
    with working("Writing network and rule as ONNX; this takes up to a minute") as next_part:
        written = export_onnx(model, onnx, on_part=next_part)
    screen = console()
    shape = ", ".join(["n", *map(str, written.input_shape)])
    screen.print(f"Input: {written.input_name}, {written.input_type} ({shape}). Outputs: {', '.join(OUTPUTS)}.")
    if written.was_run:
        screen.print("ONNX Runtime ran it and agrees with torch.")
    else:
        screen.print(
            "It was not run: ONNX Runtime is not installed. `pip install onnxruntime` and export again to check."
        )
    size = onnx.stat().st_size / 1e6
    following = f'onnxruntime.InferenceSession("{onnx}").run(None, {{"{written.input_name}": x}})'
    if written.input_name == "pixels":
        following = f"python examples/run_onnx.py {onnx} photo.jpg"
    screen.print(f"{onnx} is written, {size:.1f} MB. Next: {following}")
