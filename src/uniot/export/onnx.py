"""Write a finished run as one ONNX file that runs without uniot and torch: pixels or embeddings in, predictions out."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from uniot import __version__
from uniot.errors import DataError, NumericalError, import_optional
from uniot.images.backbones import ImageReader
from uniot.images.preparation import Preparation
from uniot.io.arrays import unit_directions
from uniot.io.files import replacing
from uniot.io.text import as_utf8
from uniot.training.model import AdaptedModel

FORMAT = "uniot-onnx-2"
OUTPUTS = ("nearest", "known", "confidence", "group", "probabilities", "features")

_OPSET = 18
# Protocol buffers hold 2 GB; some of it goes to the graph itself.
_MOST_BYTES = 2_000_000_000
_FEATURE_TOLERANCE = 1e-3
_CONFIDENCE_TOLERANCE = 1e-6


@dataclass(frozen=True)
class OnnxFile:
    """A written ONNX file.

    Attributes:
        path: the file.
        input_name: "pixels", "embeddings" or "images".
        input_type: name of the NumPy dtype.
        input_shape: of one sample; the batch size is free.
        was_run: whether ONNX Runtime, if it is installed, ran the file and agreed with torch.
    """

    path: Path
    input_name: str
    input_type: str
    input_shape: tuple[int, ...]
    was_run: bool


class WholeRun(nn.Module):
    """A run as one network: the method's own `features`, `transform_rows` and `decide` behind the preparation."""

    centres: Tensor

    def __init__(self, model: AdaptedModel) -> None:
        super().__init__()
        norm = model.settings.input_norm
        self.entrance: nn.Module = nn.Identity()
        if model.reader is not None:
            self.entrance = _Pixels(model.reader, norm)
        elif model.settings.network == "none":
            self.entrance = _Scaled(norm)
        self.method = model.method
        self._decide, self._calibration = model.decide_block, model.calibration
        self.register_buffer("centres", torch.from_numpy(model.groups.centres).t().contiguous())

    def rows(self, inputs: Tensor) -> Tensor:
        """Return the rows that the method decides about, (n_samples, n_features)."""
        return self.method.transform_rows(self.method.features(self.entrance(inputs)).float())

    def forward(self, inputs: Tensor) -> tuple[Tensor, ...]:
        """Return nearest class, known or not, confidence, group, probabilities and unit features."""
        rows = self.rows(inputs)
        decision = self._decide(rows)
        nearest, features = decision.nearest, unit_directions(rows)
        group = torch.full_like(nearest, -1)
        if self.centres.shape[1]:
            group = torch.where(decision.known, group, (features @ self.centres).argmax(dim=1))
        confidence, probabilities = (f(self._calibration) for f in (decision.confidence, decision.probabilities))
        return nearest, decision.known, confidence, group, probabilities, features


class _Scaled(nn.Module):
    """Scale rows to one norm, as `scaled_rows` does."""

    def __init__(self, norm: float) -> None:
        super().__init__()
        self._norm = norm

    def forward(self, rows: Tensor) -> Tensor:
        # In double precision the squares of the largest and of the smallest float32 stay in range.
        rows = rows.double()
        length = rows.square().sum(dim=1, keepdim=True).sqrt()
        return (rows * (self._norm / torch.where(length > 0, length, 1))).float()


class _Pixels(nn.Module):
    """The frozen part of a backbone, from pixels on."""

    mean: Tensor
    std: Tensor

    def __init__(self, reader: ImageReader, norm: float) -> None:
        super().__init__()
        self.trunk = reader.split.trunk
        self.scaled = nn.Identity() if reader.fine_tunes else _Scaled(norm)
        self.register_buffer("mean", torch.tensor(reader.preparation.mean).view(3, 1, 1))
        self.register_buffer("std", torch.tensor(reader.preparation.std).view(3, 1, 1))

    def forward(self, pixels: Tensor) -> Tensor:
        # Half precision, in which embeddings are stored and were trained on.
        embeddings: Tensor = self.trunk((pixels.float() / 255 - self.mean) / self.std).half()
        scaled: Tensor = self.scaled(embeddings.float())
        return scaled


def export_onnx(model: AdaptedModel, path: Path, *, on_part: Callable[[str], None] | None = None) -> OnnxFile:
    """Write a run as one ONNX file that contains the weights.

    The input is `pixels` (n, 3, side, side), uint8 RGB, for a run made from images; `embeddings` (n, d), float32 of any
    scale, for one made from embeddings; `images` (n, height, width), float32 from 0 to 1, for one of the small
    network. The outputs are those of `AdaptedModel`: `nearest` int64 (n,), `known` bool (n,), `confidence` float64
    (n,), `group` int64 (n,), `probabilities` float64 (n, c + 1) and `features` float32 (n, feature_size).

    The file's metadata hold `format`, `uniot_version`, and in JSON `classes`, `unknown` and `preparation`, which says
    how an image becomes pixels, and is null for other inputs.

    Args:
        model: a finished run.
        path: the file; it is not changed if the export fails.
        on_part: called with a description of each part when it begins.

    Returns:
        Description of the written file.

    Raises:
        DataError: packages are missing, the weights take more than 2 GB, or the network cannot be written as ONNX.
        NumericalError: ONNX Runtime gives other answers than torch.
    """

    def begin(part: str) -> None:
        if on_part is not None:
            on_part(part)

    begin("Preparing the network")
    onnx = _import_onnx()
    network = WholeRun(model).eval()
    n_bytes = sum(value.nbytes for value in network.state_dict().values())
    if n_bytes > _MOST_BYTES:
        raise DataError(
            f"the weights take {n_bytes / 1e9:.1f} GB, and one ONNX file holds less than 2 GB. "
            "Make the run with a smaller backbone."
        )
    name, examples = _examples(model)
    with torch.no_grad():
        # Values that are computed once must not be computed while torch traces the network.
        network(examples)
    begin("Writing network and rule as ONNX")
    proto = _translated(network, name, examples)
    begin("Checking the file")
    _forget_source_lines(proto.graph)
    onnx.helper.set_model_props(proto, _metadata(model))
    onnx.checker.check_model(proto, full_check=True)
    content: bytes = proto.SerializeToString()
    was_run = find_spec("onnxruntime") is not None
    if was_run:
        begin("Comparing with the predictions of torch")
        _compare(model, network, content, examples)
    with replacing(path) as partial:
        partial.write_bytes(content)
    return OnnxFile(path, name, str(examples.dtype).removeprefix("torch."), tuple(examples.shape[1:]), was_run)


def _examples(model: AdaptedModel) -> tuple[str, Tensor]:
    """Return the name of the input, and a few samples to try."""
    generator = torch.Generator().manual_seed(0)
    if model.reader is not None:
        side = model.reader.preparation.crop
        return "pixels", torch.randint(256, (3, 3, side, side), dtype=torch.uint8, generator=generator)
    if model.settings.network == "none":
        return "embeddings", torch.randn(3, *model.input_shape, generator=generator)
    return "images", torch.rand(3, *model.input_shape, generator=generator)


def _translated(network: nn.Module, name: str, examples: Tensor) -> Any:
    with torch.no_grad(), warnings.catch_warnings():
        # Torch's exporter warns about torch's own calls, and reports what it does not simplify.
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
    """Remove the source location of each node, which contains folder names of this machine."""
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
    """Return the preparation that is not in the graph, which has mean and std."""
    return {name: getattr(preparation, name) for name in ("resize", "crop", "interpolation", "mode")}


def _compare(model: AdaptedModel, network: WholeRun, content: bytes, examples: Tensor) -> None:
    """Run the file on a different number of samples, which must be free, and compare the results with torch's."""
    runtime: Any = import_optional("onnxruntime", "onnx", "running ONNX files")
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
        rows, expected = network.rows(inputs), dict(zip(OUTPUTS, network(inputs), strict=True))
        confidence, tolerance = expected["confidence"], _FEATURE_TOLERANCE
        if torch.equal(rows, expected["features"]):
            # A rule may amplify the rounding of features, so that it is compared on the same ones.
            confidence = model.decide(torch.from_numpy(got["features"])).confidence(model.calibration)
            tolerance = _CONFIDENCE_TOLERANCE
    for name, difference, most in (
        ("features", got["features"] - expected["features"].numpy(), _FEATURE_TOLERANCE),
        ("confidence", got["confidence"] - confidence.numpy(), tolerance),
    ):
        if not np.abs(difference).max() <= most:  # so that NaN fails too
            raise NumericalError(
                f"ONNX Runtime {runtime.__version__} gives other {name} than torch: they differ by "
                f"{np.abs(difference).max():.1e}. Nothing was written. Run `pip install -U 'uniot[onnx]'`, or make the "
                "run with another backbone."
            )


def _import_onnx() -> Any:
    import_optional("onnxscript", "onnx", "writing ONNX files")  # torch's exporter is built on it
    return import_optional("onnx", "onnx", "writing ONNX files")
