"""Networks that methods share: projection, prototypes, discriminator, small CNN, fine-tuned backbone."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from uniot.errors import DataError


def dropped(x: Tensor, rate: float, generator: torch.Generator | None) -> Tensor:
    """Apply dropout with a random generator, so that a step can be repeated exactly.

    Each value is set to zero with probability `rate`; the others are divided by 1 - rate.

    Args:
        x: of any shape, on any device.
        rate: from 0 to below 1.
        generator: on the CPU; None disables dropout, as outside training.

    Returns:
        The values after dropout, of the shape of `x`.
    """
    if generator is None or rate == 0:
        return x
    # A CPU generator gives the same masks on every device.
    mask = torch.rand(x.shape, generator=generator).ge_(rate).div_(1 - rate)
    return x * mask.to(x)


class ProjectionHead(nn.Module):
    """Map embeddings to unit features: linear, ReLU, linear, normalisation.

    This is SwAV's head without batch normalisation, as in the paper.

    References:
        Caron et al., Unsupervised Learning of Visual Features by Contrasting Cluster Assignments, NeurIPS 2020,
        arXiv:2006.09882.
    """

    def __init__(self, in_features: int, hidden_size: int = 2048, feature_size: int = 256) -> None:
        super().__init__()
        self.hidden = nn.Linear(in_features, hidden_size)
        self.out = nn.Linear(hidden_size, feature_size)

    def forward(self, embeddings: Tensor) -> Tensor:
        """Return unit features, (n, feature_size), of embeddings (n, in_features)."""
        return F.normalize(self.out(F.relu(self.hidden(embeddings))), dim=1)


class WeightNormLinear(nn.Module):
    """Map features to logits by a linear layer whose rows have a direction and a length of their own, w = g v / ||v||.

    References:
        Salimans and Kingma, Weight Normalization, NeurIPS 2016, arXiv:1602.07868.
    """

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        start = nn.Linear(in_features, out_features).weight.detach()
        self.direction = nn.Parameter(start)
        self.length = nn.Parameter(start.norm(dim=1))
        self.bias = nn.Parameter(torch.zeros(out_features))

    @property
    def weight(self) -> Tensor:
        """Return the rows, (out_features, in_features)."""
        return self.length[:, None] * F.normalize(self.direction, dim=1)

    def forward(self, features: Tensor) -> Tensor:
        """Return logits, (..., out_features), of features (..., in_features)."""
        return F.linear(features, self.weight, self.bias)


class DomainDiscriminator(nn.Module):
    """Classify the domain by three linear layers with ReLU and dropout, as in the published code of PADA and UAN.

    The output is a logit: its sigmoid is D(x), trained towards 1 for the source and towards 0 for the target.
    """

    def __init__(self, in_features: int, hidden_size: int = 1024, dropout: float = 0.5) -> None:
        super().__init__()
        self.first = nn.Linear(in_features, hidden_size)
        self.second = nn.Linear(hidden_size, hidden_size)
        self.last = nn.Linear(hidden_size, 1)
        self.dropout = dropout

    def forward(self, features: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Return one logit per sample, (n,).

        Args:
            features: (n, in_features).
            generator: for the dropout masks, on the CPU; None disables dropout.
        """
        hidden = dropped(F.relu(self.first(features)), self.dropout, generator)
        hidden = dropped(F.relu(self.second(hidden)), self.dropout, generator)
        logits: Tensor = self.last(hidden).squeeze(1)
        return logits

    def of_domains(
        self, source: Tensor, target: Tensor, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the logits of the source, (b,), and of the target, (b',), from one forward pass.

        Args:
            source: features, (b, in_features).
            target: features, (b', in_features).
            generator: for the dropout masks, on the CPU; None disables dropout.
        """
        source_logits, target_logits = self(torch.cat([source, target]), generator).split([len(source), len(target)])
        return source_logits, target_logits


SMALLEST_SIDE = 8
_GRID = 4  # pooled positions per axis: a 6 and a 9 differ only in the position of their parts
_GROUPS = 8
_MEAN_GREY = 0.13  # mean of MNIST; centred inputs let the first layer learn as fast as the others


class SmallCNN(nn.Module):
    """Map grey images (n, h, w) in [0, 1] to embeddings by three strided convolutions and a linear layer.

    Every normalisation is within one sample (group, then layer normalisation), so an embedding does not depend on the
    batch, and there are no running statistics that would mix the two domains. The last normalisation has no weights:
    every embedding has mean 0, variance 1 and thus norm √out_features, the scale that the initialisation of the
    projection's first layer assumes. Without it the scale would drift with the learning rate, because the network
    starts from random weights.
    """

    def __init__(self, out_features: int = 128, widths: tuple[int, int, int] = (16, 32, 64)) -> None:
        """Build the network with random weights.

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
        # channels_last makes the backward pass a quarter faster on a CPU.
        self.convolutions.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.pool = nn.AdaptiveAvgPool2d(_GRID)
        self.linear = nn.Linear(third * _GRID**2, out_features)
        self.scale = nn.LayerNorm(out_features, elementwise_affine=False)

    def forward(self, images: Tensor) -> Tensor:
        """Return the embeddings, (n, out_features), of grey images.

        Args:
            images: (n, h, w) in [0, 1], sides of at least 8.

        Raises:
            DataError: the shape is another one.
        """
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
    """Return a convolution that halves the side, with normalisation and ReLU; the normalisation has the bias."""
    convolution = nn.Conv2d(before, after, kernel, stride=2, padding=kernel // 2, bias=False)
    return convolution, nn.GroupNorm(_GROUPS, after), nn.ReLU()


class FineTuned(nn.Module):
    """Fine-tune a backbone, or its last layers: map inputs to embeddings.

    By default the backbone stays in evaluation mode, with the batch-normalisation statistics of its pretraining, so
    that an embedding depends neither on the batch nor on the number of processes, and the embeddings have the norm of
    those of a frozen backbone, so that training starts from the same features. The published recipe does neither.
    """

    def __init__(self, tail: nn.Module, norm: float | None, parts: int = 1, *, trains_statistics: bool = False) -> None:
        """Wrap a backbone or its last layers.

        Args:
            tail: maps inputs to embeddings, (n, d).
            norm: norm of every embedding; None to leave embeddings as they are.
            parts: number of parts that a batch is split into. In training only the activations of one part are in
                memory at a time and are recomputed in the backward pass; the gradients are those of the whole batch.
            trains_statistics: whether batch normalisation in training uses the statistics of the inputs of each call,
                and averages them for evaluation. Call it for each domain separately. `parts` is 1 then.
        """
        super().__init__()
        self.tail = tail.requires_grad_(True)
        self._norm = norm
        self._parts = parts
        self._trains_statistics = trains_statistics

    def train(self, mode: bool = True) -> FineTuned:
        """Return this module after setting its mode; of the backbone only batch normalisation may follow it."""
        super().train(mode)
        self.tail.eval()
        if self._trains_statistics:
            for module in self.tail.modules():
                if isinstance(module, nn.modules.batchnorm._BatchNorm):
                    module.train(mode)
        return self

    def forward(self, inputs: Tensor) -> Tensor:
        """Return embeddings, (n, d), of inputs (n, ...): images, or activations of an earlier layer."""
        inputs = inputs.float()
        if self._parts == 1 or not torch.is_grad_enabled():
            embeddings = self.tail(inputs)
        else:
            parts = [checkpoint(self.tail, part, use_reentrant=False) for part in inputs.chunk(self._parts)]
            embeddings = torch.cat(parts)
        embeddings = embeddings.float().flatten(1)
        return embeddings if self._norm is None else F.normalize(embeddings, dim=1) * self._norm
