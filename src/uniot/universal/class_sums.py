"""Class means over any number of labelled samples, which are seen block by block."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class ClassSums:
    """Sums of unit embeddings by class, apart for samples of the source and for labelled samples of the target.

    Attributes:
        sums: (2, n_classes, n_features), the source's first; double precision.
        counts: how many samples each sum has, (2, n_classes).
    """

    sums: Tensor
    counts: Tensor

    @classmethod
    def of(cls, blocks: Iterable[tuple[Tensor, Tensor, Tensor]], n_classes: int, n_features: int) -> ClassSums:
        """Add up blocks of embeddings (n, n_features) of any scale, class indices (n,) and in_target (n,)."""
        sums = torch.zeros(2 * n_classes, n_features, dtype=torch.float64)
        counts = torch.zeros(2 * n_classes, dtype=torch.int64)
        for embeddings, classes, in_target in blocks:
            row = classes + n_classes * in_target
            sums.index_add_(0, row, F.normalize(embeddings.float(), dim=1).double())
            counts += torch.bincount(row, minlength=2 * n_classes)
        return cls(sums.view(2, n_classes, n_features), counts.view(2, n_classes))

    def over_processes(self, add: Callable[[Tensor], Tensor]) -> ClassSums:
        """Return the sums of all processes, given a function that adds a tensor over them."""
        return ClassSums(add(self.sums), add(self.counts))

    @property
    def in_source(self) -> Tensor:
        """Whether the source has a sample of each class, (n_classes,)."""
        return self.counts[0] > 0

    def source_means(self) -> Tensor:
        """Mean unit embedding of the source's samples of each class, (n_classes, n_features); 0 if there is none."""
        return (self.sums[0] / self.counts[0].clamp_min(1)[:, None]).float()

    def centred_means(self, source_centre: Tensor, target_centre: Tensor) -> Tensor:
        """Mean of all samples of each class, each less the centre of its domain, (n_classes, n_features)."""
        centres = torch.stack([source_centre, target_centre])[:, None].double()
        counts = self.counts[:, :, None]
        return ((self.sums - counts * centres).sum(dim=0) / counts.sum(dim=0).clamp_min(1)).float()
