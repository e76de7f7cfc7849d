"""Mean ranks and tests over tasks, on scores whose ranks and p-values are worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from uniot.benchmark.ranking import Ranking, rank_methods, write_critical_difference
from uniot.benchmark.results import Result
from uniot.errors import DataError


def result(method: str, task: int, h: float, seed: int = 0, dataset: str = "", failure: str = "") -> Result:
    score = {} if failure else {"h": h}
    return Result(
        method=method, task=f"A2B{task}", seed=seed, setting="open", backbone="x", steps=1, seconds=1.0,
        dataset=dataset, failure=failure, **score,
    )  # fmt: skip


# Source-only is worst everywhere; the other two are equal on one task and take turns on the others.
H = {
    "dance": [0.9, 0.7, 0.9, 0.7, 0.9, 0.7, 0.8],
    "uniot": [0.8, 0.8, 0.8, 0.8, 0.8, 0.8, 0.8],
    "source-only": [0.5, 0.4, 0.5, 0.3, 0.5, 0.4, 0.2],
}


def results() -> list[Result]:
    return [result(method, task, h) for method, row in H.items() for task, h in enumerate(row)]


def test_ranks_are_means_over_tasks_and_ties_share():
    ranking = rank_methods(results())
    # dance: 1 2 1 2 1 2 1.5; uniot: 2 1 2 1 2 1 1.5; both 10.5 / 7.
    assert ranking.methods[2] == "source-only"
    assert ranking.mean_ranks == pytest.approx((1.5, 1.5, 3.0))
    assert ranking.n_tasks == 7
    assert dict(zip(ranking.methods, ranking.mean_scores, strict=True))["dance"] == pytest.approx(0.8)


def test_p_value_of_a_method_that_always_loses_is_that_of_all_signs_alike():
    ranking = rank_methods(results())
    # Wilcoxon with seven differences of one sign: 2 / 2⁷; the smallest two of three pairs times 3 (Holm).
    assert ranking.p_values[2, 0] == pytest.approx(3 * 2 / 2**7)
    assert ranking.p_values[2, 1] == pytest.approx(3 * 2 / 2**7)
    assert ranking.p_values[0, 1] == 1
    assert ranking.friedman_p < 0.01


def test_seeds_of_a_task_are_averaged_and_data_sets_are_other_tasks():
    twice = [result(one.method, 0, one.h, seed, dataset) for one in results() for seed in (0, 1) for dataset in "abcdef"
             if one.task == "A2B0"]  # fmt: skip
    assert rank_methods(twice).n_tasks == 6


def test_task_that_a_method_failed_on_is_left_out():
    given = [*results(), *(result(method, 7, 0.5) for method in ("dance", "uniot"))]
    given.append(result("source-only", 7, 0.0, failure="killed"))
    assert rank_methods(given).n_tasks == 7


def test_too_few_tasks_or_methods_are_refused():
    with pytest.raises(DataError, match="7 tasks have a score of all 2 methods. A ranking needs at least 3 methods"):
        rank_methods([one for one in results() if one.method != "dance"])
    with pytest.raises(DataError, match="1 tasks have a score of all 3 methods"):
        rank_methods([one for one in results() if one.task == "A2B0"])


def test_bars_join_neighbours_of_which_no_pair_differs():
    p_values = np.array([[1.0, 0.5, 0.01, 0.01], [0.5, 1.0, 0.2, 0.01], [0.01, 0.2, 1.0, 0.6], [0.01, 0.01, 0.6, 1.0]])
    ranking = Ranking(("a", "b", "c", "d"), (1.0, 2.0, 3.0, 4.0), (0.9, 0.8, 0.7, 0.6), 10, 0.001, p_values)
    assert ranking.groups() == [(0, 1), (1, 2), (2, 3)]
    assert ranking.groups(level=0.005) == [(0, 3)]
    assert ranking.groups(level=0.5) == [(2, 3)]


def test_figure_names_every_method(tmp_path):
    written = write_critical_difference(tmp_path, "ranks", rank_methods(results()))
    assert sorted(path.suffix for path in written) == [".pdf", ".svg"]
    drawn = next(path for path in written if path.suffix == ".svg").read_text(encoding="utf-8")
    assert all(words in drawn for words in ("DANCE 1.5", "UniOT 1.5", "Source only 3.0", "over 7 tasks"))
