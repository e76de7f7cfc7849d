"""Image files as the training loop reads them: decoded for each batch, cropped and flipped at random."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor

from uniot.data.decoding import UnreadableImage, decode, read_image
from uniot.data.image_files import ImageFile
from uniot.data.samples import WHOLE
from uniot.embeddings.preparation import Preparation
from uniot.errors import DataError

_MOST_THREADS = 16


class ImageSamples:
    """Files that were all readable when the run began.

    In training an image is resized to a square, a random part of the backbone's size is cut out and mirrored half of
    the time, as in the paper; elsewhere it is seen as at prediction.
    """

    reads_files = True

    def __init__(self, files: Sequence[ImageFile], preparation: Preparation) -> None:
        self._files = files
        self._preparation = preparation
        # Pillow lets other threads work while it decodes and resizes.
        self._threads = ThreadPoolExecutor(min(_MOST_THREADS, os.cpu_count() or 1), thread_name_prefix="decode")

    def __len__(self) -> int:
        return len(self._files)

    def batch(self, indices: Tensor, generator: torch.Generator | None = None, part: slice = WHOLE) -> Tensor:
        if generator is None:
            images = self._threads.map(self._as_predicted, indices[part].tolist())
        else:
            drawn = torch.rand(len(indices), 3, generator=generator)[part]
            images = self._threads.map(self._varied, indices[part].tolist(), drawn.tolist())
        return self._preparation.normalise(torch.from_numpy(np.stack(list(images))))

    def _bytes(self, index: int) -> bytes:
        path = self._files[index].path
        try:
            return read_image(path)
        except UnreadableImage as error:
            raise DataError(
                f"{path} could be read before and cannot be any more ({error.reason}). Bring it back, and run the same "
                "command again."
            ) from None

    def _as_predicted(self, index: int) -> np.ndarray:
        return self._preparation.read(self._bytes(index))

    def _varied(self, index: int, drawn: list[float]) -> np.ndarray:
        preparation = self._preparation
        # At twice the size that is needed, as for prediction.
        image = decode(self._bytes(index), shortest_side=2 * preparation.resize)
        square = preparation.square(image)
        room = preparation.resize - preparation.crop + 1
        top, left = int(drawn[0] * room), int(drawn[1] * room)
        cut = square[:, top : top + preparation.crop, left : left + preparation.crop]
        return cut[:, :, ::-1] if drawn[2] < 0.5 else cut
