"""A finished run as one ONNX file: pixels or embeddings in, answers out, with neither uniot nor torch at hand."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from uniot import __version__
from uniot.data.text import as_utf8
from uniot.embeddings.preparation import Preparation
from uniot.errors import DataError, NumericalError
from uniot.model import AdaptedModel
from uniot.run_folder import replacing
from uniot.whole_run import WholeRun

FORMAT = "uniot-onnx-2"
OUTPUTS = ("nearest", "known", "confidence", "group", "probabilities", "features")

_OPSET = 18
# Protocol buffers hold 2 GB; some of it goes to the graph itself.
_MOST_BYTES = 2_000_000_000
_FEATURE_TOLERANCE = 1e-3
_CONFIDENCE_TOLERANCE = 1e-6


@dataclass(frozen=True)
class OnnxFile:
    """What was written.

    Attributes:
        path: the file.
        input_name: pixels, embeddings or images.
        input_type: of NumPy.
        input_shape: of one sample; any number of them goes in at once.
        was_run: whether ONNX Runtime ran the file and agreed with torch; it is not asked where it is not installed.
    """

    path: Path
    input_name: str
    input_type: str
    input_shape: tuple[int, ...]
    was_run: bool


def export_onnx(model: AdaptedModel, path: Path, *, on_part: Callable[[str], None] | None = None) -> OnnxFile:
    """Writes a run as one ONNX file, the weights within it.

    The input is `pixels` (n, 3, side, side), uint8 RGB, for a run made from images; `embeddings` (n, d), float32 of any
    scale, for one made from embeddings; `images` (n, height, width), float32 from 0 to 1, for one of the small
    network. The outputs are those of `AdaptedModel`: `nearest` int64 (n,), `known` bool (n,), `confidence` float64
    (n,), `group` int64 (n,), `probabilities` float64 (n, c + 1) and `features` float32 (n, feature_size).

    The file's metadata hold `format`, `uniot_version`, and in JSON `classes`, `unknown` and `preparation`, which says
    how an image becomes pixels, and is null where there are none.

    Args:
        model: a finished run.
        path: the file; it is left as it was where anything goes wrong.
        on_part: told in words what is done next, as the whole may take a minute.

    Raises:
        DataError: the run is of another method than UniOT, packages are missing, the weights take more than 2 GB, or
            the network cannot be written as ONNX.
        NumericalError: ONNX Runtime gives other answers than torch.
    """
    onnx = _import_onnx()
    network = WholeRun(model).eval()
    n_bytes = sum(value.nbytes for value in network.state_dict().values())
    if n_bytes > _MOST_BYTES:
        raise DataError(
            f"the weights take {n_bytes / 1e9:.1f} GB, and one ONNX file holds less than 2 GB. "
            "Make the run with a smaller backbone."
        )
    name, examples = _examples(model)
    proto = _translated(network, name, examples)
    _forget_source_lines(proto.graph)
    onnx.helper.set_model_props(proto, _metadata(model))
    onnx.checker.check_model(proto, full_check=True)
    content: bytes = proto.SerializeToString()
    was_run = find_spec("onnxruntime") is not None
    if was_run:
        if on_part is not None:
            on_part("Comparing the answers of ONNX Runtime with those of torch")
        _compare(model, network, content, examples)
    with replacing(path) as partial:
        partial.write_bytes(content)
    return OnnxFile(path, name, str(examples.dtype).removeprefix("torch."), tuple(examples.shape[1:]), was_run)


def _examples(model: AdaptedModel) -> tuple[str, Tensor]:
    """The name of the input, and a few samples to try."""
    generator = torch.Generator().manual_seed(0)
    if model.reader is not None:
        side = model.reader.preparation.crop
        return "pixels", torch.randint(256, (3, 3, side, side), dtype=torch.uint8, generator=generator)
    if model.settings.network == "none":
        return "embeddings", torch.randn(3, *model.input_shape, generator=generator)
    return "images", torch.rand(3, *model.input_shape, generator=generator)


def _translated(network: nn.Module, name: str, examples: Tensor) -> Any:
    with torch.no_grad(), warnings.catch_warnings():
        # Torch's exporter warns about torch's own calls, and tells of what it does not simplify.
        warnings.simplefilter("ignore")
        logging.getLogger("onnxscript").setLevel(logging.ERROR)
        try:
            program: Any = torch.onnx.export(
                network,
                (examples,),
                dynamo=True,
                input_names=[name],
                output_names=OUTPUTS,
                dynamic_shapes=({0: torch.export.Dim("n")},),
                opset_version=_OPSET,
                external_data=False,
                verbose=False,
            )
        except torch.onnx.OnnxExporterError as error:
            cause = error.__cause__ or error
            reason = f"{type(cause).__name__}: {str(cause).partition(chr(10))[0]}"
            raise DataError(
                f"torch cannot write this network as ONNX ({reason}). "
                "Update torch and onnxscript, or make the run with another backbone."
            ) from error
    return program.model_proto


def _forget_source_lines(graph: Any) -> None:
    """Removes where in which file each node came from: it is nobody's business and names folders of this machine."""
    for part in (graph, *graph.node, *graph.value_info, *graph.input, *graph.output, *graph.initializer):
        part.ClearField("metadata_props")
        part.ClearField("doc_string")
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _forget_source_lines(attribute.g)


def _metadata(model: AdaptedModel) -> dict[str, str]:
    labels = [*model.classes.tolist(), model.unknown]
    *classes, unknown = (as_utf8(name) if isinstance(name, str) else name for name in labels)
    preparation = None if model.reader is None else _steps_before_pixels(model.reader.preparation)
    return {
        "format": FORMAT,
        "uniot_version": __version__,
        "classes": json.dumps(classes, ensure_ascii=False),
        "unknown": json.dumps(unknown, ensure_ascii=False),
        "preparation": json.dumps(preparation),
    }


def _steps_before_pixels(preparation: Preparation) -> dict[str, Any]:
    """What is left to do with an image; its mean and std are in the graph."""
    return {name: getattr(preparation, name) for name in ("resize", "crop", "interpolation", "mode")}


def _compare(model: AdaptedModel, network: nn.Module, content: bytes, examples: Tensor) -> None:
    """Runs the file on other samples, one fewer: the number must be free. Features are torch's, answers the rule's."""
    runtime: Any = import_module("onnxruntime")
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    inputs = examples.flip(0)[1:]
    try:
        session = runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        answers = session.run(OUTPUTS, {session.get_inputs()[0].name: inputs.numpy()})
    except Exception as error:  # each of its errors is a class of its own, and none has a base that can be imported
        raise DataError(
            f"ONNX Runtime {runtime.__version__} cannot run the file ({str(error).partition(chr(10))[0]}). "
            "Nothing was written. Run `pip install -U 'uniot[onnx]'`."
        ) from error
    got = dict(zip(OUTPUTS, answers, strict=True))
    with torch.no_grad():
        expected = network(inputs)[OUTPUTS.index("features")].numpy()
        confidence = model.decide(torch.from_numpy(got["features"])).confidence(model.calibration).numpy()
    for name, difference, most in (
        ("features", got["features"] - expected, _FEATURE_TOLERANCE),
        ("confidence", got["confidence"] - confidence, _CONFIDENCE_TOLERANCE),
    ):
        if not np.abs(difference).max() <= most:  # so that NaN fails too
            raise NumericalError(
                f"ONNX Runtime {runtime.__version__} gives other {name} than torch: they differ by "
                f"{np.abs(difference).max():.1e}. Nothing was written. Run `pip install -U 'uniot[onnx]'`, or make the "
                "run with another backbone."
            )


def _import_onnx() -> Any:
    try:
        import_module("onnxscript")  # torch's exporter is built on it
        return import_module("onnx")
    except ImportError as error:
        raise DataError(
            f"ONNX files are written with a package that cannot be imported ({error}). Run `pip install 'uniot[onnx]'`."
        ) from None
