"""Samples and domains of a fit: arrays as samples, batches by index, and the domains of two arrays."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from torch import Tensor

from uniot.errors import DataError, SettingsError
from uniot.io.arrays import as_inputs, as_labels, is_row_of, scaled_rows, unit_rows
from uniot.methods.fitted import GivenPrototypes

if TYPE_CHECKING:
    from uniot.config import Settings
    from uniot.images.backbones import ImageReader
    from uniot.training.model import AdaptedModel

Augment = Callable[[Tensor, torch.Generator], Tensor]
WHOLE = slice(None)


class Samples(Protocol):
    """Samples that are read by index: arrays in memory, or files on disk.

    Attributes:
        reads_files: whether a batch takes long to make, so that the next one is made in the background.
    """

    reads_files: bool

    def __len__(self) -> int: ...

    def batch(self, indices: Tensor, generator: torch.Generator | None = None, part: slice = WHOLE) -> Tensor:
        """Return the samples at `indices[part]`, (n_samples, …).

        Args:
            indices: indices of the whole batch, (batch_size,).
            generator: for the augmentation of training; no augmentation if None. It is advanced for all of `indices`,
                so that a sample looks the same in whichever process it is made.
            part: the part of the batch that this process makes.
        """
        ...


class TensorSamples:
    """Samples in one tensor.

    Args:
        values: (n_samples, …).
        augment: (images, generator) -> images, for the batches of training; none if None.
    """

    reads_files = False

    def __init__(self, values: Tensor, augment: Augment | None = None) -> None:
        self.values = values
        self._augment = augment

    def __len__(self) -> int:
        return len(self.values)

    def batch(self, indices: Tensor, generator: torch.Generator | None = None, part: slice = WHOLE) -> Tensor:
        """Return rows of the tensor, augmented if there is a generator, (n_samples, …)."""
        if generator is None or self._augment is None:
            return self.values[indices[part]]
        return self._augment(self.values[indices], generator)[part]


_SOURCE, _TARGET, _STEP = 0, 1, 2


def generator_for(seed: int, *purpose: int) -> torch.Generator:
    """Return the random generator of a purpose and a step, which depends on nothing else but the seed."""
    state = np.random.SeedSequence([seed, *purpose]).generate_state(1, np.uint64)[0]
    return torch.Generator().manual_seed(int(state) % 2**63)


class PairedBatches:
    """Class-balanced source batches and shuffled target batches, as index tensors.

    Args:
        source_classes: class index per source sample, (n_source,); every class occurs.
        n_target: number of target samples.
        batch_size: samples of each domain per batch; at most `n_target` of the target.
        seed: random seed of the order.
    """

    def __init__(self, source_classes: Tensor, n_target: int, batch_size: int, seed: int) -> None:
        self._by_class = torch.argsort(source_classes, stable=True)
        self._class_sizes = torch.bincount(source_classes)
        self._class_starts = self._class_sizes.cumsum(0) - self._class_sizes
        self._n_target = n_target
        self._batch_size = batch_size
        self._seed = seed
        self._round: tuple[int, Tensor] = (-1, torch.zeros(0, dtype=torch.long))

    def source(self, step: int) -> Tensor:
        """Return source indices of a step, (batch_size,): a class is drawn uniformly, then a sample of it."""
        generator = generator_for(self._seed, _SOURCE, step)
        classes = torch.randint(len(self._class_sizes), (self._batch_size,), generator=generator)
        place = torch.rand(self._batch_size, generator=generator, dtype=torch.float64)
        within = (place * self._class_sizes[classes]).long()
        return self._by_class[self._class_starts[classes] + within]

    def target(self, step: int) -> Tensor:
        """Return target indices of a step, (batch_size,), from a shuffled epoch without its incomplete last batch."""
        size = min(self._batch_size, self._n_target)
        in_round, position = divmod(step, self._n_target // size)
        if self._round[0] != in_round:
            generator = generator_for(self._seed, _TARGET, in_round)
            self._round = (in_round, torch.randperm(self._n_target, generator=generator))
        return self._round[1][position * size : (position + 1) * size]

    def generator(self, step: int) -> torch.Generator:
        """Return the generator for everything else that is random in a step."""
        return generator_for(self._seed, _STEP, step)


@dataclass(frozen=True)
class Domains:
    """A labelled source and an unlabelled target; there is no place for target labels.

    Attributes:
        source: labelled samples.
        labels: class per source sample, text or integers, (n_source,).
        target: unlabelled samples.
        in_target: whether each source sample is a target sample that somebody labelled, (n_source,).
        digest: digest of the data, and of what made them from images.
        reader: what made the samples from images; None for arrays.
        prototypes: class prototypes that the user gives; None for those of the method.
        class_sizes: number of labelled samples per class, (n_classes,), if `source` has other rows in their place.
    """

    source: Samples
    labels: np.ndarray
    target: Samples
    in_target: np.ndarray
    digest: str
    reader: ImageReader | None = None
    prototypes: GivenPrototypes | None = None
    class_sizes: np.ndarray | None = None

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
                f"prototypes have the shape {rows.shape}; expected was {(len(self.classes), *width)}: a row per class, "
                "as wide as the embeddings. Make them with the model that made the embeddings."
            )
        if not np.linalg.norm(rows, axis=1).all():
            raise DataError("a row of prototypes is zero and has no direction. Remove it or compute it again.")
        unit = torch.from_numpy(unit_rows(torch.from_numpy(rows)))
        digest = hashlib.sha256(f"{self.digest} {weight}".encode())
        digest.update(unit.numpy().data)
        return replace(self, digest=digest.hexdigest(), prototypes=GivenPrototypes(unit, weight))

    def check(self) -> None:
        """Raise DataError if there are fewer than two source classes or two target samples."""
        if len(self.classes) < 2:
            raise DataError(f"the source has one class only, {self.classes.tolist()[0]!r}. Give at least two classes.")
        if len(self.target) < 2:
            raise DataError(
                "the target has a single sample, and the method compares target samples with each other. Fit on a "
                "collection, then use `predict` for single samples."
            )


def domains_from_arrays(
    X: Any, y: Any, X_target: Any, settings: Settings, *, augment: Augment | None = None
) -> Domains:
    """Return the domains of two arrays.

    Args:
        X: source embeddings, (n_source, n_features), or grey images, (n_source, height, width).
        y: source labels, (n_source,), text or integers.
        X_target: target embeddings or images, (n_target, …).
        settings: the settings of the fit.
        augment: (images, generator) -> images for the labelled images of a batch; none if None.

    Returns:
        The domains, with a digest of their data.

    Raises:
        DataError: an array is empty, not numeric or of another shape than the others.
    """
    source, labels, target = _checked(X, y, X_target, settings)
    class_index = np.unique(labels, return_inverse=True)[1]
    digest = hashlib.sha256()
    for tensor in (source, torch.from_numpy(class_index.astype(np.int64)), target):
        digest.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data)
    if augment is not None:
        digest.update(getattr(augment, "__qualname__", type(augment).__qualname__).encode())
    in_target = is_row_of(source, target)
    return Domains(TensorSamples(source, augment), labels, TensorSamples(target), in_target, digest.hexdigest())


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


def _checked(X: Any, y: Any, X_target: Any, settings: Settings) -> tuple[Tensor, np.ndarray, Tensor]:
    """Return source, labels and target; raise DataError if they do not fit together."""
    source, target = inputs_array(X, "X_source", settings), inputs_array(X_target, "X_target", settings)
    labels = as_labels(y, "y_source")
    if len(labels) != len(source):
        raise DataError(f"y_source has {len(labels)} labels for {len(source)} rows of X_source. Give one per row.")
    if source.shape[1:] != target.shape[1:]:
        raise DataError(
            f"X_source has samples of shape {tuple(source.shape[1:])} and X_target of {tuple(target.shape[1:])}. "
            "Give embeddings of one and the same model for both."
        )
    return source, labels, target


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
