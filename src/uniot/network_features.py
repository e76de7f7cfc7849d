"""Samples go through the networks in blocks of one size, so that an answer does not depend on its company."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from uniot.data.samples import Samples
from uniot.methods import Method

_BLOCK_ROWS, _BLOCK_IMAGES, _IMAGE_VALUES = 128, 16, 100_000


def features_of_inputs(method: Method, inputs: Tensor) -> Tensor:
    """Features of inputs (n, …) as the method makes them, (n, d), on the CPU."""
    size = _block_size(inputs.shape[1:])
    return torch.cat([_features_of_block(method, block, size) for block in inputs.split(size)])


def features_of_samples(method: Method, samples: Samples, ids: Tensor) -> tuple[Tensor, tuple[int, ...]]:
    """Features of the samples at `ids`, and the shape of one sample."""
    shape = samples.batch(torch.zeros(1, dtype=torch.long)).shape[1:]
    size = _block_size(shape)
    features = [_features_of_block(method, samples.batch(block), size) for block in ids.split(size)]
    return torch.cat(features), tuple(int(size) for size in shape)


@torch.no_grad()
def embeddings_of_samples(method: Method, samples: Samples, ids: Tensor) -> Tensor:
    """Unit rows of the space that the projection begins in, (n, d)."""
    device = _device(method)
    blocks = [method.backbone(samples.batch(block).to(device)).flatten(1) for block in ids.split(_BLOCK_IMAGES)]
    return F.normalize(torch.cat(blocks).float(), dim=1).cpu()


def unit_rows(rows: Tensor) -> np.ndarray:
    """Rows of unit norm; those that have it already stay as they are, to the last bit.

    A row of no length points nowhere, and gets the direction of the first axis: it has a place among others then.
    """
    length = rows.norm(dim=1, keepdim=True)
    near_one = (length - 1).abs() < 1e-5
    first_axis = (torch.arange(rows.shape[1]) == 0).to(rows.dtype)
    unit = torch.where(length > 0, rows / length.clamp_min(1e-30), first_axis)
    return np.asarray(torch.where(near_one, rows, unit).numpy())


@torch.no_grad()
def _features_of_block(method: Method, block: Tensor, size: int) -> Tensor:
    cast(nn.Module, method).eval()
    missing = size - len(block)
    padded = torch.cat([block, block.new_zeros(missing, *block.shape[1:])]) if missing else block
    features: Tensor = method.features(padded.to(_device(method)))[: len(block)]
    return features.float().cpu()


def _block_size(shape: Sequence[int]) -> int:
    return _BLOCK_ROWS if math.prod(shape) < _IMAGE_VALUES else _BLOCK_IMAGES


def _device(method: Method) -> torch.device:
    parameter = next(cast(nn.Module, method).parameters(), None)
    return torch.device("cpu") if parameter is None else parameter.device
