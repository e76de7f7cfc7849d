"""Hold a transport plan and its parts, and compute the balanced plan."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from uniot.errors import DataError, SettingsError
from uniot.transport.rows import Array, as_tensor, check_finite, one_thread_if_small

_ENTRIES_AT_ONCE = 1 << 22


@dataclass(frozen=True)
class TransportPlan:
    """Holds a transport plan from samples to classes.

    Attributes:
        mass: mass from each sample to each class, (n_samples, n_classes); sums to one.
        total_mass: total of the plan before it was divided by it.
        class_potential: logarithms of the class scalings, float64, (n_classes,).
        converged: whether the solver reached its tolerance.
        passes: number of passes over the rows.
    """

    mass: Tensor
    total_mass: float
    class_potential: Tensor
    converged: bool
    passes: int

    @property
    def sample_confidence(self) -> Tensor:
        """Return the largest mass from each sample to a class, (n_samples,). Paper: Eq. (5)."""
        return self.mass.amax(dim=1)

    @property
    def class_confidence(self) -> Tensor:
        """Return the mass that each class receives, (n_classes,). Paper: Eq. (6)."""
        return self.mass.sum(dim=0)


@dataclass(frozen=True)
class Assignment:
    """Holds the assignment of samples to classes by a solved problem.

    Attributes:
        nearest: index of the class that gets the most mass, (n_samples,).
        confidence: mass of that class, (n_samples,).
        known: whether this mass is at least the mean mass of a row, bool (n_samples,).
    """

    nearest: Tensor
    confidence: Tensor
    known: Tensor


@dataclass(frozen=True)
class UnbalancedPotential:
    """Holds the class potentials that solve the unbalanced problem; every row of the plan follows from them.

    Attributes:
        class_potential: l = log v, float64, (n_classes,).
        class_confidence: column sums of the plan divided by its total, float64, (n_classes,).
        total_mass: total of the plan before the division.
        n_rows: number of rows of the problem, including repeats and filling.
        epsilon: weight of the entropy.
        marginal_penalty: κ.
        tolerance: accuracy of the solution. A mass that is below the mean by less counts as equal to it: rounding
            must not reject rows that all have exactly the mean mass (one sample, one class).
        converged: whether the solver reached the tolerance.
        passes: number of passes over the rows.
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
        """Return the logarithm of the plan's rows for samples of the problem or for new ones.

        Args:
            similarity: (n_samples, n_classes).

        Returns:
            float64, (n_samples, n_classes); the exponentials of all rows of the problem sum to one.
        """
        similarity = as_tensor(similarity, "similarity")
        logits = similarity.double() / self.epsilon + self.class_potential.to(similarity.device)
        log_rows = torch.logsumexp(logits, dim=1, keepdim=True)
        return logits - self.shrinkage * (log_rows + math.log(self.n_rows)) - math.log(self.total_mass)

    @one_thread_if_small
    def assign(self, similarity: Array) -> Assignment:
        """Assign samples to classes, each independently of the others: the inductive form of the test rule.

        A sample is known if the largest mass of its row is at least the mean mass of a row.

        Args:
            similarity: (n_samples, n_classes).

        Returns:
            Class, confidence and known or unknown, per sample.

        Paper: Eq. (5), and the first test of Eq. (7).
        """
        similarity = as_tensor(similarity, "similarity")
        size = max(1, _ENTRIES_AT_ONCE // similarity.shape[1])
        parts = [self.log_mass(rows).max(dim=1) for rows in similarity.split(size)]
        confidence = torch.cat([part.values for part in parts]).exp()
        nearest = torch.cat([part.indices for part in parts])
        return Assignment(nearest, confidence, confidence * self.n_rows >= 1 - self.tolerance)

    def common_classes(self) -> Tensor:
        """Return the classes with at least the mean mass, bool (n_classes,). Paper: the second test of Eq. (7)."""
        return self.class_confidence * len(self.class_confidence) >= 1 - self.tolerance

    @property
    def shrinkage(self) -> float:
        """Return f = κ / (κ + ε), the exponent of the scaling steps."""
        return self.marginal_penalty / (self.marginal_penalty + self.epsilon)


# Up to this range of exponents the scalings fit into float32; beyond it the iteration runs in the log domain.
_SAFE_SPREAD = 80.0


@one_thread_if_small
def balanced_plan(similarity: Array, epsilon: float = 0.05, iterations: int = 3) -> Tensor:
    """Solve the entropic transport problem with uniform marginals by Sinkhorn iterations.

    Args:
        similarity: (n_samples, n_clusters), not divided by the temperature.
        epsilon: weight of the entropy.
        iterations: number of scaling steps, columns then rows; three as in SwAV, more for an exact plan.

    Returns:
        The plan, (n_samples, n_clusters). Each row sums to 1 / n_samples exactly, each column to 1 / n_clusters in the
        limit.

    Raises:
        DataError: `similarity` is not a finite matrix.
        SettingsError: `epsilon` or `iterations` is out of range.

    Paper: Eq. (2), (10); ε and the number of iterations as in the authors' code.

    References:
        Cuturi: Sinkhorn distances: lightspeed computation of optimal transport. NeurIPS 2013, arXiv:1306.0895.
        Chang et al.: Unified optimal transport framework for universal domain adaptation. NeurIPS 2022,
        arXiv:2210.17067.
    """
    similarity = as_tensor(similarity, "similarity")
    if similarity.ndim != 2 or 0 in similarity.shape:
        raise DataError(
            f"similarity has shape {tuple(similarity.shape)}. Give one row per sample and one column per cluster."
        )
    if not 1e-3 <= epsilon <= 10 or iterations < 1:
        raise SettingsError(
            f"epsilon is {epsilon} and iterations {iterations}; give 0.001 to 10 and at least one iteration."
        )
    check_finite(similarity, "similarity")
    n, k = similarity.shape
    # The range of half precision is too small for the kernel.
    similarity = similarity.to(torch.promote_types(similarity.dtype, torch.float32))
    largest = similarity.amax(dim=1)
    exponent = (similarity - largest[:, None]) / epsilon
    # A row scaling cancels the shift of its row; it must start from it, or few iterations would give another plan.
    log_u = (largest - largest.max()) / epsilon
    if float((exponent.amin(dim=1) + log_u).detach().min()) < -_SAFE_SPREAD:
        return _in_logarithms(exponent.double(), log_u.double(), iterations).to(similarity.dtype)
    kernel = exponent.exp_()
    u = v = log_u.exp()
    for _ in range(iterations):
        v = 1 / (k * torch.mv(kernel.t(), u))
        u = 1 / (n * torch.mv(kernel, v))
    return kernel * u[:, None] * v


def _in_logarithms(exponent: Tensor, log_u: Tensor, iterations: int) -> Tensor:
    n, k = exponent.shape
    log_v = exponent.new_zeros(k)
    for _ in range(iterations):
        log_v = -math.log(k) - torch.logsumexp(exponent + log_u[:, None], dim=0)
        log_u = -math.log(n) - torch.logsumexp(exponent + log_v, dim=1)
    return (exponent + log_u[:, None] + log_v).exp()
