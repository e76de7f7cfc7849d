"""Image collections as the domains of a fit, and predictions for new images."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from uniot.data_quality.checks import CheckedCollections, LabelledSamples, check_collections
from uniot.errors import DataError
from uniot.images.decoding import UnreadableImage, decoded, memory_for_encoded, read_image
from uniot.images.extraction import OnProgress, duplicates, extract, extract_blocks
from uniot.images.reading import Extraction
from uniot.io.arrays import scaled_rows
from uniot.io.csv_tables import write_table
from uniot.io.predictions import Prediction
from uniot.io.text import listed
from uniot.training.domains import Domains
from uniot.training.features import embeddings_of_samples
from uniot.training.model import AdaptedModel
from uniot.training.processes import Processes
from uniot.training.samples import WHOLE, Samples, ScaledRows, TensorSamples

if TYPE_CHECKING:
    from uniot.config import Settings
    from uniot.images.backbones import ImageReader
    from uniot.images.files import ImageFile
    from uniot.images.preparation import Preparation
    from uniot.images.reading import Skipped
    from uniot.images.store import EmbeddingStore

_MOST_THREADS = 16


class ImageSamples:
    """Image files, decoded when they are used.

    For training an image is resized to a square, cropped at random and mirrored half of the time, as in the paper;
    otherwise it is prepared as for prediction.
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
        """Return decoded images, augmented if there is a generator, (n_samples, 3, height, width)."""
        if generator is None:
            images = self._threads.map(self._as_predicted, indices[part].tolist())
        else:
            drawn = torch.rand(len(indices), 3, generator=generator)[part]
            images = self._threads.map(self._varied, indices[part].tolist(), drawn.tolist())
        return self._preparation.normalise(torch.from_numpy(np.stack(list(images))))

    @contextmanager
    def _opened(self, index: int) -> Iterator[bytes]:
        path = self._files[index].path
        with memory_for_encoded(path):
            try:
                data = read_image(path)
            except UnreadableImage as error:
                raise DataError(
                    f"{path} could be read before and no longer can be ({error.reason}). Bring it back, and run the "
                    "same command again."
                ) from None
            yield data

    def _as_predicted(self, index: int) -> np.ndarray:
        with self._opened(index) as data:
            return self._preparation.read(data)

    def _varied(self, index: int, drawn: list[float]) -> np.ndarray:
        preparation = self._preparation
        with self._opened(index) as data, decoded(data, shortest_side=preparation.decoded_side) as image:
            square = preparation.square(image)
        room = preparation.resize - preparation.crop + 1
        top, left = int(drawn[0] * room), int(drawn[1] * room)
        cut = square[:, top : top + preparation.crop, left : left + preparation.crop]
        return cut[:, :, ::-1] if drawn[2] < 0.5 else cut


@dataclass(frozen=True)
class Reading:
    """Describes how the files of a collection are read.

    Attributes:
        store: store of embeddings between runs; none if None.
        strict: whether a file that cannot be read stops the run.
        workers: threads that read and decode; one per core if None.
        progress: from the name of a collection ("source", "target", "images") to its progress callback.
    """

    store: EmbeddingStore | None = None
    strict: bool = False
    workers: int | None = None
    progress: Callable[[str], OnProgress] | None = None

    def on_progress(self, collection: str) -> OnProgress | None:
        """Return the progress callback of a collection; None if there is none."""
        return None if self.progress is None else self.progress(collection)


@dataclass(frozen=True)
class ImageCollections:
    """Two collections of images that were read.

    Attributes:
        source: labelled images; none if a source model is adapted.
        target: unlabelled images.
        reader: backbone, and what of it is trained.
        lost_classes: classes of which no image could be read, each with one of the files that were skipped.
    """

    source: Extraction
    target: Extraction
    reader: ImageReader
    lost_classes: Mapping[str, Skipped] = field(default_factory=dict)

    @property
    def skipped(self) -> list[Skipped]:
        """Return the files of either collection that could not be read."""
        return [*self.source.skipped, *self.target.skipped]

    @property
    def duplicates(self) -> list[tuple[str, str]]:
        """Return the names of equal files, one of the source and one of the target each."""
        equal = duplicates(self.source.contents, self.target.contents)
        pairs = [(self.source.files[first], self.target.files[second]) for first, second in equal]
        # An image of the target that somebody labelled is in both collections on purpose.
        return [(first.name, second.name) for first, second in pairs if first.path != second.path]

    def domains(self, settings: Settings) -> Domains:
        """Return the domains of a fit with these settings."""
        labels = np.array([str(file.label) for file in self.source.files])
        contents = [*self.source.contents, "|", *self.target.contents, "|", *labels.tolist()]
        reading = self.reader.settings.model_dump_json(exclude={"weights"})
        digest = hashlib.sha256("\n".join([reading, self.reader.backbone.digest, *contents]).encode())
        return Domains(
            _samples(self.source, self.reader, settings),
            labels,
            _samples(self.target, self.reader, settings),
            np.isin(self.source.contents, self.target.contents),
            digest.hexdigest(),
            self.reader,
        )

    def check(self, model: AdaptedModel) -> CheckedCollections:
        """Return probably wrong labels and near-duplicates, found by the embeddings that a fitted model has."""
        source, target = self.source, self.target
        rows = [source.values, target.values]
        if self.reader.fine_tunes:
            both = [_samples(one, self.reader, model.settings) for one in (source, target)]
            rows = [embeddings_of_samples(model.method, one, torch.arange(len(one))).numpy() for one in both]
        places = {file.path for file in target.files}
        return check_collections(
            LabelledSamples(
                rows[0],
                [file.name for file in source.files],
                np.array([str(file.label) for file in source.files]),
                np.array([file.path in places for file in source.files]),
            ),
            LabelledSamples(rows[1], [file.name for file in target.files], model.labels(model.target)),
        )


def read_collections(
    source: Sequence[ImageFile],
    target: Sequence[ImageFile],
    reader: ImageReader,
    reading: Reading | None = None,
    processes: Processes | None = None,
) -> ImageCollections:
    """Run the backbone's frozen part over two collections.

    Args:
        source: images with labels; empty if a source model is adapted.
        target: images without.
        reader: backbone, and what of it is trained.
        reading: how files are read.
        processes: processes that share the work.

    Returns:
        Both collections, without the images that could not be read.

    Raises:
        DataError: no image of the target can be read, or only those of one class of the source.
    """
    reading, labelled, lost = reading or Reading(), Extraction.none(), {}
    if source:
        labelled = read_collection(source, reader, reading, processes, collection="source")
        lost = lost_classes(source, labelled)
    read = read_collection(target, reader, reading, processes, collection="target")
    return ImageCollections(labelled, read, reader, lost)


def lost_classes(files: Sequence[ImageFile], read: Extraction) -> dict[str, Skipped]:
    """Return the classes of which no image could be read, each with one of the files that were skipped.

    Args:
        files: labelled images.
        read: those that could be read.

    Raises:
        DataError: some are lost, and a single class is left.
    """
    left = {str(file.label) for file in read.files}
    label_of = {file.name: str(file.label) for file in files}
    lost: dict[str, Skipped] = {}
    for skipped in read.skipped:
        if label_of[skipped.name] not in left:
            lost.setdefault(label_of[skipped.name], skipped)
    if lost and len(left) < 2:
        none_of = "; ".join(f"{label!r}, such as {one.name} ({one.reason})" for label, one in islice(lost.items(), 3))
        raise DataError(
            f"only one class has images that can be read, {listed(left)!r}. No image can be read of {none_of}. Replace "
            "these files, or add images of another class."
        )
    return lost


def read_collection(
    files: Sequence[ImageFile],
    reader: ImageReader,
    reading: Reading,
    processes: Processes | None = None,
    *,
    collection: str = "images",
) -> Extraction:
    """Return the output of the backbone's frozen part for every image that can be read.

    Args:
        files: the images.
        reader: backbone, and what of it is trained.
        reading: how files are read.
        processes: processes that share the work.
        collection: name for the progress: "source", "target" or "images".
    """
    processes = processes or Processes()
    reader.split.trunk.to(processes.device)
    read = partial(extract, network=reader.split, store=reading.store, workers=reading.workers)
    if processes.count > 1 and reading.store is not None:
        # Each process computes its part; afterwards the store holds all of them for everybody.
        with suppress(DataError):  # a part without any readable image is no error of the whole
            read(files[processes.part(len(files))])
        processes.wait()
    return read(files, strict=reading.strict, on_progress=reading.on_progress(collection))


@dataclass(frozen=True)
class AnsweredBlock:
    """A block of images in order, the predictions for them, and the images that could not be read."""

    files: list[ImageFile]
    prediction: Prediction
    skipped: list[Skipped]


def predict_images(
    model: AdaptedModel, files: Iterable[ImageFile], reading: Reading | None = None
) -> Iterator[AnsweredBlock]:
    """Yield predictions for images, fitted or new, block by block in bounded memory.

    Raises:
        DataError: the model was fitted to embeddings, so that the network for images is not known.
    """
    if model.reader is None:
        raise DataError(
            "this run was made from embeddings, and the network that made them is not known. "
            "Give embeddings of the same network: an .npz with x."
        )
    reading = reading or Reading()
    blocks = extract_blocks(
        files,
        model.reader.split,
        None if model.reader.settings.fine_tune == "all" else reading.store,
        workers=reading.workers,
        strict=reading.strict,
        on_progress=reading.on_progress("images"),
    )
    for block in blocks:
        answers = Prediction.none()
        if block.files:
            inputs = _inputs(block.values, model.reader, model.settings)
            answers = model.predict(inputs, [file.name for file in block.files])
        yield AnsweredBlock(block.files, answers, block.skipped)


def write_skipped(path: Path, skipped: Sequence[Skipped]) -> None:
    """Write path and reason of each file that could not be read; no file if there are none."""
    write_table(path, ("path", "reason"), [(one.name, one.reason) for one in skipped])


def skipped_beside(table: Path) -> Path:
    """Return the path of the table of unreadable images beside a table: `new.skipped.csv` for `new.csv`."""
    return table.with_name(f"{table.stem}.skipped.csv")


def _samples(collection: Extraction, reader: ImageReader, settings: Settings) -> Samples:
    if reader.settings.fine_tune == "all":
        return ImageSamples(collection.files, reader.preparation)
    if reader.settings.fine_tune == "none":
        return ScaledRows(collection.values, settings.input_norm)
    return TensorSamples(_inputs(collection.values, reader, settings))


def _inputs(values: np.ndarray, reader: ImageReader, settings: Settings) -> Tensor:
    """Return the output of the backbone's frozen part as inputs of the method."""
    if reader.settings.fine_tune == "none":
        return scaled_rows(values, settings.input_norm)
    return torch.from_numpy(values)
