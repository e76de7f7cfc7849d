"""Rank methods over many tasks, test which differ, and draw the critical-difference diagram.

References:
    Demšar, Statistical Comparisons of Classifiers over Multiple Data Sets, JMLR 7, 2006.
    Benavoli, Corani and Mangili, Should We Really Use Post-Hoc Tests Based on Mean-Ranks?, JMLR 17, 2016: why pairs are
    compared by Wilcoxon's test and not by their mean ranks.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from uniot.benchmark.results import Result
from uniot.benchmark.significance import holm_corrected
from uniot.benchmark.tables import method_title
from uniot.errors import DataError
from uniot.report.figures import drawing, new_figure, save_figure

_LEAST_METHODS, _LEAST_TASKS = 3, 6


@dataclass(frozen=True)
class Ranking:
    """Mean ranks of methods, best first, and which pairs differ.

    Attributes:
        methods: names, by mean rank.
        mean_ranks: 1 is best; ties share the mean of their ranks, (n_methods,).
        mean_scores: mean score over the tasks, (n_methods,).
        n_tasks: number of tasks; the seeds of a task are averaged.
        friedman_p: p-value of Friedman's test that all methods are equally good.
        p_values: of Wilcoxon's signed-rank test per pair, with Holm's correction, (n_methods, n_methods); 1 on the
            diagonal.
    """

    methods: tuple[str, ...]
    mean_ranks: tuple[float, ...]
    mean_scores: tuple[float, ...]
    n_tasks: int
    friedman_p: float
    p_values: np.ndarray

    def groups(self, level: float = 0.05) -> list[tuple[int, int]]:
        """Return the longest runs of neighbouring ranks in which no pair differs, as first and last place.

        Args:
            level: pairs with a corrected p-value at most this differ.
        """
        n, found = len(self.methods), list[tuple[int, int]]()
        for first in range(n):
            last = first
            while last + 1 < n and (self.p_values[first : last + 2, last + 1] > level)[: last - first + 1].all():
                last += 1
            if last > first and not any(start <= first and last <= end for start, end in found):
                found.append((first, last))
        return found


def rank_methods(results: Iterable[Result], score: str = "h") -> Ranking:
    """Rank the methods over all tasks of all data sets and settings that every method has a score of.

    Args:
        results: of finished jobs; failed ones are left out.
        score: name of a score.

    Raises:
        DataError: fewer than three methods, or fewer than six tasks that all methods have.
    """
    from scipy.stats import friedmanchisquare, rankdata, wilcoxon

    by_task: dict[tuple[str, str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for result in results:
        value = result.score(score)
        if value is not None:
            by_task[result.dataset, result.setting, result.task][result.method].append(value)
    methods = sorted({method for task in by_task.values() for method in task})
    whole = [task for task in by_task.values() if len(task) == len(methods)]
    if len(methods) < _LEAST_METHODS or len(whole) < _LEAST_TASKS:
        raise DataError(
            f"{len(whole)} tasks have a score of all {len(methods)} methods. A ranking needs at least "
            f"{_LEAST_METHODS} methods and {_LEAST_TASKS} tasks."
        )
    scores = np.array([[statistics.fmean(task[method]) for method in methods] for task in whole])
    ranks = rankdata(-scores, axis=1).mean(axis=0)
    order = np.argsort(ranks, kind="stable")
    pairs = list(combinations(range(len(methods)), 2))
    # Equal differences must tie in spite of rounding.
    differences = [np.round(scores[:, order[i]] - scores[:, order[j]], 12) for i, j in pairs]
    # Two methods that are equal on every task have no differences to rank.
    raw = [float(wilcoxon(values).pvalue) if values.any() else 1.0 for values in differences]
    p_values = np.ones((len(methods), len(methods)))
    for (i, j), p in zip(pairs, holm_corrected(raw), strict=True):
        p_values[i, j] = p_values[j, i] = p
    return Ranking(
        methods=tuple(methods[place] for place in order),
        mean_ranks=tuple(ranks[order].tolist()),
        mean_scores=tuple(scores.mean(axis=0)[order].tolist()),
        n_tasks=len(whole),
        friedman_p=float(friedmanchisquare(*scores.T).pvalue),
        p_values=p_values,
    )


def write_critical_difference(folder: Path, name: str, ranking: Ranking, level: float = 0.05) -> list[Path]:
    """Draw mean ranks on an axis, best on the right, with a bar over methods that do not differ; PDF and SVG.

    Args:
        folder: where the figure is written.
        name: of its files, without suffix.
        ranking: what to draw.
        level: pairs with a corrected p-value at most this differ.

    Returns:
        The files that were written.
    """
    with drawing():
        figure = new_figure(1.2 + 0.16 * len(ranking.methods))
        _draw(figure, ranking, ranking.groups(level), level)
        return save_figure(figure, folder, name)


def _draw(figure: Any, ranking: Ranking, groups: Sequence[tuple[int, int]], level: float) -> None:
    axes, n = figure.subplots(), len(ranking.methods)
    half, depth = (n + 1) // 2, 1.0 + 0.5 * len(groups)
    axes.set_xlim(n + 0.2, 0.8)
    axes.set_ylim(depth + half + 0.5, -1.2)
    axes.axis("off")
    axes.hlines(0, 1, n, color="black", linewidth=1)
    for tick in range(1, n + 1):
        axes.vlines(tick, -0.25, 0, color="black", linewidth=1)
        axes.text(tick, -0.4, str(tick), ha="center", va="bottom", fontsize=7)
    for place, (method, rank) in enumerate(zip(ranking.methods, ranking.mean_ranks, strict=True)):
        on_right = place < half
        height = depth + (place if on_right else n - 1 - place)
        end = 0.8 if on_right else n + 0.2
        axes.plot([rank, rank, end], [0, height, height], color="black", linewidth=0.7)
        label = f"{method_title(method)} {rank:.1f}"
        axes.text(end, height, f" {label} ", ha="left" if on_right else "right", va="center", fontsize=7)
    for row, (first, last) in enumerate(groups):
        ends = ranking.mean_ranks[first] - 0.1, ranking.mean_ranks[last] + 0.1
        axes.hlines(0.5 + 0.5 * row, *ends, color="black", linewidth=3)
    axes.set_title(
        f"Mean rank over {ranking.n_tasks} tasks; a bar joins methods that do not differ (Wilcoxon, Holm, {level:g})",
        fontsize=7,
    )
