"""The solution that every answer is compared with, and the unit of the comparison."""

from __future__ import annotations

import numpy as np
from peers import EPSILON
from problems import Problem

from uniot.transport.unbalanced import unbalanced_potential

ACCURACY = 1e-6


def reference(problem: Problem) -> np.ndarray:
    """log v to 1e-12, in float64, of the problem whose similarities are float32."""
    return unbalanced_potential(
        problem.similarity.double(), problem.class_mass, tolerance=1e-12
    ).class_potential.numpy()


def error(potential: np.ndarray, solution: np.ndarray) -> float:
    """Largest |ε Δl|."""
    return EPSILON * float(np.abs(potential - solution).max())
