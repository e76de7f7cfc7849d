"""A small backbone for small grey images, quick enough to train from scratch on a CPU."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from uniot.errors import DataError

SMALLEST_SIDE = 8
_GRID = 4  # places that the last layer tells apart on each axis: a 6 and a 9 differ only in where things are
_GROUPS = 8
_MEAN_GREY = 0.13  # of MNIST; centred inputs let the first layer learn at the same rate as the others


class SmallCNN(nn.Module):
    """Three strided convolutions and a linear layer: (n, h, w) in [0, 1] to (n, out_features).

    Every normalisation is within one sample (group, then layer normalisation), so a sample has the same
    embedding in training and at prediction, alone or in any batch, and there are no running statistics of two
    domains to mix. The last one has no weights: every embedding has mean 0, variance 1 and so norm
    √out_features, the scale that the initialisation of the projection's first layer is made for. Without it
    the scale would drift with the learning rate of a network that starts from nothing.
    """

    def __init__(self, out_features: int = 128, widths: tuple[int, int, int] = (16, 32, 64)) -> None:
        """Builds the network with random weights.

        Args:
            out_features: width of an embedding.
            widths: channels of the convolutions, multiples of 8.
        """
        super().__init__()
        self.out_features = out_features
        first, second, third = widths
        self.convolutions = nn.Sequential(
            *_halving(1, first, kernel=5), *_halving(first, second, kernel=3), *_halving(second, third, kernel=3)
        )
        # Channels beside each other in memory: a quarter less time in the backward pass on a CPU.
        self.convolutions.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.pool = nn.AdaptiveAvgPool2d(_GRID)
        self.linear = nn.Linear(third * _GRID**2, out_features)
        self.scale = nn.LayerNorm(out_features, elementwise_affine=False)

    def forward(self, images: Tensor) -> Tensor:
        """Grey images (n, h, w) in [0, 1], sides of at least 8, to embeddings (n, out_features)."""
        if images.ndim != 3 or min(images.shape[1:]) < SMALLEST_SIDE:
            raise DataError(
                f"the small network reads grey images of shape (n, height, width), sides of at least "
                f"{SMALLEST_SIDE}; these have shape {tuple(images.shape)}. Resize them, or drop the axis of "
                "the channel."
            )
        centred = (images[:, None] - _MEAN_GREY).contiguous(memory_format=torch.channels_last)
        embeddings: Tensor = self.scale(self.linear(self.pool(self.convolutions(centred)).flatten(1)))
        return embeddings


def _halving(before: int, after: int, kernel: int) -> tuple[nn.Module, ...]:
    """Half the side, new channels; the bias is that of the normalisation."""
    convolution = nn.Conv2d(before, after, kernel, stride=2, padding=kernel // 2, bias=False)
    return convolution, nn.GroupNorm(_GROUPS, after), nn.ReLU()
