"""The answers of the transport problems."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from uniot.transport.arrays import Array, as_tensor
from uniot.transport.threads import one_thread_if_small

_ENTRIES_AT_ONCE = 1 << 22


@dataclass(frozen=True)
class TransportPlan:
    """How much of each sample's mass goes to each class; `mass` (n, c) sums to one."""

    mass: Tensor
    total_mass: float
    class_potential: Tensor
    converged: bool
    passes: int

    @property
    def sample_confidence(self) -> Tensor:
        """Largest mass that each sample sends to one class, shape (n,). Paper: Eq. (5)."""
        return self.mass.amax(dim=1)

    @property
    def class_confidence(self) -> Tensor:
        """Mass that each class receives, shape (c,). Paper: Eq. (6)."""
        return self.mass.sum(dim=0)


@dataclass(frozen=True)
class Assignment:
    """What a solved problem says of some samples: nearest class, and how much mass goes there."""

    nearest: Tensor
    confidence: Tensor
    known: Tensor


@dataclass(frozen=True)
class UnbalancedPotential:
    """The solution of the unbalanced problem in c numbers: every row of the plan follows from them.

    Attributes:
        class_potential: l = log v, float64, shape (c,).
        class_confidence: column sums of the plan divided by its total, float64, shape (c,).
        total_mass: the plan's total before the division.
        n_rows: rows of the problem, repeats and filling counted.
        tolerance: accuracy of the solution; a mass that misses the mean by less counts as equal to it, so that
            rows that all carry exactly the mean (one sample, one class) do not fall to rounding.
    """

    class_potential: Tensor
    class_confidence: Tensor
    total_mass: float
    n_rows: int
    epsilon: float
    marginal_penalty: float
    tolerance: float
    converged: bool
    passes: int

    def log_mass(self, similarity: Array) -> Tensor:
        """Logarithm of the plan's rows for these samples, whether they were in the problem or not.

        Args:
            similarity: (m, c).

        Returns:
            (m, c), float64; the exponentials of the fitted rows sum to one.
        """
        similarity = as_tensor(similarity, "similarity")
        logits = similarity.double() / self.epsilon + self.class_potential.to(similarity.device)
        log_rows = torch.logsumexp(logits, dim=1, keepdim=True)
        return logits - self.shrinkage * (log_rows + math.log(self.n_rows)) - math.log(self.total_mass)

    @one_thread_if_small
    def assign(self, similarity: Array) -> Assignment:
        """Nearest class and known or not, row by row: the inductive form of the test rule.

        A sample is known iff the largest mass of its row is at least the mean mass of a row.
        Paper: Eq. (5), and the first test of Eq. (7).
        """
        similarity = as_tensor(similarity, "similarity")
        size = max(1, _ENTRIES_AT_ONCE // similarity.shape[1])
        parts = [self.log_mass(rows).max(dim=1) for rows in similarity.split(size)]
        confidence = torch.cat([part.values for part in parts]).exp()
        nearest = torch.cat([part.indices for part in parts])
        return Assignment(nearest, confidence, confidence * self.n_rows >= 1 - self.tolerance)

    def common_classes(self) -> Tensor:
        """Classes that receive at least the mean mass, bool (c,). Paper: the second test of Eq. (7)."""
        return self.class_confidence * len(self.class_confidence) >= 1 - self.tolerance

    @property
    def shrinkage(self) -> float:
        """f = κ / (κ + ε), the exponent of the scaling steps."""
        return self.marginal_penalty / (self.marginal_penalty + self.epsilon)
