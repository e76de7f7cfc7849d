"""One streaming pass over the rows of the unbalanced problem.

Given the class potential l, every row's scaling follows from that row alone, so a pass needs no memory of
the rows: it reads a chunk, adds the chunk's part of the column sums, and forgets it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from uniot.transport.rows import Rows

Reduce = Callable[[Tensor], Tensor]
Chunk = tuple[Tensor, Tensor]
"""Kernel rows, and the logarithm of what each row's scaling starts from."""

# exp is many times slower where it underflows; e^-86 is still a normal float32 and far below any rounding.
_SMALLEST_EXPONENT = -86.0
# Scalings further from their middle than e^35 could leave float32 when squared: the kernel is then built anew.
_LARGEST_SPREAD = 70.0
# With so few classes, or in so small a problem, the whole Jacobian costs less than the passes it saves.
_FULL_JACOBIAN_CLASSES, _FULL_JACOBIAN_PRODUCTS = 64, 1 << 25
_CHUNK_ENTRIES = 1 << 19
_BLOCK_ENTRIES = 1 << 16
_CACHED_ENTRIES = 40_000_000


@dataclass(frozen=True)
class Problem:
    """Everything that defines an unbalanced problem.

    Attributes:
        rows: similarities of the samples of this process.
        row_counts: how often each of them stands in the problem, (n,); once each if None.
        n_rows: rows of the whole problem, repeats counted, over all processes.
        class_mass: β, (c,), positive.
        epsilon: weight of the entropy.
        marginal_penalty: κ.
        reduce: adds a vector up over the processes that share the rows.
    """

    rows: Rows
    row_counts: Tensor | None
    n_rows: int
    class_mass: np.ndarray
    epsilon: float
    marginal_penalty: float
    reduce: Reduce | None

    @property
    def shrinkage(self) -> float:
        """f = κ / (κ + ε)."""
        return self.marginal_penalty / (self.marginal_penalty + self.epsilon)

    @property
    def prefers_full_jacobian(self) -> bool:
        """Whether the whole Jacobian is cheap beside the passes that it saves; the same in every process."""
        c = len(self.class_mass)
        return c <= _FULL_JACOBIAN_CLASSES or self.n_rows * c * c <= _FULL_JACOBIAN_PRODUCTS


@dataclass(frozen=True)
class Sweep:
    """What one pass yields, in float64."""

    update: np.ndarray
    """T(l), the next potential of the plain fixed-point iteration, (c,)."""
    class_mass: np.ndarray
    """Column sums of the plan, not normalised, (c,)."""
    jacobian: np.ndarray | None
    """P = D_col⁻¹ Qᵀ D_row⁻¹ Q, (c, c), or its diagonal, (c,); the Jacobian of T is f² P."""


class Kernel:
    """exp(S/ε + l₀ − row maximum), kept in memory where it fits and recomputed in each pass where not."""

    def __init__(self, problem: Problem, *, full_jacobian: bool) -> None:
        self.problem = problem
        self.has_full_jacobian = full_jacobian
        self.passes = 0
        self._log_class_mass = np.log(problem.class_mass)
        self._chunk_size = max(1024, _CHUNK_ENTRIES // problem.rows.n_classes)
        self._cached: list[Chunk] = []
        self._memory: Tensor | None = None
        self._centre = np.zeros(0)

    def sweep(self, potential: np.ndarray, *, with_jacobian: bool) -> Sweep:
        """Evaluates the fixed-point map at `potential` in one pass over the rows."""
        self.passes += 1
        f = self.problem.shrinkage
        chunks = self._around(potential)
        shift = potential - self._centre
        # A common shift t of the potential moves the map by f² t exactly: take it out, it may be large.
        common = float(shift.max() + shift.min()) / 2
        scaling = np.exp(shift - common)
        n_more = (len(potential) if self.has_full_jacobian else 1) if with_jacobian else 0
        sums = np.zeros((1 + n_more, len(potential)))
        for kernel, log_factor in chunks:
            if kernel.is_cpu:
                self._add_chunk(sums, kernel.numpy(), log_factor.numpy(), scaling)
            else:
                _add_chunk_on_device(sums, kernel, log_factor, scaling, f)
        # In units of the plan the sums do not depend on the centre, which may differ from process to process.
        sums *= scaling * np.exp((1 - f) * common)
        sums[1:] *= scaling[:, None] if n_more == len(potential) else scaling
        if self.problem.reduce is not None:
            sums = self.problem.reduce(torch.from_numpy(sums).reshape(-1)).numpy().reshape(sums.shape)
        mass = np.maximum(sums[0], np.finfo(np.float32).tiny)
        update = f * (self._log_class_mass - np.log(mass) + potential)
        if not with_jacobian:
            return Sweep(update, mass, None)
        return Sweep(update, mass, sums[1:] / mass[:, None] if self.has_full_jacobian else sums[1] / mass)

    def plan(self, potential: np.ndarray) -> Tensor:
        """The rows of the plan, (n, c), not normalised. They take the kernel's place in memory: it is spent."""
        rows, f = self.problem.rows, self.problem.shrinkage
        chunks = self._around(potential)
        shift = potential - self._centre
        common = float(shift.max() + shift.min()) / 2
        memory = rows.chunk(0, 1).new_empty(len(rows), rows.n_classes) if self._memory is None else self._memory
        for (kernel, log_factor), out in zip(chunks, memory.split(self._chunk_size), strict=True):
            scaling = torch.from_numpy(np.exp(shift - common)).to(kernel)
            factor = torch.exp(log_factor + (1 - f) * common) * torch.mv(kernel, scaling).pow_(-f)
            torch.mul(kernel, scaling, out=out).mul_(factor[:, None])
        self._cached, self._memory = [], None
        return memory

    def _around(self, potential: np.ndarray) -> Iterable[Chunk]:
        """Kernel chunks centred at a potential close enough to the one that is asked for."""
        rows = self.problem.rows
        if len(rows) * rows.n_classes > _CACHED_ENTRIES:
            self._centre = potential
            return self._build()
        if not self._cached or np.ptp(potential - self._centre) > _LARGEST_SPREAD:
            self._centre = potential
            if self._memory is None and len(rows):
                # In one block, which the allocator keeps for the next problem: new memory is several times dearer.
                self._memory = rows.chunk(0, 1).new_empty(len(rows), rows.n_classes)
            self._cached = list(self._build())
        return self._cached

    def _build(self) -> Iterator[Chunk]:
        problem, f = self.problem, self.problem.shrinkage
        for start in range(0, len(problem.rows), self._chunk_size):
            similarity = problem.rows.chunk(start, start + self._chunk_size)
            centre = torch.from_numpy(self._centre).to(similarity)
            kernel = None if self._memory is None else self._memory[start : start + self._chunk_size]
            kernel = torch.add(centre, similarity, alpha=1 / problem.epsilon, out=kernel)
            largest = kernel.amax(dim=1)
            kernel.sub_(largest[:, None]).clamp_(min=_SMALLEST_EXPONENT).exp_()
            log_factor = largest.mul_(1 - f).sub_(f * float(np.log(problem.n_rows)))
            if problem.row_counts is not None:
                log_factor += problem.row_counts[start : start + self._chunk_size].to(log_factor).log()
            yield kernel, log_factor

    def _add_chunk(self, sums: np.ndarray, kernel: np.ndarray, log_factor: np.ndarray, scaling: np.ndarray) -> None:
        """Adds a chunk's column sums to `sums[0]`, and its part of the Jacobian to the rows after it, if there are any.

        NumPy rather than torch: its matrix-vector products are three times as fast on a CPU.
        """
        row_sums = kernel @ scaling.astype(kernel.dtype)
        u = np.log(row_sums)
        u *= -self.problem.shrinkage
        u += log_factor
        np.exp(u, out=u)
        sums[0] += u @ kernel
        if len(sums) == 1:
            return
        u /= row_sums
        # Block by block, so that the scaled copy stays in the processor's cache.
        size = max(64, _BLOCK_ENTRIES // kernel.shape[1])
        scratch = np.empty((min(size, len(kernel)), kernel.shape[1]), kernel.dtype)
        for start in range(0, len(kernel), size):
            block, weights = kernel[start : start + size], u[start : start + size]
            copy = scratch[: len(block)]
            if self.has_full_jacobian:
                sums[1:] += np.multiply(block, weights[:, None], out=copy).T @ block
            else:
                sums[1] += weights @ np.multiply(block, block, out=copy)


def _add_chunk_on_device(sums: np.ndarray, kernel: Tensor, log_factor: Tensor, scaling: np.ndarray, f: float) -> None:
    """The same on an accelerator; only the sums travel."""
    row_sums = torch.mv(kernel, torch.from_numpy(scaling).to(kernel))
    u = (log_factor - f * row_sums.log()).exp_()
    sums[0] += torch.mv(kernel.t(), u).cpu().numpy()
    if len(sums) == 1:
        return
    u /= row_sums
    if len(sums) == 2:
        sums[1] += torch.mv((kernel * kernel).t(), u).cpu().numpy()
    else:
        sums[1:] += ((kernel * u[:, None]).t() @ kernel).cpu().numpy()
