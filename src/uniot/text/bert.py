"""The network of MiniLM, a BERT encoder with mean pooling, in torch.

References:
    BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding, NAACL 2019, arXiv:1810.04805.
    MiniLM: Deep Self-Attention Distillation for Task-Agnostic Compression of Pre-Trained Transformers, NeurIPS 2020,
    arXiv:2002.10957.
    Sentence-BERT: Sentence Embeddings using Siamese BERT-Networks, EMNLP 2019, arXiv:1908.10084.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

N_LAYERS = 6
N_HEADS = 12
EPSILON = 1e-12
"""Added to the variance in a layer normalisation."""


class TorchBert:
    """The network on the device that torch computes on.

    Args:
        weights: tensors by the names that BERT's publication gave them.
    """

    streams = 1
    engine = "torch"

    def __init__(self, weights: Mapping[str, np.ndarray]) -> None:
        self._device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self._weights = {name: torch.from_numpy(value).to(self._device) for name, value in weights.items()}

    @property
    def width(self) -> int:
        """Return the length of a row."""
        return int(self._weights["embeddings.word_embeddings.weight"].shape[1])

    def rows(self, tokens: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the mean of the outputs over the tokens of each text, (n_texts, width).

        Args:
            tokens: numbers of the tokens of texts of one length, (n_texts, n_tokens).
        """
        with torch.inference_mode():
            outputs = self._embedded(torch.from_numpy(tokens).to(self._device))
            for layer in range(N_LAYERS):
                outputs = self._layer(outputs, f"encoder.layer.{layer}")
            rows: NDArray[np.float32] = outputs.mean(1).cpu().numpy()
        return rows

    def _embedded(self, tokens: Tensor) -> Tensor:
        words, places, kinds = (
            self._weights[f"embeddings.{name}_embeddings.weight"] for name in ("word", "position", "token_type")
        )
        return self._normalised(words[tokens] + places[: tokens.shape[1]] + kinds[0], "embeddings")

    def _layer(self, inputs: Tensor, name: str) -> Tensor:
        query, key, value = (
            self._dense(inputs, f"{name}.attention.self.{part}").unflatten(-1, (N_HEADS, -1)).transpose(1, 2)
            for part in ("query", "key", "value")
        )
        attended = F.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2)
        attended = self._dense(attended, f"{name}.attention.output.dense")
        hidden = self._normalised(attended + inputs, f"{name}.attention.output")
        outputs = self._dense(F.gelu(self._dense(hidden, f"{name}.intermediate.dense")), f"{name}.output.dense")
        return self._normalised(outputs + hidden, f"{name}.output")

    def _dense(self, inputs: Tensor, name: str) -> Tensor:
        return F.linear(inputs, self._weights[f"{name}.weight"], self._weights[f"{name}.bias"])

    def _normalised(self, inputs: Tensor, name: str) -> Tensor:
        scale, shift = (self._weights[f"{name}.LayerNorm.{part}"] for part in ("weight", "bias"))
        return F.layer_norm(inputs, scale.shape, scale, shift, EPSILON)
