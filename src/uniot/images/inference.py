"""Run the frozen part of a backbone fast: folded convolutions in torch, or a graph of ONNX Runtime, in threads."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from copy import deepcopy
from functools import cached_property
from itertools import pairwise
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from uniot.images.graphs import ENGINE, Graph, graph_of
from uniot.images.splitting import device_of
from uniot.images.store import Rows, as_float16

if TYPE_CHECKING:
    from uniot.images.preparation import Pixels
    from uniot.images.splitting import Split

# More streams of torch would hardly be faster, and each takes the memory of a batch.
_MAX_TORCH_STREAMS = 4
_MAX_STREAMS = 16
# Largest deviation relative to the largest output. Folding changes only float32 rounding, a hundredth of this.
_TOLERANCE = 1e-4


class FrozenTrunk:
    """The frozen part of a backbone, which computes its outputs in batches; a context manager.

    On a CPU several threads compute one batch each: with ONNX Runtime if it is installed, else with torch. Unlike the
    threads of one operation they never wait for each other, so that decoding at the same time does not slow them down.

    The outputs for an image are independent of the batch composition, to the last bit: ONNX Runtime computes one image
    at a time, torch batches of a fixed size.

    Attributes:
        streams: number of batches that are computed at a time.
        made_by: key of everything that determines the outputs, for the store.
    """

    def __init__(self, split: Split, batch_size: int) -> None:
        self._split = split
        self._batch_size = batch_size
        self._graph = graph_of(split)
        self._cores = torch.get_num_threads()
        # The two differ by rounding, so that their rows are stored apart.
        self.made_by = split.made_by if self._graph is None else f"{split.made_by}, with {ENGINE}"
        most = _MAX_TORCH_STREAMS if self._graph is None else _MAX_STREAMS
        self.streams = min(most, self._cores) if split.device.type == "cpu" else 1

    def __enter__(self) -> FrozenTrunk:
        # The threads share the cores evenly.
        share = (self._cores // self.streams,)
        self._threads = ThreadPoolExecutor(self.streams, "compute", torch.set_num_threads, share)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._threads.shutdown(cancel_futures=True)
        # A thread's setting is also inherited by threads that start later.
        torch.set_num_threads(self._cores)

    def submit(self, images: Sequence[Pixels]) -> Future[Rows]:
        """Compute the outputs for at most `batch_size` images; return their future, (n_images, ...)."""
        if self._graph is None:
            return self._threads.submit(self._rows, self._network, images)
        return self._threads.submit(self._rows_of_graph, self._graph, images)

    @cached_property
    def _network(self) -> nn.Module:
        # Built with the first image: if the store has all rows, it is not needed.
        return inference_form(self._split.trunk, self._split.preparation.crop)

    def _rows_of_graph(self, graph: Graph, images: Sequence[Pixels]) -> Rows:
        return as_float16(np.stack([graph.row(image) for image in images]), self._split.name)

    def _rows(self, network: nn.Module, images: Sequence[Pixels]) -> Rows:
        size = self._split.preparation.crop
        batch = np.zeros((self._batch_size, size, size, 3), dtype=np.uint8)
        for place, image in enumerate(images):
            batch[place] = image.transpose(1, 2, 0)
        with torch.inference_mode():
            # The memory layout stays channels last, like the network's.
            pixels = torch.from_numpy(batch).to(self._split.device).permute(0, 3, 1, 2)
            values: Tensor = network(self._split.preparation.normalise(pixels))
            return as_float16(values[: len(images)].to(torch.float16).cpu().numpy(), self._split.name)


def inference_form(network: nn.Module, size: int) -> nn.Module:
    """Fold normalisation into convolutions and store channels last: the default network runs twice as fast on a CPU.

    Args:
        network: network that takes images; it is not changed.
        size: side of the images in pixels.

    Returns:
        A copy without gradients whose outputs are equal up to rounding.
    """
    plain = deepcopy(network).cpu().eval()
    folded = deepcopy(plain)
    fast: Any = plain if _fold(folded) and not _agree(plain, folded, size) else folded
    faster: nn.Module = fast.to(device=device_of(network), memory_format=torch.channels_last)
    return faster.requires_grad_(False)


def _fold(module: nn.Module) -> int:
    """Fold each normalisation into the convolution that is registered before it; return the number of folds.

    In nearly all networks it also follows the convolution in the forward pass; the caller checks that.
    """
    folded = sum(_fold(child) for child in module.children())
    layers = list(module.named_children())
    for (name, layer), (next_name, next_layer) in pairwise(layers):
        if isinstance(layer, nn.Conv2d) and isinstance(next_layer, nn.BatchNorm2d) and next_layer.track_running_stats:
            setattr(module, name, fuse_conv_bn_eval(layer, next_layer))
            # Normalisation layers of timm contain the activation that follows them.
            setattr(module, next_name, getattr(next_layer, "act", nn.Identity()))
            folded += 1
    return folded


def _agree(first: nn.Module, second: nn.Module, size: int) -> bool:
    images = torch.randn(1, 3, size, size, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        expected: Tensor = first(images)
        try:
            difference = (second(images) - expected).abs().max()
        except (RuntimeError, AttributeError):  # the forward pass uses a removed layer
            return False
    return bool(difference <= _TOLERANCE * expected.abs().max())
