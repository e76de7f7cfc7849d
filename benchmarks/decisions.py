"""The two tests of Eq. (7) against those on the plan of POT."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from measure import Report
from peers import TO_THE_END, Pot
from problems import Problem

from uniot.transport.unbalanced import UnbalancedPotential, unbalanced_potential

RULE_TOLERANCE = 1e-9


@dataclass(frozen=True)
class Decisions:
    """The two tests of Eq. (7), and how near a row or a class comes to their border, relative to it."""

    known: np.ndarray
    class_kept: np.ndarray
    margin: float


def of_pot(problem: Problem) -> Decisions:
    plan = Pot(problem).plan(0, TO_THE_END)
    plan /= plan.sum()
    rows, classes = plan.max(axis=1) * len(plan), plan.sum(axis=0) * plan.shape[1]
    margin = min(float(np.abs(values - 1).min()) for values in (rows, classes))
    return Decisions(rows >= 1, classes >= 1, margin)


def differing(ours: UnbalancedPotential, problem: Problem, pot: Decisions) -> int:
    known = ours.assign(problem.similarity).known.numpy()
    return int((known != pot.known).sum() + (ours.common_classes().numpy() != pot.class_kept).sum())


def compare_decisions(report: Report, problems: dict[str, Iterable[Problem]]) -> None:
    """Share of equal decisions, known or not and class kept or not, against POT in float64 run to the end."""
    for name, several in problems.items():
        compared = different = quick = 0
        margin = float("inf")
        for problem in several:
            pot = of_pot(problem)
            quick += differing(unbalanced_potential(problem.similarity, problem.class_mass), problem, pot)
            # As a run decides in the end: float64, and further than a training step needs.
            rule = unbalanced_potential(problem.similarity.double(), problem.class_mass, tolerance=RULE_TOLERANCE)
            different += differing(rule, problem, pot)
            compared += len(pot.known) + len(pot.class_kept)
            margin = min(margin, pot.margin)
        print(f"{name}: {quick} of {compared} decisions differ in float32 at the default tolerance")
        what = f"{name}: {different} of {compared} decisions differ (nearest to the border: {margin:.0e})"
        report.at_least(what, 100 * (1 - different / compared), 100, "%", compared=compared, different=different)
