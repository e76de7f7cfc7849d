"""Reading of the two collections of `uniot adapt`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from uniot.cli.labelled import are_images, labelled_embeddings, labelled_files, labelled_line
from uniot.cli.screen import reading_progress, working
from uniot.errors import DataError
from uniot.io.text import command, counted

if TYPE_CHECKING:
    import numpy as np

    from uniot.config import ImageSettings, Settings
    from uniot.data_quality.checks import CheckedCollections
    from uniot.images.files import ImageFile
    from uniot.labelling import Names
    from uniot.runs.saving import RunWriter
    from uniot.training.domains import Domains
    from uniot.training.images import ImageCollections, Reading
    from uniot.training.loop import Watch
    from uniot.training.model import AdaptedModel
    from uniot.training.processes import Processes
    from uniot.training.source_model import SourceModel


@dataclass(frozen=True)
class Inputs:
    """Two collections that were read.

    Attributes:
        domains: source and target that a method is fitted to.
        names: names of the target samples.
        check: function from the fitted model to probably wrong labels and near-duplicates.
        truth: true labels of the target, (n_target,), only for the scores; None if they were not given.
        has_unused_labels: whether the file of the target has labels that are not used.
        images: the images; None for embeddings.
        pixels: the digits of the demo, source and target; None for other data.
    """

    domains: Domains
    names: list[str]
    check: Callable[[AdaptedModel], CheckedCollections]
    truth: np.ndarray | None
    has_unused_labels: bool = False
    images: ImageCollections | None = None
    pixels: tuple[np.ndarray, np.ndarray] | None = None

    @property
    def watch(self) -> Watch | None:
        """Return the function that adds scores to the training history; None without true labels."""
        from uniot.training.fit import oracle_watch

        if self.truth is None:
            return None
        return oracle_watch(self.truth, self.domains.classes, len(self.domains.target))

    def write(self, writer: RunWriter, checked: CheckedCollections) -> None:
        """Write the paths, pixels and faults of the collections, for the report and the labelling page."""
        writer.write_checks(checked)
        if self.pixels is not None:
            writer.write_pixels(*self.pixels)
        if self.images is not None:
            writer.write_image_paths(self.images.source.files, self.images.target.files)
            writer.write_skipped(self.images.skipped)
            writer.write_duplicates(self.images.duplicates)


@dataclass(frozen=True)
class Collections:
    """The two collections of a run, before they are read.

    Attributes:
        source: labelled collection; None for the digits of the demo.
        target: unlabelled collection; None for the digits of the demo.
        names: labels that people gave to target samples, which become source samples as well.
        start: model of the run that this one continues.
        source_model: model in the file `source`, which is adapted without labelled samples; None if there are some.
    """

    source: Path | None
    target: Path | None
    names: Names | None = None
    start: AdaptedModel | None = None
    source_model: SourceModel | None = None

    @classmethod
    def of_run(cls, run: Path) -> Collections:
        """Return the collections of a run whose groups were named, to continue from it."""
        from uniot.labelling import read_names
        from uniot.runs import Run

        opened = Run.open(run)
        start, inputs, files = opened.saved_model, opened.inputs, opened.files
        if "demo" not in inputs and not {"source", "target"} <= set(inputs):
            missing = f"{files.settings} does not name the folders of the images. Start a new run"
            if "source_model" in inputs:
                missing = f"{run} adapted a source model. Where the labelled samples are, names can become classes"
            again = command("adapt", "labelled/", "unlabelled/", "--names", files.labels, "--out", "new/")
            raise DataError(f"{missing}: `{again}`.")
        if not files.labels.is_file():
            raise DataError(f"{files.labels} does not exist. Name the groups with `{command('label', run)}`.")
        names = read_names(files.labels)
        if files.names.is_file():
            names = read_names(files.names).followed_by(names)
        if inputs.get("demo") == "digits":
            return cls(None, None, names, start)
        return cls(Path(inputs["source"]), Path(inputs["target"]), names, start)

    @property
    def inputs(self) -> dict[str, str]:
        """Return where the collections are, for settings.toml."""
        if self.source is None or self.target is None:
            return {"demo": "digits"}
        name = "source" if self.source_model is None else "source_model"
        return {name: str(self.source.absolute()), "target": str(self.target.absolute())}

    def are_images(self) -> bool:
        """Return whether the collections are images.

        Raises:
            DataError: one is missing, they are of two kinds, or they are the same.
        """
        if self.source is None or self.target is None:
            return False
        model = self.source_model
        both = (are_images(self.source) if model is None else model.reader is not None, are_images(self.target))
        kinds = ["images" if one else "embeddings" for one in both]
        if kinds[0] != kinds[1]:
            differ = f"contains {kinds[0]}, but {self.target} {kinds[1]}. Give images for both, or embeddings."
            if model is not None:
                differ = f"was trained on {kinds[0]}, but {self.target} contains {kinds[1]}. Give {kinds[0]}, or train "
                differ += f"the source model on {kinds[1]}."
            raise DataError(f"{self.source} {differ}")
        if self.start is None and self.source.samefile(self.target):
            kind = "folder" if self.source.is_dir() else "file"
            raise DataError(
                f"source and target are the same {kind}, {self.source}. Give the labelled samples first, then the ones "
                "to label."
            )
        return kinds[0] == "images"


def read_embedding_pair(collections: Collections, settings: Settings, labels: str | None) -> Inputs:
    """Read two files of embeddings, or the digits of the demo.

    Args:
        collections: where they are.
        settings: of the run.
        labels: file with the true labels of the target, for the scores.

    Returns:
        The inputs of a run.
    """
    import numpy as np

    from uniot.data_quality.checks import LabelledSamples, check_collections
    from uniot.datasets.digits import rewrite
    from uniot.io.embedding_files import read_labels
    from uniot.labelling import named_embeddings
    from uniot.training.domains import domains_from_arrays

    if labels == "folders":
        raise DataError("--target-labels folders is for images. Give the file that contains the labels.")
    read = _arrays(collections)
    x, y, target, names, source_names = read.x, read.y, read.target, read.names, read.source_names
    truth = None if labels is None else read_labels(Path(labels), names)
    if collections.names is not None:
        x, y, target, kept = named_embeddings(x, y, target, names, collections.names)
        has_label = zip(collections.names.names, collections.names.has_label.tolist(), strict=True)
        source_names = source_names + [name for name, is_labelled in has_label if is_labelled]
        names = [name for name, keep in zip(names, kept, strict=True) if keep]
        truth = None if truth is None else truth[kept]
    is_demo = collections.source is None
    labelled = LabelledSamples(x, source_names, np.asarray(y), np.arange(len(x)) >= len(read.x))
    if collections.source_model is not None:
        domains = collections.source_model.domains(target, settings, feature_names=read.feature_names)
    else:
        augment = rewrite if is_demo else None
        domains = domains_from_arrays(x, y, target, settings, augment=augment, feature_names=read.feature_names)
    return Inputs(
        domains,
        names,
        lambda model: check_collections(labelled, LabelledSamples(target, names, model.labels(model.target))),
        truth,
        has_unused_labels=read.has_labels and truth is None,
        pixels=(x, target) if is_demo else None,
    )


@dataclass(frozen=True)
class _Arrays:
    """Arrays of both collections, the names of their samples and features, and whether the target has labels."""

    x: np.ndarray
    y: np.ndarray
    target: np.ndarray
    names: list[str]
    source_names: list[str]
    has_labels: bool
    feature_names: tuple[str, ...] | None = None


def _arrays(collections: Collections) -> _Arrays:
    import numpy as np

    from uniot.datasets.digits import load_digits_pair
    from uniot.io.embedding_files import read_embeddings

    if collections.source is None or collections.target is None:
        digits = load_digits_pair()
        x, y = digits.source_images, digits.source_labels
        return _Arrays(x, y, digits.target_images, digits.target_names, _numbers(len(x)), has_labels=False)
    labelled = None
    if collections.source_model is None:
        labelled = labelled_embeddings(collections.source, allow_one_class=collections.names is not None)
    unlabelled = read_embeddings(collections.target)
    x = unlabelled.x[:0] if labelled is None else labelled.x
    return _Arrays(
        x,
        np.array([]) if labelled is None or labelled.y is None else labelled.y,
        unlabelled.x,
        names=unlabelled.ids or _numbers(len(unlabelled.x)),
        source_names=(labelled.ids if labelled is not None else None) or _numbers(len(x)),
        has_labels=unlabelled.y is not None,
        feature_names=unlabelled.feature_names,
    )


def _numbers(count: int) -> list[str]:
    return [str(row) for row in range(count)]


@dataclass(frozen=True)
class ListedImages:
    """The files of two collections of images, none of which is opened yet.

    Attributes:
        source: labelled images; empty if a source model is adapted.
        target: unlabelled images.
        truth: true labels of the target, (n_target,), only for the scores; None if they were not given.
    """

    source: list[ImageFile]
    target: list[ImageFile]
    truth: np.ndarray | None


def list_image_pair(collections: Collections, labels: str | None) -> ListedImages:
    """List two collections of images, so that a wrong folder or list is reported before anything is read.

    Args:
        collections: where they are.
        labels: `folders` or a list file with the true labels of the target, for the scores.

    Raises:
        DataError: a collection has no images, or the source has no labels or too few classes.
    """
    import numpy as np

    from uniot.images.files import (
        check_list,
        labels_from_folders,
        labels_from_list,
        unlabelled_images,
    )
    from uniot.labelling import named_images

    assert collections.source is not None
    assert collections.target is not None
    check_list(collections.target)
    source = [] if collections.source_model is not None else _labelled_files(collections)
    files = unlabelled_images(collections.target)
    truth = None
    if labels is not None:
        truth = np.array(labels_from_folders(files) if labels == "folders" else labels_from_list(Path(labels), files))
    if collections.names is not None:
        source, files, kept = named_images(source, files, collections.names)
        truth = None if truth is None else truth[kept]
    return ListedImages(source, files, truth)


def _labelled_files(collections: Collections) -> list[ImageFile]:
    """Return the labelled images; the error says so if the two collections seem to be swapped."""
    from uniot.images.files import labelled_images

    assert collections.source is not None
    assert collections.target is not None
    try:
        return labelled_files(collections.source, allow_one_class=collections.names is not None)
    except DataError as error:
        try:
            n_classes = len({file.label for file in labelled_images(collections.target)})
        except DataError:
            raise error from None
        if n_classes < 2:
            raise
        raise DataError(
            f"{error} {collections.target} has a folder for each of {n_classes} classes: did you swap the two? The "
            "labelled images come first."
        ) from None


def read_image_pair(
    files: ListedImages,
    collections: Collections,
    settings: Settings,
    images: ImageSettings,
    reading: Reading,
    processes: Processes,
) -> Inputs:
    """Read two collections of images.

    Args:
        files: the images.
        collections: where they are.
        settings: of the run.
        images: the backbone, and the part of it that is trained.
        reading: how files are read.
        processes: processes that share the work.

    Returns:
        The inputs of a run.
    """
    from uniot.images.backbones import ImageReader
    from uniot.training.images import read_collections

    model = collections.source_model
    earlier = model or collections.start
    if earlier is not None and earlier.reader:
        reader = earlier.reader
    else:
        with working(f"Loading the network {images.backbone}", shown=processes.rank == 0):
            reader = ImageReader.open(images)
    read = read_collections(files.source, files.target, reader, reading, processes)
    truth = None if files.truth is None else files.truth[read.target.kept]
    names = [file.name for file in read.target.files]
    domains = read.domains(settings) if model is None else model.domains(read.target.values, settings)
    return Inputs(domains, names, read.check, truth, images=read)


def collection_lines(
    collections: Collections, n_source: int, n_classes: int, n_target: int, kind: str
) -> Iterator[str]:
    """Yield a sentence on each collection, such as a collection of images; none for the digits of the demo."""
    if collections.source is not None and collections.source_model is None:
        yield labelled_line(collections.source, n_source, n_classes, kind)
    if collections.target is not None:
        yield f"Unlabelled: {counted(n_target, kind)} in {collections.target}."


def open_reading(
    collections: Collections, strict: bool, store: Path | None, workers: int | None, stack: ExitStack | None
) -> Reading:
    """Return how images are read; progress is shown until `stack` ends, and not at all if it is None."""
    from uniot.images.store import EmbeddingStore
    from uniot.training.images import Reading

    titles = {"source": str(collections.source), "target": str(collections.target)}
    if collections.names is not None:
        n_labelled = int(collections.names.has_label.sum())
        titles["source"] += f" and {counted(n_labelled, 'image')} that you labelled"
    progress = None if stack is None else stack.enter_context(reading_progress(titles))
    return Reading(EmbeddingStore(store), strict, workers, progress)
