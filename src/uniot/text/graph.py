"""The network of MiniLM as a graph of ONNX Runtime, written with the operators that it computes in one pass each.

Attention, skip connections and activations are single operators of ONNX Runtime, which is faster than what an export
from torch would have. The graph is made from the weights when it is needed; nothing is stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from uniot.text.bert import EPSILON, N_HEADS, N_LAYERS

ENGINE = "onnxruntime"

_OPSET = 17
_IR_VERSION = 8
# The operators that only ONNX Runtime has.
_FUSED = "com.microsoft"


class OnnxBert:
    """The network in ONNX Runtime, which computes on the calling thread; several threads may compute at a time.

    Args:
        weights: tensors by the names that BERT's publication gave them.
    """

    engine = ENGINE

    def __init__(self, weights: Mapping[str, np.ndarray]) -> None:
        runtime: Any = import_module(ENGINE)
        options = runtime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self._session = runtime.InferenceSession(_graph(weights), options, providers=["CPUExecutionProvider"])

    @property
    def streams(self) -> int:
        """Return the number of threads that compute: threads that never wait for each other share the cores best."""
        return torch.get_num_threads()

    @property
    def width(self) -> int:
        """Return the length of a row."""
        return int(self._session.get_outputs()[0].shape[1])

    def rows(self, tokens: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the mean of the outputs over the tokens of each text, (n_texts, width).

        Args:
            tokens: numbers of the tokens of texts of one length, (n_texts, n_tokens).
        """
        places = np.arange(tokens.shape[1])
        rows: NDArray[np.float32] = self._session.run(None, {"tokens": tokens, "places": places})[0]
        return rows


def is_installed() -> bool:
    """Return whether the packages that the graph needs are installed."""
    try:
        return all(find_spec(name) is not None for name in (ENGINE, "onnx")) and import_module(ENGINE) is not None
    except (ImportError, ValueError):
        return False


def _graph(weights: Mapping[str, np.ndarray]) -> bytes:
    """Return the network as an ONNX model with the inputs tokens, (n_texts, n_tokens), and places, (n_tokens,)."""
    onnx: Any = import_module("onnx")
    nodes = _Nodes(weights)
    words, places, kinds = (
        weights[f"embeddings.{name}_embeddings.weight"] for name in ("word", "position", "token_type")
    )
    embedded = nodes.add(
        "Add",
        nodes.add("Gather", nodes.constant(words), "tokens"),
        nodes.add("Gather", nodes.constant(places + kinds[0]), "places"),
    )
    outputs = nodes.add("LayerNormalization", embedded, *nodes.named("embeddings.LayerNorm"), epsilon=EPSILON, axis=-1)
    for layer in range(N_LAYERS):
        outputs = nodes.layer(outputs, f"encoder.layer.{layer}")
    nodes.add("ReduceMean", outputs, output="rows", axes=[1], keepdims=0)
    tensor, kinds_of = onnx.helper.make_tensor_value_info, onnx.TensorProto
    graph = onnx.helper.make_graph(
        nodes.nodes,
        "minilm",
        [tensor("tokens", kinds_of.INT64, ["texts", "length"]), tensor("places", kinds_of.INT64, ["length"])],
        [tensor("rows", kinds_of.FLOAT, ["texts", words.shape[1]])],
        nodes.constants,
    )
    opsets = [onnx.helper.make_opsetid("", _OPSET), onnx.helper.make_opsetid(_FUSED, 1)]
    content: bytes = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION).SerializeToString()
    return content


class _Nodes:
    """The nodes and constants of a graph; each method adds some, and returns the name of the last one's output."""

    def __init__(self, weights: Mapping[str, np.ndarray]) -> None:
        self._onnx: Any = import_module("onnx")
        self._weights = weights
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def add(self, operator: str, *inputs: str, output: str = "", domain: str = "", **attributes: Any) -> str:
        output = output or f"output_{len(self.nodes)}"
        self.nodes.append(self._onnx.helper.make_node(operator, inputs, [output], domain=domain, **attributes))
        return output

    def constant(self, value: np.ndarray) -> str:
        name = f"constant_{len(self.constants)}"
        self.constants.append(self._onnx.numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def named(self, name: str) -> tuple[str, str]:
        """Add the scale and the shift of a normalisation."""
        return self.constant(self._weights[f"{name}.weight"]), self.constant(self._weights[f"{name}.bias"])

    def layer(self, inputs: str, name: str) -> str:
        parts = [f"{name}.attention.self.{part}" for part in ("query", "key", "value")]
        attended = self.add(
            "Attention",
            inputs,
            self.constant(np.concatenate([self._weights[f"{part}.weight"].T for part in parts], axis=1)),
            self.constant(np.concatenate([self._weights[f"{part}.bias"] for part in parts])),
            domain=_FUSED,
            num_heads=N_HEADS,
        )
        hidden = self._added(attended, inputs, f"{name}.attention.output")
        bias = self.constant(self._weights[f"{name}.intermediate.dense.bias"])
        activated = self.add("BiasGelu", self._product(hidden, f"{name}.intermediate.dense"), bias, domain=_FUSED)
        return self._added(activated, hidden, f"{name}.output")

    def _added(self, inputs: str, skipped: str, name: str) -> str:
        """Add a dense layer, what skipped it, and their normalisation."""
        product = self._product(inputs, f"{name}.dense")
        scale_and_shift = self.named(f"{name}.LayerNorm")
        bias = self.constant(self._weights[f"{name}.dense.bias"])
        return self.add(
            "SkipLayerNormalization", product, skipped, *scale_and_shift, bias, domain=_FUSED, epsilon=EPSILON
        )

    def _product(self, inputs: str, name: str) -> str:
        return self.add("MatMul", inputs, self.constant(self._weights[f"{name}.weight"].T))
