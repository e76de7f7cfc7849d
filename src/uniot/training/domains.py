"""The domains of a fit: a labelled source and an unlabelled target, checked, with a digest of their data."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from uniot.data_quality.checks import CheckedCollections, LabelledSamples, check_collections
from uniot.data_quality.class_names import class_name_warnings
from uniot.data_quality.feature_values import feature_warnings
from uniot.errors import DataError, SettingsError
from uniot.images.embedding import ImageEmbeddings, ReadOptions, embed_images, lost_classes
from uniot.io.arrays import as_inputs, scaled_rows, unit_rows
from uniot.io.labels import as_labels
from uniot.methods.fitted import GivenPrototypes
from uniot.training.features import embeddings_of_samples
from uniot.training.samples import Augment, ImageSamples, Samples, ScaledRows, TensorSamples, in_order

if TYPE_CHECKING:
    from uniot.config import Settings
    from uniot.images.backbones import ImageReader
    from uniot.images.embedding import Skipped
    from uniot.images.files import ImageFile
    from uniot.training.model import AdaptedModel
    from uniot.training.processes import Processes
    from uniot.training.source_model import SourceModel


@dataclass(frozen=True)
class Domains:
    """A labelled source and an unlabelled target; there is no place for target labels.

    Attributes:
        source: labelled samples.
        labels: class per source sample, text or integers, (n_source,).
        target: unlabelled samples.
        in_target: whether each source sample is also in the target, bit for bit, (n_source,).
        digest: digest of the data, and of what made them from images.
        reader: what made the samples from images; None for arrays.
        prototypes: class prototypes that the user gives; None for those of the method.
        class_sizes: number of labelled samples per class, (n_classes,), if `source` has class means in their place.
        feature_warnings: warnings about the numbers of both collections, as sentences.
        source_names: names of the source samples, (n_source,); their numbers if None.
        target_names: names of the target samples, (n_target,); their numbers if None.
        annotated: whether each source sample is a target sample that a person labelled and that was added to the source
            for this fit, (n_source,); none if None.
        images: the images that the samples were made from; None for arrays.
        feature_names: names of the features, (n_features,); None if they have none.
    """

    source: Samples
    labels: np.ndarray
    target: Samples
    in_target: np.ndarray
    digest: str
    reader: ImageReader | None = None
    prototypes: GivenPrototypes | None = None
    class_sizes: np.ndarray | None = None
    feature_warnings: tuple[str, ...] = ()
    source_names: Sequence[str] | None = None
    target_names: Sequence[str] | None = None
    annotated: np.ndarray | None = None
    images: ImagePair | None = None
    feature_names: tuple[str, ...] | None = None

    @cached_property
    def classes(self) -> np.ndarray:
        """Return the source classes, sorted, (n_classes,)."""
        return np.unique(self.labels)

    def with_prototypes(self, prototypes: Any, weight: float = 1.0) -> Domains:
        """Return the same domains with class prototypes of the user.

        Args:
            prototypes: a row per class in the order of `classes`, (n_classes, n_features), or a mapping from each class
                to its row; of any scale.
            weight: of these rows against class means, from 0 to 1.

        Raises:
            DataError: a class has no row or an unknown one has, a row is zero or of another width than the embeddings.
            SettingsError: the weight is not between 0 and 1.
        """
        if not 0 <= weight <= 1:
            raise SettingsError(f"prototype_weight is {weight}. Give a number from 0 to 1.")
        rows = as_inputs(_in_order(prototypes, self.classes.tolist()), "prototypes")
        width = self.target.batch(torch.zeros(1, dtype=torch.long)).shape[1:]
        if (len(rows), *rows.shape[1:]) != (len(self.classes), *width):
            raise DataError(
                f"prototypes have the shape {rows.shape}; expected {(len(self.classes), *width)}: a row per class, "
                "as wide as the embeddings. Make them with the model that made the embeddings."
            )
        if not np.linalg.norm(rows, axis=1).all():
            raise DataError("a row of prototypes is zero and has no direction. Remove it or compute it again.")
        # A reversed array has negative strides, which torch does not know.
        unit = torch.from_numpy(unit_rows(torch.from_numpy(np.ascontiguousarray(rows))))
        digest = hashlib.sha256(f"{self.digest} {weight}".encode())
        digest.update(unit.numpy().data)
        return replace(self, digest=digest.hexdigest(), prototypes=GivenPrototypes(unit, weight))

    def warnings(self, unknown: str | int) -> tuple[str, ...]:
        """Return warnings about the data that need no fit; `unknown` is the label of unknown samples."""
        return (*class_name_warnings(self.classes.tolist(), unknown), *self.feature_warnings)

    def check(self) -> None:
        """Raise DataError if there are fewer than two source classes or two target samples."""
        if len(self.classes) < 2:
            raise DataError(f"the source has only one class, {self.classes.tolist()[0]!r}. Give at least two classes.")
        if len(self.target) < 2:
            raise DataError(
                "the target has a single sample, and the method compares target samples with each other. Fit on a "
                "collection, then use `predict` for single samples."
            )

    def find_faults(self, model: AdaptedModel) -> CheckedCollections:
        """Return source labels that are probably wrong and near-duplicates, by the embeddings of a fitted model."""
        has_source = self.class_sizes is None
        names = [str(row) for row in range(len(self.source))] if self.source_names is None else self.source_names
        source = LabelledSamples(
            self._embeddings(self.source, model) if has_source else np.zeros((0, 0)),
            names if has_source else [],
            self.labels if has_source else self.labels[:0],
            self.annotated,
        )
        names = [str(row) for row in range(len(self.target))] if self.target_names is None else self.target_names
        predicted = model.labels(model.target)
        return check_collections(source, LabelledSamples(self._embeddings(self.target, model), names, predicted))

    def _embeddings(self, samples: Samples, model: AdaptedModel) -> np.ndarray:
        """Return the samples as given; if a network was trained on images, its embeddings of them."""
        if self.reader is not None and self.reader.fine_tunes:
            return embeddings_of_samples(model.method, samples, torch.arange(len(samples))).numpy()
        if isinstance(samples, ScaledRows):
            return samples.array
        return torch.cat(list(in_order(samples))).numpy()


@dataclass(frozen=True)
class ImagePair:
    """Two collections of images with their embeddings.

    Attributes:
        source: labelled images; none if a source model is adapted.
        target: unlabelled images.
        lost_classes: classes of which no image could be read, each with one of the files that were skipped.
    """

    source: ImageEmbeddings
    target: ImageEmbeddings
    lost_classes: Mapping[str, Skipped] = field(default_factory=dict)

    @property
    def skipped(self) -> list[Skipped]:
        """Return the files of either collection that could not be read."""
        return [*self.source.skipped, *self.target.skipped]

    @property
    def duplicates(self) -> list[tuple[str, str]]:
        """Return pairs of identical files, by name: the first such file of the source, and the file of the target."""
        first: dict[str, ImageFile] = {}
        for file, content in zip(self.source.files, self.source.contents, strict=True):
            first.setdefault(content, file)
        pairs = [
            (first[content], file)
            for file, content in zip(self.target.files, self.target.contents, strict=True)
            if content in first
        ]
        # An image of the target that somebody labelled is in both collections on purpose.
        return [(source.name, target.name) for source, target in pairs if source.path != target.path]


def read_images(
    source: Sequence[ImageFile],
    target: Sequence[ImageFile],
    reader: ImageReader,
    settings: Settings,
    options: ReadOptions | None = None,
    *,
    source_model: SourceModel | None = None,
    processes: Processes | None = None,
) -> Domains:
    """Run the frozen part of a backbone over two collections of images, and return them as domains.

    Args:
        source: images with labels; empty if a source model is adapted.
        target: images whose labels, if any, are not used.
        reader: backbone, and what of it is trained.
        settings: of the fit.
        options: how files are read.
        source_model: model that is adapted without labelled images; None if there are some.
        processes: processes that share the work.

    Returns:
        The domains of the images that could be read.

    Raises:
        DataError: no image of the target can be read, or only those of one class of the source.
    """
    options, labelled, lost = options or ReadOptions(), ImageEmbeddings.none(), {}
    if source:
        labelled = embed_images(source, reader, options, processes, collection="source")
        lost = lost_classes(source, labelled)
    unlabelled = embed_images(target, reader, options, processes, collection="target")
    if source_model is not None:
        names = [file.name for file in unlabelled.files]
        images = ImagePair(labelled, unlabelled, lost)
        return replace(source_model.domains(unlabelled.values, settings), target_names=names, images=images)
    return domains_of_images(ImagePair(labelled, unlabelled, lost), reader, settings)


def domains_of_images(images: ImagePair, reader: ImageReader, settings: Settings) -> Domains:
    """Return the domains of two collections of images whose frozen part was run, or that are read in training.

    Args:
        images: both collections; values are not used if the whole backbone is trained.
        reader: backbone, and what of it is trained.
        settings: of the fit.
    """
    labelled, unlabelled = images.source, images.target
    labels = np.array([str(file.label) for file in labelled.files])
    contents = [*labelled.contents, "|", *unlabelled.contents, "|", *labels.tolist()]
    reading = reader.settings.model_dump_json(exclude=reader.settings.outside_fingerprint)
    digest = hashlib.sha256("\n".join([reading, reader.backbone.digest, *contents]).encode())
    paths = {file.path for file in unlabelled.files}
    return Domains(
        _image_samples(labelled, reader, settings),
        labels,
        _image_samples(unlabelled, reader, settings),
        np.isin(labelled.contents, unlabelled.contents),
        digest.hexdigest(),
        reader,
        source_names=[file.name for file in labelled.files],
        target_names=[file.name for file in unlabelled.files],
        annotated=np.array([file.path in paths for file in labelled.files]),
        images=images,
    )


def _image_samples(images: ImageEmbeddings, reader: ImageReader, settings: Settings) -> Samples:
    if reader.settings.fine_tune == "all":
        return ImageSamples(images.files, reader.preparation)
    if reader.settings.fine_tune == "none":
        return ScaledRows(images.values, settings.input_norm)
    return TensorSamples(image_inputs(images.values, reader, settings))


def image_inputs(values: np.ndarray, reader: ImageReader, settings: Settings) -> Tensor:
    """Return the output of the backbone's frozen part as inputs of the method, (n_images, …)."""
    if reader.settings.fine_tune == "none":
        return scaled_rows(values, settings.input_norm)
    return torch.from_numpy(values)


def domains_from_arrays(
    X: Any,
    y: Any,
    X_target: Any,
    settings: Settings,
    *,
    augment: Augment | None = None,
    feature_names: Sequence[str] | np.ndarray | None = None,
) -> Domains:
    """Return the domains of two arrays.

    Args:
        X: source embeddings, (n_source, n_features), or grey images, (n_source, height, width).
        y: source labels, (n_source,), text or integers.
        X_target: target embeddings or images, (n_target, …).
        settings: the settings of the fit.
        augment: (images, generator) -> images for the labelled images of a batch; none if None.
        feature_names: names of the features, (n_features,); they are numbered in warnings if None.

    Returns:
        The domains, with a digest of their data and warnings about it.

    Raises:
        DataError: an array is empty, not numeric or of another shape than the others.
    """
    source, labels, target = _checked(X, y, X_target, settings, augment)
    class_index = np.unique(labels, return_inverse=True)[1].astype(np.int64)
    digest = hashlib.sha256()

    def digested(samples: Samples) -> Iterator[Tensor]:
        digest.update(f"{torch.float32} {(len(samples), *_shape(samples))}".encode())
        for block in in_order(samples):
            digest.update(block.reshape(-1).view(torch.uint8).numpy().data)
            yield block

    def digested_source() -> Iterator[Tensor]:
        yield from digested(source)
        digest.update(f"{torch.int64} {class_index.shape}".encode())
        digest.update(class_index.data)

    in_target = is_row_of(digested_source(), digested(target))
    if augment is not None:
        digest.update(getattr(augment, "__qualname__", type(augment).__qualname__).encode())
    warnings: tuple[str, ...] = ()
    if isinstance(source, ScaledRows) and isinstance(target, ScaledRows):
        # A source model is trained with the source in place of the target.
        collections = {"source": source.array} if X_target is X else {"source": source.array, "target": target.array}
        warnings = feature_warnings(collections, feature_names)
    return Domains(
        source,
        labels,
        target,
        in_target,
        digest.hexdigest(),
        feature_warnings=warnings,
        feature_names=None if feature_names is None else tuple(map(str, feature_names)),
    )


def is_row_of(rows: Iterable[Tensor], others: Iterable[Tensor]) -> np.ndarray:
    """Return whether each row is bitwise equal to one of `others`.

    Args:
        rows: blocks of float32 rows, (n, …) each; read to the end before the others are.
        others: blocks of rows of the same shape; only one block is in memory at a time.

    Returns:
        bool, (n_rows,).
    """
    sought = [(_check_sums(block), list(_digests(block))) for block in rows]
    sums = np.unique(np.concatenate([own for own, _ in sought] or [np.zeros(0, np.uint64)]))
    digests = [digest for _, own in sought for digest in own]
    present: set[bytes] = set()
    for block in others if len(sums) else ():
        own = _check_sums(block)
        alike = sums[np.searchsorted(sums, own).clip(max=len(sums) - 1)] == own
        if alike.any():
            present.update(_digests(block[torch.from_numpy(alike)]))
    return np.array([digest in present for digest in digests], dtype=bool)


def _check_sums(rows: Tensor) -> np.ndarray:
    """Return an integer per row that is equal for equal rows, (n,)."""
    return np.asarray(rows.contiguous().numpy().view(np.uint32).reshape(len(rows), -1).sum(axis=1, dtype=np.uint64))


def _digests(rows: Tensor) -> Iterator[bytes]:
    return (hashlib.blake2b(row.data, digest_size=16).digest() for row in rows.contiguous().numpy())


def inputs_of(X: Any, model: AdaptedModel, name: str = "UniDAClassifier") -> Tensor:
    """Check new samples, and return them in the form that the model was fitted on.

    Args:
        X: embeddings, (n_samples, n_features), or grey images, (n_samples, height, width).
        model: the fitted model.
        name: class of the estimator, for error messages.

    Returns:
        Inputs of the model, (n_samples, …).

    Raises:
        DataError: the samples are not numeric, or of another shape than those of the fit.
    """
    inputs = inputs_array(X, "X", model.settings)
    if inputs.ndim == 2 and inputs.shape[1] != model.input_shape[0]:
        raise DataError(
            f"X has {inputs.shape[1]} features, but {name} is expecting {model.input_shape[0]} features as input. "
            "Give embeddings of the model that made the source's and the target's."
        )
    if tuple(inputs.shape[1:]) != model.input_shape:
        raise DataError(
            f"X has images of shape {tuple(inputs.shape[1:])} and the model was fitted on {model.input_shape}. "
            "Resize them first."
        )
    return inputs


def _in_order(prototypes: Any, classes: list[Any]) -> Any:
    """Return prototypes in the order of the classes, if they are a mapping from class to row."""
    if not isinstance(prototypes, Mapping):
        return prototypes
    missing = [name for name in classes if name not in prototypes]
    other = [name for name in prototypes if name not in classes]
    if missing or other:
        wrong = f"there is none of {missing[0]!r}" if missing else f"{other[0]!r} is not a class of the source"
        raise DataError(f"prototypes need a row for each source class, and {wrong}. Give one per class, by its name.")
    return np.stack([np.asarray(prototypes[name]) for name in classes])


def _checked(
    X: Any, y: Any, X_target: Any, settings: Settings, augment: Augment | None
) -> tuple[Samples, np.ndarray, Samples]:
    """Return source, labels and target; raise DataError if they do not fit together."""
    source, target = _samples(X, "X_source", settings, augment), _samples(X_target, "X_target", settings)
    labels = as_labels(y, "y_source")
    if len(labels) != len(source):
        raise DataError(f"y_source has {len(labels)} labels for {len(source)} rows of X_source. Give one per row.")
    if _shape(source) != _shape(target):
        raise DataError(
            f"X_source has samples of shape {_shape(source)} and X_target of {_shape(target)}. "
            "Give embeddings of one and the same model for both."
        )
    return source, labels, target


def _samples(values: Any, name: str, settings: Settings, augment: Augment | None = None) -> Samples:
    if settings.network == "none" and augment is None:
        return ScaledRows(as_inputs(values, name), settings.input_norm)
    return TensorSamples(inputs_array(values, name, settings), augment)


def _shape(samples: Samples) -> tuple[int, ...]:
    """Return the shape of one sample."""
    return tuple(samples.batch(torch.zeros(1, dtype=torch.long)).shape[1:])


def inputs_array(values: Any, name: str, settings: Settings) -> Tensor:
    """Return checked embeddings, scaled as the settings say, or grey images, (n_samples, …)."""
    if settings.network == "none":
        return scaled_rows(as_inputs(values, name), settings.input_norm)
    images = as_inputs(values, name, n_dims=3).astype(np.float32)
    if images.min() < 0 or images.max() > 1:
        raise DataError(
            f"{name} has values from {images.min():g} to {images.max():g}. Give grey images with values from 0 to 1."
        )
    return torch.from_numpy(images)


def unknown_label(given: str | int | None, classes: np.ndarray) -> str | int:
    """Return the label of unknown samples; raise an error if it is of another type than the classes, or one of them."""
    is_text = classes.dtype.kind == "U"
    unknown = ("unknown" if is_text else -1) if given is None else given
    if isinstance(unknown, str) != is_text:
        kind = "text" if is_text else "integers"
        raise SettingsError(f"unknown_label is {unknown!r} and the classes are {kind}. Give a label of the same kind.")
    if unknown in classes.tolist():
        raise DataError(
            f"a source class is called {unknown!r}, which is also what unknown samples are called. "
            "Rename the class, or, in Python, set unknown_label to something else."
        )
    return unknown
