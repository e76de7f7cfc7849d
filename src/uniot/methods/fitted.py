"""State that a method fits after its training, and its place in the state_dict and in run folders."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Generic, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from uniot.errors import SettingsError
from uniot.io.tensor_files import StoredTensors
from uniot.transport.unbalanced import UnbalancedPotential

T = TypeVar("T")


class FittedState(nn.Module, Generic[T]):
    """A frozen value that `Method.finalize` fits, stored in the state_dict as one tensor per part.

    The sizes of these tensors are not known before they are loaded, so they cannot be buffers. A value is read from
    the tensors of a file, which are in memory already, after shapes, types and ranges were checked; nothing is
    allocated by a size that the file claims. On the meta device, where only sizes are compared, nothing is read.

    Attributes:
        value: None before `finalize`.
    """

    def __init__(self, write: Callable[[T], dict[str, Tensor]], read: Callable[[StoredTensors], T]) -> None:
        """Create an empty state.

        Args:
            write: returns the tensors of a value by name.
            read: returns the value from such tensors; raises RunFolderError if they are damaged.
        """
        super().__init__()
        self._write, self._read = write, read
        self.value: T | None = None

    def get(self) -> T:
        """Return the value.

        Raises:
            SettingsError: there is none yet.
        """
        if self.value is None:
            raise SettingsError("this method has not been trained to its end. Train it first.")
        return self.value

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        if self.value is not None:
            destination.update({f"{prefix}{name}": tensor for name, tensor in self._write(self.value).items()})

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *args: Any) -> None:
        own = StoredTensors("the rule of the run", state_dict).below(prefix)
        self.value = None
        if own.tensors and not any(tensor.is_meta for tensor in own.tensors.values()):
            self.value = self._read(own)


@dataclass(frozen=True)
class StoredTarget:
    """Describes the samples and means of the target that a fitted method stores besides its weights.

    Attributes:
        n_samples: number of single target samples.
        n_bytes: size of these samples with their neighbourhoods.
        n_features: numbers per sample.
        n_neighbours: size of the neighbourhood stored per sample.
        n_means: number of means of several target samples, which replace single samples that are not stored.
        least_averaged: smallest number of samples in such a mean.
    """

    n_samples: int = 0
    n_bytes: int = 0
    n_features: int = 0
    n_neighbours: int = 0
    n_means: int = 0
    least_averaged: int = 0


@dataclass(frozen=True)
class ClassSums:
    """Sums of unit features by class, separate for samples of the source and for labelled samples of the target.

    Attributes:
        sums: (2, n_classes, n_features), the source's first; float64.
        counts: number of samples per sum, (2, n_classes).
    """

    sums: Tensor
    counts: Tensor

    @classmethod
    def of(cls, blocks: Iterable[tuple[Tensor, Tensor, Tensor]], n_classes: int, n_features: int) -> ClassSums:
        """Add up blocks of features of any scale (n, n_features), class indices (n,) and in_target (n,).

        Returns:
            The sums over all blocks.
        """
        sums = torch.zeros(2 * n_classes, n_features, dtype=torch.float64)
        counts = torch.zeros(2 * n_classes, dtype=torch.int64)
        for features, classes, in_target in blocks:
            row = classes + n_classes * in_target
            sums.index_add_(0, row, F.normalize(features.float(), dim=1).double())
            counts += torch.bincount(row, minlength=2 * n_classes)
        return cls(sums.view(2, n_classes, n_features), counts.view(2, n_classes))

    def over_processes(self, add: Callable[[Tensor], Tensor]) -> ClassSums:
        """Return the sums of all processes, given a function that adds a tensor over them."""
        return ClassSums(add(self.sums), add(self.counts))

    def without_target_of_source(self) -> ClassSums:
        """Return the sums without the labelled target samples of classes that the source has."""
        kept = torch.stack([torch.ones_like(self.in_source), ~self.in_source])
        return ClassSums(self.sums * kept[:, :, None], self.counts * kept)

    @property
    def in_source(self) -> Tensor:
        """Whether the source has a sample of each class, (n_classes,)."""
        return self.counts[0] > 0

    @property
    def in_target(self) -> Tensor:
        """Whether somebody labelled a target sample of each class, (n_classes,)."""
        return self.counts[1] > 0

    def source_means(self) -> Tensor:
        """Return the mean unit feature of the source per class, (n_classes, n_features); 0 without samples."""
        return (self.sums[0] / self.counts[0].clamp_min(1)[:, None]).float()

    def centred_means(self, source_centre: Tensor, target_centre: Tensor) -> Tensor:
        """Return the mean of all samples per class after the centre of their domain is subtracted.

        Args:
            source_centre: (n_features,).
            target_centre: (n_features,).

        Returns:
            Class means, (n_classes, n_features).
        """
        centres = torch.stack([source_centre, target_centre])[:, None].double()
        counts = self.counts[:, :, None]
        return ((self.sums - counts * centres).sum(dim=0) / counts.sum(dim=0).clamp_min(1)).float()


@dataclass(frozen=True)
class GivenPrototypes:
    """Class prototypes that a user gives, such as text embeddings of the class names.

    Attributes:
        rows: a unit row per source class, in the order of the classes, (n_classes, n_features).
        weight: of these rows against the class means of the source, from 0 to 1; 1 uses these rows alone.
    """

    rows: Tensor
    weight: float = 1.0

    def blended(self, class_means: Tensor, scale: Tensor) -> Tensor:
        """Return the weighted mean of these prototypes and class means that are centred on zero.

        Prototypes of another kind of input, such as texts, lie around another centre and at another distance from it,
        which tell nothing about the classes. They are centred too, and scaled to the mean square of the class means.

        Args:
            class_means: centred on zero, (n_classes, width).
            scale: linear map from embeddings to the space of the class means, (n_features, width).

        Returns:
            Prototypes, (n_classes, width).
        """
        own = (self.rows - self.rows.mean(dim=0)).to(scale) @ scale
        ratio = class_means.square().sum().sqrt() / own.square().sum().sqrt().clamp_min(1e-30)
        return self.weight * ratio * own + (1 - self.weight) * class_means


def potential_tensors(potential: UnbalancedPotential) -> dict[str, Tensor]:
    """Return the solution of a transport as tensors; numbers are float64 or int64 scalars."""
    values = {part.name: getattr(potential, part.name) for part in fields(potential)}
    return {
        name: torch.tensor(value, dtype=torch.float64) if isinstance(value, float) else torch.as_tensor(value)
        for name, value in values.items()
    }


def read_potential(stored: StoredTensors, n_classes: int) -> UnbalancedPotential:
    """Return the solution of a transport to `n_classes` classes; raises RunFolderError if it is damaged."""

    def positive(name: str) -> float:
        return float(stored.take(name, (), torch.float64, low=torch.finfo(torch.float64).tiny))

    return UnbalancedPotential(
        class_potential=stored.take("class_potential", (n_classes,), torch.float64),
        class_confidence=stored.take("class_confidence", (n_classes,), torch.float64),
        total_mass=positive("total_mass"),
        n_rows=int(stored.take("n_rows", (), torch.int64, low=1, high=2**53)),
        epsilon=positive("epsilon"),
        marginal_penalty=positive("marginal_penalty"),
        tolerance=float(stored.take("tolerance", (), torch.float64, low=0, high=1)),
        converged=bool(stored.take("converged", (), torch.bool)),
        passes=int(stored.take("passes", (), torch.int64, low=0, high=2**53)),
    )
