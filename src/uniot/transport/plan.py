"""The answer to a transport problem, the same for the balanced, the unbalanced and the partial one."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class TransportPlan:
    """A transport plan from samples to classes, with the potentials that give it and the value that it reaches.

    With the similarity S and the weight ε of the entropy, entry (i, j) of the plan is
    `matrix[i, j] = exp(sample_potential[i] + S[i, j] / ε + class_potential[j])`.

    Attributes:
        mass: the plan divided by its total, (n_samples, n_classes); sums to one.
        total_mass: total of the plan before the division, float64, ().
        sample_potential: log u, logarithms of the row scalings, (n_samples,).
        class_potential: log v, logarithms of the column scalings, float64, (n_classes,).
        value: objective of the problem at its solution, which is the largest that any plan reaches, float64, (). It is
            computed as the dual objective: if the solver has not converged, it is an upper bound.
        converged: whether the solver reached its tolerance.
        passes: number of passes over the rows of the matrix, which are the iterations of the solver.
    """

    mass: Tensor
    total_mass: Tensor
    sample_potential: Tensor
    class_potential: Tensor
    value: Tensor
    converged: bool
    passes: int

    @property
    def matrix(self) -> Tensor:
        """Return the plan itself, Q, not divided by its total, (n_samples, n_classes)."""
        return self.mass * self.total_mass.to(self.mass)

    @property
    def sample_marginal(self) -> Tensor:
        """Return the mass that each sample sends, Q 1, (n_samples,)."""
        return self.mass.sum(dim=1) * self.total_mass.to(self.mass)

    @property
    def class_marginal(self) -> Tensor:
        """Return the mass that each class receives, Qᵀ 1, (n_classes,)."""
        return self.mass.sum(dim=0) * self.total_mass.to(self.mass)

    @property
    def sample_confidence(self) -> Tensor:
        """Return the largest fraction of the total mass from each sample to a class, (n_samples,). Paper: Eq. (5)."""
        return self.mass.amax(dim=1)

    @property
    def class_confidence(self) -> Tensor:
        """Return the fraction of the total mass that each class receives, (n_classes,). Paper: Eq. (6)."""
        return self.mass.sum(dim=0)
