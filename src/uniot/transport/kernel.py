"""Evaluate one streaming pass over the rows of the unbalanced problem.

Given the class potential l, the scaling of a row follows from that row alone. A pass reads the rows chunk by chunk and
keeps only their column sums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from uniot.transport.rows import Rows

Reduce = Callable[[Tensor], Tensor]
Chunk = tuple[Tensor, Tensor]
"""Kernel rows, and the logarithm of each row's initial scaling."""

# exp is many times slower when it underflows; e^-86 is still a normal float32 and far below rounding.
_SMALLEST_EXPONENT = -86.0
# Scalings farther than e^35 from their centre could overflow float32 when squared: the kernel is then rebuilt.
_LARGEST_SPREAD = 70.0
# Up to this many classes, or products, the full Jacobian costs less than the passes that it saves.
_FULL_JACOBIAN_CLASSES, _FULL_JACOBIAN_PRODUCTS = 64, 1 << 25
_CHUNK_ENTRIES = 1 << 19
_BLOCK_ENTRIES = 1 << 16
_CACHED_ENTRIES = 40_000_000


@dataclass(frozen=True)
class Problem:
    """Defines an unbalanced transport problem.

    Attributes:
        rows: similarities of this process's samples.
        row_counts: multiplicity of each row, (n_samples,); one if None.
        n_rows: number of rows of the whole problem, including repeats, over all processes.
        class_mass: β, (n_classes,), positive.
        epsilon: weight of the entropy.
        marginal_penalty: κ.
        reduce: sums a vector over the processes that share the rows; None for a single process.
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
        """Return f = κ / (κ + ε)."""
        return self.marginal_penalty / (self.marginal_penalty + self.epsilon)

    @property
    def prefers_full_jacobian(self) -> bool:
        """Return whether the full Jacobian is cheaper than the passes that it saves; the same in every process."""
        c = len(self.class_mass)
        return c <= _FULL_JACOBIAN_CLASSES or self.n_rows * c * c <= _FULL_JACOBIAN_PRODUCTS


@dataclass(frozen=True)
class Sweep:
    """Result of one pass, in float64.

    Attributes:
        update: T(l), the next potential of the plain fixed-point iteration, (n_classes,).
        class_mass: column sums of the plan, not normalised, (n_classes,).
        jacobian: P = D_col⁻¹ Qᵀ D_row⁻¹ Q, (n_classes, n_classes), or its diagonal, (n_classes,); the Jacobian of T is
            f² P. None if it was not requested.
    """

    update: np.ndarray
    class_mass: np.ndarray
    jacobian: np.ndarray | None


class Kernel:
    """Holds the kernel exp(S/ε + l₀ − row maximum), if it fits into memory, or recomputes it in each pass.

    Args:
        problem: the problem.
        full_jacobian: whether passes compute the full Jacobian or only its diagonal.
    """

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
        """Evaluate the fixed-point map in one pass over the rows.

        Args:
            potential: class potential l, (n_classes,).
            with_jacobian: whether to compute the Jacobian, or its diagonal.

        Returns:
            T(l), the column sums of the plan, and the Jacobian if requested.
        """
        self.passes += 1
        f = self.problem.shrinkage
        chunks = self._around(potential)
        shift = potential - self._centre
        # A common shift t of the potential shifts the map by f² t exactly; it is removed, because it may be large.
        common = float(shift.max() + shift.min()) / 2
        scaling = np.exp(shift - common)
        n_more = (len(potential) if self.has_full_jacobian else 1) if with_jacobian else 0
        sums = np.zeros((1 + n_more, len(potential)))
        for kernel, log_factor in chunks:
            if kernel.is_cpu:
                self._add_chunk(sums, kernel.numpy(), log_factor.numpy(), scaling)
            else:
                _add_chunk_on_device(sums, kernel, log_factor, scaling, f)
        # In units of the plan the sums are independent of the centre, which may differ between processes.
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
        """Return the plan, (n_samples, n_classes), not normalised, in the memory of the kernel, which is lost."""
        rows, f = self.problem.rows, self.problem.shrinkage
        chunks = self._around(potential)
        shift = potential - self._centre
        common = float(shift.max() + shift.min()) / 2
        memory = rows.chunk(0, 1).new_empty(len(rows), rows.n_classes) if self._memory is None else self._memory
        for (kernel, log_factor), out in zip(chunks, memory.split(self._chunk_size), strict=True):
            scaling = torch.from_numpy(np.exp(shift - common)).to(kernel)
            if kernel.is_cpu:
                _scale_rows(kernel.numpy(), log_factor.numpy() + (1 - f) * common, scaling.numpy(), f, out.numpy())
                continue
            factor = torch.exp(log_factor + (1 - f) * common) * torch.mv(kernel, scaling).pow_(-f)
            torch.mul(kernel, scaling, out=out).mul_(factor[:, None])
        self._cached, self._memory = [], None
        return memory

    def _around(self, potential: np.ndarray) -> Iterable[Chunk]:
        """Return kernel chunks that are centred at a potential close to the given one."""
        rows = self.problem.rows
        if len(rows) * rows.n_classes > _CACHED_ENTRIES:
            self._centre = potential
            return self._build()
        if not self._cached or np.ptp(potential - self._centre) > _LARGEST_SPREAD:
            self._centre = potential
            if self._memory is None and len(rows):
                # One block, which the allocator reuses for the next problem: new memory is several times slower.
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
        """Add the column sums of a chunk to `sums[0]`, and its part of the Jacobian to the further rows, if any.

        Computed with NumPy, whose matrix-vector products are three times as fast as torch's on a CPU.
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
        # In blocks, so that the scaled copy stays in the processor's cache.
        size = max(64, _BLOCK_ENTRIES // kernel.shape[1])
        scratch = np.empty((min(size, len(kernel)), kernel.shape[1]), kernel.dtype)
        for start in range(0, len(kernel), size):
            block, weights = kernel[start : start + size], u[start : start + size]
            copy = scratch[: len(block)]
            if self.has_full_jacobian:
                sums[1:] += np.multiply(block, weights[:, None], out=copy).T @ block
            else:
                sums[1] += weights @ np.multiply(block, block, out=copy)


def _scale_rows(kernel: np.ndarray, log_factor: np.ndarray, scaling: np.ndarray, f: float, out: np.ndarray) -> None:
    """Write the rows of the plan to `out`, in blocks that stay in the processor's cache."""
    factor = np.exp(log_factor - f * np.log(kernel @ scaling)).astype(kernel.dtype, copy=False)
    size = max(64, _BLOCK_ENTRIES // kernel.shape[1])
    for start in range(0, len(kernel), size):
        block = slice(start, start + size)
        np.multiply(kernel[block], scaling, out=out[block])
        out[block] *= factor[block, None]


def _add_chunk_on_device(sums: np.ndarray, kernel: Tensor, log_factor: Tensor, scaling: np.ndarray, f: float) -> None:
    """Add a chunk like `_add_chunk`, on an accelerator; only the sums are copied to the CPU."""
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
