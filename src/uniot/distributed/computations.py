"""Compute one shard in a worker: embeddings of images, or predictions by a finished run."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Protocol, TypeVar, cast

import numpy as np

from uniot.distributed.inputs import RowGroups, Shard, opened_table
from uniot.distributed.locations import Location
from uniot.distributed.shards import part_name, skipped_name, write_skipped_to
from uniot.errors import DataError, RunFolderError
from uniot.images.backbones import ImageReader
from uniot.images.embedding import ReadOptions, Skipped, extract_blocks
from uniot.images.files import ImageFile
from uniot.images.graphs import ENGINE, graph_of
from uniot.images.splitting import Split
from uniot.io.embedding_files import write_embeddings
from uniot.io.files import replacing
from uniot.io.predictions import PredictionWriter
from uniot.runs import Run
from uniot.training.domains import inputs_of
from uniot.training.image_predictions import predict_images
from uniot.training.model import AdaptedModel

T = TypeVar("T")

READER = "network.safetensors"


@dataclass(frozen=True)
class Bundle:
    """Files that every worker loads once: those of a run, or of a network.

    Attributes:
        folder: where they are on the machine that started the work.
        names: their names.
        digest: of their content.
        sent: reference to their content in Ray's object store, for workers on other machines; None if all workers see
            the folder.
    """

    folder: Path
    names: tuple[str, ...]
    digest: str
    sent: Any = field(default=None, compare=False)

    @classmethod
    def of(cls, paths: Sequence[Path]) -> Bundle:
        """Return the bundle of files in one folder."""
        return cls(paths[0].parent.absolute(), tuple(path.name for path in paths), _digest(paths))

    def content(self) -> dict[str, bytes]:
        """Return the files by name."""
        return {name: (self.folder / name).read_bytes() for name in self.names}

    @contextmanager
    def opened(self) -> Iterator[Path]:
        """Yield a folder with the files, for the block.

        Raises:
            RunFolderError: the files have changed since the work began.
        """
        if self.sent is None:
            if _digest([self.folder / name for name in self.names]) != self.digest:
                raise RunFolderError(
                    f"{self.folder} has changed since the work began. Run the command again, with a new --out."
                )
            yield self.folder
            return
        import ray

        with tempfile.TemporaryDirectory(prefix="uniot-") as folder:
            for name, content in ray.get(self.sent).items():
                (Path(folder) / name).write_bytes(content)
            yield Path(folder)


class Computation(Protocol):
    """What workers compute: embeddings or predictions."""

    def start(self, bundle: Bundle, workers: int) -> ComputeShard:
        """Load the bundle; return the function that computes shards with this number of threads."""
        ...


class ComputeShard(Protocol):
    """A function that computes one shard."""

    def __call__(self, shard: Shard, source: Location, out: Location, *, strict: bool) -> list[Skipped]:
        """Write the part of a shard; return the images that could not be read."""
        ...


@dataclass(frozen=True)
class EmbedImages:
    """Embeddings of images.

    Attributes:
        made_by: key of the network and of the engine that computes it.
        labelled: whether parts have labels.
    """

    made_by: str
    labelled: bool

    def start(self, bundle: Bundle, workers: int) -> ComputeShard:
        """Load the network."""
        with bundle.opened() as folder:
            reader = ImageReader.load(folder / READER)
            _check_engine(reader.split, self.made_by)

        def compute(shard: Shard, source: Location, out: Location, *, strict: bool) -> list[Skipped]:
            files = _images_of(shard)
            found = _first(extract_blocks(files, reader.split, workers=workers, strict=strict))
            write_skipped_to(out, skipped_name(shard.number), found.skipped)
            if found.files:
                labels = np.array([str(file.label) for file in found.files]) if self.labelled else None
                names = [file.name for file in found.files]
                with out.writing(part_name(shard.number)) as path:
                    write_embeddings(path, found.values.astype(np.float32), labels, names, replacing=replacing)
            return found.skipped

        return compute


@dataclass(frozen=True)
class PredictSamples:
    """Predictions of a finished run for images or embeddings.

    Attributes:
        made_by: key of the network and of the engine that computes it; None for embeddings.
        private_prior: as for `Run.open`.
        prefer: as for `Run.open`.
    """

    made_by: str | None
    private_prior: float | None = None
    prefer: str | None = None

    def start(self, bundle: Bundle, workers: int) -> ComputeShard:
        """Load the run."""
        with bundle.opened() as folder:
            model = Run.open(folder, self.private_prior, self.prefer).model
            if self.made_by is not None and model.reader is not None:
                _check_engine(model.reader.split, self.made_by)

        def compute(shard: Shard, source: Location, out: Location, *, strict: bool) -> list[Skipped]:
            if isinstance(shard.content, RowGroups):
                with _prediction_part(out, shard, model) as writer:
                    _predict_rows(writer, shard.content, source, model)
                return []
            reading = ReadOptions(strict=strict, workers=workers)
            found = _first(predict_images(model, _images_of(shard), reading))
            write_skipped_to(out, skipped_name(shard.number), found.skipped)
            if found.files:
                with _prediction_part(out, shard, model) as writer:
                    writer.write([file.name for file in found.files], found.prediction)
            return found.skipped

        return compute


def engine_key(split: Split) -> str:
    """Return the key of a network with the engine that computes it here, after exporting it if necessary."""
    return split.made_by if split.cut == "all" or graph_of(split) is None else f"{split.made_by}, with {ENGINE}"


def _check_engine(split: Split, expected: str) -> None:
    """Raise DataError if this machine computes a network in another way than the one that started the work."""
    found = engine_key(split)
    if found != expected:
        raise DataError(
            f"a worker would compute {found[:200]!r} and not {expected[:200]!r}, so that its numbers would differ in "
            f"the last digits. Install the same versions everywhere, onnx and {ENGINE} among them."
        )


def _images_of(shard: Shard) -> Sequence[ImageFile]:
    assert not isinstance(shard.content, RowGroups)
    return shard.content


def _first(blocks: Iterator[T]) -> T:
    """Return the first block, which is the only one: a shard has no more images. Its generator ends early.

    At its end it would raise an error if no image could be read; of a single shard that is none.
    """
    with closing(cast("Generator[T, None, None]", blocks)):
        return next(blocks)


@contextmanager
def _prediction_part(out: Location, shard: Shard, model: AdaptedModel) -> Iterator[PredictionWriter]:
    with (
        out.writing(part_name(shard.number)) as path,
        PredictionWriter(path, model.classes, model.unknown, model.group_names) as writer,
    ):
        yield writer


def _predict_rows(writer: PredictionWriter, rows: RowGroups, source: Location, model: AdaptedModel) -> None:
    where = f"{source}/{rows.name}" if rows.name else str(source)
    number = rows.first_row
    with opened_table(source, rows.name) as table:
        for x, names in table.blocks(rows.groups):
            samples = names or [str(row) for row in range(number, number + len(x))]
            try:
                inputs = inputs_of(x, model)
            except DataError as error:
                raise DataError(f"{where}, from row {number} of the input on: {error}") from None
            writer.write(samples, model.predict(inputs, samples))
            number += len(x)


def _digest(paths: Sequence[Path]) -> str:
    """Return the SHA-256 of files: their names and contents."""
    digest = hashlib.sha256()
    try:
        for path in paths:
            with path.open("rb") as file:
                digest.update(f"{path.name} {_sha256(file)}\n".encode())
    except OSError as error:
        raise RunFolderError(
            f"{paths[0].parent} cannot be read ({error}). Keep it where it is while the command runs."
        ) from None
    return digest.hexdigest()


def _sha256(file: BinaryIO) -> str:
    digest = hashlib.sha256()
    while block := file.read(1 << 20):
        digest.update(block)
    return digest.hexdigest()
