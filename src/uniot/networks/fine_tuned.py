"""The trained part of a backbone, as a method sees it."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


class FineTuned(nn.Module):
    """From images, or activations of a layer before, to embeddings of one norm.

    The backbone stays in evaluation mode: statistics of batch normalisation are those it was pretrained with, so that
    a sample's embedding depends neither on its batch nor on how many processes share it. The embeddings are scaled as
    those of a frozen backbone are, so training starts from the same features.
    """

    def __init__(self, tail: nn.Module, norm: float, parts: int = 1) -> None:
        """Wraps a part of a backbone.

        Args:
            tail: from inputs to embeddings (n, d).
            norm: of every embedding.
            parts: a batch goes through in so many parts, one after another. In training only one part's activations
                are in memory at a time, the backward pass computes them again, and the gradients are those of the
                whole batch.
        """
        super().__init__()
        self.tail = tail.requires_grad_(True)
        self._norm = norm
        self._parts = parts

    def train(self, mode: bool = True) -> FineTuned:
        """Notes the mode; the backbone itself stays in evaluation mode."""
        super().train(mode)
        self.tail.eval()
        return self

    def forward(self, inputs: Tensor) -> Tensor:
        """Inputs (n, ...) to embeddings (n, d) of one norm."""
        inputs = inputs.float()
        if self._parts == 1 or not torch.is_grad_enabled():
            embeddings = self.tail(inputs)
        else:
            parts = [checkpoint(self.tail, part, use_reentrant=False) for part in inputs.chunk(self._parts)]
            embeddings = torch.cat(parts)
        return F.normalize(embeddings.float().flatten(1), dim=1) * self._norm
