"""Two folders of images in, an adapted model out; and new photographs judged by it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch

from uniot.adaptation import OnStep, adapt
from uniot.data.arrays import scaled_rows
from uniot.data.image_files import ImageFile
from uniot.data.samples import Samples, TensorSamples
from uniot.data_quality.checks import CheckedCollections, LabelledSamples, check_collections
from uniot.embeddings.blocks import Extraction
from uniot.embeddings.extraction import OnProgress, duplicates, extract, extract_blocks
from uniot.embeddings.image_reader import ImageReader
from uniot.embeddings.image_samples import ImageSamples
from uniot.embeddings.reading import Skipped
from uniot.embeddings.store import EmbeddingStore
from uniot.errors import DataError
from uniot.experiment_loggers import ExperimentLogger
from uniot.model import AdaptedModel
from uniot.network_features import embeddings_of_samples
from uniot.prediction import Prediction
from uniot.processes import Processes
from uniot.run_folder import write_table
from uniot.settings import Settings
from uniot.training import Watch

# The paper's, for a network that is trained as a whole.
_STEPS_OF_A_WHOLE_BACKBONE = 10_000


@dataclass(frozen=True)
class Reading:
    """How a collection is read.

    Attributes:
        store: where embeddings are kept between runs; nowhere if None.
        strict: whether a file that cannot be read stops the run.
        workers: threads that read and decode; one per core if None.
        progress: from the name of a collection ("source", "target", "images") to what is told how far its reading is.
    """

    store: EmbeddingStore | None = None
    strict: bool = False
    workers: int | None = None
    progress: Callable[[str], OnProgress] | None = None

    def on_progress(self, collection: str) -> OnProgress | None:
        """What is told how far the reading of a collection is; None if nobody is."""
        return None if self.progress is None else self.progress(collection)


@dataclass(frozen=True)
class ImageRun:
    """What came of two collections."""

    model: AdaptedModel
    source: Extraction
    target: Extraction
    duplicates: list[tuple[int, int]]

    @property
    def skipped(self) -> list[Skipped]:
        """Files of either collection that could not be read."""
        return [*self.source.skipped, *self.target.skipped]


def adapt_images(
    source: Sequence[ImageFile],
    target: Sequence[ImageFile],
    settings: Settings,
    reader: ImageReader,
    *,
    reading: Reading | None = None,
    unknown: str | None = None,
    start: AdaptedModel | None = None,
    run: Path | None = None,
    processes: Processes | None = None,
    watch: Callable[[np.ndarray, np.ndarray], Watch] | None = None,
    on_step: OnStep | None = None,
    logger: ExperimentLogger | None = None,
) -> ImageRun:
    """Adapts from labelled to unlabelled images.

    Args:
        source: images with labels.
        target: images without; there is no argument for their labels.
        settings: as given; what the data decide is decided on the way.
        reader: backbone, and what of it is trained.
        reading: how files are read.
        unknown: what unknown samples are called.
        start: what another run of the same backbone ended with, to go on from.
        run: folder for checkpoints.
        processes: who shares the work.
        watch: from the source classes and the places of the target files kept, among those given, to what adds
            columns to the history.
        on_step: called with step, number of steps and numbers of the step.
        logger: for settings and losses, if something is trained.
    """
    reading, processes = reading or Reading(), processes or Processes()
    labelled = read_collection(source, reader, reading, processes, collection="source")
    unlabelled = read_collection(target, reader, reading, processes, collection="target")
    if reader.settings.fine_tune == "all" and settings.steps is None:
        settings = settings.model_copy(update={"steps": _STEPS_OF_A_WHOLE_BACKBONE})
    labels = np.array([str(file.label) for file in labelled.files])
    contents = [*labelled.contents, "|", *unlabelled.contents, "|", *labels.tolist()]

    def fingerprint(resolved: Settings) -> str:
        digest = hashlib.sha256(resolved.model_dump_json(exclude=resolved.outside_fingerprint).encode())
        digest.update(reader.settings.model_dump_json(exclude={"weights"}).encode() + reader.backbone.digest.encode())
        digest.update("\n".join(contents).encode())
        return digest.hexdigest()

    model = adapt(
        _samples(labelled, reader, settings),
        labels,
        _samples(unlabelled, reader, settings),
        settings,
        unknown=unknown,
        fingerprint=fingerprint,
        in_target=np.isin(labelled.contents, unlabelled.contents),
        reader=reader,
        start=start,
        run=run,
        processes=processes,
        watch=None if watch is None else watch(np.unique(labels), unlabelled.kept),
        on_step=on_step,
        logger=logger,
    )
    equal = duplicates(labelled.contents, unlabelled.contents)
    # An image of the target that somebody named is in both collections on purpose.
    in_both = [pair for pair in equal if labelled.files[pair[0]].path != unlabelled.files[pair[1]].path]
    return ImageRun(model, labelled, unlabelled, in_both)


def check_images(run: ImageRun) -> CheckedCollections:
    """Look for wrong labels and near-duplicates among the images of a run, by the embeddings that it ended with."""
    model = run.model
    assert model.reader is not None
    source, target = run.source, run.target
    rows = [source.values, target.values]
    if model.reader.fine_tunes:
        both = [_samples(one, model.reader, model.settings) for one in (source, target)]
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


def read_collection(
    files: Sequence[ImageFile],
    reader: ImageReader,
    reading: Reading,
    processes: Processes | None = None,
    *,
    collection: str = "images",
) -> Extraction:
    """Runs the backbone's trunk over every image that can be read; `collection` is its name for the progress."""
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
    """Some images in order, what the run says of each, and which of them could not be read."""

    files: list[ImageFile]
    prediction: Prediction
    skipped: list[Skipped]


def predict_images(
    model: AdaptedModel, files: Iterable[ImageFile], reading: Reading | None = None
) -> Iterator[AnsweredBlock]:
    """Answers for images, fitted or new, a block at a time in bounded memory."""
    if model.reader is None:
        raise DataError(
            "this run was made from embeddings, and which network made them is not known. "
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


def write_duplicates(path: Path, run: ImageRun) -> None:
    """One line per pair of equal files, source and target. Nothing is written where there is none."""
    pairs = [(run.source.files[first].name, run.target.files[second].name) for first, second in run.duplicates]
    write_table(path, ("source", "target"), pairs)


def write_skipped(path: Path, skipped: Sequence[Skipped]) -> None:
    """One line per file that could not be read: path and reason. Nothing is written where there is none."""
    write_table(path, ("path", "reason"), [(one.name, one.reason) for one in skipped])


def skipped_beside(table: Path) -> Path:
    """Where `write_skipped` goes for a table of images: `new.skipped.csv` for `new.csv`."""
    return table.with_name(f"{table.stem}.skipped.csv")


def _samples(collection: Extraction, reader: ImageReader, settings: Settings) -> Samples:
    if reader.settings.fine_tune == "all":
        return ImageSamples(collection.files, reader.preparation)
    return TensorSamples(_inputs(collection.values, reader, settings))


def _inputs(values: np.ndarray, reader: ImageReader, settings: Settings) -> torch.Tensor:
    """What the trunk made of images, as the method takes it."""
    if reader.settings.fine_tune == "none":
        return scaled_rows(values, settings.input_norm)
    return torch.from_numpy(values)
