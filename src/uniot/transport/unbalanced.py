"""Solve unbalanced optimal transport from samples to classes, for the class potentials.

Maximise ⟨Q, S⟩ + ε H(Q) − κ KL(Q 1 ‖ α) − κ KL(Qᵀ 1 ‖ β). Only l = log v is unknown: given l, every row of the plan
follows from that row alone. One pass over the rows (`kernel.py`) evaluates the fixed-point map of l; `iteration.py`
finds its fixed point in about ten passes, while plain Sinkhorn iterations take hundreds.

References:
    Chizat, Peyré, Schmitzer and Vialard: Scaling algorithms for unbalanced optimal transport problems. Mathematics of
    Computation 2018, arXiv:1607.05816.
    Chang et al.: Unified optimal transport framework for universal domain adaptation. NeurIPS 2022, arXiv:2210.17067.
"""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from uniot.errors import DataError, NumericalWarning, SettingsError
from uniot.transport.iteration import Solved, solve
from uniot.transport.kernel import Problem, Reduce
from uniot.transport.plan import TransportPlan, UnbalancedPotential
from uniot.transport.rows import (
    Array,
    Rows,
    SimilarityRows,
    as_tensor,
    flushed_subnormals,
    one_numpy_thread,
    one_thread_if_small,
)

# Keeps the potential of an absent class finite.
_CLASS_MASS_FLOOR = 1e-10
# A large problem starts from a coarse solution for every k-th row, which takes little time.
_SAMPLE_ROWS, _SAMPLE_SHARE, _SAMPLE_TOLERANCE, _SAMPLE_PASSES, _SAMPLE_FROM_STRIDE = 1024, 64, 1e-2, 10, 4


@one_thread_if_small
@torch.no_grad()
def unbalanced_plan(
    similarity: Array,
    class_mass: Array | None = None,
    epsilon: float = 0.01,
    marginal_penalty: float = 0.5,
    tolerance: float = 1e-6,
    *,
    start: Array | None = None,
    max_passes: int = 500,
) -> TransportPlan:
    """Solve the unbalanced transport problem from samples of mass 1 / n_samples to classes, with soft marginals.

    Args:
        similarity: usually cosines, (n_samples, n_classes); a tensor or an array.
        class_mass: β, the mass that each class may receive, (n_classes,); uniform if None.
        epsilon: weight of the entropy.
        marginal_penalty: κ, weight of the Kullback-Leibler penalties on both marginals.
        tolerance: accuracy of the potentials, as |ε Δl|.
        start: class potential of a similar problem, (n_classes,).
        max_passes: maximum number of passes over the rows; the solver then stops with a NumericalWarning.

    Returns:
        The plan, divided by its total mass.

    Raises:
        DataError: an array is not finite or has the wrong shape.
        SettingsError: a setting is out of range.

    Paper: Eq. (3), (4).
    """
    problem = _problem(SimilarityRows(similarity), class_mass, epsilon, marginal_penalty, tolerance)
    solved = _solve(problem, start, tolerance, max_passes)
    with one_numpy_thread(), flushed_subnormals():
        mass = solved.kernel.plan(solved.potential)
    total = float(mass.sum(dim=1).sum(dtype=torch.float64))
    return TransportPlan(
        mass=mass.div_(total),
        total_mass=total,
        class_potential=torch.from_numpy(solved.potential),
        converged=solved.converged,
        passes=solved.passes,
    )


@one_thread_if_small
@torch.no_grad()
def unbalanced_potential(
    rows: Array | Rows,
    class_mass: Array | None = None,
    epsilon: float = 0.01,
    marginal_penalty: float = 0.5,
    tolerance: float = 1e-6,
    *,
    row_counts: Array | None = None,
    start: Array | None = None,
    max_passes: int = 500,
    reduce: Reduce | None = None,
) -> UnbalancedPotential:
    """Solve the same problem as `unbalanced_plan` without holding the plan in memory.

    Args:
        rows: similarity (n_samples, n_classes), or `FeatureRows`, which are read chunk by chunk. Kernels are float32,
            or float64 if the rows are.
        class_mass: β, the mass that each class may receive, (n_classes,); uniform if None.
        epsilon: weight of the entropy.
        marginal_penalty: κ, weight of the Kullback-Leibler penalties on both marginals.
        tolerance: accuracy of the potentials, as |ε Δl|.
        row_counts: multiplicity of each row, (n_samples,); one if None.
        start: class potential of a similar problem, (n_classes,).
        max_passes: maximum number of passes over the rows; the solver then stops with a NumericalWarning.
        reduce: sums a float64 vector over the processes that share the rows (all-reduce); None for a single process.
            It is called once per pass with c (c + 1) numbers, or 2 c for many classes and rows.

    Returns:
        The class potential, from which every row of the plan follows.

    Raises:
        DataError: an array is not finite or has the wrong shape.
        SettingsError: a setting is out of range.

    Paper: Eq. (3), (4); the solver is this project's.
    """
    rows = SimilarityRows(rows) if isinstance(rows, (Tensor, np.ndarray)) else rows
    problem = _problem(rows, class_mass, epsilon, marginal_penalty, tolerance, row_counts, reduce)
    solved = _solve(problem, start, tolerance, max_passes)
    # At the solution the column sums follow from the potential alone (the objective's gradient is zero).
    received = problem.class_mass * np.exp(-epsilon / marginal_penalty * solved.potential)
    return UnbalancedPotential(
        class_potential=torch.from_numpy(solved.potential),
        class_confidence=torch.from_numpy(received / received.sum()),
        total_mass=float(received.sum()),
        n_rows=problem.n_rows,
        epsilon=epsilon,
        marginal_penalty=marginal_penalty,
        tolerance=tolerance,
        converged=solved.converged,
        passes=solved.passes,
    )


def _problem(
    rows: Rows,
    class_mass: Array | None,
    epsilon: float,
    marginal_penalty: float,
    tolerance: float,
    row_counts: Array | None = None,
    reduce: Reduce | None = None,
) -> Problem:
    _check_settings(epsilon, marginal_penalty, tolerance)
    beta = _class_mass(class_mass, rows.n_classes)
    row_counts = None if row_counts is None else as_tensor(row_counts, "row_counts")
    n_rows = _count(rows, row_counts, reduce)
    if n_rows < 1:
        raise DataError("the transport problem has no rows. Give at least one sample.")
    return Problem(rows, row_counts, n_rows, beta, epsilon, marginal_penalty, reduce)


def _solve(problem: Problem, start: Array | None, tolerance: float, max_passes: int) -> Solved:
    # One thread of NumPy is this thread, which is the one that flushes.
    with one_numpy_thread(), flushed_subnormals():
        begin = _rough_start(problem) if start is None else _start(start, problem.rows.n_classes)
        solved = solve(problem, begin, tolerance, max_passes)
    if not solved.converged:
        warnings.warn(
            f"the unbalanced transport stopped after {solved.passes} passes with potentials still moving by "
            f"{solved.error:.1e}; {tolerance:.1e} was asked for. Raise max_passes, tolerance or epsilon "
            f"(now {problem.epsilon}).",
            NumericalWarning,
            stacklevel=3,
        )
    return solved


def _rough_start(problem: Problem) -> np.ndarray:
    """Return the potential of the problem of every k-th row if there are many rows, else zeros, (n_classes,)."""
    rows, counts, nowhere = problem.rows, problem.row_counts, np.zeros(problem.rows.n_classes)
    stride = problem.n_rows // max(_SAMPLE_ROWS, 2 * rows.n_classes, problem.n_rows // _SAMPLE_SHARE)
    if stride < _SAMPLE_FROM_STRIDE:
        return nowhere
    sample = SimilarityRows(rows.every(stride))
    sample_counts = None if counts is None else counts[::stride]
    n_sample = _count(sample, sample_counts, problem.reduce)
    # All of the selected rows may have a count of zero.
    if not n_sample:
        return nowhere
    sampled = replace(problem, rows=sample, row_counts=sample_counts, n_rows=n_sample)
    return solve(sampled, nowhere, _SAMPLE_TOLERANCE, _SAMPLE_PASSES).potential


def _check_settings(epsilon: float, marginal_penalty: float, tolerance: float) -> None:
    if not 1e-3 <= epsilon <= 10:
        raise SettingsError(f"epsilon is {epsilon}; give a number from 0.001 to 10 (the paper uses 0.01).")
    # For a smaller κ a class may receive e^(-2/κ) of its mass, which is below the resolution of float32 kernels.
    if not 0.05 <= marginal_penalty <= 1e3:
        raise SettingsError(
            f"marginal_penalty is {marginal_penalty}; give a number from 0.05 to 1000 (the paper uses 0.5)."
        )
    if not tolerance > 0:
        raise SettingsError(f"tolerance is {tolerance}; give a positive number such as 1e-6.")


def _class_mass(class_mass: Array | None, n_classes: int) -> np.ndarray:
    if class_mass is None:
        return np.full(n_classes, 1 / n_classes)
    beta: np.ndarray = as_tensor(class_mass, "class_mass").detach().cpu().double().numpy()
    if beta.shape != (n_classes,):
        raise DataError(
            f"class_mass has shape {beta.shape} for {n_classes} classes. Give one number per column of the similarity."
        )
    if not np.isfinite(beta).all() or beta.min() < 0 or beta.sum() <= 0:
        raise DataError(
            "class_mass holds NaN, infinite or negative numbers, or only zeros. "
            "Give non-negative numbers, at least one of them positive."
        )
    floored: np.ndarray = np.maximum(beta, _CLASS_MASS_FLOOR)
    return floored


def _start(start: Array, n_classes: int) -> np.ndarray:
    begin: np.ndarray = as_tensor(start, "start").detach().cpu().double().numpy()
    if begin.shape != (n_classes,) or not np.isfinite(begin).all():
        raise DataError(
            f"start has shape {begin.shape} or holds NaN or infinite numbers. "
            f"Give one finite number per class, {n_classes} of them, or None."
        )
    return begin


def _count(rows: Rows, row_counts: Tensor | None, reduce: Reduce | None) -> int:
    """Return the number of rows of the whole problem, including repeats, over all processes."""
    if row_counts is not None and row_counts.shape != (len(rows),):
        raise DataError(f"row_counts has shape {tuple(row_counts.shape)} for {len(rows)} rows. Give one per row.")
    if row_counts is not None and not bool(((row_counts >= 0) & torch.isfinite(row_counts)).all()):
        raise DataError("row_counts holds NaN, infinite or negative numbers. Give the multiplicity of each row.")
    counted = float(len(rows)) if row_counts is None else float(row_counts.sum(dtype=torch.float64))
    if reduce is not None:
        counted = float(reduce(torch.tensor([counted], dtype=torch.float64))[0])
    return round(counted)
