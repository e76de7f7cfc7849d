"""How many passes over the rows the solver makes from a cold start."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from accuracy import ACCURACY, error, reference
from measure import Report
from peers import TO_THE_END, Pot
from problems import Problem

from uniot.transport.unbalanced import Kernel, unbalanced_potential


@dataclass(frozen=True)
class Pass:
    """One sweep of the solver: how many rows it read, and where it stood before."""

    rows: int
    potential: np.ndarray
    with_jacobian: bool


@dataclass(frozen=True)
class Course:
    """A cold solve at the default tolerance, pass by pass."""

    reached_after: float
    returned_after: int
    sample_cost: float
    with_jacobian: int
    final_error: float


@contextmanager
def recorded_passes() -> Iterator[list[Pass]]:
    """Notes every sweep that is made within the block."""
    passes: list[Pass] = []
    sweep = Kernel.sweep

    def recorded(self: Kernel, potential: np.ndarray, *, with_jacobian: bool):
        passes.append(Pass(len(self.problem.rows), potential.copy(), with_jacobian))
        return sweep(self, potential, with_jacobian=with_jacobian)

    Kernel.sweep = recorded
    try:
        yield passes
    finally:
        Kernel.sweep = sweep


def course(problem: Problem, solution: np.ndarray) -> Course:
    similarity = problem.similarity
    with recorded_passes() as passes:
        answer = unbalanced_potential(similarity, problem.class_mass)
    full = [one for one in passes if one.rows == len(similarity)]
    on_sample = sum(one.rows for one in passes if one.rows < len(similarity))
    # The k-th pass begins from what k - 1 passes led to, and the answer is what all of them led to.
    after = [*(one.potential for one in full), answer.class_potential.numpy()]
    errors = [error(potential, solution) for potential in after]
    outside = [count for count, value in enumerate(errors) if value > ACCURACY]
    return Course(
        reached_after=float("inf") if outside and outside[-1] == len(full) else (outside[-1] + 1 if outside else 0),
        returned_after=answer.passes,
        sample_cost=on_sample / len(similarity),
        with_jacobian=sum(one.with_jacobian for one in full),
        final_error=errors[-1],
    )


def measure_passes(report: Report, name: str, problems: Iterable[Problem], *, check: bool) -> None:
    """Passes, cold, until ε l is within 1e-6 of the solution for good; passes over a sample of the rows count too."""
    courses: list[Course] = []
    of_reference: list[float] = []
    for problem in problems:
        solution = reference(problem)
        courses.append(course(problem, solution))
        if check:
            of_reference.append(error(Pot(problem).class_potential(0, TO_THE_END)[0], solution))
    sample = max(one.sample_cost for one in courses)
    detail = {"problems": len(courses), "with_jacobian": [one.with_jacobian for one in courses]}
    reached = [one.reached_after + one.sample_cost for one in courses]
    report.at_most(f"{name}: passes until within 1e-6 ({sample:.2f} of them on a sample)", max(reached), 20, **detail)
    returned = [one.returned_after + one.sample_cost for one in courses]
    report.at_most(f"{name}: passes until the solver stops by itself", max(returned), 20, passes=returned)
    report.at_most(f"{name}: error of its answer", max(one.final_error for one in courses), ACCURACY)
    if of_reference:
        report.at_most(f"{name}: reference against POT run to the end", max(of_reference), 1e-9)
