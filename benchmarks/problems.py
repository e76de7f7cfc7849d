"""Synthetic transport problems: clusters around class prototypes and around directions that the source lacks."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

# Norm of the noise around a centre of norm one: a sample's cosine to its own centre is about 0.8.
_NOISE = 0.7


@dataclass(frozen=True)
class Problem:
    """Target features (n, d), class prototypes (c, d), both of unit norm, and β (c,), float64."""

    features: Tensor
    prototypes: Tensor
    class_mass: Tensor

    @property
    def similarity(self) -> Tensor:
        """Cosines, (n, c), float32."""
        return self.features @ self.prototypes.t()


class Clusters:
    """Where target samples lie: half of the source classes are common, and as many clusters are private.

    Cluster sizes differ by up to a factor of three. Everything follows from the seed.
    """

    def __init__(self, n_classes: int, seed: int, d: int = 64) -> None:
        self._generator = torch.Generator().manual_seed(seed)
        self.prototypes = self._directions(n_classes, d)
        common = self.prototypes[: (n_classes + 1) // 2]
        self._centres = torch.cat([common, self._directions(len(common), d)])
        self._sizes = 0.5 + torch.rand(len(self._centres), generator=self._generator)

    def draw(self, n: int) -> Tensor:
        """The next n features, (n, d), unit rows."""
        of_cluster = torch.multinomial(self._sizes, n, replacement=True, generator=self._generator)
        d = self._centres.shape[1]
        noise = torch.randn(n, d, generator=self._generator)
        return F.normalize(self._centres[of_cluster] + _NOISE / d**0.5 * noise, dim=1)

    def _directions(self, count: int, d: int) -> Tensor:
        return F.normalize(torch.randn(count, d, generator=self._generator), dim=1)


def clustered(n: int, n_classes: int, seed: int, *, uneven: bool = False) -> Problem:
    """A problem of n rows. `uneven`: β differs between classes by up to a factor of sixteen, else uniform."""
    clusters = Clusters(n_classes, seed)
    features = clusters.draw(n)
    mass = torch.ones(n_classes, dtype=torch.float64)
    if uneven:
        mass = 4 ** torch.linspace(-1, 1, n_classes, dtype=torch.float64)
    return Problem(features, clusters.prototypes, mass / mass.sum())
