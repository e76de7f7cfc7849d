"""`uniot export`: a finished run for programs that have neither uniot nor torch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from uniot.cli.screen import console


def export(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    onnx: Annotated[Path, typer.Option(help="The ONNX file to write.")],
) -> None:
    """Write a run as one ONNX file: pixels or embeddings in, answers out.

    Example: `uniot export run/ --onnx model.onnx`
    """
    from uniot.export import OUTPUTS, export_onnx
    from uniot.model_files import load_model

    screen = console()
    written = export_onnx(load_model(run), onnx)
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
