"""Predictions of a fitted model for image files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from uniot.errors import DataError
from uniot.images.embedding import ReadOptions, extract_blocks
from uniot.io.predictions import Prediction
from uniot.training.domains import image_inputs

if TYPE_CHECKING:
    from uniot.images.embedding import Skipped
    from uniot.images.files import ImageFile
    from uniot.training.model import AdaptedModel


@dataclass(frozen=True)
class PredictedImages:
    """Predictions for a block of images, in their order, and the images of the block that could not be read."""

    files: list[ImageFile]
    prediction: Prediction
    skipped: list[Skipped]


def predict_images(
    model: AdaptedModel, files: Iterable[ImageFile], options: ReadOptions | None = None
) -> Iterator[PredictedImages]:
    """Yield predictions for images, fitted or new, block by block in bounded memory.

    Raises:
        DataError: the model was fitted to embeddings, so that the network for images is not known.
    """
    if model.reader is None:
        raise DataError(
            "this run was made from embeddings, and the network that made them is not known. "
            "Give embeddings of the same network: an .npz with x."
        )
    options = options or ReadOptions()
    blocks = extract_blocks(
        files,
        model.reader.split,
        None if model.reader.settings.fine_tune == "all" else options.store,
        workers=options.workers,
        strict=options.strict,
        on_progress=options.on_progress("images"),
    )
    for block in blocks:
        answers = Prediction.none()
        if block.files:
            inputs = image_inputs(block.values, model.reader, model.settings)
            answers = model.predict(inputs, [file.name for file in block.files])
        yield PredictedImages(block.files, answers, block.skipped)
