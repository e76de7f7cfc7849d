"""Features of samples and decisions, computed in batches of a fixed size: results do not depend on the batch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from uniot.io.arrays import blocks_of
from uniot.methods.base import Method
from uniot.methods.decision import Decision
from uniot.training.samples import Samples

_BLOCK_ROWS, _BLOCK_IMAGES, _IMAGE_VALUES = 128, 16, 100_000


def features_of_inputs(method: Method, inputs: Tensor) -> Tensor:
    """Return the method's features of inputs (n, …), (n, n_features), on the CPU."""
    size = _block_size(inputs.shape[1:])
    return torch.cat([_features_of_block(method, block, size) for block in inputs.split(size)])


def features_of_samples(method: Method, samples: Samples, ids: Tensor) -> tuple[Tensor, tuple[int, ...]]:
    """Return the features of the samples at `ids`, (n, n_features), and the shape of one sample."""
    shape = samples.batch(torch.zeros(1, dtype=torch.long)).shape[1:]
    size = _block_size(shape)
    features = [_features_of_block(method, samples.batch(block), size) for block in ids.split(size)]
    return torch.cat(features), tuple(int(size) for size in shape)


@torch.no_grad()
def embeddings_of_samples(method: Method, samples: Samples, ids: Tensor) -> Tensor:
    """Return the backbone's embeddings of the samples at `ids` as unit rows, (n, width)."""
    device = _device(method)
    blocks = [method.backbone(samples.batch(block).to(device)).flatten(1) for block in ids.split(_BLOCK_IMAGES)]
    return F.normalize(torch.cat(blocks).float(), dim=1).cpu()


@torch.no_grad()
def _features_of_block(method: Method, block: Tensor, size: int) -> Tensor:
    method.eval()
    missing = size - len(block)
    padded = torch.cat([block, block.new_zeros(missing, *block.shape[1:])]) if missing else block
    features: Tensor = method.features(padded.to(_device(method)))[: len(block)]
    return features.float().cpu()


def _block_size(shape: Sequence[int]) -> int:
    return _BLOCK_ROWS if math.prod(shape) < _IMAGE_VALUES else _BLOCK_IMAGES


def _device(method: Method) -> torch.device:
    parameter = next(method.parameters(), None)
    return torch.device("cpu") if parameter is None else parameter.device


def decide_in_blocks(decide: Callable[[Tensor], Decision], features: Tensor) -> Decision:
    """Return the decision about transformed features, (n_samples, n_features), block by block."""
    odds: Tensor | None = None
    known = torch.empty(len(features), dtype=torch.bool)
    for place, block in blocks_of(features, _BLOCK_ROWS):
        decision, n_rows = decide(block), place.stop - place.start
        if odds is None:
            odds = decision.odds.new_empty(len(features), decision.odds.shape[1])
        odds[place], known[place] = decision.odds[:n_rows], decision.known[:n_rows]
    assert odds is not None
    return Decision(odds, known)
