"""The same network, faster: without gradients, normalisation folded into convolutions, channels last."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from copy import deepcopy
from functools import cached_property
from itertools import pairwise
from types import TracebackType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from uniot.embeddings.backbones import Split
from uniot.embeddings.preparation import Pixels
from uniot.embeddings.store import Rows, check_finite

# Of the largest output. Folding changes only the rounding of float32, which is a hundred times less.
_TOLERANCE = 1e-4
# More would bring little and take the memory of a batch each.
_MOST_STREAMS = 4


class FrozenTrunk:
    """What the trunk of a split backbone makes of images, a few at a time; used in a `with` block.

    On a CPU several threads compute, each its own batch: they never wait for each other, as the threads of one
    operation do, so that decoding beside them costs no more than it takes.

    Every batch is filled up to the same size, so that the numbers of an image are the same to the bit in any company.
    """

    def __init__(self, split: Split, batch_size: int) -> None:
        self._split = split
        self._batch_size = batch_size
        self._device = _device(split.trunk)
        self._cores = torch.get_num_threads()
        self.streams = min(_MOST_STREAMS, self._cores) if self._device.type == "cpu" else 1

    def __enter__(self) -> FrozenTrunk:
        # Each of the threads takes as many cores for an operation as are its share.
        share = (self._cores // self.streams,)
        self._threads = ThreadPoolExecutor(self.streams, "compute", torch.set_num_threads, share)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._threads.shutdown(cancel_futures=True)
        # What a thread sets for itself is also what threads that begin later would take.
        torch.set_num_threads(self._cores)

    def submit(self, images: Sequence[Pixels]) -> Future[Rows]:
        """Rows (n, ...) of at most `batch_size` images, when they are computed."""
        return self._threads.submit(self._rows, self._network, images)

    @cached_property
    def _network(self) -> nn.Module:
        # Not before the first image: where the store knows them all, it is not needed.
        return inference_form(self._split.trunk, self._split.preparation.crop)

    def _rows(self, network: nn.Module, images: Sequence[Pixels]) -> Rows:
        size = self._split.preparation.crop
        batch = np.zeros((self._batch_size, size, size, 3), dtype=np.uint8)
        for place, image in enumerate(images):
            batch[place] = image.transpose(1, 2, 0)
        with torch.inference_mode():
            # In memory the channels stay last, as the network has them.
            pixels = torch.from_numpy(batch).to(self._device).permute(0, 3, 1, 2)
            values: Tensor = network(self._split.preparation.normalise(pixels))
            rows: Rows = values[: len(images)].to(torch.float16).cpu().numpy()
        check_finite(rows, self._split.name)
        return rows


def inference_form(network: nn.Module, size: int) -> nn.Module:
    """A copy that gives the same numbers within rounding. On a CPU the default network is more than twice as fast so.

    Args:
        network: takes images; it is left as it is.
        size: pixels of a side of the images.
    """
    plain = deepcopy(network).cpu().eval()
    folded = deepcopy(plain)
    fast: Any = plain if _fold(folded) and not _agree(plain, folded, size) else folded
    quickest: nn.Module = fast.to(device=_device(network), memory_format=torch.channels_last)
    return quickest.requires_grad_(False)


def _fold(module: nn.Module) -> int:
    """Folds each normalisation into the convolution that is registered before it; returns how many.

    That the one also follows the other in the forward pass is true of nearly all networks, and checked afterwards.
    """
    folded = sum(_fold(child) for child in module.children())
    layers = list(module.named_children())
    for (name, layer), (next_name, next_layer) in pairwise(layers):
        if isinstance(layer, nn.Conv2d) and isinstance(next_layer, nn.BatchNorm2d) and next_layer.track_running_stats:
            setattr(module, name, fuse_conv_bn_eval(layer, next_layer))
            # Normalisation layers of timm hold the activation that follows them.
            setattr(module, next_name, getattr(next_layer, "act", nn.Identity()))
            folded += 1
    return folded


def _agree(first: nn.Module, second: nn.Module, size: int) -> bool:
    images = torch.randn(1, 3, size, size, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        expected: Tensor = first(images)
        try:
            difference = (second(images) - expected).abs().max()
        except (RuntimeError, AttributeError):  # a forward pass that asks for the layer which is gone
            return False
    return bool(difference <= _TOLERANCE * expected.abs().max())


def _device(network: nn.Module) -> torch.device:
    return next((parameter.device for parameter in network.parameters()), torch.device("cpu"))
